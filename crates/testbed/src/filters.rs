//! Filter of the router: an ordered list of conditions; other packets are dropped.

use std::{fmt::Write as _, net::IpAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_machine::Namespace;

use crate::{Result, nft};

/// One condition of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Filter {
    /// True if matching packets are forwarded.
    pub permit: bool,
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same family.
    pub destination: IpAddr,
}

/// Makes the node forward only packets that their first matching condition permits.
pub(crate) fn apply_filters(filters: &[Filter], device: &Namespace) -> Result<()> {
    nft::load_rules(device, &filter_rules(filters))
}

/// Rules with one table per address family. All conditions have counters.
fn filter_rules(filters: &[Filter]) -> String {
    let mut text = String::new();
    for (family, v6) in [("ip", false), ("ip6", true)] {
        let _ = write!(
            text,
            "table {family} filters {{\n  chain forward {{\n    \
             type filter hook forward priority filter; policy drop;\n"
        );
        for filter in filters.iter().filter(|f| f.source.is_ipv6() == v6) {
            let Filter {
                permit,
                source,
                destination,
            } = filter;
            let verdict = if *permit { "accept" } else { "drop" };
            let _ = writeln!(
                text,
                "    {family} saddr {source} {family} daddr {destination} counter {verdict}"
            );
        }
        text.push_str("  }\n}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_stand_in_their_order_and_the_rest_is_dropped() {
        let filter = |permit, source: &str, destination: &str| Filter {
            permit,
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        };
        let text = filter_rules(&[
            filter(false, "198.18.1.2", "198.19.100.2"),
            filter(true, "198.18.1.2", "198.19.1.2"),
            filter(true, "2001:2:0:1::2", "2001:2:0:8001::2"),
        ]);
        let expected = "table ip filters {\n  chain forward {\n    \
             type filter hook forward priority filter; policy drop;\n    \
             ip saddr 198.18.1.2 ip daddr 198.19.100.2 counter drop\n    \
             ip saddr 198.18.1.2 ip daddr 198.19.1.2 counter accept\n  }\n}\n\
             table ip6 filters {\n  chain forward {\n    \
             type filter hook forward priority filter; policy drop;\n    \
             ip6 saddr 2001:2:0:1::2 ip6 daddr 2001:2:0:8001::2 counter accept\n  }\n}\n";
        assert_eq!(text, expected);
    }
}
