//! The lab `balancer` with sockets and with frames of wirebench, and a pair with several wires.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::kit::{Lab, Running, privileged, run, system, total};

/// Answers each connection to any of its arguments' addresses with the destination and the
/// source address of the connection.
const SERVER: &str = "
import socket, sys, threading
def serve(s):
    while True:
        c, peer = s.accept()
        c.sendall((c.getsockname()[0] + ' ' + peer[0]).encode())
        c.close()
listeners = []
for a in sys.argv[1:]:
    s = socket.socket(socket.AF_INET6 if ':' in a else socket.AF_INET)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((a, 80))
    s.listen(64)
    listeners.append(s)
for s in listeners:
    threading.Thread(target=serve, args=(s,)).start()
print('ready', flush=True)
";

/// Connects COUNT times from SOURCE to TARGET, one after the other, and prints each answer.
const CLIENT: &str = "
import socket, sys
source, target, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for _ in range(count):
    s = socket.create_connection((target, 80), 30, (source, 0))
    answer = b''
    while True:
        part = s.recv(100)
        if not part: break
        answer += part
    s.close()
    print(answer.decode())
";

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// A balancer between nodes with kernel addresses on both sides, for sockets.
struct WithSockets {
    lab: Lab,
    facts: Value,
}

impl WithSockets {
    fn up(options: &[&str]) -> Self {
        let lab = Lab::up("balancer", options);
        let facts = lab.status()["balancer"].clone();
        let this = Self { lab, facts };
        for side in ["client", "server"] {
            this.address(side);
        }
        this
    }

    fn inside(&self, node: &str, command: &[&str]) -> String {
        let node = self.lab.node(node);
        let output = system("ip", &[&["netns", "exec", &node], command].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The first client's addresses or all servers', and the way back.
    fn address(&self, side: &str) {
        let facts = &self.facts[side];
        let port = text(&facts["port"]).rsplit_once('/').unwrap().1;
        for interface in ["lo", port] {
            let setting = format!("net.ipv6.conf.{interface}.disable_ipv6=0");
            self.inside(side, &["sysctl", "-qw", &setting]);
        }
        for family in 0..2 {
            let (bits, all) = [("24", "32"), ("64", "128")][family];
            let own = format!("{}/{bits}", text(&facts["addresses"][family]));
            self.inside(side, &["ip", "addr", "add", &own, "dev", port, "nodad"]);
            for address in self.speakers(side, family) {
                let address = format!("{address}/{all}");
                self.inside(side, &["ip", "addr", "add", &address, "dev", "lo"]);
            }
            let gateway = text(&facts["gateways"][family]);
            let version = ["-4", "-6"][family];
            self.inside(
                side,
                &["ip", version, "route", "add", "default", "via", gateway],
            );
        }
    }

    fn speakers(&self, side: &str, family: usize) -> Vec<String> {
        if side == "server" {
            let servers = self.facts["backends"].as_array().unwrap();
            return servers
                .iter()
                .map(|s| text(&s[family]).to_owned())
                .collect();
        }
        let range = text(&self.facts["client"]["ranges"][family]);
        vec![range.split('-').next().unwrap().to_owned()]
    }

    fn serve(&self) -> Running {
        let servers = [self.speakers("server", 0), self.speakers("server", 1)].concat();
        let child = Command::new("ip")
            .args([
                "netns",
                "exec",
                &self.lab.node("server"),
                "python3",
                "-c",
                SERVER,
            ])
            .args(servers)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut running = Running(child);
        let mut line = String::new();
        let output = running.0.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        running
    }

    /// Number of connections, out of `count`, that each server answered, by the client address that it saw.
    fn connect(&self, family: usize, count: usize) -> BTreeMap<(String, String), usize> {
        let source = self.speakers("client", family).remove(0);
        let (target, count) = (text(&self.facts["vips"][family]), count.to_string());
        let said = self.inside(
            "client",
            &["python3", "-c", CLIENT, &source, target, &count],
        );
        let mut answers = BTreeMap::new();
        for line in said.lines() {
            let (server, seen) = line.split_once(' ').unwrap();
            *answers.entry((server.into(), seen.into())).or_default() += 1;
        }
        answers
    }

    /// Checks that each server had three of the connections, and saw `seen` as its clients.
    fn assert_shared(&self, family: usize, seen: &str) {
        let servers = self.speakers("server", family);
        let expected = servers
            .into_iter()
            .map(|s| ((s, seen.to_owned()), 3))
            .collect();
        assert_eq!(self.connect(family, 9), expected);
    }
}

#[test]
fn the_kernel_balances_and_counts() {
    if !privileged() {
        return;
    }
    let balancer = WithSockets::up(&["--backends", "3"]);
    let _server = balancer.serve();
    for family in 0..2 {
        let client = balancer.speakers("client", family).remove(0);
        balancer.assert_shared(family, &client);
    }
    let rules = balancer.inside("lb", &["nft", "list", "table", "inet", "balancer"]);
    // Three servers in two families, three connections each.
    assert_eq!(rules.matches("counter packets 3 ").count(), 6, "{rules}");
    assert_eq!(rules.matches("counter packets 9 ").count(), 2, "{rules}");
    assert!(rules.contains("ct state invalid counter"), "{rules}");
    let count = "/proc/sys/net/netfilter/nf_conntrack_count";
    assert!(
        balancer
            .inside("lb", &["cat", count])
            .trim()
            .parse::<u64>()
            .is_ok()
    );
    let facts = &balancer.lab.status()["balancer"];
    assert!(facts["conntrack_max"].as_u64().unwrap() > 0, "{facts}");
    let links = balancer.inside("lb", &["ip", "-s", "-j", "link", "show", "ds"]);
    let links: Value = serde_json::from_str(&links).unwrap();
    assert!(
        links[0]["stats64"]["tx"]["packets"].as_u64().unwrap() >= 18 * 3,
        "{links}"
    );
}

#[test]
fn haproxy_balances_and_goes_with_the_lab() {
    if !privileged() {
        return;
    }
    let balancer = WithSockets::up(&["--mode", "haproxy", "--backends", "3"]);
    let server = balancer.serve();
    for family in 0..2 {
        let seen = text(&balancer.facts["seen_by_servers"][family]).to_owned();
        balancer.assert_shared(family, &seen);
    }
    let counters = ["curl", "-s", "http://127.0.0.1:8404/;csv"];
    let counters = balancer.inside("lb", &counters);
    assert!(counters.contains("servers_v6,server2,"), "{counters}");
    let status = balancer.lab.status();
    assert_eq!(status["device"]["alive"], true);

    assert!(run(&["lab", "down", &balancer.lab.name]).status.success());
    drop(server);
    // A zombie process has no command line any more.
    let process = format!("/proc/{}/cmdline", status["device"]["pid"]);
    assert!(fs::read(process).unwrap_or_default().is_empty());
    assert_nothing_left(&balancer.lab.name);
}

fn assert_nothing_left(lab: &str) {
    for folder in ["/run/netns", "/run/wirebench/labs"] {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let names: Vec<_> = entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .filter(|name| name.contains(lab))
            .collect();
        assert_eq!(names, [""; 0], "{folder}");
    }
}

#[test]
fn our_frames_to_the_virtual_address_come_out_at_the_servers() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("balancer", &["--queues", "2"]);
    let facts = &lab.status()["balancer"];
    let (client, server) = (
        text(&facts["client"]["port"]),
        text(&facts["server"]["port"]),
    );
    let node = lab.node("lb");
    for family in 0..2 {
        // A trial answers for the addresses its frames are sent to, and not for the way there.
        let (way, mac) = (
            &facts["server"]["addresses"][family],
            &facts["server"]["mac"],
        );
        let known = [
            "neigh",
            "replace",
            text(way),
            "lladdr",
            text(mac),
            "dev",
            "ds",
        ];
        assert!(
            system("ip", &[&["-n", &node][..], &known].concat())
                .status
                .success()
        );
        let vip = text(&facts["vips"][family]);
        let clients = text(&facts["client"]["ranges"][family]);
        let options = [
            "--dst", vip, "--dport", "80", "--src", clients, "--size", "128",
        ];
        let amount = ["--flows", "8", "--rate", "5kpps", "--count", "4000"];
        let report = lab.trial_with(client, server, &[&options[..], &amount].concat(), 0);
        assert_eq!(total(&report, "offered"), 4_000);
        assert_eq!(total(&report, "lost"), 0, "{vip}: {}", report["totals"]);
    }
    let rules = system(
        "ip",
        &[
            "netns", "exec", &node, "nft", "list", "table", "inet", "balancer",
        ],
    );
    let rules = String::from_utf8(rules.stdout).unwrap();
    // Eight flows in two families, shared by two servers.
    assert_eq!(rules.matches("counter packets 8 ").count(), 2, "{rules}");
    assert_eq!(rules.matches("counter packets 4 ").count(), 4, "{rules}");
}

#[test]
fn the_command_that_is_said_loads_the_device() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("balancer", &[]);
    let said = String::from_utf8(run(&["lab", "ls"]).stdout).unwrap();
    let counters = format!(
        "wirebench lab exec wb-{}-lb nft list table inet balancer",
        lab.name
    );
    assert!(said.contains(&counters), "{said}");
    let from = said.find(&format!("wirebench load --client wb-{}-", lab.name));
    let command = said[from.expect("a command")..]
        .replace("\\\n", " ")
        .replace(
            "--cps 1k --duration 5s",
            "--cps 200 --duration 1s --json -q",
        );
    let words: Vec<&str> = command
        .lines()
        .next()
        .unwrap()
        .split_whitespace()
        .skip(1)
        .collect();
    let output = run(&words);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    let totals = &report["totals"];
    let [attempted, completed] = ["attempted", "completed"]
        .map(|key| totals[format!("{key}_connections")].as_u64().unwrap());
    // Departures missed by a busy machine are not made up for.
    let missed = report["lateness"]["missed_departures"].as_u64().unwrap();
    assert_eq!(
        (attempted + missed, completed),
        (200, attempted),
        "{totals}"
    );
    assert!(attempted > 0, "{totals}");
}

#[test]
fn each_wire_of_a_pair_carries() {
    if !privileged() {
        return;
    }
    let options = ["--links", "2", "--queues", "2", "--mtu", "2000"];
    let lab = Lab::up("pair", &options);
    let status = lab.status();
    assert_eq!(status["links"].as_array().unwrap().len(), 2);
    for link in 0..2 {
        let (a, b) = (format!("a{link}"), format!("b{link}"));
        assert_eq!(status["links"][link]["b"]["interface"], b.as_str());
        let (tx, rx) = (lab.port("a", &a), lab.port("b", &b));
        let amount = ["--size", "2018", "--rate", "2kpps", "--count", "1000"];
        let report = lab.trial_with(&tx, &rx, &amount, 0);
        assert_eq!(total(&report, "offered"), 1_000);
        assert_eq!(total(&report, "lost"), 0, "{a}: {}", report["totals"]);
        let shown = system(
            "ip",
            &["-n", &lab.node("a"), "-d", "-j", "link", "show", &a],
        );
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(shown[0]["mtu"], 2000);
        assert_eq!(shown[0]["num_tx_queues"], 2);
    }
    assert!(run(&["lab", "down", &lab.name]).status.success());
    assert_nothing_left(&lab.name);
}
