//! Options for opening a port.

use std::fmt;

use wb_filter::Program;
use wb_port::{Interface, PortError};

/// Transfer of frames between the device and the memory of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The best available mode.
    #[default]
    Auto,
    /// The device accesses the memory directly.
    NativeZeroCopy,
    /// The XDP program runs in the driver, and the kernel copies frames.
    NativeCopy,
    /// The XDP program runs in the generic receive path, which works with any driver.
    Generic,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::NativeZeroCopy => "native zero copy",
            Self::NativeCopy => "native copy",
            Self::Generic => "generic",
        })
    }
}

/// Selection of received frames; the kernel gets all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Select {
    /// All frames except those that keep the host reachable: ARP, neighbour discovery, echo, and frames to a group
    /// address. Frames with the test tag are always received.
    #[default]
    AllButControl,
    /// All frames, for an interface that the host does not use.
    Everything,
    /// UDP frames with a destination port in this range, inclusive.
    UdpPorts(u16, u16),
    /// All frames to this destination address.
    Mac([u8; 6]),
}

/// Kernel busy polling (`SO_PREFER_BUSY_POLL`): system calls of the process serve the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Maximum polling time of one call, in microseconds.
    pub micros: u32,
    /// Maximum number of frames served by one call.
    pub budget: u32,
}

/// Options for opening a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpOptions {
    /// First queue to open.
    pub first_queue: u32,
    /// Number of queues.
    pub queues: u32,
    /// Queues to open; if empty, `queues` queues starting at `first_queue`.
    pub only_queues: Vec<u32>,
    /// Open for sending.
    pub tx: bool,
    /// Number of queues, from the start of the list, that are opened for sending. `None`: all.
    pub tx_queues: Option<u32>,
    /// Open for receiving; attaches the XDP program.
    pub rx: bool,
    /// Transfer mode.
    pub mode: Mode,
    /// Selection of received frames.
    pub select: Select,
    /// Filter for received frames, instead of `select`. It runs in the XDP program, which counts the matching frames.
    pub filter: Option<Program>,
    /// Number of frames for sending and of transmit ring slots, per queue; a power of two.
    pub tx_frames: u32,
    /// Slots of the receive ring, per queue; a power of two. The ring holds received frames that were not read yet.
    pub rx_frames: u32,
    /// Number of memory frames for receiving, per queue; `None`: the number of receive ring slots.
    pub rx_memory_frames: Option<u32>,
    /// Slots of the fill ring, per queue; a power of two. Memory beyond this number is not used. `None`: twice the
    /// number of memory frames.
    pub fill_slots: Option<u32>,
    /// Bytes per frame, 2048 or 4096; `None` selects the smallest that holds the MTU. If a size is given, longer frames
    /// are dropped and counted.
    pub frame_size: Option<u32>,
    /// Maximum number of frames that the kernel sends per system call in copy mode; 32 on kernels before 6.17.
    pub tx_budget: u32,
    /// Busy polling; `None` to disable it.
    pub busy_poll: Option<BusyPoll>,
    /// Use timestamps of the network card if possible.
    pub hw_stamps: bool,
    /// Largest MTU at which the driver accepts the XDP program, in bytes; `None` if unknown.
    pub native_mtu: Option<u32>,
}

impl Default for XdpOptions {
    fn default() -> Self {
        Self {
            first_queue: 0,
            queues: 1,
            only_queues: Vec::new(),
            tx: true,
            tx_queues: None,
            rx: true,
            mode: Mode::Auto,
            select: Select::AllButControl,
            filter: None,
            tx_frames: 1024,
            rx_frames: 4096,
            rx_memory_frames: None,
            fill_slots: None,
            frame_size: None,
            tx_budget: 256,
            busy_poll: None,
            hw_stamps: false,
            native_mtu: None,
        }
    }
}

/// if_xdp.h: `XDP_PACKET_HEADROOM`, the free space that the kernel keeps in front of every received frame.
pub(crate) const RX_HEADROOM: u32 = 256;
/// An Ethernet header with two VLAN tags.
const LONGEST_HEADER: u32 = 14 + 8;
/// One page; the kernel takes no larger frames without huge pages.
const LARGEST_FRAME: u32 = 4096;
/// Slots of a ring: from one batch to more than a machine has memory for.
const RING: std::ops::RangeInclusive<u32> = 64..=1 << 20;

impl XdpOptions {
    /// Device numbers of the queues to open.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        if self.only_queues.is_empty() {
            (self.first_queue..self.first_queue.saturating_add(self.queues)).collect()
        } else {
            self.only_queues.clone()
        }
    }

    /// Device numbers of the queues to open, each with true if it is opened for sending.
    pub(crate) fn senders(&self) -> Vec<(u32, bool)> {
        let most = self.tx_queues.unwrap_or(u32::MAX);
        let numbers = self.numbers().into_iter();
        numbers
            .zip(0..)
            .map(|(number, i)| (number, self.tx && i < most))
            .collect()
    }

    /// Number of memory frames for receiving, and slots of the fill ring, per queue.
    pub(crate) fn rx_memory(&self) -> (u32, u32) {
        let frames = self.rx_memory_frames.unwrap_or(self.rx_frames);
        // Twice the frames: the kernel shows received frames a moment before it shows that they have left the fill
        // ring, so both rings may seem to hold a frame at once.
        let slots = self
            .fill_slots
            .unwrap_or_else(|| (2 * frames).next_power_of_two());
        (frames.min(slots), slots)
    }

    /// Checks the options against the interface. Returns the frame size, or an error with all problems.
    pub(crate) fn resolve(&self, interface: &Interface) -> Result<u32, PortError> {
        let mut wrong = Vec::new();
        if !self.tx && !self.rx {
            wrong.push("neither sending nor receiving was requested".to_owned());
        }
        if self.queues == 0 {
            wrong.push("no queue was requested".to_owned());
        }
        let mut twice = self.only_queues.clone();
        twice.sort_unstable();
        if twice.windows(2).any(|pair| pair[0] == pair[1]) {
            wrong.push("a queue is listed twice".to_owned());
        }
        // The fill ring for the largest receive ring must also hold the frames that the device is using.
        let rings = [
            ("transmit ring", Some(self.tx_frames), *RING.end()),
            ("receive ring", Some(self.rx_frames), *RING.end()),
            ("fill ring", self.fill_slots, 2 * RING.end()),
        ];
        for (name, slots, most) in rings.into_iter().filter_map(|(n, s, m)| Some((n, s?, m))) {
            if !slots.is_power_of_two() || !(*RING.start()..=most).contains(&slots) {
                wrong.push(format!(
                    "{name}: must be a power of two from {} to {most} frames, got {slots}",
                    RING.start(),
                ));
            }
        }
        if let Some(frames) = self.rx_memory_frames
            && !(64..=2 * RING.end()).contains(&frames)
        {
            wrong.push(format!(
                "receive memory: must be between 64 and {} frames, got {frames}",
                2 * RING.end()
            ));
        }
        if let Select::UdpPorts(low, high) = self.select
            && low > high
        {
            wrong.push(format!(
                "UDP ports: the first ({low}) is above the last ({high})"
            ));
        }
        if let Some(size) = self.frame_size
            && size != 2048
            && size != LARGEST_FRAME
        {
            wrong.push(format!(
                "frame memory: must be 2048 or 4096 bytes, got {size}"
            ));
        }
        if !wrong.is_empty() {
            return Err(PortError::Input {
                port: interface.port.clone(),
                what: wrong.join("; "),
            });
        }
        self.check_queues(interface)?;
        self.choose_frame_size(interface)
    }

    fn check_queues(&self, interface: &Interface) -> Result<(), PortError> {
        let last = |queues: Vec<u32>| queues.into_iter().max();
        let sending = self.senders().into_iter().filter(|(_, tx)| *tx);
        for (last, on) in [
            (last(sending.map(|(n, _)| n).collect()), interface.tx_queues),
            (
                last(self.numbers()).filter(|_| self.rx),
                interface.rx_queues,
            ),
        ] {
            if let Some(last) = last.filter(|&last| last >= on) {
                return Err(crate::port_errors::queue_off(interface, last.into()));
            }
        }
        Ok(())
    }

    fn choose_frame_size(&self, interface: &Interface) -> Result<u32, PortError> {
        // With zero copy the device writes to this memory even if the port only sends.
        let receives = self.rx || self.mode == Mode::NativeZeroCopy;
        let headroom = if receives { RX_HEADROOM } else { 0 };
        let need = interface.mtu.saturating_add(LONGEST_HEADER + headroom);
        let size = self
            .frame_size
            .unwrap_or(if need <= 2048 { 2048 } else { LARGEST_FRAME });
        // Longer frames can be refused one by one when sending. When receiving they are lost, which must
        // be the user's choice.
        if self.rx && need > size && self.frame_size.is_none() {
            let memory = size - LONGEST_HEADER - headroom;
            let carries = memory.min(self.native_mtu.unwrap_or(memory));
            let whose = match self.native_mtu {
                Some(_) => String::new(),
                None => format!(", or less if {} needs it", interface.kernel_driver),
            };
            return Err(PortError::Unsupported {
                port: interface.port.clone(),
                what: format!(
                    "MTU {} does not fit frame memory of {size} bytes; try `ip link set dev {} mtu {carries}`{whose} or the packet driver",
                    interface.mtu, interface.name,
                ),
            });
        }
        Ok(size)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn interface() -> Interface {
        Interface {
            port: "xdp:wb-pair-a/a0".into(),
            name: "a0".into(),
            index: 3,
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            speed: None,
            kernel_driver: "veth".into(),
            tx_queues: 2,
            rx_queues: 1,
        }
    }

    #[test]
    fn the_default_fits_an_ordinary_interface() {
        assert_eq!(XdpOptions::default().resolve(&interface()).unwrap(), 2048);
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let options = XdpOptions {
            tx: false,
            rx: false,
            rx_frames: 100,
            frame_size: Some(1024),
            select: Select::UdpPorts(9, 8),
            ..XdpOptions::default()
        };
        let message = options.resolve(&interface()).unwrap_err().to_string();
        for part in [
            "neither",
            "receive ring: must be a power of two from 64 to 1048576 frames, got 100",
            "frame memory: must be 2048 or 4096 bytes, got 1024",
            "UDP ports: the first (9) is above the last (8)",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn frames_grow_with_the_mtu_up_to_a_page() {
        let wide = |mtu| Interface { mtu, ..interface() };
        let options = XdpOptions::default();
        assert_eq!(options.resolve(&wide(1770)).unwrap(), 2048);
        assert_eq!(options.resolve(&wide(1771)).unwrap(), 4096);
        assert_eq!(options.resolve(&wide(3818)).unwrap(), 4096);
        let message = options.resolve(&wide(9000)).unwrap_err().to_string();
        assert!(message.contains("ip link set dev a0 mtu 3818"), "{message}");
        let mlx5 = XdpOptions {
            native_mtu: Some(3498),
            ..options.clone()
        };
        let message = mlx5.resolve(&wide(9000)).unwrap_err().to_string();
        assert!(message.contains("ip link set dev a0 mtu 3498"), "{message}");
        let small = XdpOptions {
            frame_size: Some(2048),
            ..options.clone()
        };
        assert_eq!(small.resolve(&wide(3000)).unwrap(), 2048);
        let sending = XdpOptions {
            rx: false,
            ..options
        };
        assert_eq!(sending.resolve(&wide(9000)).unwrap(), 4096);
    }

    #[test]
    fn memory_is_what_the_fill_ring_holds() {
        let memory = |rx_memory_frames, fill_slots| {
            XdpOptions {
                rx_memory_frames,
                fill_slots,
                ..XdpOptions::default()
            }
            .rx_memory()
        };
        assert_eq!(memory(None, None), (4096, 8192));
        assert_eq!(memory(Some(5000), None), (5000, 16_384));
        assert_eq!(memory(Some(5000), Some(8192)), (5000, 8192));
        assert_eq!(memory(Some(5000), Some(1024)), (1024, 1024));
    }

    #[test]
    fn queues_are_a_row_or_a_list() {
        let list = |only_queues: &[u32]| XdpOptions {
            only_queues: only_queues.to_vec(),
            first_queue: 1,
            queues: 2,
            tx: false,
            ..XdpOptions::default()
        };
        assert_eq!(list(&[]).numbers(), [1, 2]);
        assert_eq!(list(&[3, 0]).numbers(), [3, 0]);
        let wide = Interface {
            rx_queues: 4,
            ..interface()
        };
        list(&[3, 0]).resolve(&wide).unwrap();
        assert!(list(&[4]).resolve(&wide).is_err());
        assert!(list(&[3, 0, 3]).resolve(&wide).is_err());
    }

    #[test]
    fn more_queues_may_receive_than_send() {
        let wide = Interface {
            rx_queues: 4,
            ..interface()
        };
        let options = XdpOptions {
            queues: 4,
            tx_queues: Some(2),
            ..XdpOptions::default()
        };
        options.resolve(&wide).unwrap();
        let senders: Vec<bool> = options.senders().into_iter().map(|(_, tx)| tx).collect();
        assert_eq!(senders, [true, true, false, false]);
        let all = XdpOptions {
            tx_queues: None,
            ..options
        };
        let message = all.resolve(&wide).unwrap_err().to_string();
        assert!(message.contains("queue 3 "), "{message}");
    }

    #[test]
    fn the_largest_receive_ring_has_a_fill_ring_for_it_and_for_the_device() {
        let largest = *RING.end();
        let options = |rx_frames, fill_slots| XdpOptions {
            rx_frames,
            rx_memory_frames: Some(rx_frames.saturating_add(9216)),
            fill_slots,
            ..XdpOptions::default()
        };
        for fill_slots in [None, Some(2 * largest)] {
            options(largest, fill_slots).resolve(&interface()).unwrap();
        }
        for (ring, fill) in [(2 * largest, None), (largest, Some(4 * largest))] {
            assert!(options(ring, fill).resolve(&interface()).is_err());
        }
    }

    #[test]
    fn a_queue_that_is_off_is_refused_with_the_command() {
        let options = XdpOptions {
            queues: 2,
            ..XdpOptions::default()
        };
        let message = options.resolve(&interface()).unwrap_err().to_string();
        assert!(
            message.contains("queue 1 ") && message.contains("ethtool -L a0"),
            "{message}"
        );
        XdpOptions {
            rx: false,
            ..options
        }
        .resolve(&interface())
        .unwrap();
    }
}
