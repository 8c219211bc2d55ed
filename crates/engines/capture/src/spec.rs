//! What a capture is to do, resolved.

use std::path::PathBuf;
use std::sync::mpsc::Sender;

use jiff::tz::TimeZone;
use wb_model::capture::{CaptureOutput, Overflow};
use wb_pcapng::{Interface, LINK_ETHERNET, MAX_CAPTURED};

/// What a file says of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceSpec {
    /// Its name.
    pub name: String,
    /// What a person calls it.
    pub description: Option<String>,
    /// Its hardware address.
    pub mac: Option<[u8; 6]>,
    /// Bits per second.
    pub speed_bps: Option<u64>,
    /// The text of the filter its frames have passed.
    pub filter: Option<String>,
    /// What its frames begin with, a LINKTYPE number.
    pub link_type: u16,
}

impl InterfaceSpec {
    /// An Ethernet interface of which only the name is known.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: None,
            mac: None,
            speed_bps: None,
            filter: None,
            link_type: LINK_ETHERNET,
        }
    }

    pub(crate) fn block(&self, snap_len: u32, os: Option<&str>) -> Interface {
        Interface {
            snap_len,
            name: Some(self.name.clone()),
            description: self.description.clone(),
            mac: self.mac,
            speed_bps: self.speed_bps,
            filter: self.filter.clone().filter(|text| !text.is_empty()),
            os: os.map(str::to_owned),
            ..Interface::new(self.link_type)
        }
    }
}

/// What a capture is to do.
#[derive(Clone, Debug)]
pub struct CaptureSpec {
    /// The interfaces, in the order of their numbers in the file. pcap holds one link type only.
    pub interfaces: Vec<InterfaceSpec>,
    /// Bytes of each frame to keep, 1 to 262144.
    pub snap_len: u32,
    /// Where frames go. None: they are only counted.
    pub output: Option<CaptureOutput>,
    /// What the file says of the machine.
    pub hardware: Option<String>,
    /// What the file says of its operating system.
    pub os: Option<String>,
    /// What the file says of the program.
    pub application: Option<String>,
    /// Frames to keep, over all readers; then the capture stops.
    pub limit: Option<u64>,
    /// What happens when the output is slower than the frames come.
    pub overflow: Overflow,
    /// Each file is named here once it is closed and has its name.
    pub finished: Option<Sender<PathBuf>>,
    /// Time zone of names that are made of the time.
    pub zone: TimeZone,
}

impl CaptureSpec {
    /// Whole frames of these interfaces, all of them, waiting for a slow output.
    #[must_use]
    pub fn new(interfaces: Vec<InterfaceSpec>, output: Option<CaptureOutput>) -> Self {
        Self {
            interfaces,
            snap_len: MAX_CAPTURED as u32,
            output,
            hardware: None,
            os: None,
            application: None,
            limit: None,
            overflow: Overflow::Wait,
            finished: None,
            zone: TimeZone::UTC,
        }
    }
}
