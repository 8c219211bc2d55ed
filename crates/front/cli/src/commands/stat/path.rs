//! Interfaces along a path, side by side.

use wb_counters::{LinkInterval, line::Path, path};

/// What was lost between the interfaces called `names` in an interval; nothing where no path was given.
pub(super) fn line<'a>(
    names: &[String],
    intervals: impl Iterator<Item = &'a LinkInterval>,
) -> Option<Path> {
    if names.is_empty() {
        return None;
    }
    let known: Vec<&LinkInterval> = intervals.collect();
    let counted = |name: &String| {
        let interval = known.iter().find(|interval| {
            interval.name == *name || interval.renamed_from.as_ref() == Some(name)
        })?;
        Some((name.clone(), interval.counted?))
    };
    let Some(points) = names.iter().map(counted).collect::<Option<Vec<_>>>() else {
        return Some(Path::default());
    };
    let hops = path::hops(&points);
    let loss_ratio = path::loss_ratio(&hops);
    let lost_where = path::worst(&hops).map(|worst| {
        let share = loss_ratio.map_or(String::new(), |ratio| {
            format!("{:.2} % lost; ", ratio * 100.0)
        });
        let place = match worst.between {
            path::Between::Wire => format!(
                "between {} and {}, on the wire or at its end",
                worst.from, worst.to
            ),
            path::Between::Device => {
                format!("in the device, between {} and {}", worst.from, worst.to)
            }
        };
        format!("{share}most of it {place}: {} packets", worst.lost_packets)
    });
    Some(Path {
        hops,
        loss_ratio,
        lost_where,
    })
}
