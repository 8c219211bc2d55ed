//! What netperf prints: banner, tables, selected figures, interim lines and what it says when a
//! test fails.

mod banner;
mod classic;
mod detail;
mod errno;
mod failure;
mod immediate;
mod interim;
mod omni;
mod selection;
mod selectors;
mod unit;
mod values;

pub use banner::{Ends, banner};
pub use failure::failure;
pub use immediate::{calibration, tcp_info, uuid};
pub use interim::interim;
pub use selection::{Needs, Selection};

use wb_model::socket::{SocketJob, SocketJobReport};

use crate::{Form, Show, TestKind};
use values::View;

/// What a program that ends has still to print, and its exit status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// For the standard output, with its line ends.
    pub stdout: String,
    /// For the standard error.
    pub stderr: String,
    /// Exit status.
    pub status: u8,
}

/// All that follows the banner and the interim lines of a test: its results, or why it failed.
///
/// `selection` is what [`Selection::of`] gave before the test; the classic tables do not look at
/// it.
#[must_use]
pub fn ending(
    show: &Show,
    job: &SocketJob,
    selection: &Selection,
    report: &SocketJobReport,
) -> Ending {
    if let Some(what) = &report.failure {
        return failure(show, job, report, what);
    }
    let view = View { show, job, report };
    let stdout = match (show.kind, show.form) {
        (TestKind::LocalCpu, _) => {
            let cpus = report.result.local_cpu.map_or(0, |cpu| cpu.cpus);
            calibration(show, cpus)
        }
        (TestKind::RemoteCpu, _) => {
            let cpus = report.result.remote_cpu.map_or(0, |cpu| cpu.cpus);
            calibration(show, cpus)
        }
        (TestKind::Uuid, _) => show.uuid.clone(),
        (_, Form::Classic) => classic::tables(view),
        (_, form) => omni::selected(view, form, selection),
    };
    Ending {
        stdout,
        ..Ending::default()
    }
}
