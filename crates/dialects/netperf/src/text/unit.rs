//! Units of rates: `-f`.

use wb_model::socket::{SocketFigures, SocketJob};

use crate::{OutputOptions, TestKind};

/// A unit that rates are printed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateUnit {
    Bits,
    KiloBits,
    MegaBits,
    GigaBits,
    Bytes,
    KiBytes,
    MiBytes,
    GiBytes,
    Transactions,
    Microseconds,
}

impl RateUnit {
    /// Unit of the main result: the requested one; by default transactions if the test counts them, else megabits. A
    /// stream has no transactions.
    pub(crate) fn of_result(show: &OutputOptions, job: &SocketJob) -> Self {
        match show.unit {
            None if job.test.counts_transactions() => Self::Transactions,
            Some('x') if job.test.counts_transactions() => Self::Transactions,
            None | Some('x' | 'm') => Self::MegaBits,
            Some('b') => Self::Bits,
            Some('k') => Self::KiloBits,
            Some('g') => Self::GigaBits,
            Some('B') => Self::Bytes,
            Some('M') => Self::MiBytes,
            Some('G') => Self::GiBytes,
            Some('u') => Self::Microseconds,
            // The original accepts any other letter for this unit.
            Some(_) => Self::KiBytes,
        }
    }

    /// Unit for a rate of bytes next to the main result.
    pub(crate) const fn for_bytes(self) -> Self {
        match self {
            Self::Transactions => Self::MegaBits,
            other => other,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bits => "10^0bits",
            Self::KiloBits => "10^3bits",
            Self::MegaBits => "10^6bits",
            Self::GigaBits => "10^9bits",
            Self::Bytes => "Bytes",
            Self::KiBytes => "KBytes",
            Self::MiBytes => "MBytes",
            Self::GiBytes => "GBytes",
            Self::Transactions => "Trans",
            Self::Microseconds => "Usec",
        }
    }

    /// Converts a rate to this unit. The original prints bytes if bits are requested.
    pub(crate) fn convert_rate(self, bps: f64, strict: bool) -> f64 {
        let bytes = bps / 8.0;
        match self {
            Self::Bits if strict => bytes,
            Self::Bits => bps,
            Self::KiloBits => bps / 1e3,
            Self::MegaBits | Self::Transactions => bps / 1e6,
            Self::GigaBits => bps / 1e9,
            Self::Bytes => bytes,
            Self::KiBytes => bytes / 1024.0,
            Self::MiBytes => bytes / (1024.0 * 1024.0),
            Self::GiBytes => bytes / (1024.0 * 1024.0 * 1024.0),
            Self::Microseconds => 1e6 / bytes,
        }
    }
}

/// Main result of a test in its unit.
pub(crate) fn main_result(show: &OutputOptions, job: &SocketJob, figures: &SocketFigures) -> f64 {
    let unit = RateUnit::of_result(show, job);
    // TCP_CC exchanges no data, so it only has transactions.
    if unit == RateUnit::Transactions || show.kind == TestKind::TcpCc {
        figures.transactions_per_second
    } else {
        unit.convert_rate(figures.throughput_bps, show.strict)
    }
}
