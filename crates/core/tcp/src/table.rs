//! Connection table: records in chunks, and an index from hash to record number.
//!
//! The index uses open addressing with linear probing. An entry contains 32 bits of the hash and the record number, so
//! a miss, closing a gap, and growing do not access records. Each insertion during growth moves a few entries, and
//! records never move, so no insertion takes long.

use crate::addr::Addr;
use crate::connection::{Conn, Key};
use crate::timer::{NONE, TimerLink, TimerLinks, UNLINKED};

const CHUNK: usize = 1 << 12;

/// Records by number, in chunks that never move.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    chunks: Vec<Box<[Conn; CHUNK]>>,
    free: u32,
    used: u32,
}

impl Slab {
    fn new() -> Self {
        Self {
            chunks: Vec::new(),
            free: NONE,
            used: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn get(&mut self, id: u32) -> &mut Conn {
        &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }

    /// Number of records allocated, used or free.
    pub(crate) fn extent(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }

    fn grow(&mut self) {
        let base = self.extent();
        let mut chunk: Box<[Conn; CHUNK]> = vec![Conn::FREE; CHUNK]
            .into_boxed_slice()
            .try_into()
            .expect("made with this length");
        for (i, conn) in chunk.iter_mut().enumerate() {
            conn.link.next = base + i as u32 + 1;
        }
        chunk[CHUNK - 1].link.next = self.free;
        self.free = base;
        self.chunks.push(chunk);
    }

    fn allocate(&mut self) -> u32 {
        if self.free == NONE {
            self.grow();
        }
        let id = self.free;
        self.free = self.get(id).link.next;
        self.used += 1;
        id
    }

    fn give_back(&mut self, id: u32) {
        let free = self.free;
        let conn = self.get(id);
        conn.link = TimerLink {
            next: free,
            prev: UNLINKED,
            due: 0,
        };
        self.free = id;
        self.used -= 1;
    }
}

impl TimerLinks for Slab {
    #[inline]
    fn link(&mut self, record: u32) -> &mut TimerLink {
        &mut self.get(record).link
    }
}

/// Index entry: 0 if empty, otherwise the hash (upper half) and the record number plus one (lower half).
type BucketEntry = u64;

#[derive(Debug, Default)]
struct Buckets {
    entries: Vec<BucketEntry>,
    used: usize,
}

impl Buckets {
    fn with_buckets(buckets: usize) -> Self {
        Self {
            entries: vec![0; buckets],
            used: 0,
        }
    }

    #[inline]
    fn mask(&self) -> usize {
        self.entries.len() - 1
    }

    #[inline]
    fn insert(&mut self, entry: BucketEntry) {
        let mask = self.mask();
        let mut at = (entry >> 32) as usize & mask;
        while self.entries[at] != 0 {
            at = (at + 1) & mask;
        }
        self.entries[at] = entry;
        self.used += 1;
    }

    #[inline]
    fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<usize> {
        if self.used == 0 {
            return None;
        }
        let mask = self.mask();
        let mut at = hash as usize & mask;
        loop {
            let entry = self.entries[at];
            if entry == 0 {
                return None;
            }
            if (entry >> 32) as u32 == hash && is_it(entry as u32 - 1) {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
    }

    /// Empties a bucket and closes the gap by moving displaced entries back.
    #[inline]
    fn remove(&mut self, mut gap: usize) {
        let mask = self.mask();
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let entry = self.entries[at];
            if entry == 0 {
                break;
            }
            let home = (entry >> 32) as usize & mask;
            // An entry may move back only if its home is not between the gap and itself.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.entries[gap] = entry;
                gap = at;
            }
        }
        self.entries[gap] = 0;
        self.used -= 1;
    }
}

/// Connections of one worker.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    pub(crate) slab: Slab,
    now: Buckets,
    /// Index before it grew; its entries move step by step.
    old: Buckets,
    cursor: usize,
    /// Secret of the hash; unknown to peers.
    secret: [u64; 3],
}

impl ConnectionTable {
    /// Creates a table with an index that first grows after `expected` connections. The key determines which tuples
    /// collide.
    pub(crate) fn new(expected: u32, key: u64) -> Self {
        let buckets = (expected as usize * 4 / 3).max(64).next_power_of_two();
        Self {
            slab: Slab::new(),
            now: Buckets::with_buckets(buckets),
            old: Buckets::default(),
            cursor: 0,
            secret: secrets(key),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.slab.used
    }

    /// Memory of records and index, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.slab.chunks.len() * CHUNK * size_of::<Conn>()
            + (self.now.entries.len() + self.old.entries.len()) * size_of::<BucketEntry>()
    }

    /// Hash of the complete tuple; the upper half is used for sequence numbers.
    #[inline]
    pub(crate) fn hash(&self, key: &Key) -> u64 {
        let (high, low) = key.remote.halves();
        let rest = u64::from(key.local) << 32 | u64::from(key.ports);
        let [a, b, c] = self.secret;
        // A factor of 0 would cancel all others. With 64-bit secrets, peers cannot construct a tuple that produces one.
        fold(fold(low ^ a, rest ^ b) ^ high, c)
    }

    /// Returns the connection of a tuple with the given hash.
    #[inline]
    pub(crate) fn find(&mut self, key: &Key, hash: u64) -> Option<u32> {
        let slab = &mut self.slab;
        if let Some(at) = self.now.find(hash as u32, |id| slab.get(id).key == *key) {
            return Some(self.now.entries[at] as u32 - 1);
        }
        let at = self.old.find(hash as u32, |id| slab.get(id).key == *key)?;
        Some(self.old.entries[at] as u32 - 1)
    }

    /// Address of the first index entry to search for a hash.
    #[inline]
    pub(crate) fn place(&self, hash: u64) -> *const u8 {
        std::ptr::from_ref(&self.now.entries[hash as usize & self.now.mask()]).cast()
    }

    /// Prefetches both ends of the record in the first entry, which is probably the one of the hash.
    #[inline(always)]
    pub(crate) fn fetch_record(&mut self, hash: u64, fetch: impl Fn(*const u8)) {
        let entry = self.now.entries[hash as usize & self.now.mask()];
        if entry != 0 {
            let conn = self.slab.get(entry as u32 - 1);
            fetch(std::ptr::from_ref(conn).cast());
            fetch(std::ptr::from_ref(&conn.side_record).cast());
        }
    }

    /// Allocates a record for a tuple that is not in the table.
    #[inline]
    pub(crate) fn insert(&mut self, key: Key, hash: u64) -> u32 {
        if (self.now.used + self.old.used) * 8 >= self.now.entries.len() * 7 {
            self.grow();
        }
        if self.old.used > 0 {
            self.migrate(16);
        }
        let id = self.slab.allocate();
        self.now
            .insert((hash & 0xffff_ffff) << 32 | u64::from(id + 1));
        let conn = self.slab.get(id);
        // A record may still be in the machine's queue after its connection has ended.
        let queued = conn.is_queued();
        *conn = Conn::FREE;
        conn.key = key;
        conn.set_queued(queued);
        id
    }

    /// Removes a connection with the given hash. Its timer must not be running.
    #[inline]
    pub(crate) fn remove(&mut self, id: u32, hash: u64) {
        let hash = hash as u32;
        if let Some(at) = self.now.find(hash, |other| other == id) {
            self.now.remove(at);
        } else if let Some(at) = self.old.find(hash, |other| other == id) {
            self.old.remove(at);
        }
        self.slab.give_back(id);
    }

    fn grow(&mut self) {
        // Growth is complete before the next one starts, because each insertion moves sixteen entries. If not, move the
        // rest at once.
        self.migrate(usize::MAX);
        let bigger = Buckets::with_buckets(self.now.entries.len() * 2);
        self.old = std::mem::replace(&mut self.now, bigger);
        self.cursor = 0;
    }

    fn migrate(&mut self, steps: usize) {
        for _ in 0..steps {
            if self.old.used == 0 {
                self.old = Buckets::default();
                return;
            }
            let entry = self.old.entries[self.cursor];
            if entry == 0 {
                self.cursor = (self.cursor + 1) & self.old.mask();
            } else {
                self.old.remove(self.cursor);
                self.now.insert(entry);
            }
        }
    }
}

/// Derives three numbers from one; every bit depends on all bits of the key (splitmix64).
fn secrets(key: u64) -> [u64; 3] {
    [1, 2, 3].map(|i: u64| {
        let mut z = key.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        // An odd factor loses no bits.
        (z ^ z >> 31) | 1
    })
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Key {
    /// Creates the key from the local point of view.
    #[inline]
    pub(crate) fn new(remote: Addr, local: u32, remote_port: u16, local_port: u16) -> Self {
        Self {
            remote,
            local,
            ports: u32::from(remote_port) << 16 | u32::from(local_port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// The table agrees with a HashMap while it grows and shrinks.
        #[test]
        fn holds_what_a_map_holds(steps in prop::collection::vec((any::<bool>(), 0u16..600), 1..3000)) {
            let mut table = ConnectionTable::new(0, 7);
            let mut model = HashMap::new();
            for (insert, number) in steps {
                let key = Key::new(Addr::v4(u32::from(number) & 3), 0, number, 80);
                let hash = table.hash(&key);
                let found = table.find(&key, hash);
                prop_assert_eq!(found, model.get(&number).copied());
                match found {
                    None if insert => {
                        model.insert(number, table.insert(key, hash));
                    }
                    Some(id) if !insert => {
                        table.remove(id, hash);
                        model.remove(&number);
                    }
                    _ => {}
                }
                prop_assert_eq!(table.len() as usize, model.len());
            }
            for (number, id) in model {
                let key = Key::new(Addr::v4(u32::from(number) & 3), 0, number, 80);
                prop_assert_eq!(table.find(&key, table.hash(&key)), Some(id));
            }
        }
    }

    /// Maximum probe length, with `n` connections to each of some servers.
    fn longest_search(table: &mut ConnectionTable, remotes: &[&str], n: u16) -> usize {
        for remote in remotes {
            let remote = remote.parse::<std::net::IpAddr>().unwrap().into();
            for port in 0..n {
                let key = Key::new(remote, 0, 80, 1024 + port);
                let hash = table.hash(&key);
                table.insert(key, hash);
            }
        }
        let buckets = &table.now;
        let length = |(at, entry): (usize, &BucketEntry)| {
            at.wrapping_sub((entry >> 32) as usize & buckets.mask()) & buckets.mask()
        };
        let taken = buckets.entries.iter().enumerate().filter(|(_, e)| **e != 0);
        taken.map(length).max().unwrap_or(0)
    }

    #[test]
    fn no_address_is_special() {
        let all = [
            "fd00::1",
            "fd00::2",
            "::",
            "::1",
            "fd00:1::1",
            "198.19.1.2",
            "0.0.0.0",
        ];
        for key in [0, 1, 2, u64::MAX, 0x9e37_79b9_7f4a_7c15] {
            for remote in all {
                let mut table = ConnectionTable::new(16_384, key);
                let longest = longest_search(&mut table, &[remote], 10_000);
                assert!(longest < 200, "{remote}, key {key}: {longest} places");
            }
        }
    }

    #[test]
    fn the_key_decides_who_shares_a_place() {
        let key = Key::new(Addr::v4(1), 0, 80, 1024);
        let hashes: std::collections::HashSet<_> = (0..1000)
            .map(|k| ConnectionTable::new(0, k).hash(&key))
            .collect();
        assert_eq!(hashes.len(), 1000);
    }

    #[test]
    fn a_connection_takes_less_than_128_bytes() {
        let mut table = ConnectionTable::new(0, 1);
        let mut worst = 0.0f64;
        for n in 0..400_000u32 {
            let key = Key::new(Addr::v4(n), 0, 1, 80);
            let hash = table.hash(&key);
            table.insert(key, hash);
            // Below a few thousand connections the chunk size dominates.
            if n > 200_000 {
                worst = worst.max(table.memory() as f64 / f64::from(n + 1));
            }
        }
        assert!(worst <= 128.0, "{worst} bytes");
    }
}
