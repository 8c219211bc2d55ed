//! Position of one worker in the flows of a stream: the next tag flow, its sequence number and its 5-tuple.

use wb_model::{Proto, Stream};
use wb_port::offload::FlowWalk;

/// Source port, destination port, source address, destination address: the fastest first.
pub(crate) const DIGITS: usize = 4;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct FlowCursor {
    flow: u32,
    round: u64,
    digits: [u32; DIGITS],
    first: u32,
    workers: u32,
    flows: u32,
    flows_of_ours: u32,
    step: [u32; DIGITS],
    home: [u32; DIGITS],
    radix: [u32; DIGITS],
    moves: bool,
}

impl FlowCursor {
    /// Flows `worker, worker + workers, …` below `flows`, of which there is at least one.
    pub(crate) fn new(stream: &Stream, flows: u32, worker: u32, workers: u32) -> Self {
        let radix = radices(stream);
        // More workers than requested 5-tuples: some workers share one.
        let tuples = stream.tuples().min(stream.flow_count().into()).max(1);
        let tuple = |flow: u32| decompose(u128::from(flow) % tuples, radix);
        let home = tuple(worker);
        Self {
            flow: worker,
            round: 0,
            digits: home,
            first: worker,
            workers,
            flows,
            flows_of_ours: (flows - worker).div_ceil(workers),
            step: tuple(workers),
            home,
            radix,
            moves: flows > workers && tuples > 1,
        }
    }

    /// The walk as a table, from the worker's first flow on.
    pub(crate) fn walk_table(&self, first_flow: u32) -> FlowWalk {
        FlowWalk {
            first_flow,
            worker: self.first,
            workers: self.workers,
            flows: self.flows,
            home: self.home,
            step: self.step,
            radix: self.radix,
            moves: self.moves,
            one_flow: false,
        }
    }

    /// Continues from the position that a port reached with that table: this flow, after this number of rounds. The
    /// 5-tuple does not change.
    pub(crate) fn resume_at(&mut self, flow: u32, round: u64) {
        (self.flow, self.round) = (flow, round);
    }

    /// Maximum value of a digit.
    pub(crate) fn max_digit(&self, digit: usize) -> u32 {
        self.radix[digit] - 1
    }

    /// The flow of the next frame, from 0.
    #[inline]
    pub(crate) fn flow(&self) -> u32 {
        self.flow
    }

    /// Sequence number of the next frame in its flow.
    #[inline]
    pub(crate) fn sequence(&self) -> u32 {
        self.round as u32
    }

    /// Number of the next frame in a sequence from 1 over all flows and workers.
    #[inline]
    pub(crate) fn pktgen_sequence(&self) -> u32 {
        let passed = self.round * u64::from(self.flows_of_ours)
            + u64::from((self.flow - self.first) / self.workers);
        (passed * u64::from(self.workers) + u64::from(self.first) + 1) as u32
    }

    /// 5-tuple of the next frame, as offsets from the first value of each range.
    #[inline]
    pub(crate) fn tuple_offset(&self, i: usize) -> u32 {
        self.digits[i]
    }

    /// The offsets that change from flow to flow.
    pub(crate) fn changing_offsets(&self) -> [bool; DIGITS] {
        self.radix.map(|radix| self.moves && radix > 1)
    }

    /// Advances to the worker's next flow.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.flow += self.workers;
        if self.flow >= self.flows {
            self.flow = self.first;
            self.round += 1;
            if self.moves {
                self.digits = self.home;
            }
        } else if self.moves {
            self.add_step();
        }
    }

    #[inline]
    fn add_step(&mut self) {
        let mut carry = 0;
        for i in 0..DIGITS {
            let digit = self.digits[i] + self.step[i] + carry;
            carry = u32::from(digit >= self.radix[i]);
            self.digits[i] = if carry == 1 {
                digit - self.radix[i]
            } else {
                digit
            };
        }
    }

    /// Number of frames of each flow so far; 0 for flows of other workers.
    pub(crate) fn frames_per_flow(&self) -> Vec<u64> {
        (0..self.flows)
            .map(|flow| match flow % self.workers == self.first {
                true => self.round + u64::from(flow < self.flow),
                false => 0,
            })
            .collect()
    }
}

/// Values of a range beyond the number of flows are never reached.
fn radices(stream: &Stream) -> [u32; DIGITS] {
    let most = u128::from(wb_model::stream::MAX_FLOWS) * 2;
    let cut = |count: u128| count.clamp(1, most) as u32;
    let (src, dst) = (
        cut(stream.source().count()),
        cut(stream.destination().count()),
    );
    match stream.proto {
        Proto::Raw => [1; DIGITS],
        Proto::Arp => [1, 1, src, dst],
        Proto::Udp | Proto::Tcp | Proto::Icmp => [
            stream.source_ports().count(),
            stream.destination_ports().count(),
            src,
            dst,
        ],
    }
}

fn decompose(mut number: u128, radix: [u32; DIGITS]) -> [u32; DIGITS] {
    radix.map(|radix| {
        let digit = (number % u128::from(radix)) as u32;
        number /= u128::from(radix);
        digit
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn stream(sport: &str, src: &str, flows: Option<u32>) -> Stream {
        Stream {
            sport: Some(sport.parse().unwrap()),
            src: Some(src.parse().unwrap()),
            flows,
            ..Stream::default()
        }
    }

    #[test]
    fn ports_run_fastest() {
        let mut cursor = FlowCursor::new(&stream("10-12", "10.0.0.1-10.0.0.2", None), 6, 0, 1);
        let seen: Vec<_> = (0..7)
            .map(|_| {
                let now = (
                    cursor.flow(),
                    cursor.sequence(),
                    cursor.tuple_offset(0),
                    cursor.tuple_offset(2),
                );
                cursor.advance();
                now
            })
            .collect();
        assert_eq!(
            seen,
            [
                (0, 0, 0, 0),
                (1, 0, 1, 0),
                (2, 0, 2, 0),
                (3, 0, 0, 1),
                (4, 0, 1, 1),
                (5, 0, 2, 1),
                (0, 1, 0, 0)
            ]
        );
        assert_eq!(cursor.frames_per_flow(), [2, 1, 1, 1, 1, 1]);
        assert_eq!(cursor.changing_offsets(), [true, false, true, false]);
    }

    #[test]
    fn more_workers_than_flows_share_the_tuple() {
        for worker in 0..4 {
            let cursor = FlowCursor::new(&stream("10-19", "10.0.0.1", Some(1)), 4, worker, 4);
            assert_eq!(
                (
                    cursor.flow(),
                    cursor.tuple_offset(0),
                    cursor.changing_offsets()
                ),
                (worker, 0, [false; 4])
            );
        }
    }

    proptest! {
        #[test]
        fn steps_agree_with_the_number(ports in 1u16..9, addresses in 1u8..9, more in 0u32..20, workers in 1u32..5) {
            let flows = (u32::from(ports) * u32::from(addresses) + more).max(workers);
            let stream = stream(&format!("1-{ports}"), &format!("10.0.0.1-10.0.0.{addresses}"), Some(flows));
            let mut tuples = BTreeSet::new();
            for worker in 0..workers {
                let mut cursor = FlowCursor::new(&stream, flows, worker, workers);
                let ours = (flows - worker).div_ceil(workers);
                for i in 0..ours * 2 {
                    let flow = worker + (i % ours) * workers;
                    prop_assert_eq!((cursor.flow(), cursor.sequence()), (flow, i / ours));
                    let number = flow % (u32::from(ports) * u32::from(addresses));
                    prop_assert_eq!(cursor.tuple_offset(0), number % u32::from(ports));
                    prop_assert_eq!(cursor.tuple_offset(2), number / u32::from(ports));
                    tuples.insert((cursor.tuple_offset(0), cursor.tuple_offset(2)));
                    cursor.advance();
                }
            }
            prop_assert_eq!(tuples.len(), usize::from(ports) * usize::from(addresses));
        }
    }
}
