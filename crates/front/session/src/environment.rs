//! Host and software of a run, recorded in reports so that reports can be compared.

use wb_machine::machine;
use wb_model::report::EnvironmentReport;

/// Describes this machine and this program.
pub(crate) fn environment() -> EnvironmentReport {
    let this = machine::identity();
    EnvironmentReport {
        tool: format!("wirebench {}", env!("CARGO_PKG_VERSION")),
        host: this.host,
        kernel: this.kernel,
        architecture: this.architecture,
        cpu: this.cpu,
        cpus: this.cpus,
        memory_bytes: this.memory_bytes,
    }
}
