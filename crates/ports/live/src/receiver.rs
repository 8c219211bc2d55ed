//! Counts the frames that arrive at a port inside the kernel: attaches the program and reads its counters.

use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::Arc;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use wb_measure::{
    Counters, FlowOutages, FlowStats, Histogram, Measurement, OUTAGE_FLOWS, Outages,
    SignedHistogram, WindowSize,
};
use wb_port::offload::{Awaited, ReceiveOffload, Refusal};
use wb_port::{Interface, PortError};

use crate::fault;
use crate::hook::{self, Hook};
use crate::object::{self, built};
use crate::shared_map::SharedMap;

/// `struct control` of account.bpf.c.
#[repr(C)]
struct Control {
    counts: u64,
    wall_offset: u64,
    drain_since: u64,
    end: u64,
    beside_others: u64,
    since: u64,
    seen: u64,
    outage_threshold: u64,
}

/// `struct histogram` of account.bpf.c.
#[repr(C)]
struct Distribution {
    clamped: u64,
    sum_low: u64,
    sum_high: u64,
    squares_low: u64,
    squares_high: u64,
    min: u64,
    max: u64,
    slots: [u64; Histogram::SLOTS],
}

/// `struct lane` of account.bpf.c.
#[repr(C)]
struct QueueAccount {
    received: u64,
    octets: u64,
    duplicates: u64,
    reordered: u64,
    late: u64,
    missing: u64,
    foreign: u64,
    foreign_octets: u64,
    beyond_window: u64,
    clock_errors: u64,
    unstamped: u64,
    ramp: u64,
    first_rx: u64,
    last_rx: u64,
    largest_gap: u64,
    after_gap: u64,
    latency: Distribution,
    ipdv_below: Distribution,
    ipdv_above: Distribution,
    inter_arrival: Distribution,
    unpaired_jitter: Distribution,
    unplanned: u64,
    pktgen: u64,
    taken: u64,
    dropped: u64,
    stale: u64,
    head: u64,
    outages: u64,
    outages_not_kept: u64,
}

const DISTRIBUTIONS: [usize; 5] = [
    offset_of!(QueueAccount, latency),
    offset_of!(QueueAccount, ipdv_below),
    offset_of!(QueueAccount, ipdv_above),
    offset_of!(QueueAccount, inter_arrival),
    offset_of!(QueueAccount, unpaired_jitter),
];
const LANE_LEN: usize = size_of::<QueueAccount>();
const FLOW_LEN: usize = FlowStats::WORDS * 8;
/// Bytes of an element of the hash map of outages, which the kernel allocates in advance: key, value and links.
const OUTAGES_LEN: u64 = 128;

/// Sizes of the accounts of a port.
#[derive(Clone, Copy, Debug)]
struct Layout {
    queues: u32,
    /// Number of flow accounts: one per flow and queue.
    accounts: u64,
    window: WindowSize,
}

impl Layout {
    fn for_counts(queues: u32, flows: u32) -> Self {
        let queues = queues.max(1);
        let accounts = u64::from(queues) * u64::from(flows.max(1));
        Self {
            queues,
            accounts,
            window: WindowSize::for_flows(usize::try_from(accounts).unwrap_or(usize::MAX)),
        }
    }

    /// Maximum number of flow accounts with outages.
    fn interrupted(&self) -> u32 {
        self.accounts.min(OUTAGE_FLOWS as u64) as u32
    }

    /// Words of 64 sequence numbers in the window of one flow.
    fn words(&self) -> u32 {
        self.window.get() / 64
    }

    fn bytes(&self) -> u64 {
        let account = FLOW_LEN as u64 + 8 * u64::from(self.words());
        let outages = u64::from(self.interrupted()) * OUTAGES_LEN;
        u64::from(self.queues) * LANE_LEN as u64 + self.accounts * account + outages
    }
}

struct Shared {
    control: SharedMap,
    lanes: SharedMap,
    flows: SharedMap,
    outages: MapHandle,
    awaited: Awaited,
    window: WindowSize,
    _hook: Hook,
    refusal: Option<String>,
}

impl Shared {
    /// Flow of the first tagged frame, if the range of flows follows from it; `None` before it.
    fn seen(&self) -> Option<u32> {
        let seen = self.control.get(offset_of!(Control, seen)).checked_sub(1)?;
        u32::try_from(seen).ok()
    }

    /// First flow, as `first_around` in account.bpf.c computes it.
    fn first_flow(&self) -> u32 {
        let Awaited {
            flows, ramp_flow, ..
        } = self.awaited;
        match self.seen() {
            Some(seen) => {
                let last = ramp_flow.saturating_sub(1).saturating_sub(flows);
                seen.saturating_sub(flows / 2).min(last)
            }
            None => self.awaited.first_flow,
        }
    }
}

/// Accounts of a port, one for each queue.
pub struct Account {
    shared: Arc<Shared>,
    queues: u32,
}

impl Account {
    /// Memory in bytes that the accounts take. Each queue has separate accounts of all flows.
    #[must_use]
    pub fn memory(queues: u32, flows: u32) -> u64 {
        Layout::for_counts(queues, flows).bytes()
    }

    /// Attaches the program to `interface`, in the network namespace of the calling thread. The program counts nothing
    /// yet, and the host receives all frames.
    ///
    /// # Errors
    /// [`PortError::Privilege`] without CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; [`PortError::Unsupported`] if the
    /// kernel lacks support or another program is attached.
    pub fn open(interface: &Interface, awaited: Awaited) -> Result<Self, PortError> {
        hook::quiet();
        let layout = Layout::for_counts(interface.rx_queues, awaited.flows);
        let (queues, window, words) = (layout.queues, layout.window, layout.words());
        let flows = awaited.flows.max(1);
        let (Ok(accounts), Ok(window_words)) = (
            u32::try_from(layout.accounts),
            u32::try_from(layout.accounts * u64::from(words)),
        ) else {
            return Err(fault::refused(
                interface,
                Refusal::TooMany { flows, queues },
            ));
        };
        let load = |is_shared: bool| {
            let mut open = object::open(built!("account"))?;
            let settings = [
                awaited.first_flow,
                flows,
                awaited.ramp_flow,
                u32::from(is_shared),
                words,
                awaited.sender_unknown.into(),
                awaited.around_first.into(),
            ];
            let settings: Vec<u8> = settings.iter().flat_map(|n| n.to_ne_bytes()).collect();
            object::open_map(&mut open, ".rodata")?.set_initial_value(&settings)?;
            object::open_map(&mut open, "lanes")?.set_max_entries(queues)?;
            object::open_map(&mut open, "flows")?.set_max_entries(accounts)?;
            object::open_map(&mut open, "windows")?.set_max_entries(window_words)?;
            object::open_map(&mut open, "outages")?.set_max_entries(layout.interrupted())?;
            open.load().and_then(|object| {
                let program = object::program(&object, "wb_account")?;
                let program = program.as_fd().try_clone_to_owned()?;
                Ok((object, program))
            })
        };
        let load = |is_shared| load(is_shared).map_err(|cause| fault::loading(interface, &cause));
        // The program counts nothing before `counts` is set.
        let (mut object, mut program) = load(false)?;
        let (hook, refusal) = match hook::attach_native(program.as_fd(), interface)? {
            Ok(hook) => (hook, None),
            Err(refusal) => {
                (object, program) = load(true)?;
                let hook = hook::attach_generic(program.as_fd(), interface)?;
                (hook, Some(refusal))
            }
        };
        let handle = |name| {
            object::map(&object, name)
                .and_then(|map| MapHandle::try_from(&map))
                .map_err(|cause| fault::loading(interface, &cause))
        };
        let map = |name, len| {
            SharedMap::map(handle(name)?.as_fd(), len)
                .map_err(|cause| fault::io(interface, "map counters", cause))
        };
        let control = map(".bss", size_of::<Control>())?;
        let lanes = map("lanes", queues as usize * LANE_LEN)?;
        let flows = map("flows", accounts as usize * FLOW_LEN)?;
        let outages = handle("outages")?;
        let threshold = offset_of!(Control, outage_threshold);
        control.set(threshold, awaited.outage_threshold_ns);
        control.set(offset_of!(Control, drain_since), u64::MAX);
        control.set(offset_of!(Control, end), u64::MAX);
        for queue in 0..queues as usize {
            for distribution in DISTRIBUTIONS {
                let at = queue * LANE_LEN + distribution;
                lanes.set(at + offset_of!(Distribution, min), u64::MAX);
            }
        }
        for account in 0..accounts as usize {
            for (i, word) in FlowStats::NOTHING.into_iter().enumerate() {
                if word != 0 {
                    flows.set(account * FLOW_LEN + 8 * i, word);
                }
            }
        }
        Ok(Self {
            shared: Arc::new(Shared {
                control,
                lanes,
                flows,
                outages,
                awaited,
                window,
                _hook: hook,
                refusal,
            }),
            queues,
        })
    }

    /// Declares that the interface has other users, so that unexpected frames are not counted as foreign.
    pub fn beside_others(&self) {
        let control = &self.shared.control;
        control.set(offset_of!(Control, beside_others), 1);
    }

    /// Attach mode of the program: `native` or `generic`.
    #[must_use]
    pub fn hook(&self) -> &'static str {
        match self.shared.refusal {
            None => "native",
            Some(_) => "generic",
        }
    }

    /// Message of the kernel if the driver refused the program, which then runs in generic mode.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.shared.refusal.as_deref()
    }

    /// Divides the queues among `workers`. The program stays attached until the last receiver is dropped.
    #[must_use]
    pub fn receivers(self, workers: u32) -> Vec<Receiver> {
        let workers = workers.max(1);
        let of = |worker: u32| Receiver {
            shared: Arc::clone(&self.shared),
            queues: (worker..self.queues).step_by(workers as usize).collect(),
        };
        (0..workers).map(of).collect()
    }
}

/// Some of the queues of a port.
pub struct Receiver {
    shared: Arc<Shared>,
    queues: Vec<u32>,
}

struct Queue<'a> {
    shared: &'a Shared,
    number: u32,
}

impl Queue<'_> {
    fn get(&self, offset: usize) -> u64 {
        self.shared
            .lanes
            .get(self.number as usize * LANE_LEN + offset)
    }

    fn wide(&self, low: usize, high: usize) -> u128 {
        (u128::from(self.get(high)) << 64) | u128::from(self.get(low))
    }

    fn latency_sum(&self) -> u128 {
        let at = offset_of!(QueueAccount, latency);
        let (low, high) = (
            offset_of!(Distribution, sum_low),
            offset_of!(Distribution, sum_high),
        );
        self.wide(at + low, at + high)
    }

    fn distribution(&self, at: usize) -> Histogram {
        let wide = |low: usize, high: usize| self.wide(at + low, at + high);
        Histogram::recorded(
            |slot| self.get(at + offset_of!(Distribution, slots) + 8 * slot),
            (
                wide(
                    offset_of!(Distribution, sum_low),
                    offset_of!(Distribution, sum_high),
                ),
                wide(
                    offset_of!(Distribution, squares_low),
                    offset_of!(Distribution, squares_high),
                ),
            ),
            (
                self.get(at + offset_of!(Distribution, min)),
                self.get(at + offset_of!(Distribution, max)),
            ),
            self.get(at + offset_of!(Distribution, clamped)),
        )
    }

    /// Reads parts before totals, because the kernel counts meanwhile.
    fn counters(&self) -> Counters {
        let mut counters = Counters {
            beyond_window_frames: self.get(offset_of!(QueueAccount, beyond_window)),
            clock_error_frames: self.get(offset_of!(QueueAccount, clock_errors)),
            unstamped_frames: self.get(offset_of!(QueueAccount, unstamped)),
            late_frames: self.get(offset_of!(QueueAccount, late)),
            duplicate_frames: self.get(offset_of!(QueueAccount, duplicates)),
            reordered_frames: self.get(offset_of!(QueueAccount, reordered)),
            missing_frames: self.get(offset_of!(QueueAccount, missing)),
            outages: self.get(offset_of!(QueueAccount, outages)),
            unplanned_frames: self.get(offset_of!(QueueAccount, unplanned)),
            pktgen_frames: self.get(offset_of!(QueueAccount, pktgen)),
            stale_frames: self.get(offset_of!(QueueAccount, stale)),
            head_frames: self.get(offset_of!(QueueAccount, head)),
            foreign_frames: self.get(offset_of!(QueueAccount, foreign)),
            foreign_octets: self.get(offset_of!(QueueAccount, foreign_octets)),
            ..Counters::default()
        };
        counters.received_octets = self.get(offset_of!(QueueAccount, octets));
        counters.received_frames = self.get(offset_of!(QueueAccount, received));
        counters
    }

    fn flow(&self, flow: u32) -> FlowStats {
        let awaited = &self.shared.awaited;
        let account = self.number as usize * awaited.flows.max(1) as usize + flow as usize;
        let mut words = [0; FlowStats::WORDS];
        for (i, word) in words.iter_mut().enumerate().rev() {
            *word = self.shared.flows.get(account * FLOW_LEN + 8 * i);
        }
        FlowStats::recorded(self.shared.first_flow() + flow, &words)
    }

    fn measurement(&self) -> Measurement {
        let first = self.get(offset_of!(QueueAccount, first_rx));
        let mut measurement = Measurement::default();
        measurement.counters = self.counters();
        measurement.latency = self.distribution(offset_of!(QueueAccount, latency));
        measurement.ipdv = SignedHistogram::of_sides(
            self.distribution(offset_of!(QueueAccount, ipdv_below)),
            self.distribution(offset_of!(QueueAccount, ipdv_above)),
        );
        measurement.inter_arrival = self.distribution(offset_of!(QueueAccount, inter_arrival));
        measurement.first_rx_ns = (first > 0).then_some(first);
        measurement.last_rx_ns = (first > 0).then(|| self.get(offset_of!(QueueAccount, last_rx)));
        measurement.largest_gap = self.get(offset_of!(QueueAccount, largest_gap));
        measurement.last_skipped = self.get(offset_of!(QueueAccount, after_gap)).checked_sub(1);
        measurement.window = Some(self.shared.window);
        measurement.flows = (0..self.shared.awaited.flows)
            .map(|f| self.flow(f))
            .collect();
        measurement
            .with_unpaired_jitter(self.distribution(offset_of!(QueueAccount, unpaired_jitter)))
    }
}

impl Receiver {
    /// Outages of the flows at this receiver's queues.
    fn outages(&self) -> Outages {
        let flows = self.shared.awaited.flows.max(1);
        let own = |account: u32| self.queues.contains(&(account / flows));
        let map = &self.shared.outages;
        let recorded = |key: Vec<u8>| {
            let account = u32::from_ne_bytes(key.as_slice().try_into().ok()?);
            let value = map.lookup(&key, MapFlags::ANY).ok()??;
            let mut words = [0; FlowOutages::WORDS];
            for (word, bytes) in words.iter_mut().zip(value.as_chunks().0) {
                *word = u64::from_ne_bytes(*bytes);
            }
            let flow = self.shared.first_flow() + account % flows;
            FlowOutages::recorded(flow, &words).filter(|_| own(account))
        };
        let not_kept = offset_of!(QueueAccount, outages_not_kept);
        Outages::of_flows(
            map.keys().filter_map(recorded),
            self.queues().map(|queue| queue.get(not_kept)).sum(),
        )
    }

    fn queues(&self) -> impl Iterator<Item = Queue<'_>> {
        self.queues.iter().map(|number| Queue {
            shared: &self.shared,
            number: *number,
        })
    }
}

impl ReceiveOffload for Receiver {
    fn begin(&mut self, wall_minus_mono: u64) {
        let control = &self.shared.control;
        control.set(offset_of!(Control, wall_offset), wall_minus_mono);
        control.set(offset_of!(Control, counts), 1);
    }

    fn since(&mut self, wall_ns: u64) {
        self.shared.control.set(offset_of!(Control, since), wall_ns);
    }

    fn drain_since(&mut self, wall_ns: u64) {
        self.shared
            .control
            .set(offset_of!(Control, drain_since), wall_ns);
    }

    fn end_at(&mut self, wall_ns: u64) {
        self.shared.control.set(offset_of!(Control, end), wall_ns);
    }

    fn counters(&self) -> Counters {
        self.queues().map(|queue| queue.counters()).sum()
    }

    fn latency(&self) -> (u64, u128) {
        self.queues().fold((0, 0), |(samples, sum), queue| {
            let c = queue.counters();
            // Every other original has a latency.
            let without = c.duplicate_frames + c.clock_error_frames + c.unstamped_frames;
            let more = c.received_frames.saturating_sub(without);
            (samples + more, sum + queue.latency_sum())
        })
    }

    fn ramp_frames(&self) -> u64 {
        self.queues()
            .map(|q| q.get(offset_of!(QueueAccount, ramp)))
            .sum()
    }

    fn dropped_frames(&self) -> u64 {
        let dropped = |q: Queue<'_>| q.get(offset_of!(QueueAccount, dropped));
        self.queues().map(dropped).sum()
    }

    fn latencies(&self) -> Vec<Histogram> {
        let latency = |queue: Queue<'_>| queue.distribution(offset_of!(QueueAccount, latency));
        self.queues().map(latency).collect()
    }

    fn first_flows(&self, count: u32) -> Vec<FlowStats> {
        let shared = &self.shared;
        let from = shared.seen().map_or(0, |seen| seen - shared.first_flow());
        let to = from.saturating_add(count).min(shared.awaited.flows);
        self.queues()
            .flat_map(|queue| (from..to).map(move |flow| queue.flow(flow)))
            .collect()
    }

    fn measurement(&self) -> Measurement {
        let mut sum: Option<Measurement> = None;
        for queue in self.queues() {
            let part = queue.measurement();
            match &mut sum {
                Some(sum) => sum.merge(&part),
                None => sum = Some(part),
            }
        }
        let mut sum = sum.unwrap_or_default();
        sum.outages = self.outages();
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_by_queues() {
        // 17,408 slots of each of five distributions, and the counters.
        assert!((696_320..700_000).contains(&LANE_LEN), "{LANE_LEN}");
        let lanes = |queues: u64| queues * LANE_LEN as u64;
        // At most 65,536 records of outages.
        let most = 8 << 20;
        // The largest number of flows with the smallest window: 128 bytes for the window, and 128 for the counters.
        let many = 1 << 20;
        assert_eq!(Account::memory(1, many), lanes(1) + (256 << 20) + most);
        assert_eq!(
            Account::memory(64, many),
            lanes(64) + 64 * (256 << 20) + most
        );
        // Few flows have a larger window, 64 MiB together.
        let few = 512 * (FLOW_LEN as u64 + OUTAGES_LEN) + (64 << 20);
        assert_eq!(Account::memory(1, 512), lanes(1) + few);
        assert_eq!(Account::memory(64, 8), lanes(64) + few);
        // 0 queues and 0 flows count as 1.
        assert_eq!(Account::memory(0, 0), Account::memory(1, 1));
    }

    /// Runs `f` with an account of flows 5 and 6 at the loopback interface of a new network namespace.
    fn at_loopback(f: impl FnOnce(&Account, &std::net::UdpSocket) + Send) {
        if !rustix::process::geteuid().is_root() {
            wb_testing::skipped("a network namespace needs root");
            return;
        }
        let done = hook::in_new_namespace(|| {
            let mut up = std::process::Command::new("ip");
            assert!(
                up.args(["link", "set", "lo", "up"])
                    .status()
                    .unwrap()
                    .success()
            );
            let loopback = Interface {
                port: "live:lo".to_owned(),
                name: "lo".to_owned(),
                index: 1,
                mac: [0; 6],
                mtu: 1500,
                speed: None,
                kernel_driver: String::new(),
                tx_queues: 1,
                rx_queues: 1,
            };
            let awaited = Awaited {
                first_flow: 5,
                flows: 2,
                ramp_flow: u32::MAX,
                ..Awaited::default()
            };
            let account = Account::open(&loopback, awaited).unwrap();
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect("127.0.0.1:9").unwrap();
            f(&account, &socket);
            Ok(())
        });
        done.unwrap();
    }

    fn send(socket: &std::net::UdpSocket, flow: u32, sequence: u32, sent_ns: u64) {
        let mut tag = [0; wb_wire::Tag::LEN];
        wb_wire::Tag {
            flow,
            sequence,
            time_ns: sent_ns,
        }
        .write(&mut tag);
        // The port is closed: the ICMP answer makes the next call fail.
        socket.send(&tag).or_else(|_| socket.send(&tag)).unwrap();
    }

    #[test]
    fn numbers_and_counts_go_on_beyond_two_to_the_32nd() {
        const WRAP: u64 = 1 << 32;
        // Size of a whole frame, with FCS.
        const OCTETS: u64 = 14 + 20 + 8 + 18 + 4;
        at_loopback(|account, socket| {
            let shared = &account.shared;
            let lane = |at| shared.lanes.word(at);
            let flow = |at: usize| shared.flows.word(at * 8);
            let set = |word: &std::sync::atomic::AtomicU64, value| {
                word.store(value, std::sync::atomic::Ordering::Release);
            };
            // State after that many frames of flow 5, in order except for one lost frame, each with a latency slightly
            // above 3 s.
            let before = WRAP - 3;
            let delay: u64 = (1 << 32) - 1;
            let (next, received, octets) = (0, 1, 2);
            set(flow(next), before + 1);
            set(flow(received), before);
            set(flow(octets), before * OCTETS);
            set(lane(offset_of!(QueueAccount, received)), before);
            set(lane(offset_of!(QueueAccount, octets)), before * OCTETS);
            set(lane(offset_of!(QueueAccount, missing)), 1);
            let latency = offset_of!(QueueAccount, latency);
            let shift = u64::from(delay.ilog2()) - 9;
            let slot = (shift << 9) + (delay >> shift);
            let slots = latency + offset_of!(Distribution, slots);
            set(lane(slots + 8 * slot as usize), before);
            for extreme in [offset_of!(Distribution, min), offset_of!(Distribution, max)] {
                set(lane(latency + extreme), delay);
            }
            // The lower half is about to overflow.
            let sum = (8u128 << 64) - 2;
            set(
                lane(latency + offset_of!(Distribution, sum_low)),
                sum as u64,
            );
            set(
                lane(latency + offset_of!(Distribution, sum_high)),
                (sum >> 64) as u64,
            );
            let control = &shared.control;
            control.set(offset_of!(Control, wall_offset), 0);
            control.set(offset_of!(Control, counts), 1);
            // Six more frames: one is skipped and arrives late, one is repeated, one stays lost.
            for number in [WRAP - 2, WRAP - 1, WRAP + 1, WRAP, WRAP + 3, WRAP + 1] {
                send(socket, 5, number as u32, 1);
            }
            // From number 0 of another flow to half of the number space ahead, and around.
            for number in [0, (1 << 31) - 1, WRAP - 2, WRAP + 7] {
                send(socket, 6, number as u32, 1);
            }
            let queue = Queue { shared, number: 0 };
            let measured = queue.measurement();
            let c = measured.counters;
            assert_eq!(c.received_frames, before + 10);
            assert_eq!(c.received_octets, (before + 10) * OCTETS);
            assert_eq!((c.duplicate_frames, c.reordered_frames), (1, 1));
            let skipped = (WRAP + 8) - 4;
            assert_eq!(c.missing_frames, 1 + 1 + skipped);
            let [five, six] = &measured.flows[..] else {
                panic!("two flows")
            };
            assert_eq!(
                (five.received, five.octets),
                (before + 6, (before + 6) * OCTETS)
            );
            assert_eq!((five.highest, five.duplicates), (Some(WRAP + 3), 1));
            assert_eq!((six.received, six.highest), (4, Some(WRAP + 7)));
            assert_eq!(measured.largest_gap, (1 << 31) - 2);
            assert_eq!(measured.latency.count(), before + 9);
            let more = measured.latency.sum() - sum;
            assert!((9..1 << 64).contains(&more), "{more}");
        });
    }

    #[test]
    fn an_account_that_another_cpu_has_for_too_long_is_not_awaited_for_ever() {
        at_loopback(|account, socket| {
            let shared = &account.shared;
            shared.control.set(offset_of!(Control, counts), 1);
            shared.lanes.set(offset_of!(QueueAccount, taken), 1);
            let began = std::time::Instant::now();
            send(socket, 5, 0, 1);
            let waited = began.elapsed();
            // Longer than a running CPU holds the lock.
            assert!(waited.as_millis() > 20, "{waited:?}");
            shared.lanes.set(offset_of!(QueueAccount, taken), 0);
            send(socket, 5, 1, 1);
            let queue = Queue { shared, number: 0 };
            assert_eq!(queue.get(offset_of!(QueueAccount, dropped)), 1);
            let counters = queue.counters();
            assert_eq!((counters.received_frames, counters.missing_frames), (1, 1));
            assert_eq!(queue.get(offset_of!(QueueAccount, taken)), 0);
            eprintln!("{waited:?}");
        });
    }
}
