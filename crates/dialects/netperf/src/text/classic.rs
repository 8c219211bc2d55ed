//! Table of each test.

use wb_model::socket::SocketTest;

use super::detail;
use super::selectors::Side;
use super::unit::{self, Unit};
use super::values::View;
use crate::TestKind;

/// Kind of table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    Stream,
    RequestResponse,
    Connects,
    Datagrams,
    Segment,
}

impl Table {
    /// Kind of table by the test name. OMNI has no table, so its traffic decides.
    pub(crate) fn of(view: View<'_>) -> Self {
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
pub(crate) fn tables(view: View<'_>) -> String {
    let table = Table::of(view);
    if table == Table::Segment {
        return segment(view);
    }
    let mut text = warning(view);
    match view.show.verbosity {
        0 => text += &number(view, table),
        1 | 2 => {
            if view.show.headers {
                text += &header(view, table);
            }
            text += &rows(view, table);
        }
        // The original has no table at higher verbosity.
        _ => (),
    }
    if view.show.verbosity > 1 {
        text += &detail::details(view, table);
    }
    text
}

/// Returns true if the table has CPU columns.
fn with_cpu(view: View<'_>) -> bool {
    view.show.local_cpu || view.show.remote_cpu
}

/// Label of `-B` at the end of a line; the original prints it only without headers.
fn brand(view: View<'_>) -> &str {
    match &view.show.brand {
        Some(brand) if !view.show.headers => brand,
        _ => "",
    }
}

fn warning(view: View<'_>) -> String {
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

fn segment(view: View<'_>) -> String {
    let mut text = String::new();
    if view.show.headers && view.show.verbosity > 0 {
        text += "Maximum\nSegment\nSize (bytes)\n\n";
    }
    let bytes = view.report.segment_bytes.map_or(-1, i64::from);
    text + &format!("{bytes} {}\n", brand(view))
}

/// One number: the service demand if CPU use was requested, or else the result.
fn number(view: View<'_>, table: Table) -> String {
    let brand = brand(view);
    if with_cpu(view) {
        let side = if view.show.local_cpu {
            Side::Local
        } else {
            Side::Remote
        };
        let demand = view.demand(side);
        return match table {
            Table::Connects => format!("{demand:>6.3}\n"),
            Table::Datagrams => {
                // The original names its local method of measurement, whichever end it prints.
                let side = if view.show.strict { Side::Local } else { side };
                format!("{demand:>6.2} {}\n", view.method(side))
            }
            _ => format!("{demand:>6.3} {} {brand}\n", view.method(side)),
        };
    }
    let result = unit::result(view.show, view.job, &view.report.result);
    match table {
        Table::Connects => format!("{result:>7.2}\n"),
        Table::Datagrams => {
            let sent = sent_rate(view);
            format!("{sent:>7.2}\n")
        }
        _ => format!("{result:>7.2} {brand}\n"),
    }
}

fn sent_rate(view: View<'_>) -> f64 {
    Unit::of(view.show, view.job).rate(view.report.result.sent_bps, view.show.strict)
}

fn header(view: View<'_>, table: Table) -> String {
    let unit = Unit::of(view.show, view.job);
    let name = unit.name();
    let (local, remote) = (view.method(Side::Local), view.method(Side::Remote));
    let transactions = unit == Unit::Transactions;
    match (table, with_cpu(view)) {
        (Table::Stream | Table::Segment, false) => format!(
            "Recv   Send    Send                          \n\
             Socket Socket  Message  Elapsed              \n\
             Size   Size    Size     Time     Throughput  \n\
             bytes  bytes   bytes    secs.    {name}/sec  \n\n"
        ),
        (Table::Stream | Table::Segment, true) => {
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
        (Table::RequestResponse, false) if !transactions => format!(
            "Local /Remote\n\
             Socket Size   Request  Resp.   Elapsed  \n\
             Send   Recv   Size     Size    Time     Throughput \n\
             bytes  Bytes  bytes    bytes   secs.    {name}/sec   \n\n"
        ),
        (Table::RequestResponse | Table::Connects, false) => "Local /Remote\n\
             Socket Size   Request  Resp.   Elapsed  Trans.\n\
             Send   Recv   Size     Size    Time     Rate         \n\
             bytes  Bytes  bytes    bytes   secs.    per sec   \n\n"
            .to_owned(),
        (Table::RequestResponse, true) => {
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
        (Table::Connects, true) => "Local /Remote\n\
             Socket Size   Request Resp.  Elapsed Trans.   CPU    CPU    S.dem   S.dem\n\
             Send   Recv   Size    Size   Time    Rate     local  remote local   remote\n\
             bytes  bytes  bytes   bytes  secs.   per sec  %      %      us/Tr   us/Tr\n\n"
            .to_owned(),
        (Table::Datagrams, false) => format!(
            "Socket  Message  Elapsed      Messages                \n\
             Size    Size     Time         Okay Errors   Throughput\n\
             bytes   bytes    secs            #      #   {name}/sec\n\n"
        ),
        (Table::Datagrams, true) => format!(
            "Socket  Message  Elapsed      Messages                   CPU      Service\n\
             Size    Size     Time         Okay Errors   Throughput   Util     Demand\n\
             bytes   bytes    secs            #      #   {name}/sec % {local}{remote}     us/KB\n\n"
        ),
    }
}

fn rows(view: View<'_>, table: Table) -> String {
    match table {
        Table::Stream | Table::Segment => stream_row(view),
        Table::RequestResponse | Table::Connects => transaction_rows(view, table),
        Table::Datagrams => datagram_rows(view),
    }
}

/// Socket buffer as shown in the tables: its size at the start of the test.
fn size(sizes: [Option<u32>; 3]) -> u32 {
    sizes[1].or(sizes[2]).unwrap_or(0)
}

fn stream_row(view: View<'_>) -> String {
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
        size(receiver.receive_buffer),
        size(sender.send_buffer),
        view.report.result.elapsed_s
    );
    let result = unit::result(view.show, view.job, &view.report.result);
    let brand = brand(view);
    if !with_cpu(view) {
        return format!("{sizes}   {result:>7.2}   {brand}\n");
    }
    format!(
        "{sizes}     {result:>7.2}   {:<6.2}   {:<6.2}   {:<6.3}  {:<6.3} {brand}\n",
        view.cpu_total(Side::Local),
        view.cpu_total(Side::Remote),
        view.demand(Side::Local),
        view.demand(Side::Remote)
    )
}

fn transaction_rows(view: View<'_>, table: Table) -> String {
    let (local, remote) = (&view.report.local, &view.report.remote);
    let (send, receive) = (size(local.send_buffer), size(local.receive_buffer));
    let (request, response) = (view.job.request_size, view.job.response_size);
    let elapsed = view.report.result.elapsed_s;
    let result = unit::result(view.show, view.job, &view.report.result);
    let connects = table == Table::Connects;
    let brand = if connects { "" } else { brand(view) };
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
            view.cpu_total(Side::Local),
            view.cpu_total(Side::Remote),
            view.demand(Side::Local),
            view.demand(Side::Remote)
        )
    } else {
        format!(
            "{send:<6} {receive:<6} {request:<6}   {response:<6}  {elapsed:<6.2}   \
             {result:>7.2}   {brand}\n"
        )
    };
    let second = format!(
        "{:<6} {:<6}\n",
        size(remote.send_buffer),
        size(remote.receive_buffer)
    );
    first + &second
}

fn datagram_rows(view: View<'_>) -> String {
    let (local, remote) = (&view.report.local, &view.report.remote);
    let elapsed = view.report.result.elapsed_s;
    let result = unit::result(view.show, view.job, &view.report.result);
    let first = format!(
        "{:>6}  {:>6}   {elapsed:<7.2}   {:>7} {:>6}    ",
        size(local.send_buffer),
        local.send_size.unwrap_or(0),
        local.send_calls,
        local.failed_sends
    );
    let second = format!(
        "{:>6}           {elapsed:<7.2}   {:>7}           ",
        size(remote.receive_buffer),
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
            view.demand(side)
        )
    };
    format!(
        "{first}{sent:>7.1}{}{second}{result:>7.1}{}\n",
        cpu(Side::Local),
        cpu(Side::Remote)
    )
}
