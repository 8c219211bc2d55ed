//! XDP program: loads it, attaches it by a link that ends with its owner, and gives it the sockets.
//!
//! Uses libbpf; does not know rings.
#![allow(unsafe_code)] // Four calls of libbpf and one of the kernel that have no safe wrapper.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Once};
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, PrintLevel, libbpf_sys as sys};
use rustix::io::Errno;
use wb_filter::{Program as Filter, ebpf};
use wb_port::Interface;

use crate::attach_words;
use crate::object::{self, built};
use crate::options::Select;
use crate::port_errors::{self, Failure};

/// Attach mode of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttachMode {
    /// In the driver.
    Native,
    /// In the generic receive path.
    Generic,
}

impl AttachMode {
    fn flags(self) -> u32 {
        // if_link.h: XDP_FLAGS_SKB_MODE, XDP_FLAGS_DRV_MODE.
        match self {
            Self::Generic => 1 << 1,
            Self::Native => 1 << 2,
        }
    }
}

/// XDP abilities that the kernel reports for an interface.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Abilities {
    /// Id of the attached program.
    pub(crate) attached: Option<u32>,
    /// True if the driver runs programs; `None` if the kernel does not report it (before 6.3).
    pub(crate) native: Option<bool>,
    /// True if the driver has zero copy.
    pub(crate) zero_copy: Option<bool>,
    /// True if the driver accepts frames from programs.
    pub(crate) transmit: Option<bool>,
}

/// Queries the kernel for the abilities of `interface`.
pub(crate) fn abilities(interface: &Interface) -> Result<Abilities, Failure> {
    // netdev.h: NETDEV_XDP_ACT_REDIRECT, NETDEV_XDP_ACT_NDO_XMIT, NETDEV_XDP_ACT_XSK_ZEROCOPY.
    const REDIRECT: u64 = 1 << 1;
    const TRANSMIT: u64 = 1 << 2;
    const ZERO_COPY: u64 = 1 << 3;
    quiet();
    let mut answer = sys::bpf_xdp_query_opts {
        sz: size_of::<sys::bpf_xdp_query_opts>() as sys::size_t,
        ..Default::default()
    };
    // SAFETY: `answer` carries its size and outlives the call.
    let result = unsafe { sys::bpf_xdp_query(index(interface), 0, &raw mut answer) };
    if result < 0 {
        return Err(port_errors::io(interface, "read its XDP state", errno(result)).into());
    }
    let ids = [
        answer.prog_id,
        answer.drv_prog_id,
        answer.hw_prog_id,
        answer.skb_prog_id,
    ];
    let known = answer.feature_flags != 0;
    Ok(Abilities {
        attached: ids.into_iter().find(|&id| id != 0),
        native: known.then_some(answer.feature_flags & REDIRECT != 0),
        zero_copy: known.then_some(answer.feature_flags & ZERO_COPY != 0),
        transmit: known.then_some(answer.feature_flags & TRANSMIT != 0),
    })
}

/// Error for an interface with another user's program.
pub(crate) fn occupied(interface: &Interface, id: Option<u32>) -> Failure {
    let which = id
        .map(|id| format!(" (ID {id}, see `bpftool prog show id {id}`)"))
        .unwrap_or_default();
    port_errors::unsupported(
        interface,
        format!(
            "another XDP program{which} is attached; stop its owner or try `ip link set dev {0} xdp off`",
            interface.name
        ),
    )
    .into()
}

/// Maps of an attached program: its sockets by queue, and the counters of its filter.
pub(crate) struct SocketMap {
    sockets: MapHandle,
    /// Frames seen and matched, for each queue and CPU; only for a program with a filter.
    counters: Option<MapHandle>,
}

/// Longer than the kernel processes a batch of frames.
const BATCH_TIMEOUT: Duration = Duration::from_millis(10);

impl SocketMap {
    /// Directs the frames of `queue` to the kernel from now on. Frames that had passed the program before are in the
    /// receive ring, or counted as dropped, when the call returns.
    pub(crate) fn close(&self, queue: u32) -> io::Result<()> {
        self.sockets
            .delete(&queue.to_ne_bytes())
            .map_err(|cause| io::Error::other(cause.to_string()))?;
        wait_for_batches();
        Ok(())
    }

    /// Frames of `queue` that matched the filter and were passed to the socket.
    pub(crate) fn matched(&self, queue: u32) -> Option<u64> {
        let values = self
            .counters
            .as_ref()?
            .lookup_percpu(&queue.to_ne_bytes(), MapFlags::ANY)
            .ok()??;
        let matched = |value: &Vec<u8>| {
            let bytes = value.get(8..16)?.try_into().ok()?;
            Some(u64::from_ne_bytes(bytes))
        };
        Some(values.iter().filter_map(matched).sum())
    }
}

/// Waits until the kernel has finished its current batches. It processes a batch of frames in the program and the ring
/// within one RCU read-side section, and the barrier waits for all sections to end.
fn wait_for_batches() {
    // membarrier.h: MEMBARRIER_CMD_GLOBAL.
    const GLOBAL: libc::c_int = 1;
    // SAFETY: the call takes integers and accesses no memory of this process.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) };
    if result != 0 {
        // Some kernels (nohz_full) and sandboxes refuse the call.
        std::thread::sleep(BATCH_TIMEOUT);
    }
}

/// Loaded program, not attached yet.
pub(crate) struct Program {
    program: OwnedFd,
    gate: Arc<SocketMap>,
}

impl Program {
    /// Loads a program that passes the frames matching `filter` to the sockets of queues below `queues`, and counts
    /// them.
    pub(crate) fn with_filter(
        interface: &Interface,
        filter: &Filter,
        queues: u32,
    ) -> Result<Self, Failure> {
        quiet();
        let maps = || {
            let options = sys::bpf_map_create_opts {
                sz: size_of::<sys::bpf_map_create_opts>() as sys::size_t,
                ..Default::default()
            };
            let make = |kind, name, value_len| {
                MapHandle::create(kind, Some(name), 4, value_len, queues, &options)
            };
            Ok((
                make(MapType::Xskmap, "sockets", 4)?,
                make(MapType::PercpuArray, "counters", ebpf::COUNTERS_LEN)?,
            ))
        };
        let (sockets, counters) = maps().map_err(|cause| Self::load_error(interface, &cause))?;
        let options = ebpf::TranslateOptions {
            counters_fd: Some(counters.as_fd().as_raw_fd()),
            ..ebpf::TranslateOptions::redirect(sockets.as_fd().as_raw_fd())
        };
        let insns = ebpf::translate(filter, &options)
            .map_err(|cause| port_errors::unsupported(interface, cause.to_string()))?;
        let mut options = sys::bpf_prog_load_opts {
            sz: size_of::<sys::bpf_prog_load_opts>() as sys::size_t,
            ..Default::default()
        };
        // SAFETY: `Insn` has the eight bytes of `struct bpf_insn`; the options carry their size. All of them, and the
        // maps that the instructions use, outlive the call.
        let result = unsafe {
            sys::bpf_prog_load(
                sys::BPF_PROG_TYPE_XDP,
                c"wb_filter".as_ptr(),
                c"Dual BSD/GPL".as_ptr(),
                insns.as_ptr().cast(),
                insns.len() as sys::size_t,
                &raw mut options,
            )
        };
        if result < 0 {
            let cause = libbpf_rs::Error::from_raw_os_error(-result);
            return Err(Self::load_error(interface, &cause));
        }
        Ok(Self {
            // SAFETY: the call has just made this descriptor, and it has no other owner.
            program: unsafe { OwnedFd::from_raw_fd(result) },
            gate: Arc::new(SocketMap {
                sockets,
                counters: Some(counters),
            }),
        })
    }

    pub(crate) fn gate(&self) -> Arc<SocketMap> {
        Arc::clone(&self.gate)
    }

    /// Loads the program with the selection `select` (`None`: no frames) for queues below `queues`.
    pub(crate) fn load(
        interface: &Interface,
        select: Option<Select>,
        queues: u32,
    ) -> Result<Self, Failure> {
        quiet();
        let load = || {
            let mut open = object::open(built!("select"))?;
            object::open_map(&mut open, "sockets")?.set_max_entries(queues)?;
            object::open_map(&mut open, ".rodata")?.set_initial_value(&settings(select))?;
            let loaded = open.load()?;
            Ok(Self {
                program: object::program(&loaded, "wb_select")?
                    .as_fd()
                    .try_clone_to_owned()?,
                gate: Arc::new(SocketMap {
                    sockets: MapHandle::try_from(&object::map(&loaded, "sockets")?)?,
                    counters: None,
                }),
            })
        };
        load().map_err(|cause: libbpf_rs::Error| Self::load_error(interface, &cause))
    }

    fn load_error(interface: &Interface, cause: &libbpf_rs::Error) -> Failure {
        match cause.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => port_errors::privilege(
                interface,
                "loading an XDP program needs CAP_BPF and CAP_NET_ADMIN",
            )
            .into(),
            _ => port_errors::unsupported(
                interface,
                format!("the kernel does not load the XDP program: {cause}; use the packet driver"),
            )
            .into(),
        }
    }

    /// Attaches the program, for as long as the returned link is open.
    pub(crate) fn attach(
        &self,
        interface: &Interface,
        hook: AttachMode,
    ) -> Result<OwnedFd, Failure> {
        self.link(interface, hook)
            .map_err(|cause| self.attach_error(interface, hook, cause))
    }

    fn link(&self, interface: &Interface, hook: AttachMode) -> Result<OwnedFd, Errno> {
        let options = sys::bpf_link_create_opts {
            sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t,
            flags: hook.flags(),
            ..Default::default()
        };
        // SAFETY: `options` carries its size and outlives the call, and has no other part set.
        let result = unsafe {
            sys::bpf_link_create(
                self.program.as_raw_fd(),
                index(interface),
                sys::BPF_XDP,
                &raw const options,
            )
        };
        if result >= 0 {
            // SAFETY: the call has just made this descriptor, and it has no other owner.
            return Ok(unsafe { OwnedFd::from_raw_fd(result) });
        }
        Err(errno(result))
    }

    /// Attaches the program in the driver and removes it again.
    pub(crate) fn try_native(&self, interface: &Interface) -> Result<(), String> {
        match self.link(interface, AttachMode::Native) {
            Ok(_) => Ok(()),
            Err(cause) => Err(self.reason(interface, AttachMode::Native, cause)),
        }
    }

    /// The kernel's message for a failed attempt to attach, or its error.
    fn reason(&self, interface: &Interface, hook: AttachMode, cause: Errno) -> String {
        attach_words::words(self.program.as_fd(), index(interface), hook.flags())
            .unwrap_or_else(|| io::Error::from(cause).to_string())
    }

    fn attach_error(&self, interface: &Interface, hook: AttachMode, cause: Errno) -> Failure {
        let name = &interface.name;
        let what = match cause {
            Errno::BUSY | Errno::EXIST => {
                let id = abilities(interface)
                    .ok()
                    .and_then(|abilities| abilities.attached);
                return occupied(interface, id);
            }
            Errno::PERM | Errno::ACCESS => {
                let what = "attaching an XDP program needs CAP_NET_ADMIN";
                return port_errors::privilege(interface, what).into();
            }
            Errno::NODEV | Errno::NXIO => return port_errors::gone(&interface.port).into(),
            // veth's error numbers for its limits, which commands can change. Other drivers use these numbers for other
            // errors.
            Errno::RANGE if hook == AttachMode::Native && interface.kernel_driver == "veth" => {
                format!("; try `ip link set dev {name} mtu 1500` at both ends")
            }
            Errno::NOSPC if hook == AttachMode::Native && interface.kernel_driver == "veth" => {
                format!(
                    "; it needs as many receive queues as the other end has transmit queues: try `ethtool -L {name} rx N`"
                )
            }
            _ if hook == AttachMode::Native => "; see `wirebench doctor`".to_owned(),
            _ => String::new(),
        };
        let who = match hook {
            AttachMode::Native => "driver",
            AttachMode::Generic => "kernel",
        };
        let reason = self.reason(interface, hook, cause);
        Failure::of_mode(
            interface,
            format!("the {who} refused the XDP program ({reason}){what}"),
        )
    }

    /// Directs the frames of `queue` to `socket`.
    pub(crate) fn serve(
        &self,
        interface: &Interface,
        queue: u32,
        socket: impl AsFd,
    ) -> Result<(), Failure> {
        let socket = socket.as_fd().as_raw_fd().to_ne_bytes();
        self.gate
            .sockets
            .update(&queue.to_ne_bytes(), &socket, MapFlags::ANY)
            .map_err(|cause| {
                let cause = std::io::Error::other(cause.to_string());
                port_errors::io(
                    interface,
                    &format!("give queue {queue} to its socket"),
                    cause,
                )
                .into()
            })
    }
}

/// Settings of `select.bpf.c`.
fn settings(select: Option<Select>) -> [u8; 16] {
    let (selected, [low, high], mac) = match select {
        None => (0u32, [0u16; 2], [0; 6]),
        Some(Select::AllButControl) => (1, [0; 2], [0; 6]),
        Some(Select::UdpPorts(low, high)) => (2, [low, high], [0; 6]),
        Some(Select::Mac(mac)) => (3, [0; 2], mac),
        Some(Select::Everything) => (4, [0; 2], [0; 6]),
    };
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&selected.to_ne_bytes());
    bytes[4..6].copy_from_slice(&low.to_ne_bytes());
    bytes[6..8].copy_from_slice(&high.to_ne_bytes());
    bytes[8..14].copy_from_slice(&mac);
    bytes
}

/// Sends the messages of libbpf to `tracing`; by default they go to standard error.
pub(crate) fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Debug, |_, message| {
            tracing::debug!(target: "libbpf", "{}", message.trim_end());
        })));
    });
}

pub(crate) fn index(interface: &Interface) -> i32 {
    // The kernel's type for it is `int`.
    interface.index.cast_signed()
}

pub(crate) fn errno(result: i32) -> Errno {
    Errno::from_raw_os_error(-result)
}
