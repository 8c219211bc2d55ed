//! Evaluates a trial.

use std::collections::BTreeMap;

use wb_model::{
    Charge, Report,
    bench::{LbDeviceTrial, LbMetric, LbOurs, LbOutcome, LbPlan},
    counted, judge_lateness,
    load::{LoadJobReport, LoadPhaseReport},
    report::PortReport,
};

use super::{LbSearch, plans::LbTrialShape};
use crate::dropped_by_tester;

/// A load counts as offered if at least this share of it was sent: a tester that stalled for a moment has sent the rest
/// slightly later.
const OFFERED: f64 = 0.98;
/// Share of frames that the tester may drop in a valid trial.
const DROPPED: f64 = 0.005;
/// Default share of failed connections that `cps` tolerates.
const CPS_FAILED: f64 = 1e-5;

/// Evaluation of a trial.
pub(super) struct LbJudged {
    pub(super) outcome: LbOutcome,
    pub(super) reason: String,
    pub(super) offered: f64,
    pub(super) through: f64,
    pub(super) seconds: f64,
}

fn job_report<'a>(report: &'a Report, name: &str) -> Option<&'a LoadJobReport> {
    report.load.as_ref()?.jobs.iter().find(|j| j.name == name)
}

fn steady_phase(job: &LoadJobReport) -> Option<&LoadPhaseReport> {
    job.phases.iter().find(|p| p.phase == "steady")
}

/// Frames of one direction: lost by the device, dropped by the tester.
fn missing_frames(
    sender: &LoadJobReport,
    receiver: &LoadJobReport,
    port: Option<&PortReport>,
) -> (u64, u64) {
    let sent = sender.frames.offered_frames.unwrap_or(0);
    let received = receiver.frames.received_frames.unwrap_or(0);
    // Frames corrupted by the device count as lost.
    let broken = |name: &str| receiver.counters.get(name).copied().unwrap_or(0);
    let broken = broken("rx_bad_checksum") + broken("rx_malformed");
    let missing = sent.saturating_sub(received.saturating_sub(broken));
    let rose = |key: &str| {
        let of = |side: &BTreeMap<String, u64>| side.get(key).copied();
        let port = port?;
        Some(of(&port.after)?.saturating_sub(of(&port.before)?))
    };
    // Frames that reached the interface were not lost by the device, even if they were dropped later.
    let foreign = receiver.frames.foreign_frames.unwrap_or(0);
    let came = rose("rx_packets").unwrap_or(0).saturating_sub(foreign);
    let came = came.min(sent);
    let dropped = receiver.frames.rx_dropped_frames.unwrap_or(0);
    let dropped = dropped.max(came.saturating_sub(received)).min(missing);
    (missing - dropped, dropped)
}

/// Counts of the tester.
pub(super) fn tester_counts(report: &Report) -> LbOurs {
    let (Some(client), Some(server)) = (job_report(report, "client"), job_report(report, "server"))
    else {
        return LbOurs::default();
    };
    let port = |name: &str| report.ports.iter().find(|p| p.name == name);
    let (lost, dropped) = missing_frames(client, server, port("server"));
    let answers = server.frames.offered_frames.unwrap_or(0);
    let (lost_answers, dropped_answers) = missing_frames(server, client, port("client"));
    let c = &client.totals;
    let counter = |name: &str| client.counters.get(name).copied().unwrap_or(0);
    let busy = |job: &LoadJobReport| job.workers.iter().map(|w| w.busy).fold(0.0, f64::max);
    LbOurs {
        sent_frames: client.frames.offered_frames.unwrap_or(0) + answers,
        received_frames: server.frames.received_frames.unwrap_or(0)
            + client.frames.received_frames.unwrap_or(0),
        lost_frames: lost,
        lost_answer_frames: lost_answers,
        tester_dropped_frames: dropped + dropped_answers,
        attempted: c.attempted_connections,
        established: c.established_connections,
        completed: c.completed_connections,
        failed: c.failed_connections,
        open: c.open_connections,
        held: steady_phase(client).map_or(0, |p| p.totals.open_connections),
        retransmitted: ["syn_again", "data_again", "fin_again", "fast_again"]
            .into_iter()
            .map(counter)
            .sum(),
        unsent: client.unsent_connections + client.unsent_requests,
        requests: c.requests,
        responses: c.responses,
        p99_ns: client.request_ns.p99.filter(|_| c.responses > 0),
        busy: busy(client).max(busy(server)),
    }
}

/// Evaluates if the device passed.
pub(super) fn judge_trial(
    plan: &LbPlan,
    item: &LbSearch,
    shape: &LbTrialShape,
    report: &Report,
    ours: &LbOurs,
    seen: &LbDeviceTrial,
) -> LbJudged {
    let full = job_report(report, "client").and_then(steady_phase);
    let seconds = full.map_or(0.0, |p| p.to_ns.saturating_sub(p.from_ns) as f64 / 1e9);
    let mut judged = match item.test.metric {
        LbMetric::Cps => judge_connection_rate(item, shape, ours, seconds),
        LbMetric::Cc => judge_concurrent(item, shape, ours),
        _ => judge_frames(item, shape, ours, full.map_or(0.0, |p| p.tx_pps)),
    };
    let risen = seen.rose.iter().find(|(name, n)| {
        let named = |told: &String| *name == told || name.rsplit('.').next() == Some(told);
        **n > 0 && plan.device.must_not_rise.iter().any(named)
    });
    if let Some((name, n)) = risen {
        judged.outcome = LbOutcome::Broke;
        judged.reason = format!("device counter {name} increased by {n}");
    }
    judged.seconds = seconds;
    if let Some(reason) =
        lateness_reason(item, shape, report, ours, &judged, risen.map(|(_, n)| *n))
    {
        (judged.outcome, judged.reason) = (LbOutcome::Late, reason);
    }
    if judged.outcome != LbOutcome::Held
        && let Some(reason) = link_down(report)
    {
        (judged.outcome, judged.reason) = (LbOutcome::Cut, reason);
    }
    judged
}

/// Returns the reason if a port of the tester had no link for a while: then the load did not cause the loss.
fn link_down(report: &Report) -> Option<String> {
    let mut jobs = report.load.iter().flat_map(|load| &load.jobs);
    let job = jobs.find(|job| job.link_downs > 0)?;
    let ports = report.ports.iter();
    let port = ports
        .filter(|p| p.name == job.port)
        .map(|p| &p.locator)
        .next()
        .unwrap_or(&job.port);
    Some(format!("the link of {port} went down"))
}

/// Returns the reason if the tester's lateness alone may have caused the failure of a load, or that it was not offered.
fn lateness_reason(
    item: &LbSearch,
    shape: &LbTrialShape,
    report: &Report,
    ours: &LbOurs,
    judged: &LbJudged,
    risen: Option<u64>,
) -> Option<String> {
    let lateness = &report.lateness.all;
    let lost = ours.lost_frames + ours.lost_answer_frames;
    let charge = match (judged.outcome, item.test.metric) {
        (LbOutcome::Broke, LbMetric::Cps) => Charge::Connections {
            bad: ours.failed + ours.open,
            borne: tolerated_failures(item) * ours.attempted as f64,
        },
        (LbOutcome::Broke, LbMetric::Cc) => Charge::Connections {
            bad: ours.failed + ours.open + ours.requests.saturating_sub(ours.responses),
            borne: tolerated_failures(item) * ours.attempted as f64,
        },
        (LbOutcome::Broke, _) => Charge::Frames {
            bad: (lost + ours.tester_dropped_frames).max(risen.unwrap_or(0)),
            borne: tolerated_failures(item) * ours.sent_frames as f64,
        },
        // Rings that overflow without a stall are too small or their reader too slow: this is a permanent limit that
        // repetition does not change.
        (LbOutcome::Unread, _) if lateness.stalls > 0 && ours.sent_frames > 0 => Charge::Frames {
            bad: ours.tester_dropped_frames,
            borne: 0.0,
        },
        (LbOutcome::Unoffered, LbMetric::Cc) => Charge::Load {
            intended: shape.load as u64,
            offered: ours.held,
        },
        (LbOutcome::Unoffered, _) => Charge::Load {
            intended: (shape.load * judged.seconds) as u64,
            offered: (judged.offered * judged.seconds) as u64,
        },
        _ => return None,
    };
    judge_lateness(lateness, &charge)
}

/// Tolerated share of failures.
fn tolerated_failures(item: &LbSearch) -> f64 {
    let default = match item.test.metric {
        LbMetric::Cps => CPS_FAILED,
        _ => 0.0,
    };
    item.test.loss.map_or(default, |loss| loss.0)
}

/// Outcome from three shares: lost by the device, dropped by the tester, offered of the intended load.
fn outcome_of_shares(lost: f64, borne: f64, dropped: f64, offered: f64) -> LbOutcome {
    if lost > borne {
        LbOutcome::Broke
    } else if dropped > DROPPED {
        LbOutcome::Unread
    } else if offered < OFFERED {
        LbOutcome::Unoffered
    } else {
        LbOutcome::Held
    }
}

fn share_of(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn judge_frames(item: &LbSearch, shape: &LbTrialShape, ours: &LbOurs, pps: f64) -> LbJudged {
    let lost = ours.lost_frames + ours.lost_answer_frames;
    let (lost_share, dropped) = (
        share_of(lost, ours.sent_frames),
        share_of(ours.tester_dropped_frames, ours.sent_frames),
    );
    let borne = tolerated_failures(item);
    // A trial without sent frames does not pass.
    let outcome = match ours.sent_frames {
        0 => LbOutcome::Unread,
        // A load that was not offered cannot be judged.
        _ if pps < OFFERED * shape.load => LbOutcome::Unoffered,
        _ => outcome_of_shares(lost_share, borne, dropped, pps / shape.load),
    };
    let reason = match outcome {
        LbOutcome::Held => format!("{lost} of {} frames lost", ours.sent_frames),
        LbOutcome::Broke => format!(
            "{lost} of {} frames lost ({} towards the servers)",
            ours.sent_frames, ours.lost_frames
        ),
        LbOutcome::Unread => dropped_by_tester(ours.tester_dropped_frames),
        LbOutcome::Unoffered | LbOutcome::Late | LbOutcome::Cut => {
            format!("sent {pps:.0} of {:.0} frames per second", shape.load)
        }
    };
    // An extra frame at the edge of the time does not make the load higher.
    let offered = pps.min(shape.load);
    LbJudged {
        outcome,
        reason,
        offered,
        through: offered * (1.0 - lost_share - dropped).max(0.0),
        seconds: 0.0,
    }
}

fn judge_connection_rate(
    item: &LbSearch,
    shape: &LbTrialShape,
    ours: &LbOurs,
    seconds: f64,
) -> LbJudged {
    let rate = ours.attempted as f64 / seconds.max(1e-9);
    let bad = ours.failed + ours.open;
    let borne = tolerated_failures(item);
    let lost = ours.lost_frames + ours.lost_answer_frames;
    let failed = share_of(bad, ours.attempted);
    let mut outcome = match rate < OFFERED * shape.load {
        true => LbOutcome::Unoffered,
        false => outcome_of_shares(failed, borne, 0.0, rate / shape.load),
    };
    // If the device lost no frames, connections fail because the tester was too slow.
    if ours.attempted == 0 || (outcome == LbOutcome::Broke && ours.tester_dropped_frames > lost) {
        outcome = LbOutcome::Unread;
    }
    let reason = match outcome {
        LbOutcome::Held => format!("{bad} of {} connections failed", ours.attempted),
        LbOutcome::Broke => format!(
            "{} of {} connections failed, {} unfinished; {} lost",
            ours.failed,
            ours.attempted,
            ours.open,
            counted(lost, "frame", "frames")
        ),
        LbOutcome::Unread => format!(
            "{bad} of {} connections failed; {}",
            ours.attempted,
            dropped_by_tester(ours.tester_dropped_frames)
        ),
        LbOutcome::Unoffered | LbOutcome::Late | LbOutcome::Cut => format!(
            "opened {rate:.0} of {:.0} connections per second",
            shape.load
        ),
    };
    let offered = rate.min(shape.load);
    LbJudged {
        outcome,
        reason,
        offered,
        through: offered * (1.0 - failed).max(0.0),
        seconds: 0.0,
    }
}

fn judge_concurrent(item: &LbSearch, shape: &LbTrialShape, ours: &LbOurs) -> LbJudged {
    let borne = tolerated_failures(item);
    let unanswered = ours.requests.saturating_sub(ours.responses);
    let bad = ours.failed + ours.open + unanswered.min(ours.attempted);
    let failed = share_of(bad, ours.attempted);
    let lost = ours.lost_frames + ours.lost_answer_frames;
    let mut outcome = outcome_of_shares(failed, borne, 0.0, ours.held as f64 / shape.load);
    // Each connection has a request when it is opened and another one after its rest.
    let asked_again = ours.requests >= 2 * ours.held;
    if outcome == LbOutcome::Broke && ours.tester_dropped_frames > lost
        || ours.attempted == 0
        || (matches!(outcome, LbOutcome::Held | LbOutcome::Unoffered) && !asked_again)
    {
        outcome = LbOutcome::Unread;
    }
    let reason = match outcome {
        LbOutcome::Held => format!(
            "{} held with at least two requests each, {} of {} requests answered",
            counted(ours.held, "connection", "connections"),
            ours.responses,
            ours.requests
        ),
        LbOutcome::Broke => format!(
            "{} of {} connections failed, {} unanswered",
            ours.failed,
            ours.attempted,
            counted(unanswered, "request", "requests")
        ),
        LbOutcome::Unread if !asked_again && failed <= borne => format!(
            "sent {} over {} instead of two over each",
            counted(ours.requests, "request", "requests"),
            counted(ours.held, "connection", "connections")
        ),
        LbOutcome::Unread => format!(
            "{bad} of {} connections failed; {}",
            ours.attempted,
            dropped_by_tester(ours.tester_dropped_frames)
        ),
        LbOutcome::Unoffered | LbOutcome::Late | LbOutcome::Cut => {
            format!(
                "opened {} of {:.0} connections in time",
                ours.held, shape.load
            )
        }
    };
    let offered = match outcome {
        LbOutcome::Broke => shape.load,
        _ => ours.held as f64,
    };
    LbJudged {
        outcome,
        reason,
        offered,
        through: ours.held.saturating_sub(bad) as f64,
        seconds: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use wb_model::{report::PortReport, text::plan_from_toml};

    use super::*;

    fn item(metric: &str) -> LbSearch {
        let text = format!(
            "[client]\nport = \"c/c0\"\nhosts = [\"198.18.1.1\"]\n\
             [server]\nport = \"s/s0\"\nhosts = [\"198.19.2.1\"]\n\
             [device]\nservice = [\"198.18.1.100\"]\n[[test]]\nmetric = \"{metric}\"\n"
        );
        let plan = plan_from_toml("plan", &text)
            .expect("a plan")
            .lb()
            .expect("a plan")
            .clone();
        LbSearch::searches_of(&plan).remove(0)
    }

    fn shape(load: f64) -> LbTrialShape {
        let second = std::time::Duration::from_secs(1);
        LbTrialShape {
            load,
            ramp: second,
            full: second,
            drain: second,
            opening: 0,
            rest: second,
        }
    }

    fn side(sent: u64, received: u64, dropped: u64) -> LoadJobReport {
        let mut job = LoadJobReport::default();
        job.frames.offered_frames = Some(sent);
        job.frames.received_frames = Some(received);
        job.frames.rx_dropped_frames = Some(dropped);
        job
    }

    #[test]
    fn what_came_to_the_interface_was_not_lost_by_the_device() {
        let lost_and_dropped = |receiver: &LoadJobReport, came: Option<u64>| {
            let mut port = PortReport::default();
            for (side, n) in [
                (&mut port.before, 7),
                (&mut port.after, 7 + came.unwrap_or(0)),
            ] {
                side.insert("rx_packets".to_owned(), n);
            }
            missing_frames(&side(100, 0, 0), receiver, came.is_some().then_some(&port))
        };
        assert_eq!(lost_and_dropped(&side(0, 90, 0), None), (10, 0));
        assert_eq!(lost_and_dropped(&side(0, 90, 4), None), (6, 4));
        assert_eq!(lost_and_dropped(&side(0, 90, 4), Some(97)), (3, 7));
        // Foreign frames on the interface do not compensate for missing ones, and at most the missing frames count as
        // dropped.
        let mut foreign = side(0, 90, 0);
        foreign.frames.foreign_frames = Some(5);
        assert_eq!(lost_and_dropped(&foreign, Some(97)), (8, 2));
        assert_eq!(lost_and_dropped(&side(0, 90, 400), Some(500)), (0, 10));
        // Corrupted frames count as lost.
        let mut broken = side(0, 90, 0);
        broken.counters.insert("rx_bad_checksum".to_owned(), 3);
        assert_eq!(lost_and_dropped(&broken, None), (13, 0));
    }

    #[test]
    fn frames_hold_only_if_they_were_sent_and_came() {
        let (item, shape) = (item("oneway-pps"), shape(1000.0));
        let of = |sent, lost, dropped, pps| {
            let ours = LbOurs {
                sent_frames: sent,
                lost_frames: lost,
                tester_dropped_frames: dropped,
                ..LbOurs::default()
            };
            judge_frames(&item, &shape, &ours, pps).outcome
        };
        assert_eq!(of(0, 0, 0, 1000.0), LbOutcome::Unread);
        assert_eq!(of(1000, 0, 5, 1000.0), LbOutcome::Held);
        assert_eq!(of(1000, 0, 6, 1000.0), LbOutcome::Unread);
        assert_eq!(of(1000, 1, 6, 1000.0), LbOutcome::Broke);
        assert_eq!(of(1000, 0, 0, 979.0), LbOutcome::Unoffered);
    }

    #[test]
    fn connections_that_fail_for_our_own_drops_blame_nobody() {
        let (item, shape) = (item("cps"), shape(1000.0));
        let of = |attempted, failed, lost, dropped| {
            let ours = LbOurs {
                attempted,
                failed,
                lost_frames: lost,
                tester_dropped_frames: dropped,
                ..LbOurs::default()
            };
            judge_connection_rate(&item, &shape, &ours, 1.0).outcome
        };
        assert_eq!(of(1000, 0, 0, 0), LbOutcome::Held);
        assert_eq!(of(1000, 1, 2, 1), LbOutcome::Broke);
        assert_eq!(of(1000, 1, 1, 2), LbOutcome::Unread);
        assert_eq!(of(0, 0, 0, 0), LbOutcome::Unread);
        assert_eq!(of(900, 0, 0, 0), LbOutcome::Unoffered);
    }

    #[test]
    fn held_connections_were_asked_twice_and_answered() {
        let (item, shape) = (item("cc"), shape(1000.0));
        let of = |held, requests, responses| {
            let ours = LbOurs {
                attempted: held,
                held,
                requests,
                responses,
                ..LbOurs::default()
            };
            let judged = judge_concurrent(&item, &shape, &ours);
            (judged.outcome, judged.through)
        };
        assert_eq!(of(1000, 2000, 2000), (LbOutcome::Held, 1000.0));
        assert_eq!(of(1000, 1999, 1999), (LbOutcome::Unread, 1000.0));
        assert_eq!(of(1000, 2000, 1990), (LbOutcome::Broke, 990.0));
        assert_eq!(of(900, 1800, 1800), (LbOutcome::Unoffered, 900.0));
    }
}
