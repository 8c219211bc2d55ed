//! Tests with synthetic figures.

use wb_model::socket::{
    CpuUse, SocketEndReport, SocketJob, SocketJobReport, SocketProtocol, SocketTest,
};
use wb_netperf::{FigureSelection, OutputForm, OutputOptions, TestKind, program_exit};

/// A test with all inputs of its output.
#[derive(Clone, Default)]
pub(crate) struct Made {
    pub(crate) show: OutputOptions,
    pub(crate) job: SocketJob,
    pub(crate) report: SocketJobReport,
}

impl Made {
    pub(crate) fn new(kind: TestKind, test: SocketTest) -> Self {
        let mut made = Self::default();
        made.show.kind = kind;
        made.job.test = test;
        if matches!(kind, TestKind::UdpStream | TestKind::UdpRr) {
            made.job.protocol = SocketProtocol::Udp;
        }
        let end = SocketEndReport {
            send_buffer: [None, Some(16_384), Some(2_626_560)],
            receive_buffer: [None, Some(131_072), Some(6_291_456)],
            ..SocketEndReport::default()
        };
        made.report.local = end.clone();
        made.report.remote = end;
        made
    }

    /// Adds CPU use in percent and service demand, equal at both ends.
    pub(crate) fn with_cpu(mut self, total: f64, demand: f64) -> Self {
        let cpu = CpuUse {
            total,
            cpus: 2,
            ..CpuUse::default()
        };
        self.show.local_cpu = true;
        self.show.remote_cpu = true;
        let result = &mut self.report.result;
        (result.local_cpu, result.remote_cpu) = (Some(cpu), Some(cpu));
        result.local_service_demand = Some(demand);
        result.remote_service_demand = Some(demand);
        self
    }

    pub(crate) fn selecting(mut self, form: OutputForm, names: &str) -> Self {
        self.show.form = form;
        self.show.selection = (!names.is_empty()).then(|| names.to_owned());
        self
    }

    pub(crate) fn selection(&self) -> FigureSelection {
        FigureSelection::of_command(&self.show, &self.job).expect("names that are known")
    }

    pub(crate) fn printed(&self) -> String {
        let ending = program_exit(&self.show, &self.job, &self.selection(), &self.report);
        assert_eq!((ending.stderr.as_str(), ending.status), ("", 0));
        ending.stdout
    }

    /// Output with `$` at the ends of lines.
    pub(crate) fn lines(&self) -> String {
        self.printed().replace('\n', "$\n")
    }
}

pub(crate) fn stream() -> Made {
    let mut made = Made::new(TestKind::TcpStream, SocketTest::Send);
    made.report.result.elapsed_s = 2.0;
    made.report.result.throughput_bps = 33_357.77e6;
    made.report.local.send_size = Some(16_384);
    made
}

pub(crate) fn request_response(kind: TestKind) -> Made {
    let mut made = Made::new(kind, SocketTest::Rr);
    made.report.result.elapsed_s = 1.0;
    made.report.result.transactions_per_second = 21_885.58;
    made
}

pub(crate) fn datagrams() -> Made {
    let mut made = Made::new(TestKind::UdpStream, SocketTest::Send);
    for end in [&mut made.report.local, &mut made.report.remote] {
        end.send_buffer[1] = Some(212_992);
        end.receive_buffer[1] = Some(212_992);
    }
    made.report.result.elapsed_s = 1.0;
    made.report.local.send_size = Some(1400);
    made.report.local.send_calls = 252_403;
    made.report.remote.receive_calls = 235_565;
    made.report.result.sent_bps = 2825.86e6;
    made.report.result.throughput_bps = 2637.34e6;
    made
}

pub(crate) const KINDS: [(TestKind, SocketTest); 14] = [
    (TestKind::TcpStream, SocketTest::Send),
    (TestKind::TcpMaerts, SocketTest::Receive),
    (TestKind::TcpSendfile, SocketTest::Send),
    (TestKind::TcpRr, SocketTest::Rr),
    (TestKind::TcpCrr, SocketTest::Crr),
    (TestKind::TcpCc, SocketTest::Cc),
    (TestKind::TcpMss, SocketTest::Mss),
    (TestKind::UdpStream, SocketTest::Send),
    (TestKind::UdpRr, SocketTest::Rr),
    (TestKind::SctpStream, SocketTest::Send),
    (TestKind::SctpRr, SocketTest::Rr),
    (TestKind::Omni, SocketTest::Both),
    (TestKind::Omni, SocketTest::Cc),
    (TestKind::Omni, SocketTest::Receive),
];
