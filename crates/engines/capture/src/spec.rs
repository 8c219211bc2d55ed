//! Resolved parameters of a capture.

use std::path::PathBuf;
use std::sync::mpsc::Sender;

use jiff::tz::TimeZone;
use wb_model::capture::{CaptureOutput, Overflow};
use wb_pcapng::{CaptureInterface, LINK_ETHERNET, MAX_CAPTURED};

/// Description of an interface in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceSpec {
    /// Its name.
    pub name: String,
    /// Human-readable name.
    pub description: Option<String>,
    /// Its hardware address.
    pub mac: Option<[u8; 6]>,
    /// Bits per second.
    pub speed_bps: Option<u64>,
    /// The text of the filter its frames have passed.
    pub filter: Option<String>,
    /// Link-layer header type, a LINKTYPE number.
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

    pub(crate) fn interface_block(&self, snap_len: u32, os: Option<&str>) -> CaptureInterface {
        CaptureInterface {
            snap_len,
            name: Some(self.name.clone()),
            description: self.description.clone(),
            mac: self.mac,
            speed_bps: self.speed_bps,
            filter: self.filter.clone().filter(|text| !text.is_empty()),
            os: os.map(str::to_owned),
            ..CaptureInterface::new(self.link_type)
        }
    }
}

/// Symbolic links in the names of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FileLinks {
    /// Links are followed.
    #[default]
    Follow,
    /// A file that is a link is refused; below this folder, also a folder that is one.
    Refuse {
        /// The folder.
        below: Option<PathBuf>,
    },
}

/// Parameters of a capture.
#[derive(Clone, Debug)]
pub struct CaptureSpec {
    /// The interfaces, in the order of their numbers in the file. pcap holds one link type only.
    pub interfaces: Vec<InterfaceSpec>,
    /// Bytes of each frame to keep, 1 to 262144.
    pub snap_len: u32,
    /// Destination of the frames. `None`: they are only counted.
    pub output: Option<CaptureOutput>,
    /// Machine description in the file.
    pub hardware: Option<String>,
    /// Operating system in the file.
    pub os: Option<String>,
    /// Program name in the file.
    pub application: Option<String>,
    /// Number of frames to keep, over all readers, after which the capture stops.
    pub limit: Option<u64>,
    /// Behaviour if the output is slower than the frames.
    pub overflow: Overflow,
    /// Receives the name of each file once it is closed and renamed.
    pub finished: Option<Sender<PathBuf>>,
    /// Time zone of names with a time.
    pub zone: TimeZone,
    /// Symbolic links in the names of files.
    pub links: FileLinks,
}

impl CaptureSpec {
    /// Captures whole frames of these interfaces and waits for a slow output.
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
            links: FileLinks::default(),
        }
    }
}
