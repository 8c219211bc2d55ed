//! Output and exit status of a failed test.

use std::net::IpAddr;

use wb_model::socket::{
    Family, SocketFailure, SocketJob, SocketJobReport, SocketProtocol, SocketStage, SocketTest,
    SocketType,
};

use super::{ProgramExit, errno, values};
use crate::OutputOptions;

/// Exit status of a failure before or between the connections.
const CONTROL: u8 = 255;
/// Exit status of a failure in a test.
const TEST: u8 = 1;

/// The original's text for a failure. If it omits known details, an additional line follows, except in strict
/// mode.
#[must_use]
pub fn failure_exit(
    show: &OutputOptions,
    job: &SocketJob,
    report: &SocketJobReport,
    failure: &SocketFailure,
) -> ProgramExit {
    let mut ending = match failure.stage {
        SocketStage::Resolve => resolve_failure(show, failure),
        SocketStage::Connect => connect(show),
        SocketStage::Remote => remote_failure(failure),
        SocketStage::Control => control_failure(failure),
        SocketStage::Socket => socket_failure(job, report, failure),
        SocketStage::Data => data_failure(job, failure),
    };
    let said = ending.stdout.contains(&failure.what) || ending.stderr.contains(&failure.what);
    if !show.strict && !said {
        ending
            .stderr
            .push_str(&format!("netperf: {}\n", failure.what));
    }
    ending
}

/// The system's message for the error number, or else the reported text.
fn system_message(failure: &SocketFailure) -> &str {
    failure
        .errno
        .and_then(errno::errno_message)
        .unwrap_or(&failure.what)
}

/// Server of the control connection as typed.
fn control_server(show: &OutputOptions) -> &str {
    match (&show.control.host, show.control.family) {
        (Some(host), _) => host,
        (None, Family::Ipv6) => "::1",
        (None, Family::Any | Family::Ipv4) => "localhost",
    }
}

const fn family_name(family: Family) -> &'static str {
    match family {
        Family::Any => "AF_UNSPEC",
        Family::Ipv4 => "AF_INET",
        Family::Ipv6 => "AF_INET6",
    }
}

/// Requested family, or else the family of a host given as an address.
fn family_of(asked: Family, host: &str) -> Family {
    match (asked, values::address_of(host)) {
        (Family::Any, Some(IpAddr::V4(_))) => Family::Ipv4,
        (Family::Any, Some(IpAddr::V6(_))) => Family::Ipv6,
        (asked, _) => asked,
    }
}

fn resolve_failure(show: &OutputOptions, failure: &SocketFailure) -> ProgramExit {
    let host = control_server(show);
    let family = family_name(family_of(show.control.family, host));
    let number = failure.errno.map_or_else(String::new, |n| format!("{n} "));
    ProgramExit {
        stdout: format!(
            "resolve_host: could not resolve host '{host}' port '(null)' af {family}\n\
             \tgetaddrinfo returned {number}{}\n\
             Netperf could not resolve {host} as a host name\n",
            failure.what
        ),
        stderr: String::new(),
        status: CONTROL,
    }
}

fn connect(show: &OutputOptions) -> ProgramExit {
    let host = control_server(show);
    let port = show.control.port;
    let remote = family_of(show.control.family, host);
    let local = match &show.control_local.host {
        Some(host) => host,
        None if remote == Family::Ipv6 => "::0",
        None => "0.0.0.0",
    };
    ProgramExit {
        stdout: format!(
            "establish control: are you sure there is a netserver listening on {host} at port \
             {port}?\n\
             establish_control could not establish the control connection from {local} port {} \
             address family {} to {host} port {port} address family {}\n",
            show.control_local.port,
            family_name(show.control_local.family),
            family_name(remote)
        ),
        stderr: String::new(),
        status: CONTROL,
    }
}

fn remote_failure(failure: &SocketFailure) -> ProgramExit {
    match failure.errno {
        Some(number) => ProgramExit {
            stdout: format!("netperf: remote error {number}"),
            stderr: format!("{}\n", system_message(failure)),
            status: CONTROL,
        },
        None => ProgramExit {
            stderr: format!("netperf: {}\n", failure.what),
            status: CONTROL,
            ..ProgramExit::default()
        },
    }
}

fn control_failure(failure: &SocketFailure) -> ProgramExit {
    let stderr = match failure.errno {
        Some(_) => format!("recv_response: {}\n", system_message(failure)),
        None => "recv_response: partial response received: 0 bytes\n".to_owned(),
    };
    ProgramExit {
        stderr,
        status: TEST,
        ..ProgramExit::default()
    }
}

fn socket_failure(
    job: &SocketJob,
    report: &SocketJobReport,
    failure: &SocketFailure,
) -> ProgramExit {
    // Error numbers of socket(2) for unsupported families, types and protocols.
    let lacking = matches!(failure.errno, Some(93..=97));
    let Some(number) = failure.errno.filter(|_| lacking) else {
        return ProgramExit {
            stderr: format!(
                "netperf: send_omni: create_data_socket failed: {}\n",
                system_message(failure)
            ),
            status: TEST,
            ..ProgramExit::default()
        };
    };
    let family = match values::address_of(&report.data_server)
        .or_else(|| values::address_of(&report.server))
    {
        Some(IpAddr::V6(_)) => "AF_INET6",
        _ => "AF_INET",
    };
    let kind = match (job.socket_type, job.protocol) {
        (Some(SocketType::Dccp), _) | (None, SocketProtocol::Dccp) => "SOCK_DCCP",
        (Some(SocketType::SeqPacket), _) => "SOCK_SEQPACKET",
        (Some(SocketType::Dgram), _) => "SOCK_DGRAM",
        (None, protocol) if protocol.is_datagram() => "SOCK_DGRAM",
        _ => "SOCK_STREAM",
    };
    let protocol = match job.protocol {
        SocketProtocol::Tcp => "IPPROTO_TCP",
        SocketProtocol::Udp => "IPPROTO_UDP",
        SocketProtocol::Sctp => "IPPROTO_SCTP",
        SocketProtocol::Dccp => "IPPROTO_DCCP",
        SocketProtocol::UdpLite => "IPPROTO_UDPLITE",
        SocketProtocol::Mptcp => "IPPROTO_MPTCP",
    };
    ProgramExit {
        stdout: format!(
            "netperf: create_data_socket: socket: errno {number} fam {family} type {kind} prot \
             {protocol} errmsg {}\n",
            system_message(failure)
        ),
        stderr: String::new(),
        status: TEST,
    }
}

fn data_failure(job: &SocketJob, failure: &SocketFailure) -> ProgramExit {
    let call = match failure.errno {
        // Network unreachable, timed out, refused, no route.
        Some(101 | 110 | 111 | 113) => "connect_data_socket",
        _ if job.test == SocketTest::Receive => "recv_data",
        _ => "send_data",
    };
    ProgramExit {
        stderr: format!(
            "netperf: send_omni: {call} failed: {}\n",
            system_message(failure)
        ),
        status: TEST,
        ..ProgramExit::default()
    }
}
