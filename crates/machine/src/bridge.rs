//! Bridges of the kernel: makes a bridge that forwards frames and sends none, and adds its ports.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoBridge, InfoData, InfoKind, LinkAttribute, LinkInfo, LinkMessage,
};

use crate::error::{HostError, Result};
use crate::link::check_name;
use crate::netlink::{Netlink, NetlinkRequest};

impl Netlink {
    /// Creates a learning bridge `name`, which is down and has no ports. It only forwards: spanning tree
    /// is off, and without multicast snooping it forwards multicast frames to all ports and sends no queries.
    /// Netfilter sees the frames only if the `net.bridge` settings of the namespace ask for that.
    ///
    /// # Errors
    /// [`HostError::Exists`] if the name is in use; a refusal without the required privileges, or by a kernel without
    /// bridges.
    pub fn create_bridge(&self, name: &str, mac: [u8; 6]) -> Result<()> {
        check_name(name)?;
        let mut message = LinkMessage::default();
        let quiet = vec![
            InfoBridge::MulticastSnooping(false),
            InfoBridge::NfCallIpTables(false),
            InfoBridge::NfCallIp6Tables(false),
            InfoBridge::NfCallArpTables(false),
        ];
        message.attributes = vec![
            LinkAttribute::IfName(name.into()),
            LinkAttribute::Address(mac.to_vec()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Bridge),
                LinkInfo::Data(InfoData::Bridge(quiet)),
            ]),
        ];
        let request = RouteNetlinkMessage::NewLink(message);
        self.ask(request, NetlinkRequest::Create)
            .map(drop)
            .map_err(|refusal| match refusal.errno() {
                Some(libc::EEXIST) => HostError::Exists {
                    object: format!("interface {name} in {}", self.namespace().place()),
                    command: format!("{}ip link delete {name}", self.namespace().command_prefix()),
                },
                _ => refusal.on("create", format!("the bridge {name}")),
            })
    }

    /// Makes the interface `port` a port of the bridge.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`]; a refusal without the required privileges, or if `bridge` is no bridge.
    pub fn add_bridge_port(&self, bridge: &str, port: &str) -> Result<()> {
        let index = self.link(bridge)?.index;
        self.change(port, "set the bridge of", |message| {
            message.attributes.push(LinkAttribute::Controller(index));
        })
    }
}
