//! Attaches programs by links, which end with the process.
#![allow(unsafe_code)] // Calls of libbpf that have no safe wrapper.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Once;

use libbpf_rs::{PrintLevel, libbpf_sys as sys};
use rustix::io::Errno;
use rustix::thread::UnshareFlags;
use wb_port::{Interface, PortError, offload::Refusal};

use crate::attach_words;
use crate::fault;

/// if_link.h: XDP_FLAGS_SKB_MODE.
const GENERIC: u32 = 1 << 1;
/// if_link.h: XDP_FLAGS_DRV_MODE.
const NATIVE: u32 = 1 << 2;
/// The loopback interface has this index in every namespace.
const LOOPBACK: i32 = 1;

/// An attached program. Dropping the hook detaches it.
pub(crate) struct Hook(OwnedFd);

impl Drop for Hook {
    fn drop(&mut self) {
        // Closing the descriptor is not enough: a child of this process may hold a copy between its fork and its exec.
        // SAFETY: a call on a descriptor that `self` owns.
        let _ = unsafe { sys::bpf_link_detach(self.0.as_raw_fd()) };
    }
}

fn attach(program: BorrowedFd<'_>, index: i32, flags: u32) -> Result<Hook, Errno> {
    let options = sys::bpf_link_create_opts {
        sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: `options` carries its size and outlives the call, and has no other part set.
    let result = unsafe {
        sys::bpf_link_create(program.as_raw_fd(), index, sys::BPF_XDP, &raw const options)
    };
    match result {
        // SAFETY: the call has just made this descriptor, and it has no other owner.
        0.. => Ok(Hook(unsafe { OwnedFd::from_raw_fd(result) })),
        _ => Err(Errno::from_raw_os_error(-result)),
    }
}

/// Attaches a program to an interface of the calling thread's namespace, in the driver. If the driver refuses the
/// program, returns the message of the kernel; the caller can then use [`attach_generic`].
pub(crate) fn attach_native(
    program: BorrowedFd<'_>,
    interface: &Interface,
) -> Result<Result<Hook, String>, PortError> {
    let index = interface.index.cast_signed();
    let native = match attach(program, index, NATIVE) {
        Ok(hook) => return Ok(Ok(hook)),
        Err(cause) => cause,
    };
    match native {
        Errno::BUSY | Errno::EXIST => {
            let why = Refusal::Attached {
                id: None,
                interface: interface.name.clone(),
            };
            Err(fault::refused(interface, why))
        }
        Errno::PERM | Errno::ACCESS => Err(fault::privilege(
            interface,
            "attaching an XDP program needs CAP_NET_ADMIN",
        )),
        Errno::NODEV | Errno::NXIO => Err(PortError::Gone {
            port: interface.port.clone(),
        }),
        cause => Ok(Err(attach_words::words(program, index, NATIVE)
            .unwrap_or_else(|| io::Error::from(cause).to_string()))),
    }
}

/// Attaches a program in the generic receive path, where several CPUs may run it for one queue.
pub(crate) fn attach_generic(
    program: BorrowedFd<'_>,
    interface: &Interface,
) -> Result<Hook, PortError> {
    attach(program, interface.index.cast_signed(), GENERIC)
        .map_err(|cause| fault::io(interface, "attach an XDP program", cause))
}

/// Attachment of a sending program to an interface without traffic.
///
/// The kernel patches the dispatcher for each turn of a program that is attached nowhere, which takes 26 to 40 ms. So
/// the program is attached to the loopback interface of an unused network namespace. The socket keeps the namespace
/// alive.
pub(crate) struct IdleAttachment {
    _hook: Hook,
    _namespace: UnixDatagram,
}

impl IdleAttachment {
    pub(crate) fn new(program: BorrowedFd<'_>) -> io::Result<Self> {
        let program = program.as_fd();
        in_new_namespace(|| {
            let namespace = UnixDatagram::unbound()?;
            let hook = attach(program, LOOPBACK, GENERIC)?;
            Ok(Self {
                _hook: hook,
                _namespace: namespace,
            })
        })
    }
}

/// Runs `f` in a new network namespace, on a thread that ends after the call.
pub(crate) fn in_new_namespace<T: Send>(f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let run = || {
        // SAFETY: no descriptors are unshared.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
        f()
    };
    std::thread::scope(|scope| scope.spawn(run).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Returns true if the device takes frames from programs now, or `None` if the kernel does not report this (before
/// 6.3). The interface is one of the calling thread's network namespace.
#[must_use]
pub fn takes_frames(interface: &Interface) -> Option<bool> {
    // netdev.h: NETDEV_XDP_ACT_NDO_XMIT.
    const TRANSMIT: u64 = 1 << 2;
    quiet();
    let mut answer = sys::bpf_xdp_query_opts {
        sz: size_of::<sys::bpf_xdp_query_opts>() as sys::size_t,
        ..Default::default()
    };
    // SAFETY: `answer` carries its size and outlives the call.
    let result = unsafe { sys::bpf_xdp_query(interface.index.cast_signed(), 0, &raw mut answer) };
    (result >= 0 && answer.feature_flags != 0).then_some(answer.feature_flags & TRANSMIT != 0)
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

/// Runs a program on `repeat` live frames, `batch` at a time. EINTR is not an error.
pub(crate) fn run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    repeat: u32,
    batch: u32,
) -> Result<(), Errno> {
    // bpf.h: BPF_F_TEST_XDP_LIVE_FRAMES.
    const LIVE_FRAMES: u32 = 1 << 1;
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: i32::try_from(repeat).unwrap_or(i32::MAX),
        flags: LIVE_FRAMES,
        batch_size: batch,
        ..Default::default()
    };
    // SAFETY: the frame and the options, which carry their size, outlive the call, which only reads the frame.
    let result = unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    match result {
        0.. => Ok(()),
        _ => match Errno::from_raw_os_error(-result) {
            Errno::INTR => Ok(()),
            cause => Err(cause),
        },
    }
}
