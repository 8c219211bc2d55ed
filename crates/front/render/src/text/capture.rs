//! Accounting of the frames of a capture, and the sum that they must make.

use wb_model::report::CaptureReport;

use crate::{
    figures::{count, share, significant},
    page::{Page, Tone},
    table::Table,
};

/// Frames that passed the filter and their fate, the files, and the writing method.
pub(super) fn section(page: &mut Page, head: &str, c: &CaptureReport) {
    page.head(head);
    let all = c.filter_accept_frames;
    let rows = [
        ("passed the filter", all, true, Tone::Plain),
        ("captured", c.captured_frames, true, Tone::Plain),
        ("kernel dropped", c.kernel_drop_frames, true, Tone::Bad),
        ("not written", c.not_written_frames, true, Tone::Bad),
        ("queue dropped", c.queue_drop_frames, false, Tone::Bad),
        ("over the limit", c.over_limit_frames, false, Tone::Plain),
        ("not read", c.not_read_frames, false, Tone::Bad),
        (
            "interface dropped",
            c.interface_drop_frames,
            false,
            Tone::Bad,
        ),
    ];
    let shown = rows
        .into_iter()
        .filter(|(_, n, always, _)| *n > 0 || *always);
    let (mut table, mut tones) = (Table::new().left("").right("").left(""), Vec::new());
    for (name, n, _, tone) in shown {
        let part = match name {
            "passed the filter" => String::new(),
            _ if all == 0 => String::new(),
            _ => share(n, all),
        };
        table.row([name.to_owned(), count(n), part]);
        tones.push(if n > 0 { tone } else { Tone::Plain });
    }
    for (line, tone) in table.lines(2).iter().zip(tones) {
        page.line(tone, line);
    }
    sum(page, c);
    files(page, c);
}

fn sum(page: &mut Page, c: &CaptureReport) {
    let parts = [
        ("captured", c.captured_frames, true),
        ("kernel dropped", c.kernel_drop_frames, true),
        ("not written", c.not_written_frames, false),
        ("queue dropped", c.queue_drop_frames, false),
        ("over the limit", c.over_limit_frames, false),
        ("not read", c.not_read_frames, false),
    ];
    let parts = parts.iter().filter(|(_, n, always)| *n > 0 || *always);
    let text: Vec<String> = parts
        .map(|(name, n, _)| format!("{name} {}", count(*n)))
        .collect();
    let text = format!(
        "passed {} = {}",
        count(c.filter_accept_frames),
        text.join(" + ")
    );
    match c.exact {
        true => page.item(Tone::Plain, "  sum         ", Tone::Plain, &text),
        false => {
            let text = format!("DOES NOT ADD UP: {text}");
            page.item(Tone::Bad, "  sum         ", Tone::Bad, &text);
        }
    }
}

/// Bytes, in the customary unit for memory and files.
fn octets(n: u64) -> String {
    match n {
        0..=0xf_ffff => format!("{} bytes", count(n)),
        _ => format!("{} MiB", significant(n as f64 / f64::from(1 << 20), 3)),
    }
}

fn files(page: &mut Page, c: &CaptureReport) {
    if let Some(last) = &c.last_file {
        let text = match c.files {
            1 => format!("{last}, {}", octets(c.file_octets)),
            n => format!(
                "{} files, {}; last: {last}",
                count(n),
                octets(c.file_octets)
            ),
        };
        page.item(Tone::Plain, "  written     ", Tone::Plain, &text);
    }
    if let Some(error) = &c.write_error {
        page.item(Tone::Bad, "  error       ", Tone::Bad, error);
    }
    let text = format!(
        "ring {}, longest poll gap {} ms, longest write {} ms",
        octets(c.ring_bytes),
        significant(c.longest_gap_ms, 3),
        significant(c.longest_write_ms, 3)
    );
    page.item(Tone::Plain, "  readers     ", Tone::Plain, &text);
}
