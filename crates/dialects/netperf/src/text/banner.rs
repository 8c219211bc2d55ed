//! Banner: the line before the results.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wb_model::socket::{SocketJob, SocketJobReport};

use super::values;
use crate::{OutputOptions, TestKind};

/// Ends of the data connection, resolved before a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionEnds {
    /// Name of the server.
    pub server_name: String,
    /// Address of the server.
    pub server: IpAddr,
    /// Name and address of the local end, if one was requested.
    pub local: Option<(String, IpAddr)>,
}

impl ConnectionEnds {
    /// Ends of the data connection after a test.
    #[must_use]
    pub fn after_test(show: &OutputOptions, report: &SocketJobReport) -> Self {
        let server = values::address_of(&report.data_server)
            .or_else(|| values::address_of(&report.server))
            .unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        // The report names the server of the control connection.
        let same = show.remote.host.is_none() || show.remote.host == show.control.host;
        let name = if same && !report.server_name.is_empty() {
            &report.server_name
        } else {
            values::destination_host(show)
        };
        let local = show
            .local
            .host
            .as_ref()
            .or(show.control_local.host.as_ref());
        Self {
            server_name: name.to_owned(),
            server,
            local: local.map(|host| {
                let address = values::address_of(host)
                    .or_else(|| values::address_of(&report.data_client))
                    .or_else(|| values::address_of(&report.client));
                (host.clone(), address.unwrap_or(unspecified(server)))
            }),
        }
    }
}

/// The banner with its line end. Empty without headers, and for kinds that are not a test of a connection.
#[must_use]
pub fn banner(show: &OutputOptions, job: &SocketJob, ends: &ConnectionEnds) -> String {
    let none = matches!(
        show.kind,
        TestKind::LocalCpu | TestKind::RemoteCpu | TestKind::Uuid
    );
    if !show.headers || none {
        return String::new();
    }
    let (name, address) = match &ends.local {
        Some((name, address)) => (name.as_str(), *address),
        None if ends.server.is_ipv6() => ("::0", unspecified(ends.server)),
        None => ("0.0.0.0", unspecified(ends.server)),
    };
    let mut line = test_title(show, job);
    line += &end_text(show, " from", name, address, show.local.port);
    line += &end_text(
        show,
        " to",
        &ends.server_name,
        ends.server,
        show.remote.port,
    );
    line += &flags_text(show, job);
    line + "\n"
}

fn end_text(show: &OutputOptions, word: &str, name: &str, address: IpAddr, port: u16) -> String {
    let family = if address.is_ipv6() {
        "AF_INET6"
    } else {
        "AF_INET"
    };
    let mut address = address.to_string();
    // The original has room for seven characters, and prints nothing for a longer address.
    if show.strict && address.len() > 7 {
        address.clear();
    }
    format!("{word} {name} ({address}) port {port} {family}")
}

fn flags_text(show: &OutputOptions, job: &SocketJob) -> String {
    let mut text = String::new();
    if let Some(asked) = &job.confidence {
        let only = if asked.result_only {
            " on result only"
        } else {
            ""
        };
        let half = asked.width / 2.0;
        text += &format!(" : +/-{half:.3}% @ {:>2}% conf. {only}", asked.level);
    }
    if job.options.no_delay {
        text += " : nodelay";
    }
    if show.copy_avoidance {
        text += " : copy avoidance";
    }
    if job.control.none {
        text += " : no control";
    }
    // The word means that interim results are available, not that they were requested.
    text += " : demo";
    if matches!(
        show.kind,
        TestKind::TcpRr | TestKind::UdpRr | TestKind::SctpRr
    ) {
        text += &format!(" : first burst {}", job.first_burst);
    }
    if show.cpu_bind {
        text += " : cpu bind";
    }
    text
}

fn test_title(show: &OutputOptions, job: &SocketJob) -> String {
    match show.kind {
        TestKind::TcpStream => "MIGRATED TCP STREAM TEST",
        TestKind::TcpMaerts => "MIGRATED TCP MAERTS TEST",
        TestKind::TcpRr => "MIGRATED TCP REQUEST/RESPONSE TEST",
        TestKind::TcpCrr => "MIGRATED TCP Connect/Request/Response TEST",
        TestKind::UdpStream => "MIGRATED UDP STREAM TEST",
        TestKind::UdpRr => "MIGRATED UDP REQUEST/RESPONSE TEST",
        TestKind::TcpSendfile => "TCP SENDFILE TEST",
        TestKind::TcpCc => "TCP Connect/Close TEST",
        TestKind::TcpMss => "TCP MSS TEST",
        TestKind::SctpStream => "SCTP STREAM TEST",
        TestKind::SctpRr => "SCTP REQUEST/RESPONSE TEST",
        TestKind::Omni | TestKind::LocalCpu | TestKind::RemoteCpu | TestKind::Uuid => {
            return format!("OMNI {} TEST", values::direction_name(job.test));
        }
    }
    .to_owned()
}

/// Any address of the same family.
const fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}
