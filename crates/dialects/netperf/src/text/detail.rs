//! Details after a table with `-v 2`.

use wb_model::socket::SocketTest;

use super::classic::ClassicTable;
use super::selectors::DataSide;
use super::unit::RateUnit;
use super::values::{TestView, bytes_per_call};
use crate::TestKind;

/// Lines below a table.
pub(crate) fn detail_lines(view: TestView<'_>, table: ClassicTable) -> String {
    match table {
        ClassicTable::Stream => stream_details(view),
        ClassicTable::RequestResponse if view.show.kind == TestKind::UdpRr => String::new(),
        ClassicTable::RequestResponse => transaction_details(view),
        ClassicTable::Connects => connect_details(view),
        ClassicTable::Datagrams | ClassicTable::Segment => String::new(),
    }
}

fn stream_details(view: TestView<'_>) -> String {
    let (local, remote) = (&view.report.local, &view.report.remote);
    let (ours, theirs) = (&view.job.local, &view.job.remote);
    let down = view.job.test == SocketTest::Receive;
    let header = if down {
        "Alignment      Offset         Bytes    Bytes       Recvs   Bytes    Sends\n\
         Local  Remote  Local  Remote  Xfered   Per                 Per\n\
         Recv   Send    Recv   Send             Recv (avg)          Send (avg)\n"
    } else {
        "Alignment      Offset         Bytes    Bytes       Sends   Bytes    Recvs\n\
         Local  Remote  Local  Remote  Xfered   Per                 Per\n\
         Send   Recv    Send   Recv             Send (avg)          Recv (avg)\n"
    };
    let align = match (down, view.show.strict) {
        (false, _) => (ours.send_align, theirs.receive_align),
        (true, false) => (ours.receive_align, theirs.send_align),
        // The original prints the server's receive buffer here.
        (true, true) => (ours.receive_align, theirs.receive_align),
    };
    let offset = match (down, view.show.strict) {
        (false, _) => (ours.send_offset, theirs.receive_offset),
        (true, false) => (ours.receive_offset, theirs.send_offset),
        (true, true) => (ours.receive_offset, theirs.receive_offset),
    };
    let (first, second) = if down {
        (
            (local.bytes_received, local.receive_calls),
            (remote.bytes_sent, remote.send_calls),
        )
    } else {
        (
            (local.bytes_sent, local.send_calls),
            (remote.bytes_received, remote.receive_calls),
        )
    };
    let bytes = if view.show.kind == TestKind::TcpSendfile {
        four_digits(first.0)
    } else {
        first.0.to_string()
    };
    let segment = view.report.segment_bytes.map_or(-1, i64::from);
    format!(
        "\n{header}\
         {:>5}   {:>5}  {:>5}   {:>5} {bytes:>6}  {:>6.2}    {:>6}   {:>6.2} {:>6}\n\
         \nMaximum\nSegment\nSize (bytes)\n{segment:>6}\n",
        align.0,
        align.1,
        offset.0,
        offset.1,
        bytes_per_call(first.0, first.1),
        first.1,
        bytes_per_call(second.0, second.1),
        second.1
    )
}

fn transaction_details(view: TestView<'_>) -> String {
    let unit = RateUnit::of_result(view.show, view.job).for_bytes();
    let rate = view.report.result.transactions_per_second;
    let way = |bytes: u32| unit.convert_rate(rate * 8.0 * f64::from(bytes), view.show.strict);
    let (ours, theirs) = (&view.job.local, &view.job.remote);
    // The original prints the offset of the server's buffer twice.
    let align = if view.show.strict {
        theirs.receive_offset
    } else {
        theirs.receive_align
    };
    format!(
        "Alignment      Offset         RoundTrip  Trans    Throughput\n\
         Local  Remote  Local  Remote  Latency    Rate     {:<8.8}/s\n\
         Send   Recv    Send   Recv    usec/Tran  per sec  Outbound   Inbound\n\
         {:>5}  {align:>5}   {:>5}  {:>5}   {:<6.3}   {rate:<6.3} {:<6.3}    {:<6.3}\n",
        unit.name(),
        ours.send_align,
        ours.send_offset,
        theirs.receive_offset,
        view.round_trip_us(),
        way(view.job.request_size),
        way(view.job.response_size)
    )
}

fn connect_details(view: TestView<'_>) -> String {
    let (ours, theirs) = (
        view.requested_side(DataSide::Local),
        view.requested_side(DataSide::Remote),
    );
    let align = if view.show.strict && view.show.kind == TestKind::TcpCc {
        theirs.receive_offset
    } else {
        theirs.receive_align
    };
    format!(
        "\nAlignment      Offset\n\
         Local  Remote  Local  Remote\n\
         Send   Recv    Send   Recv\n\
         {:>5}  {align:>5}   {:>5}  {:>5}\n",
        ours.send_align, ours.send_offset, theirs.receive_offset
    )
}

/// A count with at most four digits, or with an exponent if larger, as C prints it for `%.4g`.
fn four_digits(count: u64) -> String {
    if count < 10_000 {
        return count.to_string();
    }
    let text = format!("{:.3e}", count as f64);
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}e+{exponent:0>2}")
}
