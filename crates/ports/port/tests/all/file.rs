//! Tests of the public interface of the file driver.

use std::path::{Path, PathBuf};
use std::time::Duration;

use wb_pcapng::{LINK_ETHERNET, LINK_RAW, PcapWriter, PcapngWriter};
use wb_port::clock::{Clock, VirtualClock};
use wb_port::file::{self, FileRx, Timing};
use wb_port::{PortError, QueuePair, RxQueue, StampSource, TxQueue};

const START: u64 = 1_700_000_000_000_000_000;

fn still() -> Clock {
    VirtualClock::new(5).into()
}

/// Writes a file of frames with these timestamps after START. The n-th frame has length 60 + n.
fn write(dir: &Path, link_type: u16, stamps: &[u64]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut writer = PcapWriter::new(link_type, &mut bytes);
    for (n, stamp) in stamps.iter().enumerate() {
        writer.record(
            START + stamp,
            60 + n as u32,
            &vec![n as u8; 60 + n],
            &mut bytes,
        );
    }
    let path = dir.join("in.pcap");
    std::fs::write(&path, bytes).unwrap();
    path
}

fn receive(rx: &mut FileRx, max: usize) -> Vec<(u8, usize, u64)> {
    let mut seen = Vec::new();
    let n = rx.receive(max, |frame| {
        assert_eq!(frame.stamp_source, StampSource::Recorded);
        seen.push((frame.bytes[0], frame.bytes.len(), frame.stamp_ns - START));
    });
    assert_eq!(n.unwrap(), seen.len());
    seen
}

#[test]
fn replays_as_fast_as_possible_to_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), LINK_ETHERNET, &[0, 10, 5_000_000_000]);
    let mut port = file::open(&path, Timing::AsFastAsPossible, still()).unwrap();
    assert_eq!(port.facts.locator, format!("file:{}", path.display()));
    assert_eq!(port.facts.warnings, Vec::<String>::new());
    let rx = port.queue.rx();
    assert_eq!((rx.frames(), rx.recorded_ns()), (3, 5_000_000_000));
    assert!(rx.wait(Duration::from_secs(60)).unwrap());
    assert_eq!(receive(rx, 2), [(0, 60, 0), (1, 61, 10)]);
    assert_eq!(receive(rx, 2), [(2, 62, 5_000_000_000)]);
    assert!(matches!(
        rx.receive(1, |_| ()),
        Err(PortError::EndOfFile { .. })
    ));
    assert!(matches!(
        rx.wait(Duration::ZERO),
        Err(PortError::EndOfFile { .. })
    ));
    assert_eq!(rx.counters().received_frames, 3);
    rx.rewind();
    assert_eq!(receive(rx, 9).len(), 3);
    let tx = port.queue.tx();
    assert_eq!(tx.lend(1), 0);
    tx.submit(0);
    tx.flush().unwrap();
}

#[test]
fn replays_in_recorded_timing() {
    let dir = tempfile::tempdir().unwrap();
    // The third timestamp goes back in time: the frame arrives with the previous one.
    let path = write(dir.path(), LINK_ETHERNET, &[100, 200, 150, 400]);
    let clock = VirtualClock::new(77);
    let timing = Timing::Recorded { speed: 2.0 };
    let mut port = file::open(&path, timing, clock.clone().into()).unwrap();
    let rx = port.queue.rx();
    let first = |frames: Vec<(u8, usize, u64)>| frames.iter().map(|f| f.0).collect::<Vec<_>>();
    assert_eq!(first(receive(rx, 9)), [0]);
    clock.advance(49);
    assert!(!rx.wait(Duration::from_secs(60)).unwrap());
    assert!(first(receive(rx, 9)).is_empty());
    clock.advance(1);
    assert!(rx.wait(Duration::ZERO).unwrap());
    assert_eq!(first(receive(rx, 9)), [1, 2]);
    clock.advance(1_000);
    assert_eq!(first(receive(rx, 9)), [3]);
}

#[test]
fn writes_what_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.pcap");
    let clock = VirtualClock::new(START);
    let mut port = file::create(&path, clock.clone().into()).unwrap();
    let tx = port.queue.tx();
    for round in 0..300u64 {
        assert_eq!(tx.lend(3), 3);
        for i in 0..3 {
            let slot = tx.slot(i);
            if round > 0 {
                assert_eq!((*slot.cookie, slot.bytes[0]), (i as u64 + 1, i as u8));
            }
            slot.bytes[..70].fill(i as u8);
            *slot.len = 70;
            *slot.cookie = i as u64 + 1;
        }
        tx.submit(3);
        if round == 7 {
            let mut back = 0;
            tx.withdraw(|frame| back += frame.len());
            assert_eq!(back, 210);
        }
        clock.advance(10);
        tx.flush().unwrap();
        assert_eq!(tx.in_flight(), 0);
    }
    let counters = tx.counters();
    assert_eq!(
        (counters.submitted_frames, counters.sent_frames),
        (900, 897)
    );
    assert_eq!(
        (counters.withdrawn_frames, counters.sent_octets),
        (3, 897 * 70)
    );
    assert_eq!(tx.lend(1000), 256);
    assert_eq!(port.queue.rx().receive(9, |_| ()).unwrap(), 0);

    let mut port = file::open(&path, Timing::AsFastAsPossible, still()).unwrap();
    let back = receive(port.queue.rx(), usize::MAX);
    assert_eq!(back.len(), 897);
    assert_eq!((back[0], back[896]), ((0, 70, 10), (2, 70, 3_000)));
}

#[test]
fn pcapng_is_read_too_without_its_fcs_and_cut_frames_keep_their_length() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = Vec::new();
    let mut writer = PcapngWriter::new("test", &mut bytes);
    let interface = writer.interface("eth0", LINK_ETHERNET, &mut bytes);
    writer.record(interface, START + 3, 1514, &[7; 96], &mut bytes);
    let path = dir.path().join("in.pcapng");
    std::fs::write(&path, bytes).unwrap();
    let mut port = file::open(&path, Timing::AsFastAsPossible, still()).unwrap();
    port.queue
        .rx()
        .receive(1, |frame| {
            assert_eq!(
                (frame.bytes.len(), frame.original_len, frame.size()),
                (96, 1514, 1518)
            );
            assert_eq!(frame.stamp_ns, START + 3);
        })
        .unwrap();
}

#[test]
fn a_damaged_end_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), LINK_ETHERNET, &[1, 2, 3]);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    let mut port = file::open(&path, Timing::AsFastAsPossible, still()).unwrap();
    assert_eq!(receive(port.queue.rx(), 9).len(), 2);
    let warning = &port.facts.warnings[0];
    assert!(
        warning.contains("truncated")
            && warning.ends_with("; only the frames before it are replayed (2)"),
        "{warning}"
    );
}

#[test]
fn what_cannot_be_replayed_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |path: &Path, timing| {
        let error = file::open(path, timing, still()).unwrap_err().to_string();
        error.replace(&format!("file:{}: ", path.display()), "")
    };
    let raw = write(dir.path(), LINK_RAW, &[1]);
    assert_eq!(
        refused(&raw, Timing::AsFastAsPossible),
        "frame 1 has link type 101; only Ethernet (1) can be replayed"
    );
    assert_eq!(
        refused(&raw, Timing::Recorded { speed: 0.0 }),
        "replay speed must be above 0, got 0"
    );
    let text = dir.path().join("text");
    std::fs::write(&text, "no capture file").unwrap();
    assert!(refused(&text, Timing::AsFastAsPossible).contains("not a pcap or pcapng file"));
    let missing = dir.path().join("missing");
    assert!(refused(&missing, Timing::AsFastAsPossible).starts_with("cannot open the file: "));
    // Sparse: uses no disk space.
    let large = dir.path().join("large");
    std::fs::File::create(&large)
        .unwrap()
        .set_len(file::MAX_FILE + 1)
        .unwrap();
    assert!(refused(&large, Timing::AsFastAsPossible).contains(
        "exceed the limit of 1073741824 for a replay, which is held in memory; cut it with `editcap"
    ));
}
