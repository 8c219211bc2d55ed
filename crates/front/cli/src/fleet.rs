//! The fleet that a run is to use.

use std::{path::Path, sync::Arc};

use anyhow::{Context as _, Result, bail};
use wb_fleet::{Fleet, FleetCarrier, FleetSettings, pki};
use wb_session::Carrier;

use crate::args::OutputArgs;

/// Reads the access to a fleet: a file, the URL of a broker, or `lab` and `lab:NAME` for the fleet of a lab. `name` is
/// the member of the fleet that a URL does not name.
///
/// # Errors
/// If there is no such fleet.
pub(crate) fn access(fleet: &str, name: &str) -> Result<pki::Access> {
    let lab = match fleet.split_once(':') {
        None if fleet == "lab" => Some("fleet"),
        Some(("lab", name)) => Some(name),
        _ => None,
    };
    if let Some(lab) = lab {
        let Some(path) = wb_testbed::fleet_access(lab) else {
            bail!("--fleet {fleet}: no such lab; wirebench lab up fleet brings one up");
        };
        return pki::Access::read(&path).with_context(|| format!("--fleet {fleet}"));
    }
    if fleet.contains("://") {
        return Ok(pki::Access::open(fleet, name));
    }
    let path = Path::new(fleet);
    if !path.exists() {
        bail!("--fleet {fleet}: no such file; use an access file, nats://HOST:PORT, or lab");
    }
    Ok(pki::Access::read(path)?)
}

impl OutputArgs {
    /// Carrier of the run over a fleet; `None` without a fleet.
    ///
    /// # Errors
    /// If the fleet cannot be reached.
    pub(crate) fn carrier(&self) -> Result<Option<Arc<dyn Carrier>>> {
        let Some(fleet) = &self.fleet else {
            return Ok(None);
        };
        let access = access(fleet, pki::CONTROLLER)?;
        let fleet = Fleet::join(&access)?;
        let carrier = FleetCarrier::new(Arc::new(fleet), FleetSettings::default());
        Ok(Some(Arc::new(carrier)))
    }
}
