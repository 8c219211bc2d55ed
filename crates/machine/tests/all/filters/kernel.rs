//! The kernel as reference: it checks and runs classic programs on a pair of local sockets, and verifies and runs the
//! translated ones. Nothing is attached to an interface.
#![allow(unsafe_code)] // System calls without a safe wrapper, on memory that outlives them.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;

use libbpf_sys as sys;
use wb_filter::ebpf::{COUNTERS_LEN, Insn, STAMP_MAGIC, TranslateOptions, translate};
use wb_filter::{Instruction, Program, fuzz};

use super::corpus::{Random, packet};
use super::{compiled, verdict};

pub(crate) fn attach(socket: &impl AsRawFd, list: &[Instruction]) -> io::Result<()> {
    let mut filter: Vec<_> = list
        .iter()
        .map(|i| libc::sock_filter {
            code: i.code,
            jt: i.jt,
            jf: i.jf,
            k: i.k,
        })
        .collect();
    let program = libc::sock_fprog {
        len: filter.len().try_into().unwrap(),
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: `program` and the list it points to outlive the call, which only reads them.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast::<c_void>(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[test]
fn the_kernel_takes_what_the_check_takes() {
    const SEED: u64 = 3;
    const CODES: [u16; 28] = [
        0x00, 0x80, 0x20, 0x28, 0x40, 0x60, 0x61, 0x01, 0x81, 0xb1, 0x02, 0x03, 0x04, 0x34, 0x3c,
        0x94, 0x64, 0x7c, 0x84, 0xa4, 0x05, 0x15, 0x2d, 0x45, 0x06, 0x16, 0x07, 0x87,
    ];
    let mut random = Random(SEED);
    let (socket, _peer) = UnixDatagram::pair().unwrap();
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..6000 {
        let len = 1 + random.below(6);
        let mut list: Vec<_> = (0..len)
            .map(|_| {
                let (any_code, any_k) = (random.next() as u16, random.next());
                let code = match random.below(8) {
                    0 => any_code & 0xff,
                    1 => any_code,
                    _ => random.pick(&CODES),
                };
                let k = random.pick(&[0, 0, 1, 2, 15, 16, 31, 32, 0xffff_f000, 0xffff_f030, any_k]);
                Instruction::new(code, random.below(3) as u8, random.below(3) as u8, k)
            })
            .collect();
        if random.below(4) > 0 {
            list.push(Instruction::new(6, 0, 0, 1));
        }
        let ours = Program::new(list.clone());
        let theirs = attach(&socket, &list);
        assert_eq!(
            ours.is_ok(),
            theirs.is_ok(),
            "seed {SEED}: {list:?}: {ours:?}, {theirs:?}"
        );
        if ours.is_ok() {
            taken += 1;
        } else {
            refused += 1;
        }
    }
    assert!(
        taken > 500 && refused > 500,
        "{taken} taken, {refused} refused"
    );
}

#[test]
fn the_kernel_comes_to_the_same_verdict() {
    let mut random = Random(11);
    let (receiver, sender) = UnixDatagram::pair().unwrap();
    receiver.set_nonblocking(true).unwrap();
    let mut buffer = [0; 2048];
    let programs: Vec<_> = compiled().into_iter().chain(drawn(400)).collect();
    let (mut pairs, mut kept) = (0, 0);
    for (text, program) in programs {
        // `inbound` tests the packet type, which is 0 in both cases.
        if program.kernel_values().count() > usize::from(text == "inbound") {
            continue;
        }
        // Limited to a short length, so that the length is compared as well.
        let program = program.limited(30).unwrap();
        let Ok(attached) = program.for_tap() else {
            continue;
        };
        attach(&receiver, attached.instructions()).unwrap();
        for _ in 0..8 {
            let packet = packet(&mut random);
            let ours = verdict(&program, &packet).min(packet.len() as u32);
            // The sender of a rejected datagram gets no error. No datagram is empty here, so an empty receive is a
            // rejection.
            sender.send(&packet).unwrap();
            let theirs = receiver.recv(&mut buffer).unwrap_or(0);
            assert_eq!(
                ours as usize, theirs,
                "`{text}` on {packet:02x?}\n{program:?}{attached:?}"
            );
            pairs += 1;
            kept += u32::from(ours > 0);
        }
    }
    assert!(pairs > 2000 && kept > 500, "{kept} of {pairs} kept");
}

/// Random programs, named by their seed.
fn drawn(count: u64) -> impl Iterator<Item = (String, Program)> {
    (0..count).filter_map(|seed| {
        let mut bytes = Random(seed);
        let bytes: Vec<u8> = (0..160).map(|_| bytes.next() as u8).collect();
        Some((format!("drawn from {seed}"), fuzz::program(&bytes)?))
    })
}

fn privileged() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        wb_testing::skipped("loading eBPF needs root");
    }
    root
}

pub(crate) fn descriptor(result: i32, what: &str) -> OwnedFd {
    assert!(
        result >= 0,
        "{what}: {}",
        io::Error::from_raw_os_error(-result)
    );
    // SAFETY: the call has just made this descriptor, and it has no other owner.
    unsafe { OwnedFd::from_raw_fd(result) }
}

fn map(kind: u32, value_len: u32) -> OwnedFd {
    // SAFETY: no name and no options; the call makes a map.
    let result =
        unsafe { sys::bpf_map_create(kind, std::ptr::null(), 4, value_len, 1, std::ptr::null()) };
    descriptor(result, "map")
}

fn update(map: &OwnedFd, value: RawFd) {
    let key = 0_u32;
    // SAFETY: key and value have the map's lengths.
    let result = unsafe {
        sys::bpf_map_update_elem(
            map.as_raw_fd(),
            (&raw const key).cast(),
            (&raw const value).cast(),
            0,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::from_raw_os_error(-result));
}

fn load(insns: &[Insn], flags: u32) -> Result<OwnedFd, String> {
    let attempt = |log: &mut [u8]| {
        let mut options = sys::bpf_prog_load_opts {
            sz: size_of::<sys::bpf_prog_load_opts>() as sys::size_t,
            prog_flags: flags,
            ..Default::default()
        };
        if !log.is_empty() {
            options.log_level = 1;
            options.log_buf = log.as_mut_ptr().cast();
            options.log_size = log.len() as u32;
        }
        // SAFETY: `Insn` has the eight bytes of `struct bpf_insn`; all arguments outlive the call.
        unsafe {
            sys::bpf_prog_load(
                sys::BPF_PROG_TYPE_XDP,
                std::ptr::null(),
                c"Dual BSD/GPL".as_ptr(),
                insns.as_ptr().cast(),
                insns.len() as sys::size_t,
                &raw mut options,
            )
        }
    };
    let result = attempt(&mut []);
    if result >= 0 {
        return Ok(descriptor(result, "program"));
    }
    let mut log = vec![0; 1 << 24];
    attempt(&mut log);
    let text = String::from_utf8_lossy(&log);
    let text = text.trim_end_matches('\0');
    let tail = text.len().saturating_sub(2000);
    Err(format!(
        "{}: {}",
        io::Error::from_raw_os_error(-result),
        &text[tail..]
    ))
}

/// Verdict, and the frame afterwards with its metadata.
fn run(program: &OwnedFd, packet: &[u8]) -> (u32, Vec<u8>) {
    let mut out = vec![0; 4096];
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t,
        data_in: packet.as_ptr().cast(),
        data_size_in: packet.len() as u32,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        repeat: 1,
        ..Default::default()
    };
    // SAFETY: both buffers have the given lengths and outlive the call.
    let result = unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    assert_eq!(result, 0, "{}", io::Error::from_raw_os_error(-result));
    out.truncate(options.data_size_out as usize);
    (options.retval, out)
}

const REDIRECT: u32 = 4;
const HAS_FRAGS: u32 = 1 << 5;

#[test]
fn translated_filters_come_to_the_same_verdict() {
    if !privileged() {
        return;
    }
    let mut random = Random(13);
    let programs = compiled().into_iter().flat_map(|(text, program)| {
        let plain = wb_machine::expression::compile(&text, 1, 262_144, false).ok();
        [
            Some((text.clone(), program)),
            plain.map(|plain| (text, plain)),
        ]
    });
    let programs = programs.flatten();
    let (mut loaded, mut kept) = (0, 0);
    for (text, program) in programs.chain(drawn(300)) {
        for flags in [0, HAS_FRAGS] {
            let options = TranslateOptions {
                multi_buffer: flags != 0,
                ..TranslateOptions::verdict(3)
            };
            let Ok(insns) = translate(&program, &options) else {
                assert!(program.kernel_values().next().is_some(), "{text}");
                continue;
            };
            let xdp =
                load(&insns, flags).unwrap_or_else(|log| panic!("`{text}`: {log}\n{program:?}"));
            loaded += 1;
            for _ in 0..8 {
                let packet = packet(&mut random);
                let expected = if verdict(&program, &packet) > 0 { 3 } else { 2 };
                kept += expected - 2;
                let (verdict, _) = run(&xdp, &packet);
                assert_eq!(verdict, expected, "`{text}` on {packet:02x?}\n{program:?}");
            }
        }
    }
    assert!(loaded > 600 && kept > 500, "{loaded} loaded, {kept} kept");
}

#[test]
fn matching_frames_are_stamped_counted_and_redirected() {
    if !privileged() {
        return;
    }
    let sockets = map(sys::BPF_MAP_TYPE_XSKMAP, 4);
    let counters = map(sys::BPF_MAP_TYPE_PERCPU_ARRAY, COUNTERS_LEN);
    let options = TranslateOptions {
        counters_fd: Some(counters.as_raw_fd()),
        ..TranslateOptions::redirect(sockets.as_raw_fd())
    };
    for (text, program) in compiled() {
        if let Ok(insns) = translate(&program, &options) {
            load(&insns, 0).unwrap_or_else(|log| panic!("`{text}`: {log}"));
        }
    }

    let program = wb_machine::expression::compile("ip", 1, 262_144, true).unwrap();
    let xdp = load(&translate(&program, &options).unwrap(), 0).unwrap();
    let mut ip = vec![0x11; 60];
    ip[12..14].copy_from_slice(&[8, 0]);
    let other = vec![0x22; 60];
    assert_eq!(run(&xdp, &ip), (2, ip.clone()), "no socket yet");

    // SAFETY: the call creates a socket and accesses no memory.
    let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    let socket = descriptor(socket, "AF_XDP socket");
    update(&sockets, socket.as_raw_fd());
    assert_eq!(run(&xdp, &other), (2, other.clone()));
    let (verdict, frame) = run(&xdp, &ip);
    assert_eq!(verdict, REDIRECT);
    let (stamp, rest) = frame.split_at(16);
    assert_eq!(rest, ip);
    assert_eq!(stamp[8..12], STAMP_MAGIC.to_ne_bytes());
    assert_ne!(stamp[..8], [0; 8]);

    // Seen three times, matched once: a frame without a socket does not count as matched.
    assert_eq!(read_counters(&counters), [3, 1]);
}

fn read_counters(map: &OwnedFd) -> [u64; 2] {
    // SAFETY: reads a number from libbpf.
    let cpus = unsafe { sys::libbpf_num_possible_cpus() };
    let mut values = vec![[0_u64; 2]; usize::try_from(cpus).unwrap()];
    let key = 0_u32;
    // SAFETY: a per-CPU map writes one value, a multiple of eight bytes, per possible CPU.
    let result = unsafe {
        sys::bpf_map_lookup_elem(
            map.as_raw_fd(),
            (&raw const key).cast(),
            values.as_mut_ptr().cast(),
        )
    };
    assert_eq!(result, 0);
    values
        .iter()
        .fold([0, 0], |sum, value| [sum[0] + value[0], sum[1] + value[1]])
}
