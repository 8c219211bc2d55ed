//! The fleet that a run is to use.

use std::{path::Path, sync::Arc};

use anyhow::{Context as _, Result, bail};
use wb_fleet::{Fleet, FleetCarrier, FleetSettings, local::LocalOptions, pki};
use wb_model::units::Span;
use wb_session::Carrier;

use crate::{args::OutputArgs, run::lab_hints, say::say};

/// Possible lengths of a lease.
const LEASES: std::ops::RangeInclusive<Span> = Span::from_secs(1)..=Span::from_secs(60);

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
        bail!("--fleet {fleet}: no such file; use an access file, nats://HOST:PORT, local or lab");
    }
    Ok(pki::Access::read(path)?)
}

/// Access of a controller to a fleet.
fn access_of_controller(fleet: &str) -> Result<pki::Access> {
    let access = access(fleet, pki::CONTROLLER)?;
    if access.name != pki::CONTROLLER {
        bail!(
            "--fleet {fleet}: this is the access file of the host {}; use that of the controller, controller.fleet",
            access.name
        );
    }
    Ok(access)
}

/// Folder of the fleet of this host.
pub(crate) const LOCAL: &str = "/var/lib/wirebench/fleet";

/// Joins a fleet as its controller: `local` for the fleet of this host, or what [`access`] takes.
///
/// # Errors
/// If the fleet cannot be reached.
pub(crate) fn join(fleet: &str) -> Result<Fleet> {
    let joined = match fleet {
        "local" => {
            let options = LocalOptions {
                hints: lab_hints,
                say: |text| say(text),
            };
            Fleet::join_local(Path::new(LOCAL), options)
        }
        _ => Fleet::join(&access_of_controller(fleet)?),
    };
    joined.with_context(|| format!("--fleet {fleet}"))
}

/// Carrier of runs over a fleet.
///
/// # Errors
/// If the fleet cannot be reached.
pub(crate) fn carrier(fleet: &str, settings: FleetSettings) -> Result<Arc<dyn Carrier>> {
    let fleet = Arc::new(join(fleet)?);
    Ok(Arc::new(FleetCarrier::new(fleet, settings)))
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
        if let Some(lease) = self.lease
            && !LEASES.contains(&lease)
        {
            bail!("--lease {lease}: a lease is 1s to 1m");
        }
        let settings = FleetSettings {
            lease_ns: self.lease.map(Span::as_nanos),
            max_clock_error_ns: self.max_clock_error.map(Span::as_nanos),
            say: Some(|text| crate::say::say(format_args!("wirebench: {text}"))),
        };
        Ok(Some(carrier(fleet, settings)?))
    }
}
