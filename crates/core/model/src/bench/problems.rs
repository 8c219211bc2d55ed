//! Checks of a load balancer benchmark, as far as they need only the plan.

use super::{AddressRange, LbMetric, LbPlan, LbTest, ProbeKind, ProbePlan, Span};
use crate::{
    load::LoadTransport,
    reach::{OUTSIDE, is_free_range},
    validate::{Findings, rules},
};

/// Minimum Ethernet frame size with FCS, in bytes.
const SMALLEST: u16 = 64;
/// Maximum frame size of a plan, in bytes; the MTU of the port may be smaller.
const LARGEST: u16 = 9_216;

impl LbPlan {
    /// Finds all problems of the benchmark, each with its place.
    pub(crate) fn check(&self, i_own_this_network: bool, found: &mut Findings) {
        for (place, ranges) in [
            ("client.hosts", &self.client.hosts),
            ("server.hosts", &self.server.hosts),
            ("device.service", &self.device.service),
        ] {
            rules! { found: ranges.is_empty() => place, "is empty; give at least one address"; }
        }
        let family = |ranges: &[AddressRange]| ranges.first().map(AddressRange::is_ipv6);
        if family(&self.client.hosts) != family(&self.device.service) {
            found.problem(
                "client.hosts",
                "client.hosts and device.service have different IP versions",
            );
        }
        if !i_own_this_network {
            for (place, ranges) in [
                ("client.hosts", &self.client.hosts),
                ("server.hosts", &self.server.hosts),
                ("device.service", &self.device.service),
            ] {
                if let Some(range) = ranges.iter().find(|r| !is_free_range(r)) {
                    found.problem(place, format!("{range} {OUTSIDE}"));
                }
            }
        }
        let (least, most) = (Span::from_millis(100), Span::from_secs(60));
        let every = self.device.every;
        rules! { found:
            self.client.port == self.server.port =>
                "server.port", "{} is also client.port; use two ports", self.server.port;
            !(least..=most).contains(&every) => "device.every", "must be between {least} and {most}, got {every}";
        }
        let drain = self.times.drain;
        rules! { found: drain > most => "times.drain", "must be at most {most}, got {drain}"; }
        for (place, workers) in [
            ("client.workers", self.client.workers),
            ("server.workers", self.server.workers),
        ] {
            rules! { found: !(1..=64).contains(&workers) => place, "must be between 1 and 64, got {workers}"; }
        }
        for (place, time) in [
            ("times.trial", self.times.trial),
            ("times.confirm", self.times.confirm),
        ] {
            rules! { found: time < least => place, "must be at least {least}, got {time}"; }
        }
        for (n, probe) in self.device.probes.iter().enumerate() {
            let place = format!("device.probe {}", n + 1);
            check_probe(probe, &place, found);
            rules! { found:
                probe.host.is_some() => &place, "host is for runs over several hosts; a benchmark of a balancer uses ssh";
            }
        }
        for (n, test) in self.tests.iter().enumerate() {
            let place = format!("test {} ({})", n + 1, test.metric.name());
            check_test(test, &place, found);
        }
    }
}

impl ProbePlan {
    /// Checks the benchmark alone.
    ///
    /// # Errors
    /// Returns every problem found.
    pub fn check(&self) -> Result<(), crate::PlanError> {
        let mut found = Findings::default();
        check_probe(self, "probe", &mut found);
        match found.problems.is_empty() {
            true => Ok(()),
            false => Err(crate::PlanError(found.problems)),
        }
    }
}

pub(crate) fn check_probe(probe: &ProbePlan, place: &str, found: &mut Findings) {
    let is_command = probe.kind == ProbeKind::Command;
    rules! { found:
        probe.node.is_some() && probe.ssh.is_some() =>
            place, "node and ssh exclude each other; without both, the probe runs on this host";
        is_command && probe.command.is_none() => place, "kind \"command\" needs command";
        is_command && probe.counters.is_empty() && probe.gauges.is_empty() =>
            place, "kind \"command\" needs counters or gauges: NAME = 'regular expression with a group'";
        !(is_command || probe.counters.is_empty() && probe.gauges.is_empty()) =>
            place, "counters and gauges need kind \"command\"";
        probe.kind == ProbeKind::Ethtool && probe.interfaces.is_empty() && probe.command.is_none() =>
            place, "kind \"ethtool\" needs interfaces";
        // Interface names become words of a command line.
        probe.interfaces.iter().any(|i| !is_word(i)) =>
            place, "interface names must consist of letters, digits and . _ - : @";
        probe.ssh.as_ref().is_some_and(|host| !is_word(host)) => place, "ssh must be [USER@]HOST";
        probe.timeout > Span::from_secs(10) || probe.timeout == Span::default() => place, "timeout must be above 0 and at most 10s, got {}", probe.timeout;
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-:@".contains(c))
}

fn check_test(test: &LbTest, place: &str, found: &mut Findings) {
    let of_connections = test.metric.is_of_connections();
    rules! { found:
        !of_connections && test.transport == Some(LoadTransport::Tcp) =>
            place, "transport tcp needs metric cps or cc";
        of_connections && !test.sizes.is_empty() =>
            place, "sizes do not apply to cps and cc";
    }
    for size in &test.sizes {
        rules! { found: !(SMALLEST..=LARGEST).contains(size) => place, "sizes must be between {SMALLEST} and {LARGEST}, got {size}"; }
    }
    rules! { found:
        test.metric == LbMetric::Elephant && test.flows.is_some_and(|f| f.0 != 1) =>
            place, "metric elephant has one flow; remove flows";
    }
    for (name, count) in [
        ("flows", test.flows),
        ("max", test.max),
        ("start", test.start),
        ("open_rate", test.open_rate),
    ] {
        rules! { found: count.is_some_and(|c| c.0 == 0) => place, "{name} must be at least 1, got 0"; }
    }
    rules! { found:
        !(0.001..=0.5).contains(&test.resolution.0) =>
            place, "resolution must be between 0.1% and 50%, got {}", test.resolution;
        test.loss.is_some_and(|loss| loss.0 > 0.5) => place, "loss must be at most 50%";
        !(1..=100).contains(&test.trials) => place, "trials must be between 1 and 100, got {}", test.trials;
        test.metric == LbMetric::Cc && test.hold < Span::from_millis(100) =>
            place, "hold must be at least 100ms, got {}", test.hold;
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use crate::{
        plan::PortPlan,
        text::{plan_from_toml, plan_to_toml},
        validate::PlanError,
    };

    const PLAN: &str = r#"
        [client]
        port = "wb-b-client/c0"
        gateway = "198.18.1.1"
        hosts = ["198.18.2.1-198.18.2.250"]
        [server]
        port = "wb-b-server/s0"
        hosts = ["198.19.2.1-198.19.2.2"]
        [device]
        service = ["198.18.1.100"]
        state_timeout = "1s"
        must_not_rise = ["imissed"]
        [[device.probe]]
        kind = "conntrack"
        node = "wb-b-lb"
        [[device.probe]]
        kind = "command"
        command = "nft list counters"
        counters = { connections = 'packets (\d+)' }
        [[test]]
        metric = "cps"
        max = "1.5m"
        loss = "0.001%"
        [[test]]
        metric = "elephant"
        sizes = [64, 1500]
        resolution = 0
    "#;

    fn read(text: &str) -> LbPlan {
        plan_from_toml("p", text).unwrap().lb().unwrap().clone()
    }

    #[test]
    fn a_plan_survives_the_trip() {
        let text = PLAN.replace("resolution = 0", "resolution = \"2%\"");
        let whole = plan_from_toml("p", &text).unwrap();
        assert!(whole.validate().is_ok());
        assert_eq!(plan_from_toml("p", &plan_to_toml(&whole)).unwrap(), whole);
        let plan = read(&text);
        assert_eq!(plan.tests[0].max, Some(Count(1_500_000)));
        assert_eq!(plan.tests[0].loss, Some(Share(1e-5)));
        assert_eq!(plan.tuples(), 250 * 64_512);
        let all = LbPlan {
            tests: Vec::new(),
            ..plan
        };
        assert_eq!(all.tests().len(), 6);
        assert!(all.times.budget <= Span::from_secs(300));
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let mut plan = read(PLAN);
        plan.device.service = vec!["8.8.8.8".parse().unwrap()];
        plan.server.port = plan.client.port.clone();
        plan.device.probes[0].ssh = Some("-oProxyCommand=x".to_owned());
        plan.device.probes[1].counters.clear();
        plan.tests[0].sizes = vec![64];
        plan.tests[0].trials = 0;
        plan.times.drain = Span::from_secs(61);
        plan.client.workers = 65;
        let whole = Plan {
            ports: vec![PortPlan::new("a", "memory:a".parse().unwrap())],
            ..Plan::from(plan)
        };
        let PlanError(problems) = whole.validate().unwrap_err();
        let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
        for part in [
            "8.8.8.8 is outside",
            "is also client.port",
            "node and ssh exclude each other",
            "ssh must be [USER@]HOST",
            "needs counters or gauges",
            "sizes do not apply to cps",
            "trials must be between 1 and 100, got 0",
            "times.drain: must be at most 1m, got 61s",
            "client.workers: must be between 1 and 64, got 65",
            "resolution must be between 0.1% and 50%, got 0",
            "creates its ports and jobs",
        ] {
            assert!(said.iter().any(|s| s.contains(part)), "{part}: {said:#?}");
        }
        assert_eq!(said.len(), 11, "{said:#?}");
    }

    #[test]
    fn other_versions_and_words_are_refused() {
        let text = format!("schema = \"wirebench.lb/9\"\n{PLAN}");
        assert!(plan_from_toml("p", &text).is_err());
        for (word, message) in [("bananas", "oneway-pps"), ("cpss", "did you mean \"cps\"?")] {
            let text = PLAN.replace("metric = \"cps\"", &format!("metric = {word:?}"));
            let said = plan_from_toml("p", &text).unwrap_err().to_string();
            assert!(
                said.contains(message) && said.starts_with("p:21: "),
                "{said}"
            );
        }
    }
}
