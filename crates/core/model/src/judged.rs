//! By what a run can be judged: a criterion that its kind does not measure would never hold.

use crate::{
    criteria::Metric::{
        self, Duplicates, Errors, Failed, Loss, Max, Mean, P50, P99, P999, Reordered, Unsent,
    },
    load::LoadEnd,
    plan::{Plan, Stream, TagKind},
    socket::{SocketJob, SocketProtocol},
};

const TIMES: [Metric; 5] = [Mean, P50, P99, P999, Max];
const NUMBERED: [Metric; 3] = [Loss, Duplicates, Reordered];

impl Plan {
    /// What the plan's kind of run is called, and what it measures.
    pub(crate) fn measures(&self) -> (&'static str, Vec<Metric>) {
        if !self.captures.is_empty() {
            return ("a capture", vec![Loss]);
        }
        if !self.loads.is_empty() {
            let kind = match self.loads.iter().any(|l| l.end == LoadEnd::Client) {
                true => "a load",
                false => "a server of loads",
            };
            // It depends on what is asked, and over which transport.
            let mut measured = vec![Failed, Unsent, Errors, Loss, Duplicates];
            measured.extend(TIMES);
            measured.retain(|metric| crate::load::measures(&self.loads, *metric));
            return (kind, measured);
        }
        if self.socket_server.is_some() {
            return ("a server", Vec::new());
        }
        if !self.sockets.is_empty() {
            return ("a socket test of this kind", self.sockets_measure());
        }
        if !(self.devices.is_empty() && self.watches.is_empty()) {
            return self.devices_measure();
        }
        self.traffic_measures()
    }

    fn sockets_measure(&self) -> Vec<Metric> {
        let mut list = Vec::new();
        let datagrams =
            |j: &SocketJob| matches!(j.protocol, SocketProtocol::Udp | SocketProtocol::UdpLite);
        if self.sockets.iter().any(datagrams) {
            list.extend(NUMBERED);
        }
        // Times of different tests have no common distribution.
        if let [job] = self.sockets.as_slice()
            && (job.latency || job.test.counts_transactions())
        {
            list.extend(TIMES);
        }
        list
    }

    fn devices_measure(&self) -> (&'static str, Vec<Metric>) {
        match (self.devices.is_empty(), self.watches.is_empty()) {
            (false, true) => ("a run that only sends", vec![Unsent]),
            (true, _) => ("a run that only receives", [&NUMBERED[..], &TIMES].concat()),
            (false, false) => (
                "a run of devices",
                [&[Unsent][..], &NUMBERED, &TIMES].concat(),
            ),
        }
    }

    fn traffic_measures(&self) -> (&'static str, Vec<Metric>) {
        let sends = self.traffic.iter().any(|j| j.tx.is_some());
        let receives = self.traffic.iter().any(|j| j.rx.is_some());
        let tagged = |s: &Stream| s.replay.is_none() && s.tag != TagKind::None;
        let mut streams = self.traffic.iter().flat_map(|j| &j.streams);
        match (sends, receives) {
            (true, false) => ("a run that only sends", vec![Unsent]),
            (false, _) => ("a run that only receives", [&NUMBERED[..], &TIMES].concat()),
            (true, true) if !streams.any(tagged) => ("a trial without tags", vec![Unsent, Loss]),
            (true, true) => ("a trial", [&[Unsent][..], &NUMBERED, &TIMES].concat()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        PortPlan, TrafficJob,
        capture::CaptureJob,
        load::LoadJob,
        plan::{Plan, Stream, TagKind},
        socket::SocketJob,
    };

    fn plan(plan: Plan, criterion: &str) -> Plan {
        Plan {
            ports: vec![PortPlan::new("p", "memory:x".parse().unwrap())],
            criteria: vec![criterion.parse().unwrap()],
            ..plan
        }
    }

    fn traffic(tx: bool, rx: bool, tag: TagKind) -> Plan {
        Plan {
            traffic: vec![TrafficJob {
                tx: tx.then(|| "p".to_owned()),
                rx: rx.then(|| "p".to_owned()),
                streams: vec![Stream {
                    tag,
                    ..Stream::default()
                }],
                ..TrafficJob::default()
            }],
            ..Plan::default()
        }
    }

    #[test]
    fn what_is_not_measured_is_refused() {
        let capture = || Plan {
            captures: vec![CaptureJob::default()],
            ..Plan::default()
        };
        let load = || Plan {
            loads: vec![LoadJob::default()],
            ..Plan::default()
        };
        let socket = || Plan {
            sockets: vec![SocketJob::default()],
            ..Plan::default()
        };
        let own = TagKind::Wirebench;
        for (kind, run, measured, not) in [
            (
                "capture",
                capture(),
                &["loss<=1%"][..],
                &["p99<=1ms", "failed<=0%"][..],
            ),
            (
                "load",
                load(),
                &["failed<=0%", "p99<=1ms"],
                &["reordered<=0%"],
            ),
            ("socket", socket(), &[], &["loss<=0%", "p99<=1ms"]),
            (
                "tx",
                traffic(true, false, own),
                &["unsent<=0%"],
                &["loss<=0%", "max<=1ms"],
            ),
            (
                "rx",
                traffic(false, true, own),
                &["loss<=0%", "p50<=1ms"],
                &["unsent<=0%"],
            ),
            (
                "trial",
                traffic(true, true, own),
                &["loss<=0%", "reordered<=0%", "mean<=1ms", "unsent<=0%"],
                &["failed<=0%"],
            ),
            (
                "untagged",
                traffic(true, true, TagKind::None),
                &["loss<=0%", "unsent<=0%"],
                &["p99<=1ms", "duplicates<=0%"],
            ),
        ] {
            let refused = |criterion: &str| match plan(run.clone(), criterion).validate() {
                Ok(_) => false,
                Err(error) => error.0.iter().any(|p| p.place == "criteria"),
            };
            for criterion in measured {
                assert!(!refused(criterion), "{kind}: {criterion}");
            }
            for criterion in not {
                assert!(refused(criterion), "{kind}: {criterion}");
            }
        }
    }
}
