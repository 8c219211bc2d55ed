//! Rules of one agent.

use wb_fleet_core::{
    Now, Share, ShareEnd,
    agent::{Action, Agent, AgentSettings, Event, Published, SILENCE_NS, Stage},
    message::{
        AgentEventKind, Answer, Armed, Direction, DrainHost, LeaseMessage, LostHost, Occupation,
        Op, Open, Opened, Refused, RefusedKind, Request, RunEpoch, SentMessage, Start, Stop,
        StopHow, V1,
    },
};
use wb_model::{Plan, peer::Sent, powers::Power};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Agent h1 with the time of its last event.
struct Host {
    agent: Agent,
    now_ns: u64,
    replies: u64,
}

fn settings() -> AgentSettings {
    AgentSettings {
        host: "h1".to_owned(),
        id: "h1-1".to_owned(),
        version: "0.1.0".to_owned(),
        powers: vec![Power::Reads],
    }
}

fn run_epoch(run: &str, epoch: u64) -> RunEpoch {
    RunEpoch {
        run: run.to_owned(),
        epoch,
    }
}

fn open(run: &str, epoch: u64) -> Op {
    let direction = |from: &str, to: &str, first_flow| Direction {
        from: from.to_owned(),
        to: to.to_owned(),
        first_flow,
        flows: 1,
        ..Direction::default()
    };
    Op::Open(Box::new(Open {
        run: run.to_owned(),
        epoch,
        controller: "c1".to_owned(),
        plan: Plan::default(),
        directions: vec![direction("h2", "h1", 10), direction("h1", "h2", 11)],
        files: Vec::new(),
        lease_ms: 3_000,
        key: String::new(),
        senders: Vec::new(),
    }))
}

impl Host {
    fn new() -> Self {
        Self::with(Vec::new())
    }

    fn with(shares: Vec<wb_fleet_core::message::ShareMessage>) -> Self {
        Self {
            agent: Agent::new(settings(), shares, Now::default()),
            now_ns: 0,
            replies: 0,
        }
    }

    fn now(&self) -> Now {
        Now {
            mono_ns: self.now_ns,
            wall_ns: self.now_ns + 100 * SECOND,
        }
    }

    fn on(&mut self, event: Event) -> Vec<Action> {
        let now = self.now();
        self.agent.on(event, now)
    }

    fn ask(&mut self, op: Op) -> (Option<Answer>, Vec<Action>) {
        self.replies += 1;
        let reply = self.replies;
        let actions = self.on(Event::Request {
            reply,
            request: Request::new(op),
        });
        (answer_to(&actions, reply), actions)
    }

    fn kind(&mut self, op: Op) -> RefusedKind {
        match self.ask(op).0 {
            Some(Answer::Refused(refused)) => refused.kind,
            other => panic!("not refused: {other:?}"),
        }
    }

    fn open(&mut self, run: &str, epoch: u64) {
        self.ask(open(run, epoch));
        let result = Ok(Opened::default());
        let run = run.to_owned();
        self.on(Event::Opened { run, result });
    }

    fn arm(&mut self, run: &str, epoch: u64) {
        self.open(run, epoch);
        self.ask(Op::Resolve(run_epoch(run, epoch)));
        let result = Ok(Armed {
            lead_ns: 30 * MS,
            ..Armed::default()
        });
        let run = run.to_owned();
        self.on(Event::Armed { run, result });
        assert_eq!(self.stage(), Some(Stage::Armed));
    }

    /// Starts at this time of the agent.
    fn start(&mut self, run: &str, epoch: u64, at_ns: u64) -> Vec<Action> {
        self.on(Event::Start(Start {
            v: V1,
            run: run.to_owned(),
            epoch,
            // The controller is 5 ms behind.
            at_wall_ns: at_ns + 100 * SECOND - 5 * MS,
            offsets: [("h1".to_owned(), 5_000_000)].into(),
            clocks: Vec::new(),
        }))
    }

    fn run(&mut self, run: &str, epoch: u64) {
        self.arm(run, epoch);
        let at_ns = self.now_ns + 500 * MS;
        let actions = self.start(run, epoch, at_ns);
        let wall_ns = at_ns + 100 * SECOND;
        let starts = |action: &Action| matches!(action, Action::StartAt { wall_ns: at, .. } if *at == wall_ns);
        assert!(actions.iter().any(starts), "{actions:?}");
    }

    fn lease(&mut self, epoch: u64, seq: u64) {
        let lease = LeaseMessage {
            v: V1,
            epoch,
            seq,
            clocks: Vec::new(),
        };
        let run = "r1".to_owned();
        self.on(Event::Lease { run, lease });
    }

    fn tick_at(&mut self, at_ns: u64) -> Vec<Action> {
        self.now_ns = at_ns;
        self.on(Event::Tick)
    }

    fn stage(&self) -> Option<Stage> {
        self.agent.stage().map(|(_, stage)| stage)
    }

    fn end(&mut self, run: &str) -> Vec<Action> {
        let share = Box::new(Share::default());
        let run = run.to_owned();
        self.on(Event::Ended { run, share })
    }
}

fn answer_to(actions: &[Action], reply: u64) -> Option<Answer> {
    actions.iter().find_map(|action| match action {
        Action::Reply { to, reply: answer } if *to == reply => Some(answer.answer.clone()),
        _ => None,
    })
}

fn event_kinds(actions: &[Action]) -> Vec<AgentEventKind> {
    let kinds = actions.iter().filter_map(|action| match action {
        Action::Publish {
            message: Published::Event(event),
            ..
        } => Some(event.kind),
        _ => None,
    });
    kinds.collect()
}

fn releases(actions: &[Action]) -> bool {
    actions
        .iter()
        .any(|action| matches!(action, Action::Release { .. }))
}

fn shares(actions: &[Action]) -> usize {
    let is_share = |action: &&Action| {
        matches!(
            action,
            Action::Publish {
                message: Published::Share(_),
                ..
            }
        )
    };
    actions.iter().filter(is_share).count()
}

#[test]
fn a_repeated_request_gets_the_same_answer_and_opens_once() {
    let mut host = Host::new();
    let (first, actions) = host.ask(open("r1", 1));
    assert_eq!(first, None, "the engine still opens");
    assert!(matches!(actions.last(), Some(Action::Open(_))));
    let (second, actions) = host.ask(open("r1", 1));
    assert_eq!((second, actions.len()), (None, 0));
    let opened = Opened {
        warnings: vec!["slow".to_owned()],
        ..Opened::default()
    };
    let actions = host.on(Event::Opened {
        run: "r1".to_owned(),
        result: Ok(opened.clone()),
    });
    for reply in [1, 2] {
        assert_eq!(
            answer_to(&actions, reply),
            Some(Answer::Opened(opened.clone()))
        );
    }
    assert_eq!(host.ask(open("r1", 1)).0, Some(Answer::Opened(opened)));
}

#[test]
fn a_refused_open_stays_refused_and_frees_the_ports() {
    let mut host = Host::new();
    host.ask(open("r1", 1));
    let refused = Refused::new(RefusedKind::Machine, "h1: port a", "no such interface");
    let actions = host.on(Event::Opened {
        run: "r1".to_owned(),
        result: Err(refused.clone()),
    });
    assert_eq!(
        answer_to(&actions, 1),
        Some(Answer::Refused(refused.clone()))
    );
    assert!(releases(&actions));
    assert_eq!(host.agent.occupation(), Occupation::Free);
    assert_eq!(host.ask(open("r1", 1)).0, Some(Answer::Refused(refused)));
}

#[test]
fn requests_in_the_wrong_state_find_the_agent_busy() {
    let mut host = Host::new();
    assert_eq!(
        host.kind(Op::Resolve(run_epoch("r1", 1))),
        RefusedKind::Busy
    );
    host.open("r1", 1);
    assert_eq!(host.kind(open("r2", 1)), RefusedKind::Busy);
    assert_eq!(
        host.kind(Op::Resolve(run_epoch("r2", 1))),
        RefusedKind::Busy
    );
    assert_eq!(host.kind(Op::Resend(run_epoch("r1", 1))), RefusedKind::Busy);
    let (answer, actions) = host.ask(Op::Disarm(run_epoch("r1", 1)));
    assert_eq!(answer, Some(Answer::Done));
    assert!(releases(&actions));
    // A delayed request does not open the run again.
    assert_eq!(host.kind(open("r1", 1)), RefusedKind::Busy);
}

#[test]
fn a_draining_host_finishes_its_run_and_takes_no_other() {
    let mut host = Host::new();
    host.run("r1", 1);
    host.ask(Op::Drain(DrainHost { on: true }));
    assert_eq!(host.stage(), Some(Stage::Running));
    host.end("r1");
    assert_eq!(host.agent.occupation(), Occupation::Draining);
    assert_eq!(host.kind(open("r2", 1)), RefusedKind::Busy);
    host.ask(Op::Drain(DrainHost { on: false }));
    assert_eq!(host.ask(open("r2", 1)).0, None);
}

#[test]
fn ports_are_free_after_ten_seconds_of_silence() {
    let mut host = Host::new();
    host.arm("r1", 1);
    let actions = host.tick_at(SILENCE_NS - 1);
    assert!(!releases(&actions));
    host.lease(1, 1);
    let due = host.now_ns + SILENCE_NS;
    assert!(!releases(&host.tick_at(due - 1)));
    assert_eq!(host.agent.next_ns(), due);
    let actions = host.tick_at(due);
    assert!(releases(&actions));
    assert_eq!(event_kinds(&actions), [AgentEventKind::Freed]);
}

#[test]
fn a_late_start_is_refused_and_reported() {
    let mut host = Host::new();
    host.arm("r1", 1);
    host.now_ns = SECOND;
    // The host needs 30 ms.
    let actions = host.start("r1", 1, SECOND + 29 * MS);
    assert_eq!(event_kinds(&actions), [AgentEventKind::Late]);
    assert!(releases(&actions));
    assert!(
        !actions
            .iter()
            .any(|action| matches!(action, Action::StartAt { .. }))
    );

    let mut host = Host::new();
    host.run("r1", 1);
    let actions = host.on(Event::TooLate {
        run: "r1".to_owned(),
        why: "the workers were late".to_owned(),
    });
    assert_eq!(event_kinds(&actions), [AgentEventKind::Late]);
    assert!(releases(&actions));
}

#[test]
fn without_a_lease_the_senders_stop() {
    let mut host = Host::new();
    host.run("r1", 4);
    host.now_ns = 2 * SECOND;
    host.lease(4, 5);
    // A lower epoch, a replay and another run renew nothing.
    host.now_ns = 4 * SECOND;
    host.lease(3, 9);
    host.lease(4, 5);
    let lease = LeaseMessage {
        v: V1,
        epoch: 4,
        seq: 6,
        clocks: Vec::new(),
    };
    host.on(Event::Lease {
        run: "r2".to_owned(),
        lease,
    });
    assert_eq!(host.agent.next_ns().max(5 * SECOND), 5 * SECOND);
    assert_eq!(host.agent.lease().unwrap().end_ns(), 5 * SECOND);
    let actions = host.tick_at(5 * SECOND);
    assert!(
        actions
            .iter()
            .any(|action| matches!(action, Action::Drain { .. }))
    );
    assert_eq!(event_kinds(&actions), [AgentEventKind::Lease]);
    // A later lease does not start the senders again, and the share names the lease.
    host.lease(4, 7);
    let actions = host.end("r1");
    let ends = actions.iter().find_map(|action| match action {
        Action::StoreShare(share) => Some(share.share.end.clone()),
        _ => None,
    });
    assert_eq!(ends, Some(ShareEnd::Lease));
}

#[test]
fn a_controller_of_a_lower_epoch_is_not_obeyed() {
    let mut host = Host::new();
    host.run("r1", 4);
    host.lease(5, 1);
    let stop = Stop {
        v: V1,
        epoch: 4,
        how: StopHow::Now,
    };
    host.on(Event::Stop {
        run: "r1".to_owned(),
        stop,
    });
    assert_eq!(host.stage(), Some(Stage::Running));
    assert_eq!(host.kind(Op::Disarm(run_epoch("r1", 4))), RefusedKind::Busy);
    assert_eq!(host.stage(), Some(Stage::Running));
    let stop = Stop {
        v: V1,
        epoch: 5,
        how: StopHow::Drain,
    };
    host.on(Event::Stop {
        run: "r1".to_owned(),
        stop,
    });
    assert_eq!(host.stage(), Some(Stage::Draining));
}

#[test]
fn only_the_sender_of_a_direction_reports_its_end() {
    let mut host = Host::new();
    host.run("r1", 1);
    let sent = |from: &str, direction| Event::Sent {
        run: "r1".to_owned(),
        host: from.to_owned(),
        direction,
        message: SentMessage {
            v: V1,
            sent: Sent {
                direction,
                ..Sent::default()
            },
        },
    };
    let passed = |actions: &[Action]| {
        actions
            .iter()
            .any(|action| matches!(action, Action::PeerSent { .. }))
    };
    let actions = host.on(sent("h3", 10));
    assert_eq!(event_kinds(&actions), [AgentEventKind::Refused]);
    assert!(!passed(&actions));
    assert!(!passed(&host.on(sent("h2", 11))), "this host sends it");
    assert!(passed(&host.on(sent("h2", 10))));
    assert!(!passed(&host.on(sent("h2", 10))), "a repetition");
}

#[test]
fn a_lost_sender_ends_its_direction_once() {
    let mut host = Host::new();
    host.run("r1", 1);
    let lost = Op::Lost(LostHost {
        run: "r1".to_owned(),
        epoch: 1,
        host: "h2".to_owned(),
    });
    let (answer, actions) = host.ask(lost.clone());
    assert_eq!(answer, Some(Answer::Done));
    let ended = |actions: &[Action]| {
        actions
            .iter()
            .filter(|action| matches!(action, Action::PeerLost { direction: 10, .. }))
            .count()
    };
    assert_eq!(ended(&actions), 1);
    assert_eq!(ended(&host.ask(lost).1), 0);
}

#[test]
fn the_end_of_a_sender_is_repeated_a_few_times() {
    let mut host = Host::new();
    host.run("r1", 1);
    let sent = Sent {
        direction: 11,
        ..Sent::default()
    };
    let run = "r1".to_owned();
    let count = |actions: &[Action]| {
        actions
            .iter()
            .filter(|a| {
                matches!(
                    a,
                    Action::Publish {
                        message: Published::Sent(_),
                        ..
                    }
                )
            })
            .count()
    };
    let mut published = count(&host.on(Event::SenderEnded { run, sent }));
    for tenth in 0..100 {
        host.lease(1, tenth + 1);
        published += count(&host.tick_at(tenth * 100 * MS));
    }
    assert_eq!(published, 5);
}

#[test]
fn a_share_is_kept_until_the_stream_has_it() {
    let mut host = Host::new();
    host.run("r1", 1);
    let actions = host.end("r1");
    assert!(matches!(actions[0], Action::Release { .. }));
    assert!(matches!(actions[1], Action::StoreShare(_)));
    assert_eq!(shares(&actions), 1);
    assert_eq!(host.agent.occupation(), Occupation::Free);
    // It is sent again at longer and longer intervals, and on request.
    assert_eq!(shares(&host.tick_at(SECOND)), 1);
    assert_eq!(shares(&host.tick_at(2 * SECOND)), 0);
    assert_eq!(shares(&host.tick_at(3 * SECOND)), 1);
    let (answer, actions) = host.ask(Op::Resend(run_epoch("r1", 1)));
    assert_eq!((answer, shares(&actions)), (Some(Answer::Done), 1));
    let actions = host.on(Event::Acknowledged {
        run: "r1".to_owned(),
    });
    assert!(matches!(actions[0], Action::RemoveShare { .. }));
    assert_eq!(shares(&host.tick_at(9 * SECOND)), 0);
    // The controller may have missed the last one.
    let (answer, actions) = host.ask(Op::Resend(run_epoch("r1", 1)));
    assert_eq!((answer, shares(&actions)), (Some(Answer::Done), 1));
    assert_eq!(
        host.kind(Op::Resend(run_epoch("r0", 1))),
        RefusedKind::Machine
    );
}

#[test]
fn shares_on_disk_are_delivered_after_a_restart() {
    let mut host = Host::new();
    host.run("r1", 1);
    let stored = host.end("r1").into_iter().find_map(|action| match action {
        Action::StoreShare(share) => Some(*share),
        _ => None,
    });
    let mut host = Host::with(stored.into_iter().collect());
    assert_eq!(shares(&host.tick_at(0)), 1);
}

#[test]
fn powers_that_are_not_granted_are_all_refused_at_once() {
    let mut host = Host::new();
    let Op::Open(mut part) = open("r1", 1) else {
        panic!("an open")
    };
    part.plan = serde_json::from_str(
        r#"{"http": [{"url": "http://198.18.0.1/", "data": "users.csv", "script": {"file": "a.lua"}}],
            "probe": [{"kind": "command", "command": "true"}]}"#,
    )
    .unwrap();
    let Some(Answer::Refused(refused)) = host.ask(Op::Open(part)).0 else {
        panic!("refused");
    };
    assert_eq!(refused.kind, RefusedKind::Power);
    let what: Vec<&str> = refused
        .problems
        .iter()
        .map(|problem| &*problem.what)
        .collect();
    assert!(what.iter().any(|what| what.contains("scripts")), "{what:?}");
    assert!(
        what.iter().any(|what| what.contains("commands")),
        "{what:?}"
    );
    assert!(!what.iter().any(|what| what.contains("reads")), "{what:?}");
    assert!(refused.problems[0].place.starts_with("h1: "));
    assert_eq!(host.stage(), None);
}

#[test]
fn an_unreadable_request_is_refused_with_its_reason() {
    let mut host = Host::new();
    let error = "unknown field `colour`".to_owned();
    let actions = host.on(Event::Unreadable { reply: 7, error });
    let Some(Answer::Refused(refused)) = answer_to(&actions, 7) else {
        panic!("refused");
    };
    assert_eq!(refused.kind, RefusedKind::Version);
    assert!(refused.problems[0].what.contains("colour"));
}
