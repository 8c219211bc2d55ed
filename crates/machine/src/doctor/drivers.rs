//! Facts about network drivers that decide whether XDP works on them.
//!
//! Taken from driver sources and public reports, not from tests with the cards. If a limit depends on the kernel's
//! version, the stricter one is given.

/// Queues that a driver needs for XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XdpQueues {
    /// No condition.
    Any,
    /// At most half of the maximum may be on: each receive queue gets a transmit queue for XDP.
    Half,
    /// One spare queue pair for each CPU; without them transmission by XDP is refused before Linux 5.13, and serialised
    /// by a lock since.
    Spare,
}

/// Facts about one driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriverFacts {
    /// Name, as ethtool reports it.
    pub(crate) name: &'static str,
    /// Largest MTU at which the driver accepts an XDP program that wants each frame in one buffer, in bytes.
    pub(crate) xdp_mtu: u32,
    /// First kernel with XDP programs in this driver.
    pub(crate) since: (u32, u32),
    /// Queues that XDP needs.
    pub(crate) queues: XdpQueues,
    /// True if XDP is refused while LRO is on.
    pub(crate) lro_off: bool,
    /// Anything else that a user of XDP should know, in a sentence.
    pub(crate) note: Option<&'static str>,
}

const INTEL: &str = "zero copy sends only while an XDP program is attached, and not for some seconds after its start, \
                     while the card resets";

const FACTS: &[DriverFacts] = &[
    DriverFacts {
        name: "ena",
        xdp_mtu: 3498,
        since: (5, 6),
        queues: XdpQueues::Half,
        lro_off: false,
        note: Some(
            "no zero copy in the kernel's driver; Amazon's driver supports it since version 2.13",
        ),
    },
    DriverFacts {
        name: "gve",
        xdp_mtu: 2032,
        since: (6, 4),
        queues: XdpQueues::Half,
        lro_off: true,
        note: Some(
            "native XDP and zero copy depend on the machine type: queue format GQI-QPL supports them, DQO-RDA only with \
             recent kernels or driver 1.4.7",
        ),
    },
    DriverFacts {
        name: "mana",
        xdp_mtu: 3506,
        since: (5, 17),
        queues: XdpQueues::Any,
        lro_off: false,
        note: Some("no zero copy; frames may arrive at this device or at its netvsc device"),
    },
    DriverFacts {
        name: "hv_netvsc",
        xdp_mtu: 3506,
        since: (5, 6),
        queues: XdpQueues::Any,
        lro_off: true,
        note: Some(
            "no zero copy; XDP programs are also attached to the virtual function, which must support them",
        ),
    },
    DriverFacts {
        name: "virtio_net",
        xdp_mtu: 3506,
        since: (4, 10),
        queues: XdpQueues::Spare,
        lro_off: true,
        note: None,
    },
    DriverFacts {
        name: "mlx5_core",
        xdp_mtu: 3498,
        since: (4, 9),
        queues: XdpQueues::Any,
        lro_off: true,
        note: Some(
            "with zero copy, larger frames may reach a higher frame rate than smaller ones: measure each size",
        ),
    },
    DriverFacts {
        name: "ice",
        xdp_mtu: 3046,
        since: (5, 5),
        queues: XdpQueues::Any,
        lro_off: false,
        note: Some(INTEL),
    },
    DriverFacts {
        name: "i40e",
        xdp_mtu: 3050,
        since: (4, 13),
        queues: XdpQueues::Any,
        lro_off: false,
        note: Some(INTEL),
    },
    DriverFacts {
        name: "ixgbe",
        xdp_mtu: 3050,
        since: (4, 12),
        queues: XdpQueues::Any,
        lro_off: true,
        note: Some(INTEL),
    },
    DriverFacts {
        name: "vmxnet3",
        xdp_mtu: 3494,
        since: (6, 6),
        queues: XdpQueues::Any,
        lro_off: true,
        note: Some("no zero copy"),
    },
    DriverFacts {
        name: "veth",
        xdp_mtu: 3506,
        since: (4, 19),
        queues: XdpQueues::Any,
        lro_off: false,
        note: None,
    },
];

pub(crate) fn facts(driver: &str) -> Option<&'static DriverFacts> {
    FACTS.iter().find(|facts| facts.name == driver)
}

/// Largest MTU at which a driver accepts an XDP program that wants each frame in one buffer, in bytes; `None` if the
/// limit of the driver is not known.
#[must_use]
pub fn xdp_mtu(driver: &str) -> Option<u32> {
    facts(driver).map(|facts| facts.xdp_mtu)
}

/// Drivers that run XDP programs (kernels up to 6.18).
const NATIVE_XDP: &[&str] = &[
    "am65-cpsw-nuss",
    "atlantic",
    "bnxt_en",
    "bonding",
    "cpsw",
    "dpaa2-eth",
    "ena",
    "enetc",
    "fbnic",
    "fec",
    "fsl_dpa",
    "fsl_dpaa2_eth",
    "fsl_enetc",
    "funeth",
    "gve",
    "hv_netvsc",
    "i40e",
    "ice",
    "icssg-prueth",
    "idpf",
    "igb",
    "igc",
    "ixgbe",
    "ixgbevf",
    "lan966x-switch",
    "mana",
    "mlx4_en",
    "mlx5_core",
    "mtk_soc_eth",
    "mvneta",
    "mvpp2",
    "netkit",
    "netdevsim",
    "netsec",
    "nfp",
    "nicvf",
    "qede",
    "rvu-nicpf",
    "rvu_nicpf",
    "rvu-nicvf",
    "rvu_nicvf",
    "sfc",
    "sfc_siena",
    "st_gmac",
    "stmmac",
    "thunder-nicvf",
    "tsnep",
    "tun",
    "veth",
    "virtio_net",
    "vmxnet3",
    "xen_netfront",
    "vif",
];

/// Drivers that hand the memory of an AF_XDP socket to the device.
const ZERO_COPY: &[&str] = &[
    "fsl_dpaa2_eth",
    "dpaa2-eth",
    "gve",
    "i40e",
    "ice",
    "idpf",
    "igb",
    "igc",
    "ixgbe",
    "mlx5_core",
    "nfp",
    "rvu-nicpf",
    "rvu_nicpf",
    "st_gmac",
    "stmmac",
    "tsnep",
    "virtio_net",
];

/// True if the driver runs XDP programs, as far as known.
pub(crate) fn has_native(driver: &str) -> bool {
    NATIVE_XDP.contains(&driver)
}

/// True if the driver has zero copy, as far as known.
pub(crate) fn has_zero_copy(driver: &str) -> bool {
    ZERO_COPY.contains(&driver)
}
