//! Configurations and command lines that articles about these tools tell their readers to type, as they are
//! written there; only devices and addresses of machines are those of a lab. docs/articles.md goes through them.

use std::fs;

use serde_json::Value;

use crate::{
    kit::{Lab, privileged, system},
    load::{assert_balanced, job, job_total, load},
};

/// What all of the balancer article's clients have, with their own lines in the middle.
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
    if !privileged("recipes_for_a_balancer_run_with_their_kni_lines") {
        return;
    }
    let lab = Lab::up("router", &[]);
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

    // Two ways: the server answers each, and the client counts what comes.
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
