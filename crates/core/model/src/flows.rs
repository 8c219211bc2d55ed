//! Numbers of flows in test tags. They follow from the plan alone, so all hosts of a fleet agree on them.

use crate::{
    hosts::HostChoice,
    plan::{Plan, Stream, TagKind, TrafficJob},
    stream::PAST_LAST_FLOW,
};

/// One direction of a traffic job: its ends, and the numbers of its flows in test tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectionFlows {
    /// Index of the job in the plan.
    pub job: usize,
    /// Name in the report.
    pub name: String,
    /// Name of the sending port; `None` if a tester outside the plan sends.
    pub tx: Option<String>,
    /// Name of the receiving port; `None` if no port of the plan receives.
    pub rx: Option<String>,
    /// Number of the first flow. It differs from the numbers of all other directions with a sender.
    pub first_flow: u32,
    /// Number of flows with a tag, from the first flow on.
    pub flows: u32,
    /// First flow and number of flows of each stream. Streams without a tag come after all others.
    pub streams: Vec<(u32, u32)>,
}

impl Stream {
    /// Number of flows in tags if `workers` workers send the stream. Each worker numbers the frames of separate flows.
    #[must_use]
    pub fn numbered_flows(&self, workers: u32) -> u32 {
        match self.tag == TagKind::Wirebench && self.replay.is_none() {
            true => self.flow_count().max(workers),
            false => 1,
        }
    }
}

impl Plan {
    /// All directions of the traffic jobs. The flows of jobs without a number are numbered from `first` on.
    #[must_use]
    pub fn directions(&self, first: u32) -> Vec<DirectionFlows> {
        let mut next = first;
        let mut all = Vec::new();
        for (number, job) in self.traffic.iter().enumerate() {
            let base = match (job.name.as_str(), self.traffic.len()) {
                ("", 1) => "traffic".to_owned(),
                ("", _) => format!("job {}", number + 1),
                (name, _) => name.to_owned(),
            };
            if job.tx.is_some() {
                next = job.first_flow.unwrap_or(next);
            }
            let name = |suffix: &str| match job.bidir {
                true => format!("{base} {suffix}"),
                false => base.clone(),
            };
            let (tx, rx) = (&job.tx, &job.rx);
            all.push(self.direction(number, name("forward"), (tx, rx), &mut next));
            if job.bidir {
                all.push(self.direction(number, name("back"), (rx, tx), &mut next));
            }
        }
        all
    }

    /// One direction, with its flows numbered from `next` on. Sets `next` to the number after the last flow.
    fn direction(
        &self,
        job: usize,
        name: String,
        (tx, rx): (&Option<String>, &Option<String>),
        next: &mut u32,
    ) -> DirectionFlows {
        let first_flow = *next;
        let sending = self
            .ports
            .iter()
            .find(|port| Some(&port.name) == tx.as_ref());
        let workers = sending.map_or(1, |port| port.workers);
        let streams = &self.traffic[job].streams;
        let mut numbers = vec![(0, 0); streams.len()];
        // Streams without a tag come last, so that the flows to follow are one range.
        let mut number = |tagged: bool| {
            let own = streams.iter().zip(&mut numbers);
            for (stream, flows) in own.filter(|(stream, _)| stream.is_tagged() == tagged) {
                *flows = (*next, stream.numbered_flows(workers));
                *next = next.saturating_add(flows.1);
            }
            *next
        };
        let flows = number(true) - first_flow;
        number(false);
        DirectionFlows {
            job,
            name,
            tx: tx.clone(),
            rx: rx.clone(),
            first_flow,
            flows,
            streams: numbers,
        }
    }

    /// Number of flow numbers that the streams of all jobs use.
    #[must_use]
    pub fn numbered_flows(&self) -> u32 {
        let directions = self.directions(0);
        let streams = directions.iter().flat_map(|way| &way.streams);
        streams.fold(0, |sum: u32, (_, flows)| sum.saturating_add(*flows))
    }

    /// Sets the first flow of the run and of each traffic job, and names the traffic jobs. Afterwards each part of the
    /// plan has the numbers and names of the whole plan.
    ///
    /// # Errors
    /// Fails if the flows need numbers above the highest one.
    pub fn number_flows(&mut self, first: u32) -> Result<(), String> {
        let count = self.numbered_flows();
        if count > PAST_LAST_FLOW.saturating_sub(first) {
            return Err(format!(
                "{count} flows from number {first} exceed the largest flow number"
            ));
        }
        let numbers: Vec<(usize, u32)> = self
            .directions(first)
            .iter()
            .map(|way| (way.job, way.first_flow))
            .collect();
        if self.traffic.len() > 1 {
            let names = self.job_names(crate::JobKind::Traffic);
            for (job, name) in self.traffic.iter_mut().zip(names) {
                job.name = name;
            }
        }
        let followed = self.first_flow;
        for (number, job) in self.traffic.iter_mut().enumerate() {
            let forward = numbers.iter().find(|(own, _)| *own == number);
            job.first_flow = match job.tx {
                Some(_) => forward.map(|(_, first)| *first),
                // The first flow of the run is also that of a run to follow.
                None => job.first_flow.or(followed),
            };
        }
        self.first_flow = Some(first);
        Ok(())
    }

    /// The part of the plan that a host carries out: the jobs that use its ports or name it, and all ports of these jobs. The ports
    /// of the host lose the name of the host; those of other hosts keep it. Ports without a host belong to the host.
    /// Criteria are removed, because they judge the whole plan.
    #[must_use]
    pub fn of_host(&self, host: &str) -> Self {
        let mut part = self.clone();
        let own: Vec<String> = self
            .ports
            .iter()
            .filter(|port| port.locator.host.as_deref().is_none_or(|own| own == host))
            .map(|port| port.name.clone())
            .collect();
        let is_own = |port: &String| own.contains(port);
        let uses = |job: &TrafficJob| [&job.tx, &job.rx].into_iter().flatten().any(is_own);
        part.traffic.retain(uses);
        part.devices.retain(|job| is_own(&job.port));
        part.watches.retain(|job| is_own(&job.port));
        part.loads.retain(|job| is_own(&job.port));
        let is_here = |choice: &Option<HostChoice>| {
            choice
                .as_ref()
                .is_none_or(|choice| choice.name() == Some(host))
        };
        part.http_jobs
            .retain(|job| job.port.as_ref().is_none_or(is_own) && is_here(&job.host));
        part.sockets.retain(|job| is_here(&job.host));
        part.probes.retain(|probe| is_here(&probe.host));
        part.socket_server = part.socket_server.filter(|job| is_here(&job.host));
        let http = part.http_jobs.iter_mut().map(|job| &mut job.host);
        let sockets = part.sockets.iter_mut().map(|job| &mut job.host);
        let probes = part.probes.iter_mut().map(|probe| &mut probe.host);
        let server = part.socket_server.iter_mut().map(|job| &mut job.host);
        let hosts = http.chain(sockets).chain(probes).chain(server);
        hosts.for_each(|choice| *choice = None);
        for job in &mut part.captures {
            job.ports.retain(is_own);
        }
        part.captures.retain(|job| !job.ports.is_empty());
        part.criteria.clear();
        if part.traffic.iter().all(|job| job.tx.is_none()) {
            // The flows of the run are those of jobs that send.
            part.first_flow = None;
        }
        for port in part.ports.iter_mut().filter(|port| is_own(&port.name)) {
            port.locator.host = None;
        }
        let used: Vec<bool> = part
            .ports
            .iter()
            .map(|port| part.users(port).next().is_some())
            .collect();
        let mut used = used.into_iter();
        part.ports.retain(|_| used.next() == Some(true));
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PortPlan;

    fn port(name: &str, locator: &str, workers: u32) -> PortPlan {
        PortPlan {
            workers,
            ..PortPlan::new(name, locator.parse().unwrap())
        }
    }

    fn stream(flows: u32, tag: TagKind) -> Stream {
        Stream {
            flows: Some(flows),
            tag,
            ..Stream::default()
        }
    }

    fn job(tx: Option<&str>, rx: &str, streams: Vec<Stream>) -> TrafficJob {
        TrafficJob {
            tx: tx.map(str::to_owned),
            rx: Some(rx.to_owned()),
            streams,
            ..TrafficJob::default()
        }
    }

    /// Jobs between three hosts: h1 to h2 in both directions, h2 to h3, and one that only receives at h3.
    fn plan() -> Plan {
        let wirebench = |flows| stream(flows, TagKind::Wirebench);
        let mut both = job(
            Some("a"),
            "b",
            vec![stream(9, TagKind::None), wirebench(2), wirebench(5)],
        );
        both.bidir = true;
        Plan {
            ports: vec![
                port("a", "h1:eth1", 4),
                port("b", "h2:eth1", 1),
                port("c", "h2:eth2", 1),
                port("d", "h3:eth1", 1),
                port("e", "h3:eth2", 1),
            ],
            traffic: vec![
                both,
                job(Some("c"), "d", vec![wirebench(3)]),
                job(None, "e", Vec::new()),
            ],
            ..Plan::default()
        }
    }

    #[test]
    fn flows_are_numbered_by_the_plan_alone() {
        type Numbers = (String, u32, u32, Vec<(u32, u32)>);
        let numbers = |plan: &Plan, first| -> Vec<Numbers> {
            let ways = plan.directions(first).into_iter();
            ways.map(|way| (way.name, way.first_flow, way.flows, way.streams))
                .collect()
        };
        // The workers of a sending port have a flow each. The stream without a tag comes last.
        let expected = [
            (
                "job 1 forward".to_owned(),
                100,
                9,
                vec![(109, 1), (100, 4), (104, 5)],
            ),
            (
                "job 1 back".to_owned(),
                110,
                7,
                vec![(117, 1), (110, 2), (112, 5)],
            ),
            ("job 2".to_owned(), 118, 3, vec![(118, 3)]),
            ("job 3".to_owned(), 121, 0, Vec::new()),
        ];
        assert_eq!(numbers(&plan(), 100), expected);
        assert_eq!(plan().numbered_flows(), 21);
        let mut numbered = plan();
        numbered.number_flows(100).unwrap();
        assert_eq!(numbered.first_flow, Some(100));
        assert!(numbered.validate().is_ok(), "{:?}", numbered.validate());
        assert_eq!(numbers(&numbered, 7), expected);
        for (host, jobs) in [
            ("h1", &expected[..2]),
            ("h2", &expected[..3]),
            ("h3", &expected[2..]),
        ] {
            let part = numbered.of_host(host);
            assert!(part.validate().is_ok(), "{host}: {:?}", part.validate());
            let own = numbers(&part, 0).into_iter();
            let own: Vec<_> = own.filter(|way| way.2 > 0).collect();
            let jobs: Vec<_> = jobs.iter().filter(|way| way.2 > 0).cloned().collect();
            assert_eq!(own, jobs, "{host}");
        }
    }

    #[test]
    fn a_part_has_the_jobs_of_a_host_and_all_their_ports() {
        let mut whole = plan();
        whole.criteria = vec!["loss<=0".parse().unwrap()];
        let ports = |plan: &Plan| -> Vec<String> {
            plan.ports
                .iter()
                .map(|port| format!("{} {}", port.name, port.locator))
                .collect()
        };
        let part = whole.of_host("h3");
        assert_eq!(ports(&part), ["c h2:eth2", "d eth1", "e eth2"]);
        assert_eq!(part.traffic.len(), 2);
        assert!(part.criteria.is_empty());
        assert_eq!(part.of_host("h3"), part);
        assert_eq!(ports(&whole.of_host("h1")), ["a eth1", "b h2:eth1"]);
        assert!(whole.of_host("h4").ports.is_empty());
    }

    #[test]
    fn the_run_to_follow_keeps_its_number() {
        let mut plan = plan();
        plan.first_flow = Some(5000);
        plan.number_flows(5000).unwrap();
        assert_eq!(plan.traffic[2].first_flow, Some(5000));
        let mut plan = super::tests::plan();
        plan.number_flows(5000).unwrap();
        assert_eq!(plan.traffic[2].first_flow, None);
        assert!(plan.number_flows(PAST_LAST_FLOW - 20).is_err());
    }

    #[test]
    fn wrong_numbers_are_refused() {
        let problem = |change: fn(&mut Plan)| {
            let mut plan = plan();
            plan.number_flows(100).unwrap();
            change(&mut plan);
            plan.validate().unwrap_err().to_string()
        };
        for (change, part) in [
            (
                (|p| p.traffic[1].first_flow = None) as fn(&mut Plan),
                "in all or in none",
            ),
            (|p| p.first_flow = None, "needs first_flow of the plan"),
            (|p| p.first_flow = Some(101), "must not be higher"),
            (
                |p| p.traffic[1].first_flow = Some(117),
                "the same flow numbers",
            ),
            (
                |p| p.traffic[1].first_flow = Some(u32::MAX - 3),
                "the highest flow number",
            ),
        ] {
            let found = problem(change);
            assert!(found.contains(part), "{found}");
        }
    }
}
