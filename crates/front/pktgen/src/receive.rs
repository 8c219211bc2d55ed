//! Receiver behind `pgrx`: a session that receives while `rx` is on.

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use wb_pktgen::pgrx::PgrxReceiver;
use wb_pktgen_device::CpuStatistics;
use wb_session::{
    Environment, Extras, StartError, View,
    devices::{WatchExtras, WatchHandle, WatchQueue, WatchSettings},
    prepare,
};

use super::{PlanOptions, service::Log, world::Host};

/// Receiving session.
pub(crate) struct Reception {
    /// Requested interface, or none for all.
    device: Option<String>,
    consume: bool,
    queues: Vec<WatchQueue>,
    warnings: Vec<String>,
    thread: Option<JoinHandle<()>>,
}

/// Returns the measurements for the workers, from the state of the receiver.
fn settings(receiver: &PgrxReceiver) -> Option<WatchSettings> {
    Some(WatchSettings {
        mode: receiver.mode()?,
        rule: receiver.dialect().jitter(),
        takes_latency: receiver.takes_latency(),
        sequences: true,
        clears: receiver.clears(),
    })
}

impl Reception {
    /// Adapts the session to the receiver: opens it, closes it, or sends new settings to the workers.
    pub(crate) fn follow(
        now: &mut Option<Self>,
        receiver: &PgrxReceiver,
        options: &PlanOptions,
        host: &Host,
        log: &Log,
    ) -> Result<(), StartError> {
        let Some(settings) = settings(receiver) else {
            *now = None;
            return Ok(());
        };
        let same = now.as_ref().is_some_and(|r| {
            r.device.as_deref() == receiver.device() && r.consume == receiver.consumes_packets()
        });
        if same {
            for queue in now.iter().flat_map(|r| &r.queues) {
                queue.handle.set(settings);
            }
            return Ok(());
        }
        // Two sessions would count everything twice.
        *now = None;
        *now = Some(Self::open(receiver, &settings, options, host, log)?);
        Ok(())
    }

    fn open(
        receiver: &PgrxReceiver,
        settings: &WatchSettings,
        options: &PlanOptions,
        host: &Host,
        log: &Log,
    ) -> Result<Self, StartError> {
        let device = receiver.device().map(str::to_owned);
        let interfaces = match &device {
            Some(name) => vec![name.clone()],
            None => host.ask(wb_session::Machine::arrival_interfaces),
        };
        let consume = receiver.consumes_packets();
        let plan = options.watching(&interfaces, settings.mode, settings.rule, consume);
        let prepared = prepare(plan, &Environment::default(), Extras::default())?;
        let queues = prepared.watches().to_vec();
        for queue in &queues {
            queue.handle.set(*settings);
        }
        let warnings = prepared.warnings().to_vec();
        let log = log.clone();
        let thread = std::thread::Builder::new()
            .name("wb-pgrx".to_owned())
            .spawn(move || {
                // After a fault the rows no longer change.
                if let Err(error) = prepared.run(&mut |_: &View<'_>| {}) {
                    log.say(&format!("pgrx: {error}"));
                }
            })
            .map_err(StartError::thread)?;
        Ok(Self {
            device,
            consume,
            queues,
            warnings,
            thread: Some(thread),
        })
    }

    /// Returns the new warnings about receiving, each once.
    pub(crate) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Returns the row of each CPU, over all interfaces.
    pub(crate) fn rows(&self) -> BTreeMap<u32, CpuStatistics> {
        let mut rows: BTreeMap<u32, CpuStatistics> = BTreeMap::new();
        for queue in &self.queues {
            let (row, _) = queue.handle.results();
            rows.entry(queue.cpu).or_default().merge(&row);
        }
        rows
    }

    /// Returns the additional measurements of each queue: interface, CPU, results.
    pub(crate) fn extras(&self) -> Vec<(&str, u32, WatchExtras)> {
        self.queues
            .iter()
            .map(|q| (q.port.as_str(), q.cpu, q.handle.results().1))
            .collect()
    }

    /// Returns the queues, so that callers can wait without a lock.
    pub(crate) fn queues(&self) -> Vec<WatchQueue> {
        self.queues.clone()
    }

    fn handles(&self) -> impl Iterator<Item = &Arc<WatchHandle>> {
        self.queues.iter().map(|q| &q.handle)
    }
}

/// Maximum wait of a reader for the workers, which need about 10 ms.
const OBEYING: Duration = Duration::from_millis(500);
/// Maximum wait for packets that have just arrived. With continuous traffic some always remain.
const DRAINING: Duration = Duration::from_millis(50);

/// Waits until the workers have applied all settings and reported the arrived packets.
pub(crate) fn settle(queues: &[WatchQueue]) {
    let begin = Instant::now();
    let questions: Vec<_> = queues
        .iter()
        .map(|q| (q, q.handle.request_results()))
        .collect();
    let settled = |drained| {
        questions
            .iter()
            .all(|(q, n)| q.handle.is_settled(*n, drained))
    };
    while !(settled(true) || begin.elapsed() > DRAINING && settled(false))
        && begin.elapsed() < OBEYING
    {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Drop for Reception {
    fn drop(&mut self) {
        self.handles().for_each(|handle| handle.stop());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
