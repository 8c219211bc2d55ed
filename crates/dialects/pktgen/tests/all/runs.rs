//! A run through the public API: start, progress, stop, removal.

use wb_pktgen::control::{ControlOptions, PktgenFiles, WriteEffect};
use wb_pktgen::errno::Errno;
use wb_pktgen::machine::{DeviceTime, Interface, PktgenMachine};

struct Host;

impl PktgenMachine for Host {
    fn interface(&self, name: &str) -> Option<Interface> {
        matches!(name, "eth0" | "new0").then(Interface::default)
    }
    fn node_possible(&self, _: i32) -> bool {
        false
    }
    fn may_administer(&self) -> bool {
        true
    }
}

fn folder(commands: &[(&str, &str)]) -> PktgenFiles {
    let mut folder = PktgenFiles::new([0, 1], ControlOptions::default());
    for (file, command) in commands {
        folder.write(file, command.as_bytes(), &Host).unwrap();
    }
    folder
}

fn text(folder: &PktgenFiles, file: &str, now_ns: u64) -> String {
    String::from_utf8(folder.read(file, &Host, now_ns).unwrap()).unwrap()
}

#[test]
fn a_run_is_followed_live() {
    let mut folder = folder(&[
        ("kpktgend_1", "add_device eth0@1"),
        ("eth0@1", "count 0"),
        ("eth0@1", "pkt_size 60"),
    ]);
    assert_eq!(
        folder.write("pgctrl", b"start\n", &Host),
        Ok(WriteEffect::Start)
    );
    let mut jobs = folder.start_devices(5_000_000, 1, &Host);
    let job = &mut jobs[0];
    assert_eq!((job.cpu, job.interface.as_str()), (1, "eth0"));
    assert!(folder.is_running() && folder.receiver().takes_latency());
    assert!(text(&folder, "kpktgend_1", 0).starts_with("Running: eth0@1 \nStopped: \n"));
    assert!(text(&folder, "eth0@1", 6_000_000).ends_with("Result: Starting\n"));
    for _ in 0..3 {
        job.walker.next(DeviceTime::default()).unwrap();
    }
    folder.record_progress(job.id, job.walker.progress());
    let live = text(&folder, "eth0@1", 9_000_000);
    assert!(live.contains("pkts-sofar: 3  errors: 0"), "{live}");
    assert!(
        live.contains("started: 5000us  stopped: 9000us idle: 0us"),
        "{live}"
    );

    // The answer to a command during the run is shown until the end.
    folder.write("eth0@1", b"count 4\n", &Host).unwrap();
    folder.write("eth0@1", b"pkt_size 100\n", &Host).unwrap();
    job.walker
        .reconfigure(folder.live_config(job.id).unwrap())
        .unwrap();
    assert_eq!(job.walker.next(DeviceTime::default()).unwrap().0.len(), 100);
    assert_eq!(job.walker.next(DeviceTime::default()), None);
    folder.record_end(job.id, &job.walker, 7_000_000, 500_000);
    assert!(!folder.is_running() && !folder.receiver().takes_latency());
    let done = text(&folder, "eth0@1", 99_000_000);
    assert!(
        done.ends_with(
            "Result: OK: 2000(c1500+d500) usec, 4 (100byte,0frags)\n  2000pps 1Mb/sec (1600000bps) errors: 0\n"
        ),
        "{done}"
    );
    assert!(
        done.contains("started: 5000us  stopped: 7000us idle: 500us"),
        "{done}"
    );
}

#[test]
fn what_is_removed_while_it_runs_stays_removed() {
    let mut folder = folder(&[
        ("kpktgend_0", "add_device eth0@0"),
        ("kpktgend_1", "add_device eth0@1"),
    ]);
    let jobs = folder.start_devices(0, 1, &Host);
    let removed = folder.write("kpktgend_0", b"rem_device_all", &Host);
    assert_eq!(removed, Ok(WriteEffect::RemoveAll { cpu: 0 }));
    assert!(folder.live_config(jobs[0].id).is_none() && folder.live_config(jobs[1].id).is_some());
    folder.record_end(jobs[0].id, &jobs[0].walker, 5, 0);
    assert!(!folder.has_file("eth0@0") && folder.is_running());
    assert_eq!(
        folder.write("pgctrl", b"reset\n", &Host),
        Ok(WriteEffect::Reset)
    );
    folder.record_end(jobs[1].id, &jobs[1].walker, 5, 0);
    assert!(!folder.is_running());
    assert_eq!(folder.read("eth0@1", &Host, 0), Err(Errno::Enoent));
}

#[test]
fn interfaces_come_and_go() {
    let mut folder = folder(&[("kpktgend_0", "add_device eth0@0")]);
    folder.interface_renamed("eth0", "new0");
    assert!(text(&folder, "new0", 0).contains("ifname: eth0@0\n"));
    assert!(!folder.has_file("eth0@0"));
    folder.interface_gone("new0");
    assert!(!folder.has_file("new0"));
}

#[test]
fn warnings_say_what_was_bent() {
    let mut folder = folder(&[
        ("kpktgend_0", "add_device eth0"),
        ("eth0", "dst 300.1.2.3"),
        ("eth0", "udp_src_min 65536"),
        ("eth0", "queue_map_max 7"),
        ("eth0", "flag IPSEC"),
        ("eth0", "rate 1000"),
    ]);
    folder.start_devices(0, 1, &Host);
    assert_eq!(
        folder.take_warnings(),
        [
            "eth0: dst_min `300.1.2.3` is not an IPv4 address",
            "eth0: udp_src_min 65536 is out of range; 0 is used",
            "eth0: rate: the delay is 0, which is full speed; set the size first",
            "eth0: queue_map_max 7 is above the last transmit queue; 0 is used",
            "eth0: flag IPSEC: packets are sent unencrypted",
        ]
    );
}

#[test]
fn several_lines_in_one_write_are_warned_of() {
    let mut folder = folder(&[
        ("kpktgend_0", "add_device eth0\n"),
        ("eth0", "\npkt_size 60\n\n"),
    ]);
    assert_eq!(folder.take_warnings(), [""; 0]);
    folder
        .write("eth0", b"pkt_size 70\nclone_skb 1\n", &Host)
        .unwrap();
    assert!(text(&folder, "eth0", 0).contains("min_pkt_size: 70"));
    assert!(text(&folder, "eth0", 0).contains("clone_skb: 0"));
    let warnings = folder.take_warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].starts_with("eth0: several lines in one write")
            && warnings[0].contains("`pkt_size 70`")
    );
}
