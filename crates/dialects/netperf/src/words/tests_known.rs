//! Known tests by name.

use wb_model::socket::{SocketProtocol, SocketTest};

use super::{SpecialAction, TestOptionKind};
use crate::TestKind;

/// A known test.
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) kind: TestKind,
    /// Kind of exchange; for OMNI, the default.
    pub(super) test: SocketTest,
    pub(super) protocol: SocketProtocol,
    pub(super) parser: TestOptionKind,
    /// True if the test uses the messages of the time before OMNI.
    pub(super) classic: bool,
    pub(super) special: SpecialAction,
}

const fn omni(
    name: &'static str,
    kind: TestKind,
    test: SocketTest,
    protocol: SocketProtocol,
) -> Known {
    Known {
        name,
        kind,
        test,
        protocol,
        parser: TestOptionKind::Omni,
        classic: false,
        special: SpecialAction::Normal,
    }
}

const fn older(name: &'static str, kind: TestKind, test: SocketTest) -> Known {
    Known {
        parser: TestOptionKind::Sockets,
        classic: true,
        ..omni(name, kind, test, SocketProtocol::Tcp)
    }
}

const fn other(
    name: &'static str,
    kind: TestKind,
    parser: TestOptionKind,
    special: SpecialAction,
) -> Known {
    Known {
        parser,
        special,
        ..omni(name, kind, SocketTest::ServerCpu, SocketProtocol::Tcp)
    }
}

use SocketProtocol::{Sctp, Tcp, Udp};

/// All tests, in the order of the usage text.
pub(super) const KNOWN: &[Known] = &[
    omni("TCP_STREAM", TestKind::TcpStream, SocketTest::Send, Tcp),
    omni("TCP_MAERTS", TestKind::TcpMaerts, SocketTest::Receive, Tcp),
    older("TCP_SENDFILE", TestKind::TcpSendfile, SocketTest::Send),
    omni("TCP_RR", TestKind::TcpRr, SocketTest::Rr, Tcp),
    omni("TCP_CRR", TestKind::TcpCrr, SocketTest::Crr, Tcp),
    older("TCP_CC", TestKind::TcpCc, SocketTest::Cc),
    older("TCP_MSS", TestKind::TcpMss, SocketTest::Mss),
    omni("UDP_STREAM", TestKind::UdpStream, SocketTest::Send, Udp),
    omni("UDP_RR", TestKind::UdpRr, SocketTest::Rr, Udp),
    omni("SCTP_STREAM", TestKind::SctpStream, SocketTest::Send, Sctp),
    omni("SCTP_RR", TestKind::SctpRr, SocketTest::Rr, Sctp),
    omni("OMNI", TestKind::Omni, SocketTest::Send, Tcp),
    other(
        "LOC_CPU",
        TestKind::LocalCpu,
        TestOptionKind::Ignored,
        SpecialAction::LocalCpu,
    ),
    other(
        "REM_CPU",
        TestKind::RemoteCpu,
        TestOptionKind::Ignored,
        SpecialAction::RemoteCpu,
    ),
    other(
        "UUID",
        TestKind::Uuid,
        TestOptionKind::Omni,
        SpecialAction::Uuid,
    ),
];

/// Test with this name, in capital letters.
pub(super) fn find(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|k| k.name == name)
}
