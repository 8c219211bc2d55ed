//! Figures of a recording: reconstructs the report from the printed text.

use wb_model::socket::{CpuUse, SocketEndReport, SocketJob, SocketJobReport};
use wb_netperf::OutputOptions;

/// The inverse of a selector's value.
pub(crate) fn set(
    show: &mut OutputOptions,
    job: &mut SocketJob,
    report: &mut SocketJobReport,
    name: &str,
    value: &str,
) {
    let name = name.to_uppercase();
    let float = || {
        value
            .parse::<f64>()
            .unwrap_or_else(|_| panic!("{name}: {value}"))
    };
    let int = || {
        value
            .parse::<i64>()
            .unwrap_or_else(|_| panic!("{name}: {value}"))
    };
    let known = || u32::try_from(int()).ok();
    let result = &mut report.result;
    match name.as_str() {
        "ELAPSED_TIME" => result.elapsed_s = float(),
        "THROUGHPUT" if show.unit.is_none() && job.test.counts_transactions() => {
            if result.transactions_per_second == 0.0 {
                result.transactions_per_second = float();
            }
        }
        "THROUGHPUT" => result.throughput_bps = bps(float(), show.unit),
        "TRANSACTION_RATE" if job.test.counts_transactions() => {
            result.transactions_per_second = float();
        }
        "CONFIDENCE_ITERATION" => report.iterations.resize(int() as usize, Default::default()),
        "THROUGHPUT_CONFID" | "LOCAL_CPU_CONFID" | "REMOTE_CPU_CONFID" if float() >= 0.0 => {
            let confidence = report.confidence.get_or_insert_default();
            match name.as_str() {
                "THROUGHPUT_CONFID" => confidence.result = float(),
                "LOCAL_CPU_CONFID" => confidence.local_cpu = float(),
                _ => confidence.remote_cpu = float(),
            }
        }
        "TRANSPORT_MSS" => report.segment_bytes = known(),
        "UUID" => show.uuid = value.to_owned(),
        "MIN_LATENCY" => report.latency_ns.min = Some(int() * 1000),
        "MAX_LATENCY" => report.latency_ns.max = Some(int() * 1000),
        "P50_LATENCY" => report.latency_ns.p50 = Some(int() * 1000),
        "P90_LATENCY" => report.latency_ns.p90 = Some(int() * 1000),
        "P99_LATENCY" => report.latency_ns.p99 = Some(int() * 1000),
        "MEAN_LATENCY" => report.latency_ns.mean = Some(float() * 1000.0),
        "STDDEV_LATENCY" => report.latency_ns.stddev = Some(float() * 1000.0),
        "DEST_FAMILY" if value == "2" => report.data_server = "127.0.0.1:9".to_owned(),
        "DEST_FAMILY" if value == "10" => report.data_server = "[::1]:9".to_owned(),
        _ => set_of_end(job, report, &name, value),
    }
}

fn set_of_end(job: &mut SocketJob, report: &mut SocketJobReport, name: &str, value: &str) {
    let Some((first, rest)) = name.split_once('_') else {
        return;
    };
    let int = || {
        value
            .parse::<i64>()
            .unwrap_or_else(|_| panic!("{name}: {value}"))
    };
    let known = || u32::try_from(int()).ok();
    let local = first.starts_with('L');
    let (end, asked) = if local {
        (&mut report.local, &mut job.local)
    } else {
        (&mut report.remote, &mut job.remote)
    };
    if let "LSS" | "LSR" | "RSS" | "RSR" = first {
        let sizes = if first.ends_with('S') {
            &mut end.send_buffer
        } else {
            &mut end.receive_buffer
        };
        match rest {
            "SIZE_REQ" => sizes[0] = known(),
            "SIZE" => sizes[1] = known(),
            _ => sizes[2] = known(),
        }
        return;
    }
    if first != "LOCAL" && first != "REMOTE" {
        return;
    }
    match rest {
        "SEND_CALLS" => end.send_calls = int() as u64,
        "RECV_CALLS" => end.receive_calls = int() as u64,
        "BYTES_SENT" => end.bytes_sent = int() as u64,
        "BYTES_RECVD" => end.bytes_received = int() as u64,
        "SEND_SIZE" => end.send_size = known().filter(|size| *size > 0),
        "RECV_SIZE" => end.receive_size = known().filter(|size| *size > 0),
        "SEND_WIDTH" => end.send_width = known().expect("a number"),
        "RECV_WIDTH" => end.receive_width = known().expect("a number"),
        "NODELAY" => end.no_delay = value == "1",
        "CORK" => job.options.cork = value == "1",
        "TRANSPORT_RETRANS" => end.retransmissions = u64::try_from(int()).ok(),
        "CONG_CONTROL" => end.congestion = value.to_owned(),
        "SEND_ALIGN" => asked.send_align = known().expect("a number"),
        "RECV_ALIGN" => asked.receive_align = known().expect("a number"),
        "SOCKET_PRIO" => asked.priority = known(),
        "SOCKET_TOS" => {
            let tos = u32::from_str_radix(value.trim_start_matches("0x"), 16).expect("hex");
            asked.tos = u8::try_from(tos).ok();
        }
        "CPU_METHOD" if value == "U" => cpu_of(report, local, |cpu| *cpu = None),
        "SD" => {
            let demand = value.parse::<f64>().ok().filter(|demand| *demand >= 0.0);
            if local {
                report.result.local_service_demand = demand;
            } else {
                report.result.remote_service_demand = demand;
            }
        }
        _ => {
            let Ok(figure) = value.parse::<f64>() else {
                return;
            };
            let field: fn(&mut CpuUse) -> &mut f64 = match rest {
                "CPU_UTIL" => |cpu| &mut cpu.total,
                "CPU_PERCENT_USER" => |cpu| &mut cpu.user,
                "CPU_PERCENT_SYSTEM" => |cpu| &mut cpu.system,
                "CPU_PERCENT_IOWAIT" => |cpu| &mut cpu.iowait,
                "CPU_PERCENT_IRQ" => |cpu| &mut cpu.irq,
                "CPU_PERCENT_SWINTR" => |cpu| &mut cpu.softirq,
                "CPU_PEAK_UTIL" => |cpu| &mut cpu.peak,
                "CPU_COUNT" => {
                    return cpu_of(report, local, |cpu| {
                        cpu.get_or_insert_default().cpus = figure as u32;
                    });
                }
                "CPU_PEAK_ID" => {
                    return cpu_of(report, local, |cpu| {
                        cpu.get_or_insert_default().peak_cpu = figure as i32;
                    });
                }
                _ => return,
            };
            if figure >= 0.0 {
                cpu_of(report, local, |cpu| {
                    *field(cpu.get_or_insert_default()) = figure;
                });
            }
        }
    }
}

fn cpu_of(report: &mut SocketJobReport, local: bool, set: impl FnOnce(&mut Option<CpuUse>)) {
    if local {
        set(&mut report.result.local_cpu);
    } else {
        set(&mut report.result.remote_cpu);
    }
}

/// Refines the elapsed time beyond the printed digits, so that the rates of the ends match the
/// printed ones.
pub(crate) fn refine_elapsed(report: &mut SocketJobReport, rates: &[(String, f64)]) {
    let bytes = |name: &str| match name {
        "LOCAL_SEND_THROUGHPUT" => report.local.bytes_sent,
        "LOCAL_RECV_THROUGHPUT" => report.local.bytes_received,
        "REMOTE_SEND_THROUGHPUT" => report.remote.bytes_sent,
        _ => report.remote.bytes_received,
    };
    let rates: Vec<(f64, f64)> = rates
        .iter()
        .map(|(name, rate)| (bytes(name) as f64 * 8e-6, *rate))
        .filter(|(bits, rate)| *bits > 0.0 && *rate > 0.0)
        .collect();
    let printed = |elapsed: f64| {
        rates
            .iter()
            .filter(|(bits, rate)| format!("{:.2}", bits / elapsed) == format!("{rate:.2}"))
            .count()
    };
    let asked = format!("{:.2}", report.result.elapsed_s);
    let best = rates
        .iter()
        .flat_map(|(bits, rate)| (-49..50).map(move |step| bits / (rate + f64::from(step) * 1e-4)))
        .filter(|elapsed| format!("{elapsed:.2}") == asked)
        .max_by_key(|elapsed| printed(*elapsed));
    if let Some(elapsed) = best {
        report.result.elapsed_s = elapsed;
    }
}

/// Bits per second of a printed rate; the original's `b` means bytes.
pub(crate) fn bps(value: f64, unit: Option<char>) -> f64 {
    match unit {
        Some('b' | 'B') => value * 8.0,
        Some('k') => value * 1e3,
        Some('g') => value * 1e9,
        Some('M') => value * 8.0 * 1024.0 * 1024.0,
        Some('G') => value * 8.0 * 1024.0 * 1024.0 * 1024.0,
        Some('u') => 8e6 / value,
        None | Some('m' | 'x') => value * 1e6,
        Some(_) => value * 8.0 * 1024.0,
    }
}

/// Total bytes of `calls` calls with the given mean.
pub(crate) fn total(mean: f64, calls: f64) -> u64 {
    (mean * calls).round() as u64
}

/// The two numbers of the lines with buffers.
pub(crate) fn buffers(end: &mut SocketEndReport, send: f64, receive: f64) {
    end.send_buffer[1] = Some(send as u32);
    end.receive_buffer[1] = Some(receive as u32);
}
