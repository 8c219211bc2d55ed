//! Powers of a plan beyond frames at its ports: a plan may run commands and scripts, read and write files, and reach
//! servers outside the test network.
//!
//! At a shell, the user has all these powers anyway. A program that runs plans of other users calls [`Plan::powers`] and
//! refuses the powers that it does not grant.

use std::{collections::BTreeMap, net::IpAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    http::{HttpUrl, ServerAddress},
    locator::{Driver, Locator},
    plan::Plan,
    reach::is_free,
};

/// Power that a plan needs.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    /// Run a command on this host, or on another one by ssh.
    Commands,
    /// Run a script inside the program.
    Scripts,
    /// Read a file, or connect to a Unix socket.
    Reads,
    /// Write a file.
    Writes,
    /// Send to hosts outside the ranges for tests and private networks, or use an interface of the host's own network.
    Leaves,
}

impl Power {
    /// The word for the power in messages and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Commands => "commands",
            Self::Scripts => "scripts",
            Self::Reads => "reads",
            Self::Writes => "writes",
            Self::Leaves => "leaves",
        }
    }
}

/// Use of a power by a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PowerUse {
    /// The power.
    pub power: Power,
    /// Key of the plan: `probe 1, command`.
    pub place: String,
    /// Value of the key: the command, the file or the host.
    pub value: String,
}

/// Rule for the powers that a value of a key uses.
#[derive(Clone, Copy)]
enum Rule {
    /// Every value uses the power.
    Always(Power),
    /// A port: `file:PATH` reads and writes files.
    Locator,
    /// URL of a server.
    Url,
    /// Name or address of a server, possibly with its port.
    Server,
}

/// Keys of a plan that use powers. `[]` is an element of a list. A test checks that every text in the schema of plans is
/// either here or known to be harmless.
const RULES: [(&str, Rule); 32] = [
    ("i_own_this_network", Rule::Always(Power::Leaves)),
    ("port[].locator", Rule::Locator),
    ("traffic[].stream[].replay", Rule::Always(Power::Reads)),
    ("capture[].output.path", Rule::Always(Power::Writes)),
    ("capture[].output.command", Rule::Always(Power::Commands)),
    ("load[].request.file", Rule::Always(Power::Reads)),
    ("load[].answer.file", Rule::Always(Power::Reads)),
    ("load[].worker_answers[].file", Rule::Always(Power::Reads)),
    ("http[].url", Rule::Url),
    ("http[].connect_to[]", Rule::Server),
    ("http[].unix", Rule::Always(Power::Reads)),
    ("http[].data", Rule::Always(Power::Reads)),
    ("http[].request[].body_file", Rule::Always(Power::Reads)),
    ("http[].tls.authorities", Rule::Always(Power::Reads)),
    ("http[].tls.certificate", Rule::Always(Power::Reads)),
    ("http[].tls.key", Rule::Always(Power::Reads)),
    ("http[].script.file", Rule::Always(Power::Scripts)),
    ("socket[].control.server", Rule::Server),
    ("socket[].data.server", Rule::Server),
    // The addresses of the network are used in turn.
    ("socket[].data.server_prefix", Rule::Always(Power::Leaves)),
    // It listens at the addresses of the host.
    ("socket_server", Rule::Always(Power::Leaves)),
    ("socket[].local.fill_file", Rule::Always(Power::Reads)),
    ("probe[].command", Rule::Always(Power::Commands)),
    ("probe[].kind", Rule::Always(Power::Commands)),
    ("probe[].ssh", Rule::Always(Power::Commands)),
    (
        "procedure.lb.i_own_this_network",
        Rule::Always(Power::Leaves),
    ),
    ("procedure.lb.client.port", Rule::Locator),
    ("procedure.lb.server.port", Rule::Locator),
    (
        "procedure.lb.device.probe[].command",
        Rule::Always(Power::Commands),
    ),
    (
        "procedure.lb.device.probe[].kind",
        Rule::Always(Power::Commands),
    ),
    (
        "procedure.lb.device.probe[].ssh",
        Rule::Always(Power::Commands),
    ),
    (
        "procedure.suite.reset.trigger",
        Rule::Always(Power::Commands),
    ),
];

impl Plan {
    /// The powers that the plan uses, in the order of its keys.
    ///
    /// # Panics
    /// Never: plans have only types that JSON can hold.
    #[must_use]
    pub fn powers(&self) -> Vec<PowerUse> {
        let plan = serde_json::to_value(self).expect("plans have only types that JSON can hold");
        let mut found = Vec::new();
        for (path, rule) in RULES {
            let mut values = Vec::new();
            values_at(&plan, path, String::new(), &mut values);
            for (place, value) in values {
                for power in rule.powers(&value) {
                    found.push(PowerUse {
                        power,
                        place: place.clone(),
                        value: value.clone(),
                    });
                }
            }
        }
        found
    }
}

impl Plan {
    /// The plan with other names for files that it reads: those in `names` by their names in the plan.
    ///
    /// # Panics
    /// Never: plans have only types that JSON can hold.
    #[must_use]
    pub fn with_files(&self, names: &BTreeMap<String, String>) -> Self {
        let mut plan =
            serde_json::to_value(self).expect("plans have only types that JSON can hold");
        let reads = RULES
            .iter()
            .filter(|(_, rule)| matches!(rule, Rule::Always(Power::Reads | Power::Scripts)));
        for (path, _) in reads {
            rename_at(&mut plan, path, names);
        }
        serde_json::from_value(plan).expect("only texts have changed")
    }
}

/// Replaces texts at a key by others.
fn rename_at(value: &mut Value, path: &str, names: &BTreeMap<String, String>) {
    let (key, rest) = path.split_once('.').unwrap_or((path, ""));
    let Some(value) = value.get_mut(key.trim_end_matches("[]")) else {
        return;
    };
    let all = match value {
        Value::Array(all) => all.as_mut_slice(),
        other => std::slice::from_mut(other),
    };
    for one in all {
        match (rest, one.as_str().and_then(|name| names.get(name))) {
            ("", Some(other)) => *one = Value::String(other.clone()),
            ("", None) => {}
            _ => rename_at(one, rest, names),
        }
    }
}

impl Rule {
    /// The powers that a value uses.
    fn powers(self, value: &str) -> Vec<Power> {
        let leaves = |is_near: bool| match is_near {
            true => Vec::new(),
            false => vec![Power::Leaves],
        };
        match self {
            Self::Always(power) => vec![power],
            Self::Locator => match value.parse().map(|port: Locator| port.driver) {
                Ok(Some(Driver::File)) => vec![Power::Reads, Power::Writes],
                _ => Vec::new(),
            },
            Self::Url => {
                let url = value.parse::<HttpUrl>();
                leaves(url.is_ok_and(|url| is_near(url.known_host())))
            }
            Self::Server => {
                let address = value.parse::<ServerAddress>();
                let address = address.map(|known| known.address.ip());
                let is_free = address.is_ok_and(is_free);
                leaves(is_free || value.is_empty() || is_near(value))
            }
        }
    }
}

/// Returns true for this host, and for addresses of tests and private networks. The address of another name is not
/// known here.
fn is_near(host: &str) -> bool {
    let address = host.split('%').next().and_then(|host| host.parse().ok());
    host == "localhost" || address.is_some_and(|address: IpAddr| is_free(address))
}

/// Finds the values of a key with their places: texts, numbers and words, and switches that are on.
fn values_at(value: &Value, path: &str, place: String, found: &mut Vec<(String, String)>) {
    let (key, rest) = path.split_once('.').unwrap_or((path, ""));
    let name = key.trim_end_matches("[]");
    let value = &value[name];
    let within = |number: Option<usize>| {
        let number = number.map(|n| format!(" {}", n + 1)).unwrap_or_default();
        match place.is_empty() {
            true => format!("{name}{number}"),
            false => format!("{place}, {name}{number}"),
        }
    };
    let mut take = |value: &Value, place: String| match (rest, value) {
        ("", Value::Null | Value::Bool(false)) => {}
        ("", Value::String(text)) => found.push((place, text.clone())),
        ("", other) => found.push((place, other.to_string())),
        (rest, value) => values_at(value, rest, place, found),
    };
    match (key.ends_with("[]"), value) {
        (true, Value::Array(all)) => {
            for (number, one) in all.iter().enumerate() {
                take(one, within(Some(number)));
            }
        }
        (true, _) => {}
        (false, value) => take(value, within(None)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use schemars::schema_for;

    use super::*;

    /// Texts of a plan that use no power: names, numbers with units, addresses in frames and contents of messages.
    const HARMLESS: &str = "
        schema interval criteria[]
        port[].name port[].addresses[] port[].gateway
        traffic[].name traffic[].tx traffic[].rx traffic[].start traffic[].duration traffic[].drain traffic[].ramp
        traffic[].hold traffic[].outage_threshold traffic[].catch_up
        traffic[].stream[].name traffic[].stream[].size traffic[].stream[].rate traffic[].stream[].gap
        traffic[].stream[].src traffic[].stream[].dst traffic[].stream[].sport traffic[].stream[].dport
        traffic[].stream[].src_mac traffic[].stream[].dst_mac traffic[].stream[].vlan[] traffic[].stream[].payload
        traffic[].stream[].headers traffic[].stream[].start traffic[].stream[].vary[]
        device[].port device[].settings.name device[].settings.delay device[].settings.dst_min device[].settings.dst_max
        device[].settings.src_min device[].settings.src_max device[].settings.src6 device[].settings.dst6
        device[].settings.dst6_min device[].settings.dst6_max device[].settings.src_mac device[].settings.dst_mac
        device[].settings.flags
        watch[].port watch[].duration
        capture[].name capture[].ports[] capture[].filter capture[].duration capture[].stall capture[].block_timeout
        capture[].user capture[].output.rotate_time capture[].output.flush capture[].output.sync
        load[].name load[].port load[].gateway_mac load[].clients[] load[].servers[] load[].client_ports
        load[].server_ports load[].destinations[].addresses load[].vxlan.src_mac load[].vxlan.dst_mac load[].vxlan.local
        load[].vxlan.remote load[].request.http.method load[].request.http.path load[].request.http.host
        load[].request.snmp load[].route[].path load[].route[].delay load[].interval load[].shape.wait load[].shape.ramp
        load[].shape.duration load[].shape.drain load[].shape.profile[].at load[].tcp.retransmit
        load[].tcp.connect_timeout load[].tcp.response_timeout load[].tcp.close_timeout load[].tcp.idle_timeout
        load[].tcp.time_wait
        http[].name http[].port http[].host http[].request[].name http[].request[].method http[].request[].path
        http[].request[].headers[] http[].request[].body http[].headers[] http[].duration http[].warm_up
        http[].rate[].time http[].patience http[].timeout http[].connect_timeout http[].first_byte_timeout
        http[].tls.server_name http[].sources[] http[].check.body http[].check.header http[].script.arguments[]
        socket[].name socket[].host socket[].control.local socket[].control.passphrase socket[].data.local socket[].duration
        socket[].wait socket[].local.burst_interval socket[].local.congestion socket[].remote.burst_interval
        socket[].remote.congestion socket[].remote.fill_file socket[].timeout socket[].client_ports socket[].omit
        socket[].interim socket[].warm_up
        socket_server.host socket_server.listen socket_server.passphrase socket_server.idle socket_server.user
        probe[].name probe[].host probe[].node probe[].interfaces[] probe[].counters.* probe[].gauges.* probe[].timeout
        procedure.lb.client.addresses[] procedure.lb.client.gateway procedure.lb.client.hosts[]
        procedure.lb.client.ports procedure.lb.client.peers[] procedure.lb.server.addresses[]
        procedure.lb.server.gateway procedure.lb.server.hosts[] procedure.lb.server.ports procedure.lb.server.peers[]
        procedure.lb.device.name procedure.lb.device.service[] procedure.lb.device.ports
        procedure.lb.device.state_timeout procedure.lb.device.every procedure.lb.device.must_not_rise[]
        procedure.lb.device.probe[].name procedure.lb.device.probe[].host procedure.lb.device.probe[].node procedure.lb.device.probe[].interfaces[]
        procedure.lb.device.probe[].counters.* procedure.lb.device.probe[].gauges.* procedure.lb.device.probe[].timeout
        procedure.lb.times.trial procedure.lb.times.confirm procedure.lb.times.ramp procedure.lb.times.drain
        procedure.lb.times.budget procedure.lb.test[].flows procedure.lb.test[].max procedure.lb.test[].start
        procedure.lb.test[].resolution procedure.lb.test[].loss procedure.lb.test[].hold procedure.lb.test[].open_rate
        procedure.suite.job procedure.suite.sizes[] procedure.suite.ipv6_shares[] procedure.suite.max
        procedure.suite.min procedure.suite.search.loss procedure.suite.search.precision
        procedure.suite.search.resolution procedure.suite.search.goal[].name
        procedure.suite.search.goal[].final_duration procedure.suite.search.goal[].duration_sum
        procedure.suite.search.goal[].loss procedure.suite.search.goal[].exceed procedure.suite.search.goal[].width
        procedure.suite.search.budget procedure.suite.times.trial procedure.suite.times.search
        procedure.suite.times.ramp procedure.suite.times.drain procedure.suite.times.settle
        procedure.suite.latency.duration procedure.suite.latency.after procedure.suite.latency.loads[]
        procedure.suite.step procedure.suite.impact.loads[] procedure.suite.b2b.longest
        procedure.suite.recovery.overload procedure.suite.recovery.half procedure.suite.reset.kind
        procedure.suite.reset.load procedure.suite.reset.patience procedure.suite.soak.load
        procedure.suite.soak.duration procedure.suite.service[].name procedure.suite.service[].job
        procedure.suite.service[].cir procedure.suite.service[].eir procedure.suite.service[].delay
        procedure.suite.service[].variation procedure.suite.service[].loss procedure.suite.service[].availability
        procedure.suite.service[].step procedure.suite.service[].performance procedure.suite.service[].tolerance
        procedure.suite.management.address procedure.suite.management.source procedure.suite.management.community
        procedure.suite.device.name procedure.suite.device.version procedure.suite.device.configuration
        procedure.suite.preset
    ";

    /// Adds the paths of all texts below a part of a schema.
    fn texts(
        root: &Value,
        part: &Value,
        path: &str,
        above: &[String],
        found: &mut BTreeSet<String>,
    ) {
        if let Some(name) = part["$ref"].as_str() {
            // A type that contains itself is visited once.
            if !above.iter().any(|known| known == name) {
                let above = [above, &[name.to_owned()]].concat();
                let part = root.pointer(name.trim_start_matches('#')).unwrap();
                texts(root, part, path, &above, found);
            }
        }
        for several in ["anyOf", "oneOf", "allOf"] {
            for one in part[several].as_array().into_iter().flatten() {
                texts(root, one, path, above, found);
            }
        }
        let is_text = |kind: &Value| kind == "string";
        let kinds = &part["type"];
        let has_text = is_text(kinds) || kinds.as_array().is_some_and(|k| k.iter().any(is_text));
        if has_text && part.get("enum").is_none() && part.get("const").is_none() {
            found.insert(path.to_owned());
        }
        let below = |key: &str| match path.is_empty() {
            true => key.to_owned(),
            false => format!("{path}.{key}"),
        };
        for (key, one) in part["properties"].as_object().into_iter().flatten() {
            texts(root, one, &below(key), above, found);
        }
        if part["items"].is_object() {
            texts(root, &part["items"], &format!("{path}[]"), above, found);
        }
        if part["additionalProperties"].is_object() {
            texts(
                root,
                &part["additionalProperties"],
                &below("*"),
                above,
                found,
            );
        }
    }

    #[test]
    fn no_text_of_a_plan_is_forgotten() {
        let schema = schema_for!(Plan).to_value();
        let mut found = BTreeSet::new();
        texts(&schema, &schema, "", &[], &mut found);
        assert!(found.len() > 150, "{found:?}");
        let known: BTreeSet<&str> = HARMLESS.split_whitespace().collect();
        let ruled: BTreeSet<&str> = RULES.iter().map(|(path, _)| *path).collect();
        let both: Vec<_> = known.intersection(&ruled).collect();
        assert!(both.is_empty(), "both harmless and not: {both:?}");
        let is_known =
            |path: &&String| known.contains(path.as_str()) || ruled.contains(path.as_str());
        let forgotten: Vec<&String> = found.iter().filter(|path| !is_known(path)).collect();
        assert!(
            forgotten.is_empty(),
            "decide whether these keys use a power: {forgotten:?}"
        );
        let gone: Vec<_> = known
            .iter()
            .filter(|path| !found.contains(**path))
            .collect();
        assert!(gone.is_empty(), "no such keys: {gone:?}");
    }

    fn powers(toml: &str) -> Vec<(Power, String)> {
        let plan: Plan = crate::text::plan_from_toml("plan", toml).unwrap();
        let powers = plan.powers().into_iter();
        powers.map(|used| (used.power, used.place)).collect()
    }

    #[test]
    fn powers_are_found_with_their_places() {
        assert_eq!(powers("[[traffic]]\ntx = \"a\"\n[[traffic.stream]]\n"), []);
        let all = powers(
            r#"
            i_own_this_network = true
            [[port]]
            name = "a"
            locator = "file:/tmp/x"
            [[traffic]]
            tx = "a"
            [[traffic.stream]]
            [[traffic.stream]]
            replay = "/etc/shadow"
            [[capture]]
            ports = ["a"]
            output = { path = "/tmp/y", command = "gzip" }
            [[http]]
            url = "https://example.org/"
            script = { file = "x.lua" }
            [[http]]
            url = "http://198.18.1.2:80/"
            connect_to = ["8.8.8.8:0", "10.0.0.1:0", "[::1]:0"]
            [[probe]]
            kind = "conntrack"
            [procedure.suite]
            tests = ["reset"]
            reset = { trigger = "reboot" }
            "#,
        );
        let expected = [
            (Power::Leaves, "i_own_this_network"),
            (Power::Reads, "port 1, locator"),
            (Power::Writes, "port 1, locator"),
            (Power::Reads, "traffic 1, stream 2, replay"),
            (Power::Writes, "capture 1, output, path"),
            (Power::Commands, "capture 1, output, command"),
            (Power::Leaves, "http 1, url"),
            (Power::Leaves, "http 2, connect_to 1"),
            (Power::Scripts, "http 1, script, file"),
            (Power::Commands, "probe 1, kind"),
            (Power::Commands, "procedure, suite, reset, trigger"),
        ];
        let expected: Vec<_> = expected
            .map(|(power, place)| (power, place.to_owned()))
            .into();
        assert_eq!(all, expected);
    }

    #[test]
    fn hosts_of_tests_and_of_private_networks_are_near() {
        for (host, near) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("::1", true),
            ("fe80::1%eth0", true),
            ("192.168.1.1", true),
            ("1.1.1.1", false),
            ("example.org", false),
            ("localhost.example.org", false),
        ] {
            assert_eq!(is_near(host), near, "{host}");
        }
        let server = |text| Rule::Server.powers(text).is_empty();
        assert!(server("198.18.1.2:12865") && server("[fe80::1%eth0]:80") && server(""));
        assert!(!server("1.1.1.1:80") && !server("example.org"));
    }
}
