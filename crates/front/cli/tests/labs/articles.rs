//! Configurations and command lines from articles about these tools, as they are
//! written there; only devices and addresses of machines are those of a lab. docs/articles.md goes through them.

use std::{
    fs,
    os::unix::fs::symlink,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    kit::{Lab, Running, privileged, run, system},
    load::{assert_balanced, job, job_total, load},
};

/// Common part of the clients of the balancer article, with `lines` in the middle.
fn client(lines: &str, listen: &str) -> String {
    format!(
        "mode        client\ncpu         0-15\nduration    600s\n{lines}\nport        0000:aa:00.0    10.10.10.10   10.10.10.1\n\
         client      10.10.10.10     1\nserver      10.10.10.11      1\nlisten      {listen}\nlport_range 1000 65535\nkni\n"
    )
}

const FLOOD: &str = "rss         l3l4\nflood\nprotocol    udp";

const SERVER: &str = "mode            server\nprotocol        udp\nkeepalive       100ms\npayload_size    64\ncpu             0-15\n\
    rss             l3l4\nduration    100m\nport        0000:aa:00.0    10.10.10.11   10.10.10.1\nclient      10.10.10.10       1\n\
    server      10.10.10.11      1\nlisten          8050              50\nkni\n";

/// A gateway at 10.10.10.1 between the two, as the switch and the balancer of the article.
fn gateway(lab: &Lab) {
    let dut = lab.node("dut");
    let script = "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0
        ip link add br0 type bridge && ip link set da master br0 && ip link set db master br0 &&
        ip addr add 10.10.10.1/24 dev br0 && ip link set br0 up";
    let done = system("ip", &["netns", "exec", &dut, "sh", "-c", script]);
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn recipes_for_a_balancer_run_with_their_kni_lines() {
    if !privileged() {
        return;
    }
    // 32 workers, which yield to no other process.
    let lab = Lab::alone("router", &[]);
    gateway(&lab);
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let run = |name: &str, client: &str, server: &str, options: &[&str]| -> Value {
        println!("{name}");
        let files = [
            file(&format!("{name}.conf"), client),
            file("server.conf", server),
        ];
        let ports = [
            format!("--port=client:0000:aa:00.0={}", lab.a0()),
            format!("--port=server:0000:aa:00.0={}", lab.b0()),
        ];
        // The size and the time of this machine in place of the article's.
        let all = [&files[0], &files[1], &ports[0], &ports[1]].map(String::as_str);
        let report = load(
            &[
                &all[..],
                &[
                    "--duration",
                    "1s",
                    "--wait",
                    "0s",
                    "--ramp",
                    "0s",
                    "--drain",
                    "500ms",
                ],
                options,
            ]
            .concat(),
            0,
        );
        assert_balanced(&report);
        report
    };
    let frames = |end: &Value, key: &str| end["frames"][key].as_u64().unwrap_or(0);

    let tcp_server = SERVER
        .replace("udp", "tcp")
        .replace("payload_size    64\n", "");
    let tcp_server = tcp_server.replace("8050              50", "8000             99");
    let cps = run(
        "cps",
        &client(
            "cps         100k\nrss         l3l4\nprotocol    tcp",
            "8000             99",
        ),
        &tcp_server.replace("keepalive       100ms\n", ""),
        &["--cps", "500"],
    );
    // In groups of five for each of the 16 workers, as dperf opens them.
    let completed = job_total(job(&cps, "client"), "completed_connections");
    assert!(completed >= 16 * 5, "{cps}");

    for (name, lines, listen, cc) in [
        (
            "one-way",
            format!(
                "cps         50k\ncc          500k\n{FLOOD}\npacket_size 64\nkeepalive   100ms"
            ),
            "8050              50",
            "200",
        ),
        (
            "bits",
            format!(
                "cps         50k\ncc          500k\n{FLOOD}\npacket_size 500\nkeepalive   100ms"
            ),
            "8050              50",
            "200",
        ),
        (
            "open",
            format!("cps         500k\ncc          5m\n{FLOOD}\npacket_size 64\nkeepalive   1s"),
            "8000              99",
            "2k",
        ),
        (
            "elephant",
            format!("cps         1\ncc          1\n{FLOOD}\npacket_size 1500\nkeepalive   100ms"),
            "8050              1",
            "1",
        ),
    ] {
        let server = SERVER.replace("8050              50", listen);
        let report = run(
            name,
            &client(&lines, listen),
            &server,
            &["--cps", "20k", "--cc", cc],
        );
        let sent = frames(job(&report, "client"), "offered_frames");
        assert!(sent > 0, "{name}: {report}");
        assert!(
            frames(job(&report, "server"), "received_frames") > 0,
            "{name}: {report}"
        );
    }

    // Both directions: the server answers each request, and the client counts the responses.
    let lines =
        format!("cps         50k\ncc          500k\n{FLOOD}\npacket_size 64\nkeepalive   100ms");
    let both = run(
        "two-ways",
        &client(&lines, "8050              50"),
        SERVER,
        &["--cps", "20k", "--cc", "200"],
    );
    assert!(job_total(job(&both, "server"), "responses") > 0, "{both}");
}

/// Output of a shell with access to the control files. The shell must exit with 0.
fn with_control_files(node: &str, script: &str) -> String {
    let output = run(&["pktgen", "run", "--netns", node, "bash", "-c", script]);
    let (said, complaints) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(0), "{said}{complaints}");
    said
}

/// The function and the sending end of the forwarding and the capture article.
const PGSET: &str = r#"
function pgset() {
    local result
    echo $1 > $PGDEV
    result=`cat $PGDEV | fgrep "Result: OK:"`
    if [ "$result" = "" ]; then
         cat $PGDEV | fgrep Result:
    fi
}
"#;

#[test]
fn the_forwarding_script_is_ended_by_ctrl_c_and_both_ends_are_read() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = tempfile::tempdir().unwrap();
    for destination in ["", "pgset \"dst 192.168.0.2\""] {
        let test = format!(
            r#"{PGSET}
            echo "Adding devices to run".
            PGDEV=/proc/net/pktgen/kpktgend_0
            pgset "rem_device_all"
            pgset "add_device a0"
            pgset "max_before_softirq 10000"
            echo "Configuring devices"
            PGDEV=/proc/net/pktgen/a0
            pgset "clone_skb 10000"
            pgset "pkt_size 60"
            pgset "src_mac D4:AE:52:7C:8D:92"
            pgset "src_min 10.10.10.2"
            pgset "src_max 10.255.255.255"
            {destination}
            pgset "dst_mac 24:B6:FD:F4:95:1A"
            pgset "count 0"
            PGDEV=/proc/net/pktgen/pgctrl
            echo "Running... ctrl^C to stop"
            pgset "start"
            echo "Done""#
        );
        let path = dir.path().join("test.sh");
        fs::write(&path, test).unwrap();
        // Without a destination the article's first script sends to 0.0.0.0, which leads nowhere.
        let script = path.display();
        let said = with_control_files(
            &lab.node("a"),
            &format!(
                "(until grep -q 'pkts-sofar: [1-9]' /proc/net/pktgen/a0 2>/dev/null; do sleep 0.1; done
                  pkill -INT -f '^bash {script}') & bash {script}; cat /proc/net/pktgen/a0"
            ),
        );
        assert!(said.contains("Running... ctrl^C to stop\n"), "{said}");
        let (_, file) = said
            .split_once("Params: count 0  min_pkt_size: 60  max_pkt_size: 60\n")
            .expect(&said);
        assert!(
            file.contains("src_min: 10.10.10.2  src_max: 10.255.255.255"),
            "{said}"
        );
        let sent = file
            .split("pkts-sofar: ")
            .nth(1)
            .and_then(|t| t.split(' ').next());
        assert!(sent.unwrap().parse::<u64>().unwrap() > 0, "{said}");
        assert!(
            file.contains("Result: OK: ") && file.contains(" (60byte,0frags)\n"),
            "{said}"
        );
    }
}

#[test]
fn the_capture_articles_sender_sends_its_two_thousand() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let said = with_control_files(
        &lab.node("a"),
        &format!(
            r#"{PGSET}
            PGDEV=/proc/net/pktgen/kpktgend_0
            pgset "rem_device_all" # clear
            pgset "add_device a0"
            PGDEV=/proc/net/pktgen/a0
            pgset "count 2000"
            pgset "delay 0"
            pgset "clone_skb 0"
            pgset "pkt_size 64"
            pgset "dst 172.16.32.12"
            pgset "dst_mac fa:28:00:06:df:6c"
            PGDEV=/proc/net/pktgen/pgctrl
            pgset "start"
            cat /proc/net/pktgen/a0"#
        ),
    );
    assert!(said.contains("pkts-sofar: 2000  errors: 0"), "{said}");
    assert!(said.contains(", 2000 (64byte,0frags)"), "{said}");
}

#[test]
fn the_latency_articles_commands_give_both_forms() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = lab.node("a");
    // Its cable from one port to the other of the same machine.
    for command in [
        "link add eth4 type veth peer name eth5",
        "link set eth4 up",
        "link set eth5 up",
    ] {
        let done = system(
            "ip",
            &[&["-n", &node], &command.split(' ').collect::<Vec<_>>()[..]].concat(),
        );
        assert!(done.status.success(), "{done:?}");
    }
    let said = with_control_files(
        &node,
        r#"
        P=/proc/net/pktgen
        cat $P/pgrx
        echo "rx eth5" > $P/pgrx
        echo "statistics time" > $P/pgrx
        cat $P/pgrx
        echo "rem_device_all"            > $P/kpktgend_0
        echo "add_device eth4"           > $P/kpktgend_0
        echo "count 10000"               > $P/eth4
        echo "clone_skb 1"               > $P/eth4
        echo "pkt_size 60"               > $P/eth4
        echo "delay 0"                   > $P/eth4
        echo "src_min 10.0.0.1"          > $P/eth4
        echo "src_max 10.0.0.1"          > $P/eth4
        echo "src_mac 02:00:00:00:00:01" > $P/eth4
        echo "dst 10.0.0.2"              > $P/eth4
        echo "dst_mac 02:00:00:00:00:02" > $P/eth4
        echo "start"                     > $P/pgctrl
        cat $P/pgrx
        echo "display script" > $P/pgrx
        cat $P/pgrx
        echo "display human" > $P/pgrx
        cat $P/pgrx"#,
    );
    let mut parts = said.split("\t\tRECEPTION STATISTICS\n");
    assert_eq!(parts.next(), Some("Not enabled.\n"), "{said}");
    let (empty, full) = (parts.next().unwrap(), parts.next().unwrap());
    assert!(empty.contains("Packets Rx: 0\t Bytes Rx: 0"), "{said}");
    let packets =
        |text: &str| text.contains("Global Statistics\nPackets Rx: 10000\t Bytes Rx: 600000\n");
    let measured = ["Inter-arrival\n", "Jitter\n", "Latency\n", "Samples: "];
    assert!(
        packets(full) && measured.iter().all(|m| full.contains(m)),
        "{said}"
    );
    assert!(
        full.lines().any(|l| l.starts_with("G 10000 600000 ")),
        "{said}"
    );
    assert!(packets(parts.next().unwrap()), "{said}");
}

#[test]
fn the_socket_articles_lines_work_with_their_long_dashes() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--hosts"]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    for (node, address) in [(&a, "192.168.20.123/24"), (&b, "192.168.20.124/24")] {
        let interface = if *node == a { "a0" } else { "b0" };
        let done = system(
            "ip",
            &["-n", node, "addr", "add", address, "dev", interface],
        );
        assert!(done.status.success(), "{done:?}");
    }
    // By links of those names, as they are typed.
    let dir = tempfile::tempdir().unwrap();
    let linked = |node: &str, words: &str| {
        let mut words = words.split(' ');
        let link = dir.path().join(words.next().unwrap());
        let _ = symlink(env!("CARGO_BIN_EXE_wirebench"), &link);
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", node, "timeout", "60"])
            .arg(link);
        command.args(words).stdin(Stdio::null());
        command
    };
    let _server = Running(
        linked(&b, "netserver -D -p 4444")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("netserver starts"),
    );
    for size in ["-m 2048", "-s 2048", "-S 10922"] {
        // One second in place of the article's twenty.
        let line = format!("netperf –H 192.168.20.124 -l 1 –p 4444 -- {size}");
        let mut output = linked(&a, &line).output().expect("netperf runs");
        for _ in 0..50 {
            if output.status.success() {
                break;
            }
            // The server is still starting.
            std::thread::sleep(std::time::Duration::from_millis(100));
            output = linked(&a, &line).output().expect("netperf runs");
        }
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{line}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(
            said.contains("TCP STREAM TEST") && said.contains("10^6bits/sec"),
            "{said}"
        );
        let result = said
            .split_whitespace()
            .next_back()
            .and_then(|w| w.parse::<f64>().ok());
        assert!(result.is_some_and(|r| r > 0.0), "{said}");
    }
}
