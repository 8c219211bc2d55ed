//! State machine of an agent: the part of a run that one host carries out.
//!
//! States of a part: opening, opened, resolving, armed, running, draining. The agent is free before and after. The
//! caller passes messages, results of the engine and the time to [`Agent::on`], carries out the returned actions in
//! order, and calls again with [`Event::Tick`] at [`Agent::next_ns`]. Commands to the engine are carried out one after
//! another: a release waits until the opening before it has ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wb_model::{
    fleet::HostClock,
    peer::Sent,
    powers::{Power, PowerUse},
};

use crate::{
    Lease, MS, Now, SECOND, Share, ShareEnd,
    message::{
        AgentEvent, AgentEventKind, Alive, Answer, Armed, Direction, Hello, LeaseMessage,
        Occupation, Op, Open, Opened, Refused, RefusedKind, Reply, Request, SentMessage,
        ShareMessage, Snap, Start, Stop, StopHow, V1,
    },
    subjects::Subject,
};

/// Time without a message of the controller after which a part that has not started frees its ports.
pub const SILENCE_NS: u64 = 10 * SECOND;
/// Time between two messages of presence.
pub const ALIVE_NS: u64 = SECOND;
/// Time between two messages about the end of a sender, and their number: one of them may get lost.
const SENT_AGAIN: (u64, u32) = (500 * MS, 5);
/// Time until a share without an acknowledgement is sent again: the first time, and the maximum.
const SHARE_AGAIN_NS: (u64, u64) = (SECOND, 30 * SECOND);
/// Number of runs that the agent remembers as ended, so that a delayed message does not open them again.
const REMEMBERED: usize = 64;

/// Facts about an agent that do not change while it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentSettings {
    /// Host.
    pub host: String,
    /// Identity of this start, random.
    pub id: String,
    /// Version of the program.
    pub version: String,
    /// Powers that the agent grants to plans.
    pub powers: Vec<Power>,
}

/// Place to which a reply goes, chosen by the caller.
pub type ReplyId = u64;

/// Input of the agent.
#[derive(Clone, Debug)]
pub enum Event {
    /// Request of a controller.
    Request {
        /// Place of the reply.
        reply: ReplyId,
        /// Request.
        request: Request,
    },
    /// Request that cannot be read: unknown version, operation or key of a plan.
    Unreadable {
        /// Place of the reply.
        reply: ReplyId,
        /// Error, one sentence.
        error: String,
    },
    /// Start of a run.
    Start(Start),
    /// Lease of a run.
    Lease {
        /// Run.
        run: String,
        /// Message.
        lease: LeaseMessage,
    },
    /// Stop of a run.
    Stop {
        /// Run.
        run: String,
        /// Message.
        stop: Stop,
    },
    /// End of a sender, from the subject of its host.
    Sent {
        /// Run.
        run: String,
        /// Host in the subject.
        host: String,
        /// Direction in the subject, by its first flow.
        direction: u32,
        /// Message.
        message: SentMessage,
    },
    /// Result of [`Action::Open`].
    Opened {
        /// Run.
        run: String,
        /// Opened ports, or all problems.
        result: Result<Opened, Refused>,
    },
    /// Result of [`Action::Resolve`].
    Armed {
        /// Run.
        run: String,
        /// Lead and flows, or all problems.
        result: Result<Armed, Refused>,
    },
    /// The engine could not start in time; nothing was sent.
    TooLate {
        /// Run.
        run: String,
        /// Reason, one sentence.
        why: String,
    },
    /// Snapshot of the engine.
    Snapshot {
        /// Run.
        run: String,
        /// Message.
        snap: Box<Snap>,
    },
    /// The sender of a direction to another host has ended.
    SenderEnded {
        /// Run.
        run: String,
        /// Counts of the sender.
        sent: Sent,
    },
    /// The part has ended: everything is counted.
    Ended {
        /// Run.
        run: String,
        /// Results.
        share: Box<Share>,
    },
    /// The share could not be written; the agent keeps it in memory.
    NotStored {
        /// Run.
        run: String,
        /// Reason.
        why: String,
    },
    /// The stream has stored the share of a run.
    Acknowledged {
        /// Run.
        run: String,
    },
    /// A controller asks for the agents: the next message of presence is due at once.
    Asked,
    /// Time has passed.
    Tick,
}

/// Message that the agent publishes.
#[derive(Clone, Debug)]
pub enum Published {
    /// Presence.
    Alive(Alive),
    /// Snapshot.
    Snap(Box<Snap>),
    /// End of a sender.
    Sent(SentMessage),
    /// Share, for the stream that acknowledges it.
    Share(Box<ShareMessage>),
    /// Event.
    Event(AgentEvent),
}

/// Output of the agent.
#[derive(Clone, Debug)]
pub enum Action {
    /// Sends a reply.
    Reply {
        /// Place of the reply.
        to: ReplyId,
        /// Reply.
        reply: Reply,
    },
    /// Publishes a message.
    Publish {
        /// Subject.
        subject: Subject,
        /// Message.
        message: Published,
    },
    /// Opens the ports of a part and starts its responders; ends with [`Event::Opened`].
    Open(Box<Open>),
    /// Resolves neighbours and spawns the workers; ends with [`Event::Armed`].
    Resolve {
        /// Run.
        run: String,
    },
    /// Starts the workers at this time, or reports [`Event::TooLate`].
    StartAt {
        /// Run.
        run: String,
        /// Start by the wall clock of the host, in ns since 1970.
        wall_ns: u64,
    },
    /// Stops the senders, receives what is in flight, and ends with [`Event::Ended`].
    Drain {
        /// Run.
        run: String,
    },
    /// Stops at once, and ends with [`Event::Ended`].
    StopNow {
        /// Run.
        run: String,
    },
    /// Passes on the end of a sender on another host; the drain of the direction begins.
    PeerSent {
        /// Run.
        run: String,
        /// Counts of the sender.
        sent: Sent,
    },
    /// The sender of a direction is lost; the drain of the direction begins, and its losses stay unknown.
    PeerLost {
        /// Run.
        run: String,
        /// First flow of the direction.
        direction: u32,
    },
    /// Drops everything that the run holds: workers and ports.
    Release {
        /// Run.
        run: String,
    },
    /// Writes the share to disk.
    StoreShare(Box<ShareMessage>),
    /// Removes the share from disk.
    RemoveShare {
        /// Run.
        run: String,
    },
}

/// State of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Ports are being opened.
    Opening,
    /// Ports are open, and responders answer.
    Opened,
    /// Neighbours are being resolved.
    Resolving,
    /// Workers wait for the start.
    Armed,
    /// The start is set, or the part runs.
    Running,
    /// Senders stop, and frames in flight are received.
    Draining,
}

/// Part of a run.
#[derive(Debug)]
struct Part {
    run: String,
    epoch: u64,
    stage: Stage,
    directions: Vec<Direction>,
    lease_ns: u64,
    /// Time of the last message of the controller.
    heard_ns: u64,
    /// Replies that wait for the engine.
    waiting: Vec<ReplyId>,
    opened: Option<Opened>,
    armed: Option<Armed>,
    lease: Option<Lease>,
    /// Ends of own senders: what to repeat, when, and how often.
    sent: BTreeMap<u32, Repeated<Sent>>,
    /// Directions of which the engine knows the end of the sender.
    ended_peers: BTreeSet<u32>,
    /// Hosts that were lost before the start.
    lost: Vec<String>,
    /// True once the lease has run out.
    has_run_out: bool,
}

/// Message that is repeated.
#[derive(Debug)]
struct Repeated<T> {
    what: T,
    next_ns: u64,
    times: u32,
}

/// Agent of one host.
#[derive(Debug)]
pub struct Agent {
    settings: AgentSettings,
    /// Highest epoch of any message.
    epoch: u64,
    draining: bool,
    part: Option<Part>,
    /// Shares that the stream has not acknowledged, by run.
    shares: BTreeMap<String, Repeated<Box<ShareMessage>>>,
    /// Last share that the stream has. The controller may have missed it while the broker was away.
    delivered: Option<Box<ShareMessage>>,
    /// Runs that are over on this host, and the answer to a repeated `open` or `resolve`.
    over: VecDeque<(String, Option<Refused>)>,
    alive_seq: u64,
    alive_next_ns: u64,
    clock: Option<HostClock>,
    load: Option<f64>,
    actions: Vec<Action>,
}

impl Agent {
    /// Creates a free agent. It delivers the shares that were on disk again.
    #[must_use]
    pub fn new(settings: AgentSettings, shares: Vec<ShareMessage>, now: Now) -> Self {
        let kept = |share: ShareMessage| {
            let run = share.run.clone();
            let share = Repeated {
                what: Box::new(share),
                next_ns: now.mono_ns,
                times: 0,
            };
            (run, share)
        };
        Self {
            settings,
            epoch: 0,
            draining: false,
            part: None,
            shares: shares.into_iter().map(kept).collect(),
            delivered: None,
            over: VecDeque::new(),
            alive_seq: 0,
            alive_next_ns: now.mono_ns,
            clock: None,
            load: None,
            actions: Vec::new(),
        }
    }

    /// Sets the claims about the host that the messages of presence carry.
    pub fn set_claims(&mut self, clock: Option<HostClock>, load: Option<f64>) {
        self.clock = clock;
        self.load = load;
    }

    /// State for messages of presence.
    #[must_use]
    pub fn occupation(&self) -> Occupation {
        match &self.part {
            Some(part) => Occupation::Run(part.run.clone()),
            None if self.draining => Occupation::Draining,
            None => Occupation::Free,
        }
    }

    /// Run and state of the current part.
    #[must_use]
    pub fn stage(&self) -> Option<(&str, Stage)> {
        self.part.as_ref().map(|part| (&*part.run, part.stage))
    }

    /// Lease of the running part.
    #[must_use]
    pub fn lease(&self) -> Option<Lease> {
        self.part.as_ref()?.lease
    }

    /// Number of the last message of presence.
    #[must_use]
    pub const fn alive_seq(&self) -> Option<u64> {
        self.alive_seq.checked_sub(1)
    }

    /// Number of shares that the stream has not acknowledged.
    #[must_use]
    pub fn kept_shares(&self) -> usize {
        self.shares.len()
    }

    /// Monotonic time of the next [`Event::Tick`] in ns.
    #[must_use]
    pub fn next_ns(&self) -> u64 {
        let shares = self.shares.values().map(|share| share.next_ns);
        let part = self.part.iter().flat_map(|part| {
            let sent = part.sent.values().filter(|s| s.times < SENT_AGAIN.1);
            sent.map(|sent| sent.next_ns).chain(part.deadline_ns())
        });
        shares.chain(part).fold(self.alive_next_ns, u64::min)
    }

    /// Handles an event and returns the actions in order.
    pub fn on(&mut self, event: Event, now: Now) -> Vec<Action> {
        self.pass_time(now);
        match event {
            Event::Request { reply, request } => self.request(reply, request.op, now),
            Event::Unreadable { reply, error } => {
                let place = self.settings.host.clone();
                self.refuse(reply, Refused::new(RefusedKind::Version, place, error));
            }
            Event::Start(start) => self.start(&start, now),
            Event::Lease { run, lease } => self.renew(&run, lease, now),
            Event::Stop { run, stop } => {
                if self.hear(&run, stop.epoch, now) {
                    self.stop(stop.how);
                }
            }
            Event::Sent {
                run,
                host,
                direction,
                message,
            } => self.peer_sent(&run, &host, direction, message.sent, now),
            Event::Opened { run, result } => self.opened(&run, result, now),
            Event::Armed { run, result } => self.armed(&run, result, now),
            Event::TooLate { run, why } => {
                if self.is_current(&run) {
                    self.late(&why, now);
                }
            }
            Event::Snapshot { run, snap } => self.snapshot(run, snap),
            Event::SenderEnded { run, sent } => self.sender_ended(&run, sent, now),
            Event::Ended { run, share } => self.ended(&run, *share, now),
            Event::NotStored { run, why } => {
                let text = format!("the share is kept in memory: {why}");
                self.note(Some(run), AgentEventKind::Disk, text, now);
            }
            Event::Acknowledged { run } => {
                if let Some(share) = self.shares.remove(&run) {
                    self.delivered = Some(share.what);
                    self.actions.push(Action::RemoveShare { run });
                }
            }
            Event::Asked => {
                self.alive_next_ns = now.mono_ns;
                self.pass_time(now);
            }
            Event::Tick => {}
        }
        std::mem::take(&mut self.actions)
    }

    fn is_current(&self, run: &str) -> bool {
        self.part.as_ref().is_some_and(|part| part.run == run)
    }

    /// Part of this run.
    fn part_of(&mut self, run: &str) -> Option<&mut Part> {
        self.part.as_mut().filter(|part| part.run == run)
    }

    /// Notes a message about a run. Returns false for a message of another run or of a lower epoch, which has no effect.
    fn hear(&mut self, run: &str, epoch: u64, now: Now) -> bool {
        let Some(part) = self.part_of(run).filter(|part| epoch >= part.epoch) else {
            return false;
        };
        part.epoch = epoch;
        part.heard_ns = now.mono_ns;
        self.epoch = self.epoch.max(epoch);
        true
    }

    fn reply(&mut self, to: ReplyId, answer: Answer) {
        let reply = answer.into();
        self.actions.push(Action::Reply { to, reply });
    }

    fn refuse(&mut self, to: ReplyId, refused: Refused) {
        self.reply(to, Answer::Refused(refused));
    }

    fn busy(&mut self, to: ReplyId, what: String) {
        let place = self.settings.host.clone();
        self.refuse(to, Refused::new(RefusedKind::Busy, place, what));
    }

    fn publish(&mut self, subject: Subject, message: Published) {
        self.actions.push(Action::Publish { subject, message });
    }

    fn note(&mut self, run: Option<String>, kind: AgentEventKind, text: String, now: Now) {
        let subject = Subject::Event {
            host: self.settings.host.clone(),
            run: run.clone(),
        };
        let event = AgentEvent {
            v: V1,
            at_wall_ns: now.wall_ns,
            id: self.settings.id.clone(),
            run,
            kind,
            text,
        };
        self.publish(subject, Published::Event(event));
    }

    /// Ends the current part without a share. Waiting requests are refused with this reason.
    fn drop_part(&mut self, answer: Option<Refused>, why: &str) {
        let Some(part) = self.part.take() else { return };
        for reply in part.waiting {
            self.busy(reply, why.to_owned());
        }
        self.actions.push(Action::Release {
            run: part.run.clone(),
        });
        self.remember(part.run, answer);
    }

    fn remember(&mut self, run: String, answer: Option<Refused>) {
        self.over.retain(|(known, _)| *known != run);
        self.over.push_back((run, answer));
        if self.over.len() > REMEMBERED {
            self.over.pop_front();
        }
    }
}

/// Requests of the controller.
impl Agent {
    fn request(&mut self, reply: ReplyId, op: Op, now: Now) {
        if let Some((run, epoch)) = op.run() {
            if epoch < self.epoch {
                let known = self.epoch;
                let what = format!(
                    "a later controller has led this fleet (epoch {known}, this one has {epoch})"
                );
                return self.busy(reply, what);
            }
            self.epoch = epoch;
            let run = run.to_owned();
            self.hear(&run, epoch, now);
        }
        match op {
            Op::Hello => {
                let hello = Hello {
                    host: self.settings.host.clone(),
                    id: self.settings.id.clone(),
                    version: self.settings.version.clone(),
                    state: self.occupation(),
                };
                self.reply(reply, Answer::Hello(hello));
            }
            Op::Drain(drain) => {
                self.draining = drain.on;
                self.reply(reply, Answer::Done);
            }
            Op::Open(open) => self.open(reply, open, now),
            Op::Resolve(of) => self.resolve(reply, &of.run),
            Op::Disarm(of) => self.disarm(reply, of.run),
            Op::Stop(stop) => {
                if self.is_current(&stop.run) {
                    self.stop(stop.how);
                }
                self.reply(reply, Answer::Done);
            }
            Op::Resend(of) => self.resend(reply, &of.run, now),
            Op::Lost(lost) => {
                if self.is_current(&lost.run) {
                    self.peer_lost(&lost.host);
                }
                self.reply(reply, Answer::Done);
            }
        }
    }

    fn open(&mut self, reply: ReplyId, open: Box<Open>, now: Now) {
        if let Some(part) = &mut self.part {
            if part.run != open.run {
                let what = format!("the host carries out run {}", part.run);
                return self.busy(reply, what);
            }
            match part.opened.clone() {
                Some(opened) => self.reply(reply, Answer::Opened(opened)),
                None => part.waiting.push(reply),
            }
            return;
        }
        if let Some((run, answer)) = self.over.iter().find(|(run, _)| *run == open.run) {
            let what = format!("run {run} is over on this host");
            return match answer.clone() {
                Some(refused) => self.refuse(reply, refused),
                None => self.busy(reply, what),
            };
        }
        if self.draining {
            return self.busy(reply, "the host accepts no runs (drain)".to_owned());
        }
        let problems = self.missing_powers(&open);
        if !problems.is_empty() {
            let refused = Refused {
                kind: RefusedKind::Power,
                problems,
            };
            self.remember(open.run, Some(refused.clone()));
            return self.refuse(reply, refused);
        }
        self.part = Some(Part {
            run: open.run.clone(),
            epoch: open.epoch,
            stage: Stage::Opening,
            directions: open.directions.clone(),
            lease_ns: open.lease_ms.saturating_mul(MS),
            heard_ns: now.mono_ns,
            waiting: vec![reply],
            opened: None,
            armed: None,
            lease: None,
            sent: BTreeMap::new(),
            ended_peers: BTreeSet::new(),
            lost: Vec::new(),
            has_run_out: false,
        });
        self.actions.push(Action::Open(open));
    }

    /// Powers that the plan uses and the agent does not grant. Files that the controller sends need none.
    fn missing_powers(&self, open: &Open) -> Vec<crate::message::Problem> {
        let uses = open.plan.powers().into_iter();
        let is_sent = |used: &PowerUse| {
            used.power == Power::Reads && open.files.iter().any(|file| file.name == used.value)
        };
        let missing =
            uses.filter(|used| !self.settings.powers.contains(&used.power) && !is_sent(used));
        let host = &self.settings.host;
        let problem = |used: PowerUse| {
            let power = used.power.name();
            let what = format!(
                "{:?} needs the power {power}, which {host} does not grant",
                used.value
            );
            crate::message::Problem::new(format!("{host}: {}", used.place), what)
        };
        missing.map(problem).collect()
    }

    fn resolve(&mut self, reply: ReplyId, run: &str) {
        if let Some((_, Some(refused))) = self.over.iter().find(|(known, _)| known == run) {
            let refused = refused.clone();
            return self.refuse(reply, refused);
        }
        let Some(part) = self.part_of(run) else {
            return self.busy(reply, format!("run {run} is not open on this host"));
        };
        match (part.stage, part.armed.clone()) {
            (Stage::Opening, _) => {
                let what = format!("run {run} is still opening its ports");
                self.busy(reply, what);
            }
            (Stage::Opened, _) => {
                part.stage = Stage::Resolving;
                part.waiting.push(reply);
                let run = part.run.clone();
                self.actions.push(Action::Resolve { run });
            }
            (_, Some(armed)) => self.reply(reply, Answer::Armed(armed)),
            (_, None) => part.waiting.push(reply),
        }
    }

    fn disarm(&mut self, reply: ReplyId, run: String) {
        match self.part_of(&run).map(|part| part.stage) {
            Some(stage) if stage >= Stage::Running => self.stop(StopHow::Now),
            Some(_) => self.drop_part(None, "the run was disarmed"),
            // A delayed `open` of this run must not open its ports.
            None => self.remember_new(run),
        }
        self.reply(reply, Answer::Done);
    }

    fn remember_new(&mut self, run: String) {
        if !self.over.iter().any(|(known, _)| *known == run) {
            self.remember(run, None);
        }
    }

    fn resend(&mut self, reply: ReplyId, run: &str, now: Now) {
        if let Some(what) = self.delivered.take_if(|share| share.run == run) {
            let kept = Repeated {
                what,
                next_ns: now.mono_ns,
                times: 0,
            };
            self.shares.insert(run.to_owned(), kept);
        }
        if let Some(share) = self.shares.get_mut(run) {
            share.next_ns = now.mono_ns;
            share.times = 0;
            self.reply(reply, Answer::Done);
            self.repeat_shares(now);
        } else if self.is_current(run) {
            self.busy(reply, format!("run {run} has not ended"));
        } else {
            let what = format!("no share of run {run} is kept on this host");
            let place = self.settings.host.clone();
            self.refuse(reply, Refused::new(RefusedKind::Machine, place, what));
        }
    }
}

/// Results of the engine.
impl Agent {
    fn opened(&mut self, run: &str, result: Result<Opened, Refused>, now: Now) {
        let is_opening = |part: &&mut Part| part.stage == Stage::Opening;
        let clock = self.clock.clone();
        let Some(part) = self.part_of(run).filter(is_opening) else {
            return;
        };
        // The engine took this time, not the controller.
        part.heard_ns = now.mono_ns;
        let waiting = std::mem::take(&mut part.waiting);
        match result {
            Ok(mut opened) => {
                opened.clock = clock;
                part.stage = Stage::Opened;
                part.opened = Some(opened.clone());
                for reply in waiting {
                    self.reply(reply, Answer::Opened(opened.clone()));
                }
            }
            Err(refused) => self.engine_refused(waiting, refused),
        }
    }

    fn armed(&mut self, run: &str, result: Result<Armed, Refused>, now: Now) {
        let is_resolving = |part: &&mut Part| part.stage == Stage::Resolving;
        let Some(part) = self.part_of(run).filter(is_resolving) else {
            return;
        };
        part.heard_ns = now.mono_ns;
        let waiting = std::mem::take(&mut part.waiting);
        match result {
            Ok(armed) => {
                part.stage = Stage::Armed;
                part.armed = Some(armed.clone());
                for reply in waiting {
                    self.reply(reply, Answer::Armed(armed.clone()));
                }
            }
            Err(refused) => self.engine_refused(waiting, refused),
        }
    }

    fn engine_refused(&mut self, waiting: Vec<ReplyId>, refused: Refused) {
        for reply in waiting {
            self.refuse(reply, refused.clone());
        }
        self.drop_part(Some(refused), "");
    }

    fn snapshot(&mut self, run: String, snap: Box<Snap>) {
        if self.is_current(&run) {
            let host = self.settings.host.clone();
            self.publish(Subject::Snap { run, host }, Published::Snap(snap));
        }
    }

    fn sender_ended(&mut self, run: &str, sent: Sent, now: Now) {
        if let Some(part) = self.part_of(run) {
            let repeated = Repeated {
                what: sent,
                next_ns: now.mono_ns,
                times: 0,
            };
            part.sent.insert(repeated.what.direction, repeated);
            self.repeat_sent(now);
        }
    }

    fn ended(&mut self, run: &str, mut share: Share, now: Now) {
        let Some(part) = self.part.take_if(|part| part.run == run) else {
            return;
        };
        if part.has_run_out && !matches!(share.end, ShareEnd::Fault(_)) {
            share.end = ShareEnd::Lease;
        }
        let message = Box::new(ShareMessage {
            v: V1,
            run: run.to_owned(),
            host: self.settings.host.clone(),
            id: self.settings.id.clone(),
            revision: 1,
            share,
        });
        self.actions.push(Action::Release {
            run: run.to_owned(),
        });
        self.actions.push(Action::StoreShare(message.clone()));
        let kept = Repeated {
            what: message,
            next_ns: now.mono_ns,
            times: 0,
        };
        self.shares.insert(run.to_owned(), kept);
        self.remember(run.to_owned(), None);
        self.repeat_shares(now);
    }
}

/// Start, lease and stop of a run, and the ends of senders on other hosts.
impl Agent {
    fn start(&mut self, start: &Start, now: Now) {
        if !self.hear(&start.run, start.epoch, now) {
            return;
        }
        let host = self.settings.host.clone();
        let Some(part) = &mut self.part else { return };
        let (Stage::Armed, Some(armed)) = (part.stage, &part.armed) else {
            return;
        };
        let Some(wall_ns) = start.at(&host) else {
            return self.late("the start has no clock offset for this host", now);
        };
        let earliest = now.wall_ns.saturating_add(armed.lead_ns);
        if wall_ns < earliest {
            let late_ms = (earliest - wall_ns) as f64 / 1e6;
            return self.late(&format!("the start came {late_ms:.1} ms too late"), now);
        }
        part.stage = Stage::Running;
        part.lease = Some(Lease::new(part.lease_ns, start.epoch, now.mono_ns));
        let run = part.run.clone();
        let lost = std::mem::take(&mut part.lost);
        self.actions.push(Action::StartAt { run, wall_ns });
        for host in lost {
            self.peer_lost(&host);
        }
    }

    fn late(&mut self, why: &str, now: Now) {
        let run = self.part.as_ref().map(|part| part.run.clone());
        self.note(run, AgentEventKind::Late, why.to_owned(), now);
        self.drop_part(None, why);
    }

    fn renew(&mut self, run: &str, message: LeaseMessage, now: Now) {
        if !self.hear(run, message.epoch, now) {
            return;
        }
        if let Some(lease) = self.part.as_mut().and_then(|part| part.lease.as_mut()) {
            lease.renew(message.epoch, message.seq, now.mono_ns);
        }
    }

    fn stop(&mut self, how: StopHow) {
        let Some(part) = &mut self.part else { return };
        let run = part.run.clone();
        match (part.stage, how) {
            (Stage::Running, StopHow::Drain) => {
                part.stage = Stage::Draining;
                self.actions.push(Action::Drain { run });
            }
            (Stage::Draining, StopHow::Drain) => {}
            (Stage::Running | Stage::Draining, StopHow::Now) => {
                part.stage = Stage::Draining;
                self.actions.push(Action::StopNow { run });
            }
            _ => self.drop_part(None, "the run was stopped"),
        }
    }

    fn peer_sent(&mut self, run: &str, from: &str, direction: u32, sent: Sent, now: Now) {
        let host = self.settings.host.clone();
        let Some(part) = self.part_of(run).filter(|part| part.stage >= Stage::Armed) else {
            return;
        };
        let of = |d: &&Direction| d.first_flow == direction && d.to == host;
        let Some(known) = part.directions.iter().find(of) else {
            return;
        };
        if known.from != from || sent.direction != direction {
            let text = format!(
                "{from} reported the end of direction {direction}, whose sender is {}",
                known.from
            );
            let run = Some(run.to_owned());
            return self.note(run, AgentEventKind::Refused, text, now);
        }
        if part.ended_peers.insert(direction) {
            let run = run.to_owned();
            self.actions.push(Action::PeerSent { run, sent });
        }
    }

    fn peer_lost(&mut self, lost: &str) {
        let Some(part) = &mut self.part else { return };
        if part.stage < Stage::Running {
            return part.lost.push(lost.to_owned());
        }
        let own = |d: &&Direction| d.from == lost && d.to == self.settings.host;
        for direction in part.directions.iter().filter(own) {
            if part.ended_peers.insert(direction.first_flow) {
                self.actions.push(Action::PeerLost {
                    run: part.run.clone(),
                    direction: direction.first_flow,
                });
            }
        }
    }
}

/// Timers.
impl Agent {
    fn pass_time(&mut self, now: Now) {
        if now.mono_ns >= self.alive_next_ns {
            self.alive_next_ns = now.mono_ns + ALIVE_NS;
            let alive = Alive {
                v: V1,
                id: self.settings.id.clone(),
                seq: self.alive_seq,
                state: self.occupation(),
                clock: self.clock.clone(),
                load: self.load,
            };
            self.alive_seq += 1;
            let host = self.settings.host.clone();
            self.publish(Subject::Alive { host }, Published::Alive(alive));
        }
        let is_due = |part: &Part| part.deadline_ns().is_some_and(|due| now.mono_ns >= due);
        if let Some(part) = self.part.as_mut().filter(|part| is_due(part)) {
            let run = Some(part.run.clone());
            part.has_run_out = part.stage == Stage::Running;
            match part.stage {
                Stage::Running => {
                    let text = "no lease of the controller; the senders stop".to_owned();
                    self.note(run, AgentEventKind::Lease, text, now);
                    self.stop(StopHow::Drain);
                }
                _ => {
                    let text = "no message of the controller for 10 s; the ports are free";
                    self.note(run, AgentEventKind::Freed, text.to_owned(), now);
                    self.drop_part(None, text);
                }
            }
        }
        self.repeat_sent(now);
        self.repeat_shares(now);
    }

    fn repeat_sent(&mut self, now: Now) {
        let Some(part) = &mut self.part else { return };
        let (again_ns, times) = SENT_AGAIN;
        for repeated in part.sent.values_mut() {
            let number = repeated.what.direction;
            let way = part.directions.iter().find(|d| d.first_flow == number);
            if let Some(way) = way
                && repeated.times < times
                && now.mono_ns >= repeated.next_ns
            {
                repeated.times += 1;
                repeated.next_ns = now.mono_ns + again_ns;
                self.actions.push(Action::Publish {
                    subject: Subject::Sent {
                        run: part.run.clone(),
                        host: self.settings.host.clone(),
                        to: way.to.clone(),
                        direction: number,
                    },
                    message: Published::Sent(SentMessage {
                        v: V1,
                        sent: repeated.what.clone(),
                    }),
                });
            }
        }
    }

    fn repeat_shares(&mut self, now: Now) {
        for (run, share) in &mut self.shares {
            if now.mono_ns >= share.next_ns {
                let (first, most) = SHARE_AGAIN_NS;
                let wait = first.saturating_mul(1 << share.times.min(10)).min(most);
                share.times += 1;
                share.next_ns = now.mono_ns + wait;
                self.actions.push(Action::Publish {
                    subject: Subject::Share {
                        run: run.clone(),
                        host: self.settings.host.clone(),
                    },
                    message: Published::Share(share.what.clone()),
                });
            }
        }
    }
}

impl Part {
    /// Time at which the part ends without a further message: by silence before the start, by the lease after it.
    /// `None` while the engine works, and once the senders stop.
    fn deadline_ns(&self) -> Option<u64> {
        match self.stage {
            Stage::Opened | Stage::Armed => Some(self.heard_ns.saturating_add(SILENCE_NS)),
            Stage::Running => self.lease.map(|lease| lease.end_ns()),
            Stage::Opening | Stage::Resolving | Stage::Draining => None,
        }
    }
}
