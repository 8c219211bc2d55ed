//! Help of an option, from the doc comment of its field.

use crate::Opt;

/// Returns the help, and the long help if the comment has several paragraphs. `subject` is the object that the option
/// is for, if the table has several.
///
/// The text of a plan becomes text of options: `key` is the option of that field, and a default is in square brackets.
pub(crate) fn texts(
    comment: &str,
    subject: &str,
    is_repeated: bool,
    table: &[Opt],
) -> (String, Option<String>) {
    let paragraphs = comment.split("\n\n").map(|text| text.replace('\n', " "));
    let all: Vec<String> = paragraphs.map(|text| reworded(&text, table)).collect();
    let mut short = all.first().cloned().unwrap_or_default();
    if !subject.is_empty() {
        short = format!("{subject}: {}", continued(&short));
    }
    if is_repeated {
        short.truncate(short.trim_end_matches('.').len());
        short.push_str("; repeatable.");
    }
    let long = (all.len() > 1).then(|| [&[short.clone()], &all[1..]].concat().join("\n\n"));
    // Without its full stop, as clap writes doc comments.
    let short = short.strip_suffix('.').map(str::to_owned).unwrap_or(short);
    (short, long)
}

/// Returns a sentence that follows a colon: without its capital, unless that belongs to an abbreviation.
fn continued(sentence: &str) -> String {
    let mut letters = sentence.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => sentence.to_owned(),
    }
}

fn reworded(text: &str, table: &[Opt]) -> String {
    let mut reworded = String::new();
    // Code is between backticks: every second part.
    for (part, text) in text.split('`').enumerate() {
        match part % 2 {
            0 => reworded.push_str(text),
            _ => reworded.push_str(&code(text, table)),
        }
    }
    let Some((before, rest)) = reworded.split_once("(default") else {
        return reworded;
    };
    match rest.split_once(')') {
        Some((default, after)) => {
            let default = default.trim_start_matches([':', ' ']);
            format!("{before}[default: {default}]{after}")
        }
        None => reworded,
    }
}

/// Returns the option for `key`, or for `key = "value"`, and other code unchanged.
fn code(text: &str, table: &[Opt]) -> String {
    let (key, value) = text.split_once(" = ").unwrap_or((text, ""));
    let is_for = |option: &&Opt| option.path().rsplit('.').next() == Some(key);
    match table.iter().find(is_for) {
        None => text.to_owned(),
        Some(option) if value.is_empty() => format!("--{}", option.long),
        Some(option) => format!("--{} {}", option.long, value.trim_matches('"')),
    }
}
