//! Packets of the kernel's generator: the same packets from the same commands, or the reason for a refusal.

use super::{Folder, extras::captured, number_after, text};
use crate::kit::{Lab, privileged};

const COUNT: usize = 100;

/// Current values in a device's file.
fn current(folder: &Folder) -> String {
    let all = folder.read("a0");
    let (_, current) = all.split_once("seq_num").expect("current values");
    current.split_once("Result").expect("a result").0.to_owned()
}

#[test]
fn the_same_packets_and_texts_whoever_makes_them() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let count = format!("count {COUNT}");
    let settings = [
        &*count,
        "delay 20000",
        "min_pkt_size 60",
        "max_pkt_size 90",
        "src_min 10.0.0.1",
        "dst_min 198.18.0.1",
        "dst_max 198.18.0.9",
        "udp_src_min 9",
        "udp_src_max 109",
        "flag UDPSRC_RND",
        "flag UDPCSUM",
        "flag NO_TIMESTAMP",
        "vlan_id 7",
        "clone_skb 2",
    ];
    let send = |options: &[&str]| {
        let folder = Folder::mount(&a, options);
        folder.device("a0", &settings);
        let file = folder.dir.path().with_extension("pcap");
        let frames = captured(&b, &file, COUNT, || folder.start());
        std::fs::remove_file(file).expect("the capture was there");
        let result = folder.result("a0");
        assert!(result.contains(&format!(", {COUNT} (")), "{result}");
        assert_eq!(number_after(&result, "errors: "), 0);
        let driver = folder.json("result.json")["ports"][0]["driver"].clone();
        let driver = driver.as_str().expect("a name").to_owned();
        (frames, current(&folder), driver)
    };
    let (frames, texts, driver) = send(&[]);
    assert_eq!((frames.len(), &*driver), (COUNT, "live"));
    for asked in ["live", "xdp", "packet"] {
        let (others, theirs, driver) = send(&["--driver", asked]);
        assert_eq!(driver, asked);
        assert_eq!(theirs, texts, "{asked}");
        assert!(others == frames, "{asked} sends other frames");
    }
}

#[test]
fn settings_beyond_the_kernel_go_by_a_queue_and_say_why() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let folder = Folder::mount(&lab.node("a"), &[]);
    folder.device("a0", &["count 100", "dst 198.18.0.42"]);
    for (setting, why) in [
        ("flows 4", "the flows form a table"),
        ("flows 0", ""),
        ("xmit_mode queue_xmit", "xmit_mode"),
    ] {
        folder.set("a0", setting);
        folder.start();
        assert!(folder.result("a0").contains(", 100 ("));
        let report = folder.json("result.json");
        let port = &report["ports"][0];
        let because = port["chosen_because"].as_str().expect("a reason");
        assert_eq!(
            port["driver"] == "live",
            why.is_empty(),
            "{setting}: {port}"
        );
        assert!(because.contains(why), "{setting}: {because}");
    }
    drop(folder);
    let folder = Folder::mount(&lab.node("a"), &["--driver", "live"]);
    folder.device("a0", &["count 100", "flows 4"]);
    let output = folder
        .shell("echo start > $P/pgctrl")
        .finish(super::PATIENCE);
    let said = folder.result("a0");
    assert!(
        said.contains("not supported by the live driver: the flows form a table"),
        "{said}, {}",
        text(&output.stderr)
    );
}

#[test]
fn devices_at_a_link_of_one_queue_do_not_refuse_each_others_packets() {
    if !privileged() {
        return;
    }
    if !std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) {
        wb_skip::skipped("needs two CPUs");
        return;
    }
    let lab = Lab::up("pair", &[]);
    let folder = Folder::mount(&lab.node("a"), &[]);
    for (cpu, name) in [(0, "a0@0"), (1, "a0@1")] {
        folder.device_on(cpu, name, &["count 20000", "dst 198.18.0.42"]);
    }
    folder.start();
    let report = folder.json("result.json");
    let because = report["ports"][0]["chosen_because"]
        .as_str()
        .expect("a reason");
    assert!(because.contains("2 devices share 1 queue"), "{because}");
    assert_eq!(report["totals"]["refused_frames"], 0, "{report}");
}
