//! Record of a run, from which another controller continues it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wb_model::Plan;

use super::{
    Action, Controller, Host, HostReport, HostState, Progress, RunEnd, RunSettings, Stage,
};
use crate::{
    Now,
    message::{Direction, Problem, Start, V1},
    place::Placement,
};

/// State of a run in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordStage {
    /// Before the start.
    Arming,
    /// The start is set.
    Started,
    /// The result was delivered.
    Over,
}

/// Record of a run. The caller stores the last one of each run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Version of the message.
    pub v: V1,
    /// Settings.
    pub settings: RunSettings,
    /// Epoch of the controller that wrote the record.
    pub epoch: u64,
    /// Stage.
    pub stage: RecordStage,
    /// Whole plan.
    pub plan: Plan,
    /// Directions between ports.
    pub directions: Vec<Direction>,
    /// Hosts.
    pub hosts: Vec<RecordedHost>,
    /// Start, once it is set.
    pub start: Option<Start>,
    /// End of the run, as far as known.
    pub end: RunEnd,
    /// Problems so far.
    pub problems: Vec<Problem>,
    /// Number of results so far.
    pub revision: u32,
    /// Warnings so far.
    pub warnings: Vec<String>,
}

/// Host of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedHost {
    /// Identity of the agent's start.
    pub id: String,
    /// Name, version and state.
    pub outcome: HostReport,
    /// True if the share of the host is in the last result.
    pub is_counted: bool,
}

impl Controller {
    pub(super) fn store_record(&mut self, stage: RecordStage) {
        let hosts = self.hosts.values().map(|host| RecordedHost {
            id: host.id.clone(),
            outcome: host.outcome.clone(),
            is_counted: stage == RecordStage::Over && host.share.is_some(),
        });
        let record = RunRecord {
            v: V1,
            settings: self.settings.clone(),
            epoch: self.epoch,
            stage,
            plan: self.placement.plan.clone(),
            directions: self.placement.directions.clone(),
            hosts: hosts.collect(),
            start: self.start.clone(),
            end: self.end,
            problems: self.problems.clone(),
            revision: self.revision,
            warnings: self.warnings.clone(),
        };
        self.actions.push(Action::Store(Box::new(record)));
    }

    /// Continues the run of a record as the controller of a higher epoch. A run that has not started is refused. A
    /// running one continues if its hosts still run, and otherwise ends with their shares.
    #[must_use]
    pub fn adopt(record: RunRecord, epoch: u64, now: Now) -> (Self, Vec<Action>) {
        let hosts = record.hosts.into_iter().map(|recorded| {
            let RecordedHost { id, outcome, .. } = recorded;
            let mut host = Host::new(&outcome.host, id, outcome.version.clone(), now.mono_ns);
            host.progress = match outcome.state {
                HostState::Complete => Progress::Ready,
                _ => Progress::Gone,
            };
            host.is_counted = recorded.is_counted;
            host.outcome = outcome;
            (host.outcome.host.clone(), host)
        });
        let hosts = hosts.collect();
        let placement = Placement {
            plan: record.plan,
            parts: BTreeMap::new(),
            directions: record.directions,
            warnings: record.warnings,
        };
        let mut controller = Self::of(record.settings, epoch, placement, hosts, now);
        controller.count_live();
        controller.is_adopted = true;
        controller.revision = record.revision;
        controller.end = record.end;
        controller.problems = record.problems;
        match (record.stage, record.start) {
            (RecordStage::Arming, _) | (_, None) => {
                let what = "the controller ended before the start";
                let place = controller.settings.controller.clone();
                controller.problems.push(Problem::new(place, what));
                controller.end = RunEnd::Refused;
                controller.refuse_run(now);
            }
            (stage, Some(mut start)) => {
                start.epoch = epoch;
                let since = i128::from(now.wall_ns) - i128::from(start.at_wall_ns);
                controller.start_ns = i128::from(now.mono_ns) - since;
                controller.start = Some(start);
                controller.stage = Stage::Running;
                controller.shown =
                    controller.elapsed_ns(now) / controller.settings.interval_ns.max(1);
                if stage == RecordStage::Over {
                    controller.stage = Stage::Over;
                    controller.over_ns = now.mono_ns;
                } else {
                    let text = format!(
                        "the controller of this run ended; another one took over (epoch {epoch})"
                    );
                    controller.warnings.push(text.clone());
                    controller.actions.push(Action::Note(text));
                    controller.renew_lease(now);
                }
            }
        }
        let actions = controller.take_actions();
        (controller, actions)
    }
}
