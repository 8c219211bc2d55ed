//! Result of one capture, and the spread of several.

use wb_figures::text as figures;

use super::{
    contents::Contents,
    document::SelfTestRun,
    tool::{CaptureTool, Counts},
};

/// Result of one capture.
pub(super) struct SelfTestRow {
    pub(super) size: u32,
    pub(super) tool: CaptureTool,
    pub(super) run: u32,
    pub(super) attempts: u32,
    pub(super) sent: u64,
    pub(super) offered_pps: f64,
    /// True if the sender held the rate.
    pub(super) valid: bool,
    pub(super) counts: Counts,
    pub(super) contents: Contents,
    /// Frames dropped by the network stack of this machine before any tap.
    pub(super) before_tap: u64,
    pub(super) cpu_seconds: f64,
}

impl SelfTestRow {
    /// Returns the number of sent frames that are not in the file.
    pub(super) const fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.contents.distinct)
    }

    #[allow(clippy::cast_precision_loss)]
    pub(super) fn share(&self) -> f64 {
        if self.sent == 0 {
            return 0.0;
        }
        self.lost() as f64 / self.sent as f64
    }

    /// Returns the number of sent frames that the tool reports neither as captured nor as lost.
    fn unaccounted(&self) -> i128 {
        i128::from(self.sent)
            - i128::from(self.counts.captured)
            - i128::from(self.counts.dropped)
            - i128::from(self.before_tap)
    }

    fn exact(&self) -> bool {
        self.unaccounted() == 0
            && self.counts.captured == self.contents.frames
            && self.contents.duplicates == 0
            && self.contents.foreign == 0
            && self.contents.damage.is_none()
    }

    fn verdict(&self) -> String {
        let mut text = match (self.valid, self.lost()) {
            (false, _) => "INVALID: the sender did not reach the rate".to_owned(),
            (true, 0) => "nothing lost".to_owned(),
            (true, _) => "LOST".to_owned(),
        };
        if self.before_tap > 0 {
            text += &format!(
                ", {} before the capture point",
                figures::count(self.before_tap)
            );
        }
        if self.unaccounted() != 0 {
            text += &format!(", {} not accounted for", self.unaccounted());
        } else if self.exact() {
            text += ", counts exact";
        }
        if self.counts.captured != self.contents.frames {
            text += ", the number of frames in the file differs from the reported one";
        }
        if self.contents.duplicates > 0 {
            text += &format!(", {} twice", figures::count(self.contents.duplicates));
        }
        if self.contents.foreign > 0 {
            text += &format!(", {} foreign", figures::count(self.contents.foreign));
        }
        if let Some(damage) = &self.contents.damage {
            text += &format!(", file damaged: {damage}");
        }
        text
    }

    pub(super) fn passes(&self) -> bool {
        self.valid && self.lost() == 0 && self.exact()
    }

    pub(super) fn document(&self) -> SelfTestRun {
        SelfTestRun {
            size: self.size,
            tool: self.tool.name(),
            run: self.run,
            attempts: self.attempts,
            sent: self.sent,
            offered_pps: self.offered_pps,
            valid: self.valid,
            captured: self.counts.captured,
            received_by_filter: self.counts.received,
            dropped: self.counts.dropped,
            before_tap: self.before_tap,
            in_file: self.contents.frames,
            missing: self.lost(),
            duplicates: self.contents.duplicates,
            foreign: self.contents.foreign,
            not_accounted: i64::try_from(self.unaccounted()).unwrap_or(i64::MIN),
            lost_share: self.share(),
            exact: self.exact(),
            cpu_seconds: self.cpu_seconds,
            verdict: self.verdict(),
        }
    }
}

/// Returns minimum, median and maximum loss share of the valid runs.
pub(super) fn spread(rows: &[&SelfTestRow]) -> Option<[f64; 3]> {
    let mut shares: Vec<f64> = rows.iter().filter(|r| r.valid).map(|r| r.share()).collect();
    shares.sort_by(f64::total_cmp);
    let (first, last) = (*shares.first()?, *shares.last()?);
    let middle = (shares[(shares.len() - 1) / 2] + shares[shares.len() / 2]) / 2.0;
    Some([first, middle, last])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(sent: u64, captured: u64, dropped: u64, in_file: u64) -> SelfTestRow {
        SelfTestRow {
            size: 64,
            tool: CaptureTool::Tcpdump,
            run: 1,
            attempts: 1,
            sent,
            offered_pps: 1.0,
            valid: true,
            counts: Counts {
                captured,
                received: captured + dropped,
                dropped,
            },
            contents: Contents {
                frames: in_file,
                distinct: in_file,
                ..Contents::default()
            },
            before_tap: 0,
            cpu_seconds: 0.0,
        }
    }

    #[test]
    fn a_verdict_hides_nothing() {
        let clean = row(100, 100, 0, 100);
        assert!(clean.passes());
        assert_eq!(clean.verdict(), "nothing lost, counts exact");
        let lost = row(100, 90, 10, 90);
        assert!(!lost.passes() && lost.exact());
        assert_eq!(lost.verdict(), "LOST, counts exact");
        let silent = row(100, 90, 0, 90);
        assert_eq!(silent.verdict(), "LOST, 10 not accounted for");
        let boasts = row(100, 100, 0, 90);
        assert!(!boasts.passes());
        assert_eq!(
            boasts.verdict(),
            "LOST, the number of frames in the file differs from the reported one"
        );
        let slow = SelfTestRow {
            valid: false,
            ..row(100, 100, 0, 100)
        };
        assert!(!slow.passes());
        assert!(slow.verdict().starts_with("INVALID"));
    }

    #[test]
    fn the_spread_is_of_runs_that_count() {
        let rows = [
            row(100, 90, 10, 90),
            row(100, 70, 30, 70),
            row(100, 80, 20, 80),
            SelfTestRow {
                valid: false,
                ..row(100, 0, 100, 0)
            },
        ];
        let all: Vec<&SelfTestRow> = rows.iter().collect();
        assert_eq!(spread(&all), Some([0.1, 0.2, 0.3]));
        assert_eq!(spread(&all[3..]), None);
    }
}
