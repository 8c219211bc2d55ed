//! Stores the bytes of refused frames until the sender reads them.

/// Refused frames, concatenated in one buffer that is reused.
#[derive(Debug, Default)]
pub(crate) struct RefusedFrames {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl RefusedFrames {
    /// Keeps a frame.
    pub(crate) fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    /// Passes all frames to `each`, oldest first, and clears the buffer.
    pub(crate) fn take<F: FnMut(&[u8])>(&mut self, mut each: F) {
        let mut start = 0;
        for end in self.ends.drain(..) {
            each(&self.bytes[start..end]);
            start = end;
        }
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_out_once_and_in_order() {
        let mut refused = RefusedFrames::default();
        refused.push(b"one");
        refused.push(b"");
        refused.push(b"three");
        let mut seen = Vec::new();
        refused.take(|frame| seen.push(frame.to_vec()));
        assert_eq!(seen, [&b"one"[..], b"", b"three"]);
        refused.take(|_| panic!("all were taken"));
    }
}
