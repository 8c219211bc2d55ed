//! Every message of the program in one file, `messages.md`, to be read from top to bottom: errors, warnings, notes,
//! verdicts and the longer labels. `scripts/prose` checks its English. Help texts are in the snapshots of `help.rs`.
//!
//! `INSTA_UPDATE=always cargo test -p wb-cli --test all` writes the file again.

use std::{fmt::Write as _, fs, path::Path};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::architecture::sources;

/// Fewest words that make a literal a message rather than a key or a label.
const FEWEST_WORDS: usize = 3;

/// The messages of a file or macro, in the order of its source, without those of attributes and of test items.
fn collect(tokens: TokenStream, messages: &mut Vec<String>) {
    let mut tokens = tokens.into_iter().peekable();
    let mut is_for_tests = false;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                tokens.next_if(|next| matches!(next, TokenTree::Punct(p) if p.as_char() == '!'));
                let Some(TokenTree::Group(attribute)) = tokens.next() else {
                    continue;
                };
                let text = attribute.stream().to_string().replace(' ', "");
                is_for_tests |= text == "test" || text.starts_with("cfg(test");
                if text.starts_with("error(") {
                    collect(attribute.stream(), messages);
                }
            }
            TokenTree::Group(group) => {
                let ends_item = group.delimiter() == Delimiter::Brace;
                if !is_for_tests {
                    collect(group.stream(), messages);
                }
                is_for_tests &= !ends_item;
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => is_for_tests = false,
            TokenTree::Literal(literal) if !is_for_tests => {
                let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) else {
                    continue;
                };
                messages.push(text.value());
            }
            _ => {}
        }
    }
}

/// Returns true for a text in words, as opposed to a key, a label, a format or a page's markup.
fn is_message(text: &str) -> bool {
    let words = text
        .split(|c: char| !c.is_alphabetic())
        .filter(|word| word.len() > 1);
    text.trim().contains(' ')
        && !text.trim_start().starts_with('<')
        && words.count() >= FEWEST_WORDS
}

#[test]
fn all_messages_are_in_one_file() {
    let mut page = String::from(
        "# All messages\n\nMade from the sources by `messages.rs`: text literals of three words or more, without help texts.\n",
    );
    let mut sources = sources();
    sources.sort();
    for (place, text) in sources {
        let is_left_out = ["testbed/", "testing/"]
            .iter()
            .any(|o| place.starts_with(o));
        if is_left_out && !place.starts_with("testbed/src/self_test") {
            continue;
        }
        let tokens = text.parse().expect("a source is Rust");
        let mut messages = Vec::new();
        collect(tokens, &mut messages);
        messages.retain(|message| is_message(message));
        if messages.is_empty() {
            continue;
        }
        let _ = write!(page, "\n## {place}\n\n");
        for message in messages {
            let line = message
                .trim()
                .replace('\r', "\\r")
                .replace('\n', "\\n")
                .replace('\t', "\\t");
            let _ = writeln!(page, "- {line}");
        }
    }
    let golden = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/all/messages.md"
    ));
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        fs::write(golden, &page).expect("the file can be written");
    }
    let expected = fs::read_to_string(golden).unwrap_or_default();
    let differs = expected
        .lines()
        .zip(page.lines())
        .find(|(expected, actual)| expected != actual);
    assert!(
        expected == page,
        "messages.md is out of date (INSTA_UPDATE=always writes it); first difference: {differs:?}"
    );
}
