//! Text that netperf prints: banner, tables, selected figures, interim lines and messages of
//! failed tests.

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

pub use banner::{ConnectionEnds, banner};
pub use failure::failure_exit;
pub use immediate::{calibration, tcp_info, uuid};
pub use interim::interim;
pub use selection::{FigureSelection, NeededMeasurements};

use wb_model::socket::{SocketJob, SocketJobReport};

use crate::{OutputForm, OutputOptions, TestKind};
use values::TestView;

/// Remaining output of a program that ends, and its exit status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramExit {
    /// Text for standard output, with line ends.
    pub stdout: String,
    /// Text for standard error.
    pub stderr: String,
    /// Exit status.
    pub status: u8,
}

/// Everything after the banner and the interim lines of a test: its results, or the reason of its failure.
///
/// `selection` is the result of [`FigureSelection::of_command`] before the test; the classic tables ignore
/// it.
#[must_use]
pub fn program_exit(
    show: &OutputOptions,
    job: &SocketJob,
    selection: &FigureSelection,
    report: &SocketJobReport,
) -> ProgramExit {
    if let Some(what) = &report.failure {
        return failure_exit(show, job, report, what);
    }
    let view = TestView { show, job, report };
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
        (_, OutputForm::Classic) => classic::tables(view),
        (_, form) => omni::selected_figures(view, form, selection),
    };
    ProgramExit {
        stdout,
        ..ProgramExit::default()
    }
}
