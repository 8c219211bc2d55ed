//! Translation between our types and the message fields with the same meaning. Each correspondence is written once and
//! serves both ends.

use std::time::Duration;

use wb_model::socket::{CpuUse, SocketOptions, SocketSide, TcpSample};
use wb_netperf_wire::{
    CpuFigures, CpuMethod, CpuSplit, ExchangeTest, Flags, OmniRequest, StreamTest, TcpFigures,
    TestLength,
};

/// Longest timed test, in seconds. A larger value is a byte count of an old client, which ends its data without waiting
/// for the server.
const LONGEST: u64 = 100 * 365 * 86_400;

/// A type that shares fields with a message.
pub(crate) trait MessageFields<Message> {
    /// Writes the fields into the message.
    fn write_to(&self, message: &mut Message);
    /// Reads the fields from the message.
    fn read_from(&mut self, message: &Message);
}

/// Declares the shared fields: name in our type, name in the message.
macro_rules! message_fields {
    ($($ours:ty, $theirs:ty { $($our:ident = $their:ident,)* })*) => {$(
        impl MessageFields<$theirs> for $ours {
            fn write_to(&self, message: &mut $theirs) {
                $(message.$their = self.$our;)*
            }

            fn read_from(&mut self, message: &$theirs) {
                $(self.$our = message.$their;)*
            }
        }
    )*};
}

message_fields! {
    SocketSide, OmniRequest {
        send_buffer = send_buffer, send_size = send_size, send_width = send_width,
        send_align = send_alignment, send_offset = send_offset,
        receive_buffer = receive_buffer, receive_size = receive_size, receive_width = receive_width,
        receive_align = receive_alignment, receive_offset = receive_offset,
        burst = interval_burst, priority = priority,
    }
    SocketSide, ExchangeTest {
        send_buffer = send_buffer, send_align = send_alignment, send_offset = send_offset,
        receive_buffer = receive_buffer, receive_align = receive_alignment, receive_offset = receive_offset,
    }
    SocketSide, StreamTest {
        send_buffer = send_buffer, receive_buffer = receive_buffer,
    }
    TcpSample, TcpFigures {
        rtt_us = rtt_us, rtt_var_us = rttvar_us, min_rtt_us = min_rtt_us,
        receive_rtt_us = rcv_rtt_us, receive_space = rcv_space, receive_ssthresh = rcv_ssthresh,
        cwnd = snd_cwnd, mss = snd_mss, path_mtu = pmtu, retransmissions = total_retrans,
        bytes_received = bytes_received, busy_us = busy_us,
        receiver_limited_us = rwnd_limited_us, buffer_limited_us = sndbuf_limited_us,
    }
}

/// TCP statistics in the form of the message.
pub(crate) fn tcp_figures(sample: &TcpSample) -> TcpFigures {
    let mut figures = TcpFigures {
        // Bits to bytes.
        pacing_rate: sample.pacing_bps / 8,
        delivery_rate: sample.delivery_bps / 8,
        ..TcpFigures::default()
    };
    sample.write_to(&mut figures);
    figures
}

/// The inverse of [`tcp_figures`].
pub(crate) fn tcp_sample(figures: &TcpFigures) -> TcpSample {
    let mut sample = TcpSample {
        pacing_bps: figures.pacing_rate.saturating_mul(8),
        delivery_bps: figures.delivery_rate.saturating_mul(8),
        ..TcpSample::default()
    };
    sample.read_from(figures);
    sample
}

/// CPU use in the form of the message.
pub(crate) fn cpu_figures(cpu: &CpuUse) -> CpuFigures {
    CpuFigures {
        total: cpu.total as f32,
        split: Some(CpuSplit {
            user: cpu.user as f32,
            system: cpu.system as f32,
            iowait: cpu.iowait as f32,
            irq: cpu.irq as f32,
            softirq: cpu.softirq as f32,
        }),
        method: CpuMethod::PROC_STAT,
        cpus: cpu.cpus,
        peak_id: cpu.peak_cpu,
        peak: cpu.peak as f32,
    }
}

/// The inverse of [`cpu_figures`].
pub(crate) fn cpu_use(figures: &CpuFigures) -> CpuUse {
    let split = figures.split.unwrap_or_default();
    CpuUse {
        total: figures.total.into(),
        user: split.user.into(),
        system: split.system.into(),
        iowait: split.iowait.into(),
        irq: split.irq.into(),
        softirq: split.softirq.into(),
        cpus: figures.cpus,
        peak_cpu: figures.peak_id,
        peak: figures.peak.into(),
    }
}

/// Accessor of one boolean option.
type FlagAccessor = fn(&mut SocketOptions) -> &mut bool;

/// Boolean options that correspond to one message flag each.
const SWITCHES: [(Flags, FlagAccessor); 7] = [
    (Flags::NO_DELAY, |options| &mut options.no_delay),
    (Flags::FAST_OPEN, |options| &mut options.fast_open),
    (Flags::PKT_INFO, |options| &mut options.packet_info),
    (Flags::CONNECT_UDP, |options| &mut options.connect_remote),
    (Flags::DEFER_ACCEPT, |options| &mut options.defer_accept),
    (Flags::PATH_MTU_DISCOVERY, |options| {
        &mut options.dont_fragment
    }),
    (Flags::KEEPALIVE, |options| &mut options.keepalive),
];

/// The flags of a socket's options.
pub(crate) fn flags_of_options(mut options: SocketOptions) -> Flags {
    let allowed = Flags::NONE.with_if(!options.dont_route, Flags::ROUTING_ALLOWED);
    SWITCHES.iter().fold(allowed, |flags, (flag, switch)| {
        flags.with_if(*switch(&mut options), *flag)
    })
}

/// The inverse of [`flags_of_options`].
pub(crate) fn options_of_flags(flags: Flags) -> SocketOptions {
    let mut options = SocketOptions {
        dont_route: !flags.contains(Flags::ROUTING_ALLOWED),
        ..SocketOptions::default()
    };
    for (flag, switch) in SWITCHES {
        *switch(&mut options) = flags.contains(flag);
    }
    options
}

/// Length of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamLength {
    /// Ends after this time.
    Time(Duration),
    /// Ends after this number of bytes or transactions.
    Amount(u64),
    /// Ends when the client says so.
    Open,
}

impl StreamLength {
    /// The length as a message field, and the count if it does not fit there.
    pub(crate) fn to_message(self) -> (TestLength, u64) {
        match self {
            // The server's clock must not end the test before ours does.
            Self::Time(time) => {
                let seconds = time.as_nanos().div_ceil(1_000_000_000).max(1);
                let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
                (TestLength::Seconds(seconds), 0)
            }
            Self::Amount(amount) => match TestLength::units(amount) {
                Some(units) => (units, 0),
                None => (TestLength::UntilTold, amount),
            },
            Self::Open => (TestLength::UntilTold, 0),
        }
    }

    /// The inverse of [`StreamLength::to_message`], in whole seconds.
    pub(crate) fn from_message(length: TestLength, count: u64) -> Self {
        match length {
            TestLength::Seconds(seconds) => {
                Self::Time(Duration::from_secs(u64::from(seconds).min(LONGEST)))
            }
            TestLength::Units(units) => Self::Amount(units.into()),
            TestLength::UntilTold if count > 0 => Self::Amount(count),
            TestLength::UntilTold => Self::Open,
        }
    }

    pub(crate) fn time_limit(self) -> Option<Duration> {
        match self {
            Self::Time(time) => Some(time),
            Self::Amount(_) | Self::Open => None,
        }
    }

    /// Number of bytes or transactions that ends the test, if one is set.
    pub(crate) fn unit_limit(self) -> Option<u64> {
        match self {
            Self::Amount(amount) => Some(amount),
            Self::Time(_) | Self::Open => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The value after a round trip through the message.
    fn heard<M: Default, O: MessageFields<M> + Default>(ours: &O) -> O {
        let (mut message, mut heard) = (M::default(), O::default());
        ours.write_to(&mut message);
        heard.read_from(&message);
        heard
    }

    proptest! {
        #[test]
        fn what_is_said_of_a_side_is_heard(n in any::<[u32; 12]>()) {
            let exchanged = SocketSide {
                send_buffer: Some(n[0]),
                receive_buffer: Some(n[1]),
                send_align: n[2],
                send_offset: n[3],
                receive_align: n[4],
                receive_offset: n[5],
                ..SocketSide::default()
            };
            let said = SocketSide {
                send_size: Some(n[6]),
                receive_size: Some(n[7]),
                send_width: n[8],
                receive_width: n[9],
                burst: n[10],
                priority: Some(n[11]),
                ..exchanged.clone()
            };
            prop_assert_eq!(heard::<OmniRequest, _>(&said), said);
            prop_assert_eq!(heard::<ExchangeTest, _>(&exchanged), exchanged);
        }

        #[test]
        fn what_is_told_of_tcp_and_cpus_is_heard(figures in any::<[u32; 16]>(), shares in any::<[u16; 7]>()) {
            let mut sample = TcpSample {
                rtt_us: figures[0],
                rtt_var_us: figures[1],
                min_rtt_us: figures[2],
                cwnd: figures[3],
                retransmissions: figures[4],
                mss: figures[5],
                path_mtu: figures[6],
                receive_ssthresh: figures[7],
                receive_rtt_us: figures[8],
                receive_space: figures[9],
                ..TcpSample::default()
            };
            sample.pacing_bps = u64::from(figures[10]) * 8;
            sample.delivery_bps = u64::from(figures[11]) * 8;
            sample.bytes_received = figures[12].into();
            sample.busy_us = figures[13].into();
            sample.receiver_limited_us = figures[14].into();
            sample.buffer_limited_us = figures[15].into();
            prop_assert_eq!(tcp_sample(&tcp_figures(&sample)), sample);
            let mut cpu = CpuUse { cpus: 3, peak_cpu: 1, ..CpuUse::default() };
            for (share, value) in cpu.shares_mut().into_iter().zip(shares) {
                *share = value.into();
            }
            prop_assert_eq!(cpu_use(&cpu_figures(&cpu)), cpu);
        }

        #[test]
        fn flags_are_options_and_options_flags(switches in any::<[bool; 8]>()) {
            let mut said = SocketOptions { dont_route: switches[7], ..SocketOptions::default() };
            for ((_, switch), on) in SWITCHES.iter().zip(switches) {
                *switch(&mut said) = on;
            }
            prop_assert_eq!(options_of_flags(flags_of_options(said.clone())), said);
        }

        #[test]
        fn a_length_is_heard_in_whole_seconds(amount in 1_u64.., ns in 0..LONGEST) {
            for length in [StreamLength::Amount(amount), StreamLength::Open] {
                let (said, count) = length.to_message();
                prop_assert_eq!(StreamLength::from_message(said, count), length);
            }
            let (said, count) = StreamLength::Time(Duration::from_nanos(ns)).to_message();
            let heard = StreamLength::from_message(said, count).time_limit().expect("a time");
            prop_assert!(heard >= Duration::from_nanos(ns));
            prop_assert!(heard < Duration::from_nanos(ns) + Duration::from_secs(2));
            prop_assert_eq!(StreamLength::Time(heard).to_message().0, said);
        }
    }
}
