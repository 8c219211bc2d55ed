//! Results of a worker, and totals of all workers.

use wb_model::{lateness::Lateness, load::LoadEnd};
use wb_port::{PortError, RxCounters, TxCounters};
use wb_tcp::{Counters, IcmpNews, Latencies};

use crate::http::HttpOutcome;
use crate::launch_schedule::LaunchCounters;
use crate::neighbour_responder::ResponderCounters;
use crate::shared::{LoadSnapshot, add_rx};
use wb_model::load::LoadStage;

/// Results of one phase of a run.
#[derive(Clone, Debug, Default)]
pub struct PhaseTotals {
    /// The phase.
    pub phase: LoadStage,
    /// Start of the phase, ns since the start of the run. For the duration of a lone server, the arrival of the first
    /// load frame.
    pub from_ns: u64,
    /// End of the phase. For the duration of a lone server, the arrival of the last load frame.
    pub to_ns: u64,
    /// Counters of the phase; `open` is the number at its end.
    pub counters: Counters,
    /// Launches in the phase.
    pub launch: LaunchCounters,
    /// Rate-controlled requests in the phase.
    pub asks: LaunchCounters,
    /// Times measured in the phase.
    pub latencies: Latencies,
}

impl PhaseTotals {
    /// A count per second of this phase; 0 in a phase without length.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        match self.to_ns.saturating_sub(self.from_ns) {
            0 => 0.0,
            ns => count as f64 * 1e9 / ns as f64,
        }
    }

    fn merge(&mut self, other: &Self) {
        let heard = |phase: &Self| phase.counters.rx_of_load().0 > 0;
        // A server's worker without clients does not know the time of its load.
        (self.from_ns, self.to_ns) = match (heard(self), heard(other)) {
            (true, false) => (self.from_ns, self.to_ns),
            (false, true) => (other.from_ns, other.to_ns),
            _ => (self.from_ns.min(other.from_ns), self.to_ns.max(other.to_ns)),
        };
        self.counters.merge(&other.counters);
        self.launch += other.launch;
        self.asks += other.asks;
        self.latencies.merge(&other.latencies);
    }
}

/// Results of one worker.
#[derive(Debug)]
pub struct LoadOutcome {
    /// Client or server.
    pub end: LoadEnd,
    /// Counters of the machine; connections open at the end remain counted as open.
    pub counters: Counters,
    /// Phases in order; those without length are omitted.
    pub phases: Vec<PhaseTotals>,
    /// Launches.
    pub launch: LaunchCounters,
    /// Rate-controlled requests.
    pub asks: LaunchCounters,
    /// ARP, ICMP and the like.
    pub responder: ResponderCounters,
    /// Counters of the transmit half of its queue pair.
    pub tx: TxCounters,
    /// Counters of the receive half.
    pub rx: RxCounters,
    /// Turns taken.
    pub turns: u64,
    /// Turns in which frames were received or sent.
    pub busy_turns: u64,
    /// Time spent in busy turns, in ns.
    pub busy_ns: u64,
    /// Time from the first turn to the last, in ns.
    pub ns: u64,
    /// Longest time between two turns, in ns.
    pub longest_turn_ns: u64,
    /// Number of link outages.
    pub link_downs: u64,
    /// Total time of link outages, in ns.
    pub link_down_ns: u64,
    /// Lateness of the worker.
    pub lateness: Lateness,
    /// Requests of an HTTP job.
    pub http: Option<HttpOutcome>,
    /// Answers by route of the plan, followed by those without a route.
    pub routes: Vec<u64>,
    /// ICMP messages about its packets.
    pub icmp: IcmpNews,
    /// Some frames had no kernel timestamp, so times end when they were read.
    pub unstamped: bool,
    /// Error that ended it early.
    pub fault: Option<PortError>,
}

/// Totals over all workers of a job. `attempted = completed + failed + open` always holds.
#[derive(Clone, Debug, Default)]
pub struct LoadTotals {
    /// Connections begun.
    pub attempted_connections: u64,
    /// Handshakes completed (UDP: first answer received).
    pub established_connections: u64,
    /// Connections that ended after completing their exchange.
    pub completed_connections: u64,
    /// Connections that failed for any cause.
    pub failed_connections: u64,
    /// Connections open at the end.
    pub open_connections: u64,
    /// Requests sent (client) or received (server).
    pub requests: u64,
    /// Responses received (client) or sent (server).
    pub responses: u64,
    /// Launches that were due and not made, because of lateness or lack of addresses or ports.
    pub unsent_connections: u64,
    /// Requests that were due, by the rate or their interval, and not sent in time.
    pub unsent_requests: u64,
    /// Requests that were due and not sent because all connections waited for answers.
    pub waited_requests: u64,
    /// Frames dropped by the device before the wire.
    pub dropped_tx_frames: u64,
    /// All counters of the machines.
    pub counters: Counters,
    /// Launches.
    pub launch: LaunchCounters,
    /// Rate-controlled requests.
    pub asks: LaunchCounters,
    /// ARP, ICMP and the like.
    pub responder: ResponderCounters,
    /// Counters of the transmit halves.
    pub tx: TxCounters,
    /// Counters of the receive halves.
    pub rx: RxCounters,
    /// Phases of all workers together.
    pub phases: Vec<PhaseTotals>,
    /// Times of the whole run; `None` during the run.
    pub latencies: Option<Box<Latencies>>,
    /// ICMP messages about its packets.
    pub icmp: IcmpNews,
    /// Some frames had no kernel timestamp, so times end when they were read.
    pub unstamped: bool,
}

impl LoadTotals {
    /// Sums over workers.
    #[must_use]
    pub fn sum_workers<'a>(workers: impl IntoIterator<Item = &'a LoadOutcome>) -> Self {
        let mut totals = Self::default();
        for worker in workers {
            totals.counters.merge(&worker.counters);
            totals.launch += worker.launch;
            totals.asks += worker.asks;
            totals.responder += worker.responder;
            totals.icmp.merge(&worker.icmp);
            totals.unstamped |= worker.unstamped;
            totals.tx += worker.tx;
            add_rx(&mut totals.rx, &worker.rx);
            for phase in &worker.phases {
                let all = totals.latencies.get_or_insert_default();
                all.merge(&phase.latencies);
                match totals
                    .phases
                    .iter_mut()
                    .find(|sum| sum.phase == phase.phase)
                {
                    Some(sum) => sum.merge(phase),
                    None => totals.phases.push(phase.clone()),
                }
            }
        }
        totals.phases.sort_by_key(|phase| phase.phase);
        totals.derived()
    }

    /// Totals so far of workers that still run, from the sum of their states. There are no phases and distributions.
    #[must_use]
    pub fn so_far(workers: &LoadSnapshot) -> Self {
        let totals = Self {
            counters: workers.counters,
            launch: workers.launch,
            asks: workers.asks,
            responder: workers.responder,
            tx: workers.tx,
            rx: workers.rx,
            ..Self::default()
        };
        totals.derived()
    }

    /// Sets the totals that follow from the counters.
    fn derived(mut self) -> Self {
        let counters = &self.counters;
        self.attempted_connections = counters.attempted;
        self.established_connections = counters.established;
        self.completed_connections = counters.completed;
        self.failed_connections = counters.failed();
        self.open_connections = counters.open;
        self.requests = counters.requests;
        self.responses = counters.responses;
        self.unsent_connections = self.launch.unsent + self.launch.no_tuple;
        self.unsent_requests = self.asks.unsent + counters.requests_unsent;
        self.waited_requests = self.asks.held_back + counters.requests_waited;
        self.dropped_tx_frames = self.tx.refused_frames;
        self
    }

    /// Returns true if every connection is accounted for.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        self.attempted_connections
            == self.completed_connections + self.failed_connections + self.open_connections
    }

    /// Failed connections by cause, with the names of reports; their sum is `failed_connections`.
    #[must_use]
    pub fn failures_by_cause(&self) -> [(&'static str, u64); 10] {
        let c = &self.counters;
        [
            ("connect_timeout", c.failed_connect_timeout),
            ("response_timeout", c.failed_response_timeout),
            ("close_timeout", c.failed_close_timeout),
            ("idle_timeout", c.failed_idle_timeout),
            ("refused", c.failed_refused),
            ("icmp_unreachable", c.failed_unreachable),
            ("reset", c.failed_reset),
            ("short", c.failed_short),
            ("malformed", c.failed_malformed),
            ("aborted", c.failed_aborted),
        ]
    }

    /// One phase of all workers.
    #[must_use]
    pub fn phase(&self, phase: LoadStage) -> Option<&PhaseTotals> {
        self.phases.iter().find(|totals| totals.phase == phase)
    }
}
