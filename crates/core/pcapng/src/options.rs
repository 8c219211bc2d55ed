//! Options at the end of pcapng blocks: code, length, value padded to four bytes.

use crate::bytes::{ByteOrder, ByteSink, align4};

pub(crate) const COMMENT: u16 = 1;

/// Private options of a vendor: text or bytes, that may or may not be copied.
pub(crate) const CUSTOM: [u16; 4] = [2988, 2989, 19372, 19373];

pub(crate) const SHB_HARDWARE: u16 = 2;
pub(crate) const SHB_OS: u16 = 3;
pub(crate) const SHB_APPLICATION: u16 = 4;

pub(crate) const IF_NAME: u16 = 2;
pub(crate) const IF_DESCRIPTION: u16 = 3;
pub(crate) const IF_IPV4: u16 = 4;
pub(crate) const IF_IPV6: u16 = 5;
pub(crate) const IF_EUI: u16 = 7;
pub(crate) const IF_ZONE: u16 = 10;
pub(crate) const IF_HARDWARE: u16 = 15;
pub(crate) const IF_TXSPEED: u16 = 16;
pub(crate) const IF_RXSPEED: u16 = 17;
pub(crate) const IF_MAC: u16 = 6;
pub(crate) const IF_SPEED: u16 = 8;
pub(crate) const IF_TSRESOL: u16 = 9;
pub(crate) const IF_FILTER: u16 = 11;
pub(crate) const IF_OS: u16 = 12;
pub(crate) const IF_FCSLEN: u16 = 13;
pub(crate) const IF_TSOFFSET: u16 = 14;

pub(crate) const EPB_FLAGS: u16 = 2;
pub(crate) const EPB_HASH: u16 = 3;
pub(crate) const EPB_VERDICT: u16 = 7;
pub(crate) const EPB_DROPCOUNT: u16 = 4;
pub(crate) const EPB_PACKETID: u16 = 5;
pub(crate) const EPB_QUEUE: u16 = 6;

pub(crate) const ISB_START: u16 = 2;
pub(crate) const ISB_END: u16 = 3;
pub(crate) const ISB_IFRECV: u16 = 4;
pub(crate) const ISB_IFDROP: u16 = 5;
pub(crate) const ISB_FILTERACCEPT: u16 = 6;
pub(crate) const ISB_OSDROP: u16 = 7;
pub(crate) const ISB_USRDELIV: u16 = 8;

/// Iterator over the options in `rest`, up to the end mark, the end, or the first option that does not fit.
#[derive(Debug)]
pub(crate) struct BlockOptions<'a> {
    order: ByteOrder,
    rest: &'a [u8],
    /// True if an option exceeded the block.
    pub(crate) cut: bool,
}

impl<'a> BlockOptions<'a> {
    pub(crate) fn new(order: ByteOrder, rest: &'a [u8]) -> Self {
        Self {
            order,
            rest,
            cut: false,
        }
    }
}

impl<'a> Iterator for BlockOptions<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let code = self.order.u16(self.rest)?;
        let len = usize::from(self.order.u16(self.rest.get(2..)?)?);
        if code == 0 {
            self.rest = &[];
            return None;
        }
        let Some(value) = self.rest.get(4..4 + len) else {
            self.cut = true;
            self.rest = &[];
            return None;
        };
        self.rest = self.rest.get(4 + align4(len)..).unwrap_or_default();
        Some((code, value))
    }
}

/// Returns the text before the first byte that is not UTF-8, and true if that is all of it.
pub(crate) fn text(value: &[u8]) -> (&str, bool) {
    match std::str::from_utf8(value) {
        Ok(text) => (text, true),
        Err(error) => {
            let valid = &value[..error.valid_up_to()];
            (std::str::from_utf8(valid).unwrap_or_default(), false)
        }
    }
}

/// Appends `bytes` and zeros up to a multiple of four.
pub(crate) fn put_padded(bytes: &[u8], out: &mut impl ByteSink) {
    out.append(bytes);
    out.append(&[0; 3][..align4(bytes.len()) - bytes.len()]);
}

/// Writes the options of one block, and an end mark if there are any.
pub(crate) struct Emit<'s, S> {
    out: &'s mut S,
    any: bool,
}

impl<'s, S: ByteSink> Emit<'s, S> {
    pub(crate) fn new(out: &'s mut S) -> Self {
        Self { out, any: false }
    }

    fn head(&mut self, code: u16, len: usize) {
        let ([c0, c1], [l0, l1]) = (code.to_le_bytes(), (len as u16).to_le_bytes());
        self.out.append(&[c0, c1, l0, l1]);
        self.any = true;
    }

    /// Writes a byte value; 64 KiB and more are cut.
    pub(crate) fn bytes(&mut self, code: u16, value: Option<&[u8]>) -> &mut Self {
        if let Some(value) = value {
            let value = &value[..value.len().min(u16::MAX.into())];
            self.head(code, value.len());
            put_padded(value, self.out);
        }
        self
    }

    pub(crate) fn text(&mut self, code: u16, value: Option<&str>) -> &mut Self {
        self.bytes(code, value.map(str::as_bytes))
    }

    pub(crate) fn u32(&mut self, code: u16, value: Option<u32>) -> &mut Self {
        self.bytes(code, value.map(u32::to_le_bytes).as_ref().map(|b| &b[..]))
    }

    pub(crate) fn u64(&mut self, code: u16, value: Option<u64>) -> &mut Self {
        self.bytes(code, value.map(u64::to_le_bytes).as_ref().map(|b| &b[..]))
    }

    /// Writes a timestamp: upper half first, in either byte order.
    pub(crate) fn time(&mut self, code: u16, value: Option<u64>) -> &mut Self {
        self.u64(code, value.map(|time| time.rotate_left(32)))
    }

    /// Writes a filter as BPF text, behind a byte that identifies the format.
    pub(crate) fn filter(&mut self, code: u16, value: Option<&str>) -> &mut Self {
        if let Some(value) = value {
            let value = &value.as_bytes()[..value.len().min(usize::from(u16::MAX) - 1)];
            let len = 1 + value.len();
            self.head(code, len);
            self.out.append(&[0]);
            self.out.append(value);
            self.out.append(&[0; 3][..align4(len) - len]);
        }
        self
    }

    pub(crate) fn end(&mut self) {
        if self.any {
            self.out.append(&[0; 4]);
        }
    }
}
