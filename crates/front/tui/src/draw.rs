//! Draws a screen into a frame of any size.

use ratatui_core::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
    terminal::Frame,
    text::{Line, Span},
};
use wb_model::Phase;

use crate::{
    Page, Row, Screen, Section, Tone,
    bars::{chart, gauge, grouped, largest},
    pages::Chart,
    section::cut,
};

/// Minimum width in columns for a readable screen.
pub const LEAST_WIDTH: u16 = 40;
/// Minimum height in lines for a readable screen.
pub const LEAST_HEIGHT: u16 = 8;
/// Minimum width for two columns of sections.
const WIDE: usize = 150;
/// Minimum height of a chart in lines, with its title and its axis.
const LEAST_CHART: usize = 6;
/// Maximum height of a chart in lines.
const MOST_CHART: usize = 14;

/// Draws a screen.
pub fn draw(frame: &mut Frame<'_>, screen: &Screen) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    if area.width < LEAST_WIDTH || area.height < LEAST_HEIGHT {
        let lines = [
            "too small".to_owned(),
            format!("needs {LEAST_WIDTH}x{LEAST_HEIGHT}"),
            "the run continues".to_owned(),
            "q stops it".to_owned(),
        ];
        for (y, line) in (0..area.height).zip(lines) {
            put(buffer, area, y, &Line::raw(line));
        }
        return;
    }
    let width = usize::from(area.width);
    put(buffer, area, 0, &head(screen, width));
    put(buffer, area, 1, &tabs(screen, width));
    let body = usize::from(area.height) - 3;
    let lines = match screen.help {
        true => window(
            help(screen).lines(width, screen.about.unicode, screen.about.color),
            body,
            screen,
        ),
        false => page(screen, width, body),
    };
    for (at, line) in lines.iter().enumerate().take(body) {
        #[allow(clippy::cast_possible_truncation)]
        put(buffer, area, 2 + at as u16, line);
    }
    put(buffer, area, area.height - 1, &foot(screen, width));
}

fn put(buffer: &mut Buffer, area: Rect, y: u16, line: &Line<'_>) {
    buffer.set_line(area.x, area.y + y, line, area.width);
}

const fn phase(screen: &Screen) -> &'static str {
    let Some(now) = &screen.now else {
        return "starting";
    };
    match now.phase {
        Phase::Preparing => "opening",
        Phase::Ramp => "ramping up",
        Phase::Running if screen.stopping => "stopping",
        Phase::Running if screen.paused => "paused",
        Phase::Running => "running",
        Phase::Drain => "draining",
        Phase::Done => "done",
    }
}

/// Run, progress and remaining time.
fn head(screen: &Screen, width: usize) -> Line<'static> {
    let color = screen.about.color;
    let name = format!(" wirebench {}", screen.about.title);
    let mut line = Line::from(vec![
        Span::styled(name, Style::new().add_modifier(Modifier::BOLD)),
        Span::styled(
            format!("  {}", phase(screen)),
            match (screen.stopping || screen.paused, color) {
                (true, true) => Style::new().fg(Color::Yellow),
                (false, true) => Style::new().fg(Color::Green),
                _ => Style::new(),
            },
        ),
    ]);
    let Some(now) = &screen.now else {
        return line;
    };
    #[allow(clippy::cast_precision_loss)]
    let (told, elapsed) = (
        now.elapsed_ns as f64 / 1e9,
        now.elapsed_ns.saturating_add(screen.since_ns) as f64 / 1e9,
    );
    #[allow(clippy::cast_precision_loss)]
    let planned = screen.about.planned_ns.map(|ns| ns as f64 / 1e9);
    let by_progress = now.progress.filter(|p| *p > 0.0 && told > 0.0);
    let by_progress = by_progress.map(|progress| told / progress);
    let left = now.bench.as_ref().and_then(|bench| bench.left_ns);
    #[allow(clippy::cast_precision_loss)]
    let by_search = left.map(|ns| told + ns as f64 / 1e9);
    match by_progress.or(by_search).or(planned) {
        Some(whole) => {
            let elapsed = elapsed.min(whole);
            let part = elapsed / whole.max(1e-9);
            let text = format!("  {} of {}  ", seconds(elapsed), seconds(whole),);
            line.push_span(Span::raw(text));
            let left = format!(" {} left ", seconds((whole - elapsed).max(0.0)));
            let room = width.saturating_sub(line.width() + left.len());
            if room >= 10 {
                let bar = gauge(part, room.min(40), screen.about.unicode);
                let style = if color {
                    Style::new().fg(Color::Cyan)
                } else {
                    Style::new()
                };
                line.push_span(Span::styled(bar, style));
                line.push_span(Span::raw(left));
            }
        }
        None => line.push_span(Span::raw(format!("  {}", seconds(elapsed)))),
    }
    line
}

fn seconds(s: f64) -> String {
    if s < 600.0 {
        return format!("{s:.1} s");
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = s as u64;
    match whole / 3600 {
        0 => format!("{}:{:02} min", whole / 60, whole % 60),
        hours => format!("{hours}:{:02}:{:02} h", whole / 60 % 60, whole % 60),
    }
}

fn tabs(screen: &Screen, width: usize) -> Line<'static> {
    let mut line = Line::default();
    // Names if there is room for all of them.
    let long: usize = screen.pages().iter().map(|p| p.name().len() + 4).sum();
    for (at, page) in screen.pages().iter().enumerate() {
        let own = *page == screen.page && !screen.help;
        let text = match long <= width || own {
            true => format!(" {} {}", at + 1, page.name()),
            false => format!(" {}", at + 1),
        };
        let style = match own {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Tone::Label.style(screen.about.color),
        };
        line.push_span(Span::styled(text, style));
        line.push_span(Span::raw(" "));
    }
    line
}

fn foot(screen: &Screen, width: usize) -> Line<'static> {
    let color = screen.about.color;
    if let Some(status) = &screen.status {
        let text = cut(&format!(" {status}"), width, screen.about.unicode);
        return Line::from(Span::styled(text, Tone::Warn.style(color)));
    }
    let mut keys = vec!["q stop", "? help", "Tab page"];
    if screen.about.fixed_rate.is_none() {
        keys.extend(["p pause", "+/- rate"]);
    }
    let mut text = format!(" {}", keys.join("   "));
    if screen.stopping {
        " stopping: waiting for the end of the drain; q again stops at once".clone_into(&mut text);
    } else if let Some(rate) = screen.rate.filter(|rate| *rate != 1.0) {
        text.push_str(&format!("   {:.1} % of the planned rate", rate * 100.0));
    }
    let text = cut(&text, width, screen.about.unicode);
    Line::from(Span::styled(text, Tone::Label.style(color)))
}

/// The lines of a page that fit.
fn page(screen: &Screen, width: usize, height: usize) -> Vec<Line<'static>> {
    let (unicode, color) = (screen.about.unicode, screen.about.color);
    let columns = if width >= WIDE { 2 } else { 1 };
    let room = (width - (columns - 1) * 2) / columns;
    let sections = screen.sections();
    let blocks: Vec<Vec<Line<'static>>> = sections
        .iter()
        .map(|section| section.lines(room, unicode, color))
        .collect();
    let total: usize = blocks.iter().map(|b| b.len() + 1).sum();
    let mut charts = screen.charts().into_iter();
    let mut sides: Vec<Vec<Line<'static>>> = vec![Vec::new(); columns];
    let mut side = 0;
    for block in blocks {
        // The right side begins when the left one has half of the lines, unless all fits alongside charts.
        let half = match charts.len() {
            0 => total.div_ceil(2),
            _ => height,
        };
        let full = !sides[side].is_empty() && sides[side].len() + block.len() > half;
        if full && side + 1 < columns {
            side += 1;
        }
        let lines = &mut sides[side];
        if !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(block);
    }
    for lines in sides.iter_mut().rev() {
        while height.saturating_sub(lines.len() + 1) >= LEAST_CHART {
            let Some(chart) = charts.next() else { break };
            let free = height - lines.len() - usize::from(!lines.is_empty());
            // Another chart has room below, or this chart takes the remaining space.
            let share = match free / (charts.len() + 1) {
                few if few < LEAST_CHART => free,
                share => share,
            };
            if !lines.is_empty() {
                lines.push(Line::default());
            }
            let size = (room, share.clamp(LEAST_CHART, MOST_CHART));
            lines.extend(draw_chart(&chart, size, screen));
        }
    }
    let mut lines = sides.remove(0);
    if let Some(right) = sides.pop().filter(|right| !right.is_empty()) {
        lines.resize(lines.len().max(right.len()), Line::default());
        for (line, right) in lines.iter_mut().zip(right) {
            let blank = (room + 2).saturating_sub(line.width());
            line.push_span(Span::raw(" ".repeat(blank)));
            right
                .spans
                .into_iter()
                .for_each(|span| line.push_span(span));
        }
    }
    window(lines, height, screen)
}

/// The visible part of the lines; the last line counts the hidden ones.
fn window(lines: Vec<Line<'static>>, height: usize, screen: &Screen) -> Vec<Line<'static>> {
    if lines.len() <= height {
        return lines;
    }
    let shown = height - 1;
    let most = lines.len() - shown;
    // Lists with the newest entry at the end are shown from their end, and `above` counts from there.
    let above = match screen.page {
        Page::Trials | Page::Messages if !screen.help => most - screen.above.min(most),
        _ => screen.above.min(most),
    };
    let below = lines.len() - above - shown;
    let mut shown: Vec<_> = lines.into_iter().skip(above).take(shown).collect();
    let arrows = if screen.about.unicode {
        "↑ ↓"
    } else {
        "up/down"
    };
    let text = format!("  {above} lines above, {below} below: {arrows}");
    shown.push(Line::from(Span::styled(
        text,
        Tone::Label.style(screen.about.color),
    )));
    shown
}

/// A chart with its title, its scale and its time.
fn draw_chart(chart_of: &Chart, size: (usize, usize), screen: &Screen) -> Vec<Line<'static>> {
    let (unicode, color) = (screen.about.unicode, screen.about.color);
    let (width, height) = (size.0, size.1 - 2);
    let most = (chart_of.write)(largest(&chart_of.values).unwrap_or(0.0));
    let margin = most.chars().count().max(4) + 3;
    let room = width.saturating_sub(margin + 1);
    // The scale is that of the drawn values: means of neighbours, if there is no room for each value.
    let groups = grouped(&chart_of.values, room);
    let most = (chart_of.write)(largest(&groups).unwrap_or(0.0));
    let axis = if unicode { "┤" } else { "|" };
    let style = if color {
        Style::new().fg(Color::Cyan)
    } else {
        Style::new()
    };
    let mut lines = Section::new(&chart_of.title, Vec::new()).lines(width, unicode, color);
    for (at, bars) in chart(&chart_of.values, room, height, unicode)
        .into_iter()
        .enumerate()
    {
        let label = match at {
            0 => most.clone(),
            at if at + 1 == height => "0".to_owned(),
            _ => String::new(),
        };
        let label = format!("{label:>0$} {axis}", margin - 2);
        lines.push(Line::from(vec![
            Span::styled(label, Tone::Label.style(color)),
            Span::styled(bars, style),
        ]));
    }
    let interval = screen.now.as_ref().map_or(0, |now| now.interval_ns);
    #[allow(clippy::cast_precision_loss)]
    let span = chart_of.values.len() as f64 * interval as f64 / 1e9;
    // Below the column of the oldest value, unless that is too close to the newest.
    let (from, to) = (format!("-{}", seconds(span)), "now");
    let first = margin + room.saturating_sub(groups.len());
    let first = first.min(width.saturating_sub(from.len() + to.len() + 3));
    let blank = width.saturating_sub(first + from.len() + to.len() + 1);
    lines.push(Line::from(Span::styled(
        format!("{}{from}{}{to}", " ".repeat(first), " ".repeat(blank)),
        Tone::Label.style(color),
    )));
    lines
}

fn help(screen: &Screen) -> Section {
    let row = |key: &str, text: &str| Row::Text(format!("{key:<12}{text}"), Tone::Plain);
    let steers = [
        row("p", "pause or resume, if the run supports it"),
        row(
            "+ -",
            "raise or lower the rate by 10 %, if the run supports it",
        ),
    ];
    let (steers, text) = match screen.about.reading {
        None => (
            &steers[..],
            "Rates are of the last interval, counts are since the start. Missing frames are lost or in \
             flight. The report is printed when the screen closes.",
        ),
        Some(_) => (
            &[][..],
            "Rates are of the last interval. Counts since the start are those of all intervals without a reset. The \
             averages are printed when the screen closes.",
        ),
    };
    let mut rows = vec![
        row("q, Ctrl-C", "stop in order; again: stop without waiting"),
        row(
            "1-7, Tab",
            "other pages; Shift-Tab: back, Escape: first page",
        ),
        row("up, down", "scroll a long page"),
    ];
    rows.extend_from_slice(steers);
    rows.extend([
        row(
            "Ctrl-Z",
            "suspend the program and the measurement; fg resumes",
        ),
        row("?", "show or hide this help"),
        Row::Text(text.to_owned(), Tone::Label),
    ]);
    Section::new("Keys", rows)
}
