//! Notices interfaces that are set down, even if they are up again before the next check.

use std::{cell::Cell, io};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{RouteNetlinkMessage, link::LinkFlags};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::{
    error::{HostError, Result},
    netlink::split_message,
    netns::{Namespace, in_namespace},
};

/// Group of messages about changes of interfaces (`RTMGRP_LINK`).
const LINK_GROUP: u32 = 1;

/// Changes of an interface, from the moment of opening.
#[derive(Debug)]
pub struct LinkEvents {
    socket: Socket,
    index: u32,
    was_down: Cell<bool>,
}

impl LinkEvents {
    /// Begins to collect the changes of the interface with this index in a namespace.
    ///
    /// # Errors
    /// If the kernel refuses a netlink socket.
    pub fn open(namespace: &Namespace, index: u32) -> Result<Self> {
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind(&SocketAddr::new(0, LINK_GROUP))?;
            socket.set_non_blocking(true)?;
            Ok(socket)
        };
        let socket = match namespace.is_current() {
            true => open(),
            false => in_namespace(namespace, open)?,
        };
        Ok(Self {
            socket: socket.map_err(HostError::refused("open", "a netlink socket"))?,
            index,
            was_down: Cell::new(false),
        })
    }

    /// Returns true if the interface was set down since the opening. Call it every few seconds: the kernel drops messages
    /// after a few hundred that were not read.
    #[must_use]
    pub fn was_set_down(&self) -> bool {
        // An error is that no message is left, or that some were dropped.
        while let Ok((datagram, _)) = self.socket.recv_from_full() {
            let mut rest = datagram.as_slice();
            while let Some((bytes, after)) = split_message(rest) {
                rest = after;
                if interface_that_is_down(bytes) == Some(self.index) {
                    self.was_down.set(true);
                }
            }
        }
        self.was_down.get()
    }
}

/// Index of the interface in a message, if it is set down.
fn interface_that_is_down(message: &[u8]) -> Option<u32> {
    let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message).ok()?;
    match message.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
            let is_up = link.header.flags.contains(LinkFlags::Up);
            (!is_up).then_some(link.header.index)
        }
        _ => None,
    }
}
