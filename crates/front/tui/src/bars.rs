//! Values over time as text: a line of bars, a chart of several lines, a progress bar.

/// Eighths of a cell.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Eighths of a cell for terminals that know ASCII only.
const ASCII: [char; 9] = [' ', '.', '.', ':', ':', '-', '=', '+', '#'];

fn eighth(part: f64, unicode: bool) -> char {
    let blocks = if unicode { BLOCKS } else { ASCII };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let at = (part.clamp(0.0, 1.0) * 8.0).round() as usize;
    blocks[at]
}

/// The values in at most `width` groups of neighbours, each with the mean of its known values. Groups have the
/// same size, except for the oldest, so a column stands for the same time throughout.
pub(crate) fn grouped(values: &[Option<f64>], width: usize) -> Vec<Option<f64>> {
    let size = values.len().div_ceil(width.max(1)).max(1);
    let mut groups: Vec<Option<f64>> = values
        .rchunks(size)
        .map(|group| {
            let known: Vec<f64> = group.iter().copied().flatten().collect();
            #[allow(clippy::cast_precision_loss)]
            let mean = known.iter().sum::<f64>() / known.len() as f64;
            mean.is_finite().then_some(mean)
        })
        .collect();
    groups.reverse();
    groups
}

/// The largest value, if there is one above zero.
pub(crate) fn largest(values: &[Option<f64>]) -> Option<f64> {
    let known = values.iter().copied().flatten().filter(|v| v.is_finite());
    known.reduce(f64::max).filter(|v| *v > 0.0)
}

/// The values as a line of bars, scaled from zero to the largest, with the newest at the right end.
pub(crate) fn spark(values: &[Option<f64>], width: usize, unicode: bool) -> String {
    chart(values, width, 1, unicode).pop().unwrap_or_default()
}

/// The values as lines of bars, from the top, with the newest at the right end. A value above zero is always visible.
pub(crate) fn chart(
    values: &[Option<f64>],
    width: usize,
    height: usize,
    unicode: bool,
) -> Vec<String> {
    let groups = grouped(values, width);
    let most = largest(&groups).unwrap_or(1.0);
    let blank = width - groups.len().min(width);
    #[allow(clippy::cast_precision_loss)]
    let line = |row: usize| {
        let below = (height - 1 - row) as f64;
        let bars = groups.iter().map(|value| match value {
            Some(v) if *v > 0.0 => {
                let filled = (v / most * height as f64 - below).clamp(0.0, 1.0);
                let least = if below == 0.0 { 0.125 } else { 0.0 };
                eighth(filled.max(least), unicode)
            }
            _ => ' ',
        });
        let mut text = " ".repeat(blank);
        text.extend(bars);
        text
    };
    (0..height).map(line).collect()
}

/// A progress bar of `cells` cells. It is full only at the end.
pub(crate) fn gauge(part: f64, cells: usize, unicode: bool) -> String {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    let full = ((part.clamp(0.0, 1.0) * cells as f64) as usize).min(cells);
    let (on, off) = if unicode { ("█", "░") } else { ("#", "-") };
    format!("{}{}", on.repeat(full), off.repeat(cells - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_at_the_right_and_the_largest_is_full() {
        let values = [Some(1.0), None, Some(8.0), Some(4.0)];
        assert_eq!(spark(&values, 6, true), "  ▁ █▄");
        assert_eq!(spark(&values, 6, false), "  . #:");
        assert_eq!(spark(&[], 3, true), "   ");
        assert_eq!(spark(&[Some(0.0)], 2, true), "  ");
    }

    #[test]
    fn columns_stand_for_the_same_time() {
        let values: Vec<_> = (0..7).map(|n| Some(f64::from(n))).collect();
        assert_eq!(
            grouped(&values, 3),
            [Some(0.0), Some(2.0), Some(5.0)],
            "three values each from the right; the oldest group has one"
        );
        assert_eq!(grouped(&[None, None], 1), [None]);
    }

    #[test]
    fn charts_stand_on_their_last_line() {
        let values = [Some(2.0), Some(1.0), Some(0.01)];
        assert_eq!(chart(&values, 3, 2, true), ["█  ", "██▁"]);
    }

    #[test]
    fn a_gauge_is_full_only_at_the_end() {
        assert_eq!(gauge(0.999, 4, true), "███░");
        assert_eq!(gauge(1.0, 4, false), "####");
    }
}
