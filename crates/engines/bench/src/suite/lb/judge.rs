//! Evaluates a trial.

use std::collections::BTreeMap;

use wb_model::{
    Charge, Report,
    bench::{BalancerTrial, LbDeviceTrial, LbMetric, LbOurs, LbPlan, SuiteTrial, TrialOutcome},
    counted,
    load::LoadJobReport,
    report::PortReport,
};

use super::{LbTrials, device, plans};
use crate::{
    DeviceReading, dropped_by_tester,
    suite::{
        judge::{
            JudgedTrial, empty_trial, judged_without_extras, load_named as job_report, steady_phase,
        },
        shape::TrialShape,
    },
};

/// A load counts as offered if at least this share of it was sent: a tester that stalled for a moment has sent the rest
/// slightly later.
const OFFERED: f64 = 0.98;
/// Time that a trial may be shorter in addition: workers begin and end one after another.
const EDGE_S: f64 = 0.01;
/// Share of frames that the tester may drop in a valid trial.
const DROPPED: f64 = 0.005;

/// Outcome of a trial before the lateness of the tester is considered.
struct Shown {
    outcome: TrialOutcome,
    reason: String,
    offered: f64,
    /// Load that the device carried.
    through: f64,
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

/// Name and rise of a counter that must not rise.
fn risen<'a>(plan: &LbPlan, seen: &'a LbDeviceTrial) -> Option<(&'a str, u64)> {
    let mut rose = seen.rose.iter();
    let (name, n) = rose.find(|(name, n)| {
        let named = |told: &String| *name == told || name.rsplit('.').next() == Some(told);
        **n > 0 && plan.device.must_not_rise.iter().any(named)
    })?;
    Some((name, *n))
}

/// Evaluates if the device passed.
pub(super) fn judge_trial(
    trials: &LbTrials<'_>,
    report: &Report,
    readings: &[DeviceReading],
    shape: &TrialShape,
) -> JudgedTrial {
    let (metric, goal, load) = (trials.metric(), trials.item.goal(), plans::load(shape));
    let ours = tester_counts(report);
    let seen = device::device_counts(trials.plan, &ours, metric, readings);
    let full = job_report(report, "client").and_then(steady_phase);
    let seconds = full.map_or(0.0, |p| p.to_ns.saturating_sub(p.from_ns) as f64 / 1e9);
    let mut shown = match metric {
        LbMetric::Cps => judge_connection_rate(goal, load, &ours, seconds),
        LbMetric::Cc => judge_concurrent(goal, load, &ours),
        _ => judge_frames(goal, load, &ours, full.map_or(0.0, |p| p.tx_pps)),
    };
    if shown.outcome == TrialOutcome::Pass
        && let Some((share, reason)) = not_sent(metric, shape, report, &ours, seconds)
    {
        (shown.outcome, shown.reason) = (TrialOutcome::NotOffered, reason);
        (shown.offered, shown.through) = (shown.offered * share, shown.through * share);
    }
    if let Some((name, n)) = risen(trials.plan, &seen) {
        shown.outcome = TrialOutcome::Fail;
        shown.reason = format!("device counter {name} increased by {n}");
    }
    let own = BalancerTrial { ours, device: seen };
    let trial = empty_trial(shape).with_balancer(own, metric.quantity(), shown.offered);
    JudgedTrial {
        through: shown.through,
        ..judged_without_extras(SuiteTrial {
            duration_s: seconds,
            outcome: shown.outcome,
            reason: shown.reason,
            ..trial
        })
    }
}

/// Returns the share that was sent, and the reason, if a part of the load was not sent that a rate of sent frames does
/// not show: the full rate was too short because the tester stalled, or what was due did not leave it.
fn not_sent(
    metric: LbMetric,
    shape: &TrialShape,
    report: &Report,
    ours: &LbOurs,
    seconds: f64,
) -> Option<(f64, String)> {
    let asked = shape.duration.as_secs_f64();
    if seconds + EDGE_S < OFFERED * asked {
        let reason = format!("the full rate lasted {seconds:.3} s instead of {asked:.3} s");
        return Some((seconds / asked, reason));
    }
    let due = ours.requests + ours.unsent;
    let sent = job_report(report, "client")?.frames.offered_frames?;
    let share = sent as f64 / due.max(1) as f64;
    let is_short = !metric.is_of_connections() && due > 0 && share < OFFERED;
    is_short.then(|| (share, format!("only {sent} of {due} frames were sent")))
}

/// Returns the result that the lateness of the tester may have caused: failures, or a load that was not offered.
pub(super) fn charge(
    trials: &LbTrials<'_>,
    shape: &TrialShape,
    trial: &SuiteTrial,
) -> Option<Charge> {
    let own = trial.balancer.as_ref()?;
    let (ours, goal, load) = (&own.ours, trials.item.goal(), plans::load(shape));
    let connections = |bad: u64| Charge::Connections {
        bad,
        borne: goal * ours.attempted as f64,
    };
    Some(match (trial.outcome, trials.metric()) {
        (TrialOutcome::Fail, LbMetric::Cps) => connections(ours.failed + ours.open),
        (TrialOutcome::Fail, LbMetric::Cc) => {
            let unanswered = ours.requests.saturating_sub(ours.responses);
            connections(ours.failed + ours.open + unanswered)
        }
        (TrialOutcome::Fail, _) => {
            let lost = ours.lost_frames + ours.lost_answer_frames + ours.tester_dropped_frames;
            let risen = risen(trials.plan, &own.device).map_or(0, |(_, n)| n);
            Charge::Frames {
                bad: lost.max(risen),
                borne: goal * ours.sent_frames as f64,
            }
        }
        // Rings that overflow without a stall are too small or their reader too slow: this is a permanent limit that
        // repetition does not change.
        (TrialOutcome::NotRead, _) if trial.lateness.stalls > 0 && ours.sent_frames > 0 => {
            Charge::Frames {
                bad: ours.tester_dropped_frames,
                borne: 0.0,
            }
        }
        (TrialOutcome::NotOffered, LbMetric::Cc) => Charge::Load {
            intended: load as u64,
            offered: ours.held,
        },
        (TrialOutcome::NotOffered, _) => Charge::Load {
            intended: (load * shape.duration.as_secs_f64()) as u64,
            offered: (trial.offered * trial.duration_s) as u64,
        },
        _ => return None,
    })
}

/// Outcome from three shares: lost by the device, dropped by the tester, offered of the intended load.
fn outcome_of_shares(lost: f64, goal: f64, dropped: f64, offered: f64) -> TrialOutcome {
    if lost > goal {
        TrialOutcome::Fail
    } else if dropped > DROPPED {
        TrialOutcome::NotRead
    } else if offered < OFFERED {
        TrialOutcome::NotOffered
    } else {
        TrialOutcome::Pass
    }
}

fn share_of(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn judge_frames(goal: f64, load: f64, ours: &LbOurs, pps: f64) -> Shown {
    let lost = ours.lost_frames + ours.lost_answer_frames;
    let (lost_share, dropped) = (
        share_of(lost, ours.sent_frames),
        share_of(ours.tester_dropped_frames, ours.sent_frames),
    );
    // A trial without sent frames does not pass.
    let outcome = match ours.sent_frames {
        0 => TrialOutcome::NotRead,
        // A load that was not offered cannot be judged.
        _ if pps < OFFERED * load => TrialOutcome::NotOffered,
        _ => outcome_of_shares(lost_share, goal, dropped, pps / load),
    };
    let reason = match outcome {
        TrialOutcome::Pass => format!("{lost} of {} frames lost", ours.sent_frames),
        TrialOutcome::Fail => format!(
            "{lost} of {} frames lost ({} towards the servers)",
            ours.sent_frames, ours.lost_frames
        ),
        TrialOutcome::NotRead => dropped_by_tester(ours.tester_dropped_frames),
        _ => {
            format!("sent {pps:.0} of {:.0} frames per second", load)
        }
    };
    // An extra frame at the edge of the time does not make the load higher.
    let offered = pps.min(load);
    Shown {
        outcome,
        reason,
        offered,
        through: offered * (1.0 - lost_share - dropped).max(0.0),
    }
}

fn judge_connection_rate(goal: f64, load: f64, ours: &LbOurs, seconds: f64) -> Shown {
    let rate = ours.attempted as f64 / seconds.max(1e-9);
    let bad = ours.failed + ours.open;
    let lost = ours.lost_frames + ours.lost_answer_frames;
    let failed = share_of(bad, ours.attempted);
    let mut outcome = match rate < OFFERED * load {
        true => TrialOutcome::NotOffered,
        false => outcome_of_shares(failed, goal, 0.0, rate / load),
    };
    // If the device lost no frames, connections fail because the tester was too slow.
    if ours.attempted == 0 || (outcome == TrialOutcome::Fail && ours.tester_dropped_frames > lost) {
        outcome = TrialOutcome::NotRead;
    }
    let reason = match outcome {
        TrialOutcome::Pass => format!("{bad} of {} connections failed", ours.attempted),
        TrialOutcome::Fail => format!(
            "{} of {} connections failed, {} unfinished; {} lost",
            ours.failed,
            ours.attempted,
            ours.open,
            counted(lost, "frame", "frames")
        ),
        TrialOutcome::NotRead => format!(
            "{bad} of {} connections failed; {}",
            ours.attempted,
            dropped_by_tester(ours.tester_dropped_frames)
        ),
        _ => format!("opened {rate:.0} of {:.0} connections per second", load),
    };
    let offered = rate.min(load);
    Shown {
        outcome,
        reason,
        offered,
        through: offered * (1.0 - failed).max(0.0),
    }
}

fn judge_concurrent(goal: f64, load: f64, ours: &LbOurs) -> Shown {
    let unanswered = ours.requests.saturating_sub(ours.responses);
    let bad = ours.failed + ours.open + unanswered.min(ours.attempted);
    let failed = share_of(bad, ours.attempted);
    let lost = ours.lost_frames + ours.lost_answer_frames;
    let mut outcome = outcome_of_shares(failed, goal, 0.0, ours.held as f64 / load);
    // Each connection has a request when it is opened and another one after its rest.
    let asked_again = ours.requests >= 2 * ours.held;
    if outcome == TrialOutcome::Fail && ours.tester_dropped_frames > lost
        || ours.attempted == 0
        || (matches!(outcome, TrialOutcome::Pass | TrialOutcome::NotOffered) && !asked_again)
    {
        outcome = TrialOutcome::NotRead;
    }
    let reason = match outcome {
        TrialOutcome::Pass => format!(
            "{} held with at least two requests each, {} of {} requests answered",
            counted(ours.held, "connection", "connections"),
            ours.responses,
            ours.requests
        ),
        TrialOutcome::Fail => format!(
            "{} of {} connections failed, {} unanswered",
            ours.failed,
            ours.attempted,
            counted(unanswered, "request", "requests")
        ),
        TrialOutcome::NotRead if !asked_again && failed <= goal => format!(
            "sent {} over {} instead of two over each",
            counted(ours.requests, "request", "requests"),
            counted(ours.held, "connection", "connections")
        ),
        TrialOutcome::NotRead => format!(
            "{bad} of {} connections failed; {}",
            ours.attempted,
            dropped_by_tester(ours.tester_dropped_frames)
        ),
        _ => {
            format!("opened {} of {:.0} connections in time", ours.held, load)
        }
    };
    let offered = match outcome {
        TrialOutcome::Fail => load,
        _ => ours.held as f64,
    };
    Shown {
        outcome,
        reason,
        offered,
        through: ours.held.saturating_sub(bad) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::super::CPS_FAILED;
    use super::*;

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
        let of = |sent, lost, dropped, pps| {
            let ours = LbOurs {
                sent_frames: sent,
                lost_frames: lost,
                tester_dropped_frames: dropped,
                ..LbOurs::default()
            };
            judge_frames(0.0, 1000.0, &ours, pps).outcome
        };
        assert_eq!(of(0, 0, 0, 1000.0), TrialOutcome::NotRead);
        assert_eq!(of(1000, 0, 5, 1000.0), TrialOutcome::Pass);
        assert_eq!(of(1000, 0, 6, 1000.0), TrialOutcome::NotRead);
        assert_eq!(of(1000, 1, 6, 1000.0), TrialOutcome::Fail);
        assert_eq!(of(1000, 0, 0, 979.0), TrialOutcome::NotOffered);
    }

    #[test]
    fn connections_that_fail_for_our_own_drops_blame_nobody() {
        let of = |attempted, failed, lost, dropped| {
            let ours = LbOurs {
                attempted,
                failed,
                lost_frames: lost,
                tester_dropped_frames: dropped,
                ..LbOurs::default()
            };
            judge_connection_rate(CPS_FAILED, 1000.0, &ours, 1.0).outcome
        };
        assert_eq!(of(1000, 0, 0, 0), TrialOutcome::Pass);
        assert_eq!(of(1000, 1, 2, 1), TrialOutcome::Fail);
        assert_eq!(of(1000, 1, 1, 2), TrialOutcome::NotRead);
        assert_eq!(of(0, 0, 0, 0), TrialOutcome::NotRead);
        assert_eq!(of(900, 0, 0, 0), TrialOutcome::NotOffered);
    }

    #[test]
    fn held_connections_were_asked_twice_and_answered() {
        let of = |held, requests, responses| {
            let ours = LbOurs {
                attempted: held,
                held,
                requests,
                responses,
                ..LbOurs::default()
            };
            let judged = judge_concurrent(0.0, 1000.0, &ours);
            (judged.outcome, judged.through)
        };
        assert_eq!(of(1000, 2000, 2000), (TrialOutcome::Pass, 1000.0));
        assert_eq!(of(1000, 1999, 1999), (TrialOutcome::NotRead, 1000.0));
        assert_eq!(of(1000, 2000, 1990), (TrialOutcome::Fail, 990.0));
        assert_eq!(of(900, 1800, 1800), (TrialOutcome::NotOffered, 900.0));
    }
}
