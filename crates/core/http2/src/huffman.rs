//! Huffman code of strings in header blocks: RFC 7541 section 5.2 and appendix B.
//!
//! The code is canonical: codes of one length are consecutive in the order of their symbols, and those of the next
//! length follow. The lengths therefore define the code.

/// Code length of each byte, in bits. The last is that of the end symbol, which no string contains.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

const LONGEST: usize = 30;
const SHORTEST: usize = 5;

/// For each length: first code, number of codes, and index of the first symbol in [`SYMBOLS`].
const RANGES: [(u32, u32, usize); LONGEST + 1] = {
    let mut ranges = [(0, 0, 0); LONGEST + 1];
    let (mut code, mut at, mut length) = (0, 0, 1);
    while length <= LONGEST {
        code <<= 1;
        let (mut n, mut symbol) = (0, 0);
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                n += 1;
            }
            symbol += 1;
        }
        ranges[length] = (code, n, at);
        code += n;
        at += n as usize;
        length += 1;
    }
    ranges
};

/// Symbols in the order of their codes.
const SYMBOLS: [u16; 257] = {
    let mut symbols = [0; 257];
    let (mut at, mut length) = (0, 1);
    while length <= LONGEST {
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                symbols[at] = symbol as u16;
                at += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    symbols
};

/// Appends the decoded string. Returns false if it is not valid code.
pub(crate) fn decode(string: &[u8], out: &mut Vec<u8>) -> bool {
    let (mut bits, mut held) = (0_u64, 0);
    let mut rest = string.iter();
    loop {
        while held <= 32
            && let Some(byte) = rest.next()
        {
            bits = bits << 8 | u64::from(*byte);
            held += 8;
        }
        let mut length = SHORTEST;
        let symbol = loop {
            if length > held.min(LONGEST) {
                break None;
            }
            let (first, n, at) = RANGES[length];
            let code = (bits >> (held - length)) as u32 & ((1 << length) - 1);
            if code < first + n {
                // The codes of the previous length end where these begin.
                break Some(SYMBOLS[at + (code - first) as usize]);
            }
            length += 1;
        };
        match symbol {
            Some(256) => return false,
            Some(symbol) => {
                out.push(symbol as u8);
                held -= length;
            }
            // Up to seven bits of the end symbol pad the last byte.
            None => return held < 8 && bits & ((1 << held) - 1) == (1 << held) - 1,
        }
    }
}

/// Appends the encoded string.
pub(crate) fn encode(string: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut held) = (0_u64, 0);
    for byte in string {
        let (code, length) = code_of(*byte);
        bits = bits << length | u64::from(code);
        held += length;
        while held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    if held > 0 {
        out.push((bits << (8 - held)) as u8 | (0xff >> held));
    }
}

fn code_of(byte: u8) -> (u32, usize) {
    let length = LENGTHS[usize::from(byte)] as usize;
    let (first, _, at) = RANGES[length];
    let place = SYMBOLS[at..].iter().take_while(|s| **s != u16::from(byte));
    (first + place.count() as u32, length)
}
