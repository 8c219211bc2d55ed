//! Drops the packet generator's frames before they reach the host: the frames that `wb_pktgen_device::classify_pktgen`
//! counts are dropped behind the packet sockets, all others pass on.
//!
//! The host then neither answers them (a closed UDP port would, with ICMP) nor delivers them to its programs. A counter
//! of these frames must receive them by a packet socket. Frames that an XDP program takes never arrive here. This
//! module does not count frames for results.

use wb_port::{Interface, PortError};

#[cfg(feature = "bpf")]
use with_bpf as imp;
#[cfg(not(feature = "bpf"))]
use without_bpf as imp;

/// Consumes the frames of one interface until it is dropped, or the process ends in any way.
pub struct Consumer(imp::Consumer);

/// Starts to consume the frames that arrive at `interface`, in the network namespace of the calling thread. They are
/// consumed before other programs at the same hook (TCX, `tc` filters) see them.
///
/// # Errors
/// [`PortError::Privilege`] without `CAP_BPF` and `CAP_NET_ADMIN`; [`PortError::Unsupported`] if the kernel has no TCX
/// (before Linux 6.6) or this build has no programs; [`PortError::Input`] if the namespace has no such interface. After
/// an error frames can still be counted, but the host receives them too.
pub fn attach(interface: &Interface) -> Result<Consumer, PortError> {
    imp::attach(interface).map(Consumer)
}

impl Consumer {
    /// Number of frames consumed since the program was attached.
    ///
    /// # Errors
    /// [`PortError::Io`] if the counter cannot be read.
    pub fn dropped(&self) -> Result<u64, PortError> {
        self.0.dropped()
    }
}

#[cfg(not(feature = "bpf"))]
mod without_bpf {
    use super::{Interface, PortError};
    use crate::port_errors;

    pub(super) enum Consumer {}

    impl Consumer {
        pub(super) fn dropped(&self) -> Result<u64, PortError> {
            match *self {}
        }
    }

    pub(super) fn attach(interface: &Interface) -> Result<Consumer, PortError> {
        Err(fault::unsupported(
            interface,
            "this build has no BPF programs (feature `bpf`), so the host sees counted frames too"
                .into(),
        ))
    }
}

#[cfg(feature = "bpf")]
mod with_bpf {
    #![allow(unsafe_code)] // Links of TCX, which libbpf-rs does not know.

    use std::io;
    use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
    use std::os::unix::net::UnixDatagram;

    use libbpf_rs::{MapCore, MapFlags, MapHandle, libbpf_sys as sys};
    use rustix::io::Errno;
    use rustix::net::netdevice;

    use super::{Interface, PortError};
    use crate::object::{self, built};
    use crate::port_errors;
    use crate::program::{errno, index, quiet};

    pub(super) struct Consumer {
        interface: Interface,
        consumed: MapHandle,
        // The program stays attached as long as this descriptor is open.
        link: OwnedFd,
    }

    impl Consumer {
        pub(super) fn dropped(&self) -> Result<u64, PortError> {
            let failed = |cause| {
                port_errors::io(
                    &self.interface,
                    "read the counter of consumed frames",
                    cause,
                )
            };
            let each = self
                .consumed
                .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
                .map_err(|cause| failed(io::Error::other(cause.to_string())))?
                .ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
            Ok(each
                .iter()
                .filter_map(|frames| Some(u64::from_ne_bytes(*frames.first_chunk()?)))
                .sum())
        }
    }

    impl Drop for Consumer {
        fn drop(&mut self) {
            // Closing the descriptor is not enough: a child of this process may hold a copy between its fork and its
            // exec.
            // SAFETY: a call on a descriptor that `self` owns.
            let _ = unsafe { sys::bpf_link_detach(self.link.as_raw_fd()) };
        }
    }

    pub(super) fn attach(interface: &Interface) -> Result<Consumer, PortError> {
        check(interface)?;
        let (program, consumed) = load().map_err(|cause| match cause.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => port_errors::privilege(
                interface,
                "consuming counted frames needs CAP_BPF and CAP_NET_ADMIN",
            ),
            _ => port_errors::unsupported(
                interface,
                format!(
                    "the kernel does not load the program that consumes counted frames: {cause}; \
                     the host sees them too"
                ),
            ),
        })?;
        let options = sys::bpf_link_create_opts {
            sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t,
            // Without a named program: before all others, because their verdicts would end the chain.
            flags: sys::BPF_F_BEFORE,
            ..Default::default()
        };
        // SAFETY: `options` carries its size and outlives the call, and has no pointers set.
        let result = unsafe {
            sys::bpf_link_create(
                program.as_raw_fd(),
                index(interface),
                sys::BPF_TCX_INGRESS,
                &raw const options,
            )
        };
        if result < 0 {
            return Err(attach_error(interface, errno(result)));
        }
        Ok(Consumer {
            interface: interface.clone(),
            consumed,
            // SAFETY: the call has just made this descriptor, and it has no other owner.
            link: unsafe { OwnedFd::from_raw_fd(result) },
        })
    }

    fn load() -> Result<(OwnedFd, MapHandle), libbpf_rs::Error> {
        quiet();
        let loaded = object::open(built!("consume"))?.load()?;
        let program = object::program(&loaded, "wb_consume")?;
        Ok((
            program.as_fd().try_clone_to_owned()?,
            MapHandle::try_from(&object::map(&loaded, "consumed")?)?,
        ))
    }

    /// Checks the name, because the index alone could match another interface in the wrong namespace.
    fn check(interface: &Interface) -> Result<(), PortError> {
        let Interface { name, index, .. } = interface;
        let any = UnixDatagram::unbound().map_err(|cause| {
            port_errors::io(interface, "open a socket for link requests", cause)
        })?;
        if netdevice::index_to_name(&any, *index).as_deref() == Ok(name) {
            return Ok(());
        }
        Err(PortError::Input {
            port: interface.port.clone(),
            what: format!("no interface {name} with index {index} in this network namespace"),
        })
    }

    fn attach_error(interface: &Interface, cause: Errno) -> PortError {
        match cause {
            Errno::PERM | Errno::ACCESS => port_errors::privilege(
                interface,
                "consuming counted frames needs CAP_BPF and CAP_NET_ADMIN",
            ),
            Errno::NODEV | Errno::NXIO => port_errors::gone(&interface.port),
            // Answers of kernels without TCX.
            Errno::INVAL | Errno::OPNOTSUPP => port_errors::unsupported(
                interface,
                "the kernel has no TCX (needs Linux 6.6 and CONFIG_NET_XGRESS), so the host sees counted frames too"
                    .into(),
            ),
            cause => port_errors::io(interface, "attach the program that consumes frames", cause),
        }
    }

    #[cfg(test)]
    mod tests {
        use std::cell::Cell;

        use libbpf_rs::ProgramInput;
        use proptest::prelude::*;
        use proptest::test_runner::{Config, TestRunner};

        use super::*;
        use crate::options::tests::interface;

        const MAGIC: [u8; 4] = [0xbe, 0x9b, 0xe9, 0x55];

        /// Loaded program, for single test runs.
        struct Verdicts {
            loaded: libbpf_rs::Object,
        }

        impl Verdicts {
            fn new() -> Option<Self> {
                if !rustix::process::geteuid().is_root() {
                    wb_testing::skipped("loading a program needs root");
                    return None;
                }
                quiet();
                let open = object::open(built!("consume")).unwrap();
                Some(Self {
                    loaded: open.load().unwrap(),
                })
            }

            /// Calls `what` with a function that returns true if a frame is consumed.
            fn with(&mut self, what: impl FnOnce(&dyn Fn(&[u8]) -> bool)) {
                let mut programs = self.loaded.progs_mut();
                let program = programs.find(|p| p.name() == "wb_consume").unwrap();
                what(&|frame| {
                    let input = ProgramInput {
                        data_in: Some(frame),
                        ..ProgramInput::default()
                    };
                    match program.test_run(input) {
                        // pkt_cls.h: TC_ACT_SHOT, TC_ACT_UNSPEC.
                        Ok(output) => match output.return_value.cast_signed() {
                            2 => true,
                            -1 => false,
                            other => panic!("verdict {other}"),
                        },
                        // The kernel does not run the program on frames that end within their first IP header.
                        Err(_) if frame.len() < 14 + 40 => false,
                        Err(cause) => panic!("{cause}"),
                    }
                });
            }
        }

        fn ethertype() -> impl Strategy<Value = [u8; 2]> {
            prop_oneof![
                6 => Just([0x08, 0x00]),
                6 => Just([0x86, 0xdd]),
                1 => any::<[u8; 2]>(),
            ]
        }

        fn tag() -> impl Strategy<Value = [u8; 4]> {
            let kind = prop::sample::select(vec![[0x81, 0x00], [0x88, 0xa8], [0x91, 0x00]]);
            (kind, any::<[u8; 2]>()).prop_map(|(kind, tci)| [kind[0], kind[1], tci[0], tci[1]])
        }

        /// Frames, about half of which carry the magic number at the right offset.
        fn frame() -> impl Strategy<Value = Vec<u8>> {
            let first = prop_oneof![
                6 => Just(0x45),
                3 => 0x40u8..=0x4f,
                6 => 0x60u8..=0x6f,
                1 => any::<u8>(),
            ];
            let tags = prop_oneof![
                4 => prop::collection::vec(tag(), 0..3),
                1 => prop::collection::vec(tag(), 0..40),
            ];
            let shift = prop_oneof![8 => Just(0isize), 1 => -4isize..=4];
            let cut = prop_oneof![4 => Just(0usize), 1 => 0usize..80];
            let packet = prop::collection::vec(any::<u8>(), 72..120);
            (tags, ethertype(), first, packet, any::<bool>(), shift, cut).prop_map(
                |(tags, kind, first, mut packet, as_kind, shift, cut)| {
                    packet[0] = match (as_kind, kind) {
                        (true, [0x08, 0x00]) => 0x40 | first & 15,
                        (true, [0x86, 0xdd]) => 0x60 | first & 15,
                        _ => first,
                    };
                    let payload = match packet[0] >> 4 {
                        6 => 48,
                        _ => usize::from(packet[0] & 15) * 4 + 8,
                    };
                    let at = payload.saturating_add_signed(shift);
                    let room = at.min(packet.len() - MAGIC.len());
                    packet[room..room + MAGIC.len()].copy_from_slice(&MAGIC);
                    let mut frame = vec![2; 12];
                    frame.extend(tags.concat());
                    frame.extend(kind);
                    frame.extend(packet);
                    frame.truncate(frame.len().saturating_sub(cut));
                    frame
                },
            )
        }

        #[test]
        fn the_program_consumes_exactly_what_counts() {
            let Some(mut verdicts) = Verdicts::new() else {
                return;
            };
            verdicts.with(|is_consumed| {
                let tally = [Cell::new(0), Cell::new(0)];
                let law = |frame: Vec<u8>| {
                    let counts = wb_pktgen_device::classify_pktgen(&frame).is_some();
                    tally[usize::from(counts)].update(|n| n + 1);
                    prop_assert_eq!(is_consumed(&frame), counts);
                    Ok(())
                };
                let config = Config {
                    failure_persistence: None,
                    ..Config::with_cases(2000)
                };
                TestRunner::new(config).run(&frame(), law).unwrap();
                assert!(
                    tally.iter().all(|n| n.get() > 200),
                    "both verdicts must be tried: {tally:?}"
                );
            });
        }

        #[test]
        fn a_frame_of_tags_is_walked_to_its_end() {
            let Some(mut verdicts) = Verdicts::new() else {
                return;
            };
            verdicts.with(|is_consumed| {
                for tags in [0, 1, 300, 700] {
                    let mut frame = vec![2; 12];
                    frame.extend([0x81, 0, 0, 5].repeat(tags));
                    frame.extend([0x08, 0, 0x45]);
                    frame.resize(12 + 4 * tags + 2 + 28, 0);
                    assert!(!is_consumed(&frame));
                    frame.extend(MAGIC);
                    assert!(is_consumed(&frame), "{tags} tags");
                    assert!(wb_pktgen_device::classify_pktgen(&frame).is_some());
                    frame.pop();
                    assert!(!is_consumed(&frame), "{tags} tags, cut");
                }
                assert!(!is_consumed(&[0x81, 0, 0, 5].repeat(300)));
            });
        }

        #[test]
        fn an_old_kernel_is_told_apart() {
            let text = |cause| attach_error(&interface(), cause).to_string();
            assert!(text(Errno::INVAL).contains("Linux 6.6"));
            assert!(text(Errno::PERM).contains("sudo setcap"));
            assert!(matches!(
                attach_error(&interface(), Errno::NODEV),
                PortError::Gone { .. }
            ));
        }
    }
}
