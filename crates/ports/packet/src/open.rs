//! Opens a port: checks the interface, creates the sockets of each queue, and reports the port's properties.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with, sockopt};
use wb_port::{Interface, PortError, PortFacts, QueuePair, StampSource};

use crate::ring::{Blocks, ReceiveRing};
use crate::slots::Slots;
use crate::watch::InterfaceWatch;
use crate::{Fanout, PacketOptions, PacketRx, PacketTx, QdiscDrops, RxMode, filter, sys};

/// Larger than the queue of any device, so that the device fills up before the socket.
const SEND_BUFFER: usize = 16 << 20;
/// Ethernet header and two VLAN tags.
const FRAME_OVERHEAD: u32 = 14 + 8;

/// Open port.
pub struct PacketPort {
    /// Properties of the port.
    pub facts: PortFacts,
    /// Queue pairs, each for one worker.
    pub queues: Vec<PacketQueue>,
}

/// Queue pair with separate sockets.
pub struct PacketQueue {
    tx: PacketTx,
    rx: PacketRx,
}

impl QueuePair for PacketQueue {
    type Tx = PacketTx;
    type Rx = PacketRx;

    fn split(&mut self) -> (&mut PacketTx, &mut PacketRx) {
        (&mut self.tx, &mut self.rx)
    }
}

/// Opens `interface` in the network namespace of the calling thread. The port may be used from any thread and
/// namespace.
///
/// # Errors
/// [`PortError::Privilege`] without `CAP_NET_RAW`; [`PortError::Input`] if the namespace has no such interface, or the
/// options or the filter are invalid; [`PortError::Unsupported`] if the interface is down or does not carry Ethernet
/// frames.
pub fn open(interface: &Interface, options: &PacketOptions) -> Result<PacketPort, PortError> {
    let opening = Opening { interface, options };
    if options.queues == 0 {
        return Err(opening.input("queues: must be at least 1, got 0".into()));
    }
    if !options.tx && !options.rx {
        return Err(opening.input("neither sending nor receiving was requested".into()));
    }
    let mut warnings = Vec::new();
    let probe = socket(interface)?;
    check(interface, probe.as_fd(), &mut warnings)?;
    let stamp_source = opening.stamp_source(probe.as_fd(), &mut warnings);

    let queues = options.queues as usize;
    let tx: Vec<PacketTx> = if options.tx {
        (0..queues)
            .map(|_| opening.tx(&mut warnings))
            .collect::<Result<_, _>>()?
    } else {
        (0..queues).map(|_| PacketTx::closed()).collect()
    };
    let rx = if options.rx {
        opening.rx(&mut warnings)?
    } else {
        (0..queues).map(|_| PacketRx::closed()).collect()
    };
    Ok(PacketPort {
        facts: opening.facts(stamp_source, warnings),
        queues: tx
            .into_iter()
            .zip(rx)
            .map(|(tx, rx)| PacketQueue { tx, rx })
            .collect(),
    })
}

struct Opening<'a> {
    interface: &'a Interface,
    options: &'a PacketOptions,
}

impl Opening<'_> {
    fn tx(&self, warnings: &mut Vec<String>) -> Result<PacketTx, PortError> {
        let socket = socket(self.interface)?;
        let fd = socket.as_fd();
        // A value above the system's limit needs a privilege that a user namespace does not grant.
        if sockopt::set_socket_send_buffer_size_force(fd, SEND_BUFFER).is_err() {
            let _ = sockopt::set_socket_send_buffer_size(fd, SEND_BUFFER);
        }
        if self.options.qdisc_bypass
            && let Err(e) = sys::set_packet_option(fd, libc::PACKET_QDISC_BYPASS, 1)
        {
            warn(
                warnings,
                format!("frames go through the queueing discipline: {e}"),
            );
        }
        if self.options.priority != 0 {
            sys::set_priority(fd, self.options.priority)
                .map_err(|e| self.io("set the priority", e))?;
        }
        // Protocol 0: the socket sends, and receives nothing that would have to be discarded.
        self.bind(fd, 0)?;
        let capacity = self
            .options
            .max_frame_len
            .unwrap_or(self.interface.mtu + FRAME_OVERHEAD);
        let mut slots = Slots::new(self.options.tx_slots as usize, capacity as usize)
            .map_err(|e| self.io("allocate transmit slots", e))?;
        if !self.options.qdisc_bypass && self.options.qdisc_drops == QdiscDrops::Refuse {
            slots = slots.refuse_dropped();
        }
        Ok(PacketTx::new(
            socket,
            slots,
            self.watch(),
            self.options.qdisc_bypass,
        ))
    }

    fn rx(&self, warnings: &mut Vec<String>) -> Result<Vec<PacketRx>, PortError> {
        let mut opened = Vec::new();
        for _ in 0..self.options.queues {
            opened.push(self.rx_socket(warnings)?);
        }
        if opened.len() > 1 {
            self.join_fanout(opened.iter().map(|(socket, _)| socket.as_fd()))?;
        }
        // Nothing has arrived so far: a queue outside the fanout group would have received every frame, including those
        // of other queues.
        let filter = filter::with_snap_len(self.options.filter.as_deref(), self.options.snap_len);
        let filter = if self.options.only_outgoing {
            Some(filter::only_outgoing(filter, self.options.snap_len))
        } else if self.options.ignore_outgoing && self.options.queues > 1 {
            // Kernels before 6.2 accept the fanout group's flag for this and ignore it.
            Some(filter::only_incoming(filter, self.options.snap_len))
        } else {
            filter
        };
        for (socket, _) in &opened {
            match &filter {
                Some(ops) => sys::attach_filter(socket.as_fd(), ops).map_err(|e| {
                    match e.raw_os_error() {
                        Some(libc::EINVAL) => self.input(format!(
                            "the kernel does not accept the filter of {} instructions as classic BPF",
                            ops.len()
                        )),
                        _ => self.io("attach the filter", e),
                    }
                })?,
                None => sys::detach_filter(socket.as_fd())
                    .map_err(|e| self.io("remove the first filter", e))?,
            }
        }
        Ok(opened
            .into_iter()
            .map(|(socket, ring)| {
                // Wait only for long timeouts, because a sender must detect a removed device quickly.
                let watch = match self.options.block_timeout_ms {
                    0..=10 => self.watch(),
                    _ => self.watch().holding(ring.longest_hold()),
                };
                PacketRx::new(socket, ring, watch)
            })
            .collect())
    }

    /// Creates a bound socket with a ring and a filter that passes nothing yet.
    fn rx_socket(&self, warnings: &mut Vec<String>) -> Result<(OwnedFd, ReceiveRing), PortError> {
        let options = self.options;
        let socket = socket(self.interface)?;
        let fd = socket.as_fd();
        let longest = (self.interface.mtu + FRAME_OVERHEAD).min(options.snap_len.max(64));
        let ring = ReceiveRing::new(
            fd,
            options.rx_mode,
            options.rx_ring_bytes,
            Blocks {
                bytes: options.block_bytes.max(4096).next_power_of_two(),
                least: options.least_blocks,
                timeout_ms: options.block_timeout_ms.max(1),
            },
            longest as usize,
        )
        .map_err(|e| self.io("set up the receive ring", e))?;
        if ring.size() < options.rx_ring_bytes / 4 * 3 {
            let (got, asked) = (ring.size() >> 10, options.rx_ring_bytes >> 10);
            warn(
                warnings,
                format!("receive ring of {got} KiB instead of {asked} KiB: not enough memory"),
            );
        }
        if options.hw_stamps {
            let raw = libc::SOF_TIMESTAMPING_RAW_HARDWARE as i32;
            sys::set_packet_option(fd, libc::PACKET_TIMESTAMP, raw)
                .map_err(|e| self.io("request hardware timestamps", e))?;
        }
        // In a fanout group the socket's option has no effect; there the filter does it.
        if options.ignore_outgoing
            && options.queues == 1
            && let Err(e) = sys::set_packet_option(fd, libc::PACKET_IGNORE_OUTGOING, 1)
        {
            warn(
                warnings,
                format!("frames sent by this host are received too: {e}"),
            );
        }
        sys::attach_filter(fd, &filter::drop_all())
            .map_err(|e| self.io("attach the first filter", e))?;
        self.bind(fd, sys::ETH_P_ALL)?;
        if options.promiscuous {
            sys::add_membership(fd, self.interface.index, libc::PACKET_MR_PROMISC)
                .map_err(|e| self.io("switch on promiscuous mode", e))?;
        }
        Ok((socket, ring))
    }

    fn join_fanout<'a>(
        &self,
        sockets: impl Iterator<Item = BorrowedFd<'a>>,
    ) -> Result<(), PortError> {
        let kind = match self.options.fanout {
            Fanout::Hash => libc::PACKET_FANOUT_HASH,
            Fanout::RoundRobin => libc::PACKET_FANOUT_LB,
            Fanout::Cpu => libc::PACKET_FANOUT_CPU,
            Fanout::RxQueue => libc::PACKET_FANOUT_QM,
            Fanout::Port(_) => libc::PACKET_FANOUT_CBPF,
        };
        let mut group = 0;
        for (i, fd) in sockets.enumerate() {
            let unique = if i == 0 {
                libc::PACKET_FANOUT_FLAG_UNIQUEID
            } else {
                0
            };
            let value = (kind | unique) << 16 | libc::c_uint::from(group);
            sys::set_packet_option(fd, libc::PACKET_FANOUT, value as i32)
                .map_err(|e| self.io("join the fanout group", e))?;
            if i == 0 {
                group = sys::fanout_group(fd).map_err(|e| self.io("read the fanout group", e))?;
                if let Fanout::Port(which) = self.options.fanout {
                    let program = filter::steer_by_port(which, self.options.queues);
                    sys::set_fanout_program(fd, &program)
                        .map_err(|e| self.io("attach the fanout program", e))?;
                }
            }
        }
        Ok(())
    }

    fn stamp_source(&self, fd: BorrowedFd<'_>, warnings: &mut Vec<String>) -> StampSource {
        let options = self.options;
        if !options.rx || !options.hw_stamps {
            return StampSource::KernelTpacket;
        }
        if let Ok(true) = sys::stamps_in_hardware(fd, &self.interface.name) {
            return StampSource::Nic;
        }
        warn(
            warnings,
            "the device does not timestamp received frames; the kernel's timestamps are used"
                .into(),
        );
        StampSource::KernelTpacket
    }

    fn facts(&self, stamp_source: StampSource, warnings: Vec<String>) -> PortFacts {
        let Self { interface, options } = self;
        let mut mode = Vec::new();
        if options.rx {
            mode.push(match options.rx_mode {
                RxMode::Throughput => "tpacket-v3",
                RxMode::LowLatency => "tpacket-v2",
            });
        }
        if options.tx {
            mode.push(if options.qdisc_bypass {
                "sendmmsg, qdisc bypass"
            } else {
                "sendmmsg"
            });
        }
        let port = &interface.port;
        PortFacts {
            locator: match port.starts_with("packet:") {
                true => port.clone(),
                false => format!("packet:{port}"),
            },
            driver: "packet",
            mode: mode.join(" + "),
            ifindex: interface.index,
            mac: interface.mac,
            mtu: interface.mtu,
            speed: interface.speed,
            queues: options.queues,
            stamp_source,
            kernel_driver: interface.kernel_driver.clone(),
            warnings,
        }
    }

    fn bind(&self, fd: BorrowedFd<'_>, protocol: u16) -> Result<(), PortError> {
        bind(self.interface, fd, protocol)
    }

    fn watch(&self) -> InterfaceWatch {
        InterfaceWatch::new(&self.interface.port, self.interface.index)
    }

    fn input(&self, what: String) -> PortError {
        PortError::Input {
            port: self.interface.port.clone(),
            what,
        }
    }

    fn io(&self, operation: &str, cause: io::Error) -> PortError {
        io_error(self.interface, operation, cause)
    }
}

/// Creates a raw packet socket that receives nothing until it is bound.
pub(crate) fn socket(interface: &Interface) -> Result<OwnedFd, PortError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None).map_err(|errno| match errno {
        Errno::PERM | Errno::ACCESS => PortError::Privilege {
            port: interface.port.clone(),
            what: "opening a packet socket needs CAP_NET_RAW in the interface's network namespace"
                .into(),
            command: format!(
                "grant it with `{}`, or run as root, or in a separate namespace (`unshare -Urnm`)",
                PortError::command_granting()
            ),
        },
        Errno::AFNOSUPPORT => PortError::Unsupported {
            port: interface.port.clone(),
            what: "this kernel has no packet sockets; try `sudo modprobe af_packet`".into(),
        },
        _ => io_error(interface, "open a packet socket", errno.into()),
    })
}

/// Checks that `interface` exists with this name in this namespace, is up, and carries Ethernet frames.
pub(crate) fn check(
    interface: &Interface,
    fd: BorrowedFd<'_>,
    warnings: &mut Vec<String>,
) -> Result<(), PortError> {
    let Interface {
        port, name, index, ..
    } = interface;
    // The index alone could match another interface in the wrong namespace.
    if netdevice::index_to_name(fd, *index).as_deref() != Ok(name) {
        return Err(absent(interface));
    }
    let ask_failed = |e| io_error(interface, "read the interface's state", e);
    let kind = sys::hardware_type(fd, name).map_err(ask_failed)?;
    if kind != libc::ARPHRD_ETHER && kind != libc::ARPHRD_LOOPBACK {
        return Err(PortError::Unsupported {
            port: port.clone(),
            what: format!("not an Ethernet interface (hardware type {kind})"),
        });
    }
    if sys::interface_flags(fd, name).map_err(ask_failed)? & libc::IFF_UP == 0 {
        return Err(PortError::Unsupported {
            port: port.clone(),
            what: format!("interface is down; try `ip link set dev {name} up`"),
        });
    }
    if let Ok(false) = sys::has_carrier(fd, name) {
        warn(
            warnings,
            "no carrier: nothing is sent or received until the link is up".into(),
        );
    }
    Ok(())
}

pub(crate) fn bind(
    interface: &Interface,
    fd: BorrowedFd<'_>,
    protocol: u16,
) -> Result<(), PortError> {
    sys::bind(fd, interface.index, protocol).map_err(|e| match e.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO) => absent(interface),
        _ => io_error(interface, "bind a packet socket", e),
    })
}

pub(crate) fn io_error(interface: &Interface, operation: &str, cause: io::Error) -> PortError {
    PortError::Io {
        port: interface.port.clone(),
        operation: operation.to_owned(),
        cause,
    }
}

fn absent(interface: &Interface) -> PortError {
    let Interface {
        port, name, index, ..
    } = interface;
    PortError::Input {
        port: port.clone(),
        what: format!("no interface {name} with index {index} in this network namespace"),
    }
}

/// Adds a warning once, even if it applies to several queues.
fn warn(warnings: &mut Vec<String>, text: String) {
    if !warnings.contains(&text) {
        warnings.push(text);
    }
}
