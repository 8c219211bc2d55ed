//! Tests the rules of `doctor` on descriptions of machines, most of them derived from facts about drivers.

use wb_machine::cpu::Irq;
use wb_machine::doctor::{Attach, Description, Finding, InterfaceDescription, Level, Usage, judge};
use wb_machine::ethtool::{Channels, Timestamping};
use wb_machine::link::{XdpMode, XdpProgram};

fn machine(name: &str) -> Description {
    let path = format!("{}/tests/machines/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Machine with a change of its interface.
fn changed(name: &str, change: impl FnOnce(&mut InterfaceDescription)) -> Description {
    let mut machine = machine(name);
    change(machine.interface.as_mut().unwrap());
    machine
}

fn find(about: &Description, topic: &str) -> Option<Finding> {
    judge(about).into_iter().find(|f| f.topic == topic)
}

fn found(about: &Description, topic: &str) -> Finding {
    find(about, topic).unwrap_or_else(|| panic!("no {topic}: {:#?}", judge(about)))
}

fn fix(about: &Description, topic: &str) -> String {
    let finding = found(about, topic);
    let fix = finding.fix.clone();
    fix.unwrap_or_else(|| panic!("no command: {finding:?}"))
}

#[test]
fn each_description_names_its_origin_and_survives_json() {
    for entry in
        std::fs::read_dir(format!("{}/tests/machines", env!("CARGO_MANIFEST_DIR"))).unwrap()
    {
        let path = entry.unwrap().path();
        let about: Description =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert!(!about.source.is_empty(), "{}", path.display());
        let text = serde_json::to_string(&about).unwrap();
        assert_eq!(serde_json::from_str::<Description>(&text).unwrap(), about);
    }
}

#[test]
fn ena_takes_programs_on_half_of_its_queues_and_below_its_mtu() {
    let ena = machine("ena");
    let xdp = found(&ena, "XDP");
    assert_eq!(xdp.level, Level::Warn, "{xdp:?}");
    assert_eq!(fix(&ena, "XDP queues"), "ethtool -L ens6 combined 4");
    assert_eq!(fix(&ena, "XDP MTU"), "ip link set ens6 mtu 3498");
    // After following the advice, native XDP works and no further advice is given.
    let followed = changed("ena", |i| {
        i.mtu = 3498;
        i.channels.as_mut().unwrap().combined = 4;
    });
    assert_eq!(found(&followed, "XDP").level, Level::Ok);
    assert_eq!(found(&followed, "queues").level, Level::Ok);
    assert_eq!(find(&followed, "XDP queues"), None);
    assert!(found(&followed, "driver").text.contains("no zero copy"));
    // One queue is too few; the advice is at most half.
    let one = changed("ena", |i| i.channels.as_mut().unwrap().combined = 1);
    assert_eq!(fix(&one, "queues"), "ethtool -L ens6 combined 4");
}

#[test]
fn gve_wants_as_many_queues_of_both_kinds_and_no_lro() {
    let good = machine("gve");
    assert_eq!(found(&good, "XDP").level, Level::Ok);
    assert!(found(&good, "driver").text.contains("GQI-QPL"));
    let all = machine("gve_all_queues");
    assert_eq!(found(&all, "XDP").level, Level::Warn);
    assert_eq!(fix(&all, "XDP queues"), "ethtool -L ens5 rx 8 tx 8");
    assert_eq!(fix(&all, "XDP LRO"), "ethtool -K ens5 lro off");
    assert_eq!(fix(&all, "XDP MTU"), "ip link set ens5 mtu 2032");
    let uneven = changed("gve", |i| i.channels.as_mut().unwrap().tx = 4);
    assert_eq!(fix(&uneven, "XDP queues"), "ethtool -L ens5 rx 8 tx 8");
}

#[test]
fn azures_devices_have_their_limits() {
    assert_eq!(
        fix(&machine("mana"), "XDP MTU"),
        "ip link set enP1 mtu 3506"
    );
    let netvsc = machine("netvsc");
    assert!(found(&netvsc, "XDP").text.contains("Linux 5.6"));
    assert!(found(&netvsc, "driver").text.contains("virtual function"));
    let newer = Description {
        kernel: "6.8.0".into(),
        ..changed("netvsc", |i| i.offloads.push("lro".into()))
    };
    assert_eq!(fix(&newer, "XDP LRO"), "ethtool -K eth1 lro off");
}

#[test]
fn virtio_wants_spare_queue_pairs_and_no_lro() {
    let idle = |about: &mut Description| {
        let interface = about.interface.as_mut().unwrap();
        (interface.way_out, interface.host_use) = (Usage::Unused, Usage::Unused);
    };
    let mut old = machine("virtio_net");
    idle(&mut old);
    let spare = found(&old, "XDP queues");
    assert!(
        spare.text.contains("refuses XDP programs") && spare.text.contains("2 x 4"),
        "{spare:?}"
    );
    assert_eq!(spare.fix, None, "fewer queues do not help");
    assert!(found(&old, "XDP LRO").text.contains("hypervisor"));
    let new = Description {
        kernel: "6.8.0".into(),
        ..old
    };
    assert!(found(&new, "XDP queues").text.contains("under a lock"));
    // Enough pairs, and the advice leaves those free that XDP needs.
    let spare = machine("virtio_net_spare");
    assert_eq!(find(&spare, "XDP queues"), None);
    assert_eq!(found(&spare, "queues").level, Level::Ok);
    assert_eq!(found(&spare, "XDP").text, "native, with zero copy");
    let all = changed("virtio_net_spare", |i| {
        i.channels.as_mut().unwrap().combined = 4
    });
    assert_eq!(fix(&all, "XDP queues"), "ethtool -L eth1 combined 2");
}

#[test]
fn cards_of_data_centres_have_their_limits() {
    let mlx5 = machine("mlx5");
    assert_eq!(fix(&mlx5, "XDP MTU"), "ip link set ens1f0np0 mtu 3498");
    let ixgbe = machine("ixgbe");
    assert_eq!(fix(&ixgbe, "XDP MTU"), "ip link set enp3s0f0 mtu 3050");
    assert_eq!(fix(&ixgbe, "XDP LRO"), "ethtool -K enp3s0f0 lro off");
    for card in ["ice", "i40e", "ixgbe"] {
        assert!(
            found(&machine(card), "driver")
                .text
                .contains("some seconds"),
            "{card}"
        );
    }
    for card in ["ice", "i40e"] {
        assert_eq!(found(&machine(card), "XDP").level, Level::Ok, "{card}");
    }
    let vmxnet3 = machine("vmxnet3");
    assert!(found(&vmxnet3, "XDP").text.contains("Linux 6.6"));
}

/// A reported command must not cut the host off from its network.
#[test]
fn no_command_acts_on_an_interface_that_the_host_uses() {
    let used = [
        (
            Usage::Used("the default route leaves by this interface".into()),
            Usage::Unused,
        ),
        (
            Usage::Unused,
            Usage::Used("the host uses it (10.0.0.1/24)".into()),
        ),
        (Usage::Unknown("no permission".into()), Usage::Unused),
        (Usage::Unused, Usage::Unknown("no permission".into())),
    ];
    for entry in
        std::fs::read_dir(format!("{}/tests/machines", env!("CARGO_MANIFEST_DIR"))).unwrap()
    {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        for (way_out, host_use) in used.clone() {
            let about = changed(&name, |i| {
                (i.way_out, i.host_use, i.in_lab) = (way_out, host_use, false);
                i.xdp_program = Some(XdpProgram {
                    id: 7,
                    mode: XdpMode::Native,
                });
            });
            for finding in judge(&about) {
                assert_eq!(finding.fix, None, "{name}: {finding:?}");
            }
        }
    }
    // The small MTU of a cloud is a property of its network.
    let virtio = changed("virtio_net", |i| i.max_mtu = Some(65_535));
    let mtu = found(&virtio, "MTU");
    assert_eq!((mtu.level, &mtu.fix), (Level::Note, &None));
    assert!(mtu.text.contains("the network sets this MTU"), "{mtu:?}");
    let idle = changed("virtio_net", |i| {
        (i.max_mtu, i.way_out, i.host_use) = (None, Usage::Unused, Usage::Unused);
    });
    assert_eq!(fix(&idle, "MTU"), "ip link set eth0 mtu 1500");
}

#[test]
fn the_words_of_the_kernel_are_reported() {
    let refused = changed("ice", |i| {
        i.xdp.attach = Attach::Refused("MTU is too large for linear frames".into());
    });
    let xdp = found(&refused, "XDP");
    assert_eq!(xdp.level, Level::Warn);
    assert!(
        xdp.text.contains("(MTU is too large for linear frames)"),
        "{xdp:?}"
    );
    // The result of the attempt overrides the facts about the driver.
    let accepted = changed("ena", |i| i.xdp.attach = Attach::Accepted);
    assert_eq!(found(&accepted, "XDP").level, Level::Ok);
}

#[test]
fn a_large_mtu_is_named_though_the_driver_takes_it() {
    let unknown = changed("ice", |i| (i.driver, i.mtu) = ("bnxt_en".into(), 9000));
    assert_eq!(fix(&unknown, "XDP MTU"), "ip link set ens2f0 mtu 3818");
}

#[test]
fn stamps_of_the_device_are_promised_to_captures_alone() {
    let stamps = found(&machine("mlx5"), "timestamps");
    assert!(
        stamps.text.contains("captures") && stamps.text.contains("trials use those of the kernel")
    );
    let without = changed("mlx5", |i| {
        i.timestamping = Some(Timestamping {
            hardware_rx: false,
            ..i.timestamping.unwrap()
        });
    });
    assert_eq!(found(&without, "timestamps").level, Level::Note);
}

#[test]
fn commands_act_in_the_namespace_and_with_privileges() {
    let veth = machine("veth");
    assert_eq!(
        fix(&veth, "queues"),
        "ip netns exec wb-pair-a ethtool -L a0 rx 2 tx 2"
    );
    assert_eq!(
        fix(&veth, "offloads"),
        "ip netns exec wb-pair-a ethtool -K a0 tso off gro off rxvlan off"
    );
    let user = Description {
        root: false,
        ..veth
    };
    assert!(fix(&user, "queues").starts_with("sudo ip netns exec wb-pair-a "));
    let enough = changed("veth", |i| {
        i.channels = Some(Channels {
            rx: 2,
            tx: 2,
            ..i.channels.unwrap()
        });
    });
    assert_eq!(found(&enough, "queues").level, Level::Ok);
}

#[test]
fn offloads_of_a_card_that_change_no_frame_are_well() {
    let card = changed("ice", |i| i.offloads = vec!["tso".into(), "tx".into()]);
    assert_eq!(found(&card, "offloads").level, Level::Ok);
}

#[test]
fn interrupts_on_one_cpu_are_spread() {
    let irq = |number, cpu| Irq {
        number,
        name: "q".into(),
        cpus: vec![cpu],
        count: 9,
    };
    let with = |second| changed("ena", |i| i.interrupts = vec![irq(24, 0), irq(25, second)]);
    let command = fix(&with(0), "interrupts");
    assert_eq!(
        command,
        "sh -c 'echo 0 > /proc/irq/24/smp_affinity_list; echo 1 > /proc/irq/25/smp_affinity_list'"
    );
    assert_eq!(found(&with(1), "interrupts").level, Level::Ok);
}
