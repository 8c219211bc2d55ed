//! Properties that hold for all inputs.

use proptest::prelude::*;

use wb_model::device::Entry;
use wb_model::device::Flags;
use wb_model::device::{Defaults, DeviceConfig};
use wb_pktgen::machine::{DeviceTime, Interface};
use wb_pktgen::{fuzz, keywords};
use wb_pktgen_device::classify_pktgen;
use wb_pktgen_device::{Start, Walker};

/// A line, often with a command of a device file.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let names: Vec<_> = keywords::KEYWORDS.iter().map(|k| k.name).collect();
    prop_oneof![
        3 => (prop::sample::select(names), "[ =]{0,2}", "[0-9a-f:.,! ]{0,24}")
            .prop_map(|(name, gap, rest)| format!("{name}{gap}{rest}\n").into_bytes()),
        1 => prop::sample::select(vec!["start", "stop", "reset", "rx", "rem_device_all", "add_device eth0@9"])
            .prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..60),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_write_does_harm(lines in prop::collection::vec((any::<u8>(), line()), 0..40)) {
        let mut bytes = Vec::new();
        for (file, line) in lines {
            bytes.push(file);
            bytes.extend(line.into_iter().map(|b| if b == 0xff { 0 } else { b }));
            bytes.push(0xff);
        }
        fuzz::exercise(&bytes);
    }

    #[test]
    fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzz::exercise(&bytes);
        let _ = classify_pktgen(&bytes);
    }

    #[test]
    fn random_fields_stay_in_their_ranges(
        seed: u64, low in 0u16..60_000, span in 1u16..5000, sizes in 60u32..1000, flow_len in 0u32..4
    ) {
        let mut config = DeviceConfig::new("eth0", &Defaults::default());
        config.flags = Flags(
            Flags::UDPSRC_RND | Flags::UDPDST_RND | Flags::IPSRC_RND | Flags::IPDST_RND
                | Flags::TXSIZE_RND | Flags::MACSRC_RND | Flags::SHARED | Flags::UDPCSUM,
        );
        (config.udp_src_min, config.udp_src_max) = (low, low + span);
        (config.udp_dst_min, config.udp_dst_max) = (low, low + span);
        (config.min_size, config.max_size) = (sizes, sizes + 100);
        (config.src_min, config.src_max) = ("10.0.0.1".to_owned(), "10.0.0.9".to_owned());
        (config.dst_min, config.dst_max) = ("126.0.0.0".to_owned(), "128.255.255.9".to_owned());
        (config.src_mac_count, config.flows, config.flow_len) = (4, 8, flow_len);
        config.count = 50;
        let mut walker = Walker::new(config, &Start { seed, ..Start::default() }).unwrap();
        while let Some((frame, queue)) = walker.next(DeviceTime::default()) {
            let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
            let quad = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
            prop_assert!((sizes..sizes + 100).contains(&(frame.len() as u32)));
            prop_assert!((0x0a00_0001..0x0a00_0009).contains(&quad(26)));
            prop_assert!((0x7e00_0000..0x80ff_ff09).contains(&quad(30)));
            prop_assert!(quad(30) >> 24 != 127);
            prop_assert!((low..low + span).contains(&word(34)));
            prop_assert!((low..low + span).contains(&word(36)));
            prop_assert!(frame[11] < 4 && queue == 0);
            let pseudo = wb_wire::checksum::pseudo_v4(quad(26).into(), quad(30).into(), 17, word(38));
            prop_assert!(wb_wire::checksum::is_right(pseudo, &frame[34..]));
            prop_assert!(wb_wire::checksum::is_right(0, &frame[14..34]));
            let seen = classify_pktgen(&frame).unwrap();
            prop_assert_eq!(seen.bytes, frame.len() as u64);
        }
        prop_assert_eq!(walker.progress().sofar, 50);
    }

    #[test]
    fn a_mix_counts_what_it_builds(seed: u64, weights in prop::collection::vec(1u64..50, 1..20)) {
        let mut config = DeviceConfig::new("eth0", &Defaults::default());
        config.imix = weights
            .iter()
            .enumerate()
            .map(|(i, weight)| Entry { size: 100 + i as u64, weight: *weight })
            .collect();
        config.count = 200;
        let mut walker = Walker::new(config, &Start { seed, ..Start::default() }).unwrap();
        let mut seen = vec![0; weights.len()];
        while let Some((frame, _)) = walker.next(DeviceTime::default()) {
            seen[frame.len() - 100] += 1;
        }
        prop_assert_eq!(&walker.progress().imix_counts, &seen);
    }

    #[test]
    fn the_same_seed_makes_the_same_packets(seed: u64) {
        let mut config = DeviceConfig::new("eth0", &Defaults::default());
        config.flags.put(Flags::IPDST_RND, true);
        config.dst_max = "255.0.0.0".to_owned();
        config.count = 20;
        let start = Start { seed, ..Start::default() };
        let mut walkers = [(); 2].map(|()| Walker::new(config.clone(), &start).unwrap());
        loop {
            let [a, b] = walkers.each_mut().map(|w| w.next(DeviceTime::default()));
            prop_assert_eq!(&a, &b);
            if a.is_none() {
                break;
            }
        }
    }
}

/// With a range of only loopback addresses the kernel would draw endlessly.
#[test]
fn excluded_destinations_end() {
    let mut config = DeviceConfig::new("eth0", &Defaults::default());
    config.flags.put(Flags::IPDST_RND, true);
    (config.dst_min, config.dst_max) = ("127.0.0.1".to_owned(), "127.0.0.9".to_owned());
    config.count = 3;
    let mut walker = Walker::new(config, &Start::default()).unwrap();
    while walker.next(DeviceTime::default()).is_some() {}
    assert_eq!(walker.progress().sofar, 3);
}

#[test]
fn a_call_cut_short_goes_on_and_refusals_count() {
    let mut config = DeviceConfig::new("eth0", &Defaults::default());
    (config.count, config.burst) = (10, 4);
    config.delay = wb_model::device::Delay::fraction(1_000_000_000, 3_000_000);
    let mut walker = Walker::new(config.clone(), &Start::default()).unwrap();
    let first = walker.poll(DeviceTime::default()).unwrap();
    assert_eq!((first.copies, first.sequence, first.due_ns), (4, 1, 0));
    walker.sent(3);
    walker.refused();
    let rest = walker.poll(DeviceTime::default()).unwrap();
    assert_eq!((rest.copies, rest.sequence, rest.due_ns), (1, 1, 0));
    walker.sent(1);
    let second = walker.poll(DeviceTime::default()).unwrap();
    assert_eq!((second.copies, second.sequence, second.due_ns), (4, 5, 333));
    walker.sent(4);
    // A change during the run applies from the next packet.
    config.min_size = 100;
    config.max_size = 100;
    config.count = 9;
    walker.reconfigure(&config).unwrap();
    let third = walker.poll(DeviceTime::default()).unwrap();
    assert_eq!((third.frame.len(), third.due_ns), (100, 666));
    walker.sent(4);
    assert_eq!(walker.poll(DeviceTime::default()), None);
    assert_eq!((walker.progress().sofar, walker.progress().errors), (12, 1));
    config.min_size = 9000;
    let refused = walker.reconfigure(&config).unwrap_err();
    assert_eq!(refused.to_string(), "packet size 9000 exceeds 1514");
}

/// Frames as the kernel counts them: without tag and padding.
#[test]
fn generator_frames_are_classified() {
    let mut config = DeviceConfig::new("eth0", &Defaults::default());
    config.vlan.id = Some(5);
    config.svlan.id = Some(6);
    for ipv6 in [false, true] {
        config.flags.put(Flags::IPV6, ipv6);
        let start = Start {
            interface: Interface::default(),
            ..Start::default()
        };
        let mut walker = Walker::new(config.clone(), &start).unwrap();
        let (mut frame, _) = walker.next(DeviceTime::default()).unwrap();
        let bytes = if ipv6 { 78 } else { 58 };
        frame.extend([0; 10]);
        let seen = classify_pktgen(&frame).unwrap();
        assert_eq!((seen.bytes, seen.tag.unwrap().sequence), (bytes, 1));
        let end = frame.len() - 10 - 16;
        assert_eq!(classify_pktgen(&frame[..end + 8]).unwrap().tag, None);
        frame[end] ^= 1;
        assert_eq!(classify_pktgen(&frame), None);
    }
}
