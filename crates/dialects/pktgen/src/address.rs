//! Addresses in the kernel's notation, which differs from that of Rust's library.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use wb_model::units::Mac;

/// Returns true if `text` is an IPv4 address in strict notation.
pub(crate) fn is_ipv4(text: &str) -> bool {
    text.parse::<std::net::Ipv4Addr>().is_ok()
}

/// Reads an IPv6 address up to the first character that cannot belong to one (`/64`, `%eth0`).
/// Groups may have any number of leading zeros.
pub(crate) fn lax_ipv6(text: &str) -> Option<Ipv6Addr> {
    let end = text
        .find(|c: char| !c.is_ascii_hexdigit() && c != ':' && c != '.')
        .unwrap_or(text.len());
    let text = &text[..end];
    let (head, tail) = match text.split_once("::") {
        Some((head, tail)) => (head, Some(tail)),
        None => (text, None),
    };
    let head = parse_groups(head, tail.is_none())?;
    let mut all = [0; 8];
    let Some(tail) = tail else {
        return Some(Ipv6Addr::from(<[u16; 8]>::try_from(head).ok()?));
    };
    let tail = parse_groups(tail, true)?;
    // A `::` stands for at least one group.
    if head.len() + tail.len() > 7 {
        return None;
    }
    all[..head.len()].copy_from_slice(&head);
    all[8 - tail.len()..].copy_from_slice(&tail);
    Some(Ipv6Addr::from(all))
}

/// Groups on one side of a `::`. The last group of the address may be a dotted quad.
fn parse_groups(text: &str, may_end_dotted: bool) -> Option<Vec<u16>> {
    let mut groups = Vec::new();
    if text.is_empty() {
        return Some(groups);
    }
    for part in text.split(':') {
        if part.contains('.') {
            if !may_end_dotted {
                return None;
            }
            let quad = parse_dotted(part)?;
            groups.extend([(quad >> 16) as u16, quad as u16]);
            // The address ends here, even before a colon.
            return Some(groups);
        } else {
            let digits = part.trim_start_matches('0');
            if part.is_empty() || digits.len() > 4 {
                return None;
            }
            groups.push(u16::from_str_radix(part, 16).ok()?);
        }
    }
    Some(groups)
}

/// Value of a dotted quad, with leading zeros allowed.
fn parse_dotted(text: &str) -> Option<u32> {
    let mut word = 0;
    let mut count = 0;
    for part in text.split('.') {
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let digits = part.trim_start_matches('0');
        let value: u32 = if digits.is_empty() {
            0
        } else {
            digits.parse().ok()?
        };
        if value > 255 {
            return None;
        }
        word = word << 8 | value;
        count += 1;
    }
    (count == 4).then_some(word)
}

/// Text of the address in RFC 5952 form, with a dotted quad at the end of IPv4-mapped and ISATAP
/// addresses (lib/vsprintf.c, `%pI6c`).
pub(crate) fn show_ipv6(address: Ipv6Addr) -> String {
    let groups = address.segments();
    let mapped = address.to_ipv4_mapped().is_some();
    // RFC 5214 section 6.1: ::5efe or 200:5efe precedes the IPv4 address.
    let isatap = groups[4] & !0x200 == 0 && groups[5] == 0x5efe;
    let plain = if mapped || isatap { 6 } else { 8 };
    let (mut best, mut best_len) = (0, 1);
    let mut at = 0;
    while at < plain {
        let run = groups[at..plain].iter().take_while(|g| **g == 0).count();
        if run > best_len {
            (best, best_len) = (at, run);
        }
        at += run.max(1);
    }
    let mut text = String::new();
    let mut at = 0;
    while at < plain {
        if best_len > 1 && at == best {
            text.push_str("::");
            at += best_len;
            continue;
        }
        if at > 0 && !text.ends_with(':') {
            text.push(':');
        }
        let _ = write!(text, "{:x}", groups[at]);
        at += 1;
    }
    if plain == 6 {
        if !text.ends_with(':') {
            text.push(':');
        }
        let [.., a, b, c, d] = address.octets();
        let _ = write!(text, "{a}.{b}.{c}.{d}");
    }
    text
}

/// MAC address `hh:hh:hh:hh:hh:hh` at the beginning of `text`.
pub(crate) fn parse_mac(text: &str) -> Option<Mac> {
    let bytes = text.as_bytes();
    if bytes.len() < 17 {
        return None;
    }
    let mut octets = [0; 6];
    for (index, octet) in octets.iter_mut().enumerate() {
        let digit = |at: usize| char::from(bytes[3 * index + at]).to_digit(16);
        *octet = (digit(0)? << 4 | digit(1)?) as u8;
        if index < 5 && bytes[3 * index + 2] != b':' {
            return None;
        }
    }
    Some(Mac(octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_texts() {
        for (text, shown) in [
            ("2001:DB8::1", Some("2001:db8::1")),
            ("::ffff:1.2.3.4", Some("::ffff:1.2.3.4")),
            ("fe80::5efe:1.2.3.4", Some("fe80::5efe:1.2.3.4")),
            ("fe80::200:5efe:1.2.3.4", Some("fe80::200:5efe:1.2.3.4")),
            ("::5efe:1.2.3.4", Some("::5efe:1.2.3.4")),
            ("1:0:0:2:0:0:0:3", Some("1:0:0:2::3")),
            ("1:2:0:4:5:6:7:8", Some("1:2:0:4:5:6:7:8")),
            ("1:2:3:4:5:6:7:8/64", Some("1:2:3:4:5:6:7:8")),
            ("fd00::1%eth0", Some("fd00::1")),
            ("00001::", Some("1::")),
            ("::1.2.3.4", Some("::102:304")),
            ("::", Some("::")),
            ("1:2:3:4:5:6:7::", Some("1:2:3:4:5:6:7:0")),
            ("::1.2.3.4:5", Some("::102:304")),
            ("1:2:3:4::5:6:7:8", None),
            ("1:2:3:4:5:6:7:8:9", None),
            ("1::2::3", None),
            ("12345::", None),
            (":1", None),
            ("1:", None),
            ("::1.2.3", None),
            ("garbage", None),
            ("", None),
        ] {
            assert_eq!(lax_ipv6(text).map(show_ipv6).as_deref(), shown, "{text}");
        }
    }

    #[test]
    fn macs() {
        assert_eq!(
            parse_mac("00:11:22:33:44:55:66").unwrap().to_string(),
            "00:11:22:33:44:55"
        );
        for bad in ["0:1:2:3:4:5", "00-11-22-33-44-55", "00:11:22:33:44:5", ""] {
            assert_eq!(parse_mac(bad), None, "{bad}");
        }
    }
}
