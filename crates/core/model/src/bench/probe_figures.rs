//! Figures of device probes.

use wb_figures::{Def, Field, Kind, Section, Show, Tone, Unit, counter, fact, fields};

use super::ProbeReport;
use crate::figures::TIMES;

static PROBE: &[Field<ProbeReport>] = fields!(ProbeReport:
    fact!("command", "command", |p| (&p.command).into()),
    counter!(readings, "readings", TIMES),
    counter!(failures, "failed readings", TIMES).bad().show(Show::IfAny),
);

const NAME: Def = Def::new("name", "counter", Unit::None, Kind::Fact);
const BEFORE: Def = Def::new("before", "before", Unit::None, Kind::Gauge);
const AFTER: Def = Def::new("after", "after", Unit::None, Kind::Gauge);
const RISE: Def = Def::new("rise", "rise", Unit::None, Kind::Counter);
const HIGHEST: Def = Def::new("highest", "highest", Unit::None, Kind::Gauge);

/// Sections of these probes.
pub fn sections(probes: &[ProbeReport]) -> impl Iterator<Item = Section<'_>> {
    probes.iter().map(section)
}

/// Section of one probe: the counters that changed, and the highest value of each gauge.
fn section(probe: &ProbeReport) -> Section<'_> {
    let changed = probe.after.iter().filter_map(|(name, after)| {
        let before = probe.before.get(name).copied().unwrap_or(0);
        let rise = match after.checked_sub(before) {
            Some(0) => return None,
            Some(rise) => rise.into(),
            None => "reset".into(),
        };
        Some(vec![name.into(), before.into(), (*after).into(), rise])
    });
    let highest = probe.highest.iter();
    let highest = highest.map(|(name, n)| vec![name.into(), (*n).into()]);
    let failure = probe.last_failure.as_ref();
    Section::new(
        "probe",
        "Device probes",
        &probe.name,
        "device probe".to_owned(),
    )
    .figures(PROBE, probe)
    .rows(
        "Counters that changed",
        vec![NAME, BEFORE, AFTER, RISE],
        changed,
    )
    .rows("Highest values", vec![NAME, HIGHEST], highest)
    .note(
        Tone::Bad,
        failure.map(|why| format!("last failed reading: {why}")),
    )
}
