//! Counts of a job, and the sums that they must make.

use wb_model::Totals;

use crate::{
    figures::{count, share},
    page::{Page, Tone},
    table::Table,
};

/// A line for each known count, then the sums.
pub(super) fn section(page: &mut Page, t: &Totals) {
    let mut table = Table::new().left("").right("").left("");
    let mut tones = Vec::new();
    for entry in entries(t) {
        if let Some(n) = entry.frames.filter(|n| *n > 0 || entry.even_zero) {
            table.row([
                entry.name.to_owned(),
                count(n),
                if n > 0 || entry.note_zero {
                    entry.note
                } else {
                    String::new()
                },
            ]);
            tones.push(if n > 0 { entry.tone } else { Tone::Plain });
        }
    }
    for (line, tone) in table.lines(2).iter().zip(tones) {
        page.line(tone, line);
    }
    for sum in sums(t) {
        if sum.holds {
            page.item(Tone::Plain, "  sum         ", Tone::Plain, &sum.text);
        } else {
            page.item(
                Tone::Bad,
                "  sum         ",
                Tone::Bad,
                &format!("DOES NOT ADD UP: {}", sum.text),
            );
        }
    }
}

struct Entry {
    name: &'static str,
    frames: Option<u64>,
    note: String,
    /// True if zero has a line.
    even_zero: bool,
    /// True if the note applies to zero, too.
    note_zero: bool,
    /// Tone of counts above zero.
    tone: Tone,
}

fn entries(t: &Totals) -> Vec<Entry> {
    let entry = |name, frames, note: &str| Entry {
        name,
        frames,
        note: note.to_owned(),
        even_zero: true,
        note_zero: false,
        tone: Tone::Plain,
    };
    let part = |frames: Option<u64>, whole: Option<u64>, of: &str| match (frames, whole) {
        (Some(part), Some(whole)) if whole > 0 => format!("{} of {of}", share(part, whole)),
        _ => String::new(),
    };
    let of_base = |frames| match t.offered_frames {
        Some(_) => part(frames, t.offered_frames, "offered"),
        None => part(frames, t.received_frames, "received"),
    };
    let unique = t
        .received_frames
        .map(|n| n.saturating_sub(t.duplicate_frames.unwrap_or(0)));
    let lost_note = if t.offered_frames.is_some() {
        of_base(t.lost_frames)
    } else {
        // The number of sent frames is unknown here; the gaps show how many should have arrived in between.
        let expected = unique.zip(t.lost_frames).map(|(n, lost)| n + lost);
        let share = part(t.lost_frames, expected, "expected");
        if share.is_empty() {
            "sequence gaps".to_owned()
        } else {
            format!("sequence gaps, {share}")
        }
    };
    let received_note = match t.duplicate_frames {
        Some(n) if n > 0 && t.offered_frames.is_some() => format!(
            "{}, without duplicates",
            part(unique, t.offered_frames, "offered")
        ),
        _ => part(unique, t.offered_frames, "offered"),
    };
    let other_run = t.other_run_frames.unwrap_or(0);
    let tagged = t.unplanned_frames.unwrap_or(0).saturating_sub(other_run);
    let mut foreign_note = "unexpected".to_owned();
    for (n, what) in [(other_run, "from another run"), (tagged, "with a test tag")] {
        if n > 0 {
            foreign_note.push_str(&format!("; {} {what}", count(n)));
        }
    }
    vec![
        Entry {
            even_zero: false,
            ..entry(
                "ramp",
                t.ramp_frames,
                "sent during the ramp-up; not counted",
            )
        },
        entry("intended", t.intended_frames, ""),
        entry("offered", t.offered_frames, ""),
        Entry {
            tone: Tone::Doubt,
            ..entry(
                "unsent",
                t.unsent_frames,
                &part(t.unsent_frames, t.intended_frames, "intended"),
            )
        },
        Entry {
            even_zero: false,
            tone: Tone::Doubt,
            ..entry(
                "refused",
                t.refused_frames,
                "by the sending device; not counted as offered",
            )
        },
        Entry {
            note_zero: true,
            ..entry("received", t.received_frames, &received_note)
        },
        Entry {
            note_zero: true,
            tone: Tone::Bad,
            ..entry("lost", t.lost_frames, &lost_note)
        },
        Entry {
            even_zero: false,
            ..entry(
                "head",
                t.head_frames,
                "sequence numbers before the first received frame; not counted as lost",
            )
        },
        Entry {
            tone: Tone::Doubt,
            ..entry(
                "duplicate",
                t.duplicate_frames,
                &of_base(t.duplicate_frames),
            )
        },
        Entry {
            tone: Tone::Doubt,
            ..entry(
                "reordered",
                t.reordered_frames,
                &of_base(t.reordered_frames),
            )
        },
        entry(
            "late",
            t.late_frames,
            "arrived during the drain; counted as received",
        ),
        entry("foreign", t.foreign_frames, &foreign_note),
        Entry {
            tone: Tone::Bad,
            ..entry(
                "rx dropped",
                t.rx_dropped_frames,
                "by the tester, which did not keep up",
            )
        },
    ]
}

struct Sum {
    text: String,
    holds: bool,
}

fn sums(t: &Totals) -> Vec<Sum> {
    let mut sums = Vec::new();
    if let (Some(intended), Some(offered), Some(unsent)) =
        (t.intended_frames, t.offered_frames, t.unsent_frames)
    {
        sums.push(Sum {
            text: format!(
                "intended {} = offered {} + unsent {}",
                count(intended),
                count(offered),
                count(unsent)
            ),
            holds: offered.checked_add(unsent) == Some(intended),
        });
    }
    if let (Some(offered), Some(received), Some(duplicate), Some(lost)) = (
        t.offered_frames,
        t.received_frames,
        t.duplicate_frames,
        t.lost_frames,
    ) {
        sums.push(Sum {
            text: format!(
                "offered {} = received {} - duplicate {} + lost {}",
                count(offered),
                count(received),
                count(duplicate),
                count(lost)
            ),
            holds: received
                .checked_sub(duplicate)
                .and_then(|unique| unique.checked_add(lost))
                == Some(offered),
        });
    }
    sums
}
