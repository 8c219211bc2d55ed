//! Start and stop of flows and captures.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::Arc,
    thread,
    time::Duration,
};

use serde_json::Value;
use wb_model::units::Rate;
use wb_otg::{Config, Context, Control, Flow, FlowState, State};
use wb_runs::{Refusal, Run, RunRequest, RunState};
use wb_session::{ALL_SENT, StreamSteer};

use super::{
    ActiveFlows, FlowPhase, Inner, OWNER, OtgError, OtgResult, PATIENCE, elsewhere,
    figures::unknown_name, lock, ports, wait_until,
};

/// Time in which the first frame of each flow is awaited.
const FIRST_FRAMES: Duration = Duration::from_secs(1);
/// Time in which frames in flight arrive.
const FLIGHT: Duration = Duration::from_millis(500);
/// Interval at which a run with flows that are off is checked.
const WATCH: Duration = Duration::from_millis(250);
/// A pcap file with nanoseconds and without frames.
const EMPTY_FILE: [u8; 24] = [
    0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0,
];

impl Inner {
    pub(super) fn control(self: &Arc<Self>, control: Control) -> OtgResult<Value> {
        let _only = lock(&self.change);
        let mut warnings = match control {
            Control::Flows(FlowState::Start, names) => self.start(&names)?,
            Control::Flows(FlowState::Stop, names) => self.stop(&names)?,
            Control::Flows(FlowState::Pause, names) => self.pause(&names)?,
            Control::Flows(FlowState::Resume, names) => self.resume(&names)?,
            Control::Captures(state, names) => self.capture(state, &names)?,
            Control::Links(is_up, names) => {
                let config = Arc::clone(&self.state().config);
                for name in self.port_names(&config, &names)? {
                    if let Some(port) = config.port(&name) {
                        elsewhere::refuse_link(port)?;
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
        let known: BTreeSet<&str> = config.flows.iter().map(|flow| flow.name.as_str()).collect();
        if let Some(name) = names.iter().find(|name| !known.contains(name.as_str())) {
            return Err(unknown_name("traffic.flow_transmit.flow_names", name));
        }
        Ok(match names.is_empty() {
            true => config.flows.iter().map(|flow| flow.name.clone()).collect(),
            false => names.iter().cloned().collect(),
        })
    }

    fn start(self: &Arc<Self>, names: &[String]) -> OtgResult<Vec<String>> {
        let config = Arc::clone(&self.state().config);
        let flows = self.flow_names(&config, names)?;
        if let Some(active) = self.settle() {
            if !active.unsent(&config).is_empty() {
                return self.start_more(&config, flows);
            }
            if !wait_until(PATIENCE, || self.has_ended(&active.run)) {
                let what = "conflict: the earlier flows do not end in time";
                return Err(OtgError::new(409, what));
            }
            self.settle();
        }
        if flows.is_empty() {
            return Ok(Vec::new());
        }
        self.await_neighbours(&config, &flows)?;
        let all = config.flows.iter().map(|flow| flow.name.clone());
        let held: BTreeSet<String> = all.filter(|name| !flows.contains(name)).collect();
        // The other flows are there, so that they can be started later, unless they stand in the way.
        if !held.is_empty()
            && let Ok(warnings) = self.start_run(&config, &flows, &held)
        {
            return Ok(warnings);
        }
        self.start_run(&config, &flows, &BTreeSet::new())
    }

    /// Starts flows that are off in the run of others.
    fn start_more(&self, config: &Config, mut flows: BTreeSet<String>) -> OtgResult<Vec<String>> {
        let mut warnings = Vec::new();
        let run = {
            let mut state = self.state();
            let Some(active) = state.active.as_mut() else {
                let what = "conflict: the other flows have just ended; start the flows again";
                return Err(OtgError::new(409, what));
            };
            let unsent = active.unsent(config);
            flows.retain(|flow| {
                let is_running =
                    active.flows.get(flow) == Some(&FlowPhase::Started) && unsent.contains(flow);
                if is_running {
                    warnings.push(format!("flow '{flow}' is already started"));
                }
                !is_running
            });
            if !flows.is_empty() && active.is_elsewhere() {
                return Err(elsewhere::cannot_change("starting more flows"));
            }
            for flow in &flows {
                let what = match active.flows.get(flow) {
                    Some(FlowPhase::Held) => continue,
                    Some(_) => "it was sent with them before",
                    None => "it cannot be sent together with them",
                };
                let what = format!(
                    "unsupported: starting flow '{flow}' while others are sent, because {what}; stop them first"
                );
                return Err(OtgError::new(501, what));
            }
            if flows.is_empty() {
                return Ok(warnings);
            }
            steer(active, &flows, StreamSteer::On)?;
            let phases = flows.iter().map(|flow| (flow.clone(), FlowPhase::Started));
            Arc::make_mut(&mut active.flows).extend(phases);
            let run = Arc::clone(&active.run);
            for flow in &flows {
                state.ended.remove(flow);
            }
            run
        };
        self.await_first_frames(&run, &flows);
        Ok(warnings)
    }

    /// Starts a run of flows, in which others are off.
    fn start_run(
        self: &Arc<Self>,
        config: &Config,
        flows: &BTreeSet<String>,
        held: &BTreeSet<String>,
    ) -> OtgResult<Vec<String>> {
        let captures = self.state().captures.clone();
        let planned = config.compile(&Context {
            flows: &flows.union(held).cloned().collect(),
            captures: &captures,
            owns_network: self.runs.settings().grants.leave,
            neighbour: &|ethernet, address| self.neighbour(config, ethernet, address),
        })?;
        let request = RunRequest {
            plan: planned.plan,
            name: "OTG".to_owned(),
            labels: BTreeMap::from([("otg".to_owned(), String::new())]),
            owner: Some(OWNER.to_owned()),
            held: held.iter().cloned().collect(),
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
            for flow in flows {
                state.ended.remove(flow);
            }
            for (port, file) in planned.files {
                state.captured.insert(port, Some((run.id.clone(), file)));
            }
            let started = flows.iter().map(|flow| (flow.clone(), FlowPhase::Started));
            let held = held.iter().map(|flow| (flow.clone(), FlowPhase::Held));
            state.active = Some(ActiveFlows {
                run: Arc::clone(&run),
                flows: Arc::new(started.chain(held).collect()),
                streams: Arc::default(),
            });
        }
        if !held.is_empty() {
            self.watch(&run);
        }
        self.await_first_frames(&run, flows);
        let events = run.feed.after(0).events.into_iter();
        let messages = events.filter(|event| event.name == "message");
        let texts = messages.filter_map(|event| {
            let message: Value = serde_json::from_str(&event.data).ok()?;
            Some(message["text"].as_str()?.to_owned())
        });
        Ok(texts.collect())
    }

    /// Ends a run with flows that are off once all others have been sent, also if no client asks for anything.
    fn watch(self: &Arc<Self>, run: &Arc<Run>) {
        let (inner, run) = (Arc::clone(self), Arc::clone(run));
        let watch = move || {
            while !inner.has_ended(&run) {
                thread::sleep(WATCH);
                inner.settle();
            }
        };
        // Without it, the next request does the same.
        let _ = thread::Builder::new()
            .name("wb-otg".to_owned())
            .spawn(watch);
    }

    /// Waits for the first frame of each flow.
    fn await_first_frames(&self, run: &Run, flows: &BTreeSet<String>) {
        wait_until(FIRST_FRAMES, || {
            let seen = run.jobs();
            let has_sent = seen.last().is_some_and(|seen| {
                let streams = seen.jobs.iter().flat_map(|job| &job.streams);
                let mut own = streams.filter(|stream| flows.contains(&stream.name));
                own.all(|stream| stream.totals.offered_frames.unwrap_or(0) > 0)
            });
            has_sent || self.has_ended(run)
        });
    }

    fn stop(&self, names: &[String]) -> OtgResult<Vec<String>> {
        let config = Arc::clone(&self.state().config);
        let flows = self.flow_names(&config, names)?;
        let Some(active) = self.settle() else {
            return Ok(Vec::new());
        };
        let mut left = active.unsent(&config);
        left.retain(|flow| !flows.contains(flow));
        let is_idle =
            |flow: &String| matches!(active.flows.get(flow), None | Some(FlowPhase::Held));
        if flows.iter().all(is_idle) {
            return Ok(Vec::new());
        }
        match left.is_empty() {
            true => self.stop_all()?,
            false => self.change(flows, StreamSteer::End, FlowPhase::Stopped)?,
        }
        Ok(Vec::new())
    }

    fn pause(&self, names: &[String]) -> OtgResult<Vec<String>> {
        let config = Arc::clone(&self.state().config);
        let flows = self.flow_names(&config, names)?;
        let unsent = self.settle().map(|active| {
            let mut unsent = active.unsent(&config);
            unsent.retain(|flow| flows.contains(flow));
            unsent
        });
        let unsent = unsent.unwrap_or_default();
        let idle = names.iter().filter(|name| !unsent.contains(*name));
        let warnings = idle.map(|flow| format!("flow '{flow}' is not running, so it cannot pause"));
        let warnings = warnings.collect();
        self.change(unsent, StreamSteer::Off, FlowPhase::Paused)?;
        Ok(warnings)
    }

    fn resume(&self, names: &[String]) -> OtgResult<Vec<String>> {
        let config = Arc::clone(&self.state().config);
        let mut flows = self.flow_names(&config, names)?;
        let active = self.settle();
        let phase = |flow: &String| active.as_ref()?.flows.get(flow);
        flows.retain(|flow| phase(flow) == Some(&FlowPhase::Paused));
        let others = names.iter().filter(|name| !flows.contains(*name));
        let warnings = others.map(|flow| format!("flow '{flow}' is not paused"));
        let warnings = warnings.collect();
        self.change(flows, StreamSteer::On, FlowPhase::Started)?;
        Ok(warnings)
    }

    /// Changes those of these flows that are started. If they send no more, waits for frames in flight.
    fn change(
        &self,
        mut flows: BTreeSet<String>,
        wish: StreamSteer,
        to: FlowPhase,
    ) -> OtgResult<()> {
        let run = {
            let mut state = self.state();
            let Some(active) = state.active.as_mut() else {
                return Ok(());
            };
            let can_change = |phase: &FlowPhase| {
                matches!(phase, FlowPhase::Started | FlowPhase::Paused) && *phase != to
            };
            flows.retain(|flow| active.flows.get(flow).is_some_and(can_change));
            if flows.is_empty() {
                return Ok(());
            }
            steer(active, &flows, wish)?;
            let phases = flows.into_iter().map(|flow| (flow, to));
            Arc::make_mut(&mut active.flows).extend(phases);
            Arc::clone(&active.run)
        };
        if to != FlowPhase::Started {
            let elapsed = || run.jobs().last().map_or(0, |now| now.elapsed_ns);
            thread::sleep(FLIGHT);
            let now = elapsed();
            wait_until(PATIENCE / 4, || elapsed() > now || self.has_ended(&run));
        }
        Ok(())
    }

    /// Lets flows that are being sent follow a change of the configuration: removed ones end, and others take their new
    /// rate.
    pub(super) fn follow_change(&self, old: &Config, new: &Config) -> OtgResult<()> {
        let by_name = |config: &'_ Config| -> BTreeMap<String, Flow> {
            let flows = config.flows.iter();
            flows
                .map(|flow| (flow.name.clone(), flow.clone()))
                .collect()
        };
        let (old_flows, new_flows) = (by_name(old), by_name(new));
        let removed = old_flows
            .keys()
            .filter(|name| !new_flows.contains_key(*name));
        let removed: BTreeSet<String> = removed.cloned().collect();
        let mut state = self.state();
        if let Some(active) = state.active.as_mut() {
            let unsent = active.unsent(old);
            let (mut wishes, mut over) = (Vec::new(), Vec::new());
            for (name, phase) in active.flows.iter() {
                let is_waiting = matches!(phase, FlowPhase::Held | FlowPhase::Paused);
                let is_live = is_waiting || unsent.contains(name);
                let Some(flow) = old_flows.get(name) else {
                    continue;
                };
                let Some(changed) = new_flows.get(name).filter(|new| is_changed(flow, new)) else {
                    if is_live && removed.contains(name) {
                        wishes.push((name.clone(), StreamSteer::End));
                    }
                    continue;
                };
                match new_rate(flow, changed).filter(|_| !is_waiting) {
                    _ if !is_live => over.push((name.clone(), FlowPhase::Stopped)),
                    Some(rate) => wishes.push((name.clone(), StreamSteer::Rate(rate))),
                    None => {
                        let what = format!(
                            "unsupported: changing flow '{name}' while it is sent or waits, except its rate while it is sent; stop it first"
                        );
                        return Err(OtgError::new(501, what));
                    }
                }
            }
            if !wishes.is_empty() {
                if active.is_elsewhere() {
                    return Err(elsewhere::cannot_change("changing flows"));
                }
                let done = active.run.steer_streams(&wishes);
                done.map_err(|why| OtgError::new(409, format!("conflict: {why}")))?;
            }
            let flows = Arc::make_mut(&mut active.flows);
            flows.extend(over);
            flows.retain(|name, _| !removed.contains(name));
        }
        state.ended.retain(|name, _| !removed.contains(name));
        Ok(())
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

/// Returns true if two versions of a flow are sent in different ways.
fn is_changed(old: &Flow, new: &Flow) -> bool {
    old.streams != new.streams || (&old.tx, &old.rx) != (&new.tx, &new.rx)
}

/// The new rate of each stream of a flow, if nothing else has changed.
fn new_rate(old: &Flow, new: &Flow) -> Option<Rate> {
    let rate = new.streams.first()?.0.rate;
    let mut old = old.clone();
    old.streams
        .iter_mut()
        .for_each(|(stream, _)| stream.rate = rate);
    (!is_changed(&old, new)).then_some(rate)
}

/// Changes the streams of flows of a run.
fn steer(active: &ActiveFlows, flows: &BTreeSet<String>, wish: StreamSteer) -> OtgResult<()> {
    if active.is_elsewhere() {
        let what = match wish {
            StreamSteer::End => "stopping single flows",
            _ => "pausing flows",
        };
        return Err(elsewhere::cannot_change(what));
    }
    let wishes: Vec<_> = flows.iter().map(|flow| (flow.clone(), wish)).collect();
    match active.run.steer_streams(&wishes) {
        // The last ones ended a moment ago.
        Err(why) if why == ALL_SENT && wish != StreamSteer::On => Ok(()),
        done => done.map_err(|why| OtgError::new(409, format!("conflict: {why}"))),
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
