//! Text form of plans: reads and writes TOML, with errors that mark the position, and reads JSON as in reports.

use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};

use crate::{
    bench::{LB_PLAN_SCHEMA, LbFile},
    plan::{PLAN_KINDS, PLAN_SCHEMA, Plan},
    spelling::nearest,
};

/// Error of a plan file. The text names line and column and marks the position.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {message}")]
pub struct PlanTextError {
    /// File name, or `-`.
    pub file: String,
    /// Line, column, the text, a caret, and what is allowed.
    pub message: String,
}

/// Reads a plan: JSON if it begins with a brace, otherwise TOML; also the short form of a benchmark ([`LbFile`]).
/// `file` is used in messages only.
///
/// # Errors
/// Returns an error for malformed text, unknown keys, values that do not parse, or another schema version.
pub fn plan_from_toml(file: &str, text: &str) -> Result<Plan, PlanTextError> {
    let error = |message: String| PlanTextError {
        file: file.to_owned(),
        message,
    };
    let head = read::<Head>(text).unwrap_or_default();
    if head.client.is_some() || head.schema.as_deref() == Some(LB_PLAN_SCHEMA) {
        let file: LbFile = read(text).map_err(error)?;
        if file.schema != LB_PLAN_SCHEMA {
            return Err(error(format!(
                "schema is {:?}; this program reads {LB_PLAN_SCHEMA:?}",
                file.schema
            )));
        }
        return Ok(file.into());
    }
    let plan: Plan = read(text).map_err(error)?;
    if plan.schema != PLAN_SCHEMA {
        return Err(error(format!(
            "schema is {:?}; this program reads {PLAN_SCHEMA:?} and {LB_PLAN_SCHEMA:?}",
            plan.schema
        )));
    }
    if !PLAN_KINDS.contains(&plan.kind.as_str()) {
        let meant = match nearest(&plan.kind, PLAN_KINDS).first() {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => format!("it is one of {}", PLAN_KINDS.join(", ")),
        };
        return Err(error(format!("kind {:?} is not known; {meant}", plan.kind)));
    }
    Ok(plan)
}

/// Fields that distinguish the two forms of a plan.
#[derive(Default, Deserialize)]
struct Head {
    schema: Option<String>,
    client: Option<IgnoredAny>,
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).map_err(|e| format!("JSON: {e}")),
        false => toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned()),
    }
}

/// Writes a plan in a form that [`plan_from_toml`] reads back unchanged.
#[must_use]
pub fn plan_to_toml(plan: &Plan) -> String {
    written_as_toml(plan).expect("a plan that was read or made has only figures that TOML can hold")
}

/// Writes a plan from a report, which may hold any value. `None` if a number is too large for TOML.
#[must_use]
pub fn written_as_toml(plan: &Plan) -> Option<String> {
    toml::to_string_pretty(plan).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{PortPlan, Stream, TrafficJob};

    #[test]
    fn the_kind_of_a_plan_is_a_known_word() {
        let read = |kind: &str| plan_from_toml("p.toml", &format!("kind = {kind:?}"));
        let error = read("trail").unwrap_err().to_string();
        assert!(error.contains("did you mean \"trial\""), "{error}");
        let error = read("something else").unwrap_err().to_string();
        assert!(error.contains("one of run, trial, tx"), "{error}");
        for kind in PLAN_KINDS {
            assert_eq!(read(kind).unwrap().kind, kind);
        }
    }

    #[test]
    fn a_plan_survives_the_trip() {
        let plan = Plan {
            ports: vec![
                PortPlan::new("a", "wb-pair-a/a0".parse().unwrap()),
                PortPlan::new("b", "xdp:wb-pair-b/b0".parse().unwrap()),
            ],
            traffic: vec![TrafficJob {
                tx: Some("a".into()),
                rx: Some("b".into()),
                duration: Some("5s".parse().unwrap()),
                streams: vec![Stream {
                    size: Some("imix".parse().unwrap()),
                    rate: "100kpps".parse().unwrap(),
                    vlan: vec!["10:3".parse().unwrap()],
                    vary: vec!["sport=inc:1000-2000,step=2".parse().unwrap()],
                    payload: Some("dead beef".parse().unwrap()),
                    ..Stream::default()
                }],
                ..TrafficJob::default()
            }],
            criteria: vec!["loss<=0.1%".parse().unwrap()],
            ..Plan::default()
        };
        let text = plan_to_toml(&plan);
        assert_eq!(plan_from_toml("x", &text).unwrap(), plan, "{text}");
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(plan_from_toml("x", &json).unwrap(), plan, "{json}");
    }

    #[test]
    fn unknown_keys_get_a_caret() {
        let text = "[[port]]\nname = \"a\"\nlocator = \"eth0\"\nspeeed = 3\n";
        let message = plan_from_toml("p.toml", text).unwrap_err().to_string();
        assert!(
            message.contains("line 4") && message.contains('^') && message.contains("speeed"),
            "{message}"
        );
        let text = "[[traffic]]\n[[traffic.stream]]\nrate = \"10\"\n";
        let message = plan_from_toml("p.toml", text).unwrap_err().to_string();
        assert!(
            message.contains("line 3") && message.contains("kpps"),
            "{message}"
        );
    }

    #[test]
    fn what_is_wrong_in_json_has_a_line_and_a_column() {
        let text = "{\"port\": [],\n \"speeed\": 3}";
        let message = plan_from_toml("p.json", text).unwrap_err().to_string();
        assert!(
            message.contains("speeed") && message.contains("line 2 column"),
            "{message}"
        );
    }

    #[test]
    fn other_versions_are_refused() {
        assert!(plan_from_toml("p", "schema = \"wirebench.plan/9\"").is_err());
    }
}
