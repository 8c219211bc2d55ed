//! Whether the interface of a socket is still there.
//!
//! The kernel reports `ENETDOWN` once when the link goes down and once more or never again when
//! the interface vanishes, so after the first report we have to ask.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{netdevice, sockopt};
use wb_port::PortError;

use crate::sys;

/// For so long after the end frames may still come out of a block that was open, at least.
const GRACE: Duration = Duration::from_millis(5);

pub(crate) struct Watch {
    port: String,
    index: u32,
    down: bool,
    gone_since: Option<Instant>,
    grace: Duration,
}

impl Watch {
    pub(crate) fn new(port: &str, index: u32) -> Self {
        Self {
            port: port.to_owned(),
            index,
            down: false,
            gone_since: None,
            grace: GRACE,
        }
    }

    /// For a ring that the kernel hands over late: an open block may take so long.
    pub(crate) fn holding(mut self, longest: Duration) -> Self {
        self.grace = self.grace.max(longest);
        self
    }

    /// Reads the socket's pending error, and asks for the interface if there was one.
    pub(crate) fn look(&mut self, socket: BorrowedFd<'_>) {
        if self.down || !matches!(sockopt::socket_error(socket), Ok(Ok(()))) {
            self.note_down(socket);
        }
    }

    /// Notes that the link is down, and asks for the interface.
    pub(crate) fn note_down(&mut self, socket: BorrowedFd<'_>) {
        self.down = true;
        if self.gone_since.is_none() && !self.exists(socket) {
            self.gone_since = Some(Instant::now());
        }
    }

    /// Notes that a frame came.
    #[inline]
    pub(crate) fn saw_frame(&mut self) {
        self.down = false;
    }

    /// Whether the link went down and nothing came since.
    pub(crate) fn may_be_gone(&self) -> bool {
        self.down
    }

    /// # Errors
    /// [`PortError::Gone`] when the interface has vanished and its last frames have come out.
    pub(crate) fn check(&self) -> Result<(), PortError> {
        match self.gone_since {
            Some(since) if since.elapsed() > self.grace => Err(self.gone()),
            _ => Ok(()),
        }
    }

    /// How long to sleep at most of `timeout`.
    pub(crate) fn at_most(&self, timeout: Duration) -> Duration {
        if self.gone_since.is_some() {
            timeout.min(self.grace)
        } else {
            timeout
        }
    }

    pub(crate) fn gone(&self) -> PortError {
        PortError::Gone {
            port: self.port.clone(),
        }
    }

    /// What a failed `operation` means for the port.
    pub(crate) fn error(&self, operation: &str, errno: Errno) -> PortError {
        let port = self.port.clone();
        match errno {
            Errno::NETDOWN => PortError::LinkDown { port },
            Errno::NXIO | Errno::NODEV | Errno::BADF => PortError::Gone { port },
            _ => PortError::Io {
                port,
                operation: operation.to_owned(),
                cause: errno.into(),
            },
        }
    }

    /// Asks whether the link is up and has carrier; tells the interface's present name if so.
    ///
    /// # Errors
    /// [`PortError::LinkDown`], [`PortError::Gone`].
    pub(crate) fn check_link(&self, socket: BorrowedFd<'_>) -> Result<String, PortError> {
        let running = libc::IFF_UP | libc::IFF_RUNNING;
        let name = netdevice::index_to_name(socket, self.index).map_err(|_| self.gone())?;
        match sys::interface_flags(socket, &name) {
            Ok(flags) if flags & running != running => Err(self.error("send", Errno::NETDOWN)),
            _ => Ok(name),
        }
    }

    /// Waits until the kernel has put in the qdisc of a link that came up.
    ///
    /// # Errors
    /// As [`Watch::check_link`].
    pub(crate) fn ask_for_carrier(&self, socket: BorrowedFd<'_>) -> Result<(), PortError> {
        let name = self.check_link(socket)?;
        // The link counts as running a moment before its qdisc is in, under one lock; the question
        // for the carrier waits for that lock.
        match sys::has_carrier(socket, &name) {
            Ok(false) => Err(self.error("send", Errno::NETDOWN)),
            _ => Ok(()),
        }
    }

    fn exists(&self, socket: BorrowedFd<'_>) -> bool {
        netdevice::index_to_name(socket, self.index) != Err(Errno::NODEV)
    }
}
