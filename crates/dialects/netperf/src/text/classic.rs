//! Table of each test.

use wb_model::socket::SocketTest;

use super::detail;
use super::selectors::DataSide;
use super::unit::{self, RateUnit};
use super::values::TestView;
use crate::TestKind;

/// Kind of table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClassicTable {
    Stream,
    RequestResponse,
    Connects,
    Datagrams,
    Segment,
}

impl ClassicTable {
    /// Kind of table by the test name. OMNI has no table, so its traffic decides.
    pub(crate) fn of_view(view: TestView<'_>) -> Self {
        match view.show.kind {
            TestKind::TcpStream
            | TestKind::TcpMaerts
            | TestKind::TcpSendfile
            | TestKind::SctpStream => Self::Stream,
            TestKind::TcpRr | TestKind::UdpRr | TestKind::SctpRr => Self::RequestResponse,
            TestKind::TcpCrr | TestKind::TcpCc => Self::Connects,
            TestKind::UdpStream => Self::Datagrams,
            TestKind::TcpMss => Self::Segment,
            TestKind::Omni | TestKind::LocalCpu | TestKind::RemoteCpu | TestKind::Uuid => {
                match view.job.test {
                    SocketTest::Send if view.job.protocol.is_datagram() => Self::Datagrams,
                    SocketTest::Send | SocketTest::Receive | SocketTest::Both => Self::Stream,
                    SocketTest::Rr => Self::RequestResponse,
                    SocketTest::Crr | SocketTest::Cc => Self::Connects,
                    SocketTest::Mss | SocketTest::ServerCpu => Self::Segment,
                }
            }
        }
    }
}

/// Warning, table and details, depending on the verbosity.
pub(crate) fn tables(view: TestView<'_>) -> String {
    let table = ClassicTable::of_view(view);
    if table == ClassicTable::Segment {
        return segment_line(view);
    }
    let mut text = warning_text(view);
    match view.show.verbosity {
        0 => text += &single_number(view, table),
        1 | 2 => {
            if view.show.headers {
                text += &table_header(view, table);
            }
            text += &table_rows(view, table);
        }
        // The original has no table at higher verbosity.
        _ => (),
    }
    if view.show.verbosity > 1 {
        text += &detail::detail_lines(view, table);
    }
    text
}

/// Returns true if the table has CPU columns.
fn with_cpu(view: TestView<'_>) -> bool {
    view.show.local_cpu || view.show.remote_cpu
}

/// Label of `-B` at the end of a line; the original prints it only without headers.
fn brand_label(view: TestView<'_>) -> &str {
    match &view.show.brand {
        Some(brand) if !view.show.headers => brand,
        _ => "",
    }
}

fn warning_text(view: TestView<'_>) -> String {
    let missed = view.report.confidence.filter(|known| !known.reached);
    // The tests that use the pre-OMNI messages print no warning.
    let silent =
        view.show.strict && matches!(view.show.kind, TestKind::TcpCc | TestKind::TcpSendfile);
    let Some(known) = missed.filter(|_| !silent) else {
        return String::new();
    };
    format!(
        "!!! WARNING\n\
         !!! Desired confidence was not achieved within the specified iterations.\n\
         !!! This implies that there was variability in the test environment that\n\
         !!! must be investigated before going further.\n\
         !!! Confidence intervals: Throughput      : {:>4.3}%\n\
         !!!                       Local CPU util  : {:>4.3}%\n\
         !!!                       Remote CPU util : {:>4.3}%\n\n",
        known.result, known.local_cpu, known.remote_cpu
    )
}

fn segment_line(view: TestView<'_>) -> String {
    let mut text = String::new();
    if view.show.headers && view.show.verbosity > 0 {
        text += "Maximum\nSegment\nSize (bytes)\n\n";
    }
    let bytes = view.report.segment_bytes.map_or(-1, i64::from);
    text + &format!("{bytes} {}\n", brand_label(view))
}

/// One number: the service demand if CPU use was requested, or else the result.
fn single_number(view: TestView<'_>, table: ClassicTable) -> String {
    let brand = brand_label(view);
    if with_cpu(view) {
        let side = if view.show.local_cpu {
            DataSide::Local
        } else {
            DataSide::Remote
        };
        let demand = view.service_demand(side);
        return match table {
            ClassicTable::Connects => format!("{demand:>6.3}\n"),
            ClassicTable::Datagrams => {
                // The original names its local method of measurement, whichever end it prints.
                let side = if view.show.strict {
                    DataSide::Local
                } else {
                    side
                };
                format!("{demand:>6.2} {}\n", view.cpu_method(side))
            }
            _ => format!("{demand:>6.3} {} {brand}\n", view.cpu_method(side)),
        };
    }
    let result = unit::main_result(view.show, view.job, &view.report.result);
    match table {
        ClassicTable::Connects => format!("{result:>7.2}\n"),
        ClassicTable::Datagrams => {
            let sent = sent_rate(view);
            format!("{sent:>7.2}\n")
        }
        _ => format!("{result:>7.2} {brand}\n"),
    }
}

fn sent_rate(view: TestView<'_>) -> f64 {
    RateUnit::of_result(view.show, view.job)
        .convert_rate(view.report.result.sent_bps, view.show.strict)
}

fn table_header(view: TestView<'_>, table: ClassicTable) -> String {
    let unit = RateUnit::of_result(view.show, view.job);
    let name = unit.name();
    let (local, remote) = (
        view.cpu_method(DataSide::Local),
        view.cpu_method(DataSide::Remote),
    );
    let transactions = unit == RateUnit::Transactions;
    match (table, with_cpu(view)) {
        (ClassicTable::Stream | ClassicTable::Segment, false) => format!(
            "Recv   Send    Send                          \n\
             Socket Socket  Message  Elapsed              \n\
             Size   Size    Size     Time     Throughput  \n\
             bytes  bytes   bytes    secs.    {name}/sec  \n\n"
        ),
        (ClassicTable::Stream | ClassicTable::Segment, true) => {
            let words = if view.job.test == SocketTest::Receive {
                "Recv     Send     Recv    Send"
            } else {
                "Send     Recv     Send    Recv"
            };
            format!(
                "Recv   Send    Send                          Utilization       Service Demand\n\
                 Socket Socket  Message  Elapsed              {words}\n\
                 Size   Size    Size     Time     Throughput  local    remote   local   remote\n\
                 bytes  bytes   bytes    secs.    {name:<8.8}/s  % {local}      % {remote}      \
                 us/KB   us/KB\n\n"
            )
        }
        (ClassicTable::RequestResponse, false) if !transactions => format!(
            "Local /Remote\n\
             Socket Size   Request  Resp.   Elapsed  \n\
             Send   Recv   Size     Size    Time     Throughput \n\
             bytes  Bytes  bytes    bytes   secs.    {name}/sec   \n\n"
        ),
        (ClassicTable::RequestResponse | ClassicTable::Connects, false) => "Local /Remote\n\
             Socket Size   Request  Resp.   Elapsed  Trans.\n\
             Send   Recv   Size     Size    Time     Rate         \n\
             bytes  Bytes  bytes    bytes   secs.    per sec   \n\n"
            .to_owned(),
        (ClassicTable::RequestResponse, true) => {
            let (rate, name, per) = if transactions {
                ("Trans.", "Rate", "Tr")
            } else {
                ("Tput", name, "KB")
            };
            format!(
                "Local /Remote\n\
                 Socket Size   Request Resp.  Elapsed {rate:<8} CPU    CPU    S.dem   S.dem\n\
                 Send   Recv   Size    Size   Time    {name:<8.8} local  remote local   remote\n\
                 bytes  bytes  bytes   bytes  secs.   per sec  % {local}    % {remote}    \
                 us/{per}   us/{per}\n\n"
            )
        }
        (ClassicTable::Connects, true) => "Local /Remote\n\
             Socket Size   Request Resp.  Elapsed Trans.   CPU    CPU    S.dem   S.dem\n\
             Send   Recv   Size    Size   Time    Rate     local  remote local   remote\n\
             bytes  bytes  bytes   bytes  secs.   per sec  %      %      us/Tr   us/Tr\n\n"
            .to_owned(),
        (ClassicTable::Datagrams, false) => format!(
            "Socket  Message  Elapsed      Messages                \n\
             Size    Size     Time         Okay Errors   Throughput\n\
             bytes   bytes    secs            #      #   {name}/sec\n\n"
        ),
        (ClassicTable::Datagrams, true) => format!(
            "Socket  Message  Elapsed      Messages                   CPU      Service\n\
             Size    Size     Time         Okay Errors   Throughput   Util     Demand\n\
             bytes   bytes    secs            #      #   {name}/sec % {local}{remote}     us/KB\n\n"
        ),
    }
}

fn table_rows(view: TestView<'_>, table: ClassicTable) -> String {
    match table {
        ClassicTable::Stream | ClassicTable::Segment => stream_row(view),
        ClassicTable::RequestResponse | ClassicTable::Connects => transaction_rows(view, table),
        ClassicTable::Datagrams => datagram_rows(view),
    }
}

/// Socket buffer as shown in the tables: its size at the start of the test.
fn shown_buffer_size(sizes: [Option<u32>; 3]) -> u32 {
    sizes[1].or(sizes[2]).unwrap_or(0)
}

fn stream_row(view: TestView<'_>) -> String {
    let (local, remote) = (&view.report.local, &view.report.remote);
    let down = view.job.test == SocketTest::Receive;
    let (receiver, sender) = if down {
        (local, remote)
    } else {
        (remote, local)
    };
    let message = sender.send_size.unwrap_or(0);
    // With CPU use, the original swaps the sizes of the ends if data comes from the server.
    let (receiver, sender) = if down && with_cpu(view) && view.show.strict {
        (sender, receiver)
    } else {
        (receiver, sender)
    };
    let sizes = format!(
        "{:>6} {:>6} {message:>6}    {:<6.2}",
        shown_buffer_size(receiver.receive_buffer),
        shown_buffer_size(sender.send_buffer),
        view.report.result.elapsed_s
    );
    let result = unit::main_result(view.show, view.job, &view.report.result);
    let brand = brand_label(view);
    if !with_cpu(view) {
        return format!("{sizes}   {result:>7.2}   {brand}\n");
    }
    format!(
        "{sizes}     {result:>7.2}   {:<6.2}   {:<6.2}   {:<6.3}  {:<6.3} {brand}\n",
        view.cpu_total(DataSide::Local),
        view.cpu_total(DataSide::Remote),
        view.service_demand(DataSide::Local),
        view.service_demand(DataSide::Remote)
    )
}

fn transaction_rows(view: TestView<'_>, table: ClassicTable) -> String {
    let (local, remote) = (&view.report.local, &view.report.remote);
    let (send, receive) = (
        shown_buffer_size(local.send_buffer),
        shown_buffer_size(local.receive_buffer),
    );
    let (request, response) = (view.job.request_size, view.job.response_size);
    let elapsed = view.report.result.elapsed_s;
    let result = unit::main_result(view.show, view.job, &view.report.result);
    let connects = table == ClassicTable::Connects;
    let brand = if connects { "" } else { brand_label(view) };
    let first = if with_cpu(view) {
        let gap = if connects || view.show.kind == TestKind::UdpRr {
            "   "
        } else {
            "  "
        };
        let end = if connects {
            String::new()
        } else {
            format!(" {brand}")
        };
        format!(
            "{send:<6} {receive:<6} {request:<6}  {response:<6} {elapsed:<6.2}  {result:<6.2}\
             {gap}{:<6.2} {:<6.2} {:<6.3}  {:<6.3}{end}\n",
            view.cpu_total(DataSide::Local),
            view.cpu_total(DataSide::Remote),
            view.service_demand(DataSide::Local),
            view.service_demand(DataSide::Remote)
        )
    } else {
        format!(
            "{send:<6} {receive:<6} {request:<6}   {response:<6}  {elapsed:<6.2}   \
             {result:>7.2}   {brand}\n"
        )
    };
    let second = format!(
        "{:<6} {:<6}\n",
        shown_buffer_size(remote.send_buffer),
        shown_buffer_size(remote.receive_buffer)
    );
    first + &second
}

fn datagram_rows(view: TestView<'_>) -> String {
    let (local, remote) = (&view.report.local, &view.report.remote);
    let elapsed = view.report.result.elapsed_s;
    let result = unit::main_result(view.show, view.job, &view.report.result);
    let first = format!(
        "{:>6}  {:>6}   {elapsed:<7.2}   {:>7} {:>6}    ",
        shown_buffer_size(local.send_buffer),
        local.send_size.unwrap_or(0),
        local.send_calls,
        local.failed_sends
    );
    let second = format!(
        "{:>6}           {elapsed:<7.2}   {:>7}           ",
        shown_buffer_size(remote.receive_buffer),
        remote.receive_calls
    );
    let sent = sent_rate(view);
    if !with_cpu(view) {
        return format!("{first}{sent:>7.2}\n{second}{result:>7.2}\n\n");
    }
    let cpu = |side| {
        format!(
            "     {:<6.2}   {:<6.3}\n",
            view.cpu_total(side),
            view.service_demand(side)
        )
    };
    format!(
        "{first}{sent:>7.1}{}{second}{result:>7.1}{}\n",
        cpu(DataSide::Local),
        cpu(DataSide::Remote)
    )
}
