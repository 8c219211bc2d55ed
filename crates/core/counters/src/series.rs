//! Interfaces followed from reading to reading: what each counted per interval and in total, also if it is renamed,
//! reset or removed in between.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{LinkCounters, LinkRates};

/// Properties of a link that its rates depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkProperties {
    /// Speed of the link, in bits per second; unknown without carrier.
    pub speed_bps: Option<u64>,
    /// True if no wire limits the pace, so the speed is nominal.
    pub nominal: bool,
    /// True if the link carries one direction at a time.
    pub half_duplex: bool,
    /// True if the link carries Ethernet frames.
    pub ethernet: bool,
    /// True if the byte counters include the FCS, contrary to the kernel's rule.
    pub counts_fcs: bool,
    /// True if the interface is up and has a link partner.
    pub running: bool,
}

/// Reading of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkReading {
    /// Namespace, by any number that the reader assigns, and interface index there.
    pub id: (usize, u32),
    /// Its name now: `IF` or `NODE/IF`.
    pub name: String,
    /// Time of the reading (`CLOCK_MONOTONIC`).
    pub at_ns: u64,
    /// Properties that rates depend on.
    pub facts: LinkProperties,
    /// Counters at this time.
    pub counters: LinkCounters,
}

/// State of an interface in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// Present before and now.
    #[default]
    Steady,
    /// Appeared in this interval.
    New,
    /// Disappeared in this interval.
    Gone,
    /// Counters were reset in this interval, so their increase is unknown.
    Reset,
}

/// One interface in one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkInterval {
    /// Its name at the end: `IF` or `NODE/IF`.
    pub name: String,
    /// Interface index.
    pub index: u32,
    /// State of the interface in this interval.
    pub state: LinkState,
    /// Previous name, if the interface was renamed.
    pub renamed_from: Option<String>,
    /// Time between the two readings.
    pub seconds: f64,
    /// Increase of the counters; `None` except in state `Steady`.
    pub counted: Option<LinkCounters>,
    /// Properties at the end.
    pub facts: LinkProperties,
    /// Smoothed packets per second; `None` before the first rates.
    pub smooth: Option<Smooth>,
}

/// Packets per second, smoothed over 1, 10 and 60 seconds: older values decay to 1/e in that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Smooth {
    /// Packets received per second.
    pub rx_pps: [f64; 3],
    /// Packets sent per second.
    pub tx_pps: [f64; 3],
}

impl Smooth {
    const OVER_S: [f64; 3] = [1.0, 10.0, 60.0];

    /// Returns the averages after an interval with these rates. The first averages are the rates themselves.
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
    /// Returns the rates; `None` except in state `Steady`.
    #[must_use]
    pub fn rates(&self) -> Option<LinkRates> {
        let counted = self.counted.as_ref()?;
        Some(LinkRates::new(counted, self.seconds, &self.facts))
    }
}

/// One interface over all intervals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkTotal {
    /// Sum of the intervals that count (those in state `Steady`). Its rates are therefore those of the whole time, not
    /// a mean of means.
    pub whole: LinkInterval,
    /// Number of intervals that count.
    pub intervals: u64,
    /// Number of counter resets.
    pub resets: u64,
    /// Minimum and maximum of packets received per second.
    pub rx_pps: Option<(f64, f64)>,
    /// Minimum and maximum of packets sent per second.
    pub tx_pps: Option<(f64, f64)>,
}

/// Follows interfaces from reading to reading.
#[derive(Clone, Debug, Default)]
pub struct Series {
    last: BTreeMap<(usize, u32), LinkReading>,
    totals: BTreeMap<(usize, u32), LinkTotal>,
    /// Interfaces in the order in which they first appeared.
    order: Vec<(usize, u32)>,
    begun: bool,
}

fn widen(range: &mut Option<(f64, f64)>, value: f64) {
    let (least, most) = range.unwrap_or((value, value));
    *range = Some((least.min(value), most.max(value)));
}

impl Series {
    /// Takes a reading of all interfaces and returns one interval per interface, in the order of `readings`, followed
    /// by the interfaces that have gone. The first reading returns none.
    pub fn next(&mut self, readings: Vec<LinkReading>) -> Vec<LinkInterval> {
        let mut last = std::mem::take(&mut self.last);
        let mut intervals = Vec::new();
        for reading in readings {
            let before = last.remove(&reading.id);
            if self.begun {
                let mut interval = between(before.as_ref(), &reading);
                interval.smooth = self.smooth_rates(reading.id, &interval);
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
            self.smooth_rates(id, &interval);
            intervals.push(interval);
        }
        self.begun = true;
        intervals
    }

    /// Adds an interval to the total. Returns the smoothed rates.
    fn smooth_rates(&mut self, id: (usize, u32), interval: &LinkInterval) -> Option<Smooth> {
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

    /// Returns the totals of all interfaces, in the order of first appearance.
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
        // The counters fall: the rate is neither negative nor huge.
        let third = series.next(vec![reading(1, "b", 3, 10), reading(2, "c", 3, 8)]);
        assert_eq!((third[0].state, third[0].rates()), (LinkState::Reset, None));
        let fourth = series.next(vec![reading(1, "b", 4, 20)]);
        assert_eq!(fourth[0].state, LinkState::Steady);
        assert_eq!((fourth[1].state, &*fourth[1].name), (LinkState::Gone, "c"));
        // Another index means another interface, even with the same name.
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
        // One idle interval of two seconds decays the averages as much as two of one second.
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
        // A reset does not change the averages.
        let left = next(4, 5);
        assert_eq!(left, once);
    }

    proptest! {
        /// Without a reset the intervals add up to the last reading minus the first, exactly.
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
