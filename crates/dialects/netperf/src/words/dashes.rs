//! Dashes other than hyphens, which documents and word processors put into command lines.

use super::NoteLine;

/// Hyphen, non-breaking hyphen, figure dash, en dash, em dash, horizontal bar, minus, small and full
/// width forms.
const DASHES: [char; 11] = [
    '\u{2010}', '\u{2011}', '\u{2012}', '\u{2013}', '\u{2014}', '\u{2015}', '\u{2212}', '\u{fe58}',
    '\u{fe63}', '\u{ff0d}', '\u{2e3a}',
];
/// Result of the conversion of `--` into a single dash.
const EM_DASH: &str = "\u{2014}";

/// Replaces each dash at the beginning of a word by a hyphen, and returns a note if there were any. Otherwise
/// `–p 4444` would be ignored as a word that is not an option, and the test would use another port.
pub(super) fn with_hyphens(words: &[String]) -> (Vec<String>, Option<NoteLine>) {
    let mut changed = Vec::new();
    let plain = words
        .iter()
        .map(|word| {
            let rest = word.trim_start_matches(|c| c == '-' || DASHES.contains(&c));
            let dashes = &word[..word.len() - rest.len()];
            if dashes.bytes().all(|byte| byte == b'-') {
                return word.clone();
            }
            changed.push(word.as_str());
            match word == EM_DASH {
                true => "--".to_owned(),
                false => "-".repeat(dashes.chars().count()) + rest,
            }
        })
        .collect();
    let note = (!changed.is_empty()).then(|| NoteLine {
        text: format!(
            "wirebench: a dash is read as a hyphen: {}\n",
            changed.join(" ")
        ),
        to_stdout: false,
    });
    (plain, note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dash_of_any_kind_is_a_hyphen() {
        for (typed, meant, notes) in [
            (
                "\u{2013}H h \u{2212}p 4444 -l 20 -- -m 1",
                "-H h -p 4444 -l 20 -- -m 1",
                true,
            ),
            ("-H h \u{2014} \u{2014}m 1", "-H h -- -m 1", true),
            ("-H h \u{2013}\u{2013} -m 1", "-H h -- -m 1", true),
            ("-l \u{2212}1000", "-l -1000", true),
            ("-H a\u{2013}b -l -5", "-H a\u{2013}b -l -5", false),
        ] {
            let words: Vec<String> = typed.split(' ').map(str::to_owned).collect();
            let (plain, note) = with_hyphens(&words);
            assert_eq!(plain.join(" "), meant);
            assert_eq!(note.is_some(), notes, "{typed}");
        }
    }
}
