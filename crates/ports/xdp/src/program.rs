//! The XDP program: loaded, attached by a link that dies with its holder, and given the sockets.
//!
//! Knows libbpf, nothing of rings.
#![allow(unsafe_code)] // Three calls of libbpf that have no safe wrapper.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Once;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, PrintLevel, libbpf_sys as sys};
use rustix::io::Errno;
use wb_port::Interface;

use crate::fault::{self, Failure};
use crate::options::Select;

#[allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    missing_docs,
    unreachable_pub,
    unused
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/select.skel.rs"));
}

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// In the driver.
    Native,
    /// In the kernel's receive path.
    Generic,
}

/// What an interface says of its XDP abilities.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Abilities {
    /// Identity of the program attached now.
    pub(crate) attached: Option<u32>,
    /// The driver runs programs; `None` when the kernel does not tell (before 6.3).
    pub(crate) native: Option<bool>,
    /// The driver has zero copy.
    pub(crate) zero_copy: Option<bool>,
}

/// Asks the kernel what `interface` can do.
pub(crate) fn abilities(interface: &Interface) -> Result<Abilities, Failure> {
    // netdev.h: NETDEV_XDP_ACT_REDIRECT, NETDEV_XDP_ACT_XSK_ZEROCOPY.
    const REDIRECT: u64 = 1 << 1;
    const ZERO_COPY: u64 = 1 << 3;
    quiet();
    let mut answer = sys::bpf_xdp_query_opts {
        sz: size_of::<sys::bpf_xdp_query_opts>() as sys::size_t,
        ..Default::default()
    };
    // SAFETY: `answer` carries its size and outlives the call.
    let result = unsafe { sys::bpf_xdp_query(index(interface), 0, &raw mut answer) };
    if result < 0 {
        return Err(fault::io(interface, "ask for its XDP state", errno(result)).into());
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
    })
}

/// The error for an interface that runs someone else's program.
pub(crate) fn occupied(interface: &Interface, id: Option<u32>) -> Failure {
    let which = id
        .map(|id| format!(" (id {id}, see `bpftool prog show id {id}`)"))
        .unwrap_or_default();
    fault::unsupported(
        interface,
        format!(
            "another XDP program{which} is attached; end its owner or try `ip link set dev {0} xdp off`",
            interface.name
        ),
    )
    .into()
}

/// A loaded program, not yet on any interface.
pub(crate) struct Program {
    program: OwnedFd,
    sockets: MapHandle,
}

impl Program {
    /// Loads the program that selects as asked (`None`: nothing) for queues below `queues`.
    pub(crate) fn load(
        interface: &Interface,
        select: Option<Select>,
        queues: u32,
    ) -> Result<Self, Failure> {
        quiet();
        let load = || {
            let mut place = MaybeUninit::uninit();
            let mut open = skeleton::SelectSkelBuilder::default().open(&mut place)?;
            open.maps.sockets.set_max_entries(queues)?;
            let settings = open
                .maps
                .rodata_data
                .as_deref_mut()
                .expect("the program has constants");
            match select {
                None => {}
                Some(Select::AllButControl) => settings.selected = 1,
                Some(Select::Everything) => settings.selected = 4,
                Some(Select::UdpPorts(low, high)) => {
                    settings.selected = 2;
                    settings.udp_low = low;
                    settings.udp_high = high;
                }
                Some(Select::Mac(mac)) => {
                    settings.selected = 3;
                    settings.own_mac = mac;
                }
            }
            let loaded = open.load()?;
            Ok(Self {
                program: loaded.progs.wb_select.as_fd().try_clone_to_owned()?,
                sockets: MapHandle::try_from(&loaded.maps.sockets)?,
            })
        };
        load().map_err(|cause: libbpf_rs::Error| match cause.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => fault::privilege(
                interface,
                "loading an XDP program needs CAP_BPF and CAP_NET_ADMIN",
            )
            .into(),
            _ => fault::unsupported(
                interface,
                format!("the kernel does not load the XDP program: {cause}; use the packet driver"),
            )
            .into(),
        })
    }

    /// Attaches it; it stays for as long as the returned link is open.
    pub(crate) fn attach(&self, interface: &Interface, hook: Hook) -> Result<OwnedFd, Failure> {
        // if_link.h: XDP_FLAGS_SKB_MODE, XDP_FLAGS_DRV_MODE.
        let flags = match hook {
            Hook::Generic => 1 << 1,
            Hook::Native => 1 << 2,
        };
        let options = sys::bpf_link_create_opts {
            sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t,
            flags,
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
            // SAFETY: the call has just made this descriptor, and nobody else knows it.
            return Ok(unsafe { OwnedFd::from_raw_fd(result) });
        }
        Err(Self::attach_error(interface, hook, errno(result)))
    }

    fn attach_error(interface: &Interface, hook: Hook, cause: Errno) -> Failure {
        let name = &interface.name;
        match cause {
            Errno::BUSY | Errno::EXIST => {
                let id = abilities(interface)
                    .ok()
                    .and_then(|abilities| abilities.attached);
                occupied(interface, id)
            }
            Errno::PERM | Errno::ACCESS => {
                fault::privilege(interface, "attaching an XDP program needs CAP_NET_ADMIN").into()
            }
            Errno::NODEV | Errno::NXIO => fault::gone(&interface.port).into(),
            // The reasons that veth gives; other drivers use the same numbers for the like.
            Errno::RANGE if hook == Hook::Native => Failure::of_mode(
                interface,
                format!(
                    "the driver takes no XDP program at this MTU; try `ip link set dev {name} mtu 1500` at both ends"
                ),
            ),
            Errno::NOSPC if hook == Hook::Native => Failure::of_mode(
                interface,
                format!(
                    "the driver needs as many receive queues as the other end has transmit queues; try `ethtool -L {name} rx N`"
                ),
            ),
            cause => Failure::of_mode(
                interface,
                format!(
                    "the {} takes no XDP program ({})",
                    if hook == Hook::Native {
                        "driver"
                    } else {
                        "kernel"
                    },
                    std::io::Error::from(cause)
                ),
            ),
        }
    }

    /// Gives the frames of `queue` to `socket`.
    pub(crate) fn serve(
        &self,
        interface: &Interface,
        queue: u32,
        socket: impl AsFd,
    ) -> Result<(), Failure> {
        let socket = socket.as_fd().as_raw_fd().to_ne_bytes();
        self.sockets
            .update(&queue.to_ne_bytes(), &socket, MapFlags::ANY)
            .map_err(|cause| {
                let cause = std::io::Error::other(cause.to_string());
                fault::io(
                    interface,
                    &format!("give queue {queue} to its socket"),
                    cause,
                )
                .into()
            })
    }
}

/// libbpf writes to standard error unless told where else.
pub(crate) fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Debug, |_, message| {
            tracing::debug!(target: "libbpf", "{}", message.trim_end());
        })));
    });
}

pub(crate) fn index(interface: &Interface) -> i32 {
    // The kernel's own type for it is `int`.
    interface.index.cast_signed()
}

pub(crate) fn errno(result: i32) -> Errno {
    Errno::from_raw_os_error(-result)
}
