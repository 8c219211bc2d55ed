//! Streams that the server opens: settings and control of the connection.

use crate::{
    Http3Fault,
    frame::{self, code, kind, stream},
    stream::PartialFrame,
};

/// Maximum length of a frame that is read as a whole, in bytes.
const LONGEST: u64 = 4096;

/// Stream types that have been opened.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    control: bool,
    encoder: bool,
    decoder: bool,
}

/// One stream from the server.
#[derive(Debug)]
pub(crate) enum Uni {
    /// The type has not arrived yet.
    New(Vec<u8>),
    Control {
        begun: PartialFrame,
        /// The current frame: type and bytes left.
        frame: Option<(u64, u64)>,
        payload: Vec<u8>,
        settings: bool,
    },
    Encoder,
    Decoder,
    /// A stream of unknown type.
    Other,
}

impl Uni {
    pub(crate) const NEW: Self = Self::New(Vec::new());

    /// Returns true if the connection ends with this stream.
    pub(crate) const fn has_to_stay(&self) -> bool {
        matches!(self, Self::Control { .. } | Self::Encoder | Self::Decoder)
    }

    /// Reads bytes. Calls `away` with the stream number of each GOAWAY.
    pub(crate) fn read(
        &mut self,
        opened: &mut Opened,
        mut bytes: &[u8],
        away: &mut impl FnMut(u64) -> Result<(), Http3Fault>,
    ) -> Result<(), Http3Fault> {
        while let Self::New(begun) = self {
            let Some((byte, rest)) = bytes.split_first() else {
                return Ok(());
            };
            begun.push(*byte);
            bytes = rest;
            let Some(kind) = frame::take_integer(&mut &begun[..]) else {
                continue;
            };
            *self = begin(kind, opened)?;
        }
        match self {
            Self::New(_) | Self::Other | Self::Decoder => Ok(()),
            // Only confirmations that the table stays empty: RFC 9204 section 4.3.1.
            Self::Encoder => match bytes.iter().all(|b| *b == 0x20) {
                true => Ok(()),
                false => Err(Http3Fault {
                    code: code::ENCODER_STREAM_ERROR,
                    what: "insertion into the QPACK table, whose capacity is 0",
                }),
            },
            Self::Control {
                begun,
                frame,
                payload,
                settings,
            } => loop {
                let (kind, left) = match *frame {
                    Some(frame) => frame,
                    None => match begun.take_header(&mut bytes) {
                        Some((kind, len)) => {
                            may_be(kind, len, settings)?;
                            (kind, len)
                        }
                        None => return Ok(()),
                    },
                };
                let now = left.min(bytes.len() as u64) as usize;
                let (piece, rest) = bytes.split_at(now);
                bytes = rest;
                let left = left - now as u64;
                if matters(kind) {
                    payload.extend_from_slice(piece);
                }
                *frame = (left > 0).then_some((kind, left));
                if left > 0 {
                    return Ok(());
                }
                match kind {
                    kind::SETTINGS => check_settings(payload)?,
                    kind::GOAWAY => away(only_number(payload)?)?,
                    _ => {}
                }
                payload.clear();
            },
        }
    }
}

const fn matters(kind: u64) -> bool {
    matches!(kind, kind::SETTINGS | kind::GOAWAY)
}

fn begin(kind: u64, opened: &mut Opened) -> Result<Uni, Http3Fault> {
    let (place, uni) = match kind {
        stream::CONTROL => (
            &mut opened.control,
            Uni::Control {
                begun: PartialFrame::default(),
                frame: None,
                payload: Vec::new(),
                settings: false,
            },
        ),
        stream::ENCODER => (&mut opened.encoder, Uni::Encoder),
        stream::DECODER => (&mut opened.decoder, Uni::Decoder),
        stream::PUSH => {
            return Err(Http3Fault {
                code: code::ID_ERROR,
                what: "push stream although push is disabled",
            });
        }
        _ => return Ok(Uni::Other),
    };
    match std::mem::replace(place, true) {
        false => Ok(uni),
        true => Err(Http3Fault {
            code: code::STREAM_CREATION_ERROR,
            what: "duplicate control or QPACK stream",
        }),
    }
}

/// Checks that a frame is allowed here: RFC 9114 sections 6.2.1 and 7.2.
fn may_be(kind: u64, len: u64, settings: &mut bool) -> Result<(), Http3Fault> {
    let wrong = |code, what| Err(Http3Fault { code, what });
    let first = !std::mem::replace(settings, true);
    match kind {
        kind::SETTINGS if !first => wrong(code::FRAME_UNEXPECTED, "SETTINGS come twice"),
        kind::SETTINGS | kind::GOAWAY if len > LONGEST => {
            wrong(code::EXCESSIVE_LOAD, "control frame longer than 4096 bytes")
        }
        kind::SETTINGS => Ok(()),
        _ if first => wrong(
            code::MISSING_SETTINGS,
            "the control stream does not start with SETTINGS",
        ),
        kind::DATA | kind::HEADERS | kind::PUSH_PROMISE | kind::MAX_PUSH_ID => wrong(
            code::FRAME_UNEXPECTED,
            "unexpected frame on the control stream",
        ),
        kind::CANCEL_PUSH => wrong(code::ID_ERROR, "CANCEL_PUSH without a push"),
        0x2 | 0x6 | 0x8 | 0x9 => wrong(code::FRAME_UNEXPECTED, "HTTP/2 frame type in HTTP/3"),
        _ => Ok(()),
    }
}

/// Checks the syntax of SETTINGS: RFC 9114 section 7.2.4. None of them matters without a dynamic table.
fn check_settings(mut payload: &[u8]) -> Result<(), Http3Fault> {
    let wrong = |code, what| Err(Http3Fault { code, what });
    let mut seen = Vec::new();
    while !payload.is_empty() {
        let (Some(name), Some(_)) = (
            frame::take_integer(&mut payload),
            frame::take_integer(&mut payload),
        ) else {
            return wrong(code::FRAME_ERROR, "truncated SETTINGS");
        };
        if matches!(name, 0x0 | 0x2..=0x5) {
            return wrong(code::SETTINGS_ERROR, "HTTP/2 setting in HTTP/3");
        }
        if seen.contains(&name) {
            return wrong(code::SETTINGS_ERROR, "duplicate setting");
        }
        seen.push(name);
    }
    Ok(())
}

fn only_number(mut payload: &[u8]) -> Result<u64, Http3Fault> {
    match (frame::take_integer(&mut payload), payload) {
        (Some(number), []) => Ok(number),
        _ => Err(Http3Fault {
            code: code::FRAME_ERROR,
            what: "malformed GOAWAY",
        }),
    }
}
