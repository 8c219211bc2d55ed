//! SNMPv2c request (RFC 3416, BER of X.690): one GetRequest with one variable, and a check of its response. Other parts
//! of SNMP are not supported.

/// Encoded GetRequest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnmpQuestion {
    /// Complete message.
    pub bytes: Vec<u8>,
    /// Offset of the request id: four bytes, valid as shortest encoding only from 0x4000_0000 to 0x7fff_ffff.
    pub id_at: u32,
}

/// Result of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnmpResponse {
    /// Request id.
    pub id: u32,
    /// The response reports an error or contains no value.
    pub is_error: bool,
}

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const NULL: u8 = 0x05;
const OBJECT: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const GET: u8 = 0xa0;
const RESPONSE: u8 = 0xa2;
/// SNMPv2c (RFC 1901 section 3).
const VERSION: [u8; 3] = [INTEGER, 1, 1];
/// noSuchObject, noSuchInstance and endOfMibView replace a value (RFC 3416 section 3).
const EXCEPTIONS: std::ops::RangeInclusive<u8> = 0x80..=0x82;

/// sysUpTime.0 (RFC 3418), which every agent supports.
const SYS_UP_TIME: [u8; 8] = [0x2b, 6, 1, 2, 1, 1, 3, 0];

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = content.len();
    let mut bytes = vec![tag];
    match len {
        0..=0x7f => bytes.push(len as u8),
        0x80..=0xff => bytes.extend([0x81, len as u8]),
        _ => bytes.extend([0x82, (len >> 8) as u8, len as u8]),
    }
    bytes.extend_from_slice(content);
    bytes
}

/// Requests sysUpTime.0. `community` has at most 1,000 bytes.
#[must_use]
pub fn sys_up_time(community: &[u8]) -> SnmpQuestion {
    let variable = [element(OBJECT, &SYS_UP_TIME), element(NULL, &[])].concat();
    let variables = element(SEQUENCE, &element(SEQUENCE, &variable));
    // Request id, error status, error index.
    let id = element(INTEGER, &[0x40, 0, 0, 0]);
    let zero = element(INTEGER, &[0]);
    let pdu = element(GET, &[id, zero.clone(), zero, variables.clone()].concat());
    let bytes = element(
        SEQUENCE,
        &[VERSION.to_vec(), element(OCTETS, community), pdu].concat(),
    );
    // From the end: the variables, two integers of 3 bytes, and the request id of 4 bytes.
    let id_at = bytes.len() - variables.len() - 6 - 4;
    SnmpQuestion {
        bytes,
        id_at: u32::try_from(id_at).unwrap_or(u32::MAX),
    }
}

/// Tag and content of the first element, and the rest. Lengths use at most two bytes, which is enough for a datagram.
fn split_element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81 => {
            let (len, rest) = rest.split_first()?;
            (usize::from(*len), rest)
        }
        0x82 => {
            let (len, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_be_bytes(*len)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((*tag, content, rest))
}

fn expected_element(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (own, content, rest) = split_element(bytes)?;
    (own == tag).then_some((content, rest))
}

/// Non-negative number of up to four bytes.
fn number(content: &[u8]) -> Option<u32> {
    let is_short = (1..=4).contains(&content.len());
    let is_positive = content.first().is_some_and(|first| *first < 0x80);
    (is_short && is_positive).then(|| content.iter().fold(0, |n, byte| n << 8 | u32::from(*byte)))
}

/// Parses a payload; None if it is not an SNMPv2c response.
#[must_use]
pub fn response(payload: &[u8]) -> Option<SnmpResponse> {
    let (message, _) = expected_element(SEQUENCE, payload)?;
    let rest = message.strip_prefix(&VERSION)?;
    let (_community, rest) = expected_element(OCTETS, rest)?;
    let (pdu, _) = expected_element(RESPONSE, rest)?;
    let (id, rest) = expected_element(INTEGER, pdu)?;
    let (status, rest) = expected_element(INTEGER, rest)?;
    let (_index, rest) = expected_element(INTEGER, rest)?;
    let (variables, _) = expected_element(SEQUENCE, rest)?;
    let value = || {
        let (variable, _) = expected_element(SEQUENCE, variables)?;
        let (_name, rest) = expected_element(OBJECT, variable)?;
        Some(split_element(rest)?.0)
    };
    Some(SnmpResponse {
        id: number(id)?,
        is_error: status != [0] || value().is_none_or(|tag| EXCEPTIONS.contains(&tag)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Request of `snmpget -v2c -c public` with this request id.
    const ASKED: [u8; 43] = [
        0x30, 0x29, 0x02, 0x01, 0x01, 0x04, 0x06, b'p', b'u', b'b', b'l', b'i', b'c', 0xa0, 0x1c,
        0x02, 0x04, 0x40, 0x00, 0x00, 0x00, 0x02, 0x01, 0x00, 0x02, 0x01, 0x00, 0x30, 0x0e, 0x30,
        0x0c, 0x06, 0x08, 0x2b, 0x06, 0x01, 0x02, 0x01, 0x01, 0x03, 0x00, 0x05, 0x00,
    ];

    #[test]
    fn a_question_is_what_others_ask() {
        let question = sys_up_time(b"public");
        assert_eq!(question.bytes, ASKED);
        assert_eq!(question.id_at, 17);
        // A longer community moves the id; lengths may need two or three bytes.
        for len in [0, 100, 120, 200, 300, 1000] {
            let question = sys_up_time(&vec![b'x'; len]);
            let at = question.id_at as usize;
            assert_eq!(
                question.bytes[at - 2..at + 4],
                [2, 4, 0x40, 0, 0, 0],
                "{len}"
            );
            let (content, rest) = expected_element(SEQUENCE, &question.bytes).unwrap();
            assert!(rest.is_empty() && content.len() > len);
        }
    }

    fn answered(status: u8, value: &[u8]) -> Vec<u8> {
        let variable = [element(OBJECT, &SYS_UP_TIME), value.to_vec()].concat();
        let pdu = [
            element(INTEGER, &[0x41, 2, 3, 4]),
            element(INTEGER, &[status]),
            element(INTEGER, &[0]),
            element(SEQUENCE, &element(SEQUENCE, &variable)),
        ];
        let message = [
            VERSION.to_vec(),
            element(OCTETS, b"public"),
            element(RESPONSE, &pdu.concat()),
        ];
        element(SEQUENCE, &message.concat())
    }

    #[test]
    fn responses_and_what_is_wrong_with_them() {
        let ticks = [0x43, 3, 1, 2, 3];
        let good = answered(0, &ticks);
        let id = 0x4102_0304;
        let told = |is_error| Some(SnmpResponse { id, is_error });
        assert_eq!(response(&good), told(false));
        // noSuchName, noSuchObject, no value.
        assert_eq!(response(&answered(2, &ticks)), told(true));
        assert_eq!(response(&answered(0, &[0x80, 0])), told(true));
        assert_eq!(response(&answered(0, &[])), told(true));
        // A request and a truncated response are rejected, and nothing panics.
        assert_eq!(response(&ASKED), None);
        for len in 0..good.len() {
            assert_eq!(response(&good[..len]), None, "{len}");
        }
        let mut version_1 = good.clone();
        version_1[4] = 0;
        assert_eq!(response(&version_1), None);
    }
}
