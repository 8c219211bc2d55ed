//! Counters of interfaces along a path.

use wb_counters::{LinkInterval, path, series::LinkTotal, stat_document::PathStat};

/// Interface of a path, with its requested and its current name.
#[derive(Debug)]
pub(crate) struct Point {
    asked: String,
    now: String,
}

impl Point {
    pub(crate) fn new(asked: String) -> Self {
        Self {
            now: asked.clone(),
            asked,
        }
    }
}

/// Updates the names of interfaces that were renamed in an interval.
pub(crate) fn follow(points: &mut [Point], intervals: &[LinkInterval]) {
    for point in points {
        let renamed = |i: &&LinkInterval| i.renamed_from.as_ref() == Some(&point.now);
        if let Some(interval) = intervals.iter().find(renamed) {
            point.now.clone_from(&interval.name);
        }
    }
}

/// Returns true if this is the current name of one of the interfaces.
pub(crate) fn names(points: &[Point], name: &str) -> bool {
    points.iter().any(|point| point.now == name)
}

/// Returns the losses over all intervals. An interface that was missing or reset in an interval has incomplete
/// totals.
pub(crate) fn whole(points: &[Point], totals: &[&LinkTotal], intervals: u64) -> Option<PathStat> {
    let there = totals.iter().filter(|total| total.intervals == intervals);
    line(points, there.map(|total| &total.whole))
}

/// Returns the losses between these interfaces in an interval; none without a path.
pub(crate) fn line<'a>(
    points: &[Point],
    intervals: impl Iterator<Item = &'a LinkInterval>,
) -> Option<PathStat> {
    if points.is_empty() {
        return None;
    }
    let known: Vec<&LinkInterval> = intervals.collect();
    let counted = |point: &Point| {
        let interval = known.iter().find(|interval| interval.name == point.now)?;
        Some((point.asked.clone(), interval.counted?))
    };
    let Some(points) = points.iter().map(counted).collect::<Option<Vec<_>>>() else {
        return Some(PathStat::default());
    };
    let hops = path::hops(&points);
    let loss_ratio = path::loss_ratio(&hops);
    let lost_where = path::worst(&hops).map(|worst| {
        let share = loss_ratio.map_or(String::new(), |ratio| {
            format!("{:.2} % lost; ", ratio * 100.0)
        });
        let place = match worst.between {
            path::Between::Wire => format!(
                "on the wire between {} and {}, or at its receiving end",
                worst.from, worst.to
            ),
            path::Between::Device => {
                format!("in the device, between {} and {}", worst.from, worst.to)
            }
        };
        let packets = wb_model::counted(worst.lost_packets, "packet", "packets");
        format!("{share}most of it {place}: {packets}")
    });
    Some(PathStat {
        hops,
        loss_ratio,
        lost_where,
    })
}

#[cfg(test)]
mod tests {
    use wb_counters::{LinkCounters, LinkReading, Series};

    use super::*;

    /// Readings of a path from `a` to the second interface, by index, name and packets.
    fn readings(at_s: u64, links: &[(u32, &str, u64)]) -> Vec<LinkReading> {
        let reading = |(index, name, packets): &(u32, &str, u64)| LinkReading {
            id: (0, *index),
            name: (*name).to_owned(),
            at_ns: at_s * 1_000_000_000,
            counters: LinkCounters {
                tx_packets: *packets,
                rx_packets: *packets,
                ..LinkCounters::default()
            },
            ..LinkReading::default()
        };
        links.iter().map(reading).collect()
    }

    fn missing(path: Option<PathStat>) -> Option<i64> {
        path.unwrap().hops.first().map(|hop| hop.lost_packets)
    }

    #[test]
    fn a_path_follows_names_and_knows_nothing_of_what_was_away() {
        let mut series = Series::default();
        let mut points = ["a", "b"].map(|name| Point::new(name.to_owned()));
        series.next(readings(0, &[(1, "a", 0), (2, "b", 0)]));
        let mut next = |at_s, links: &[(u32, &str, u64)]| {
            let intervals = series.next(readings(at_s, links));
            follow(&mut points, &intervals);
            let now = missing(line(&points, intervals.iter()));
            (now, missing(whole(&points, &series.totals(), at_s)))
        };
        assert_eq!(next(1, &[(1, "a", 10), (2, "b", 8)]), (Some(2), Some(2)));
        assert_eq!(next(2, &[(1, "a", 20), (2, "c", 17)]), (Some(1), Some(3)));
        // Both interfaces swap their names.
        assert_eq!(next(3, &[(1, "c", 30), (2, "a", 26)]), (Some(1), Some(4)));
        assert_eq!(next(4, &[(1, "c", 40), (2, "a", 36)]), (Some(0), Some(4)));
        // Another interface with the same name has counted only a part.
        assert_eq!(next(5, &[(1, "c", 50), (3, "a", 5)]), (None, None));
        assert_eq!(next(6, &[(1, "c", 60), (3, "a", 15)]), (Some(0), None));
    }
}
