//! Changes of single streams while they are sent: pause, continue, another rate.
//!
//! A change is an order for all workers of the stream, for a time shortly after the request. So all workers change at
//! the same time, and none of them waits.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
};

use wb_engine::steering::{ALL_SENT, SteerStreams, StreamState, StreamSteer};
use wb_figures::text::time_ns;
use wb_machine::clock::monotonic_ns;
use wb_model::{
    counted,
    units::{Rate, Rational, WIRE_OVERHEAD},
};
use wb_port::worker_loop::POLL_INTERVAL_NS;

use super::{Direction, Traffic, checks::mean_size};
use crate::{SharedCounters, StreamOrder, StreamPace, StreamSpec, TrafficControl};

/// Time from a request to the change. A worker looks for orders at least once per poll interval.
const NOTICE_NS: u64 = 2 * POLL_INTERVAL_NS;
/// Maximum number of changes of a stream that the report lists.
const LISTED_CHANGES: usize = 8;
/// Maximum number of changes in a run: workers and the report keep each of them.
const MOST_CHANGES: usize = 100_000;
/// Maximum number of changed streams that the report lists.
const LISTED_STREAMS: usize = 16;

/// A stream that can be asked to change.
#[derive(Debug)]
struct SteeredStream {
    name: String,
    /// Direction of the stream.
    direction: usize,
    /// Index in the specification of its senders.
    index: usize,
    spec: StreamSpec,
    /// Speed of the link, bits per second.
    line: Option<u64>,
    workers: Vec<Arc<SharedCounters>>,
    /// Why the stream cannot change at all.
    fixed: Option<&'static str>,
}

/// Change that was ordered.
#[derive(Clone, Debug)]
struct Change {
    stream: usize,
    /// Monotonic time; 0 for the start.
    at_ns: u64,
    what: StreamSteer,
}

/// The streams of a run, for changes.
#[derive(Debug)]
pub(super) struct StreamSteering {
    streams: Vec<SteeredStream>,
    control: Arc<TrafficControl>,
    changes: Mutex<Vec<Change>>,
}

impl StreamSteering {
    /// The streams of a run with its workers.
    pub(super) fn new(run: &Traffic) -> Self {
        let mut streams = Vec::new();
        for (number, direction) in run.directions.iter().enumerate() {
            let Some(tx) = direction.tx else { continue };
            let senders = run.slots.iter().filter(|slot| slot.sends == Some(number));
            let workers: Vec<_> = senders.map(|slot| Arc::clone(&slot.shared)).collect();
            let fixed = run.ports[tx].is_live().then_some(
                "is sent inside the kernel (live), where single streams cannot change; use xdp: or packet: for the port",
            );
            for (index, spec) in direction.streams.iter().enumerate() {
                streams.push(SteeredStream {
                    name: spec.name.clone(),
                    direction: number,
                    index,
                    spec: spec.clone(),
                    line: run.ports[tx].line_rate(),
                    workers: workers.clone(),
                    fixed,
                });
            }
        }
        Self {
            streams,
            control: Arc::clone(&run.control),
            changes: Mutex::default(),
        }
    }

    /// Returns true if a stream of this direction was changed.
    pub(super) fn has_changed(&self, direction: usize) -> bool {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changes = changes.iter();
        changes.any(|change| self.streams[change.stream].direction == direction)
    }

    /// The changes of each stream as sentences, with times since the start of the run.
    pub(super) fn warnings(&self, start_ns: u64, directions: &[Direction]) -> Vec<String> {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let several = directions.iter().filter(|d| d.tx.is_some()).count() > 1;
        let mut by_stream: BTreeMap<usize, Vec<&Change>> = BTreeMap::new();
        for change in changes.iter() {
            by_stream.entry(change.stream).or_default().push(change);
        }
        let changed = by_stream.iter().take(LISTED_STREAMS);
        let warnings = changed.filter_map(|(number, own)| {
            let stream = &self.streams[*number];
            let all: Vec<String> = own
                .iter()
                .map(|change| {
                    let at = time_ns(change.at_ns.saturating_sub(start_ns) as f64);
                    match &change.what {
                        StreamSteer::Off => format!("off at {at}"),
                        StreamSteer::On => format!("on at {at}"),
                        StreamSteer::Rate(rate) => format!("{rate} at {at}"),
                        StreamSteer::End => format!("ended at {at}"),
                    }
                })
                .collect();
            let left = all.len().saturating_sub(LISTED_CHANGES);
            let more = match left {
                0 => String::new(),
                _ => format!(", and {}", counted(left, "more change", "more changes")),
            };
            let listed = all.get(..all.len() - left)?.join(", ");
            let of = match several {
                true => format!("{}, ", directions[stream.direction].planned.name),
                false => String::new(),
            };
            let name = &stream.name;
            Some(format!(
                "{of}{name}: a client steered this stream: {listed}{more}"
            ))
        });
        let left = by_stream.len().saturating_sub(LISTED_STREAMS);
        let more = (left > 0).then(|| {
            let more = counted(left, "more stream", "more streams");
            format!("a client also steered {more}")
        });
        warnings.chain(more).collect()
    }
}

impl SteeredStream {
    /// Converts a request into the pace of the stream.
    ///
    /// # Errors
    /// The reason why the stream cannot follow.
    fn pace(&self, what: &StreamSteer) -> Result<StreamPace, String> {
        let refused = |why: &str| Err(format!("{}: {why}", self.name));
        if let Some(why) = self.fixed {
            return refused(why);
        }
        let rate = match what {
            StreamSteer::Off => return Ok(StreamPace::Off),
            StreamSteer::On => return Ok(StreamPace::On),
            StreamSteer::End => return Ok(StreamPace::End),
            StreamSteer::Rate(rate) => *rate,
        };
        let stream = &self.spec.stream;
        if self.comes_in_bursts() {
            return refused(
                "bursts and replays keep their rate; they can only be switched off and on",
            );
        }
        if self.spec.pps.is_none() || rate == Rate::Max {
            return refused(
                "full speed is no rate that can change; such a stream can only be switched off and on",
            );
        }
        let changed = wb_model::Stream {
            rate,
            ..stream.clone()
        };
        let Some(pps) = changed.frames_per_second_of(mean_size(&self.spec), self.line) else {
            return refused("a percentage needs a port with a known speed");
        };
        if pps.is_zero() || pps.numerator() > u64::MAX / 2 {
            return refused("the rate is out of range");
        }
        if let Some(line) = self.line
            && self.bits_per_second(pps) > line as f64 * 1.0001
        {
            return refused("the rate exceeds the speed of the link");
        }
        Ok(StreamPace::Even(pps))
    }

    fn comes_in_bursts(&self) -> bool {
        self.spec.replay.is_some() || self.spec.stream.burst.is_some()
    }

    /// The stream after these changes.
    fn state<'a>(&self, changes: impl Iterator<Item = &'a StreamSteer>) -> StreamState {
        let (mut is_on, mut rate) = (true, self.spec.stream.rate);
        for change in changes {
            is_on = !matches!(change, StreamSteer::Off | StreamSteer::End);
            if let StreamSteer::Rate(asked) = change {
                rate = *asked;
            }
        }
        let has_rate = !self.comes_in_bursts() && self.spec.pps.is_some() && rate != Rate::Max;
        StreamState {
            name: self.name.clone(),
            is_on,
            rate: has_rate.then(|| rate.to_string()),
            fixed: self.fixed,
        }
    }

    fn bits_per_second(&self, pps: Rational) -> f64 {
        let size = mean_size(&self.spec).as_f64() + f64::from(WIRE_OVERHEAD);
        pps.as_f64() * size * 8.0
    }
}

impl SteerStreams for StreamSteering {
    fn states(&self) -> Vec<StreamState> {
        if self.control.senders_running.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut of_stream: BTreeMap<usize, Vec<&StreamSteer>> = BTreeMap::new();
        for change in &*changes {
            of_stream
                .entry(change.stream)
                .or_default()
                .push(&change.what);
        }
        let mut names = BTreeSet::new();
        let numbered = self.streams.iter().enumerate();
        let named = numbered.filter(|(_, stream)| names.insert(stream.name.as_str()));
        let states = named.map(|(number, stream)| {
            let changes = of_stream.get(&number).into_iter().flatten();
            stream.state(changes.copied())
        });
        states.collect()
    }

    fn steer(&self, wishes: &[(String, StreamSteer)]) -> Result<(), String> {
        if self.control.senders_running.load(Ordering::Acquire) == 0 {
            return Err(ALL_SENT.to_owned());
        }
        // All are checked before any changes.
        let mut orders = Vec::new();
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        for (number, stream) in self.streams.iter().enumerate() {
            by_name.entry(&stream.name).or_default().push(number);
        }
        for (name, what) in wishes {
            let Some(named) = by_name.get(name.as_str()) else {
                let names: Vec<&str> = self.streams.iter().map(|s| s.name.as_str()).collect();
                return Err(format!(
                    "{name}: no such stream; the run has {}",
                    names.join(", ")
                ));
            };
            for number in named {
                orders.push((*number, self.streams[*number].pace(what)?, what));
            }
        }
        // Orders of all requests have the same sequence in all workers.
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.len() + orders.len() > MOST_CHANGES {
            return Err(format!(
                "the streams of a run change at most {MOST_CHANGES} times"
            ));
        }
        let at_ns = match self.control.start_at_mono_ns.load(Ordering::Acquire) {
            u64::MAX => 0,
            _ => monotonic_ns() + NOTICE_NS,
        };
        for (number, pace, what) in orders {
            let stream = &self.streams[number];
            for worker in &stream.workers {
                worker.orders.give(StreamOrder {
                    stream: stream.index,
                    at_mono_ns: at_ns,
                    pace,
                });
            }
            changes.push(Change {
                stream: number,
                at_ns,
                what: *what,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(name: &str, change: impl FnOnce(&mut SteeredStream)) -> SteeredStream {
        let mut stream = SteeredStream {
            name: name.to_owned(),
            direction: 0,
            index: 0,
            spec: StreamSpec {
                pps: Some(Rational::whole(1000)),
                ..StreamSpec::default()
            },
            line: Some(1_000_000_000),
            workers: vec![Arc::default(), Arc::default()],
            fixed: None,
        };
        change(&mut stream);
        stream
    }

    fn rate(text: &str) -> StreamSteer {
        StreamSteer::Rate(text.parse().unwrap())
    }

    #[test]
    fn a_stream_changes_or_says_why_not() {
        let plain = |_: &mut SteeredStream| {};
        let even = |pps| StreamPace::Even(Rational::whole(pps));
        assert_eq!(stream("s", plain).pace(&rate("10kpps")), Ok(even(10_000)));
        assert_eq!(
            stream("s", plain).pace(&StreamSteer::Off),
            Ok(StreamPace::Off)
        );
        let full = |s: &mut SteeredStream| s.spec.pps = None;
        assert_eq!(stream("s", full).pace(&StreamSteer::On), Ok(StreamPace::On));
        for (found, part) in [
            (stream("s", plain).pace(&rate("max")), "full speed"),
            (stream("s", plain).pace(&rate("2gbps")), "exceeds the speed"),
            (stream("s", full).pace(&rate("1kpps")), "full speed"),
            (
                stream("s", |s| s.line = None).pace(&rate("10%")),
                "known speed",
            ),
            (
                stream("s", |s| s.spec.stream.burst = Some(4)).pace(&rate("1kpps")),
                "bursts",
            ),
            (
                stream("s", |s| s.fixed = Some("is sent inside the kernel"))
                    .pace(&StreamSteer::Off),
                "inside the kernel",
            ),
        ] {
            let why = found.unwrap_err();
            assert!(
                why.starts_with("s: ") && why.contains(part),
                "{why}, not {part}"
            );
        }
    }

    #[test]
    fn all_workers_get_all_orders_or_none_gets_any() {
        let steering = StreamSteering {
            streams: vec![
                stream("a", |_| {}),
                stream("b", |s| s.fixed = Some("stays")),
                stream("a", |s| s.direction = 1),
            ],
            control: Arc::default(),
            changes: Mutex::default(),
        };
        let wish = |name: &str, what| (name.to_owned(), what);
        let all = [wish("a", rate("5pps")), wish("b", StreamSteer::Off)];
        assert!(
            steering
                .steer(&all[..1])
                .unwrap_err()
                .contains("have been sent")
        );
        steering.control.senders_running.store(1, Ordering::Relaxed);
        assert_eq!(steering.steer(&all).unwrap_err(), "b: stays");
        let unknown = steering.steer(&[wish("c", StreamSteer::On)]).unwrap_err();
        assert_eq!(unknown, "c: no such stream; the run has a, b, a");
        let given = |at: usize| {
            let workers = steering.streams[at].workers.iter();
            workers.map(|w| w.orders.since(0)).collect::<Vec<_>>()
        };
        assert!(given(0).iter().all(Vec::is_empty));

        // Before the start, a change applies from the start.
        steering.steer(&all[..1]).unwrap();
        let order = StreamOrder {
            stream: 0,
            at_mono_ns: 0,
            pace: StreamPace::Even(Rational::whole(5)),
        };
        assert_eq!(given(0), [[order], [order]]);
        assert_eq!(given(0), given(2));
        assert!(steering.has_changed(1));
        steering
            .control
            .start_at_mono_ns
            .store(9, Ordering::Relaxed);
        steering.steer(&[wish("a", StreamSteer::Off)]).unwrap();
        assert!(given(0)[0][1].at_mono_ns > monotonic_ns());

        // Each name is listed once, as it is after the changes.
        let a = |is_on| StreamState {
            name: "a".to_owned(),
            is_on,
            rate: Some("5pps".to_owned()),
            fixed: None,
        };
        // Full speed is no rate that can change.
        let b = StreamState {
            name: "b".to_owned(),
            is_on: true,
            rate: None,
            fixed: Some("stays"),
        };
        assert_eq!(steering.states(), [a(false), b.clone()]);
        steering.steer(&[wish("a", StreamSteer::On)]).unwrap();
        assert_eq!(steering.states(), [a(true), b.clone()]);
        steering.steer(&[wish("a", StreamSteer::End)]).unwrap();
        assert_eq!(steering.states(), [a(false), b]);
        steering.control.senders_running.store(0, Ordering::Relaxed);
        assert_eq!(steering.states(), []);
    }
}
