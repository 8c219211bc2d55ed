//! Jobs that modifiers add to the frames of a test: part of the trial's plan, without their times.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Modifier, Quantity, SuitePlan};
use crate::{
    load::{ALL_RIP_ROUTERS, LoadEnd, LoadJob, LoadMessage, LoadRate, LoadTcp, LoadTransport},
    plan::{Plan, Stream},
    units::{AddressRange, Mac, PortRange, Span},
};

/// Name of the load that sends queries: the name of the modifier.
pub const MANAGEMENT: &str = "management";
/// Name of the load that sends route updates: the name of the modifier.
pub const ROUTING: &str = "routing";
/// UDP port of RIP (RFC 2453 section 3.9.1).
const RIP_PORT: u16 = 520;
/// Interval between route updates (RFC 2453 section 3.8).
const UPDATE: Span = Span::from_secs(30);
/// UDP port of SNMP (RFC 3417 section 2).
const SNMP_PORT: u16 = 161;
/// Source ports of queries and updates; a range, because each worker of a port uses a separate port.
const FROM_PORTS: PortRange = PortRange {
    first: 50_000,
    last: 50_063,
};
const SECOND: Span = Span::from_secs(1);

/// Returns the router address of the standards: the first address of the network of `source`.
fn router(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(source) => {
            let [a, b, c, _] = source.octets();
            Ipv4Addr::new(a, b, c, 1).into()
        }
        IpAddr::V6(source) => {
            let network = u128::from(source) & !u128::from(u64::MAX);
            Ipv6Addr::from(network | 1).into()
        }
    }
}

/// Condition of an address filter. Frames that match no condition are denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FilterCondition {
    /// True if matching frames are forwarded.
    pub permit: bool,
    /// Source addresses.
    pub source: AddressRange,
    /// Destination addresses.
    pub destination: AddressRange,
}

impl fmt::Display for FilterCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.permit { "permit" } else { "deny" };
        write!(f, "{verb} {} -> {}", self.source, self.destination)
    }
}

/// Returns the conditions of RFC 2544 section 11.4 for frames from `source` to `destination`. One condition permits
/// these frames. The others, half before and half after it, deny unused address pairs. The list of section 11.4.1 has
/// the permitting condition in the middle, although its text requires it at the end.
#[must_use]
pub fn filter_conditions(
    conditions: u32,
    source: &AddressRange,
    destination: &AddressRange,
) -> Vec<FilterCondition> {
    let from = AddressRange::single(source.first());
    let unused = (100..=u8::MAX).map(|net| match source.is_ipv6() {
        false => Ipv4Addr::new(198, 19, net, 2).into(),
        true => Ipv6Addr::new(0x2001, 2, 0, 0x8000 + u16::from(net), 0, 0, 0, 2).into(),
    });
    let denied = unused.filter(|address: &IpAddr| !destination.contains(*address));
    let mut list: Vec<FilterCondition> = denied
        .take(conditions.saturating_sub(1) as usize)
        .map(|address| FilterCondition {
            permit: false,
            source: from,
            destination: AddressRange::single(address),
        })
        .collect();
    let permit = FilterCondition {
        permit: true,
        source: *source,
        destination: *destination,
    };
    list.insert(list.len() / 2, permit);
    list
}

impl SuitePlan {
    /// Conditions of the device's filter with modifier `filters`: those of the first direction. For bidirectional
    /// streams, one more condition at the end permits the reverse direction.
    #[must_use]
    pub fn filters(&self, trial: &Plan) -> Vec<FilterCondition> {
        let (Some(stream), true) = (self.first_stream(trial), self.has(Modifier::Filters)) else {
            return Vec::new();
        };
        let (source, destination) = (stream.source(), stream.destination());
        let mut list = filter_conditions(self.filter_conditions, &source, &destination);
        if self.traffic(trial).is_some_and(|job| job.bidir) {
            list.push(FilterCondition {
                permit: true,
                source: destination,
                destination: source,
            });
        }
        list
    }

    /// Returns the first stream of the job whose load changes, if it is a load of frames.
    fn first_stream<'a>(&self, trial: &'a Plan) -> Option<&'a Stream> {
        let job = self.traffic(trial).filter(|_| self.of == Quantity::Frames);
        job?.streams.first()
    }

    /// Returns the address of the device itself to which modifier `management` sends queries.
    #[must_use]
    pub fn managed(&self, trial: &Plan) -> Option<IpAddr> {
        let source = self.first_stream(trial)?.source().first();
        let tx = self.traffic(trial)?.tx.as_ref();
        let port = trial.ports.iter().find(|port| Some(&port.name) == tx);
        let gateway = port.and_then(|port| port.gateway);
        let gateway = gateway.filter(|gateway| gateway.is_ipv6() == source.is_ipv6());
        let known = self.management.address.or(gateway);
        Some(known.unwrap_or_else(|| router(source)))
    }

    /// Returns the load that modifier `management` adds to a test; its times are the trial's.
    #[must_use]
    pub fn management_load(&self, trial: &Plan) -> Option<LoadJob> {
        if !self.has(Modifier::Management) {
            return None;
        }
        let stream = self.first_stream(trial)?;
        let own = &self.management;
        let source = own.source.unwrap_or_else(|| stream.source().first());
        Some(LoadJob {
            name: MANAGEMENT.to_owned(),
            port: self.traffic(trial)?.tx.clone()?,
            end: LoadEnd::Client,
            transport: LoadTransport::Udp,
            clients: vec![AddressRange::single(source)],
            servers: vec![AddressRange::single(self.managed(trial)?)],
            client_ports: FROM_PORTS,
            server_ports: PortRange::single(SNMP_PORT),
            vlan: stream.vlan.first().map(|tag| tag.id),
            request: LoadMessage::Snmp(own.community.clone()),
            requests: 0,
            interval: SECOND,
            rate: LoadRate {
                cc: Some(1),
                ..LoadRate::default()
            },
            tcp: LoadTcp {
                // A response after the next query does not count.
                response_timeout: SECOND,
                ..LoadTcp::default()
            },
            ..LoadJob::default()
        })
    }

    /// Returns the load that modifier `routing` adds to a test; its times are the trial's.
    #[must_use]
    pub fn routing_load(&self, trial: &Plan) -> Option<LoadJob> {
        if !self.has(Modifier::Routing) {
            return None;
        }
        let stream = self.first_stream(trial)?;
        Some(LoadJob {
            name: ROUTING.to_owned(),
            port: self.traffic(trial)?.tx.clone()?,
            // Hardware address of the multicast group (RFC 1112 section 6.4).
            gateway_mac: Some(Mac([0x01, 0x00, 0x5e, 0x00, 0x00, 0x09])),
            end: LoadEnd::Client,
            transport: LoadTransport::Udp,
            clients: vec![AddressRange::single(stream.source().first())],
            servers: vec![AddressRange::single(ALL_RIP_ROUTERS.into())],
            client_ports: PortRange::single(RIP_PORT),
            server_ports: PortRange::single(RIP_PORT),
            vlan: stream.vlan.first().map(|tag| tag.id),
            ttl: 1,
            request: LoadMessage::Rip(1),
            requests: 0,
            interval: UPDATE,
            flood: true,
            rate: LoadRate {
                cc: Some(1),
                ..LoadRate::default()
            },
            ..LoadJob::default()
        })
    }

    /// Returns a trial with the jobs of all modifiers.
    #[must_use]
    pub fn with_modifiers(&self, trial: &Plan) -> Plan {
        let mut plan = trial.clone();
        plan.loads.extend(self.management_load(trial));
        plan.loads.extend(self.routing_load(trial));
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::plan_from_toml;

    fn suite(text: &str) -> Plan {
        let text = format!(
            "[[port]]\nname = \"tx\"\nlocator = \"eth8\"\n[[port]]\nname = \"rx\"\nlocator = \"eth9\"\n\
             [[traffic]]\ntx = \"tx\"\nrx = \"rx\"\n[[traffic.stream]]\n{text}"
        );
        plan_from_toml("plan", &text).unwrap()
    }

    fn asked(text: &str) -> (String, String) {
        let plan = suite(text);
        let load = plan
            .suite()
            .unwrap()
            .management_load(&plan.trial())
            .unwrap();
        assert!(load.problems().is_empty(), "{:?}", load.problems());
        (load.clients[0].to_string(), load.servers[0].to_string())
    }

    #[test]
    fn the_device_is_the_gateway_or_the_router_of_the_standard() {
        let of = |stream: &str, more: &str| {
            asked(&format!(
                "{stream}\n[procedure.suite]\nmodifiers = [\"management\"]\n{more}"
            ))
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(of("", ""), pair("198.18.1.2", "198.18.1.1"));
        assert_eq!(
            of("ipv6 = true", ""),
            pair("2001:2:0:1::2", "2001:2:0:1::1")
        );
        assert_eq!(
            of("src = \"198.18.7.9-198.18.7.20\"", ""),
            pair("198.18.7.9", "198.18.7.1")
        );
        let told =
            "[procedure.suite.management]\naddress = \"198.18.1.9\"\nsource = \"198.18.1.3\"\n";
        assert_eq!(of("", told), pair("198.18.1.3", "198.18.1.9"));
        let mut plan = suite("[procedure.suite]\nmodifiers = [\"management\"]\n");
        plan.ports[0].gateway = Some("198.18.1.77".parse().unwrap());
        let suite = plan.suite().unwrap();
        assert_eq!(suite.managed(&plan.trial()), "198.18.1.77".parse().ok());
    }

    #[test]
    fn conditions_of_a_filter() {
        let of = |stream: &str, more: &str| {
            let plan = suite(&format!(
                "{stream}\n[procedure.suite]\nmodifiers = [\"filters\"]\n{more}"
            ));
            let list = plan.suite().unwrap().filters(&plan.trial());
            list.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of("", ""), ["permit 198.18.1.2 -> 198.19.1.2"]);
        let many = of("dst = \"198.19.65.2\"", "filter_conditions = 25");
        assert_eq!(many.len(), 25);
        assert_eq!(many[0], "deny 198.18.1.2 -> 198.19.100.2");
        assert_eq!(many[11], "deny 198.18.1.2 -> 198.19.111.2");
        assert_eq!(many[12], "permit 198.18.1.2 -> 198.19.65.2");
        assert_eq!(many[13], "deny 198.18.1.2 -> 198.19.112.2");
        assert_eq!(many[24], "deny 198.18.1.2 -> 198.19.123.2");
        let json = serde_json::to_string(&filter_conditions(
            1,
            &"198.18.1.2".parse().unwrap(),
            &"198.19.1.2".parse().unwrap(),
        ));
        assert_eq!(
            json.unwrap(),
            r#"[{"permit":true,"source":"198.18.1.2","destination":"198.19.1.2"}]"#
        );
        // Sent frames are not denied.
        let wide = of(
            "dst = \"198.19.0.0-198.19.105.255\"",
            "filter_conditions = 25",
        );
        assert_eq!(wide[0], "deny 198.18.1.2 -> 198.19.106.2");
        assert_eq!(
            of("ipv6 = true", ""),
            ["permit 2001:2:0:1::2 -> 2001:2:0:8001::2"]
        );
    }

    #[test]
    fn what_cannot_be_beside_a_test_is_refused() {
        let refused = |text: &str| match suite(text).validate() {
            Ok(_) => panic!("{text}: taken"),
            Err(error) => error.to_string(),
        };
        let with = "[procedure.suite]\nmodifiers = [\"management\"]\n";
        for (text, what) in [
            (
                format!("src = \"198.18.1.1\"\n{with}"),
                "modifier management: 198.18.1.1 is the source of the queries",
            ),
            (
                format!("{with}[procedure.suite.management]\naddress = \"2001:2::1\"\n"),
                "198.18.1.2 and 2001:2::1 have different IP versions",
            ),
            (
                "[procedure.suite]\nmodifiers = [\"filters\"]\nfilter_conditions = 7\n".to_owned(),
                "filter_conditions must be 1 or 25 (RFC 2544 section 11.4), got 7",
            ),
            (format!("vlan = [\"5\", \"6\"]\n{with}"), "one VLAN tag"),
            (
                "ipv6 = true\n[procedure.suite]\nmodifiers = [\"routing\"]\n".to_owned(),
                "(RIPv2) needs an IPv4 stream",
            ),
            (
                format!("{with}[procedure.suite.management]\ncommunity = \"\"\n"),
                "visible ASCII",
            ),
            (
                format!(
                    "[[load]]\nname = \"management\"\nport = \"tx\"\nend = \"client\"\nclients = [\"198.18.1.5\"]\n\
                     servers = [\"198.19.1.5\"]\nrate = {{ cps = 1 }}\n{with}"
                ),
                "adds a load of this name",
            ),
        ] {
            let refused = refused(&text);
            assert!(refused.contains(what), "{text}: {refused}");
        }
        let mut memory = suite(with);
        memory.ports[0].locator = "memory:x".parse().unwrap();
        let refused = memory.validate().unwrap_err().to_string();
        assert!(
            refused.contains("port tx") && refused.contains("supports one job"),
            "{refused}"
        );
    }
}
