//! Route netlink socket in one namespace: sends requests, waits for answers, and reports the kernel's reasons.
//!
//! Handles messages and acknowledgements. The modules that add methods to [`Netlink`] handle their content: `link`,
//! `address`, `route`, `neighbour`.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use netlink_packet_core::{
    Emitable, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CREATE, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL,
    NLM_F_REPLACE, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::error::{HostError, Result};
use crate::netns::{Namespace, in_namespace};

/// linux/netlink.h: NLMSGERR_ATTR_MSG
const NLMSGERR_ATTR_MSG: u16 = 1;

/// The kernel answers within the request, but first waits for other changes of links.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Connection to the network configuration of one namespace.
///
/// The socket stays in the namespace in which it was opened, whichever thread uses it.
pub struct Netlink {
    socket: Socket,
    namespace: Namespace,
    sequence: Cell<u32>,
    /// Number of unreadable entries.
    skipped: Cell<u64>,
}

/// Kind of a request, and its treatment of existing objects.
#[derive(Clone, Copy)]
pub(crate) enum NetlinkRequest {
    /// Read or change; creates nothing.
    Plain,
    /// Create, and fail if the object exists.
    Create,
    /// Create or overwrite.
    Replace,
    /// List all objects of the kind.
    Dump,
}

/// Refusal of the kernel: the error number and often a message.
#[derive(Debug)]
pub(crate) struct NetlinkRefusal {
    pub(crate) cause: io::Error,
    pub(crate) detail: Option<String>,
}

impl NetlinkRefusal {
    pub(crate) fn errno(&self) -> Option<i32> {
        self.cause.raw_os_error()
    }

    /// Converts the refusal to an error with operation and object.
    pub(crate) fn on(self, operation: &'static str, object: impl Into<String>) -> HostError {
        HostError::Refused {
            operation,
            object: object.into(),
            cause: self.cause,
            detail: self.detail,
            hint: None,
        }
        .or_privilege(|| "needs CAP_NET_ADMIN: run as root, or under `unshare -Urnm`".into())
    }
}

impl From<io::Error> for NetlinkRefusal {
    fn from(cause: io::Error) -> Self {
        NetlinkRefusal {
            cause,
            detail: None,
        }
    }
}

impl Netlink {
    /// Opens a socket in `namespace`.
    ///
    /// # Errors
    /// If the namespace cannot be entered.
    pub fn open(namespace: &Namespace) -> Result<Self> {
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            // Request messages, and no echo of the request in front of them. Older kernels that support neither still
            // return the number.
            let _ = socket.set_ext_ack(true);
            let _ = socket.set_cap_ack(true);
            set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
            Ok(socket)
        };
        let socket = if namespace.is_current() {
            open()
        } else {
            in_namespace(namespace, open)?
        };
        let socket = socket.map_err(HostError::refused("open", "a netlink socket"))?;
        Ok(Netlink {
            socket,
            namespace: namespace.clone(),
            sequence: Cell::new(0),
            skipped: Cell::new(0),
        })
    }

    /// Namespace of the socket.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Sends one request and collects the answers up to the final message.
    pub(crate) fn ask(
        &self,
        request: RouteNetlinkMessage,
        how: NetlinkRequest,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkRefusal> {
        // A list of a table that changes meanwhile may be incomplete; the kernel reports this.
        const TRIES: usize = 5;
        for _ in 1..TRIES {
            if let Some(answers) = self.ask_once(request.clone(), how)? {
                return Ok(answers);
            }
        }
        self.ask_once(request, how)?
            .ok_or_else(|| io::Error::other("the table kept changing while it was read").into())
    }

    /// Lists all objects of a kind for callers that need a complete list: an unreadable entry is an error.
    pub(crate) fn ask_whole(
        &self,
        request: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkRefusal> {
        let skipped = self.skipped.get();
        let answers = self.ask(request, NetlinkRequest::Dump)?;
        if self.skipped.get() == skipped {
            return Ok(answers);
        }
        Err(io::Error::other("a reply of the kernel is unreadable").into())
    }

    fn ask_once(
        &self,
        request: RouteNetlinkMessage,
        how: NetlinkRequest,
    ) -> Result<Option<Vec<RouteNetlinkMessage>>, NetlinkRefusal> {
        let sequence = self.sequence.get().wrapping_add(1);
        self.sequence.set(sequence);
        self.send(request, how, sequence)?;

        let mut answers = Vec::new();
        let mut whole = true;
        loop {
            let datagram = self.receive()?;
            let mut rest = datagram.as_slice();
            while let Some((bytes, after)) = split_message(rest) {
                rest = after;
                let message = match NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes) {
                    Ok(message) => message,
                    Err(e) => {
                        // One entry that the library cannot read must not hide all others.
                        tracing::warn!("netlink: skipped a reply: {e}");
                        self.skipped.set(self.skipped.get() + 1);
                        continue;
                    }
                };
                if message.header.sequence_number != sequence {
                    continue;
                }
                whole &= message.header.flags & NLM_F_DUMP_INTR == 0;
                match message.payload {
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    NetlinkPayload::Done(done) if done.code < 0 => {
                        return Err(io::Error::from_raw_os_error(-done.code).into());
                    }
                    NetlinkPayload::Done(_) => return Ok(whole.then_some(answers)),
                    NetlinkPayload::Error(error) => match error.code {
                        None => return Ok(whole.then_some(answers)),
                        Some(code) => {
                            let detail = (message.header.flags & NLM_F_ACK_TLVS != 0)
                                .then(|| reason(&error.header))
                                .flatten();
                            let cause = io::Error::from_raw_os_error(-code.get());
                            return Err(NetlinkRefusal { cause, detail });
                        }
                    },
                    _ => {}
                }
            }
        }
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        loop {
            match self.socket.recv_from_full() {
                Ok((datagram, _)) => return Ok(datagram),
                // With a timeout the kernel does not restart the call.
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let what = format!(
                        "the kernel did not reply within {} s",
                        ANSWER_TIMEOUT.as_secs()
                    );
                    return Err(io::Error::new(io::ErrorKind::TimedOut, what));
                }
                Err(e) => return Err(e),
            }
        }
    }

    fn send(
        &self,
        request: RouteNetlinkMessage,
        how: NetlinkRequest,
        sequence: u32,
    ) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.sequence_number = sequence;
        header.flags = NLM_F_REQUEST
            | match how {
                NetlinkRequest::Plain => NLM_F_ACK,
                NetlinkRequest::Create => NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
                NetlinkRequest::Replace => NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE,
                NetlinkRequest::Dump => NLM_F_DUMP,
            };
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop)
    }
}

/// Splits a datagram into its first message and the rest.
pub(crate) fn split_message(datagram: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = NetlinkBuffer::new_checked(datagram).ok()?.length() as usize;
    if length < NetlinkHeader::default().buffer_len() {
        return None;
    }
    let next = length.next_multiple_of(4).min(datagram.len());
    Some((&datagram[..length], &datagram[next..]))
}

/// Message of the kernel in an extended acknowledgement: `capped` is the request's header followed by attributes.
fn reason(capped: &[u8]) -> Option<String> {
    let attributes = capped.get(NetlinkHeader::default().buffer_len()..)?;
    NlasIterator::new(attributes)
        .flatten()
        .find(|attribute| attribute.kind() == NLMSGERR_ATTR_MSG)
        .map(|attribute| {
            String::from_utf8_lossy(attribute.value())
                .trim_end_matches('\0')
                .to_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_datagrams() {
        let mut datagram = vec![0u8; 40];
        datagram[0] = 18; // padded to 20
        datagram[20] = 20;
        let (first, rest) = split_message(&datagram).unwrap();
        assert_eq!((first.len(), rest.len()), (18, 20));
        let (second, rest) = split_message(rest).unwrap();
        assert_eq!((second.len(), rest.len()), (20, 0));
        assert!(split_message(rest).is_none());
        assert!(
            split_message(&[0; 40]).is_none(),
            "a length of zero must not loop"
        );
    }

    #[test]
    fn finds_the_reason() {
        let mut bytes = vec![0u8; 16];
        bytes.extend([8, 0, 2, 0, 9, 9, 9, 9]); // NLMSGERR_ATTR_OFFS
        bytes.extend([9, 0, 1, 0]);
        bytes.extend(b"what\0\0\0\0");
        assert_eq!(reason(&bytes).as_deref(), Some("what"));
        assert_eq!(reason(&bytes[..24]), None);
        assert_eq!(reason(&[]), None);
    }

    #[test]
    fn a_refusal_is_told() {
        let netlink = Netlink::open(&Namespace::current().unwrap()).unwrap();
        let error = netlink.link("wb-none-such").unwrap_err();
        assert!(
            matches!(&error, HostError::UnknownInterface { existing, .. } if existing.contains(&"lo".into())),
            "{error}"
        );
    }
}
