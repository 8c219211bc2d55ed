//! A device that changes the length of each frame and sends it back.
#![allow(unsafe_code)] // Calls of libbpf that have no safe wrapper.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys as sys;
use wb_live::{Account, MOST_FRAME, Sender as LiveSender};
use wb_port::Interface;
use wb_port::offload::{Awaited, ReceiveOffload, SendOffload, SendOrder};
use wb_traffic::Sender;

use crate::frames::{spec, stream};
use crate::lab::{order, turn};

const FRAMES: u64 = 6_400;

/// An XDP program: `bpf_xdp_adjust_tail(ctx, change)`, then `XDP_TX`.
fn resize_and_return(change: i32) -> OwnedFd {
    // bpf.h: BPF_FUNC_xdp_adjust_tail, XDP_TX.
    const ADJUST_TAIL: i32 = 65;
    const TX: i32 = 3;
    let instruction = |code, register: u8, imm| sys::bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: sys::bpf_insn::new_bitfield_1(register, 0),
        off: 0,
        imm,
    };
    // Move a constant, call, move a constant, exit.
    let program = [
        instruction(0xb7, 2, change),
        instruction(0x85, 0, ADJUST_TAIL),
        instruction(0xb7, 0, TX),
        instruction(0x95, 0, 0),
    ];
    // SAFETY: all pointers are valid for the call, and the count is the number of instructions.
    let fd = unsafe {
        sys::bpf_prog_load(
            sys::BPF_PROG_TYPE_XDP,
            c"resize".as_ptr(),
            c"GPL".as_ptr(),
            program.as_ptr(),
            program.len() as sys::size_t,
            std::ptr::null_mut(),
        )
    };
    assert!(fd >= 0, "load: {fd}");
    // SAFETY: the call has just made this descriptor, and nothing else knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Attaches a program in the driver of an interface of the calling thread's namespace, until the result is dropped.
fn attach(program: &OwnedFd, interface: &Interface) -> OwnedFd {
    let options = sys::bpf_link_create_opts {
        sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t,
        // if_link.h: XDP_FLAGS_DRV_MODE.
        flags: 1 << 2,
        ..Default::default()
    };
    let index = interface.index.cast_signed();
    // SAFETY: `options` carries its size and outlives the call.
    let link = unsafe {
        sys::bpf_link_create(program.as_raw_fd(), index, sys::BPF_XDP, &raw const options)
    };
    assert!(link >= 0, "attach: {link}");
    // SAFETY: the call has just made this descriptor, and nothing else knows it.
    unsafe { OwnedFd::from_raw_fd(link) }
}

#[test]
fn a_device_that_changes_lengths_leaves_later_frames_as_they_are() {
    let lab = lab_or_skip!("resize");
    let awaited = Awaited {
        first_flow: 7,
        flows: 64,
        ramp_flow: u32::MAX,
        ..Awaited::default()
    };
    for change in [-4, 4] {
        let program = resize_and_return(change);
        let _link = lab.at_b(|b| attach(&program, b));
        let account = lab.at_a(|a| Account::open(a, awaited)).unwrap();
        let mut receiver = account.receivers(1).remove(0);
        receiver.begin(0);
        let spec = spec(&stream("size=128 flows=64 sport=1-64"), 0, 1);
        let compiled = Sender::new(&spec, MOST_FRAME).unwrap();
        let table = compiled.offload_tables(&spec).unwrap().streams;
        let mut sender = lab.at_a(|a| LiveSender::load(a, &table)).unwrap();
        while sender.counters(0).submitted_frames < FRAMES {
            // Frames are recycled within a turn, batch by batch.
            let order = SendOrder {
                batch: 4,
                ..order((FRAMES - sender.counters(0).submitted_frames).min(640))
            };
            turn(&mut sender, &order, 1).unwrap();
        }
        let seen = || {
            let c = receiver.counters();
            c.received_frames + c.foreign_frames
        };
        wb_testing::eventually("all are seen", || seen() >= FRAMES);
        let c = receiver.counters();
        assert_eq!((c.received_frames, c.foreign_frames), (FRAMES, 0));
        let each = 128u64.checked_add_signed(change.into()).unwrap();
        assert_eq!(c.received_octets, FRAMES * each, "{change}");
    }
}
