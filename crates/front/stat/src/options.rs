//! Options of `stat`, and the reasons why they cannot be met.

use std::{io, time::Duration};

use wb_machine::{HostError, probe::ProbeError};
use wb_model::locator::Locator;

/// Reason why counters cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StatError {
    /// Invalid option, named in the text.
    #[error("{0}")]
    Input(String),
    /// Refusal of the machine.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A probe cannot be created.
    #[error("--probe")]
    Probe(#[source] ProbeError),
    /// The thread of a probe cannot be started.
    #[error(transparent)]
    Thread(#[from] io::Error),
}

/// Namespace, and name of an interface in it, or `None` for all of them.
type Place = (Option<String>, Option<String>);

/// Requested counters and intervals.
#[derive(Clone, Copy, Debug)]
pub struct StatOptions<'a> {
    /// Interfaces requested by name.
    pub interfaces: &'a [Locator],
    /// Namespaces of which all interfaces are requested.
    pub nodes: &'a [String],
    /// Interfaces along a path: the sender, two of each device in between, and the receiver.
    pub path: &'a [Locator],
    /// Probes of devices under test: keys of a `[[probe]]` in one line, or only its kind.
    pub probes: &'a [String],
    /// True to include the statistics of drivers.
    pub driver: bool,
    /// Time between two readings.
    pub interval: Duration,
    /// Number of intervals; unlimited if `None`.
    pub count: Option<u64>,
    /// True to end after the first idle interval once an interface has counted packets.
    pub until_idle: bool,
}

impl StatOptions<'_> {
    /// Returns true if idle interfaces are omitted, because all interfaces are requested, or none in particular.
    #[must_use]
    pub const fn omits_idle(&self) -> bool {
        !self.nodes.is_empty() || (self.interfaces.is_empty() && self.path.is_empty())
    }

    /// Returns the requested interfaces.
    pub(crate) fn wanted(&self) -> Result<Vec<Place>, StatError> {
        let named = self.interfaces.iter().chain(self.path).map(place);
        let mut wanted = named.collect::<Result<Vec<_>, _>>()?;
        // A whole namespace includes its individual interfaces.
        wanted.retain(|(node, _)| node.as_ref().is_none_or(|node| !self.nodes.contains(node)));
        wanted.extend(self.nodes.iter().map(|node| (Some(node.clone()), None)));
        Ok(wanted)
    }
}

fn place(locator: &Locator) -> Result<Place, StatError> {
    locator.check_local().map_err(StatError::Input)?;
    if locator.driver.is_some() {
        return Err(StatError::Input(format!(
            "{locator}: counters do not depend on a driver; use {}",
            locator.place()
        )));
    }
    Ok((locator.node.clone(), Some(locator.name.clone())))
}
