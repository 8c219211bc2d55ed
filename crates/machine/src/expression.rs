//! Compiles filter expressions (`tcp port 80 and not host 10.0.0.1`) to programs, with libpcap.
//!
//! Needs no privileges and no interface. libpcap may resolve names in an expression.

use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pcap::{Capture, Dead, Linktype};
use wb_filter::{Instruction, Program, TAG_CONTROL, TapError, unroll};

/// Link type of Ethernet: LINKTYPE_ETHERNET.
pub const LINK_ETHERNET: u16 = 1;
/// Link type of bare IP packets: LINKTYPE_RAW.
pub const LINK_RAW: u16 = 101;
/// Link type of a Linux cooked capture: LINKTYPE_LINUX_SLL.
pub const LINK_COOKED: u16 = 113;
/// Link type of a Linux cooked capture, second version: LINKTYPE_LINUX_SLL2.
pub const LINK_COOKED_2: u16 = 276;

/// Expression that cannot be compiled.
///
/// The displayed text is one line; [`ExpressionError::render`] marks the place of the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    /// Expression as given.
    pub expression: String,
    /// Message of libpcap.
    pub message: String,
    /// Byte range of the error, if it could be found. Empty at the end of the expression if more text is expected.
    pub place: Option<Range<usize>>,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "filter `{}`: {}", self.expression, self.message)?;
        match &self.place {
            Some(place) if place.is_empty() => formatter.write_str(", at the end"),
            Some(place) => write!(formatter, ", at `{}`", &self.expression[place.clone()]),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ExpressionError {}

impl ExpressionError {
    /// The faulty line of the expression, carets below the error, and the message.
    pub fn render(&self) -> String {
        let Some(place) = &self.place else {
            return format!("{}\n{}", self.expression, self.message);
        };
        let (before, _) = self.expression.split_at(place.start);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        let line = &self.expression[line_start..];
        let line = line.lines().next().unwrap_or_default();
        // A tab in front of the caret has the width of the tab above it.
        let indent: String = before[line_start..]
            .chars()
            .map(|character| if character == '\t' { '\t' } else { ' ' })
            .collect();
        let width = self.expression[place.clone()].chars().count().max(1);
        format!("{line}\n{indent}{}\n{}", "^".repeat(width), self.message)
    }
}

/// Compiles `expression` for whole frames of `link_type` (a LINKTYPE value) and keeps `snap_len` bytes of each.
///
/// The program expects VLAN tags in the bytes, as in files, in frames of an AF_XDP socket, and in frames with a
/// restored tag. Packet sockets without the tag need [`compile_for_tap`]. An empty expression keeps every
/// frame. If optimisation shows that no frame can match (`1 = 2`), the expression is an error.
///
/// # Errors
/// libpcap's message and, if found, the place of the error.
pub fn compile(
    expression: &str,
    link_type: u16,
    snap_len: u32,
    optimize: bool,
) -> Result<Program, ExpressionError> {
    Compiler::open(link_type)
        .and_then(|compiler| compiler.program(expression, snap_len, optimize))
        .map_err(|message| ExpressionError {
            place: place(expression, link_type, &message),
            expression: expression.to_owned(),
            message,
        })
}

/// Filter for an `AF_PACKET` socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapFilter {
    /// Program for frames with all tags in the bytes.
    pub whole: Program,
    /// Program for the socket, or the reason why there is none. In that case the caller runs `whole` in user space on
    /// frames with a restored tag.
    pub attach: Result<Program, TapError>,
}

/// Compiles `expression` for taps of Ethernet interfaces. The kernel removes the outer VLAN tag from their frames.
/// `attach` selects the same frames as `whole` does before the removal.
///
/// libpcap makes such filters only for opened interfaces, which needs privileges; this function does not.
///
/// # Errors
/// See [`compile`].
pub fn compile_for_tap(
    expression: &str,
    snap_len: u32,
    optimize: bool,
) -> Result<TapFilter, ExpressionError> {
    let whole = compile(expression, LINK_ETHERNET, snap_len, optimize)?;
    let attach = whole.for_tap();
    Ok(TapFilter { whole, attach })
}

/// Programs for the filter of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveFilter {
    /// Program for frames with all their tags in the bytes: of an AF_XDP socket, or with the tag put back.
    /// The error is the reason why the program cannot be made.
    pub whole: Result<Program, TapError>,
    /// Program for an `AF_PACKET` socket, or the reason why it cannot be made.
    pub attach: Result<Program, TapError>,
}

/// Compiles `expression` for a capture on Ethernet interfaces. It selects the same frames as libpcap on an opened
/// interface.
///
/// The first `vlan` tests the tag that the kernel removed from the frame. All other terms test the frame without that
/// tag: `udp` also finds the datagrams of tagged frames, unlike in a file. Frames without such a tag are filtered like
/// frames of a file.
///
/// libpcap makes such filters only for opened interfaces, which needs privileges; this function does not.
///
/// # Errors
/// See [`compile`].
pub fn compile_live(expression: &str, snap_len: u32) -> Result<LiveFilter, ExpressionError> {
    let compile = |text: &str| compile(text, LINK_ETHERNET, snap_len, true);
    // If no frame of one kind can match, only the other kind is left.
    let matches_nothing = |error: &ExpressionError| error.message.contains("rejects all packets");
    let (untagged, tagged) = match first_tag(expression) {
        None => {
            let program = compile(expression)?;
            (program.clone(), program)
        }
        Some(text) => match (compile(expression), compile(&text)) {
            (Ok(untagged), Ok(tagged)) => (untagged, tagged),
            (Err(error), Ok(tagged)) if matches_nothing(&error) => (Program::reject_all(), tagged),
            (Ok(untagged), Err(error)) if matches_nothing(&error) => {
                (untagged, Program::reject_all())
            }
            (Err(error), _) => return Err(error),
            (_, Err(error)) => {
                return Err(ExpressionError {
                    expression: expression.to_owned(),
                    place: None,
                    ..error
                });
            }
        },
    };
    Ok(LiveFilter {
        whole: Program::for_whole_frames(&untagged, &tagged),
        attach: Program::for_live_tap(&untagged, &tagged),
    })
}

/// Rewrites `vlan 5 and udp` as `ether[TAG_CONTROL:2] & 0xfff = 5 and udp`: the test of a frame with a removed tag.
/// `None` without `vlan`.
fn first_tag(expression: &str) -> Option<String> {
    let tokens = tokens(expression);
    let word = |at: usize| tokens.get(at).map(|token| &expression[token.clone()]);
    let is_number = |text: &&str| text.starts_with(|c: char| c.is_ascii_digit());
    let at = (0..tokens.len()).find(|at| word(*at) == Some("vlan"))?;
    let (last, number) = match (word(at + 1), word(at + 2), word(at + 3)) {
        (Some("("), Some(number), Some(")")) if is_number(&number) => (at + 3, Some(number)),
        (number, ..) if number.as_ref().is_some_and(is_number) => (at + 1, number),
        _ => (at, None),
    };
    let test = match number {
        Some(number) => format!("ether[{TAG_CONTROL}:2] & 0xfff = {number}"),
        None => "1 = 1".to_owned(),
    };
    let (before, behind) = (
        &expression[..tokens[at].start],
        &expression[tokens[last].end..],
    );
    Some(format!("{before}({test}){behind}"))
}

/// libpcap's internal number (a DLT value, pcap/dlt.h) for a LINKTYPE value of a file.
const fn inside(link_type: u16) -> i32 {
    match link_type {
        100 => 11,      // LLC over ATM, RFC 1483
        LINK_RAW => 12, // raw IP
        102 => 15,      // SLIP of BSD/OS
        103 => 16,      // PPP of BSD/OS
        106 => 19,      // classical IP over ATM
        other => other as i32,
    }
}

/// Older versions of libpcap keep the state of their parser in global variables.
static COMPILING: Mutex<()> = Mutex::new(());

struct Compiler(Capture<Dead>);

impl Compiler {
    fn open(link_type: u16) -> Result<Self, String> {
        match Capture::dead(Linktype(inside(link_type))) {
            Ok(handle) => Ok(Self(handle)),
            Err(error) => Err(text(error)),
        }
    }

    fn instructions(&self, expression: &str, optimize: bool) -> Result<Vec<Instruction>, String> {
        let _alone = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
        let program = self.0.compile(expression, optimize).map_err(text)?;
        program
            .get_instructions()
            .iter()
            .map(|instruction| {
                // The fields are private; their text is four decimal numbers.
                let text = instruction.to_string();
                let mut words = text.split(' ');
                let mut next = || words.next()?.parse::<u32>().ok();
                let (code, jt, jf, k) = (next()?, next()?, next()?, next()?);
                Some(Instruction::new(
                    code.try_into().ok()?,
                    jt.try_into().ok()?,
                    jf.try_into().ok()?,
                    k,
                ))
            })
            .collect::<Option<_>>()
            .ok_or_else(|| "libpcap generated an unreadable instruction".to_owned())
    }

    fn program(&self, expression: &str, snap_len: u32, optimize: bool) -> Result<Program, String> {
        let instructions = self.instructions(expression, optimize)?;
        // Unroll the loops of `protochain`; no other jump goes back.
        let program = Program::new(unroll(instructions)).map_err(|error| error.to_string())?;
        // The handle has a fixed snap length, which the crate does not let us choose.
        Ok(program.keeping(snap_len))
    }

    fn takes(&self, expression: &str) -> bool {
        self.instructions(expression, false).is_ok()
    }
}

fn text(error: pcap::Error) -> String {
    match error {
        pcap::Error::PcapError(message) => message,
        pcap::Error::InvalidString => "contains a zero byte".to_owned(),
        other => other.to_string(),
    }
}

/// Finds the error, because libpcap does not report its place. A message often quotes the word. Otherwise the error is
/// at the first word that cannot end any beginning of an expression.
fn place(expression: &str, link_type: u16, message: &str) -> Option<Range<usize>> {
    let tokens = tokens(expression);
    quoted(expression, &tokens, message).or_else(|| {
        let compiler = Compiler::open(link_type).ok()?;
        if !compiler.takes("") {
            return None;
        }
        unexpected(expression, &tokens, message, &compiler)
    })
}

/// Words and operators of an expression.
fn tokens(expression: &str) -> Vec<Range<usize>> {
    let mut tokens: Vec<Range<usize>> = Vec::new();
    let mut joins = false;
    for (at, character) in expression.char_indices() {
        let end = at + character.len_utf8();
        let word = character.is_alphanumeric() || "._-:\\/".contains(character);
        let space = character.is_whitespace();
        match tokens.last_mut() {
            Some(token) if joins && word => token.end = end,
            _ if space => {}
            _ => tokens.push(at..end),
        }
        joins = word;
    }
    tokens
}

fn quoted(expression: &str, tokens: &[Range<usize>], message: &str) -> Option<Range<usize>> {
    // unknown host 'x'; illegal token: x; 'x' modifier ...; invalid ip6 address x
    let words = message
        .split(|character: char| character.is_whitespace() || "'\"`;,()".contains(character));
    let mut found = None;
    for word in words {
        let word = word.trim_end_matches([':', '.']);
        let marked = message.contains(&format!("'{word}'"))
            || message.contains(&format!("\"{word}\""))
            || message.ends_with(&format!(": {word}"))
            || message.ends_with(&format!(" {word}"));
        if word.is_empty() || !marked {
            continue;
        }
        let mut same = tokens
            .iter()
            .filter(|token| &expression[(*token).clone()] == word);
        // A word that occurs twice does not identify the place.
        if let (Some(token), None) = (same.next(), same.next()) {
            found = Some(token.clone());
        }
    }
    found
}

/// The first token that cannot follow the tokens before it: no continuation makes a valid expression.
fn unexpected(
    expression: &str,
    tokens: &[Range<usize>],
    message: &str,
    compiler: &Compiler,
) -> Option<Range<usize>> {
    // One continuation for each state of libpcap's grammar.
    const WAYS_ON: [&str; 14] = [
        "",
        " 1",
        " host 10.0.0.1",
        " 10.0.0.1",
        " 10.0.0.0/8",
        " port 1",
        " 1:2:3:4:5:6",
        " = 1",
        "] = 1",
        "1] = 1",
        " 1 = 1",
        ":1] = 1",
        " tcp",
        "[0] = 1",
    ];
    // libpcap resolves names on each attempt; a long expression of names must not take minutes.
    const TIMEOUT: Duration = Duration::from_millis(500);
    if !message.contains("syntax error") {
        return None;
    }
    let start = Instant::now();
    let can_go_on = |count: usize| {
        let beginning = match count {
            0 => return true,
            count => &expression[..tokens[count - 1].end],
        };
        let open =
            tokens[..count]
                .iter()
                .fold(0_usize, |open, token| match &expression[token.clone()] {
                    "(" => open + 1,
                    ")" => open.saturating_sub(1),
                    _ => open,
                });
        WAYS_ON.iter().any(|way| {
            (0..=open).any(|close| {
                compiler.takes(&format!("{beginning}{way}{}", ")".repeat(close)))
                    || compiler.takes(&format!("{beginning}{}{way}", ")".repeat(close)))
            })
        })
    };
    // Start with the longest beginning: if it can be continued, so can all shorter ones, whereas the list of
    // continuations may be incomplete.
    for count in (0..=tokens.len()).rev() {
        if can_go_on(count) {
            let end = expression.trim_end().len();
            return Some(tokens.get(count).cloned().unwrap_or(end..end));
        }
        if start.elapsed() > TIMEOUT {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use wb_filter::Ancillary;

    fn error(expression: &str) -> ExpressionError {
        compile(expression, LINK_ETHERNET, 262_144, true).unwrap_err()
    }

    fn at(expression: &str) -> Option<String> {
        let error = error(expression);
        let place = error.place?;
        Some(expression[place].to_owned())
    }

    #[test]
    fn the_place_of_a_mistake_is_found() {
        assert_eq!(at("tcp prot 80").as_deref(), Some("prot"));
        assert_eq!(at("tcp port 80 and").as_deref(), Some(""));
        assert_eq!(at("(tcp or udp").as_deref(), Some(""));
        assert_eq!(at("tcp) or udp").as_deref(), Some(")"));
        assert_eq!(at("udp and and tcp").as_deref(), Some("and"));
        assert_eq!(
            at("ip[0:3] = 1").is_some(),
            error("ip[0:3] = 1").place.is_some()
        );
        assert_eq!(at("tcp and tcp[0 = 1").as_deref(), Some("="));
        assert_eq!(at("host 10.0.0.1 ++ tcp").as_deref(), Some("+"));
        assert_eq!(
            at("tcp and ((port 80 or port 81) or or udp)").as_deref(),
            Some("or")
        );
        let second = error("udp and and tcp").place.unwrap();
        assert_eq!(second.start, 8);
    }

    #[test]
    fn a_mistake_is_shown_with_a_caret() {
        let error = error("udp and\n\ttcp prot 80\nand ip");
        assert_eq!(
            error.render(),
            format!("\ttcp prot 80\n\t    ^^^^\n{}", error.message)
        );
        assert!(!error.to_string().is_empty());
        let end = super::compile("tcp and ", LINK_ETHERNET, 1, true).unwrap_err();
        assert_eq!(end.render(), format!("tcp and \n       ^\n{}", end.message));
    }

    #[test]
    fn link_types() {
        for (link_type, at) in [(LINK_ETHERNET, 12), (LINK_COOKED, 14), (LINK_COOKED_2, 0)] {
            let program = compile("ip", link_type, 96, true).unwrap();
            assert_eq!(program.instructions()[0].k, at, "link type {link_type}");
        }
        let mut raw = [0; 40];
        raw[0] = 0x45;
        let program = compile("ip", LINK_RAW, 96, true).unwrap();
        assert_eq!(program.accepts(&raw, 40, &Ancillary::default()), 96);
        assert!(compile("ip", 147, 96, true).is_err());
        // LLC and SNAP over ATM, and over SLIP and PPP of BSD/OS, have other numbers inside libpcap.
        let mut atm = vec![0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
        atm.extend(raw);
        let program = compile("ip", 100, 96, true).unwrap();
        assert_eq!(program.accepts(&atm, 48, &Ancillary::default()), 96);
        for link_type in [9, 12, 102, 103, 104, 106, 107, 228] {
            assert!(compile("ip", link_type, 96, true).is_ok(), "{link_type}");
        }
    }

    #[test]
    fn an_empty_expression_keeps_all() {
        let program = compile("", LINK_ETHERNET, 1500, true).unwrap();
        assert_eq!(program, Program::accept_all(1500));
    }

    #[test]
    fn a_filter_for_taps_sees_tags_that_were_taken() {
        let filter = compile_for_tap("vlan 5 and ip", 262_144, true).unwrap();
        let mut stripped = [0_u8; 60];
        stripped[12..14].copy_from_slice(&[8, 0]);
        let tag = Ancillary {
            vlan_present: true,
            vlan_tci: 0x2005,
            vlan_proto: 0x8100,
            ..Ancillary::default()
        };
        let attach = filter.attach.unwrap();
        assert_ne!(attach.accepts(&stripped, 60, &tag), 0);
        let other = Ancillary { vlan_tci: 6, ..tag };
        assert_eq!(attach.accepts(&stripped, 60, &other), 0);
        assert_eq!(attach.accepts(&stripped, 60, &Ancillary::default()), 0);
    }

    #[test]
    fn live_filters_choose_what_libpcap_chooses_on_an_interface() {
        // UDP to port 9: untagged, in VLAN 31, with a priority tag, and in VLAN 31 inside VLAN 100.
        let frame = |tags: &[(u16, u16)]| {
            let mut frame = vec![2_u8; 12];
            for (tpid, tci) in tags {
                frame.extend([tpid.to_be_bytes(), tci.to_be_bytes()].concat());
            }
            frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17]);
            frame.resize(frame.len() + 12, 0);
            frame.extend([0, 9, 0, 9, 0, 20]);
            frame.resize(64, 0);
            frame
        };
        let frames = [
            frame(&[]),
            frame(&[(0x8100, 31)]),
            frame(&[(0x8100, 0xa000)]),
            frame(&[(0x88a8, 100), (0x8100, 31)]),
        ];
        for (text, chosen) in [
            ("udp port 9", [true, true, true, false]),
            ("vlan and udp port 9", [false, true, true, false]),
            ("vlan 31", [false, true, false, false]),
            ("vlan 0", [false, false, true, false]),
            ("vlan", [false, true, true, true]),
            ("not vlan", [true, false, false, false]),
            ("vlan and vlan", [false, false, false, true]),
            ("ip or (vlan and ip)", [true, true, true, false]),
            ("ether proto 0x88a8", [false; 4]),
            ("vlan 100 and vlan 31 and udp", [false, false, false, true]),
            ("vlan (100) and vlan", [false, false, false, true]),
            ("udp and not vlan", [true, false, false, false]),
            ("(tcp or udp) and vlan 31", [false, true, false, false]),
        ] {
            let filter = compile_live(text, 96).unwrap();
            let (whole, attach) = (filter.whole.unwrap(), filter.attach.unwrap());
            let none = Ancillary::default();
            let by_whole = frames.each_ref().map(|f| whole.accepts(f, 64, &none) > 0);
            let by_tap = frames.each_ref().map(|f| match f[12..14] {
                [8, 0] => attach.accepts(f, 64, &none) > 0,
                _ => {
                    let tag = Ancillary {
                        vlan_present: true,
                        vlan_proto: u16::from_be_bytes([f[12], f[13]]),
                        vlan_tci: u16::from_be_bytes([f[14], f[15]]),
                        ..none
                    };
                    attach.accepts(&[&f[..12], &f[16..]].concat(), 60, &tag) > 0
                }
            });
            assert_eq!((by_whole, by_tap), (chosen, chosen), "{text}");
        }
        // An expression that no frame can match remains an error.
        assert!(compile_live("ip6 and arp and vlan", 96).is_err());
        assert!(compile_live("vlan and and udp", 96).is_err());
        assert_eq!(first_tag("ether host \\vlan"), None);
    }

    #[test]
    fn chains_of_headers_are_followed() {
        let mut frame = vec![2_u8; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, 0, 64]);
        frame.resize(54, 0);
        // Hop-by-hop, routing, destination options, then UDP.
        for next in [43, 60, 17] {
            frame.extend([next, 0, 0, 0, 0, 0, 0, 0]);
        }
        frame.resize(100, 0);
        for (protocol, found) in [(17, true), (6, false), (43, true)] {
            let text = format!("ip6 protochain {protocol}");
            let filter = compile_for_tap(&text, 96, true).unwrap();
            let verdict = |p: &Program| p.accepts(&frame, 100, &Ancillary::default()) > 0;
            assert_eq!(verdict(&filter.whole), found, "{text}");
            assert_eq!(verdict(&filter.attach.unwrap()), found, "{text}");
        }
    }

    #[test]
    fn what_no_frame_can_match_is_an_error_when_optimized() {
        assert_eq!(error("1 = 2").message, "expression rejects all packets");
        let program = compile("1 = 2", LINK_ETHERNET, 1, false).unwrap();
        assert_eq!(program.accepts(&[0; 60], 60, &Ancillary::default()), 0);
    }

    #[test]
    fn many_threads_may_compile() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for port in 1..50 {
                        compile(&format!("udp port {port}"), LINK_ETHERNET, 1, true).unwrap();
                    }
                });
            }
        });
    }
}
