//! The Open Traffic Generator API: one configuration, with flows that are carried out as runs.
//!
//! A configuration owns its ports, as the owner `otg`. Starting flows makes one plan and one run of them and of the
//! captures that are on.

mod access;
mod devices;
mod elsewhere;
mod figures;
mod grpc;
mod ports;
mod routes;
mod start;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use wb_machine::LinkCounters;
use wb_otg::{Config, Context, FlowFigures, Problem};
use wb_runs::{Run, RunState, Runs};
use wb_session::{Stations, addresses_that_need_consent};

use crate::answer::ApiError;

pub use access::ClientNetwork;
pub(crate) use grpc::router as grpc_router;
pub(crate) use routes::{is_otg, router};

/// Owner of the ports of a configuration.
const OWNER: &str = "otg";
/// Longest time that a request waits for a run, so that clients with a limit of 10 s get an answer.
const PATIENCE: Duration = Duration::from_secs(8);
/// Length of the frame check sequence in bytes.
const FCS: u64 = 4;
/// Interval at which the state of a run is read.
const LOOK: Duration = Duration::from_millis(5);

/// The server's side of the API.
#[derive(Clone)]
pub(crate) struct Otg(Arc<Inner>);

struct Inner {
    runs: Runs,
    /// Networks with clients that need no token.
    open: Vec<ClientNetwork>,
    /// Held by requests that change something, one after another.
    change: Mutex<()>,
    state: Mutex<OtgState>,
}

#[derive(Default)]
struct OtgState {
    /// The configuration as the client sent it.
    value: Value,
    /// Seed of its random values that have none.
    seed: u64,
    config: Arc<Config>,
    /// Ports that it owns, by their places.
    places: BTreeSet<String>,
    /// Ports with captures that are on.
    captures: BTreeSet<String>,
    /// Ports with captures that were on: the run and the file, once there is one.
    captured: BTreeMap<String, Option<(String, String)>>,
    active: Option<ActiveFlows>,
    /// Warnings about flows that have ended, for the next answer.
    warnings: Vec<String>,
    /// Figures of flows that have ended.
    ended: BTreeMap<String, FlowFigures>,
    /// Devices at each port, while they are on.
    stations: Arc<BTreeMap<String, Stations>>,
    /// Counts of ports on other hosts in the runs that have ended.
    counted: BTreeMap<String, elsewhere::PortCounts>,
    /// Counters of the ports when the configuration was set.
    base: BTreeMap<String, LinkCounters>,
    /// Counters of the ports at an earlier request, for rates.
    earlier: BTreeMap<String, figures::PortReading>,
}

/// Flows of a run.
#[derive(Clone)]
struct ActiveFlows {
    run: Arc<Run>,
    /// Flows with their states. Requests share them, because there may be thousands.
    flows: Arc<BTreeMap<String, FlowPhase>>,
    streams: Arc<OnceLock<figures::Streams>>,
}

/// State of a flow in its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlowPhase {
    /// It was not started yet. Its figures are those of an earlier run.
    Held,
    /// It was started, and may have sent all its frames.
    Started,
    /// It pauses.
    Paused,
    /// It was stopped.
    Stopped,
}

/// Error with its status.
#[derive(Debug)]
pub(crate) struct OtgError {
    code: u16,
    body: Value,
}

type OtgResult<T> = Result<T, OtgError>;

impl OtgError {
    fn new(code: u16, error: impl Into<String>) -> Self {
        let body = json!({ "code": code, "kind": "validation", "errors": [error.into()] });
        Self { code, body }
    }

    fn internal(error: impl std::fmt::Display) -> Self {
        let errors = [error.to_string()];
        let body = json!({ "code": 500, "kind": "internal", "errors": errors });
        Self { code: 500, body }
    }
}

impl From<ApiError> for OtgError {
    fn from(error: ApiError) -> Self {
        Self::new(error.status().as_u16(), error.text())
    }
}

impl From<Problem> for OtgError {
    fn from(problem: Problem) -> Self {
        vec![problem].into()
    }
}

impl From<Vec<Problem>> for OtgError {
    fn from(problems: Vec<Problem>) -> Self {
        let (code, body) = wb_otg::error_body(&problems);
        Self { code, body }
    }
}

impl IntoResponse for OtgError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self.body)).into_response()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until something is true, for at most this time. Returns true if it is.
fn wait_until(patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + patience;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        thread::sleep(LOOK);
    }
}

impl Otg {
    pub(crate) fn new(runs: Runs, open: Vec<ClientNetwork>) -> Self {
        Self(Arc::new(Inner {
            runs,
            open,
            change: Mutex::default(),
            state: Mutex::new(OtgState {
                value: json!({}),
                ..OtgState::default()
            }),
        }))
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, OtgState> {
        lock(&self.state)
    }

    fn has_ended(&self, run: &Run) -> bool {
        let meta = self.runs.get(&run.id);
        meta.is_none_or(|meta| meta.state == RunState::Ended)
    }

    /// Sets the configuration. An earlier one ends, with its flows.
    fn set_config(&self, value: Value) -> OtgResult<Value> {
        let _only = lock(&self.change);
        self.replace(value)
    }

    fn replace(&self, value: Value) -> OtgResult<Value> {
        self.await_hosts(&value);
        let seed = wb_machine::clock::wall_ns();
        let (config, mut warnings) = self.checked(&value, seed)?;
        let places = self.checked_places(&config)?;
        self.stop_all()?;
        let old = self.state().places.clone();
        let mut taken = Vec::new();
        for (place, path) in &places {
            if let Err(holder) = self.runs.own(place, OWNER, ports::LEASE, false) {
                for place in taken {
                    self.runs.disown(place, OWNER);
                }
                let text = format!("{path}: conflict: {place} is held by {holder}");
                return Err(OtgError::new(409, text));
            }
            if !old.contains(place) {
                taken.push(place);
            }
        }
        let places: BTreeSet<String> = places.into_keys().collect();
        for place in old.difference(&places) {
            self.runs.disown(place, OWNER);
        }
        if config.takes_ports {
            let what = "ports of other owners are not taken";
            warnings.push(format!("options.port_options.location_preemption: {what}"));
        }
        // Earlier devices end first: their addresses may be the same.
        drop(std::mem::take(&mut self.state().stations));
        let stations = match config.starts_devices {
            true => self.started_devices(&config)?,
            false => BTreeMap::new(),
        };
        let mut state = self.state();
        *state = OtgState {
            value,
            seed,
            places,
            stations: Arc::new(stations),
            base: ports::counters(&config),
            config: Arc::new(config),
            ..OtgState::default()
        };
        Ok(wb_otg::warnings(&warnings))
    }

    /// Reads a configuration, and checks that its flows can be started. Also returns warnings.
    fn checked(&self, value: &Value, seed: u64) -> OtgResult<(Config, Vec<String>)> {
        let agents = self.agents();
        let speed = |location: &str| ports::speed(location, &agents);
        let config = Config::read(value, &speed, seed)?;
        let owns_network = self.runs.settings().grants.leave;
        let mut problems = elsewhere::unsupported(&config);
        for flow in config.flows.iter().filter(|_| !owns_network) {
            let streams = flow.streams.iter();
            let found = streams.flat_map(|(stream, _)| addresses_that_need_consent(stream));
            problems.extend(found.map(|problem| {
                let what = problem.what.split(';').next().unwrap_or_default();
                let what = format!("{what}; this server would need --allow leave");
                Problem::new(format!("{}.packet", flow.path), what)
            }));
        }
        if !problems.is_empty() {
            return Err(problems.into());
        }
        let mut warnings = config.warnings.clone();
        let all = config.flows.iter().map(|flow| flow.name.clone()).collect();
        let together = config.compile(&Context {
            flows: &all,
            captures: &BTreeSet::new(),
            owns_network,
            neighbour: &|_, _| Some([0; 6]),
        });
        let apart = together.err().into_iter().flatten();
        warnings.extend(
            apart.map(|problem| format!("not all flows can be started together: {problem}")),
        );
        Ok((config, warnings))
    }

    /// The places of the ports, if all of them can be used, each with its place in the configuration.
    fn checked_places(&self, config: &Config) -> OtgResult<BTreeMap<String, String>> {
        let mut problems = Vec::new();
        let mut places = BTreeMap::new();
        for (number, port) in config.ports.iter().enumerate() {
            let path = format!("ports[{number}].location");
            match port.plan() {
                Ok(plan) if !plan.locator.is_interface() => {
                    let what = "unsupported location: it is not an interface";
                    problems.push(Problem::new(path, what));
                }
                Ok(plan) => {
                    let place = plan.locator.site();
                    let check = || match plan.locator.host {
                        Some(_) => self.check_elsewhere(&plan.locator),
                        None => ports::check(&place),
                    };
                    if !self.runs.offers(&place) {
                        let what = "is not a port of this server (--ports)";
                        problems.push(Problem::new(path, what));
                    } else if let Err(what) = check() {
                        problems.push(Problem::new(path, what));
                    } else if places.insert(place, path.clone()).is_some() {
                        let what = "conflict: another port has this interface";
                        problems.push(Problem::new(path, what));
                    }
                }
                Err(what) => problems.push(Problem::new(path, what)),
            }
        }
        match problems.is_empty() {
            true => Ok(places),
            false => Err(problems.into()),
        }
    }

    /// Changes the flows of the configuration. Flows that are being sent follow if they can.
    fn change_flows(
        &self,
        change: impl FnOnce(&mut Vec<Value>) -> OtgResult<()>,
    ) -> OtgResult<Value> {
        let _only = lock(&self.change);
        self.settle();
        let (mut value, seed, old) = {
            let state = self.state();
            (state.value.clone(), state.seed, Arc::clone(&state.config))
        };
        if let Some(config) = value.as_object_mut() {
            let flows = config.entry("flows").or_insert_with(|| json!([]));
            if flows.is_null() {
                *flows = json!([]);
            }
            if let Some(flows) = flows.as_array_mut() {
                change(flows)?;
            }
        }
        let (config, mut warnings) = self.checked(&value, seed)?;
        self.follow_change(&old, &config)?;
        let known = old.warnings.iter().collect::<BTreeSet<_>>();
        warnings.retain(|warning| !known.contains(warning));
        let mut state = self.state();
        state.value = value;
        state.config = Arc::new(config);
        Ok(wb_otg::warnings(&warnings))
    }
}

fn name_of(flow: &Value) -> &str {
    flow["name"].as_str().unwrap_or_default()
}

/// Adds flows.
fn append(flows: &mut Vec<Value>, new: Vec<Value>) -> OtgResult<()> {
    flows.extend(new);
    Ok(())
}

/// Removes flows by their names.
fn delete(flows: &mut Vec<Value>, names: &[String]) -> OtgResult<()> {
    let known: BTreeSet<&str> = flows.iter().map(name_of).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(name.as_str())) {
        return Err(figures::unknown_name("config_delete_list", name));
    }
    let removed: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    flows.retain(|flow| !removed.contains(name_of(flow)));
    Ok(())
}

/// Takes over properties of flows.
fn update(flows: &mut [Value], change: &wb_otg::ConfigChange) -> OtgResult<()> {
    let known = flows.iter().enumerate();
    let known: BTreeMap<String, usize> = known
        .map(|(place, flow)| (name_of(flow).to_owned(), place))
        .collect();
    for (n, new) in change.flows.iter().enumerate() {
        let name = name_of(new);
        let place = known.get(name);
        let unknown = || figures::unknown_name(&format!("flows.flows[{n}].name"), name);
        let flow = &mut flows[*place.ok_or_else(unknown)?];
        let Some(flow) = flow.as_object_mut() else {
            continue;
        };
        for property in &change.properties {
            // Without it, the flow gets the default.
            let value = new.get(property).cloned().unwrap_or(Value::Null);
            flow.insert(property.clone(), value);
        }
    }
    Ok(())
}
