//! Text inside XML and HTML.

use wb_model::text::is_unprintable;

/// Escapes `text` for the content of an element or of a quoted attribute, in XML and HTML. Characters
/// that XML 1.0 section 2.2 excludes become question marks; so do other characters that cannot be printed.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' => out.push(c),
            '\u{fffe}' | '\u{ffff}' => out.push('?'),
            c if is_unprintable(c) => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_its_element_or_attribute() {
        assert_eq!(
            escaped("<a href=\"x\" id='y'>&amp;"),
            "&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp;amp;"
        );
        assert_eq!(escaped("a\x00b\x1bc\u{ffff}d\u{85}e\r"), "a?b?c?d?e?");
        assert_eq!(escaped("µ ± 5\tx\n"), "µ ± 5\tx\n");
        // Text must not look like other text.
        assert_eq!(escaped("a\u{202e}b\u{2066}c\u{2028}"), "a?b?c?");
    }
}
