//! Options of the impairing device, as stored in the lab file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_port::fault::{self, Capacity, Impairment, InvalidImpairment};

/// Loss of test frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Random loss of each frame with this probability, 0 to 1.
    Ratio(f64),
    /// Loss of exactly every n-th frame.
    Every(u64),
}

/// Impairments of test frames on their way from a to b.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ImpairOptions {
    /// Time from arrival to departure, ns.
    pub delay_ns: u64,
    /// Maximum deviation of a frame's delay in either direction, ns; the order is kept.
    pub jitter_ns: u64,
    /// Loss of frames.
    pub loss: Loss,
    /// Share of the frames that leave twice, 0 to 1.
    pub duplicate: f64,
    /// Share of the frames that are held back, 0 to 1.
    pub reorder: f64,
    /// Number of later frames after which a delayed frame leaves.
    pub reorder_depth: u32,
    /// Maximum rate in bits per second, without FCS.
    pub rate_bps: Option<u64>,
    /// Applies the same impairments from b to a (with a separate seed).
    pub both: bool,
    /// Applies the impairments to every TCP and UDP packet, not only to test frames.
    pub all: bool,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for ImpairOptions {
    fn default() -> Self {
        let none = Impairment::default();
        Self {
            delay_ns: none.delay_ns,
            jitter_ns: none.jitter_ns,
            loss: Loss::None,
            duplicate: none.duplicate,
            reorder: none.reorder,
            reorder_depth: none.reorder_depth,
            rate_bps: None,
            both: false,
            all: false,
            seed: none.seed,
        }
    }
}

/// A longer delay would fill memory before the first frame leaves.
const LONGEST_DELAY_NS: u64 = 60_000_000_000;

impl ImpairOptions {
    /// Checks the ranges.
    ///
    /// # Errors
    /// All values out of range.
    pub fn validate(&self) -> Result<(), String> {
        let mut wrong: Vec<String> = Vec::new();
        if let Err(fault) = self.a_to_b().validate() {
            let fault: InvalidImpairment = fault;
            wrong.push(fault.to_string());
        }
        if self.delay_ns > LONGEST_DELAY_NS || self.jitter_ns > LONGEST_DELAY_NS {
            wrong.push("delay and jitter are at most 60 s".into());
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(wrong.join("; "))
        }
    }

    /// Impairment from a to b.
    pub fn a_to_b(&self) -> Impairment {
        Impairment {
            loss: match self.loss {
                Loss::None => fault::Loss::None,
                Loss::Ratio(ratio) => fault::Loss::Ratio(ratio),
                Loss::Every(n) => fault::Loss::Every(n),
            },
            duplicate: self.duplicate,
            reorder: self.reorder,
            reorder_depth: self.reorder_depth,
            delay_ns: self.delay_ns,
            jitter_ns: self.jitter_ns,
            capacity: self.rate_bps.map(Capacity::bits_per_second),
            seed: self.seed,
            ..Impairment::default()
        }
    }

    /// Impairment from b to a.
    pub fn b_to_a(&self) -> Impairment {
        if self.both {
            // With the same seed, both directions would lose the same frames.
            self.a_to_b().with_seed(self.seed ^ 0x5bd1_e995_9d1b_54a5)
        } else {
            Impairment::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_way_unless_both() {
        let mut options = ImpairOptions {
            loss: Loss::Every(100),
            delay_ns: 5,
            ..Default::default()
        };
        assert_eq!(options.a_to_b().loss, fault::Loss::Every(100));
        assert!(options.b_to_a().is_none());
        options.both = true;
        assert_eq!(options.b_to_a().delay_ns, 5);
        assert_ne!(options.b_to_a().seed, options.a_to_b().seed);
    }

    #[test]
    fn json_needs_only_what_differs() {
        let options: ImpairOptions =
            serde_json::from_str(r#"{"loss":{"ratio":0.01},"delay_ns":300000}"#).unwrap();
        assert_eq!(
            (options.loss, options.delay_ns),
            (Loss::Ratio(0.01), 300_000)
        );
        assert_eq!(options.reorder_depth, 3);
        let text = serde_json::to_string(&options).unwrap();
        assert_eq!(
            serde_json::from_str::<ImpairOptions>(&text).unwrap(),
            options
        );
    }

    #[test]
    fn faults() {
        let options = ImpairOptions {
            duplicate: 2.0,
            delay_ns: u64::MAX,
            ..Default::default()
        };
        let text = options.validate().unwrap_err();
        assert!(
            text.contains("duplicate") && text.contains("60 s"),
            "{text}"
        );
    }
}
