//! The plan, a line for each stream.

use wb_model::{
    Plan, Proto, Stream, TagKind, TrafficJob,
    bench::{Quantity, SuitePlan},
    device::{DeviceJob, Mode},
    units::{SizeModel, Span},
};

use crate::{
    figures::count,
    page::{Page, Tone},
};

/// Writes the plan, or nothing if it has no jobs.
pub(super) fn section(page: &mut Page, plan: &Plan) {
    let lines = lines(plan);
    if lines.is_empty() {
        return;
    }
    page.head("plan");
    for line in lines {
        let text = line.trim_start();
        let indent = " ".repeat(2 + line.len() - text.len());
        page.item(Tone::Plain, &indent, Tone::Plain, text);
    }
}

/// A line for each device, watch and job; those of a job's streams are indented.
pub(crate) fn lines(plan: &Plan) -> Vec<String> {
    let mut lines: Vec<String> = plan.devices.iter().map(device_line).collect();
    for watch in &plan.watches {
        let time = watch.duration.map(|d| format!(" for {d}"));
        lines.push(format!(
            "watch {}{}: {}",
            watch.port,
            time.unwrap_or_default(),
            match watch.mode {
                Mode::Counter => "packets",
                Mode::Basic => "packets and rate",
                Mode::Time => "packets, rate and times",
            }
        ));
    }
    let suite = plan.suite();
    // Its sizes, rates and times are those of the suite.
    let searched = suite.filter(|suite| suite.of == Quantity::Frames);
    let searched = searched.and_then(|suite| suite.traffic_index(&plan.trial()));
    lines.extend(suite.map(suite_line));
    for (n, job) in plan.traffic.iter().enumerate() {
        let is_searched = searched == Some(n);
        lines.push(match is_searched {
            true => ends(job),
            false => job_line(job),
        });
        let streams = job.streams.iter();
        lines.extend(streams.map(|s| format!("  {}", stream_line(s, is_searched))));
    }
    lines
}

/// Tests of a suite, and sizes or the quantity that is searched.
fn suite_line(suite: &SuitePlan) -> String {
    let tests: Vec<&str> = suite.tests.iter().map(|test| test.name()).collect();
    let tests = tests.join(", ");
    let sizes: Vec<&str> = suite.sizes.iter().map(|size| size.name.as_str()).collect();
    match (suite.of, sizes.as_slice()) {
        (Quantity::Frames, []) => format!("{tests} at the sizes of the streams"),
        (Quantity::Frames, [one]) => format!("{tests} at {}", wb_model::bench::size_text(one)),
        (Quantity::Frames, all) => format!("{tests} at {} B", all.join(", ")),
        (of, _) => format!("{tests} of {}", of.name()),
    }
}

fn device_line(device: &DeviceJob) -> String {
    let s = &device.settings;
    let mut parts = vec![match s.count {
        0 => "unlimited packets".to_owned(),
        n => format!("{} packets", count(n)),
    }];
    if s.duration_ns > 0 {
        parts.push(format!("at most {}", Span::from_nanos(s.duration_ns)));
    }
    parts.push(if s.uses_imix() {
        "size mix".to_owned()
    } else if s.max_size > s.min_size {
        format!("{} to {} B without FCS", s.min_size, s.max_size)
    } else {
        format!("{} B without FCS", s.min_size)
    });
    parts.push(match s.delay.shown_ns {
        0 => "at full speed".to_owned(),
        _ => format!("{} ns apart", s.delay),
    });
    if s.burst > 1 {
        parts.push(format!("bursts of {}", s.burst));
    }
    if s.clone_skb > 1 {
        parts.push(format!("each sent {} times", s.clone_skb));
    }
    format!(
        "{}: from {} on CPU {}, {}",
        s.name,
        device.port,
        device.cpu,
        parts.join(", ")
    )
}

/// The ports of a job, and its name if it has one.
fn ends(job: &TrafficJob) -> String {
    let way = match (&job.tx, &job.rx) {
        (Some(tx), Some(rx)) if job.bidir => format!("{tx} <-> {rx}"),
        (Some(tx), Some(rx)) => format!("{tx} -> {rx}"),
        (Some(tx), None) => format!("send from {tx}"),
        (None, Some(rx)) => format!("receive at {rx}"),
        (None, None) => String::new(),
    };
    match job.name.as_str() {
        "" => way,
        name => format!("{name}: {way}"),
    }
}

fn job_line(job: &TrafficJob) -> String {
    let mut parts = vec![ends(job)];
    match (job.duration, job.count) {
        (duration, Some(n)) => {
            parts.push(format!("{} frames", count(n)));
            parts.extend(duration.map(|d| format!("at most {d}")));
        }
        (Some(duration), None) => parts.push(duration.to_string()),
        (None, None) => {}
    }
    if job.ramp != Default::default() {
        parts.push(format!("ramp {}", job.ramp));
    }
    if job.hold != Default::default() {
        let load = job.hold_load;
        parts.push(format!(
            "{} at {load} times the rate before the measurement",
            job.hold
        ));
    }
    if job.tx.is_some() && job.rx.is_some() {
        parts.push(format!("drain {}", job.drain));
    }
    parts.join(", ")
}

fn stream_line(s: &Stream, in_suite: bool) -> String {
    let mut parts = Vec::new();
    let pace = match (s.burst, s.gap) {
        (Some(burst), Some(gap)) => format!("bursts of {} every {gap}", count(burst.into())),
        _ => format!("rate {}", s.rate),
    };
    if let Some(file) = &s.replay {
        parts.push(format!("replay of {file}"));
        parts.push(match s.speed {
            Some(speed) => format!("recorded timing x {speed}"),
            None => pace,
        });
    } else {
        if !in_suite {
            parts.push(match s.sizes() {
                sizes if sizes == SizeModel::imix() => "IMIX".to_owned(),
                sizes => format!("{sizes} B"),
            });
            parts.push(pace);
        }
        parts.push(address_line(s));
        let flows = u64::from(s.flow_count());
        parts.push(if flows == 1 {
            "1 flow".to_owned()
        } else {
            format!("{} flows", count(flows))
        });
    }
    if s.tag == TagKind::None {
        parts.push("no tag: frames are only counted".to_owned());
    }
    let line = parts.join(", ");
    if s.name.is_empty() {
        line
    } else {
        format!("{}: {line}", s.name)
    }
}

fn address_line(s: &Stream) -> String {
    let vlan: String = s.vlan.iter().map(|v| format!("VLAN {} ", v.id)).collect();
    let mpls: String = s.mpls.iter().map(|l| format!("MPLS {l} ")).collect();
    let proto = match s.proto {
        Proto::Udp => "UDP",
        Proto::Tcp => "TCP",
        Proto::Icmp => "ICMP",
        Proto::Arp => "ARP",
        Proto::Raw => "raw",
    };
    let (src, dst) = (s.source(), s.destination());
    let ends = match s.proto {
        Proto::Raw => String::new(),
        Proto::Arp | Proto::Icmp => format!(" {src} -> {dst}"),
        Proto::Udp | Proto::Tcp => {
            format!(
                " {src} port {} -> {dst} port {}",
                s.source_ports(),
                s.destination_ports()
            )
        }
    };
    let ext: Vec<&str> = s.ext.iter().map(|header| header.name()).collect();
    let ext = match ext.as_slice() {
        [] => String::new(),
        all => format!(" (extension headers: {})", all.join(", ")),
    };
    format!("{vlan}{mpls}{proto}{ends}{ext}")
}
