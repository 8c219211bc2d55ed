//! Flow table of one receive worker: a record and a sequence window for each flow.
//!
//! Planned flows are numbered from 0 and found by their number. If the receiver does not know its flows in advance,
//! they are added when they arrive. The windows share one block of memory of fixed size: the first flows get the
//! largest windows, and all windows are halved whenever the block is full. Most flows appear at the start, when the
//! windows contain little to move.

use crate::flow::Flow;
use crate::keys::Keys;
use crate::sequence::{Arrival, WindowSize, halved_word, observe};

#[derive(Clone, Debug)]
pub(crate) struct FlowTable {
    flows: Vec<Flow>,
    /// Windows in the order of `flows`, contiguous; all zero after the last one.
    words: Vec<u64>,
    window: WindowSize,
    /// `None` if the number of a flow is its index.
    keys: Option<Keys>,
    limit: usize,
}

impl FlowTable {
    /// Creates a table with flows 0 to `flows` - 1.
    pub(crate) fn planned(flows: usize, window: WindowSize) -> FlowTable {
        FlowTable {
            flows: vec![Flow::NEW; flows],
            words: vec![0; flows * window.words()],
            window,
            keys: None,
            limit: flows,
        }
    }

    /// Creates an empty table with room for the first `limit` flows.
    pub(crate) fn open(limit: usize) -> FlowTable {
        let most = (WindowSize::MEMORY / 8).min(limit * WindowSize::MAX.words());
        FlowTable {
            flows: Vec::new(),
            // Zeroed memory costs nothing until it is touched.
            words: vec![0; most.max(limit * WindowSize::MIN.words())],
            window: WindowSize::MAX,
            keys: Some(Keys::new()),
            limit,
        }
    }

    /// Current window of every flow.
    pub(crate) fn window(&self) -> WindowSize {
        self.window
    }

    /// Returns true if flows are added when they arrive.
    pub(crate) fn is_open(&self) -> bool {
        self.keys.is_some()
    }

    /// Index of a flow; `None` if it was not planned or there is no room for it.
    #[inline]
    pub(crate) fn index_of(&mut self, flow: u32) -> Option<usize> {
        let index = match &self.keys {
            None => flow as usize,
            Some(keys) => match keys.get(flow) {
                Some(index) => index,
                None => return self.enter(flow),
            },
        };
        (index < self.flows.len()).then_some(index)
    }

    #[cold]
    fn enter(&mut self, flow: u32) -> Option<usize> {
        if self.flows.len() >= self.limit {
            return None;
        }
        while (self.flows.len() + 1) * self.window.words() > self.words.len() {
            self.halve_windows();
        }
        self.flows.push(Flow::NEW);
        self.keys.as_mut().map(|keys| keys.insert(flow))
    }

    fn halve_windows(&mut self) {
        let window = self
            .window
            .halved()
            .expect("the smallest windows of all flows fit");
        let (old, new) = (self.window.words(), window.words());
        for (index, flow) in self.flows.iter().enumerate() {
            let from = index * old;
            let used = (flow.next.div_ceil(64) as usize).min(old);
            for place in 0..used.min(new) {
                let word = halved_word(&self.words[from..from + old], flow.next, place);
                self.words[index * new + place] = word;
            }
            // The first flow stays in place; all others have moved to before their old place.
            let kept = if index == 0 { used.min(new) } else { 0 };
            self.words[from + kept..from + used].fill(0);
        }
        self.window = window;
    }

    /// Records an arrival in its flow.
    #[inline]
    pub(crate) fn arrive(&mut self, index: usize, sequence: u32) -> (&mut Flow, Arrival) {
        let flow = &mut self.flows[index];
        let len = self.window.words();
        let words = &mut self.words[index * len..(index + 1) * len];
        let arrival = observe(&mut flow.next, words, sequence);
        (flow, arrival)
    }

    /// All flows with their numbers, in the order of the indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Flow)> {
        let keys = self.keys.as_ref().map(Keys::flows);
        self.flows
            .iter()
            .enumerate()
            .map(move |(index, flow)| match keys {
                Some(keys) => (keys[index], flow),
                None => (index as u32, flow),
            })
    }

    /// Number of the flow with this index.
    pub(crate) fn number_of(&self, index: usize) -> u32 {
        match &self.keys {
            Some(keys) => keys.flows()[index],
            None => index as u32,
        }
    }

    /// Returns the flow with this number, if known.
    pub(crate) fn get(&self, flow: u32) -> Option<&Flow> {
        let index = match &self.keys {
            None => flow as usize,
            Some(keys) => keys.get(flow)?,
        };
        self.flows.get(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::SequenceTracker;
    use proptest::prelude::*;

    #[test]
    fn planned_flows_are_those_below_the_number() {
        let mut table = FlowTable::planned(3, WindowSize::MIN);
        assert_eq!(table.index_of(2), Some(2));
        assert_eq!(table.index_of(3), None);
        assert_eq!(table.index_of(u32::MAX), None);
        assert_eq!(FlowTable::planned(0, WindowSize::MIN).index_of(0), None);
    }

    #[test]
    fn flows_enter_up_to_the_limit() {
        let mut table = FlowTable::open(2);
        assert_eq!(table.index_of(900), Some(0));
        assert_eq!(table.index_of(7), Some(1));
        assert_eq!(table.index_of(8), None);
        assert_eq!(table.index_of(900), Some(0));
        assert_eq!(
            table.iter().map(|(flow, _)| flow).collect::<Vec<_>>(),
            [900, 7]
        );
    }

    #[test]
    fn windows_shrink_as_flows_enter() {
        let mut table = FlowTable::open(3000);
        for flow in 0..3000 {
            let index = table.index_of(flow).unwrap();
            assert_eq!(
                table.arrive(index, 5).1,
                Arrival::InOrder { gap: 5 },
                "flow {flow}"
            );
            assert_eq!(table.arrive(index, 3).1, Arrival::Reordered);
        }
        assert_eq!(table.window().get(), 1 << 17);
        for flow in 0..3000 {
            let index = table.index_of(flow).unwrap();
            assert_eq!(table.arrive(index, 3).1, Arrival::Duplicate, "flow {flow}");
            assert_eq!(table.arrive(index, 4).1, Arrival::Reordered, "flow {flow}");
        }
    }

    fn small(flows: usize, window: WindowSize) -> FlowTable {
        FlowTable {
            keys: Some(Keys::new()),
            ..FlowTable::planned(flows, window)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// After halving, every flow behaves like one that had the small window from the start.
        #[test]
        fn halving_forgets_only_the_older_half(
            arrivals in prop::collection::vec((0usize..3, 0u32..6000), 1..60),
            stretch in 0u32..200,
        ) {
            let large = WindowSize::new(4096).unwrap();
            let mut table = small(4, large);
            table.flows.truncate(3);
            let mut judges = vec![SequenceTracker::new(large.halved().unwrap()); 3];
            for (flow, sequence) in arrivals {
                for sequence in sequence..sequence + stretch {
                    table.arrive(flow, sequence);
                    judges[flow].observe(sequence);
                }
            }
            table.halve_windows();
            for (flow, judge) in judges.iter_mut().enumerate() {
                let next = judge.highest().map_or(0, |highest| highest as u32 + 1);
                prop_assert_eq!(u64::from(next), table.flows[flow].next);
                for sequence in next.saturating_sub(2100)..next + 100 {
                    let arrival = table.arrive(flow, sequence).1;
                    // A number between the two window sizes may or may not have been remembered; now it is not.
                    prop_assert_eq!(arrival, judge.observe(sequence), "flow {} {}", flow, sequence);
                }
            }
            prop_assert!(table.words[3 * table.window.words()..].iter().all(|&word| word == 0));
        }
    }
}
