//! Vectors of the specification.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use wb_model::{Plan, Proto, TagKind, units::Rational};

use crate::{
    Config, Context, Control, FlowFigures, FlowState, Planned, Problem, Transmit, error_body,
    flow_metrics, read_append, read_control, read_delete, read_metrics, read_states, read_update,
    version,
};

fn config(flows: Value) -> Value {
    json!({
        "ports": [{"name": "p1", "location": "a0"}, {"name": "p2", "location": "b0"}],
        "captures": [{"name": "c", "port_names": ["p2"], "format": "pcap", "overwrite": true}],
        "flows": flows,
    })
}

fn flow(packet: Value) -> Value {
    json!({
        "name": "f",
        "tx_rx": {"choice": "port", "port": {"tx_name": "p1", "rx_names": ["p2"]}},
        "packet": packet,
        "size": {"choice": "fixed", "fixed": 128},
        "rate": {"choice": "pps", "pps": "50"},
        "duration": {"choice": "fixed_packets", "fixed_packets": {"packets": 100, "gap": 12}},
        "metrics": {"enable": true, "loss": true},
    })
}

fn read(value: &Value) -> Result<Config, Vec<Problem>> {
    Config::read(value, &|_| Some(10_000_000_000), 7)
}

fn planned(config: &Config) -> Planned {
    let flows: BTreeSet<String> = config.flows.iter().map(|f| f.name.clone()).collect();
    let captures = BTreeSet::from(["p2".to_owned()]);
    let context = Context {
        flows: &flows,
        captures: &captures,
        owns_network: false,
        neighbour: &|_, _| Some([2, 0, 0, 0, 0, 9]),
    };
    config.compile(&context).unwrap()
}

fn plan(flows: Value) -> Plan {
    let plan = planned(&read(&config(flows)).unwrap()).plan;
    plan.validate().unwrap();
    plan
}

/// The bytes of the first packet, without tag and payload.
fn bytes(packet: Value, size: u32) -> Vec<u8> {
    let mut flow = flow(packet);
    flow["size"] = json!({"fixed": size});
    let plan = plan(json!([flow]));
    let stream = &plan.traffic[0].streams[0];
    let mut bytes = stream.dst_mac.unwrap().0.to_vec();
    bytes.extend(stream.src_mac.unwrap().0);
    bytes.extend(stream.ethertype.unwrap().to_be_bytes());
    bytes.extend(stream.headers.iter().flat_map(|h| h.0.clone()));
    bytes
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn metrics(rows: &[(&crate::Flow, FlowFigures, Option<u64>)], columns: &[String]) -> Value {
    match flow_metrics(rows, columns) {
        Ok(crate::Answer::Text(text)) => serde_json::from_slice(&text).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn headers(names: &[&str]) -> Value {
    names
        .iter()
        .map(|name| json!({"choice": name, *name: {}}))
        .collect()
}

fn errors(value: &Value) -> (u16, String) {
    let (code, body) = error_body(&read(value).unwrap_err());
    assert_eq!(body["kind"], "validation");
    assert_eq!(body["code"], code);
    (code, body["errors"].to_string())
}

#[test]
fn a_flow_becomes_a_stream() {
    let packet = json!([
        {"choice": "ethernet", "ethernet": {"src": {"choice": "value", "value": "02:00:00:00:00:01"}}},
        {"choice": "ipv4", "ipv4": {"src": {"choice": "increment", "increment": {"start": "198.18.1.2", "step": "0.0.0.1", "count": 50}},
            "dst": {"choice": "value", "value": "198.19.1.2"}}},
        {"choice": "udp", "udp": {"src_port": {"choice": "value", "value": 49184}, "dst_port": {"choice": "values", "values": [7, 9, 19]}}},
    ]);
    let config = read(&config(json!([flow(packet)]))).unwrap();
    let Planned { plan, files } = planned(&config);
    plan.validate().unwrap();
    assert_eq!(files["p2"], "port1.pcap");
    let stream = &plan.traffic[0].streams[0];
    assert_eq!((stream.proto, stream.tag), (Proto::Raw, TagKind::Wirebench));
    assert_eq!(
        (stream.count, stream.rate),
        (Some(100), "50pps".parse().unwrap())
    );
    let vary: Vec<String> = stream.vary.iter().map(ToString::to_string).collect();
    assert_eq!(
        vary,
        ["u32@26=inc:3323068674-3323068723", "u16@36=list:7,9,19"]
    );
}

#[test]
fn lengths_of_the_specification() {
    let ipv4 = bytes(headers(&["ethernet", "ipv4", "udp"]), 128);
    assert_eq!(
        (word(&ipv4, 12), word(&ipv4, 16), word(&ipv4, 38)),
        (0x800, 110, 90)
    );
    assert_eq!((ipv4[14], ipv4[22], ipv4[23]), (0x45, 64, 17));
    let tcp = bytes(headers(&["ethernet", "ipv4", "tcp"]), 128);
    assert_eq!((tcp[46], tcp[23]), (0x50, 6));
    let ipv6 = bytes(headers(&["ethernet", "ipv6", "udp"]), 128);
    assert_eq!(
        (word(&ipv6, 12), word(&ipv6, 18), ipv6[20]),
        (0x86dd, 70, 17)
    );
    let tagged = bytes(headers(&["ethernet", "vlan", "ipv4", "udp"]), 128);
    assert_eq!(
        (word(&tagged, 12), word(&tagged, 16), word(&tagged, 20)),
        (0x8100, 0x800, 106)
    );
    let vxlan = [
        "ethernet", "ipv6", "udp", "vxlan", "ethernet", "ipv4", "tcp",
    ];
    let vxlan = bytes(headers(&vxlan), 256);
    assert_eq!(
        (word(&vxlan, 18), word(&vxlan, 58), word(&vxlan, 56)),
        (198, 198, 4789)
    );
    assert_eq!((vxlan[62], word(&vxlan, 86)), (8, 164));
}

#[test]
fn rates_of_the_specification() {
    let imix = json!({"weight_pairs": {"predefined": "imix"}});
    for (rate, size, speed, expected) in [
        (
            json!({"percentage": 100}),
            json!({"fixed": 64}),
            10,
            14_880_952.381,
        ),
        (
            json!({"percentage": 50}),
            json!({"fixed": 128}),
            1,
            422_297.297,
        ),
        (json!({"bps": 672}), json!({"fixed": 64}), 1, 1.0),
        (json!({"gbps": "1"}), json!({"fixed": 64}), 1, 1_488_095.238),
        (json!({"mbps": 1000}), json!({"fixed": 1518}), 1, 81_274.382),
        (
            json!({"kbps": 1_000_000}),
            json!({"fixed": 512}),
            1,
            234_962.406,
        ),
        (json!({"percentage": 33.3}), imix, 25, 2_783_660.277),
    ] {
        let mut flow = flow(headers(&["ethernet"]));
        (flow["rate"], flow["size"]) = (rate.clone(), size);
        let config = config(json!([flow]));
        let config = Config::read(&config, &|_| Some(speed * 1_000_000_000), 7).unwrap();
        let stream = &config.flows[0].streams[0].0;
        let pps = stream
            .rate
            .frames_per_second(stream.size.clone().unwrap().mean(), None);
        let pps = pps.unwrap().as_f64();
        assert!((pps - expected).abs() < 0.001, "{rate}: {pps}");
    }
    let mut flow = flow(headers(&["ethernet"]));
    flow["rate"] = json!({"percentage": 10});
    let problems = Config::read(&config(json!([flow])), &|_| None, 7).unwrap_err();
    assert!(
        problems[0].to_string().contains("layer1.speed"),
        "{problems:?}"
    );
}

#[test]
fn smallest_frames_with_a_tag() {
    for (names, size) in [
        (&["ethernet", "ipv4", "udp"][..], 64),
        (&["ethernet", "vlan", "ipv4", "udp"], 68),
        (&["ethernet", "ipv4", "tcp"], 76),
        (&["ethernet", "ipv6", "udp"], 84),
        (&["ethernet", "ipv6", "tcp"], 96),
    ] {
        for (size, tag) in [(size, TagKind::Wirebench), (size - 1, TagKind::None)] {
            let mut flow = flow(headers(names));
            flow["size"] = json!({"fixed": size});
            let config = read(&config(json!([flow]))).unwrap();
            let is_padded = size < 64;
            let expected = if is_padded { TagKind::Wirebench } else { tag };
            assert_eq!(
                config.flows[0].streams[0].0.tag, expected,
                "{names:?} {size}"
            );
        }
    }
    // Two flows with frames that look the same.
    let mut flows = [
        flow(headers(&["ethernet", "ipv6", "tcp"])),
        flow(headers(&["ethernet"])),
    ];
    flows[0]["size"] = json!({"fixed": 90});
    flows[1]["name"] = json!("g");
    let config = read(&config(json!(flows))).unwrap();
    let names = config.flows.iter().map(|f| f.name.clone()).collect();
    let captures = BTreeSet::new();
    let context = Context {
        flows: &names,
        captures: &captures,
        owns_network: true,
        neighbour: &|_, _| None,
    };
    let problems = config.compile(&context).unwrap_err();
    assert!(
        problems[0].to_string().contains("at least 96 bytes"),
        "{problems:?}"
    );
}

#[test]
fn errors_of_the_specification() {
    let mut unknown = flow(headers(&["ethernet"]));
    unknown["tx_rx"]["port"]["tx_name"] = json!("nope");
    let (code, text) = errors(&config(json!([unknown])));
    assert_eq!(code, 400);
    assert!(
        text.contains("flows[0].tx_rx.port.tx_name: unknown name 'nope'"),
        "{text}"
    );

    let mut ports = config(json!([]));
    ports["ports"][1]["name"] = json!("p1");
    let (code, text) = errors(&ports);
    assert_eq!(code, 400);
    assert!(
        text.contains("ports[1].name: duplicate name 'p1'"),
        "{text}"
    );

    let mut small = flow(headers(&["ethernet", "ipv4", "udp"]));
    small["size"] = json!({"fixed": 40});
    let (code, text) = errors(&config(json!([small])));
    assert_eq!(code, 400);
    assert!(text.contains("at least 46 bytes"), "{text}");

    let mut bgp = config(json!([]));
    bgp["devices"] = json!([{"name": "d", "bgp": {"router_id": "1.1.1.1"}}]);
    let (code, text) = errors(&bgp);
    assert_eq!(code, 501);
    assert!(text.contains("devices[0].bgp: unsupported"), "{text}");
}

#[test]
fn unsupported_keys_are_named() {
    for (path, value) in [
        ("events", json!({"enable": true})),
        ("lldp", json!([{"name": "l"}])),
        ("lags", json!([{"name": "l"}])),
        ("stateful_flows", json!([{"name": "s"}])),
        ("egress_only_tracking", json!([{}])),
    ] {
        let mut config = config(json!([]));
        config[path] = value;
        let (code, text) = errors(&config);
        assert_eq!(code, 501, "{text}");
        assert!(text.contains(&format!("{path}: unsupported")), "{text}");
    }
    for header in [
        "gtpv1",
        "gtpv2",
        "ppp",
        "igmpv1",
        "snmpv2c",
        "rsvp",
        "macsec",
        "lacp",
        "cfm",
        "ethernetpause",
        "pfcpause",
        "ipv6_extension_header",
    ] {
        let packet =
            json!([{"choice": "ethernet", "ethernet": {}}, {"choice": header, header: {}}]);
        let (code, text) = errors(&config(json!([flow(packet)])));
        assert_eq!(code, 501, "{text}");
        assert!(
            text.contains(&format!("flows[0].packet[1].{header}: unsupported")),
            "{text}"
        );
    }
    for (key, value) in [("egress_packet", json!([{}])), ("colour", json!("red"))] {
        let mut flow = flow(headers(&["ethernet"]));
        flow[key] = value;
        let (code, text) = errors(&config(json!([flow])));
        assert_eq!(code, 501, "{text}");
        assert!(text.contains(&format!("flows[0].{key}")), "{text}");
    }
}

#[test]
fn choices_may_be_left_out_but_must_agree() {
    let mut loose = flow(json!([{"ethernet": {"dst": {"value": "02:00:00:00:00:05"}}}]));
    loose["tx_rx"] = json!({"port": {"tx_name": "p1", "rx_name": "p2", "rx_names": null}});
    for key in ["size", "rate", "duration"] {
        loose.as_object_mut().unwrap().remove(key);
    }
    let config = read(&config(json!([loose]))).unwrap();
    let (stream, _) = &config.flows[0].streams[0];
    assert_eq!(
        (stream.count, stream.rate),
        (None, "1kpps".parse().unwrap())
    );
    assert_eq!(config.flows[0].rx, ["p2"]);
    let mut wrong = flow(headers(&["ethernet"]));
    wrong["rate"] = json!({"choice": "pps", "gbps": 1});
    let (code, text) = errors(&self::config(json!([wrong])));
    assert_eq!(code, 400, "{text}");
    assert!(
        text.contains("flows[0].rate.choice: conflict: the choice is pps, but gbps is present"),
        "{text}"
    );
    wrong["rate"] = json!({"pps": 5, "colour": 1});
    let (code, text) = errors(&self::config(json!([wrong])));
    assert_eq!(
        (code, text.as_str()),
        (501, r#"["flows[0].rate.colour: unsupported"]"#)
    );
    wrong["rate"] = json!({"pps": 5, "gbps": 1});
    assert_eq!(errors(&self::config(json!([wrong]))).0, 400);
}

#[test]
fn values_that_are_none_are_refused() {
    for (pattern, expected) in [
        (json!({"values": []}), "udp.src_port.values: out of range"),
        (
            json!({"increment": {"start": 1, "count": 0}}),
            "src_port.increment.count: out of range: 0",
        ),
        (
            json!({"decrement": {"start": 1, "count": 0}}),
            "src_port.decrement.count: out of range: 0",
        ),
        (
            json!({"random": {"count": 0}}),
            "src_port.random.count: out of range: 0",
        ),
    ] {
        let packet = json!([{"ethernet": {}}, {"ipv4": {}}, {"udp": {"src_port": pattern}}]);
        let (code, text) = errors(&config(json!([flow(packet)])));
        assert_eq!(code, 400, "{text}");
        assert!(text.contains(expected), "{text}");
    }
    // Clients send the choice alone if its value is the default.
    let packet =
        json!([{"ethernet": {}}, {"ipv4": {}}, {"udp": {"src_port": {"choice": "values"}}}]);
    assert!(read(&config(json!([flow(packet)]))).is_ok());
}

#[test]
fn sizes_and_bursts_of_the_specification() {
    let stream = |key: &str, value: Value| {
        let mut flow = flow(headers(&["ethernet", "ipv4", "udp"]));
        flow[key] = value;
        plan(json!([flow])).traffic[0].streams[0].clone()
    };
    let sizes = |value: Value| {
        stream("size", json!({ "increment": value }))
            .size
            .unwrap()
            .to_string()
    };
    assert_eq!(
        sizes(json!({"start": 64, "end": 72, "step": 4})),
        "64,68,72"
    );
    assert_eq!(sizes(json!({"start": 64, "end": 71, "step": 4})), "64,68");
    assert_eq!(sizes(json!({"start": 100, "end": 100})), "100");
    assert!(sizes(json!({})).ends_with("1517,1518"));

    let burst = |value: Value| {
        let stream = stream("duration", json!({ "burst": value }));
        let pps = stream
            .rate
            .frames_per_second(Rational::whole(128), None)
            .unwrap();
        (
            stream.burst,
            stream.gap.unwrap().as_nanos(),
            stream.count,
            pps.as_f64(),
        )
    };
    // 50 frames per second; a frame of 128 bytes takes 118.4 ns on the link.
    let ns = json!({"bursts": 2, "packets": 3, "inter_burst_gap": {"nanoseconds": 1e9}});
    assert_eq!(burst(ns), (Some(3), 1_040_000_119, Some(6), 50.0));
    let bytes = json!({"packets": 1, "inter_burst_gap": {"bytes": 125_000_000}});
    assert_eq!(burst(bytes), (Some(1), 100_000_119, None, 50.0));
    assert_eq!(burst(json!({"packets": 1})), (Some(1), 128, None, 50.0));
}

#[test]
fn checksums_may_be_wrong() {
    let packet = json!([{"ethernet": {}}, {"ipv4": {"header_checksum": {"generated": "bad"}}},
        {"udp": {"checksum": {"choice": "generated", "generated": "bad"}}}]);
    let plan = plan(json!([flow(packet)]));
    assert_eq!(plan.traffic[0].streams[0].bad_checksums, [24, 40]);
}

#[test]
fn receiving_ports_are_others_than_the_sending_one() {
    let to = |rx: Value| {
        let mut flow = flow(headers(&["ethernet"]));
        flow["tx_rx"]["port"]["rx_names"] = rx;
        errors(&config(json!([flow])))
    };
    let (code, text) = to(json!(["p1"]));
    assert_eq!(code, 400, "{text}");
    assert!(
        text.contains("rx_names[0]: conflict: 'p1' is the sending port"),
        "{text}"
    );
    let (_, text) = to(json!(["p2", "p2"]));
    assert!(text.contains("rx_names[1]: duplicate name 'p2'"), "{text}");
    let mut three = config(json!([flow(headers(&["ethernet"]))]));
    three["ports"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "p3", "location": "c0"}));
    three["flows"][0]["tx_rx"]["port"]["rx_names"] = json!(["p2", "p3"]);
    let (code, text) = errors(&three);
    assert_eq!(code, 501, "{text}");
    assert!(
        text.contains("flows[0].tx_rx.port.rx_names: unsupported: several receiving ports"),
        "{text}"
    );
}

#[test]
fn flows_share_the_speed_of_their_port() {
    let of = |percent: f64, duration: Value| {
        let mut flow = flow(headers(&["ethernet"]));
        (flow["rate"], flow["duration"]) = (json!({"percentage": percent}), duration);
        flow
    };
    let mut flows = [
        of(90.0, json!({"fixed_seconds": {"seconds": 2}})),
        of(60.0, json!({"fixed_packets": {"packets": 100}})),
    ];
    flows[1]["name"] = json!("g");
    let shared = read(&config(json!(flows))).unwrap();
    assert!(
        shared.warnings[0].contains("ask for 150.00 % of its speed"),
        "{:?}",
        shared.warnings
    );
    let pps = |flow: usize| {
        let pps = shared.flows[flow].streams[0].0.frames_per_second(None);
        pps.unwrap().as_f64()
    };
    // 60 % and 40 % of 10 Gbit/s with 128 bytes.
    let line = 10e9 / (148.0 * 8.0);
    assert!((pps(0) - 0.6 * line).abs() < 1.0 && (pps(1) - 0.4 * line).abs() < 1.0);
    #[allow(clippy::cast_precision_loss)]
    let count = shared.flows[0].count.unwrap() as f64;
    assert!((count - 2.0 * pps(0)).abs() < 2.0 && shared.flows[1].count == Some(100));
    flows[1]["rate"] = json!({"percentage": 10});
    assert_eq!(read(&config(json!(flows))).unwrap().warnings, [""; 0]);
}

#[test]
fn flows_that_cannot_be_sent_are_refused_with_their_place() {
    let mut weights = flow(headers(&["ethernet"]));
    let pair = |size: u32| json!({"size": size, "weight": 999.99});
    weights["size"] = json!({"weight_pairs": {"custom": [pair(64), pair(65)]}});
    weights["rate"] = json!({"pps": "4000000000"});
    let (code, text) = errors(&config(json!([weights])));
    assert_eq!(code, 400, "{text}");
    assert!(
        text.contains("flows[0]: ") && text.contains("2gpps"),
        "{text}"
    );
}

#[test]
fn custom_bytes_stay_as_they_are() {
    // An IPv4 header without length and checksum.
    let ip = "450000000000000040110000c6120102c6130102";
    let packet = json!([{"ethernet": {"ether_type": {"value": 2048}}}, {"custom": {"bytes": ip}}]);
    let plan = plan(json!([flow(packet)]));
    let vary: Vec<String> = plan.traffic[0].streams[0]
        .vary
        .iter()
        .map(ToString::to_string)
        .collect();
    let fixed = [
        "u8@16=list:0",
        "u8@17=list:0",
        "u8@24=list:0",
        "u8@25=list:0",
    ];
    assert_eq!(vary, fixed);
}

#[test]
fn loss_of_the_specification() {
    let loss = |ratio: Value, figures: FlowFigures| {
        let mut flow = flow(headers(&["ethernet"]));
        flow["metrics"]["rx_tx_ratio"] = ratio;
        let config = read(&config(json!([flow]))).unwrap();
        let mut flow = config.flows[0].clone();
        if flow.ratio.is_none() {
            flow.rx = vec!["p2".to_owned(), "p3".to_owned()];
        }
        let answer = metrics(&[(&flow, figures, None)], &[]);
        answer["flow_metrics"][0]["loss"].as_f64().unwrap()
    };
    let of = |due_frames, frames_rx, duplicates| FlowFigures {
        frames_tx: due_frames,
        due_frames,
        frames_rx,
        duplicates,
        ..FlowFigures::default()
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
    near(loss(Value::Null, of(1_000_000, 999_000, 0)), 0.1);
    near(loss(json!({"value": 0.5}), of(1_000_000, 500_000, 0)), 0.0);
    near(
        loss(
            json!({"choice": "rx_count", "rx_count": {}}),
            of(1_000_000, 1_500_000, 0),
        ),
        25.0,
    );
    near(loss(Value::Null, of(1_000_000, 1_100_000, 100_000)), 0.0);
    near(loss(Value::Null, of(1_000_000, 1_098_000, 99_000)), 0.1);
}

#[test]
fn rows_have_only_fields_of_the_schema() {
    let mut flow = flow(headers(&["ethernet"]));
    flow["metrics"] =
        json!({"enable": true, "loss": true, "timestamps": true, "latency": {"enable": true}});
    let config = read(&config(json!([flow]))).unwrap();
    let figures = FlowFigures {
        transmit: Transmit::Stopped,
        frames_tx: 100,
        bytes_tx: 12_800,
        due_frames: 100,
        frames_rx: 100,
        bytes_rx: 12_800,
        first_ns: Some(5),
        last_ns: Some(9),
        ..FlowFigures::default()
    };
    let answer = metrics(&[(&config.flows[0], figures, None)], &[]);
    let expected = json!({"choice": "flow_metrics", "flow_metrics": [{
        "name": "f", "port_tx": "p1", "port_rx": "p2", "transmit": "stopped",
        "frames_tx": "100", "frames_rx": "100", "bytes_tx": "12800", "bytes_rx": "12800",
        "frames_tx_rate": 0.0, "frames_rx_rate": 0.0, "loss": 0.0,
        "timestamps": {"first_timestamp_ns": 5, "last_timestamp_ns": 9},
        "tx_l1_rate_bps": 0.0, "rx_l1_rate_bps": 0.0,
        "tx_rate_bytes": 0.0, "rx_rate_bytes": 0.0, "tx_rate_bps": 0.0, "rx_rate_bps": 0.0,
        "tx_rate_kbps": 0.0, "rx_rate_kbps": 0.0, "tx_rate_mbps": 0.0, "rx_rate_mbps": 0.0,
    }]});
    assert_eq!(answer, expected);
    let columns = ["frames_tx".to_owned()];
    let few = metrics(&[(&config.flows[0], figures, None)], &columns);
    let row = few["flow_metrics"][0].as_object().unwrap();
    let keys: BTreeSet<&str> = row.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        BTreeSet::from(["frames_tx", "name", "port_rx", "port_tx"])
    );
}

#[test]
fn requests_are_read_and_others_named() {
    let flows = |state: &str| {
        json!({"choice": "traffic", "traffic": {"choice": "flow_transmit",
            "flow_transmit": {"state": state, "flow_names": ["f1"]}}})
    };
    for (name, state) in [
        ("start", FlowState::Start),
        ("stop", FlowState::Stop),
        ("pause", FlowState::Pause),
        ("resume", FlowState::Resume),
    ] {
        let control = Control::Flows(state, vec!["f1".to_owned()]);
        assert_eq!(read_control(&flows(name)), Ok(control));
    }
    assert_eq!(
        error_body(&read_control(&flows("wait")).unwrap_err()).0,
        400
    );
    let capture = json!({"port": {"capture": {"state": "pause"}}});
    assert_eq!(error_body(&read_control(&capture).unwrap_err()).0, 400);
    let bgp = json!({"choice": "protocol", "protocol": {"choice": "bgp", "bgp": {}}});
    assert_eq!(error_body(&read_control(&bgp).unwrap_err()).0, 501);
    assert_eq!(error_body(&read_control(&json!({})).unwrap_err()).0, 400);
    assert!(!read_metrics(&json!({})).unwrap().is_of_flows);
    assert!(
        read_metrics(&json!({"choice": "flow", "flow": {}}))
            .unwrap()
            .is_of_flows
    );
    assert_eq!(
        error_body(&read_metrics(&json!({"choice": "bgpv4"})).unwrap_err()).0,
        501
    );
    assert!(
        read_states(&json!({"choice": "ipv6_neighbors"}))
            .unwrap()
            .is_ipv6
    );
    for (columns, code) in [
        (json!(["frames_tx", "loss"]), 200),
        (json!(["frames"]), 400),
    ] {
        let request = json!({"choice": "flow", "flow": {"metric_names": columns}});
        let read = read_metrics(&request);
        assert_eq!(
            read.as_ref().map_or_else(|e| error_body(e).0, |_| 200),
            code,
            "{read:?}"
        );
    }
    let unknown = json!({"port": {"column_names": ["speed", "colour"]}});
    let text = error_body(&read_metrics(&unknown).unwrap_err()).1["errors"].to_string();
    assert!(
        text.contains("port.column_names[1]: unknown name 'colour'"),
        "{text}"
    );
    for empty in [
        json!({}),
        json!({"flows": {"property_names": ["rate"]}}),
        json!({"flows": {"flows": [{}]}}),
    ] {
        assert_eq!(error_body(&read_update(&empty).unwrap_err()).0, 400);
    }
    assert_eq!(error_body(&read_append(&json!({})).unwrap_err()).0, 400);
    assert_eq!(error_body(&read_delete(&json!({})).unwrap_err()).0, 400);
    let protocols = read_update(&json!({"choice": "protocols", "protocols": {}}));
    assert_eq!(error_body(&protocols.unwrap_err()).0, 501);
    let append = json!({"config_append_list": [{"choice": "flows", "flows": [{"name": "x"}]}]});
    assert_eq!(read_append(&append).unwrap(), [json!({"name": "x"})]);
    assert_eq!(version("1")["api_spec_version"], ">=1.0.0,<2.0.0");
}

#[test]
fn devices_have_neighbours() {
    let mut config = config(json!([]));
    let device = |n: usize| {
        json!({"name": format!("d{n}"), "ethernets": [{"name": format!("e{n}"), "mac": format!("00:00:01:01:01:0{n}"),
            "connection": {"choice": "port_name", "port_name": format!("p{n}")},
            "ipv4_addresses": [{"name": format!("v{n}"), "address": format!("10.0.0.{n}"), "gateway": format!("10.0.0.{}", 3 - n)}]}]})
    };
    config["devices"] = json!([device(1), device(2)]);
    let mut flow = flow(headers(&["ethernet", "ipv4", "udp"]));
    flow["tx_rx"] = json!({"choice": "device", "device": {"mode": "mesh", "tx_names": ["v1"], "rx_names": ["e2"]}});
    config["flows"] = json!([flow]);
    let plan = planned(&read(&config).unwrap()).plan;
    let job = &plan.traffic[0];
    assert_eq!(
        (job.tx.as_deref(), job.rx.as_deref()),
        (Some("p1"), Some("p2"))
    );
    let stream = &job.streams[0];
    assert_eq!(stream.dst_mac.unwrap().0, [2, 0, 0, 0, 0, 9]);
    assert_eq!(stream.src_mac.unwrap().to_string(), "00:00:01:01:01:01");
}

proptest::proptest! {
    #[test]
    fn any_configuration_is_read_or_refused(text in "[\\[\\]{}:,\"a-z0-9_. ]{0,80}") {
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            let _ = read(&value);
            let _ = read(&json!({"flows": [value.clone()], "ports": [value.clone()], "devices": [value]}));
        }
    }
}

#[test]
fn requests_with_very_many_parts_get_short_answers() {
    let errors = |value: &Value| {
        let (code, body) = error_body(&read(value).unwrap_err());
        let errors = body["errors"].as_array().unwrap().clone();
        assert!(
            errors
                .iter()
                .all(|error| error.as_str().unwrap().len() < 1000)
        );
        (code, errors)
    };
    let (code, found) = errors(&json!({"ports": vec![json!({}); 70_000]}));
    assert_eq!((code, found.len()), (400, 101));
    assert_eq!(
        found[0],
        "ports: out of range: 70000 elements; at most 65536"
    );
    assert_eq!(found[1], "ports: out of range: 65536 ports; at most 1024");
    assert_eq!(found[100], "1950 further problems");
    // Unsupported keys only, and texts of the request in errors.
    let colours: serde_json::Map<String, Value> =
        (0..200).map(|n| (format!("colour{n}"), json!(1))).collect();
    assert_eq!(errors(&colours.into()).0, 501);
    let (_, found) = errors(&json!({"ports": [{"name": ["é".repeat(1000)], "location": "a0"}]}));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].as_str().unwrap().ends_with('…'));

    let ethernet = |name: &str, port: &str, address: &str| {
        json!({"name": format!("d{name}"), "ethernets": [{"name": name, "mac": "02:00:00:00:00:01",
            "connection": {"port_name": port}, "ipv4_addresses":
            [{"name": format!("{name}4"), "address": address, "gateway": "198.18.0.9"}]}]})
    };
    let mut mesh = config(json!([{"name": "f", "tx_rx": {"device": {
        "tx_names": vec!["e"; 300], "rx_names": vec!["g"; 300]}}}]));
    mesh["devices"] = json!([
        ethernet("e", "p1", "198.18.0.1"),
        ethernet("g", "p2", "198.18.0.2")
    ]);
    let (_, found) = errors(&mesh);
    let text = "flows[0].tx_rx.device.mode: out of range: 90000 pairs; a mesh has at most 65536";
    assert!(found.contains(&json!(text)), "{found:?}");

    let queues = |number: &str| {
        let value = json!({"ports": [{"name": "p", "location": format!("a0?queues={number}")}]});
        read(&value).unwrap().ports[0]
            .plan()
            .map(|plan| plan.workers)
    };
    assert_eq!(queues("64"), Ok(64));
    for number in ["0", "65", "4000000000", "99999999999", "x"] {
        let what = "out of range: queues must be between 1 and 64";
        assert_eq!(queues(number), Err(what.to_owned()), "{number}");
    }
    let many = vec!["w".to_owned(); 150];
    let listed = crate::warnings(&many);
    assert_eq!(listed["warnings"][100], "50 further warnings");
}
