//! Connection tuples: all combinations of client and server addresses and ports in a given order, computed without
//! storing them.

use crate::addr::{Addr, Pool};

/// Addresses and ports of a future connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Index of the client address in its pool.
    pub client: u32,
    /// Source port.
    pub client_port: u16,
    /// Index of the server address in its pool.
    pub server: u32,
    /// Destination port.
    pub server_port: u16,
}

/// Order of the tuples. All orders visit every tuple once before any repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TupleSequence {
    /// Server address varies fastest, then server port, client port, client address.
    Sequential,
    /// Every n-th tuple of the sequential order. A stride that shares a factor with the number of tuples is raised
    /// until it does not, so that all tuples are visited.
    Stride(u64),
    /// Pseudo-random permutation with a seed.
    Random(u64),
}

/// Selects the tuples of one worker so that answers arrive at that worker.
#[derive(Clone, Debug, Default)]
pub enum Steering {
    /// All tuples.
    #[default]
    All,
    /// Tuples with `client_port % workers == mine`.
    ClientPort {
        /// Number of workers; 0 counts as 1.
        workers: u16,
        /// Index of this worker, from 0.
        mine: u16,
    },
    /// Tuples with answers that the NIC delivers to the queue of this worker.
    Hash(Box<ReceiveHash>),
}

/// Receive hash of a NIC (RSS): Toeplitz hash over addresses and ports, and the indirection table.
#[derive(Clone, Debug)]
pub struct ReceiveHash {
    /// Hash key as reported by the NIC.
    pub key: [u8; 52],
    /// Queue by low bits of the hash; the length is a power of two.
    pub queues: Vec<u16>,
    /// Queue of this worker.
    pub mine: u16,
}

impl ReceiveHash {
    /// Hash of a packet from `src` to `dst`.
    pub fn hash(&self, src: Addr, dst: Addr, sport: u16, dport: u16) -> u32 {
        let mut input = [0; 36];
        let len = if src.is_v4() {
            input[..4].copy_from_slice(&src.v4_bits().to_be_bytes());
            input[4..8].copy_from_slice(&dst.v4_bits().to_be_bytes());
            8
        } else {
            input[..16].copy_from_slice(&src.to_bits().to_be_bytes());
            input[16..32].copy_from_slice(&dst.to_bits().to_be_bytes());
            32
        };
        input[len..len + 2].copy_from_slice(&sport.to_be_bytes());
        input[len + 2..len + 4].copy_from_slice(&dport.to_be_bytes());
        let mut hash = 0;
        let mut window = u32::from_be_bytes([self.key[0], self.key[1], self.key[2], self.key[3]]);
        for (i, byte) in input[..len + 4].iter().enumerate() {
            let next = self.key[i + 4];
            for bit in (0..8).rev() {
                if byte >> bit & 1 == 1 {
                    hash ^= window;
                }
                window = window << 1 | u32::from(next >> bit & 1);
            }
        }
        hash
    }

    /// Receive queue of a packet from `src` to `dst`.
    pub fn queue(&self, src: Addr, dst: Addr, sport: u16, dport: u16) -> Option<u16> {
        let hash = self.hash(src, dst, sport, dport) as usize;
        let mask = self.queues.len().checked_sub(1)?;
        self.queues.get(hash & mask).copied()
    }
}

/// Endless sequence of the tuples of one worker.
#[derive(Clone, Debug)]
pub struct Tuples {
    clients: Pool,
    servers: Pool,
    first_port: u16,
    port_step: u16,
    client_ports: u64,
    first_server_port: u16,
    server_ports: u64,
    total: u64,
    cursor: u64,
    order: TupleSequence,
    half_bits: u32,
    hash: Option<Box<ReceiveHash>>,
}

/// Maximum number of tuples of other workers that are skipped in one search.
const MOST_PASSED: u32 = 4096;

impl Tuples {
    /// Creates all combinations of the pools and the inclusive port ranges. Returns None if this worker has none, or if
    /// there are more than 2^62.
    pub fn new(
        clients: Pool,
        client_ports: (u16, u16),
        mut servers: Pool,
        server_ports: (u16, u16),
        order: TupleSequence,
        steering: Steering,
    ) -> Option<Self> {
        let (workers, mine) = match steering {
            Steering::ClientPort { workers, mine } => (workers.max(1), mine),
            _ => (1, 0),
        };
        let (low, high) = (u32::from(client_ports.0), u32::from(client_ports.1));
        let step = u32::from(workers);
        let first = low + (u32::from(mine) + step - low % step) % step;
        if first > high || mine >= workers || server_ports.0 > server_ports.1 {
            return None;
        }
        let client_ports = u64::from((high - first) / step + 1);
        let server_port_count = u64::from(server_ports.1 - server_ports.0) + 1;
        let total = u128::from(clients.len())
            * u128::from(client_ports)
            * u128::from(servers.len())
            * u128::from(server_port_count);
        if total == 0 || total > 1 << 62 {
            return None;
        }
        let total = total as u64;
        let order = match order {
            TupleSequence::Stride(stride) => {
                let mut stride = stride.max(1) % total;
                while gcd(stride, total) != 1 {
                    stride += 1;
                }
                TupleSequence::Stride(stride)
            }
            order => order,
        };
        servers.sort();
        Some(Self {
            clients,
            servers,
            first_port: first as u16,
            port_step: workers,
            client_ports,
            first_server_port: server_ports.0,
            server_ports: server_port_count,
            total,
            cursor: 0,
            order,
            half_bits: (64 - (total - 1).leading_zeros()).div_ceil(2).max(1),
            hash: match steering {
                Steering::Hash(hash) => Some(hash),
                _ => None,
            },
        })
    }

    /// Number of tuples; with a receive hash, the number for all workers.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Client addresses.
    pub fn clients(&self) -> &Pool {
        &self.clients
    }

    /// Server addresses.
    pub fn servers(&self) -> &Pool {
        &self.servers
    }

    /// Returns true if a server address and port belong to these tuples (of any worker).
    pub fn contains(&self, remote: Addr, remote_port: u16) -> bool {
        u64::from(remote_port.wrapping_sub(self.first_server_port)) < self.server_ports
            && self.servers.position(remote).is_some()
    }

    /// Returns the next tuple of this worker that `wanted` accepts; `wanted` also gets the server address. Returns None
    /// if all tuples, or the next 4,096, contain none.
    #[inline]
    pub fn next(&mut self, mut wanted: impl FnMut(&Tuple, Addr) -> bool) -> Option<Tuple> {
        for _ in 0..self.total.min(u64::from(MOST_PASSED)) {
            let index = match self.order {
                TupleSequence::Sequential => self.cursor,
                TupleSequence::Stride(stride) => {
                    (u128::from(self.cursor) * u128::from(stride) % u128::from(self.total)) as u64
                }
                TupleSequence::Random(seed) => self.permute(self.cursor, seed),
            };
            self.cursor += 1;
            if self.cursor == self.total {
                self.cursor = 0;
            }
            let tuple = self.at(index);
            let server = self.servers.at(tuple.server);
            if self.is_mine(&tuple, server) && wanted(&tuple, server) {
                return Some(tuple);
            }
        }
        None
    }

    #[inline]
    fn at(&self, index: u64) -> Tuple {
        let servers = u64::from(self.servers.len());
        let (index, server) = if servers == 1 {
            (index, 0)
        } else {
            (index / servers, index % servers)
        };
        let (index, server_port) = if self.server_ports == 1 {
            (index, 0)
        } else {
            (index / self.server_ports, index % self.server_ports)
        };
        let (client, client_port) = (index / self.client_ports, index % self.client_ports);
        Tuple {
            client: client as u32,
            client_port: self.first_port + (client_port * u64::from(self.port_step)) as u16,
            server: server as u32,
            server_port: self.first_server_port + server_port as u16,
        }
    }

    #[inline]
    fn is_mine(&self, tuple: &Tuple, server: Addr) -> bool {
        let Some(hash) = &self.hash else { return true };
        // Answers go from the server to the client.
        let client = self.clients.at(tuple.client);
        hash.queue(server, client, tuple.server_port, tuple.client_port) == Some(hash.mine)
    }

    /// Permutation of `0..total`: a Feistel network over the next power of four, repeated until the value is in range
    /// (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
    fn permute(&self, index: u64, seed: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let mut value = index;
        loop {
            let (mut left, mut right) = (value >> self.half_bits, value & mask);
            for round in 0..4 {
                let mixed = (right ^ seed.rotate_left(round * 16))
                    .wrapping_add(u64::from(round))
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let next =
                    left ^ ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32 & mask);
                left = right;
                right = next;
            }
            value = left << self.half_bits | right;
            if value < self.total {
                return value;
            }
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn tuples(order: TupleSequence, steering: Steering) -> Option<Tuples> {
        Tuples::new(
            Pool::range("198.18.0.1".parse().unwrap(), 3),
            (1000, 1019),
            Pool::range("198.19.0.1".parse().unwrap(), 2),
            (80, 82),
            order,
            steering,
        )
    }

    proptest! {
        #[test]
        fn every_order_visits_all_once(seed: u64, kind in 0u8..3) {
            let order = [TupleSequence::Sequential, TupleSequence::Stride(seed), TupleSequence::Random(seed)][usize::from(kind)];
            let mut tuples = tuples(order, Steering::All).unwrap();
            prop_assert_eq!(tuples.total(), 360);
            let seen: HashSet<_> = (0..360).map(|_| tuples.next(|_, _| true).unwrap()).collect();
            prop_assert_eq!(seen.len(), 360);
        }

        #[test]
        fn workers_share_the_ports(workers in 1u16..7) {
            let mut all = HashSet::new();
            for mine in 0..workers {
                let mut tuples = tuples(TupleSequence::Sequential, Steering::ClientPort { workers, mine }).unwrap();
                for _ in 0..tuples.total() {
                    let tuple = tuples.next(|_, _| true).unwrap();
                    prop_assert_eq!(tuple.client_port % workers, mine);
                    prop_assert!(all.insert(tuple));
                }
            }
            prop_assert_eq!(all.len(), 360);
        }
    }

    #[test]
    fn sequential_is_the_stated_order() {
        let mut tuples = tuples(TupleSequence::Sequential, Steering::All).unwrap();
        let mut next = || {
            let t = tuples.next(|_, _| true).unwrap();
            (t.client, t.client_port, t.server_port, t.server)
        };
        assert_eq!(
            [next(), next(), next()],
            [(0, 1000, 80, 0), (0, 1000, 80, 1), (0, 1000, 81, 0)]
        );
        assert_eq!(next(), (0, 1000, 81, 1));
    }

    #[test]
    fn what_is_not_wanted_is_passed_over() {
        let mut tuples = tuples(TupleSequence::Sequential, Steering::All).unwrap();
        assert_eq!(tuples.next(|t, _| t.client == 2).unwrap().client, 2);
        assert_eq!(tuples.next(|_, _| false), None);
    }

    /// Verification values of "Receive Side Scaling", Microsoft's driver documentation: the first IPv4 and the first
    /// IPv6 line, with ports.
    #[test]
    fn the_receive_hash_is_toeplitz() {
        let mut key = [0; 52];
        key[..40].copy_from_slice(&[
            0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
            0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
            0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
        ]);
        let hash = ReceiveHash {
            key,
            queues: vec![0, 1],
            mine: 0,
        };
        let address = |text: &str| Addr::from(text.parse::<std::net::IpAddr>().unwrap());
        let of = |src, dst, sport, dport| hash.hash(address(src), address(dst), sport, dport);
        assert_eq!(
            of("66.9.149.187", "161.142.100.80", 2794, 1766),
            0x51cc_c178
        );
        assert_eq!(
            of("3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", 2794, 1766),
            0x4020_7d3d
        );
    }
}
