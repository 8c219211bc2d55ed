//! Updates of RIPv2 (RFC 2453) that change the table of a router: two, which take turns.

/// Networks that come and go: those for documentation (RFC 5737), which no test uses, in sixteenths.
const FIRST: [u8; 3] = [192, 0, 2];
const SECOND: [u8; 3] = [203, 0, 113];
/// So many of each; an update has room for 25 entries (RFC 2453 section 4).
const OF_EACH: u8 = 12;
/// Hops to a network that is there, and what says that it is not.
const METRIC: u8 = 1;
const INFINITY: u8 = 16;

const RESPONSE: u8 = 2;
const VERSION: u8 = 2;

/// One of the two: the networks of the first are there and those of the second are not, or the other way round. Both
/// have the same length.
pub fn update(second: bool) -> Vec<u8> {
    let mut bytes = vec![RESPONSE, VERSION, 0, 0];
    for (network, is_there) in [(FIRST, !second), (SECOND, second)] {
        let [a, b, c] = network;
        let metric = if is_there { METRIC } else { INFINITY };
        for part in 0..OF_EACH {
            // Family of IPv4, no tag; address, mask, next hop: the sender.
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
