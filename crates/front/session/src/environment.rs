//! Host and software of a run, recorded in reports so that reports can be compared.

use wb_machine::{Ethtool, machine, pci};
use wb_model::report::{EnvironmentReport, NicReport};

use crate::ports::Wire;

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

/// Describes the device behind an interface, as far as its driver reports it.
pub(crate) fn nic(wire: &Wire) -> Option<NicReport> {
    let driver = Ethtool::open(&wire.namespace)
        .and_then(|ethtool| ethtool.driver(&wire.interface.name))
        .ok()
        .flatten()?;
    Some(NicReport {
        pci_id: pci::id_at(&driver.bus).unwrap_or_default(),
        driver_version: driver.version,
        firmware: driver.firmware,
        bus: driver.bus,
    })
}
