//! Frames passed to a sink: displayed frames count as written, at any kind of end.

use std::io;
use std::sync::{Arc, Mutex};

use crate::common::*;
use proptest::prelude::*;
use wb_capture::{
    Capture, CaptureControl, FrameAccount, FrameSink, SinkEnd, SinkFlush, SinkFrame, run_reader,
    run_writer,
};
use wb_model::capture::{CaptureOutput, FileFormat};

/// Displays this number of frames, then ends in the given way.
struct Until {
    left: u64,
    how: fn() -> SinkEnd,
    taken: Vec<Waiting>,
    out: Arc<Mutex<Vec<Waiting>>>,
}

impl FrameSink for Until {
    fn frame(&mut self, frame: &SinkFrame<'_>) {
        self.taken.push(Waiting {
            stamp_ns: frame.stamp_ns,
            bytes: frame.bytes.to_vec(),
            original_len: frame.original_len,
            vlan: None,
        });
    }

    fn flush(&mut self, _: &dyn Fn() -> bool) -> SinkFlush {
        let frames = self.left.min(self.taken.len() as u64);
        let end = (frames < self.taken.len() as u64).then(self.how);
        self.left -= frames;
        let out = self.taken.drain(..).take(frames as usize);
        self.out.lock().unwrap().extend(out);
        SinkFlush { frames, end }
    }
}

fn sink(left: u64, how: fn() -> SinkEnd) -> (Box<dyn FrameSink>, Arc<Mutex<Vec<Waiting>>>) {
    let out = Arc::new(Mutex::new(Vec::new()));
    let sink = Until {
        left,
        how,
        taken: Vec::new(),
        out: out.clone(),
    };
    (Box::new(sink), out)
}

fn run(
    output: Option<CaptureOutput>,
    limit: Option<u64>,
    sink: Box<dyn FrameSink>,
    feeds: Vec<Feed>,
) -> (FrameAccount, CaptureControl) {
    let mut spec = spec(1, output);
    spec.limit = limit;
    let control = CaptureControl::new();
    let clock = clock(1);
    let opened = Capture::open_with(&spec, Some(sink), feeds.len(), START_NS).unwrap();
    let (readers, writer) = std::thread::scope(|scope| {
        let (control, clock) = (&control, &clock);
        let (seats, writer) = (opened.readers, opened.writer);
        let writer = scope.spawn(move || run_writer(writer, control, clock));
        let readers: Vec<_> = seats
            .into_iter()
            .zip(feeds)
            .map(|(seat, mut feed)| {
                scope.spawn(move || run_reader(&mut feed, seat, 0, control, clock))
            })
            .collect();
        let readers: Vec<_> = readers.into_iter().map(|r| r.join().unwrap()).collect();
        (readers, writer.join().unwrap())
    });
    (FrameAccount::of_capture(&readers, &writer), control)
}

#[test]
fn a_sink_beside_a_file_sees_what_the_file_has_and_does_not_stop_it() {
    for left in [u64::MAX, 100] {
        let (_dir, path) = scratch();
        let (sink, out) = sink(left, || SinkEnd::Unwanted);
        let output = CaptureOutput {
            path: path.display().to_string(),
            format: FileFormat::Pcapng,
            ..CaptureOutput::default()
        };
        let sent = frames(5_000, 300);
        let (account, _) = run(Some(output), None, sink, vec![Feed::new(sent.clone())]);
        assert_eq!(account.captured, 5_000);
        assert_eq!(content(&read(path)).frames, sent);
        let shown = out.lock().unwrap();
        assert_eq!(*shown, sent[..sent.len().min(left as usize)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// F = W + K + E + Q + C + U, W is the number of displayed frames, and a sink whose viewer has closed loses none.
    #[test]
    fn every_frame_is_out_or_told(
        counts in prop::collection::vec(0_u64..3_000, 1..4),
        len in 60_usize..1_000,
        dropped in 0_u64..50,
        left in prop_oneof![Just(u64::MAX), 0_u64..4_000],
        limit in prop_oneof![Just(None), (1_u64..4_000).prop_map(Some)],
        how in 0_usize..3,
    ) {
        let how: fn() -> SinkEnd = [
            || SinkEnd::Unwanted,
            || SinkEnd::GivenUp,
            || SinkEnd::Failed(io::ErrorKind::StorageFull.into()),
        ][how];
        let feeds = counts.iter().map(|count| {
            let mut feed = Feed::new(frames(*count, len));
            feed.dropped = dropped;
            feed
        });
        let passed: u64 = counts.iter().map(|count| count + dropped).sum();
        let (sink, out) = sink(left, how);
        let (account, control) = run(None, limit, sink, feeds.collect());
        prop_assert!(account.adds_up(), "{account:?}");
        prop_assert_eq!(account.filter_accept + account.queue_drop, passed, "{:?}", account);
        prop_assert_eq!(account.captured, out.lock().unwrap().len() as u64);
        if matches!(how(), SinkEnd::Unwanted) {
            prop_assert_eq!(account.not_written, 0);
            prop_assert!(!control.output_failed());
        } else if account.not_written > 0 {
            prop_assert!(control.output_failed());
        }
    }
}
