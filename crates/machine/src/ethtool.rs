//! Properties of an interface that only ethtool reports: driver, speed, channels, rings, offloads, timestamping.
//!
//! Uses `SIOCETHTOOL`, which has small and stable structures, on a socket that was opened in the interface's namespace.
//! A property that a driver does not support is `None`, not an error.
#![allow(unsafe_code)] // one ioctl

use std::ffi::c_char;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::error::{HostError, Result};
use crate::netlink::Netlink;
use crate::netns::{Namespace, in_namespace};

// linux/ethtool.h: command numbers.
const GDRVINFO: u32 = 0x03;
const GRINGPARAM: u32 = 0x10;
const GSTRINGS: u32 = 0x1b;
const GSTATS: u32 = 0x1d;
const GSSET_INFO: u32 = 0x37;
const GFEATURES: u32 = 0x3a;
const SFEATURES: u32 = 0x3b;
const GCHANNELS: u32 = 0x3c;
const SCHANNELS: u32 = 0x3d;
const GET_TS_INFO: u32 = 0x41;
const GLINKSETTINGS: u32 = 0x4c;

/// linux/ethtool.h: ETH_SS_STATS, ETH_SS_FEATURES, ETH_GSTRING_LEN, SPEED_UNKNOWN
const SS_STATS: u32 = 1;
const SS_FEATURES: u32 = 4;
const STRING_LEN: usize = 32;
const SPEED_UNKNOWN: u32 = u32::MAX;
/// linux/ethtool.h
const DUPLEX_HALF: u8 = 0;

/// linux/net_tstamp.h
const TIMESTAMPING_TX_HARDWARE: u32 = 1 << 0;
const TIMESTAMPING_RX_HARDWARE: u32 = 1 << 2;
const TIMESTAMPING_RX_SOFTWARE: u32 = 1 << 3;
const FILTER_ALL: u32 = 1 << 1;

/// Drivers that report an arbitrary speed, because no wire limits them.
const NOMINAL: &[&str] = &[
    "veth",
    "tun",
    "tap",
    "dummy",
    "bridge",
    "ifb",
    "netkit",
    "virtio_net",
    "vmxnet3",
    "hv_netvsc",
    "vif",
    "xen_netfront",
    "netdevsim",
];

/// Ethtool requests in one namespace.
pub struct Ethtool {
    socket: OwnedFd,
    namespace: Namespace,
}

/// Driver of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Name: `ixgbe`, `veth`.
    pub name: String,
    /// Version of the driver or of the kernel.
    pub version: String,
    /// Firmware version; often empty.
    pub firmware: String,
    /// Bus address of the device: `0000:03:00.0`; empty for virtual devices.
    pub bus: String,
}

impl Driver {
    /// Returns true if such interfaces have a nominal speed.
    pub fn has_nominal_speed(&self) -> bool {
        NOMINAL.contains(&self.name.as_str())
    }
}

/// The speed of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Speed {
    /// Layer 1 bits per second, as the driver states them.
    pub bits_per_second: u64,
    /// The figure means nothing: no wire sets the pace (veth, tap). A percentage of it means
    /// nothing either.
    pub nominal: bool,
    /// One direction at a time.
    pub half_duplex: bool,
}

/// Channels (queues with their interrupt), now and at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Channels {
    /// Those that receive only.
    pub rx: u32,
    /// Those that send only.
    pub tx: u32,
    /// Those that do both.
    pub combined: u32,
    /// The most `rx` can be.
    pub max_rx: u32,
    /// The most `tx` can be.
    pub max_tx: u32,
    /// The most `combined` can be.
    pub max_combined: u32,
}

impl Channels {
    /// Queues that receive.
    pub fn rx_queues(&self) -> u32 {
        self.rx + self.combined
    }

    /// Queues that send.
    pub fn tx_queues(&self) -> u32 {
        self.tx + self.combined
    }
}

/// Ring sizes in descriptors, now and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rings {
    /// Receive ring.
    pub rx: u32,
    /// Transmit ring.
    pub tx: u32,
    /// The most `rx` can be.
    pub max_rx: u32,
    /// The most `tx` can be.
    pub max_tx: u32,
}

/// Which timestamps the device can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Timestamping {
    /// Every received frame, by the device.
    pub hardware_rx: bool,
    /// Sent frames, by the device.
    pub hardware_tx: bool,
    /// Received frames, by the driver or the kernel.
    pub software_rx: bool,
    /// Its clock: `/dev/ptpN`.
    pub clock: Option<u32>,
}

/// Work that the device does, or that is done for many frames at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// The device fills in checksums of sent frames.
    TxChecksum,
    /// The device checks checksums of received frames.
    RxChecksum,
    /// The device splits TCP segments.
    Tso,
    /// The kernel splits segments as late as possible.
    Gso,
    /// The kernel joins received segments.
    Gro,
    /// The device joins received segments.
    Lro,
    /// The device removes VLAN tags.
    RxVlan,
    /// The device inserts VLAN tags.
    TxVlan,
}

impl Offload {
    /// All offloads.
    pub const ALL: [Offload; 8] = [
        Offload::TxChecksum,
        Offload::RxChecksum,
        Offload::Tso,
        Offload::Gso,
        Offload::Gro,
        Offload::Lro,
        Offload::RxVlan,
        Offload::TxVlan,
    ];

    /// Keyword for `ethtool -K IF`.
    pub fn keyword(self) -> &'static str {
        match self {
            Offload::TxChecksum => "tx",
            Offload::RxChecksum => "rx",
            Offload::Tso => "tso",
            Offload::Gso => "gso",
            Offload::Gro => "gro",
            Offload::Lro => "lro",
            Offload::RxVlan => "rxvlan",
            Offload::TxVlan => "txvlan",
        }
    }

    /// Returns true if a kernel feature belongs to the offload, as `ethtool -k` groups them. The older command per
    /// offload misses newer features (`tx-tcp-accecn-segmentation`).
    fn covers(self, feature: &str) -> bool {
        match self {
            Offload::TxChecksum => feature.starts_with("tx-checksum-"),
            Offload::RxChecksum => feature == "rx-checksum",
            Offload::Tso => feature.starts_with("tx-tcp") && feature.ends_with("-segmentation"),
            Offload::Gso => feature == "tx-generic-segmentation",
            Offload::Gro => feature == "rx-gro",
            Offload::Lro => feature == "rx-lro",
            Offload::RxVlan => feature == "rx-vlan-hw-parse",
            Offload::TxVlan => feature == "tx-vlan-hw-insert",
        }
    }
}

/// Features of an offload: which of them exist, can be changed, and are active.
struct RawFeatures {
    covered: Vec<u32>,
    available: Vec<u32>,
    active: Vec<u32>,
}

impl RawFeatures {
    fn on(&self) -> bool {
        self.covered
            .iter()
            .zip(&self.active)
            .any(|(covered, active)| covered & active != 0)
    }

    /// Bits that can be changed, per block of 32.
    fn changeable(&self) -> impl Iterator<Item = u32> {
        self.covered
            .iter()
            .zip(&self.available)
            .map(|(covered, available)| covered & available)
    }
}

// Kernel structures. All of them begin with the command.

#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
struct RawDriver {
    command: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    bus: [u8; 32],
    rom: [u8; 32],
    reserved: [u8; 12],
    counts: [u32; 5],
}

#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
struct RawLinkSettings {
    command: u32,
    speed: u32,
    duplex_port_phy_autoneg_mdio_mdix_ctrl: [u8; 7],
    mask_words: i8,
    rest: [u8; 4 + 28],
    /// Three bit maps of up to 127 words.
    masks: [[u32; 127]; 3],
}

#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
struct RawChannels {
    command: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
struct RawRings {
    command: u32,
    max_rx: u32,
    max_rx_mini: u32,
    max_rx_jumbo: u32,
    max_tx: u32,
    rx: u32,
    rx_mini: u32,
    rx_jumbo: u32,
    tx: u32,
}

#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
struct RawTimestamping {
    command: u32,
    capabilities: u32,
    clock: i32,
    tx_types: u32,
    tx_reserved: [u32; 3],
    rx_filters: u32,
    rx_reserved: [u32; 3],
}

#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
struct RawSetSize {
    command: u32,
    reserved: u32,
    mask: u64,
    size: u32,
    padding: u32,
}

const _: () = {
    assert!(size_of::<RawDriver>() == 196);
    assert!(std::mem::offset_of!(RawLinkSettings, masks) == 48);
    assert!(size_of::<RawChannels>() == 36);
    assert!(size_of::<RawRings>() == 36);
    assert!(size_of::<RawTimestamping>() == 44);
};

impl Ethtool {
    /// Opens a socket in `namespace`.
    ///
    /// # Errors
    /// If the namespace cannot be entered.
    pub fn open(namespace: &Namespace) -> Result<Self> {
        let open = || {
            let flags = SocketFlags::CLOEXEC;
            rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)
        };
        let socket = if namespace.is_current() {
            open()
        } else {
            in_namespace(namespace, open)?
        };
        let socket = socket.map_err(HostError::refused("open", "a socket for ethtool"))?;
        Ok(Ethtool {
            socket,
            namespace: namespace.clone(),
        })
    }

    /// Driver of an interface.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`].
    pub fn driver(&self, interface: &str) -> Result<Option<Driver>> {
        let raw = self.get::<RawDriver>(interface, GDRVINFO, "read the driver of")?;
        Ok(raw.map(|raw| Driver {
            name: text(&raw.driver),
            version: text(&raw.version),
            firmware: text(&raw.firmware),
            bus: text(&raw.bus),
        }))
    }

    /// Speed of an interface; `None` if unknown, for example without carrier.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`].
    pub fn speed(&self, interface: &str) -> Result<Option<Speed>> {
        let operation = "read the speed of";
        let Some(asked) = self.get::<RawLinkSettings>(interface, GLINKSETTINGS, operation)? else {
            return Ok(None);
        };
        // The first answer contains only the length of the bit maps in words, negated.
        let mut raw = RawLinkSettings::new_zeroed();
        raw.command = GLINKSETTINGS;
        raw.mask_words = asked.mask_words.saturating_neg();
        if !self.exchange(interface, raw.as_mut_bytes(), operation)?
            || matches!(raw.speed, 0 | SPEED_UNKNOWN)
        {
            return Ok(None);
        }
        let nominal = self
            .driver(interface)?
            .is_some_and(|driver| driver.has_nominal_speed());
        Ok(Some(Speed {
            bits_per_second: u64::from(raw.speed) * 1_000_000,
            nominal,
            half_duplex: raw.duplex_port_phy_autoneg_mdio_mdix_ctrl[0] == DUPLEX_HALF,
        }))
    }

    /// Names of the driver's statistics; empty if there are none.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`].
    pub fn statistic_names(&self, interface: &str) -> Result<Vec<String>> {
        self.strings(interface, SS_STATS, "list the statistics of")
    }

    /// Values of the driver's `count` statistics, in the order of their names.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`].
    pub fn statistics(&self, interface: &str, count: usize) -> Result<Vec<u64>> {
        let mut answer = words(&[GSTATS, u32::try_from(count).unwrap_or(0)]);
        // The kernel writes the current number of values.
        answer.resize(8 + roomy(count) * 8, 0);
        if count == 0 || !self.exchange(interface, &mut answer, "read the statistics of")? {
            return Ok(Vec::new());
        }
        let now = get_u32(&answer, 4) as usize;
        let value = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        Ok(answer[8..].chunks_exact(8).map(value).take(now).collect())
    }

    /// Channels of an interface.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`].
    pub fn channels(&self, interface: &str) -> Result<Option<Channels>> {
        let raw = self.get::<RawChannels>(interface, GCHANNELS, "read the channels of")?;
        Ok(raw.map(|raw| Channels {
            rx: raw.rx,
            tx: raw.tx,
            combined: raw.combined,
            max_rx: raw.max_rx,
            max_tx: raw.max_tx,
            max_combined: raw.max_combined,
        }))
    }

    /// Sets the number of channels; ignores the maxima in `wanted`.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`]; a refusal for unsupported numbers, or if an AF_XDP socket uses a queue that
    /// would be removed.
    pub fn set_channels(&self, interface: &str, wanted: &Channels) -> Result<()> {
        let operation = "set the channels of";
        let Some(mut raw) = self.get::<RawChannels>(interface, GCHANNELS, operation)? else {
            return Err(unsupported(operation, interface));
        };
        raw.command = SCHANNELS;
        (raw.rx, raw.tx, raw.combined) = (wanted.rx, wanted.tx, wanted.combined);
        if self.exchange(interface, raw.as_mut_bytes(), operation)? {
            Ok(())
        } else {
            Err(unsupported(operation, interface))
        }
    }

    /// Ring sizes of an interface.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`].
    pub fn rings(&self, interface: &str) -> Result<Option<Rings>> {
        let raw = self.get::<RawRings>(interface, GRINGPARAM, "read the ring sizes of")?;
        Ok(raw.map(|raw| Rings {
            rx: raw.rx,
            tx: raw.tx,
            max_rx: raw.max_rx,
            max_tx: raw.max_tx,
        }))
    }

    /// Timestamps that an interface supports.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`].
    pub fn timestamping(&self, interface: &str) -> Result<Option<Timestamping>> {
        let raw =
            self.get::<RawTimestamping>(interface, GET_TS_INFO, "read the timestamping of")?;
        Ok(raw.map(|raw| Timestamping {
            // Hardware timestamps of PTP messages alone do not count.
            hardware_rx: raw.capabilities & TIMESTAMPING_RX_HARDWARE != 0
                && raw.rx_filters & FILTER_ALL != 0,
            hardware_tx: raw.capabilities & TIMESTAMPING_TX_HARDWARE != 0,
            software_rx: raw.capabilities & TIMESTAMPING_RX_SOFTWARE != 0,
            clock: u32::try_from(raw.clock).ok(),
        }))
    }

    /// Returns true if any feature of the offload is active; `None` if the offload is not supported.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`].
    pub fn offload(&self, interface: &str, offload: Offload) -> Result<Option<bool>> {
        let features = self.features(interface, offload, "read the offloads of")?;
        Ok(features.map(|features| features.on()))
    }

    /// Switches an offload on or off. Does nothing if it has the wanted state already, even if the device does not
    /// allow changes.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`]; a refusal if the device does not allow the change.
    pub fn set_offload(&self, interface: &str, offload: Offload, on: bool) -> Result<()> {
        let operation = if on {
            "enable an offload of"
        } else {
            "disable an offload of"
        };
        let object = format!("{interface}: {}", offload.keyword());
        let Some(features) = self.features(interface, offload, operation)? else {
            return Err(unsupported(operation, object));
        };
        if features.on() == on {
            return Ok(());
        }
        let mut command = words(&[SFEATURES, features.covered.len() as u32]);
        for bits in features.changeable() {
            command.extend(words(&[bits, if on { bits } else { 0 }]));
        }
        self.exchange(interface, &mut command, operation)?;
        // The kernel accepts requests that it cannot fulfil and reports this only in a bit of its answer.
        if self.offload(interface, offload)? == Some(on) {
            Ok(())
        } else {
            Err(unsupported(operation, object))
        }
    }

    fn features(
        &self,
        interface: &str,
        offload: Offload,
        operation: &'static str,
    ) -> Result<Option<RawFeatures>> {
        let names = self.strings(interface, SS_FEATURES, operation)?;
        let blocks = names.len().div_ceil(32);
        let mut answer = words(&[GFEATURES, blocks as u32]);
        answer.resize(8 + blocks * 16, 0);
        if blocks == 0 || !self.exchange(interface, &mut answer, operation)? {
            return Ok(None);
        }
        let mut features = RawFeatures {
            covered: vec![0; blocks],
            // Words of a block: available, requested, active, never changed.
            available: (0..blocks)
                .map(|block| get_u32(&answer, 8 + block * 16))
                .collect(),
            active: (0..blocks)
                .map(|block| get_u32(&answer, 8 + block * 16 + 8))
                .collect(),
        };
        for (bit, _) in names
            .iter()
            .enumerate()
            .filter(|(_, name)| offload.covers(name))
        {
            features.covered[bit / 32] |= 1 << (bit % 32);
        }
        Ok(features
            .covered
            .iter()
            .any(|bits| *bits != 0)
            .then_some(features))
    }

    /// Set of names of the driver or the kernel for an interface.
    fn strings(&self, interface: &str, set: u32, operation: &'static str) -> Result<Vec<String>> {
        let mut size = RawSetSize::new_zeroed();
        (size.command, size.mask) = (GSSET_INFO, 1 << set);
        // The kernel clears the bit of a missing set.
        if !self.exchange(interface, size.as_mut_bytes(), operation)? || size.mask == 0 {
            return Ok(Vec::new());
        }
        let mut answer = words(&[GSTRINGS, set, size.size]);
        answer.resize(12 + roomy(size.size as usize) * STRING_LEN, 0);
        if !self.exchange(interface, &mut answer, operation)? {
            return Ok(Vec::new());
        }
        let count = get_u32(&answer, 8) as usize;
        Ok(answer[12..]
            .chunks_exact(STRING_LEN)
            .map(text)
            .take(count)
            .collect())
    }

    fn get<T: FromBytes + IntoBytes + KnownLayout>(
        &self,
        interface: &str,
        command: u32,
        operation: &'static str,
    ) -> Result<Option<T>> {
        let mut raw = T::new_zeroed();
        let bytes = raw.as_mut_bytes();
        put_u32(bytes, 0, command);
        Ok(self.exchange(interface, bytes, operation)?.then_some(raw))
    }

    /// Passes `command` to the driver, which writes the answer into it. Returns false if the command is not supported.
    /// `command` must be as large as the kernel's structure for this command.
    fn exchange(
        &self,
        interface: &str,
        command: &mut [u8],
        operation: &'static str,
    ) -> Result<bool> {
        // SAFETY: ifreq consists of plain bytes and pointers, for which zero is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let room = request.ifr_name.len() - 1;
        if interface.is_empty() || interface.len() > room {
            return Err(self.unknown(interface, operation));
        }
        for (slot, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
            *slot = byte as c_char;
        }
        request.ifr_ifru.ifru_data = command.as_mut_ptr().cast();
        // SAFETY: `request` outlives the call, its name is terminated, and its data points to `command`, which the
        // callers make large enough for the answer.
        let done = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &mut request) };
        if done >= 0 {
            return Ok(true);
        }
        let cause = io::Error::last_os_error();
        match cause.raw_os_error() {
            Some(libc::EOPNOTSUPP) => Ok(false),
            Some(libc::ENODEV) => Err(self.unknown(interface, operation)),
            _ => Err(
                HostError::refused(operation, interface)(cause).or_privilege(|| {
                    "needs CAP_NET_ADMIN: run as root, or under `unshare -Urnm`".into()
                }),
            ),
        }
    }

    /// Netlink's error for a missing interface, with the names of the existing ones.
    fn unknown(&self, interface: &str, operation: &'static str) -> HostError {
        let gone =
            || HostError::refused(operation, interface)(io::Error::from_raw_os_error(libc::ENODEV));
        match Netlink::open(&self.namespace).and_then(|netlink| netlink.link(interface)) {
            Err(error) => error,
            Ok(_) => gone(),
        }
    }
}

fn unsupported(operation: &'static str, object: impl Into<String>) -> HostError {
    HostError::refused(operation, object)(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Buffer size for a set of `count`. The kernel writes the current number regardless of the announced size, and a
/// change of channels changes the number.
fn roomy(count: usize) -> usize {
    count * 2 + 1024
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_at_zero() {
        assert_eq!(text(b"veth\0junk"), "veth");
        assert_eq!(text(b"full"), "full");
    }

    #[test]
    fn offloads_cover_what_ethtool_groups() {
        let tso = [
            "tx-tcp-segmentation",
            "tx-tcp6-segmentation",
            "tx-tcp-accecn-segmentation",
        ];
        assert!(tso.iter().all(|feature| Offload::Tso.covers(feature)));
        assert!(!Offload::Tso.covers("tx-udp-segmentation"));
        assert!(Offload::TxChecksum.covers("tx-checksum-sctp"));
        assert!(!Offload::Gro.covers("rx-gro-hw"));
    }

    #[test]
    fn loopback_answers() {
        let ethtool = Ethtool::open(&Namespace::current().unwrap()).unwrap();
        assert_eq!(ethtool.speed("lo").unwrap(), None);
        assert_eq!(ethtool.channels("lo").unwrap(), None);
        assert_eq!(
            ethtool.offload("lo", Offload::TxChecksum).unwrap(),
            Some(true)
        );
        assert!(
            ethtool
                .timestamping("lo")
                .unwrap()
                .is_some_and(|t| !t.hardware_rx)
        );
    }

    #[test]
    fn unknown_interfaces_are_said_so() {
        let ethtool = Ethtool::open(&Namespace::current().unwrap()).unwrap();
        for name in ["wb-none", "a-name-of-more-than-15", ""] {
            let error = ethtool.driver(name).unwrap_err();
            assert!(
                matches!(error, HostError::UnknownInterface { .. }),
                "{error}"
            );
        }
    }
}
