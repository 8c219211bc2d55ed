//! Resolution of options that depend on each other: from the typed options to a plan.

use wb_model::{
    Plan,
    socket::{Confidence, Family, SendBy, SocketJob, SocketProtocol, SocketTest, SocketType},
    units::Span,
};

use super::{
    DataDirection, NetperfCommand, NetperfRefusal, SpecialAction, TypedOptions, tests_known::Known,
};
use crate::{TestKind, TypedEnd};

/// Ports of the services that can replace a server (RFC 863, 864, 862).
const DISCARD: u16 = 9;
const CHARGEN: u16 = 19;
const ECHO: u16 = 7;

/// Makes the command from all typed options.
///
/// # Errors
/// Conflicts between options, and values that a plan cannot hold.
pub(super) fn resolve_command(
    mut typed: TypedOptions,
    known: &Known,
) -> Result<NetperfCommand, NetperfRefusal> {
    let settled = resolve_job(&mut typed, known);
    let refuse = |refusal: NetperfRefusal, typed: TypedOptions| NetperfRefusal {
        notes: typed.notes,
        ..refusal
    };
    if let Err(refusal) = settled {
        return Err(refuse(refusal, typed));
    }
    resolve_output(&mut typed);
    let mut problems: Vec<String> = typed
        .job
        .problems()
        .into_iter()
        .map(|p| format!("netperf: {}: {}", option_of(&p.place), p.what))
        .collect();
    // Both halves of a pair may be wrong.
    problems.dedup();
    if !problems.is_empty() {
        return Err(refuse(
            NetperfRefusal::usage_error(problems.join("\n")),
            typed,
        ));
    }
    Ok(NetperfCommand {
        plan: Plan {
            kind: "netperf".to_owned(),
            sockets: vec![typed.job],
            ..Plan::default()
        },
        show: typed.show,
        special: known.special,
        notes: typed.notes,
        debug: typed.debug,
        cpus: typed.cpus,
    })
}

fn resolve_job(typed: &mut TypedOptions, known: &Known) -> Result<(), NetperfRefusal> {
    typed.job.control.classic = known.classic;
    if known.kind == TestKind::TcpSendfile {
        typed.job.local.send_by = SendBy::Sendfile;
    }
    resolve_type(typed);
    if known.special == SpecialAction::Normal {
        resolve_test(typed, known)?;
    }
    resolve_families(typed)?;
    let TypedOptions {
        job,
        iterations,
        length,
        interval,
        routing,
        ..
    } = typed;
    if job.test.connects_each() {
        job.first_burst = 0;
    }
    // A one-way stream of datagrams must not leave the connected networks by accident.
    let one_way = !job.test.counts_transactions();
    let routed = routing.unwrap_or(!(job.protocol == SocketProtocol::Udp && one_way));
    job.options.dont_route = !routed;
    if let Some(length) = *length {
        job.duration = u64::try_from(length)
            .ok()
            .filter(|s| *s > 0)
            .map(Span::from_secs);
        job.amount = (length < 0).then(|| length.unsigned_abs());
    }
    for (side, us) in [&mut job.local, &mut job.remote].into_iter().zip(interval) {
        let us = us.unwrap_or(if side.burst > 0 { 1_000 } else { 0 });
        side.burst_interval = Span::from_nanos(us.saturating_mul(1_000));
    }
    if iterations.level > 0 {
        job.confidence = Some(Confidence {
            level: iterations.level,
            width: iterations.width,
            min: iterations.min,
            max: iterations.max,
            result_only: iterations.result_only,
        });
    }
    if job.control.none {
        resolve_without_control(job);
    }
    Ok(())
}

/// A datagram type without a protocol selects UDP for OMNI. The default type of the protocol is dropped.
fn resolve_type(typed: &mut TypedOptions) {
    let job = &mut typed.job;
    if typed.show.kind == TestKind::Omni
        && !typed.protocol_given
        && job.socket_type == Some(SocketType::Dgram)
    {
        job.protocol = SocketProtocol::Udp;
    }
    let usual = match job.protocol {
        SocketProtocol::Tcp | SocketProtocol::Sctp | SocketProtocol::Mptcp => SocketType::Stream,
        SocketProtocol::Udp | SocketProtocol::UdpLite => SocketType::Dgram,
        SocketProtocol::Dccp => SocketType::Dccp,
    };
    job.socket_type = job.socket_type.filter(|t| *t != usual);
}

fn resolve_test(typed: &mut TypedOptions, known: &Known) -> Result<(), NetperfRefusal> {
    let job = &mut typed.job;
    if known.kind == TestKind::Omni {
        let nothing = DataDirection::default();
        // An explicit direction has priority over other options.
        let mut way = typed.direction.unwrap_or(typed.implied);
        if way == nothing && !typed.connect_each {
            way.send = true;
        }
        job.test = match (way.send, way.receive) {
            (true, true) => SocketTest::Rr,
            (true, false) => SocketTest::Send,
            (false, true) => SocketTest::Receive,
            (false, false) => SocketTest::Cc,
        };
    }
    if typed.connect_each {
        job.test = match job.test {
            SocketTest::Rr | SocketTest::Crr => SocketTest::Crr,
            SocketTest::Cc => SocketTest::Cc,
            _ => {
                return Err(NetperfRefusal::usage_error(
                    "netperf: -- -c: a connection for each transaction needs requests and responses (-d rr), or OMNI without a direction",
                ));
            }
        };
    }
    if job.test.connects_each() && !job.protocol.connects() {
        return Err(NetperfRefusal::usage_error(
            "netperf: -- -T: a connection for each transaction needs a connection-oriented protocol",
        ));
    }
    Ok(())
}

fn resolve_families(typed: &mut TypedOptions) -> Result<(), NetperfRefusal> {
    let (server, local) = (typed.data_family, typed.data_local_family);
    typed.job.data.family = match (server, local) {
        (Family::Any, family) | (family, Family::Any) => family,
        (server, local) if server == local => server,
        _ => {
            return Err(NetperfRefusal::usage_error(
                "netperf: -- -H, -L: both ends of a data connection must have the same IP version",
            ));
        }
    };
    let control = &mut typed.job.control;
    control.server = match (&typed.show.control.host, control.family) {
        (Some(host), _) => host.clone(),
        (None, Family::Ipv6) => "::1".to_owned(),
        (None, Family::Any | Family::Ipv4) => "localhost".to_owned(),
    };
    Ok(())
}

/// Without a control connection, no sizes are negotiated, and the peer echoes the data.
fn resolve_without_control(job: &mut SocketJob) {
    job.response_size = job.request_size;
    if job.data.server_port == 0 {
        job.data.server_port = match job.test {
            SocketTest::Receive => CHARGEN,
            SocketTest::Rr | SocketTest::Crr | SocketTest::Both => ECHO,
            SocketTest::Send | SocketTest::Cc | SocketTest::Mss | SocketTest::ServerCpu => DISCARD,
        };
    }
}

/// Copies the values of the job that appear in the texts.
fn resolve_output(typed: &mut TypedOptions) {
    let TypedOptions { job, show, .. } = typed;
    show.control.port = job.control.port;
    show.control.family = job.control.family;
    show.control_local = TypedEnd {
        host: job.control.local.clone(),
        port: job.control.local_port,
        family: job.control.local_family,
    };
    let inherited = |family: Family, of: Family| match family {
        Family::Any => of,
        own => own,
    };
    show.local = TypedEnd {
        host: job.data.local.clone().or_else(|| job.control.local.clone()),
        port: job.data.local_port,
        family: inherited(job.data.family, job.control.local_family),
    };
    show.remote = TypedEnd {
        host: job
            .data
            .server
            .clone()
            .or_else(|| show.control.host.clone()),
        port: job.data.server_port,
        family: inherited(job.data.family, job.control.family),
    };
    show.local_fill_file.clone_from(&job.local.fill_file);
    show.remote_fill_file.clone_from(&job.remote.fill_file);
}

/// Option that sets a key of the job.
fn option_of(place: &str) -> &str {
    match place {
        "control.server" => "-H",
        "control.port" => "-p",
        "duration" | "amount" => "-l",
        "interim" => "-D",
        "request_size" | "response_size" => "-- -r",
        "first_burst" => "-- -b",
        "local.send_size" | "remote.send_size" => "-- -m",
        "local.receive_size" | "remote.receive_size" => "-- -M",
        "local.send_buffer" | "local.receive_buffer" => "-- -s",
        "remote.send_buffer" | "remote.receive_buffer" => "-- -S",
        "local.send_align" | "local.receive_align" => "-a",
        "remote.send_align" | "remote.receive_align" => "-A",
        "local.burst_interval" | "remote.burst_interval" => "-w",
        "local.pacing_bps" => "-- -q",
        "confidence.level" | "confidence.width" => "-I",
        "confidence.max" => "-i",
        other => other,
    }
}
