//! Arbitrary bytes as JSON documents and gRPC messages of Open Traffic Generator clients: no panics. An accepted
//! configuration gives a valid plan, and messages become documents that can be read.
#![no_main]

use std::{collections::BTreeSet, sync::LazyLock};

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use wb_otg::{Config, Context, Proto};

static PROTO: LazyLock<Proto> = LazyLock::new(|| Proto::load().expect("the descriptors are whole"));

fn read_all(document: &Value) {
    let _ = wb_otg::read_control(document);
    let _ = wb_otg::read_metrics(document);
    let _ = wb_otg::read_states(document);
    let _ = wb_otg::read_capture(document);
    let _ = wb_otg::read_append(document);
    let _ = wb_otg::read_delete(document);
    let _ = wb_otg::read_update(document);
    let Ok(config) = Config::read(document, &|_| Some(1_000_000_000), 1) else {
        return;
    };
    let flows: BTreeSet<String> = config.flows.iter().map(|flow| flow.name.clone()).collect();
    let captures = config.ports.iter().map(|port| port.name.clone()).collect();
    let planned = config.compile(&Context {
        flows: &flows,
        captures: &captures,
        owns_network: true,
        neighbour: &|_, _| Some([2, 0, 0, 0, 0, 1]),
    });
    if let Ok(planned) = planned
        && !planned.plan.traffic.is_empty()
    {
        planned.plan.validate().expect("an accepted configuration gives a valid plan");
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(document) = wb_otg::read_document(bytes) {
        read_all(&document);
    }
    for name in ["SetConfig", "streamSetConfig", "SetControlState", "GetMetrics", "UpdateConfig"] {
        let method = PROTO.method(&format!("/otg.Openapi/{name}"));
        let method = method.expect("the method is known");
        if let Ok(request) = method.request(&[bytes]) {
            let document = wb_otg::read_document(&request.json).expect("it is valid JSON");
            read_all(&document);
        }
    }
});
