//! Labs of every kind: creation, removal, and clean-up after killed processes.

mod common;

use std::path::Path;
use std::process::{Child, Stdio};

use common::{Unique, lab_command, open, privileged, receive, send, until};
use rustix::process::{Pid, Signal, kill_process};
use wb_machine::{Namespace, Netlink, netns};
use wb_testbed::impair::{ImpairOptions, Loss};
use wb_testbed::{
    Daemon, Lab, LabKind, LabOptions, LabState, LabStatus, Node, Ready, TestbedError, no_daemons,
};
use wb_wire::{MacAddr, Stack, Tag, arp_request, find_tag};

fn status(name: &str) -> Option<LabStatus> {
    wb_testbed::list_labs()
        .unwrap()
        .labs
        .into_iter()
        .find(|lab| lab.name == name)
}

fn is_up(name: &str) -> bool {
    status(name).is_some_and(|lab| lab.state == "up")
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn tagged(source: MacAddr, destination: MacAddr, count: u32) -> Vec<Vec<u8>> {
    let mut stack = Stack::udp4([198, 18, 1, 2], [198, 19, 1, 2], 49184, 7);
    (stack.ethernet.src, stack.ethernet.dst) = (source, destination);
    let (frame, layout) = stack.build_with_layout(60);
    let numbered = |sequence| {
        let mut frame = frame.clone();
        let tag = Tag {
            flow: 1,
            sequence,
            time_ns: 0,
        };
        tag.write(frame[layout.payload..].first_chunk_mut().unwrap());
        frame
    };
    (0..count).map(numbered).collect()
}

fn sequences(frames: &[Vec<u8>]) -> Vec<u32> {
    let tag = |frame: &Vec<u8>| Some(Tag::read(&frame[find_tag(frame)?.0..])?.sequence);
    frames.iter().filter_map(tag).collect()
}

#[test]
fn each_kind_comes_up_and_goes_without_a_trace() {
    if !privileged() {
        return;
    }
    for kind in LabKind::ALL {
        let unique = Unique::new();
        let name = unique.0.as_str();
        let made = wb_testbed::up(kind, &unique.options(), &no_daemons, None).unwrap();
        let listed = status(name).unwrap();
        assert_eq!((listed.state, listed.kind), ("up", kind));
        assert!(
            listed
                .nodes
                .iter()
                .all(|node| node.present && netns::list().unwrap().contains(&node.node.namespace))
        );
        assert_eq!(listed.links, made.links);
        let has_device = matches!(kind, LabKind::Impair | LabKind::Fleet);
        assert_eq!(listed.device.is_some(), has_device);
        assert_eq!(listed.balancer.is_some(), kind == LabKind::Balancer);
        assert!(listed.owner.is_none());

        let taken = wb_testbed::up(kind, &unique.options(), &no_daemons, None).unwrap_err();
        assert!(matches!(taken, TestbedError::Exists { .. }), "{taken}");
        assert!(is_up(name), "the second attempt leaves the first lab alone");

        let [near, far] = match kind {
            LabKind::Balancer => [("client", "c0"), ("server", "s0")],
            LabKind::Fleet => [("h1", "t0"), ("h2", "t0")],
            _ => [("a", "a0"), ("b", "b0")],
        };
        let hint = wb_testbed::find_port(Some(&format!("wb-{name}-{}", near.0)), near.1).unwrap();
        assert_eq!(
            (hint.kind, hint.far_port),
            (kind, format!("wb-{name}-{}/{}", far.0, far.1))
        );

        wb_testbed::down(name).unwrap();
        assert_eq!(unique.remains(), Vec::<String>::new());
        let gone = wb_testbed::down(name).unwrap_err();
        assert!(matches!(gone, TestbedError::Unknown { .. }), "{gone}");
    }
}

#[test]
fn ends_that_face_us_are_silent_and_carry_frames_as_sent() {
    if !privileged() {
        return;
    }
    let unique = Unique::new();
    let options = LabOptions {
        links: 2,
        queues: 2,
        ..unique.options()
    };
    let lab = Lab::up(LabKind::Pair, &options).unwrap();
    for (node, port) in [("a", "a1"), ("b", "b0")] {
        let namespace = Namespace::named(lab.node(node)).unwrap();
        let netlink = Netlink::open(&namespace).unwrap();
        assert!(netlink.link(port).unwrap().carrier);
        assert!(netlink.addresses(port).unwrap().is_empty());
        let ethtool = wb_machine::Ethtool::open(&namespace).unwrap();
        assert_eq!(ethtool.channels(port).unwrap().unwrap().rx_queues(), 2);
        for offload in [
            wb_machine::ethtool::Offload::TxChecksum,
            wb_machine::ethtool::Offload::Gso,
        ] {
            assert_eq!(ethtool.offload(port, offload).unwrap(), Some(false));
        }
    }
}

#[test]
fn a_failure_half_way_leaves_nothing_and_spares_what_was_there() {
    if !privileged() {
        return;
    }
    let unique = Unique::new();
    let foreign = format!("wb-{}-b", unique.0);
    netns::create(&foreign).unwrap();
    wb_testbed::up(LabKind::Pair, &unique.options(), &no_daemons, None).unwrap_err();
    assert!(status(&unique.0).is_none());
    assert_eq!(
        netns::list()
            .unwrap()
            .iter()
            .filter(|name| name.contains(&unique.0))
            .count(),
        1
    );
    assert!(
        wb_testbed::list_labs()
            .unwrap()
            .stray_namespaces
            .contains(&foreign)
    );
    assert_eq!(unique.sweep(false).namespaces, [foreign]);

    let broken = LabOptions {
        device_program: Some("/bin/false".into()),
        ..unique.options()
    };
    let error = wb_testbed::up(LabKind::Impair, &broken, &no_daemons, None).unwrap_err();
    assert!(matches!(error, TestbedError::NotStarted { .. }), "{error}");
    assert_eq!(unique.remains(), Vec::<String>::new());
}

#[test]
fn the_router_forwards_both_families() {
    if !privileged() {
        return;
    }
    let unique = Unique::new();
    let options = LabOptions {
        limit_bps: Some(100_000_000),
        ..unique.options()
    };
    let lab = Lab::up(LabKind::Router, &options).unwrap();
    assert_eq!(lab.state().limit.unwrap().rate_bps, 100_000_000);
    let near = wb_testbed::find_port(Some(lab.node("a")), "a0").unwrap();
    let far = wb_testbed::find_port(Some(lab.node("b")), "b0").unwrap();
    let mut tx = open(&lab.port("a0"));
    let mut rx = open(&lab.port("b0"));
    // Replaces a tester that answers.
    let far_mac = lab.state().links[1].b.mac_bytes();
    let device = Netlink::open(&Namespace::named(lab.node("dut")).unwrap()).unwrap();
    for address in &near.far_addresses {
        device.add_neighbour("db", *address, far_mac).unwrap();
    }
    let mut frames = Vec::new();
    for (source, destination) in near.addresses.iter().zip(&near.far_addresses) {
        let mut stack = match (source, destination) {
            (std::net::IpAddr::V4(s), std::net::IpAddr::V4(d)) => Stack::udp4(*s, *d, 49184, 7),
            (std::net::IpAddr::V6(s), std::net::IpAddr::V6(d)) => Stack::udp6(*s, *d, 49184, 7),
            _ => unreachable!("families come in the same order"),
        };
        stack.ethernet.dst = MacAddr(near.peer_mac);
        frames.push(stack.build(100));
    }
    send(&mut tx, &frames);
    let mut came = Vec::new();
    until("both frames come out", || {
        came.extend(
            receive(&mut rx)
                .into_iter()
                .filter(|frame| frame[..6] == far_mac),
        );
        came.len() == 2
    });
    assert!(came.iter().all(|frame| frame[6..12] == far.peer_mac));
    assert_eq!(came[0][12..14], [0x08, 0x00]);
    assert_eq!(
        came[0][22],
        frames[0][22] - 1,
        "the router has counted the time to live down"
    );
    assert_eq!(came[1][12..14], [0x86, 0xdd]);
    assert_eq!(came[1][21], frames[1][21] - 1);
}

#[test]
fn the_device_does_what_it_counts() {
    if !privileged() {
        return;
    }
    const COUNT: u32 = 3000;
    let unique = Unique::new();
    let impair = ImpairOptions {
        delay_ns: 2_000_000,
        loss: Loss::Every(100),
        duplicate: 0.05,
        reorder: 0.05,
        ..ImpairOptions::default()
    };
    let lab = Lab::up(
        LabKind::Impair,
        &LabOptions {
            impair: Some(impair),
            ..unique.options()
        },
    )
    .unwrap();
    let hint = wb_testbed::find_port(Some(lab.node("a")), "a0").unwrap();
    let [own, peer] = [lab.state().links[0].a.mac_bytes(), hint.peer_mac].map(MacAddr);
    let (mut a, mut b) = (open(&lab.port("a0")), open(&lab.port("b0")));
    let [near, far]: [std::net::Ipv4Addr; 2] =
        ["198.18.1.2".parse().unwrap(), "198.19.1.2".parse().unwrap()];
    let mut question = vec![0; 60];
    arp_request(own, near, far, &[], &mut question).unwrap();
    let mut frames = tagged(own, peer, COUNT);
    frames.push(question.clone());
    let mut came = Vec::new();
    for part in frames.chunks(100) {
        send(&mut a, part);
        came.extend(receive(&mut b));
    }
    until("everything has left", || {
        came.extend(receive(&mut b));
        let counters = lab.status().device.unwrap().counters.unwrap().a_to_b;
        counters.arrived == u64::from(COUNT) && counters.inside == 0 && counters.passed == 1
    });
    until("everything has come", || {
        came.extend(receive(&mut b));
        let counters = lab.status().device.unwrap().counters.unwrap().a_to_b;
        sequences(&came).len() as u64 == counters.left
    });
    let counters = lab.status().device.unwrap().counters.unwrap().a_to_b;
    assert_eq!(counters.lost, u64::from(COUNT / 100));
    assert_eq!(
        (
            counters.rx_dropped,
            counters.tx_refused,
            counters.overflowed
        ),
        (0, 0, 0)
    );
    assert_eq!(
        counters.arrived,
        counters.lost + counters.left - counters.duplicated
    );
    assert_eq!(counters.delay_min_ns, 2_000_000);
    assert!(came.contains(&question), "ARP passes untouched");

    let (mut seen, mut duplicates, mut reordered, mut highest) =
        (std::collections::BTreeSet::new(), 0, 0, None);
    for sequence in sequences(&came) {
        if !seen.insert(sequence) {
            duplicates += 1;
        } else if highest.is_some_and(|highest| sequence < highest) {
            reordered += 1;
        }
        highest = highest.max(Some(sequence));
    }
    assert_eq!(
        (duplicates, reordered),
        (counters.duplicated, counters.reordered)
    );
    assert!(duplicates > 0 && reordered > 0);
    assert_eq!(seen.len() as u64, counters.arrived - counters.lost);

    // The opposite direction is a plain wire.
    send(&mut b, &tagged(peer, own, 100));
    let mut back = Vec::new();
    until("everything has come back", || {
        back.extend(sequences(&receive(&mut a)));
        back.len() == 100
    });
    assert_eq!(back, (0..100).collect::<Vec<_>>());
}

#[test]
fn frames_between_the_sides_of_a_fleet_go_through_the_device() {
    if !privileged() {
        return;
    }
    const COUNT: u32 = 500;
    let unique = Unique::new();
    let options = LabOptions {
        fleet_hosts: Some(3),
        impair: Some(ImpairOptions {
            loss: Loss::Every(100),
            ..ImpairOptions::default()
        }),
        ..unique.options()
    };
    let lab = Lab::up(LabKind::Fleet, &options).unwrap();
    let port = |host: &str| open(&format!("{}/t0", lab.node(host)));
    let mac = |host: &str| {
        let namespace = Namespace::named(lab.node(host)).unwrap();
        MacAddr(Netlink::open(&namespace).unwrap().link("t0").unwrap().mac)
    };
    let [mut h1, mut h2, mut h3] = ["h1", "h2", "h3"].map(port);
    let mut others = Vec::new();
    // The bridges learn where h1 and h2 are.
    send(&mut h2, &tagged(mac("h2"), mac("h1"), 1));
    until("h1 has the frame of h2", || receive(&mut h1).len() == 1);
    send(&mut h1, &tagged(mac("h1"), mac("h2"), COUNT));
    let mut came = Vec::new();
    until("all frames but the lost ones have come", || {
        came.extend(sequences(&receive(&mut h2)));
        came.len() as u32 == COUNT - COUNT / 100
    });
    let counters = lab.status().device.unwrap().counters.unwrap();
    assert_eq!(
        (counters.a_to_b.arrived, counters.a_to_b.lost),
        (u64::from(COUNT), u64::from(COUNT / 100))
    );
    assert_eq!(counters.b_to_a.arrived, 1);
    others.extend(receive(&mut h3));
    assert_eq!(
        sequences(&others),
        [0],
        "h3 has only the frame from before the bridge knew h1"
    );

    send(&mut h1, &tagged(mac("h1"), mac("h3"), 10));
    let mut came = Vec::new();
    until("h3 has frames of its side", || {
        came.extend(sequences(&receive(&mut h3)));
        came.len() == 10
    });
    assert!(
        receive(&mut h2)
            .iter()
            .all(|frame| find_tag(frame).is_some()),
        "neither the kernels nor the bridges send frames"
    );
}

/// A program that waits for a file, prints that it is up, and runs until it is stopped.
fn stand_in(lab: &LabState, host: &str, folder: &Path, awaits: &str) -> Daemon {
    let find = |node: &&Node| node.node == host;
    let script = format!(
        "while ! test -e {awaits}; do sleep 0.01; done; touch {host}.began; ls /sys/class/net; echo is up; \
         exec sleep 1000"
    );
    Daemon {
        name: host.into(),
        namespace: lab.nodes.iter().find(find).unwrap().namespace.clone(),
        program: "/bin/sh".into(),
        arguments: vec![
            "-c".into(),
            format!("cd {}; {script}", folder.display()).into(),
        ],
        log: folder.join(format!("{host}.log")),
        ready: Ready::Prints("is up"),
    }
}

#[test]
fn programs_start_in_groups_and_end_with_the_lab() {
    if !privileged() {
        return;
    }
    let unique = Unique::new();
    let daemons = |lab: &LabState, folder: &Path| {
        Ok(vec![
            // The programs of a group start together.
            vec![
                stand_in(lab, "net", folder, "h1.began"),
                stand_in(lab, "h1", folder, "/bin/sh"),
            ],
            vec![stand_in(lab, "h2", folder, "net.began")],
        ])
    };
    wb_testbed::up(LabKind::Fleet, &unique.options(), &daemons, None).unwrap();
    let up = status(&unique.0).unwrap();
    assert_eq!(up.state, "up");
    let names: Vec<&str> = up.daemons.iter().map(|d| d.daemon.name.as_str()).collect();
    assert_eq!(names, ["net", "h1", "h2"]);
    assert!(up.daemons.iter().all(|daemon| daemon.alive));
    let h2 = &up.daemons[2].daemon;
    assert_eq!(
        std::fs::read_to_string(&h2.log).unwrap(),
        "lo\nm0\nt0\nis up\n"
    );
    kill_process(
        Pid::from_raw(h2.process.pid.cast_signed()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    until("the program is gone", || {
        status(&unique.0).unwrap().state == "broken"
    });
    let alive: Vec<bool> = status(&unique.0)
        .unwrap()
        .daemons
        .iter()
        .map(|daemon| daemon.alive)
        .collect();
    assert_eq!(alive, [true, true, false]);
    wb_testbed::down(&unique.0).unwrap();
    assert_eq!(unique.remains(), Vec::<String>::new());
}

#[test]
fn a_program_that_does_not_start_leaves_no_lab() {
    if !privileged() {
        return;
    }
    let unique = Unique::new();
    let daemons = |lab: &LabState, folder: &Path| {
        let mut wrong = stand_in(lab, "h2", folder, "/bin/sh");
        wrong.arguments = vec!["-c".into(), "echo no port; exit 1".into()];
        Ok(vec![vec![stand_in(lab, "h1", folder, "/bin/sh"), wrong]])
    };
    let error = wb_testbed::up(LabKind::Fleet, &unique.options(), &daemons, None).unwrap_err();
    assert_eq!(error.to_string(), "h2 did not start: no port");
    assert_eq!(unique.remains(), Vec::<String>::new());
}

#[test]
fn a_port_in_this_namespace_has_the_hints_of_its_lab() {
    if !privileged() {
        return;
    }
    let unique = Unique::new();
    let lab = Lab::up(LabKind::Pair, &unique.options()).unwrap();
    let find = || wb_testbed::find_port(None, "a0");
    assert_eq!(find(), None);
    let node = Namespace::named(lab.node("a")).unwrap();
    let hint = wb_machine::in_namespace(&node, find).unwrap().unwrap();
    assert_eq!(
        (hint.lab, hint.far_port),
        (unique.0.clone(), lab.port("b0"))
    );
}

#[test]
fn a_killed_device_is_seen_and_swept() {
    if !privileged() {
        return;
    }
    let unique = Unique::new();
    wb_testbed::up(LabKind::Impair, &unique.options(), &no_daemons, None).unwrap();
    let device = status(&unique.0).unwrap().device.unwrap().process;
    kill_process(
        Pid::from_raw(device.pid.cast_signed()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    until("the device is gone", || {
        status(&unique.0).unwrap().state == "broken"
    });
    assert_eq!(unique.sweep(false).labs, std::slice::from_ref(&unique.0));
    assert_eq!(unique.remains(), Vec::<String>::new());
}

#[test]
fn a_lab_is_kept_for_its_owner_and_swept_when_that_is_killed() {
    if !privileged() {
        return;
    }
    let unique = Unique::new();
    let mut owner = lab_command()
        .args(["run", "impair", &unique.json(), "--", "sleep", "1000"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    until("the lab is up", || is_up(&unique.0));
    let kept = unique.sweep(false);
    assert_eq!((kept.labs.len(), kept.kept.len()), (0, 1));
    assert_eq!(kept.kept[0].owner.process.pid, owner.id());
    signal(&owner, Signal::KILL);
    owner.wait().unwrap();
    assert_eq!(unique.sweep(false).labs, std::slice::from_ref(&unique.0));
    until("nothing remains", || unique.remains().is_empty());
}

#[test]
fn run_returns_the_code_and_goes_on_signals() {
    if !privileged() {
        return;
    }
    let unique = Unique::new();
    let status = lab_command()
        .args(["run", "pair", &unique.json(), "--", "sh", "-c", "exit 7"])
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(7));
    assert_eq!(unique.remains(), Vec::<String>::new());

    let mut run = lab_command()
        .args(["run", "impair", &unique.json(), "--", "sleep", "1000"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    until("the lab is up", || is_up(&unique.0));
    signal(&run, Signal::TERM);
    assert_eq!(run.wait().unwrap().code(), Some(143));
    assert_eq!(unique.remains(), Vec::<String>::new());
}

#[test]
fn killed_at_any_moment_of_its_making_a_lab_can_be_swept() {
    if !privileged() {
        return;
    }
    for step in 0..12 {
        let unique = Unique::new();
        let mut up = lab_command()
            .args(["up", "impair", &unique.json()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wb_testing::disturb(std::time::Duration::from_millis(step * 3));
        let _ = up.kill();
        up.wait().unwrap();
        unique.sweep(false);
        until("nothing remains", || unique.remains().is_empty());
    }
}

#[test]
fn commands_run_inside_and_end_with_the_lab() {
    if !privileged() {
        return;
    }
    let unique = Unique::new();
    let lab = Lab::up(LabKind::Pair, &unique.options()).unwrap();
    let node = lab.node("a");
    let output = lab_command()
        .args(["exec", node, "ls", "/sys/class/net"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a0\nlo\n");
    let status = lab_command()
        .args(["exec", node, "sh", "-c", "exit 9"])
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(9));
    let mut inside = lab_command()
        .args(["exec", node, "sleep", "1000"])
        .spawn()
        .unwrap();
    let inode = Namespace::named(node).unwrap().inode();
    until("the command is inside", || {
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .any(|pid| Namespace::of_process(pid).is_ok_and(|namespace| namespace.inode() == inode))
    });
    lab.down().unwrap();
    assert_eq!(inside.wait().unwrap().code(), Some(143));
    assert_eq!(unique.remains(), Vec::<String>::new());
}

#[test]
fn a_user_namespace_has_labs_of_its_own() {
    if !privileged() {
        return;
    }
    let unique = Unique::new();
    // An outer lab with the same name neither conflicts nor is removed.
    let outside = Lab::up(LabKind::Pair, &unique.options()).unwrap();
    let program = common::example("lab");
    let script = format!(
        "{0} ls && {0} down --all && {0} up pair && {0} down --all",
        program.display()
    );
    let output = lab_command()
        .args([
            "user",
            "run",
            "impair",
            &unique.json(),
            "--",
            "sh",
            "-c",
            &script,
        ])
        .output()
        .unwrap();
    let (text, complaint) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if complaint.contains("user namespaces are disabled") {
        wb_testing::skipped(complaint);
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{complaint}");
    assert!(
        text.contains(r#""kind": "impair""#) && text.contains(r#""state": "up""#),
        "{text}"
    );
    assert!(!text.contains(r#""state": "broken""#), "{text}");
    assert_eq!(outside.status().state, "up");
    outside.down().unwrap();
    assert_eq!(unique.remains(), Vec::<String>::new());
}
