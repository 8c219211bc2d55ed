//! The kernel as a balancer: nftables rules and conntrack timeouts.

use std::fmt::Write as _;

use wb_machine::{Namespace, sysctl};

use super::{BalancerOptions, PORT, VIRTUAL};
use crate::{Result, nft};

/// Seconds for which an entry is kept after the last packet, by the name of the state. The kernel's defaults
/// are minutes and days. A load that opens thousands of connections per second would fill the
/// table with entries of closed connections.
const TIMEOUTS: [(&str, u32); 10] = [
    ("tcp_timeout_syn_sent", 10),
    ("tcp_timeout_syn_recv", 10),
    ("tcp_timeout_established", 600),
    ("tcp_timeout_fin_wait", 5),
    ("tcp_timeout_close_wait", 5),
    ("tcp_timeout_last_ack", 5),
    ("tcp_timeout_time_wait", 1),
    ("tcp_timeout_close", 1),
    ("udp_timeout", 5),
    ("udp_timeout_stream", 30),
];

/// Loads the rules and sets the timeouts.
pub(super) fn apply_rules(options: BalancerOptions, device: &Namespace) -> Result<()> {
    nft::load_rules(device, &nat_rules(options))?;
    // These keys exist once there are rules. They are unavailable in a user namespace.
    for (key, seconds) in TIMEOUTS {
        let key = format!("net/netfilter/nf_conntrack_{key}");
        let _ = sysctl::set(device, &key, &seconds.to_string());
    }
    // A packet without a connection must not start one in its middle.
    let _ = sysctl::set(device, "net/netfilter/nf_conntrack_tcp_loose", "0");
    Ok(())
}

/// Rules with a separate chain for each server, so that each has a counter of its connections (a
/// chain of type nat sees the first packet of each).
fn nat_rules(options: BalancerOptions) -> String {
    let mut text = String::from("table inet balancer {\n");
    let count = options.backends;
    for (n, (v4, v6)) in options.all_servers().enumerate() {
        let _ = write!(
            text,
            "  chain server{n} {{\n    meta nfproto ipv4 counter dnat ip to {v4}\n    \
             meta nfproto ipv6 counter dnat ip6 to {v6}\n  }}\n"
        );
    }
    let next: Vec<String> = (0..count)
        .map(|n| format!("{n} : goto server{n}"))
        .collect();
    let next = format!("numgen inc mod {count} vmap {{ {} }}", next.join(", "));
    let (v4, v6) = VIRTUAL;
    let _ = write!(
        text,
        "  chain prerouting {{\n    type nat hook prerouting priority dstnat; policy accept;\n"
    );
    for address in [format!("ip daddr {v4}"), format!("ip6 daddr {v6}")] {
        let _ = writeln!(
            text,
            "    {address} meta l4proto {{ tcp, udp }} th dport {PORT} counter {next}"
        );
    }
    // A server's packet without a connection would leave with the server's address.
    text.push_str(
        "  }\n  chain forward {\n    type filter hook forward priority filter; policy accept;\n    \
         ct state invalid counter drop\n  }\n}\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_take_turns_in_both_families() {
        let text = nat_rules(BalancerOptions {
            backends: 3,
            ..BalancerOptions::default()
        });
        let turns = "counter numgen inc mod 3 vmap { 0 : goto server0, 1 : goto server1, 2 : goto server2 }";
        assert_eq!(text.matches(turns).count(), 2, "{text}");
        for part in [
            "chain server2 {\n    meta nfproto ipv4 counter dnat ip to 198.19.2.3\n    \
             meta nfproto ipv6 counter dnat ip6 to 2001:2:0:8002::3\n  }",
            "ip daddr 198.18.1.100 meta l4proto { tcp, udp } th dport 80",
            "ip6 daddr 2001:2:0:1::100",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
