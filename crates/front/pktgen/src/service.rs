//! Control folder in operation: handles reads and writes, runs devices, and stores results.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use wb_fuse::{Answer, ControlFiles, Writer};
use wb_machine::clock::monotonic_ns;
use wb_model::{Plan, Report, device::DeviceConfig};
use wb_pktgen::{
    control::{self, PktgenFiles, ReadyDevice, WriteEffect},
    device::DeviceId,
};
use wb_session::{
    Environment, Extras, Finished, Machine, Observer, Prepared, StartError, View,
    devices::{DeviceEnd, DeviceHandle, device_faults},
    prepare,
};

use super::{
    PlanOptions, extra,
    rates::Rates,
    receive::{Reception, settle},
    world::Host,
};

/// Functions of the program that a folder uses.
#[derive(Clone, Copy)]
pub struct Program {
    /// Prints a line for the user.
    pub say: fn(&str),
    /// Runs a prepared plan and shows it as the program shows its runs.
    pub run: fn(Prepared, &mut dyn Observer) -> Result<Finished, StartError>,
}

/// Options of a folder.
#[derive(Clone, Debug)]
pub struct Options {
    /// Options for the dialect.
    pub folder: control::ControlOptions,
    /// Options for the plans.
    pub plans: PlanOptions,
    /// True to report actions in addition to warnings.
    pub verbose: bool,
}

/// Maximum wait for devices to stop, which need about 10 ms.
const STOPPING: Duration = Duration::from_secs(5);

/// Folder shared by all readers and writers.
pub struct Service {
    host: Host,
    options: Options,
    program: Program,
    log: Log,
    state: Mutex<State>,
    /// Signalled when a run has ended.
    ended: Condvar,
    me: Weak<Service>,
    /// True if the folder is closing and no new runs may start.
    closing: AtomicBool,
}

/// Running device.
struct Running {
    id: DeviceId,
    name: String,
    handle: Arc<DeviceHandle>,
    /// Settings last sent to the worker.
    told: DeviceConfig,
    /// True if the device has ended and its file contains the result.
    concluded: bool,
}

struct State {
    folder: PktgenFiles,
    /// Writers of `start` that wait for the end.
    waiting: Vec<Answer>,
    /// True if a thread carries out runs.
    busy: bool,
    /// True if `start` was written during a run, so that another run follows.
    again: bool,
    /// True if `stop` was written before the devices existed.
    stop: bool,
    running: Vec<Running>,
    reception: Option<Reception>,
    /// Index of each device's interface, by name.
    interfaces: BTreeMap<String, u32>,
    rates: Rates,
    report: Option<Report>,
    outcomes: BTreeMap<String, extra::Outcome>,
    runs: u64,
    log: Log,
}

impl Service {
    /// Creates a folder for the interfaces of `host`, with a file for each CPU.
    pub fn new(host: Host, cpus: &[u32], options: Options, program: Program) -> Arc<Self> {
        let log = Log::new(program.say);
        Arc::new_cyclic(|me| Self {
            host,
            state: Mutex::new(State {
                folder: PktgenFiles::new(cpus.iter().copied(), options.folder),
                waiting: Vec::new(),
                busy: false,
                again: false,
                stop: false,
                running: Vec::new(),
                reception: None,
                interfaces: BTreeMap::new(),
                rates: Rates::default(),
                report: None,
                outcomes: BTreeMap::new(),
                runs: 0,
                log: log.clone(),
            }),
            options,
            program,
            log: log.clone(),
            ended: Condvar::new(),
            me: me.clone(),
            closing: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state for reading files, which follow changes of interfaces.
    fn lock_to_look(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if state.folder.devices().next().is_some() {
            let now = self.host.ask(Machine::interfaces);
            state.follow_interfaces(&now);
        }
        state
    }

    /// Stops everything and waits for the end.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        let mut state = self.lock();
        state.again = false;
        state.order_stop();
        let deadline = Instant::now() + STOPPING;
        while state.busy && Instant::now() < deadline {
            state = self
                .ended
                .wait_timeout(state, Duration::from_millis(50))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.reception = None;
        for answer in state.waiting.drain(..) {
            answer.taken();
        }
    }

    /// Stops the current run, as `stop` does, and prevents a following one.
    pub fn interrupt(&self) {
        let mut state = self.lock();
        state.again = false;
        state.order_stop();
    }

    /// Returns true while devices send.
    pub fn is_running(&self) -> bool {
        self.lock().busy
    }

    /// Returns true if devices exist and none was ever started.
    pub fn is_unstarted(&self) -> bool {
        let state = self.lock();
        state.runs == 0 && state.folder.devices().next().is_some()
    }

    /// Returns the report of the last run, if there was one.
    pub fn report(&self) -> Option<Report> {
        self.lock().report.clone()
    }

    fn start(&self, state: &mut State, answer: Answer) {
        state.waiting.push(answer);
        if state.busy {
            state.again = true;
            state.order_stop();
            return;
        }
        state.busy = true;
        state.stop = false;
        let Some(me) = self.me.upgrade() else { return };
        let spawned = std::thread::Builder::new()
            .name("wb-pktgen".to_owned())
            .spawn(move || me.carry_out());
        if let Err(error) = spawned {
            self.log
                .say(&format!("cannot start a thread for the run: {error}"));
            state.busy = false;
            state
                .waiting
                .drain(..)
                .for_each(|a| a.refused(libc::EAGAIN));
        }
    }

    /// Runs as often as requested, and then answers all waiting writers.
    fn carry_out(&self) {
        let broken_off = Busy(self);
        loop {
            self.run_once();
            let mut state = self.lock();
            if std::mem::take(&mut state.again) {
                state.stop = false;
                continue;
            }
            // Under the same lock: a later write of `start` begins a new run.
            state.busy = false;
            let waiting = std::mem::take(&mut state.waiting);
            drop(state);
            std::mem::forget(broken_off);
            self.ended.notify_all();
            waiting.into_iter().for_each(Answer::taken);
            return;
        }
    }

    fn run_once(&self) {
        let mut state = self.lock();
        state.runs += 1;
        let seed = self.options.plans.seed.wrapping_add(state.runs - 1);
        let jobs = state.folder.start_devices(monotonic_ns(), seed, &self.host);
        // From here on, the state of the devices is that of the new run.
        if !jobs.is_empty() {
            state.rates = Rates::default();
        }
        self.say_warnings(&mut state);
        self.follow_receiver(&mut state);
        let state_is_verbose = state.folder.is_verbose();
        drop(state);
        if jobs.is_empty() {
            return;
        }
        let mut jobs = self.without_the_faulty(jobs);
        if jobs.is_empty() {
            return;
        }
        let prepared = match self.prepare(&jobs) {
            Ok(prepared) => prepared,
            Err(error) => {
                // Omits only the devices with interfaces that cannot be opened, if there are others.
                jobs = self.without_the_busy(jobs, &error);
                if jobs.is_empty() {
                    return;
                }
                match self.prepare(&jobs) {
                    Ok(prepared) => prepared,
                    Err(error) => return self.all_failed(&names(&jobs), &error),
                }
            }
        };
        let ids = names(&jobs);
        if self.options.verbose || state_is_verbose {
            prepared
                .port_lines()
                .iter()
                .for_each(|line| self.log.say(line));
        }
        for warning in prepared.warnings() {
            self.log.say(warning);
        }
        let handles = prepared.devices().to_vec();
        let mut state = self.lock();
        state.running = ids
            .iter()
            .zip(&handles)
            .filter_map(|((id, name), handle)| {
                // A device that was removed in the meantime has no settings.
                let Some(told) = state.folder.live_config(*id).cloned() else {
                    handle.stop();
                    return None;
                };
                handle.reconfigure(told.clone());
                Some(Running {
                    id: *id,
                    name: name.clone(),
                    handle: Arc::clone(handle),
                    told,
                    concluded: false,
                })
            })
            .collect();
        if state.stop {
            state.order_stop();
        }
        drop(state);
        let finished = (self.program.run)(prepared, &mut |_: &View<'_>| self.look());
        let mut state = self.lock();
        state.catch_up();
        let ended = std::mem::take(&mut state.running);
        match finished {
            Ok(finished) => {
                for device in ended.iter().filter(|d| !d.concluded) {
                    let reason = "its worker ended by a fault; its counts are missing";
                    state
                        .folder
                        .record_failure(device.id, reason, monotonic_ns());
                }
                for ((_, name), handle) in ids.iter().zip(&handles) {
                    let outcome = handle.take_outcome();
                    let outcome = outcome.as_ref().map(extra::Outcome::of);
                    state.outcomes.extend(outcome.map(|o| (name.clone(), o)));
                }
                state.report = Some(finished.report);
            }
            Err(error) => {
                drop(state);
                return self.all_failed(&ids, &error.to_string());
            }
        }
        self.follow_receiver(&mut state);
    }

    fn prepare(&self, jobs: &[ReadyDevice]) -> Result<Prepared, String> {
        let walkers = jobs.iter().map(|job| job.walker.clone()).collect();
        let extras = Extras {
            walkers,
            ..Extras::default()
        };
        prepare(self.plan_of(jobs), &Environment::default(), extras)
            .map_err(|error| error.to_string())
    }

    /// Ends the devices with interfaces that cannot be opened, with `error` if no device remains.
    fn without_the_busy(&self, jobs: Vec<ReadyDevice>, error: &str) -> Vec<ReadyDevice> {
        let interfaces: BTreeSet<String> = jobs.iter().map(|j| j.interface.clone()).collect();
        if interfaces.len() < 2 {
            self.all_failed(&names(&jobs), error);
            return Vec::new();
        }
        let mut kept = Vec::new();
        for interface in interfaces {
            let (own, _): (Vec<&ReadyDevice>, Vec<&ReadyDevice>) =
                jobs.iter().partition(|j| j.interface == interface);
            let own: Vec<ReadyDevice> = own.into_iter().cloned().collect();
            match self.prepare(&own) {
                Ok(prepared) => {
                    drop(prepared);
                    kept.extend(own.iter().map(|j| j.id));
                }
                Err(error) => self.all_failed(&names(&own), &error),
            }
        }
        jobs.into_iter().filter(|j| kept.contains(&j.id)).collect()
    }

    fn plan_of(&self, jobs: &[ReadyDevice]) -> Plan {
        self.options.plans.sending(
            jobs.iter()
                .map(|j| (j.interface.as_str(), j.cpu, j.walker.config())),
        )
    }

    /// Ends the devices with interfaces that cannot send, so that they do not block the others.
    fn without_the_faulty(&self, jobs: Vec<ReadyDevice>) -> Vec<ReadyDevice> {
        let plan = self.plan_of(&jobs);
        let faults = device_faults(&plan);
        if faults.iter().all(Option::is_none) {
            return jobs;
        }
        let now = monotonic_ns();
        let mut state = self.lock();
        let mut kept = Vec::new();
        for ((job, planned), fault) in jobs.into_iter().zip(&plan.devices).zip(faults) {
            let Some(fault) = fault else {
                kept.push(job);
                continue;
            };
            let reason = fault.error.to_string();
            let reason = reason.lines().next().unwrap_or_default();
            self.log
                .say(&format!("{}: {reason}", planned.settings.name));
            if fault.without_link {
                // As with a link that goes down during a run: the device stops without an error.
                state.folder.record_end(job.id, &job.walker, now, 0);
            } else {
                state.folder.record_failure(job.id, reason, now);
            }
        }
        self.follow_receiver(&mut state);
        kept
    }

    fn all_failed(&self, ids: &[(DeviceId, String)], reason: &str) {
        let reason = reason.lines().next().unwrap_or_default();
        self.log.say(reason);
        let mut state = self.lock();
        for (id, _) in ids {
            state.folder.record_failure(*id, reason, monotonic_ns());
        }
        self.follow_receiver(&mut state);
    }

    /// Updates the state once per interval of a run.
    fn look(&self) {
        let mut state = self.lock();
        let now = monotonic_ns();
        let State { running, rates, .. } = &mut *state;
        for device in running {
            rates.look(&device.name, &device.handle.progress(), now);
        }
    }

    fn say_warnings(&self, state: &mut State) {
        for warning in state.folder.take_warnings() {
            self.log.say(&warning);
        }
    }

    /// Opens or closes the receiver of `pgrx`, or sends settings to its workers.
    fn follow_receiver(&self, state: &mut State) {
        let State {
            folder, reception, ..
        } = state;
        let plans = &self.options.plans;
        if let Err(error) =
            Reception::follow(reception, folder.receiver(), plans, &self.host, &self.log)
        {
            self.log.say(&format!("pgrx: {error}"));
        }
        for warning in reception.iter_mut().flat_map(Reception::take_warnings) {
            self.log.say(&format!("pgrx: {warning}"));
        }
    }

    /// Answers once these devices have stopped.
    fn answer_when_stopped(&self, handles: Vec<Arc<DeviceHandle>>, answer: Answer) {
        if handles.is_empty() {
            return answer.taken();
        }
        let waiter = move || {
            let deadline = Instant::now() + STOPPING;
            while Instant::now() < deadline && !handles.iter().all(|h| h.has_ended()) {
                std::thread::sleep(Duration::from_millis(2));
            }
            answer.taken();
        };
        // Without a thread the answer is dropped, and the write fails with EIO.
        let _ = std::thread::Builder::new()
            .name("wb-removal".to_owned())
            .spawn(waiter);
    }

    fn carry_out_effect(&self, state: &mut State, effect: WriteEffect, answer: Answer) {
        match effect {
            WriteEffect::None => {
                state.tell_devices();
                answer.taken();
            }
            WriteEffect::Start if self.closing.load(Ordering::Acquire) => {
                answer.refused(libc::ENODEV)
            }
            WriteEffect::Start => self.start(state, answer),
            WriteEffect::Stop => {
                state.order_stop();
                answer.taken();
            }
            WriteEffect::Reset | WriteEffect::RemoveAll { .. } => {
                let gone = state.stop_removed();
                self.answer_when_stopped(gone, answer);
            }
            WriteEffect::Receive(_) => {
                self.follow_receiver(state);
                answer.taken();
            }
        }
    }
}

impl State {
    /// Requests all devices to stop.
    fn order_stop(&mut self) {
        self.stop = true;
        for device in &self.running {
            device.handle.stop();
        }
    }

    /// Stops running devices without a file, because it was removed.
    fn stop_removed(&mut self) -> Vec<Arc<DeviceHandle>> {
        let mut gone = Vec::new();
        for device in &self.running {
            if self.folder.live_config(device.id).is_none() {
                device.handle.stop();
                gone.push(Arc::clone(&device.handle));
            }
        }
        gone
    }

    /// Renames the files of renamed interfaces, and removes the files of removed interfaces.
    fn follow_interfaces(&mut self, now: &[(u32, String)]) {
        let devices = self.folder.devices();
        let used: BTreeSet<String> = devices.map(|d| d.interface().to_owned()).collect();
        let number = |name: &str| {
            now.iter()
                .find(|(_, n)| n == name)
                .map(|(number, _)| *number)
        };
        for name in used {
            let known = self.interfaces.get(&name).copied();
            let known = known.or_else(|| number(&name));
            if known.is_some() && number(&name) == known {
                self.interfaces.extend(known.map(|number| (name, number)));
                continue;
            }
            self.interfaces.remove(&name);
            match now.iter().find(|(number, _)| Some(*number) == known) {
                Some((_, new)) => self.folder.interface_renamed(&name, new),
                None => {
                    self.folder.interface_gone(&name);
                    self.stop_removed();
                }
            }
        }
    }

    /// Sends changed settings to the running devices.
    fn tell_devices(&mut self) {
        for device in &mut self.running {
            if let Some(live) = self.folder.live_config(device.id)
                && *live != device.told
            {
                device.told = live.clone();
                device.handle.reconfigure(live.clone());
            }
        }
    }

    /// Copies worker counters and results of ended devices to the folder, so that a reader that waits for one device
    /// need not wait for the others.
    fn catch_up(&mut self) {
        for device in &mut self.running {
            if device.concluded {
                continue;
            }
            if let Some(end) = device.handle.take_end() {
                conclude(&mut self.folder, device, &end, &self.log);
                continue;
            }
            let progress = device.handle.progress();
            // A worker has no progress before its first turn.
            if progress.started_ns > 0 {
                self.folder.record_progress(device.id, &progress);
            }
            if let Some(refusal) = device.handle.take_refusal() {
                self.log.say(&format!(
                    "{}: {refusal}; the previous settings remain",
                    device.name
                ));
            }
        }
        if let Some(reception) = &self.reception {
            for (cpu, row) in reception.rows() {
                self.folder.receiver_mut().replace_row(cpu, row);
            }
        }
    }
}

/// Writes the end of a device to its file.
fn conclude(folder: &mut PktgenFiles, device: &mut Running, end: &DeviceEnd, log: &Log) {
    device.concluded = true;
    folder.record_end(device.id, &end.walker, end.stopped_ns, end.idle_ns);
    if let Some(reason) = &end.fault {
        log.say(&format!("{}: {reason}", device.name));
        folder.record_failure(device.id, reason, end.stopped_ns);
    }
}

/// Returns the devices of a run with their file names.
fn names(jobs: &[ReadyDevice]) -> Vec<(DeviceId, String)> {
    let name = |job: &ReadyDevice| (job.id, job.walker.config().name.clone());
    jobs.iter().map(name).collect()
}

impl ControlFiles for Service {
    fn names(&self) -> Vec<String> {
        self.lock_to_look().folder.file_names()
    }

    fn exists(&self, name: &str) -> bool {
        let state = self.lock_to_look();
        state.folder.has_file(name) || extra::File::find(name, &state.folder).is_some()
    }

    fn mode(&self, name: &str) -> u32 {
        if self.lock().folder.has_file(name) {
            0o600
        } else {
            0o400
        }
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, i32> {
        if name.starts_with("pgrx") {
            let queues = self.lock().reception.as_ref().map(Reception::queues);
            settle(&queues.unwrap_or_default());
        }
        let mut state = self.lock_to_look();
        state.catch_up();
        if state.folder.has_file(name) {
            let text = state.folder.read(name, &self.host, monotonic_ns());
            return text.map_err(wb_pktgen::errno::Errno::number);
        }
        let file = extra::File::find(name, &state.folder).ok_or(libc::ENOENT)?;
        Ok(file
            .text(&extra::Sources {
                folder: &state.folder,
                plans: &self.options.plans,
                runs: state.runs,
                report: state.report.as_ref(),
                outcomes: &state.outcomes,
                rates: &state.rates,
                reception: state.reception.as_ref(),
                now_ns: monotonic_ns(),
            })
            .into_bytes())
    }

    fn write(&self, name: &str, command: &[u8], _writer: Writer, answer: Answer) {
        let mut state = self.lock_to_look();
        // Counters since the last update must survive the change.
        state.catch_up();
        match state.folder.write(name, command, &self.host) {
            Err(errno) => {
                let readable = extra::File::find(name, &state.folder).is_some();
                answer.refused(if readable {
                    libc::EACCES
                } else {
                    errno.number()
                });
            }
            Ok(effect) => self.carry_out_effect(&mut state, effect, answer),
        }
        self.say_warnings(&mut state);
    }

    fn interrupted(&self, _name: &str, _writer: Writer) {
        self.interrupt();
    }
}

/// Maximum number of lines that wait for a slow reader; further lines are dropped.
const LINES: usize = 1024;

/// Lines for standard error of the folder's process; the files have no place for such lines.
///
/// The reader may be slow or gone (a daemon outlives the terminal that started it), so printing never blocks.
#[derive(Clone)]
pub(crate) struct Log {
    say: fn(&str),
    /// Lines for the thread that prints, which starts with the first line.
    lines: Arc<OnceLock<Option<SyncSender<String>>>>,
}

impl Log {
    fn new(say: fn(&str)) -> Self {
        let lines = Arc::default();
        Self { say, lines }
    }

    /// Prints a line, or drops it if too many lines wait.
    pub(crate) fn say(&self, line: &str) {
        let start = || {
            let (sender, lines) = sync_channel::<String>(LINES);
            let say = self.say;
            let writing = move || lines.into_iter().for_each(|line| say(&line));
            let thread = std::thread::Builder::new().name("wb-log".to_owned());
            thread.spawn(writing).ok().map(|_| sender)
        };
        if let Some(lines) = self.lines.get_or_init(start) {
            let _ = lines.try_send(line.to_owned());
        }
    }
}

/// Answers waiting writers if the thread that runs devices panics.
struct Busy<'a>(&'a Service);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.busy = false;
        state.again = false;
        let running = std::mem::take(&mut state.running);
        for device in running {
            device.handle.stop();
            state
                .folder
                .record_failure(device.id, "the run ended by a fault", monotonic_ns());
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.0.ended.notify_all();
        waiting.into_iter().for_each(Answer::taken);
    }
}
