//! Checks that a packet device sends the same packets if the kernel makes them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wb_live::Sender as LiveSender;
use wb_model::device::{Defaults, Delay, DeviceConfig, Entry, Flags, Interface, TimeForm};
use wb_pktgen_device::{DeviceTime, Start, Walker};
use wb_port::clock::WorkerClock;
use wb_port::offload::{SendOffload, StreamProgram};
use wb_traffic::{
    DeviceHandle, DeviceOffload, DeviceOutcome, LoadedPort, TrafficControl, device_sender,
    device_table, run_devices,
};

use crate::lab::{Clock, Lab, send_and_take, take};

const FRAMES: u64 = 300;
const COUNT: u64 = 5_000;

fn config(change: impl FnOnce(&mut DeviceConfig)) -> DeviceConfig {
    let mut c = DeviceConfig::new("a0", &Defaults::default());
    c.count = 0;
    (c.min_size, c.max_size) = (60, 60);
    (c.src_min, c.src_max) = ("10.0.0.1".into(), "10.0.0.1".into());
    (c.dst_min, c.dst_max) = ("198.18.0.2".into(), "198.18.0.2".into());
    change(&mut c);
    c
}

fn walker(config: DeviceConfig, time_form: TimeForm) -> Walker {
    let start = Start {
        interface: Interface {
            mtu: 3400,
            ..Interface::default()
        },
        seed: 7,
        time_form,
        ..Start::default()
    };
    Walker::new(config, &start).unwrap()
}

fn on(flags: &[u32]) -> impl Fn(&mut DeviceConfig) {
    move |c| flags.iter().for_each(|flag| c.flags.put(*flag, true))
}

/// Offset of the tag of a packet.
fn tag_at(frame: &[u8]) -> usize {
    let magic = 0xbe9b_e955_u32.to_be_bytes();
    frame.windows(4).position(|four| four == magic).unwrap()
}

/// Configurations of all kinds.
fn kinds() -> Vec<DeviceConfig> {
    let walking = |c: &mut DeviceConfig| {
        (c.src_max, c.dst_max) = ("10.0.0.7".into(), "198.18.0.40".into());
        (c.udp_src_max, c.udp_dst_max) = (12, 20);
        (c.src_mac_count, c.dst_mac_count) = (3, 2);
        c.max_size = 66;
    };
    let drawn = [
        Flags::IPSRC_RND,
        Flags::IPDST_RND,
        Flags::UDPSRC_RND,
        Flags::UDPDST_RND,
        Flags::MACSRC_RND,
        Flags::MACDST_RND,
        Flags::TXSIZE_RND,
    ];
    let tagged = |c: &mut DeviceConfig| {
        (c.vlan.id, c.svlan.id, c.svlan.priority) = (Some(77), Some(22), 5);
        c.labels = vec![0x0001_000a, 0x0000_010a];
        (c.min_size, c.max_size) = (90, 90);
    };
    vec![
        config(|_| {}),
        config(on(&[Flags::UDPCSUM])),
        config(walking),
        config(|c| {
            walking(c);
            on(&[Flags::UDPCSUM])(c);
        }),
        config(|c| {
            walking(c);
            on(&drawn)(c);
            on(&[Flags::UDPCSUM])(c);
        }),
        config(|c| {
            walking(c);
            on(&[Flags::IPDST_RND, Flags::UDPCSUM, Flags::QUEUE_MAP_RND])(c);
            (c.clone_skb, c.burst) = (3, 4);
        }),
        config(|c| {
            c.imix = vec![
                Entry {
                    size: 60,
                    weight: 7,
                },
                Entry {
                    size: 576,
                    weight: 4,
                },
                Entry {
                    size: 1500,
                    weight: 1,
                },
            ];
            on(&[Flags::UDPSRC_RND, Flags::UDPCSUM])(c);
            c.udp_src_max = 109;
        }),
        config(|c| {
            tagged(c);
            on(&[
                Flags::VID_RND,
                Flags::SVID_RND,
                Flags::MPLS_RND,
                Flags::UDPCSUM,
            ])(c);
        }),
        config(|c| {
            tagged(c);
            walking(c);
            (c.min_size, c.max_size) = (1000, 1100);
            c.burst = 2;
        }),
        config(|c| {
            on(&[Flags::IPV6, Flags::UDPCSUM])(c);
            c.src6 = "2001:db8::1".parse().unwrap();
            c.dst6 = "2001:db8::2".parse().unwrap();
            (c.min_size, c.udp_dst_max) = (80, 99);
            c.max_size = 95;
        }),
    ]
}

#[test]
fn the_kernel_makes_the_packets_of_the_walk() {
    let lab = lab_or_skip!("device");
    let _let_in = lab.accept();
    let mut socket = lab.socket(false);
    for (number, mut config) in kinds().into_iter().enumerate() {
        on(&[Flags::NO_TIMESTAMP])(&mut config);
        let mut walker = walker(config, TimeForm::Kernel);
        // Also from the middle of a walk.
        let ahead = 17 * walker.config().burst.max(1) * walker.config().clone_skb.max(1);
        for _ in 0..ahead {
            walker.next(DeviceTime::default());
        }
        let table = device_table(&walker.recipe().unwrap(), false);
        let mut sender = lab.at_a(|a| LiveSender::load(a, &[table])).unwrap();
        let taken = send_and_take(&mut sender, 1, FRAMES, &mut socket);
        assert_eq!(taken.len() as u64, FRAMES, "{number}");
        for (i, frame) in taken.iter().enumerate() {
            let (expected, _) = walker.next(DeviceTime::default()).unwrap();
            assert_eq!(*frame, expected, "frame {i} of settings {number}");
        }
    }
}

/// Runs a device with packets made by the kernel, calls `meanwhile`, and returns the packets that arrived.
fn run(
    lab: &Lab,
    walker: Walker,
    meanwhile: impl FnOnce(&DeviceHandle) + Send,
) -> (DeviceOutcome, Vec<Vec<u8>>) {
    let mut socket = lab.socket(false);
    let pair = lab.socket(true);
    let a = lab.at_a(Clone::clone);
    let node = lab.a.clone();
    let load = move |stream: &StreamProgram| -> Result<LoadedPort, wb_port::PortError> {
        let load = || LiveSender::load(&a, std::slice::from_ref(stream));
        let sender = crate::lab::within(&node, load)?;
        let halt = sender.halt();
        Ok((Box::new(sender) as Box<dyn SendOffload>, halt))
    };
    let offload = DeviceOffload::new(&walker, false, Box::new(load)).unwrap();
    let handle = Arc::new(DeviceHandle::new());
    let sender = device_sender(pair, walker, Arc::clone(&handle), Some(offload), Clock);
    let control = TrafficControl::new();
    control.senders_running.store(1, Ordering::Relaxed);
    let start_ns = Clock.monotonic_ns() + 1_000_000;
    control.start_at_mono_ns.store(start_ns, Ordering::Release);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| run_devices(vec![sender], &control, &Clock).remove(0));
        scope.spawn(|| meanwhile(&handle));
        let mut taken = Vec::new();
        while !run.is_finished() {
            take(&mut socket, &mut taken);
        }
        take(&mut socket, &mut taken);
        (run.join().unwrap(), taken)
    })
}

/// Packets of the same walk without a port, until it ends; without times.
fn expected(mut walker: Walker) -> (Walker, Vec<Vec<u8>>) {
    let mut frames = Vec::new();
    while let Some((frame, _)) = walker.next(DeviceTime::default()) {
        frames.push(frame);
    }
    (walker, frames)
}

/// Removes the time and the checksum that covers it from each packet, and returns the times.
fn take_times(frames: &mut [Vec<u8>]) -> Vec<(u32, u32)> {
    let take = |frame: &mut Vec<u8>| {
        let at = tag_at(frame) + 8;
        let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
        let time = (word(at), word(at + 4));
        frame[at..at + 8].fill(0);
        frame[at - 10..at - 8].fill(0);
        time
    };
    frames.iter_mut().map(take).collect()
}

#[test]
fn a_device_counts_alike_whoever_makes_its_packets() {
    let lab = lab_or_skip!("count");
    let _let_in = lab.accept();
    for (number, mut config) in kinds().into_iter().enumerate() {
        config.count = COUNT;
        // Slow enough for a socket.
        config.delay = Delay::fraction(100_000, 3);
        let form = [TimeForm::Kernel, TimeForm::Osta][number % 2];
        let walker = walker(config, form);
        let (end, mut wanted) = expected(walker.clone());
        let before_ns = (Clock.monotonic_ns(), Clock.wall_ns());
        let (outcome, mut frames) = run(&lab, walker, |_| {});
        let after_ns = (Clock.monotonic_ns(), Clock.wall_ns());
        assert!(outcome.fault.is_none(), "{:?}", outcome.fault);
        assert_eq!(outcome.by_queue_because, None, "settings {number}");
        assert_eq!(outcome.intended_frames, Some(wanted.len() as u64));
        assert_eq!(outcome.offered_frames, wanted.len() as u64);
        let octets: usize = wanted.iter().map(|f| f.len() + 4).sum();
        assert_eq!(outcome.offered_octets, octets as u64, "settings {number}");
        // The kernel sends them, not the queue pair.
        assert!(outcome.tx.kicks < COUNT / 16, "{} calls", outcome.tx.kicks);
        let mut progress = outcome.walker.progress().clone();
        let elapsed_ns = outcome.stopped_ns - outcome.started_ns;
        // A busy machine may have no time to wait.
        assert!(progress.idle_ns <= elapsed_ns, "{progress:?}");
        (progress.started_ns, progress.stopped_ns, progress.idle_ns) = (0, 0, 0);
        assert_eq!(progress, *end.progress(), "settings {number}");
        assert_eq!(outcome.walker.memory(), end.memory(), "settings {number}");
        let times = take_times(&mut frames);
        take_times(&mut wanted);
        assert_eq!(frames, wanted, "settings {number}");
        let mut last = match form {
            TimeForm::Kernel => before_ns.1 / 1000 * 1000,
            TimeForm::Osta => before_ns.0,
        };
        for (high, low) in times {
            let (high, low) = (u64::from(high), u64::from(low));
            let time = match form {
                TimeForm::Kernel => high * 1_000_000_000 + low * 1000,
                TimeForm::Osta => high << 32 | low,
            };
            assert!(time >= last, "{time} after {last} of settings {number}");
            last = time;
        }
        assert!(last <= after_ns.0.max(after_ns.1), "settings {number}");
    }
}

#[test]
fn a_device_that_waits_for_its_next_packet_counts_the_wait() {
    let lab = lab_or_skip!("idle");
    let _let_in = lab.accept();
    // The gap is 10 ms: a wait shows unless the machine stalls for as long at every packet.
    let slow = config(|c| c.delay = Delay::whole(10_000_000));
    let (outcome, frames) = run(&lab, walker(slow, TimeForm::Kernel), |handle| {
        wb_testing::eventually("it is idle", || handle.progress().idle_ns != 0);
        handle.stop();
    });
    assert!(outcome.fault.is_none(), "{:?}", outcome.fault);
    assert_eq!(outcome.by_queue_because, None);
    assert_eq!(frames.len() as u64, outcome.offered_frames);
    let elapsed_ns = outcome.stopped_ns - outcome.started_ns;
    let idle_ns = outcome.walker.progress().idle_ns;
    assert!(
        (1..=elapsed_ns).contains(&idle_ns),
        "{idle_ns} of {elapsed_ns}"
    );
}

#[test]
fn settings_change_while_the_kernel_sends() {
    let lab = lab_or_skip!("change");
    let _let_in = lab.accept();
    let slow = |change: &dyn Fn(&mut DeviceConfig)| {
        config(|c| {
            c.delay = Delay::whole(20_000);
            change(c);
        })
    };
    let first = slow(&|c| c.clone_skb = 3);
    let reached = |handle: &DeviceHandle, sofar: u64| {
        wb_testing::eventually("packets are sent", || handle.progress().sofar >= sofar);
        handle.progress().sofar
    };
    // Other ports, then settings without tables, then a stop.
    let changes = [
        slow(&|c| (c.udp_dst_min, c.udp_dst_max) = (2000, 2010)),
        slow(&|c| {
            (c.flows, c.flow_len) = (4, 5);
            (c.udp_dst_min, c.udp_dst_max) = (3000, 3010);
        }),
    ];
    let (outcome, mut frames) = run(&lab, walker(first, TimeForm::Kernel), |handle| {
        let mut sofar = reached(handle, 3000);
        for change in changes {
            handle.reconfigure(change);
            // A busy machine needs some packets to apply a change.
            sofar = reached(handle, sofar + 12_000);
        }
        handle.stop();
    });
    assert!(outcome.fault.is_none(), "{:?}", outcome.fault);
    assert!(outcome.by_queue_because.unwrap().contains("flows"));
    assert_eq!(frames.len() as u64, outcome.offered_frames);
    take_times(&mut frames);
    let ports = frames
        .iter()
        .map(|f| u16::from_be_bytes([f[36], f[37]]) / 1000);
    assert!(ports.is_sorted());
    // Each packet of the first settings is sent three times with one number. All later packets have distinct numbers.
    let sequence = |f: &Vec<u8>| u32::from_be_bytes(f[46..50].try_into().unwrap());
    for (i, frame) in frames.iter().enumerate() {
        let i = i as u32;
        let wanted = if frame[36] == 0 { 1 + i / 3 * 3 } else { 1 + i };
        assert_eq!(sequence(frame), wanted, "frame {i}");
    }
    for port in [2, 3] {
        let port = |f: &&Vec<u8>| u16::from_be_bytes([f[36], f[37]]) / 1000 == port;
        let sent = frames.iter().filter(port).count();
        assert!(sent > 100, "{sent} of {}", frames.len());
    }
}
