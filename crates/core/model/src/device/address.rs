//! IPv4 addresses, parsed as the kernel's packet generator does; Rust's library differs.

/// Parses an IPv4 text as a number. No text is an error: each of the first four parts is read as if all its characters
/// were digits, and ORed into the word; missing parts are 0.
#[must_use]
pub fn lax_ipv4(text: &str) -> u32 {
    let mut parts = text.split('.');
    (0..4).fold(0u32, |word, _| {
        let part = parts.next().unwrap_or("").chars().fold(0u32, |value, c| {
            value
                .wrapping_mul(10)
                .wrapping_add(c as u32)
                .wrapping_sub(u32::from(b'0'))
        });
        word << 8 | part
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_texts_are_never_refused() {
        for (text, shown) in [
            ("10.0.0.5", [10, 0, 0, 5]),
            ("300.1.2.3", [44, 1, 2, 3]),
            ("notanip", [58, 0, 0, 0]),
            ("1.2", [1, 2, 0, 0]),
            ("1..2", [1, 0, 2, 0]),
            ("10.0.0.1.7", [10, 0, 0, 1]),
            ("4294967297.1.2.3", [1, 1, 2, 3]),
            ("-1.2.3.4", [227, 2, 3, 4]),
            ("10.0.0.1/24", [10, 0, 3, 156]),
            ("", [0, 0, 0, 0]),
        ] {
            assert_eq!(lax_ipv4(text).to_be_bytes(), shown, "{text}");
        }
    }
}
