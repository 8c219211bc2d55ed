//! Interfaces followed from reading to reading: what they counted in each interval and in all, whatever becomes of
//! them meanwhile.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{LinkCounters, LinkRates};

/// What rates depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The link's speed, in bits per second; unknown without carrier.
    pub speed_bps: Option<u64>,
    /// No wire sets the pace, so the speed is a figure of speech.
    pub nominal: bool,
    /// One direction at a time.
    pub half_duplex: bool,
    /// It carries Ethernet frames.
    pub ethernet: bool,
    /// Its byte counters include the FCS, against the kernel's rule.
    pub counts_fcs: bool,
    /// It is up and there is somebody at the other end.
    pub running: bool,
}

/// An interface at an instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkReading {
    /// The namespace it is in, by whatever number its reader gives those; and its index there.
    pub id: (usize, u32),
    /// Its name now: `IF` or `NODE/IF`.
    pub name: String,
    /// When it was read (`CLOCK_MONOTONIC`).
    pub at_ns: u64,
    /// What rates depend on.
    pub facts: Facts,
    /// What it has counted.
    pub counters: LinkCounters,
}

/// What an interval is to an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// It was there before and is there now.
    #[default]
    Steady,
    /// It appeared in this interval.
    New,
    /// It went in this interval.
    Gone,
    /// Its counters were set back in this interval, so nobody knows what they rose by.
    Reset,
}

/// An interface in an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkInterval {
    /// Its name at the end: `IF` or `NODE/IF`.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// What the interval is to it.
    pub state: LinkState,
    /// Its name before, if it was renamed.
    pub renamed_from: Option<String>,
    /// Time between its two readings.
    pub seconds: f64,
    /// What it counted between them; nothing but in state `Steady`.
    pub counted: Option<LinkCounters>,
    /// Its facts at the end.
    pub facts: Facts,
    /// Its packets a second, smoothed; nothing before its first rates.
    pub smooth: Option<Smooth>,
}

/// Packets per second, smoothed over 1, 10 and 60 seconds: after such a time, what was before counts for 1/e.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Smooth {
    /// Received.
    pub rx_pps: [f64; 3],
    /// Sent.
    pub tx_pps: [f64; 3],
}

impl Smooth {
    const OVER_S: [f64; 3] = [1.0, 10.0, 60.0];

    /// The next, after an interval with these rates. The first is that interval's.
    fn next(before: Option<Self>, rates: &LinkRates, seconds: f64) -> Self {
        let Some(before) = before else {
            return Self {
                rx_pps: [rates.rx_pps; 3],
                tx_pps: [rates.tx_pps; 3],
            };
        };
        let step = |old: [f64; 3], new: f64| {
            std::array::from_fn(|n| new + (old[n] - new) * (-seconds / Self::OVER_S[n]).exp())
        };
        Self {
            rx_pps: step(before.rx_pps, rates.rx_pps),
            tx_pps: step(before.tx_pps, rates.tx_pps),
        }
    }
}

impl LinkInterval {
    /// Its rates; nothing but in state `Steady`.
    #[must_use]
    pub fn rates(&self) -> Option<LinkRates> {
        let counted = self.counted.as_ref()?;
        Some(LinkRates::new(counted, self.seconds, &self.facts))
    }
}

/// An interface over all intervals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkTotal {
    /// The intervals that say something, added up: what it counted in the time they took, so that its rates are
    /// those of the whole and no mean of means.
    pub whole: LinkInterval,
    /// Intervals that say something.
    pub intervals: u64,
    /// Resets.
    pub resets: u64,
    /// Least and most packets a second received.
    pub rx_pps: Option<(f64, f64)>,
    /// Least and most packets a second sent.
    pub tx_pps: Option<(f64, f64)>,
}

/// Follows interfaces.
#[derive(Clone, Debug, Default)]
pub struct Series {
    last: BTreeMap<(usize, u32), LinkReading>,
    totals: BTreeMap<(usize, u32), LinkTotal>,
    /// In the order in which they were seen first.
    order: Vec<(usize, u32)>,
    begun: bool,
}

fn widen(range: &mut Option<(f64, f64)>, value: f64) {
    let (least, most) = range.unwrap_or((value, value));
    *range = Some((least.min(value), most.max(value)));
}

impl Series {
    /// Takes a reading of all interfaces that there are, in any order that is to be kept, and says what each was in
    /// the interval since the one before. The first reading has none.
    pub fn next(&mut self, readings: Vec<LinkReading>) -> Vec<LinkInterval> {
        let mut last = std::mem::take(&mut self.last);
        let mut intervals = Vec::new();
        for reading in readings {
            let before = last.remove(&reading.id);
            if self.begun {
                let mut interval = between(before.as_ref(), &reading);
                interval.smooth = self.note(reading.id, &interval);
                intervals.push(interval);
            }
            self.last.insert(reading.id, reading);
        }
        for (id, gone) in last {
            let interval = LinkInterval {
                name: gone.name,
                index: gone.id.1,
                state: LinkState::Gone,
                facts: gone.facts,
                ..LinkInterval::default()
            };
            self.note(id, &interval);
            intervals.push(interval);
        }
        self.begun = true;
        intervals
    }

    /// Adds an interval to the whole. Returns what is smoothed.
    fn note(&mut self, id: (usize, u32), interval: &LinkInterval) -> Option<Smooth> {
        let order = &mut self.order;
        let total = self.totals.entry(id).or_insert_with(|| {
            order.push(id);
            LinkTotal::default()
        });
        total.whole.name.clone_from(&interval.name);
        total.whole.index = interval.index;
        total.whole.state = interval.state;
        total.resets += u64::from(interval.state == LinkState::Reset);
        let Some((counted, rates)) = interval.counted.as_ref().zip(interval.rates()) else {
            return total.whole.smooth;
        };
        let smooth = Smooth::next(total.whole.smooth, &rates, interval.seconds);
        total.whole.smooth = Some(smooth);
        total.whole.facts = interval.facts;
        total.whole.seconds += interval.seconds;
        let before = total.whole.counted.unwrap_or_default();
        total.whole.counted = Some(before.plus(counted));
        total.intervals += 1;
        widen(&mut total.rx_pps, rates.rx_pps);
        widen(&mut total.tx_pps, rates.tx_pps);
        Some(smooth)
    }

    /// All interfaces that there were, over the whole time.
    #[must_use]
    pub fn totals(&self) -> Vec<&LinkTotal> {
        self.order.iter().map(|id| &self.totals[id]).collect()
    }
}

#[allow(clippy::cast_precision_loss)]
fn between(before: Option<&LinkReading>, now: &LinkReading) -> LinkInterval {
    let interval = LinkInterval {
        name: now.name.clone(),
        index: now.id.1,
        facts: now.facts,
        ..LinkInterval::default()
    };
    let Some(before) = before else {
        return LinkInterval {
            state: LinkState::New,
            ..interval
        };
    };
    let seconds = now.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
    let speed = now.facts.speed_bps.filter(|_| !now.facts.nominal);
    let counted = now.counters.risen(&before.counters, seconds, speed);
    LinkInterval {
        state: match counted {
            Some(_) => LinkState::Steady,
            None => LinkState::Reset,
        },
        renamed_from: (before.name != now.name).then(|| before.name.clone()),
        seconds,
        counted,
        ..interval
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reading(index: u32, name: &str, at_s: u64, rx_packets: u64) -> LinkReading {
        LinkReading {
            id: (0, index),
            name: name.to_owned(),
            at_ns: at_s * 1_000_000_000,
            counters: LinkCounters {
                rx_packets,
                ..LinkCounters::default()
            },
            ..LinkReading::default()
        }
    }

    #[test]
    fn interfaces_come_go_and_change_their_names() {
        let mut series = Series::default();
        assert_eq!(series.next(vec![reading(1, "a", 0, 1000)]), []);
        let second = series.next(vec![reading(1, "b", 2, 1500), reading(2, "c", 2, 7)]);
        assert_eq!(second[0].renamed_from.as_deref(), Some("a"));
        assert!((second[0].rates().unwrap().rx_pps - 250.0).abs() < 1e-9);
        assert_eq!((second[1].state, second[1].rates()), (LinkState::New, None));
        // The counters fall: no negative and no giant rate.
        let third = series.next(vec![reading(1, "b", 3, 10), reading(2, "c", 3, 8)]);
        assert_eq!((third[0].state, third[0].rates()), (LinkState::Reset, None));
        let fourth = series.next(vec![reading(1, "b", 4, 20)]);
        assert_eq!(fourth[0].state, LinkState::Steady);
        assert_eq!((fourth[1].state, &*fourth[1].name), (LinkState::Gone, "c"));
        // The same name with another index is another interface.
        let fifth = series.next(vec![reading(3, "b", 5, 0)]);
        assert_eq!(
            fifth.iter().map(|i| i.state).collect::<Vec<_>>(),
            [LinkState::New, LinkState::Gone]
        );
        let totals = series.totals();
        let b = totals[0];
        assert_eq!(b.whole.counted.unwrap().rx_packets, 510);
        assert!((b.whole.seconds - 3.0).abs() < 1e-9);
        assert_eq!((b.intervals, b.resets), (2, 1));
        assert_eq!(b.rx_pps, Some((10.0, 250.0)));
        assert_eq!(totals.len(), 3);
    }

    #[test]
    fn rates_are_smoothed_by_the_time_that_passed() {
        let mut series = Series::default();
        series.next(vec![reading(1, "a", 0, 0)]);
        let mut next = |at_s, packets| {
            let interval = series.next(vec![reading(1, "a", at_s, packets)]).remove(0);
            interval.smooth.unwrap().rx_pps
        };
        assert_eq!(next(1, 1000), [1000.0; 3]);
        // Two seconds of nothing are what two intervals of a second are.
        let once = next(3, 1000);
        for (n, over) in [1.0_f64, 10.0, 60.0].into_iter().enumerate() {
            assert!((once[n] - 1000.0 * (-2.0 / over).exp()).abs() < 1e-9);
        }
        let mut twice = Series::default();
        for (at_s, packets) in [(0, 0), (1, 1000), (2, 1000), (3, 1000)] {
            let interval = twice.next(vec![reading(1, "a", at_s, packets)]);
            if at_s == 3 {
                let smooth = interval[0].smooth.unwrap().rx_pps;
                assert!(smooth.iter().zip(once).all(|(a, b)| (a - b).abs() < 1e-9));
            }
        }
        // A reset leaves it as it is.
        let left = next(4, 5);
        assert_eq!(left, once);
    }

    proptest! {
        /// Without a reset the intervals add up to the last reading less the first, exactly.
        #[test]
        fn intervals_add_up(steps in prop::collection::vec((1_u64..5, 0_u64..1 << 40), 1..20)) {
            let mut series = Series::default();
            let (mut at, mut count) = (0, 5);
            series.next(vec![reading(1, "a", at, count)]);
            let mut sum = 0;
            for (step, rise) in steps {
                (at, count) = (at + step, count + rise);
                sum += series.next(vec![reading(1, "a", at, count)])[0].counted.unwrap().rx_packets;
            }
            prop_assert_eq!(sum, count - 5);
            prop_assert_eq!(series.totals()[0].whole.counted.unwrap().rx_packets, sum);
        }
    }
}
