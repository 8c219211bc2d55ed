//! Driver-specific statistics (`ethtool -S`), in groups that are meaningful to a tester.

use schemars::JsonSchema;
use serde::Serialize;

/// Subject of a driver's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// The device had no buffer: the host was too slow or its ring too small. Not a loss of a device under test.
    NoBuffer,
    /// Faulty cable or optic: results are not valid.
    LinkErrors,
    /// One end requested a pause from the other.
    FlowControl,
    /// XDP programs.
    Xdp,
    /// Figures of a queue.
    Queue,
    /// Segments joined or split.
    Offload,
    /// Anything else.
    Other,
}

impl Group {
    /// Returns the group of a counter. Names differ between drivers, so the group follows from the words in the name.
    #[must_use]
    pub fn from_counter_name(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        if has(&["xdp"]) {
            Self::Xdp
        } else if has(&["pause", "xoff", "xon"]) {
            Self::FlowControl
        } else if has(&[
            "missed",
            "no_buffer",
            "nobuf",
            "out_of_buffer",
            "rx_discards",
            "no_dma_resource",
            "buff_alloc_err",
            "alloc_fail",
            "alloc_rx",
            "fifo_error",
            "hw_drop_overruns",
        ]) {
            Self::NoBuffer
        } else if has(&[
            "crc",
            "align",
            "symbol",
            "length_err",
            "fcs",
            "jabber",
            "undersize",
            "fragment",
        ]) {
            Self::LinkErrors
        } else if is_of_a_queue(&name) && !has(&["_to_", "byte_p", "octets"]) {
            Self::Queue
        } else if has(&["lro", "gro", "tso", "gso"]) {
            Self::Offload
        } else {
            Self::Other
        }
    }

    /// Returns the advice for counters of this group, if there is any.
    #[must_use]
    pub const fn advice(self) -> Option<&'static str> {
        match self {
            Self::NoBuffer => Some(
                "host too slow or receive ring too small, not loss in a device under test; enlarge the ring: ethtool -G IF rx N",
            ),
            Self::LinkErrors => Some("check cable and optics before measuring"),
            Self::FlowControl => Some(
                "pause frames reduced the sent rate; disable flow control: ethtool -A IF rx off tx off",
            ),
            _ => None,
        }
    }

    /// Heading of the group's counters.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::NoBuffer => "NIC had no buffer",
            Self::LinkErrors => "link errors",
            Self::FlowControl => "flow control",
            Self::Xdp => "XDP",
            Self::Queue => "queues",
            Self::Offload => "offloads",
            Self::Other => "driver",
        }
    }
}

/// True for names that contain a queue number: `rx_queue_3_packets`, `rx3_bytes`, `tx-0.packets`, `queue_5_rx_cnt`.
fn is_of_a_queue(name: &str) -> bool {
    let digit = |rest: &str| {
        rest.trim_start_matches(['_', '-'])
            .starts_with(|c: char| c.is_ascii_digit())
    };
    ["queue", "rx", "tx", "ch", "channel"].iter().any(|word| {
        name.match_indices(word)
            .any(|(at, _)| digit(&name[at + word.len()..]))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_drivers_find_their_group() {
        for (name, group) in [
            ("rx_missed_errors", Group::NoBuffer),
            ("rx_no_buffer_count", Group::NoBuffer),
            ("rx_out_of_buffer", Group::NoBuffer),
            ("rx_discards_phy", Group::NoBuffer),
            ("rx_no_dma_resources", Group::NoBuffer),
            ("port.rx_discards", Group::NoBuffer),
            ("rx_crc_errors", Group::LinkErrors),
            ("rx_align_errors", Group::LinkErrors),
            ("rx_symbol_err_phy", Group::LinkErrors),
            ("rx_length_errors", Group::LinkErrors),
            ("tx_flow_control_xoff", Group::FlowControl),
            ("rx_prio3_pause", Group::FlowControl),
            ("rx_queue_0_packets", Group::Queue),
            ("rx3_packets", Group::Queue),
            ("rx-7.packets", Group::Queue),
            ("queue_5_rx_cnt", Group::Queue),
            ("rx_queue_0_drops", Group::Queue),
            ("netdev_tx_3_packets", Group::Queue),
            ("netdev_rx_0_hw_gro_packets", Group::Queue),
            ("netdev_rx_0_alloc_fail", Group::NoBuffer),
            ("netdev_rx_12_hw_drop_overruns", Group::NoBuffer),
            ("rx_queue_0_xdp_packets", Group::Xdp),
            ("tx_queue_1_xdp_xmit", Group::Xdp),
            ("tx_tso_packets", Group::Offload),
            ("lro_aggregated", Group::Offload),
            ("peer_ifindex", Group::Other),
            ("rx_64_byte_packets", Group::Other),
        ] {
            assert_eq!(Group::from_counter_name(name), group, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_name_has_a_group(name in ".{0,40}") {
            let _ = Group::from_counter_name(&name).title();
        }
    }
}
