//! Start and stop of flows and captures.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use wb_otg::{Config, Context, Control, State};
use wb_runs::{Refusal, RunRequest, RunState};

use super::{
    ActiveFlows, Inner, OWNER, OtgError, OtgResult, PATIENCE, figures::unknown_name, lock, ports,
    wait_until,
};

/// Time in which the first frame of each flow is awaited.
const FIRST_FRAMES: Duration = Duration::from_secs(1);
/// A pcap file with nanoseconds and without frames.
const EMPTY_FILE: [u8; 24] = [
    0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0,
];

impl Inner {
    pub(super) fn control(&self, control: Control) -> OtgResult<Value> {
        let _only = lock(&self.change);
        let mut warnings = match control {
            Control::Flows(State::Start, names) => self.start(&names)?,
            Control::Flows(State::Stop, names) => self.stop(&names)?,
            Control::Captures(state, names) => self.capture(state, &names)?,
            Control::Links(is_up, names) => {
                let config = Arc::clone(&self.state().config);
                for name in self.port_names(&config, &names)? {
                    if let Some(port) = config.port(&name) {
                        ports::set_link(port, is_up).map_err(OtgError::internal)?;
                    }
                }
                Vec::new()
            }
            Control::Devices(wanted) => {
                self.switch_devices(wanted)?;
                Vec::new()
            }
        };
        self.settle();
        warnings.append(&mut self.state().warnings);
        Ok(wb_otg::warnings(&warnings))
    }

    /// Names of ports; without names, all.
    fn port_names(&self, config: &Config, names: &[String]) -> OtgResult<BTreeSet<String>> {
        if let Some(name) = names.iter().find(|name| config.port(name).is_none()) {
            return Err(unknown_name("port_names", name));
        }
        Ok(match names.is_empty() {
            true => config.ports.iter().map(|port| port.name.clone()).collect(),
            false => names.iter().cloned().collect(),
        })
    }

    fn flow_names(&self, config: &Config, names: &[String]) -> OtgResult<BTreeSet<String>> {
        if let Some(name) = names.iter().find(|name| config.flow(name).is_none()) {
            return Err(unknown_name("traffic.flow_transmit.flow_names", name));
        }
        Ok(match names.is_empty() {
            true => config.flows.iter().map(|flow| flow.name.clone()).collect(),
            false => names.iter().cloned().collect(),
        })
    }

    fn start(&self, names: &[String]) -> OtgResult<Vec<String>> {
        let config = Arc::clone(&self.state().config);
        let mut flows = self.flow_names(&config, names)?;
        let mut warnings = Vec::new();
        if let Some(active) = self.settle() {
            let running = flows.intersection(&active.flows);
            warnings.extend(running.map(|flow| format!("flow '{flow}' is already started")));
            flows.retain(|flow| !active.flows.contains(flow));
            if !flows.is_empty() {
                let what =
                    "unsupported: starting flows while other flows are sent; start them together";
                return Err(OtgError::new(501, what));
            }
        }
        if flows.is_empty() {
            return Ok(warnings);
        }
        self.await_neighbours(&config, &flows)?;
        let captures = self.state().captures.clone();
        let planned = config.compile(&Context {
            flows: &flows,
            captures: &captures,
            owns_network: self.runs.settings().grants.leave,
            neighbour: &|ethernet, address| self.neighbour(&config, ethernet, address),
        })?;
        let request = RunRequest {
            plan: planned.plan,
            name: "OTG".to_owned(),
            labels: BTreeMap::from([("otg".to_owned(), String::new())]),
            owner: Some(OWNER.to_owned()),
            ..RunRequest::default()
        };
        let run = self
            .runs
            .start(request)
            .map_err(|refusal| refused(&refusal))?;
        let has_begun = || {
            let state = run.meta().state;
            matches!(
                state,
                RunState::Running | RunState::Draining | RunState::Ended
            )
        };
        if !wait_until(PATIENCE, has_begun) {
            self.runs.stop(&run.id, true);
            let what = "conflict: the flows could not be started in time";
            return Err(OtgError::new(409, what));
        }
        let meta = self.runs.get(&run.id);
        if let Some(meta) = meta.filter(|meta| meta.started.is_none()) {
            let reason = match meta.reason.contains("i-own-this-network") {
                true => format!("{}; this server would need --allow leave", meta.reason),
                false => meta.reason,
            };
            return Err(OtgError::new(409, reason));
        }
        {
            let mut state = self.state();
            for flow in &flows {
                state.ended.remove(flow);
            }
            for (port, file) in planned.files {
                state.captured.insert(port, Some((run.id.clone(), file)));
            }
            let run = Arc::clone(&run);
            state.active = Some(ActiveFlows { run, flows });
        }
        wait_until(FIRST_FRAMES, || {
            let seen = run.jobs();
            let has_sent = seen.last().is_some_and(|seen| {
                let mut streams = seen.jobs.iter().flat_map(|job| &job.streams);
                streams.all(|stream| stream.totals.offered_frames.unwrap_or(0) > 0)
            });
            has_sent || self.has_ended(&run)
        });
        let events = run.feed.after(0).events.into_iter();
        let messages = events.filter(|event| event.name == "message");
        let texts = messages.filter_map(|event| {
            let message: Value = serde_json::from_str(&event.data).ok()?;
            Some(message["text"].as_str()?.to_owned())
        });
        warnings.extend(texts);
        Ok(warnings)
    }

    fn stop(&self, names: &[String]) -> OtgResult<Vec<String>> {
        let config = Arc::clone(&self.state().config);
        let flows = self.flow_names(&config, names)?;
        let Some(active) = self.settle() else {
            return Ok(Vec::new());
        };
        if active.flows.is_disjoint(&flows) {
            return Ok(Vec::new());
        }
        if !active.flows.is_subset(&flows) {
            let what = "unsupported: stopping some of the flows that were started together";
            return Err(OtgError::new(501, what));
        }
        self.stop_all()?;
        Ok(Vec::new())
    }

    /// Stops all flows, and waits for frames in flight.
    pub(super) fn stop_all(&self) -> OtgResult<()> {
        let Some(active) = self.settle() else {
            return Ok(());
        };
        self.runs.stop(&active.run.id, false);
        if !wait_until(PATIENCE, || self.has_ended(&active.run)) {
            return Err(OtgError::internal("the flows did not stop in time"));
        }
        self.settle();
        Ok(())
    }

    fn capture(&self, wanted: State, names: &[String]) -> OtgResult<Vec<String>> {
        let config = Arc::clone(&self.state().config);
        let mut ports = self.port_names(&config, names)?;
        let without = ports.iter().find(|port| config.capture_at(port).is_none());
        if let (Some(port), false) = (without, names.is_empty()) {
            let what = format!("port.capture.port_names: no capture at port '{port}'");
            return Err(OtgError::new(400, what));
        }
        ports.retain(|port| config.capture_at(port).is_some());
        let active = self.settle();
        let mut state = self.state();
        for port in ports {
            match wanted {
                State::Start if state.captures.contains(&port) => {}
                State::Start if active.is_some() => {
                    let what =
                        "unsupported: starting a capture while flows are sent; start it before";
                    return Err(OtgError::new(501, what));
                }
                State::Start => {
                    state.captured.insert(port.clone(), None);
                    state.captures.insert(port);
                }
                State::Stop => {
                    state.captures.remove(&port);
                }
            }
        }
        Ok(Vec::new())
    }

    /// The captured frames of a port as a pcap file.
    pub(super) fn captured(&self, port: &str) -> OtgResult<Vec<u8>> {
        let config = Arc::clone(&self.state().config);
        if config.port(port).is_none() {
            return Err(unknown_name("port_name", port));
        }
        let _ = self.settle();
        let captured = {
            let mut state = self.state();
            // Reading stops the capture.
            state.captures.remove(port);
            state.captured.get(port).cloned()
        };
        let what = || format!("port_name: no capture at port '{port}'");
        let captured = captured.ok_or_else(|| OtgError::new(400, what()))?;
        let Some((run, file)) = captured else {
            return Ok(EMPTY_FILE.to_vec());
        };
        let folder = self.runs.files(&run);
        let path = folder.ok_or_else(|| OtgError::new(400, what()))?.join(file);
        match fs::read(path) {
            Ok(bytes) if bytes.len() >= EMPTY_FILE.len() => Ok(wb_otg::with_fcs(&bytes)),
            Ok(_) => Ok(EMPTY_FILE.to_vec()),
            Err(error) => Err(OtgError::internal(error)),
        }
    }
}

/// The answer to a start that is refused.
fn refused(refusal: &Refusal) -> OtgError {
    let errors: Vec<String> = match refusal {
        Refusal::Plan(plan) => {
            let problems = plan.0.iter();
            problems
                .map(|problem| format!("{}: {}", problem.place, problem.what))
                .collect()
        }
        Refusal::Powers(powers) => {
            let used = powers.iter();
            used.map(|used| format!("{}: needs the power {}", used.place, used.power.name()))
                .collect()
        }
        Refusal::Held(held) => {
            let held = held.iter();
            held.map(|port| format!("conflict: {port}")).collect()
        }
        other => vec![other.to_string()],
    };
    let code = match refusal {
        Refusal::Plan(_) | Refusal::Powers(_) | Refusal::Offered(_) => 400,
        Refusal::Held(_) | Refusal::Busy(_) | Refusal::Concerns(_) => 409,
        Refusal::Stopping | Refusal::Waiting(_) | Refusal::Full => 503,
        Refusal::Store(_) | Refusal::Machine(_) => 500,
    };
    let kind = if code == 500 {
        "internal"
    } else {
        "validation"
    };
    OtgError {
        code,
        body: serde_json::json!({ "code": code, "kind": kind, "errors": errors }),
    }
}
