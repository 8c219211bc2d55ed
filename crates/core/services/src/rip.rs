//! RIPv2 updates (RFC 2453) that change the routing table of a router: two updates that alternate.

/// Prefixes that appear and disappear: documentation networks (RFC 5737), not used by any test, in sixteenths.
const FIRST: [u8; 3] = [192, 0, 2];
const SECOND: [u8; 3] = [203, 0, 113];
/// Number of subnets of each prefix; an update has room for 25 entries (RFC 2453 section 4).
const OF_EACH: u8 = 12;
/// Metric of a reachable network, and of an unreachable one.
const METRIC: u8 = 1;
const INFINITY: u8 = 16;

const RESPONSE: u8 = 2;
const VERSION: u8 = 2;

/// One of the two updates. In the first one the networks of `FIRST` are reachable and those of `SECOND` are not; the
/// second one is the opposite. Both have the same length.
#[must_use]
pub fn update(second: bool) -> Vec<u8> {
    let mut bytes = vec![RESPONSE, VERSION, 0, 0];
    for (network, is_there) in [(FIRST, !second), (SECOND, second)] {
        let [a, b, c] = network;
        let metric = if is_there { METRIC } else { INFINITY };
        for part in 0..OF_EACH {
            // Address family IPv4, no tag; address, mask, next hop: the sender.
            bytes.extend([
                0,
                2,
                0,
                0,
                a,
                b,
                c,
                part * 16,
                255,
                255,
                255,
                240,
                0,
                0,
                0,
                0,
            ]);
            bytes.extend([0, 0, 0, metric]);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_tables_of_networks_that_no_test_uses() {
        let (one, two) = (update(false), update(true));
        assert_eq!((one.len(), two.len()), (4 + 24 * 20, 4 + 24 * 20));
        assert_ne!(one, two);
        for (a, b) in one[4..].chunks(20).zip(two[4..].chunks(20)) {
            assert_eq!(a[..19], b[..19]);
            assert_eq!(u16::from(a[19]) + u16::from(b[19]), 17);
            assert!(a[4..7] == FIRST || a[4..7] == SECOND);
        }
    }
}
