//! ethtool, interrupts, queue locks and the doctor on veth ends.

use crate::common::{Node, output, pair, privileged};
use wb_machine::doctor::{Level, describe, judge};
use wb_machine::ethtool::{Channels, Offload, Speed};
use wb_machine::offloads::OffloadsOff;
use wb_machine::{Direction, Ethtool, HostError, Namespace, Netlink, QueueLock, cpu, link};

#[test]
fn a_veth_end_described() {
    if !privileged() {
        return;
    }
    let (a, _b) = pair(2);
    let ethtool = Ethtool::open(&a.0).unwrap();
    let driver = ethtool.driver("a0").unwrap().unwrap();
    assert_eq!((driver.name.as_str(), driver.bus.as_str()), ("veth", ""));
    let speed = Speed {
        bits_per_second: 10_000_000_000,
        nominal: true,
        half_duplex: false,
    };
    assert_eq!(ethtool.speed("a0").unwrap(), Some(speed));
    assert_eq!(ethtool.rings("a0").unwrap(), None);
    assert!(
        ethtool
            .timestamping("a0")
            .unwrap()
            .is_some_and(|t| !t.hardware_rx && t.software_rx)
    );
    let error = ethtool.driver("b0").unwrap_err();
    assert!(
        matches!(error, HostError::UnknownInterface { .. }),
        "{error}"
    );
}

#[test]
fn channels_are_switched() {
    if !privileged() {
        return;
    }
    let (a, _b) = pair(4);
    let ethtool = Ethtool::open(&a.0).unwrap();
    let all = ethtool.channels("a0").unwrap().unwrap();
    assert_eq!(
        (all.rx, all.tx, all.max_rx, all.max_tx),
        (4, 4, 4, 4),
        "made with all on"
    );
    ethtool
        .set_channels(
            "a0",
            &Channels {
                rx: 2,
                tx: 1,
                ..all
            },
        )
        .unwrap();
    let fewer = ethtool.channels("a0").unwrap().unwrap();
    assert_eq!((fewer.rx_queues(), fewer.tx_queues()), (2, 1));
    let error = ethtool
        .set_channels(
            "a0",
            &Channels {
                rx: 5,
                tx: 1,
                ..all
            },
        )
        .unwrap_err();
    assert_eq!(error.errno(), Some(libc::EINVAL), "{error}");
}

#[test]
fn offloads_are_switched() {
    if !privileged() {
        return;
    }
    let (a, _b) = pair(1);
    let ethtool = Ethtool::open(&a.0).unwrap();
    for offload in [Offload::Gso, Offload::Tso, Offload::TxChecksum] {
        assert_eq!(
            ethtool.offload("a0", offload).unwrap(),
            Some(true),
            "{offload:?}"
        );
        ethtool.set_offload("a0", offload, false).unwrap();
        assert_eq!(
            ethtool.offload("a0", offload).unwrap(),
            Some(false),
            "{offload:?}"
        );
    }
    ethtool.set_offload("a0", Offload::Gro, true).unwrap();
    ethtool
        .set_offload("a0", Offload::Lro, false)
        .expect("it is off already");
    assert!(
        ethtool.set_offload("a0", Offload::Lro, true).is_err(),
        "veth has none"
    );
    ethtool.set_offload("a0", Offload::RxVlan, false).unwrap();
    assert_eq!(
        ethtool.offload("a0", Offload::TxVlan).unwrap(),
        Some(true),
        "its neighbour bit stays"
    );

    let text = output("ip", &["netns", "exec", a.name(), "ethtool", "-k", "a0"]);
    for line in [
        "tx-checksumming: off",
        "tcp-segmentation-offload: off",
        "generic-receive-offload: on",
        "rx-vlan-offload: off",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[test]
fn a_queue_is_told_by_namespace_and_interface() {
    if !privileged() {
        return;
    }
    let (a, b) = pair(1);
    let take = |namespace: &Namespace, name: &str| {
        let index = link::link_by_name(namespace, name).unwrap().index;
        QueueLock::acquire(namespace, name, index, 0, Direction::Tx)
    };
    let _held = take(&a.0, "a0").unwrap();
    let _other = take(&b.0, "b0").unwrap();
    let error = take(&a.0, "a0").unwrap_err();
    assert!(matches!(error, HostError::QueueHeld { .. }));
    assert!(
        error.to_string().contains(&format!("{}/a0", a.name())),
        "{error}"
    );
}

#[test]
fn the_doctor_looks_into_the_namespace() {
    if !privileged() {
        return;
    }
    let (a, b) = pair(1);
    let found = |topic: &str| {
        let findings = judge(&describe(Some((&a.0, "a0"))).unwrap());
        findings
            .into_iter()
            .find(|finding| finding.topic == topic)
            .unwrap()
    };
    let down = found("link");
    assert_eq!(down.level, Level::Problem);
    let fix = down.fix.unwrap();
    assert_eq!(fix, format!("ip netns exec {} ip link set a0 up", a.name()));

    // The reported commands work.
    let words: Vec<&str> = fix.split(' ').collect();
    output(words[0], &words[1..]);
    Netlink::open(&b.0).unwrap().set_up("b0").unwrap();
    assert_eq!(found("link").level, Level::Ok);

    let offloads = found("offloads");
    assert_eq!(offloads.level, Level::Warn);
    let fix = offloads.fix.unwrap();
    let words: Vec<&str> = fix.split(' ').collect();
    output(words[0], &words[1..]);
    assert_eq!(found("offloads").level, Level::Ok, "after {fix}");
    assert_eq!(found("speed").level, Level::Note);
    assert_eq!(found("sharing").level, Level::Ok);
    assert!(
        cpu::irqs(&a.0, "a0").unwrap().is_empty(),
        "a veth has no interrupts"
    );
}

#[test]
fn offloads_come_back_when_the_last_user_of_an_interface_ends() {
    if !privileged() {
        return;
    }
    let (a, b) = pair(1);
    let gso = |node: &Node, name: &str| {
        let ethtool = Ethtool::open(&node.0).unwrap();
        ethtool.offload(name, Offload::Gso).unwrap().unwrap()
    };
    let first = OffloadsOff::on(&a.0, "a0").unwrap();
    let second = OffloadsOff::on(&a.0, "a0").unwrap();
    assert!(!gso(&a, "a0"));
    assert!(gso(&b, "b0"));
    drop(first);
    assert!(!gso(&a, "a0"), "another run still uses the interface");
    drop(second);
    assert!(gso(&a, "a0"));
    // It can be used again.
    drop(OffloadsOff::on(&a.0, "a0").unwrap());
    assert!(gso(&a, "a0"));
}
