//! The server's answers, parsed from either generation of messages.

use std::time::Duration;

use wb_model::socket::{CpuUse, SocketEndReport, SocketOmitted, TcpSample};
use wb_netperf_wire::{
    AnswerError, ClassicKind, ClassicResponse, ClassicResults, Flags, OmniResponse, OmniResults,
    ResponseExtension, ResultsExtension, ResultsLayout,
};

use crate::agreement;

/// The server's response: it is ready.
#[derive(Clone, Debug, Default)]
pub(super) struct RemoteReady {
    /// Port of the data.
    pub(super) port: u16,
    /// The server's end of the test, as it reports it.
    pub(super) end: SocketEndReport,
    /// The server sends without copying, as requested.
    pub(super) send_avoid: bool,
    /// The server receives without copying.
    pub(super) receive_avoid: bool,
    /// Extensions granted by a wirebench server.
    pub(super) extension: Option<ResponseExtension>,
}

impl RemoteReady {
    pub(super) fn parse(message: &[u8], kind: Option<ClassicKind>) -> Result<Self, AnswerError> {
        Ok(match kind {
            None => Self::from_omni(&OmniResponse::parse(message)?),
            Some(kind) => Self::from_classic(&ClassicResponse::parse(message, kind)?, kind),
        })
    }

    fn from_omni(said: &OmniResponse) -> Self {
        let end = SocketEndReport {
            send_buffer: [None, said.send_buffer, None],
            receive_buffer: [None, said.receive_buffer, None],
            send_size: said.send_size,
            receive_size: said.receive_size,
            send_width: said.send_width,
            receive_width: said.receive_width,
            no_delay: said.flags.contains(Flags::NO_DELAY),
            priority: said.priority.map(u32::cast_signed),
            tos: said.tos.map(u32::cast_signed),
            burst: said.interval_burst,
            burst_interval_us: said.interval_us,
            ..SocketEndReport::default()
        };
        Self {
            port: said.data_port,
            end,
            send_avoid: said.send_avoid,
            receive_avoid: said.receive_avoid,
            extension: said.extension,
        }
    }

    fn from_classic(said: &ClassicResponse, kind: ClassicKind) -> Self {
        let sends = kind == ClassicKind::TcpMaerts;
        let end = SocketEndReport {
            send_buffer: [None, said.send_buffer, None],
            receive_buffer: [None, said.receive_buffer, None],
            send_size: said.call_size.filter(|_| sends),
            receive_size: said.call_size.filter(|_| !sends),
            no_delay: said.no_delay,
            ..SocketEndReport::default()
        };
        Self {
            port: said.data_port,
            end,
            send_avoid: said.send_avoid,
            receive_avoid: said.receive_avoid,
            extension: None,
        }
    }
}

/// The server's results.
#[derive(Clone, Debug, Default)]
pub(super) struct RemoteResults {
    pub(super) bytes_received: u64,
    pub(super) receive_calls: u64,
    pub(super) bytes_sent: u64,
    pub(super) send_calls: u64,
    pub(super) transactions: u64,
    pub(super) failed_sends: u64,
    pub(super) receive_buffer: Option<u32>,
    pub(super) send_buffer: Option<u32>,
    pub(super) cpu: Option<CpuUse>,
    pub(super) retransmissions: Option<u64>,
    pub(super) congestion: String,
    /// Additional results of a wirebench server.
    pub(super) extension: Option<ResultsExtension>,
}

impl RemoteResults {
    /// Parses a results message. `cpu`: the server was asked to measure its CPUs.
    pub(super) fn parse(
        message: &[u8],
        kind: Option<ClassicKind>,
        cpu: bool,
    ) -> Result<Self, AnswerError> {
        Ok(match kind {
            None => {
                let layout = ResultsLayout::guess(message, cpu);
                Self::from_omni(&OmniResults::parse(message, layout, cpu)?)
            }
            Some(kind) => Self::from_classic(&ClassicResults::parse(message, kind, cpu)?, kind),
        })
    }

    fn from_omni(said: &OmniResults) -> Self {
        Self {
            bytes_received: said.bytes_received,
            receive_calls: said.receive_calls.into(),
            bytes_sent: said.bytes_sent,
            send_calls: said.send_calls.into(),
            transactions: said.transactions.into(),
            failed_sends: said.failed_sends.into(),
            receive_buffer: said.receive_buffer,
            send_buffer: said.send_buffer,
            cpu: said.cpu.as_ref().map(agreement::cpu_use),
            retransmissions: said.retransmissions.map(u64::from),
            congestion: String::from_utf8_lossy(said.congestion_control.as_bytes()).into_owned(),
            extension: said.extension,
        }
    }

    fn from_classic(said: &ClassicResults, kind: ClassicKind) -> Self {
        let (bytes, calls) = (said.bytes, u64::from(said.calls));
        let cpu = said.cpu_total.map(|total| CpuUse {
            total: total.into(),
            cpus: said.cpus,
            peak_cpu: -1,
            ..CpuUse::default()
        });
        let mut results = Self {
            receive_buffer: said.receive_buffer,
            send_buffer: said.send_buffer,
            cpu,
            ..Self::default()
        };
        if kind == ClassicKind::TcpMaerts {
            (results.bytes_sent, results.send_calls) = (bytes, calls);
        } else {
            (results.bytes_received, results.receive_calls) = (bytes, calls);
        }
        results
    }

    /// TCP statistics of the server's end.
    pub(super) fn tcp_sample(&self) -> Option<TcpSample> {
        self.extension?.tcp.as_ref().map(agreement::tcp_sample)
    }

    /// The part of the results that belongs to the `omit` time, if a wirebench server reported it separately.
    pub(super) fn omitted_part(&self, omit: Duration) -> Option<SocketOmitted> {
        let more = self.extension.filter(|_| omit > Duration::ZERO)?;
        let bytes = self.bytes_received + self.bytes_sent;
        Some(SocketOmitted {
            bytes: bytes.checked_sub(more.bytes_after_omit)?,
            transactions: self
                .transactions
                .saturating_sub(more.transactions_after_omit),
            calls: None,
            retransmissions: None,
        })
    }

    /// Adds the results to the report of the server's end; totals are over all streams.
    pub(super) fn add_to(&self, end: &mut SocketEndReport) {
        end.bytes_received += self.bytes_received;
        end.bytes_sent += self.bytes_sent;
        end.receive_calls += self.receive_calls;
        end.send_calls += self.send_calls;
        end.failed_sends += self.failed_sends;
        end.receive_buffer[2] = end.receive_buffer[2].or(self.receive_buffer);
        end.send_buffer[2] = end.send_buffer[2].or(self.send_buffer);
        if end.congestion.is_empty() {
            end.congestion.clone_from(&self.congestion);
        }
        if let Some(again) = self.retransmissions {
            end.retransmissions = Some(end.retransmissions.unwrap_or(0) + again);
        }
        if end.tcp.is_none() {
            end.tcp = self.tcp_sample();
        }
    }
}
