//! What one stream of a test does, as the client sees it.

use wb_model::socket::{SocketDirection, SocketTest};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Sends.
    Up,
    /// Receives.
    Down,
    /// Requests and responses on one connection.
    Rr,
    /// A connection for each of them.
    Crr,
    /// A connection with nothing on it, again and again.
    Cc,
    /// One connection with nothing on it.
    Mss,
}

impl Role {
    /// The streams of one unit of `streams`.
    pub(super) fn of(test: SocketTest) -> &'static [Self] {
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

    /// Its name in reports.
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

    /// Which way its data goes.
    pub(super) const fn direction(self) -> SocketDirection {
        match self {
            Self::Up => SocketDirection::Up,
            Self::Down => SocketDirection::Down,
            Self::Rr | Self::Crr | Self::Cc | Self::Mss => SocketDirection::Both,
        }
    }

    /// Whether its unit is a byte.
    pub(super) const fn is_stream(self) -> bool {
        matches!(self, Self::Up | Self::Down | Self::Mss)
    }

    /// Whether it connects for each transaction.
    pub(super) const fn connects_each(self) -> bool {
        matches!(self, Self::Crr | Self::Cc)
    }

    /// Whether this end speaks before it has heard anything.
    pub(super) const fn speaks_first(self) -> bool {
        matches!(self, Self::Up | Self::Rr | Self::Crr)
    }
}
