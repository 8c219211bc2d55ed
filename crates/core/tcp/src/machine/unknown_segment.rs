//! Segments without a connection: a SYN is accepted, anything else is answered with RST or dropped.

use wb_wire::tcp_flags::{ACK, FIN, RST, SYN};

use super::Machine;
use super::icmp_error::segment_size;
use crate::addr::Addr;
use crate::build::{FrameSink, SegmentHeader};
use crate::connection::{ConnectionState, Key, flag, pack};
use crate::observer::Observer;
use crate::parse::{Packet, syn_options};

impl<O: Observer> Machine<O> {
    #[inline]
    pub(super) fn unknown_segment(
        &mut self,
        now: u64,
        key: Key,
        hash: u64,
        packet: &Packet<'_>,
        sink: &mut impl FrameSink,
    ) {
        if !self.may_answer(packet) {
            self.counters.drop_unknown += 1;
            return;
        }
        let port = key.local_port();
        let listens =
            self.client.is_none() && (self.server.ports.0..=self.server.ports.1).contains(&port);
        if packet.flags & (SYN | ACK | RST | FIN) == SYN && listens && !self.finishing {
            self.accept(now, key, hash, packet, sink);
            return;
        }
        self.counters.drop_unknown += 1;
        let is_known_tuple = match &self.client {
            Some(client) => client.tuples.contains(key.remote, key.remote_port()),
            None => listens,
        };
        // dperf's table has an entry for every configured tuple; a closed one stays silent.
        let silent = if self.is_dperf {
            is_known_tuple
        } else {
            packet.flags & RST != 0
        };
        if self.config.reset_unknown && !silent {
            self.answer_reset(&key, packet, sink);
        }
    }

    /// Returns true if the source of the packet may get an answer.
    #[inline]
    pub(super) fn may_answer(&mut self, packet: &Packet<'_>) -> bool {
        let (first, last) = self.answered;
        (first..=last).contains(&packet.src) || self.is_answered(packet.src)
    }

    /// Searches the set and caches the range found, because the next packet probably comes from the same range.
    #[cold]
    fn is_answered(&mut self, address: Addr) -> bool {
        let Some(set) = &self.config.answered else {
            self.answered = (Addr::from_bits(0), Addr::from_bits(u128::MAX));
            return true;
        };
        match set.range_of(address.into()) {
            Some((first, last)) => {
                self.answered = (first.into(), last.into());
                true
            }
            None => false,
        }
    }

    fn accept(
        &mut self,
        now: u64,
        key: Key,
        hash: u64,
        packet: &Packet<'_>,
        sink: &mut impl FrameSink,
    ) {
        if self.table.len() >= self.config.most_open {
            self.counters.drop_table_full += 1;
            return;
        }
        if self.half_open >= self.config.most_half_open {
            self.counters.drop_half_open += 1;
            return;
        }
        let Some(hop) = self.hop(packet.src_mac) else {
            self.counters.drop_hops_full += 1;
            return;
        };
        self.half_open += 1;
        let options = syn_options(packet.options);
        let first = self.first_sequence(now, hash);
        let id = self.table.insert(key, hash);
        let conn = self.table.slab.get(id);
        conn.state = ConnectionState::SynReceived;
        conn.lateness = hop;
        conn.oldest = first;
        conn.next_seq = first.wrapping_add(1);
        conn.expected = packet.seq.wrapping_add(1);
        conn.window = packet.window;
        conn.packed = options.scale.map_or(0, |scale| pack::SCALE | scale);
        if options.sack && !self.is_dperf {
            conn.packed |= pack::SACK;
        }
        conn.mss = segment_size(self.config.mss, options.mss, &self.path_mss, key.remote);
        conn.cwnd = self.config.initial_window;
        conn.stamp = now;
        conn.requests = self.server.answers;
        conn.set(flag::SEND_SYN);
        self.counters.attempted += 1;
        self.counters.open += 1;
        if !packet.options.is_empty() {
            self.look_for_toa(packet);
        }
        self.output(now, id, sink);
        self.restart_timer(now, id);
    }

    pub(super) fn look_for_toa(&mut self, packet: &Packet<'_>) {
        if let Some((address, port)) = crate::original_source::toa(packet.options) {
            self.counters.toa_seen += 1;
            self.observer.source(address, port);
        }
    }

    /// Sends RST for an unacceptable segment: RFC 9293 section 3.10.7.1.
    pub(super) fn answer_reset(
        &mut self,
        key: &Key,
        packet: &Packet<'_>,
        sink: &mut impl FrameSink,
    ) {
        let Some(out) = sink.lend() else {
            self.counters.drop_no_room += 1;
            return;
        };
        let bit = |flag| u32::from(packet.flags & flag != 0);
        let numbers = bit(SYN) + bit(FIN);
        let header = if self.is_dperf {
            SegmentHeader {
                seq: 0,
                ack: packet.seq.wrapping_add(numbers),
                flags: RST | ACK,
                window: 0,
            }
        } else if packet.flags & ACK != 0 {
            SegmentHeader {
                seq: packet.ack,
                ack: 0,
                flags: RST,
                window: 0,
            }
        } else {
            let len = numbers + packet.payload.len() as u32;
            SegmentHeader {
                seq: 0,
                ack: packet.seq.wrapping_add(len),
                flags: RST | ACK,
                window: 0,
            }
        };
        let mut path = Self::path(&self.hops, &self.local, key, 0);
        if self.config.gateway.is_none() {
            path.to.0 = *packet.src_mac;
        }
        let len = self.builder.tcp(out, &path, &header, &[], 0, |_| 0);
        sink.commit(len);
        self.counters.tx_frames += 1;
        self.counters.tx_octets += len as u64;
        self.counters.tcp_tx += 1;
        self.counters.rst_tx += 1;
    }
}
