//! Emulated devices of a configuration: stations at its ports, and the neighbours that they found.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use wb_otg::{Config, NeighbourEntry, NeighbourRequest, State};
use wb_session::{Station, Stations};

use super::{Inner, OtgError, OtgResult, figures::unknown_name, wait_until};

/// Time in which the neighbours of devices have to answer once flows to them start.
const PATIENCE: Duration = Duration::from_secs(3);

impl Inner {
    /// Starts the devices of a configuration, port by port.
    pub(super) fn started_devices(&self, config: &Config) -> OtgResult<BTreeMap<String, Stations>> {
        let owns_network = self.runs.settings().grants.leave;
        let mut started = BTreeMap::new();
        for port in &config.ports {
            let ethernets = config.ethernets.iter();
            let here = ethernets.filter(|ethernet| ethernet.port == port.name);
            let stations: Vec<Station> = here
                .map(|ethernet| {
                    let addresses = ethernet.addresses.iter();
                    Station {
                        name: ethernet.name.clone(),
                        mac: ethernet.mac,
                        addresses: addresses.map(|a| (a.address, a.gateway)).collect(),
                    }
                })
                .collect();
            if stations.is_empty() {
                continue;
            }
            let plan = port.plan().map_err(|what| OtgError::new(400, what))?;
            let stations = Stations::start(&plan, stations, owns_network);
            let stations = stations.map_err(|error| {
                OtgError::new(400, format!("devices at port '{}': {error}", port.name))
            })?;
            started.insert(port.name.clone(), stations);
        }
        Ok(started)
    }

    /// Starts or stops all devices.
    pub(super) fn switch_devices(&self, wanted: State) -> OtgResult<()> {
        let config = Arc::clone(&self.state().config);
        let is_on = !self.state().stations.is_empty();
        let stations = match wanted {
            State::Start if is_on => return Ok(()),
            State::Start => self.started_devices(&config)?,
            State::Stop => BTreeMap::new(),
        };
        self.state().stations = Arc::new(stations);
        Ok(())
    }

    /// Hardware address of a neighbour of a device: the given one, or that of its answer.
    pub(super) fn neighbour(
        &self,
        config: &Config,
        name: &str,
        gateway: IpAddr,
    ) -> Option<[u8; 6]> {
        let ethernet = config.ethernets.iter().find(|own| own.name == name)?;
        let mut addresses = ethernet.addresses.iter();
        let given = addresses.find(|address| address.gateway == gateway)?;
        given.gateway_mac.or_else(|| {
            let stations = Arc::clone(&self.state().stations);
            stations.get(&ethernet.port)?.neighbour(name, gateway)
        })
    }

    /// Waits until the neighbours to which flows send have answered.
    pub(super) fn await_neighbours(
        &self,
        config: &Config,
        flows: &BTreeSet<String>,
    ) -> OtgResult<()> {
        let starting = config.flows.iter().filter(|f| flows.contains(&f.name));
        let streams = starting.flat_map(|flow| flow.streams.iter().map(move |s| (flow, s)));
        let awaited = streams.filter_map(|(flow, (_, to))| Some((flow, to.as_ref()?)));
        let mut awaited: Vec<_> = awaited.collect();
        awaited.dedup_by(|a, b| a.1 == b.1);
        let unresolved = || {
            let mut all = awaited.iter();
            all.find(|(_, to)| self.neighbour(config, &to.ethernet, to.address).is_none())
        };
        if wait_until(PATIENCE, || unresolved().is_none()) {
            return Ok(());
        }
        let Some((flow, to)) = unresolved() else {
            return Ok(());
        };
        let what = format!(
            "{}.tx_rx: unresolved: {} does not answer device interface '{}'",
            flow.path, to.address, to.ethernet
        );
        Err(OtgError::new(409, what))
    }

    /// Neighbours of devices.
    pub(super) fn states(&self, request: &NeighbourRequest) -> OtgResult<Value> {
        let config = Arc::clone(&self.state().config);
        let ethernets = &config.ethernets;
        for (n, name) in request.ethernets.iter().enumerate() {
            if !ethernets.iter().any(|own| own.name == *name) {
                return Err(unknown_name(&format!("ethernet_names[{n}]"), name));
            }
        }
        let mut entries = Vec::new();
        for ethernet in ethernets {
            let is_wanted =
                request.ethernets.is_empty() || request.ethernets.contains(&ethernet.name);
            let addresses = ethernet.addresses.iter().filter(|_| is_wanted);
            let mut gateways: Vec<IpAddr> = addresses.map(|a| a.gateway).collect();
            gateways.dedup();
            gateways.retain(|gateway| gateway.is_ipv6() == request.is_ipv6);
            entries.extend(gateways.into_iter().map(|address| NeighbourEntry {
                ethernet: ethernet.name.clone(),
                address,
                mac: self.neighbour(&config, &ethernet.name, address),
            }));
        }
        Ok(wb_otg::neighbours(&entries, request.is_ipv6))
    }
}
