//! Type of one stream of a test, seen from the client.

use wb_model::socket::{SocketDirection, SocketTest};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamRole {
    /// Sends.
    Up,
    /// Receives.
    Down,
    /// Requests and responses on one connection.
    Rr,
    /// One connection per request.
    Crr,
    /// Repeated connections without data.
    Cc,
    /// One connection without data.
    Mss,
}

impl StreamRole {
    /// Streams of one unit of `streams`.
    pub(super) fn of_test(test: SocketTest) -> &'static [Self] {
        match test {
            SocketTest::Send => &[Self::Up],
            SocketTest::Receive => &[Self::Down],
            SocketTest::Both => &[Self::Up, Self::Down],
            SocketTest::Rr => &[Self::Rr],
            SocketTest::Crr => &[Self::Crr],
            SocketTest::Cc => &[Self::Cc],
            SocketTest::Mss => &[Self::Mss],
            SocketTest::ServerCpu => &[],
        }
    }

    /// Name in reports.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Rr => "rr",
            Self::Crr => "crr",
            Self::Cc => "cc",
            Self::Mss => "mss",
        }
    }

    /// Direction of the data.
    pub(super) const fn direction(self) -> SocketDirection {
        match self {
            Self::Up => SocketDirection::Up,
            Self::Down => SocketDirection::Down,
            Self::Rr | Self::Crr | Self::Cc | Self::Mss => SocketDirection::Both,
        }
    }

    /// Returns true if the unit is a byte.
    pub(super) const fn is_stream(self) -> bool {
        matches!(self, Self::Up | Self::Down | Self::Mss)
    }

    /// Returns true if each transaction has a new connection.
    pub(super) const fn connects_each(self) -> bool {
        matches!(self, Self::Crr | Self::Cc)
    }

    /// Returns true if the client sends first.
    pub(super) const fn speaks_first(self) -> bool {
        matches!(self, Self::Up | Self::Rr | Self::Crr)
    }
}
