//! Counters of a machine. Counters of several workers are added; an interval is the difference of two readings.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Totals since the machine was created. `attempted = completed + failed() + open` always holds.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Names and values, in order of declaration.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            /// Adds the counters of another worker.
            pub fn merge(&mut self, other: &Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }

            /// Difference to `earlier`; the gauges `open` and `udp_in_flight` keep their current values.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self {
                    $($name: self.$name.wrapping_sub(earlier.$name),)*
                }.with_gauges(self)
            }
        }
    };
}

counters! {
    /// Frames passed to the machine.
    rx_frames,
    /// Bytes in `rx_frames`, without FCS.
    rx_octets,
    /// Frames sent.
    tx_frames,
    /// Bytes in `tx_frames`, without FCS.
    tx_octets,
    /// Frames with other addresses or of another protocol.
    rx_foreign,
    /// Bytes in `rx_foreign`, without FCS.
    rx_foreign_octets,
    /// Frames with inconsistent lengths.
    rx_malformed,
    /// Frames with a wrong IPv4, TCP or UDP checksum.
    rx_bad_checksum,
    /// IP fragments.
    rx_fragments,
    /// ICMP messages about packets of the machine's connections.
    icmp_rx,
    /// Packets with the configured TOS or traffic class.
    rx_tos,
    /// TCP segments received.
    tcp_rx,
    /// TCP segments sent.
    tcp_tx,
    /// UDP datagrams received.
    udp_rx,
    /// UDP datagrams sent.
    udp_tx,
    /// Segments with SYN received.
    syn_rx,
    /// Segments with SYN sent, including retransmissions.
    syn_tx,
    /// Segments with FIN received.
    fin_rx,
    /// Segments with FIN sent, including retransmissions.
    fin_tx,
    /// Segments with RST received.
    rst_rx,
    /// Segments with RST sent.
    rst_tx,
    /// Retransmissions of SYN or SYN-ACK.
    syn_again,
    /// Retransmissions of data.
    data_again,
    /// Retransmissions of a FIN without data.
    fin_again,
    /// Acknowledgements sent because a segment arrived again.
    ack_again,
    /// Retransmissions of data because later data arrived, before any timer expired.
    fast_again,
    /// Tail loss probes: retransmissions of the last segment to learn about losses before it.
    tail_probes,
    /// Probes of a zero window.
    window_probes,
    /// Acknowledgements received that reported segments behind a gap.
    duplicate_acks,
    /// Segments received out of order and stored.
    out_of_order,
    /// TCP segments dropped: no such connection.
    drop_unknown,
    /// TCP segments dropped: wrong sequence number.
    drop_sequence,
    /// TCP segments dropped: wrong acknowledgement number.
    drop_ack,
    /// TCP segments dropped: flags invalid in this state.
    drop_flags,
    /// TCP segments dropped: out of order and not stored, or no room for their answers.
    drop_ahead,
    /// UDP datagrams dropped: no such connection.
    drop_datagram,
    /// Answers outside any connection (RST, UDP reply) omitted because the sink had no room.
    drop_no_room,
    /// SYNs refused because the table was full.
    drop_table_full,
    /// SYNs refused because there were too many next hops.
    drop_hops_full,
    /// SYNs refused because too many handshakes were incomplete.
    drop_half_open,
    /// Payload bytes received in order.
    payload_rx,
    /// Payload bytes sent, including retransmissions.
    payload_tx,
    /// Connections started: SYN or first datagram sent, SYN accepted.
    attempted,
    /// Handshakes completed.
    established,
    /// Connections that ended successfully.
    completed,
    /// Completed connections that ended with RST.
    completed_by_reset,
    /// Completed connections that the run or the peer closed before all requests were sent.
    completed_cut,
    /// Failed: no answer to SYN or SYN-ACK in time.
    failed_connect_timeout,
    /// Failed: no complete answer in time.
    failed_response_timeout,
    /// Failed: the FIN was not acknowledged in time.
    failed_close_timeout,
    /// Failed: the peer was silent for too long (server).
    failed_idle_timeout,
    /// Failed: RST instead of SYN-ACK.
    failed_refused,
    /// Failed: ICMP destination unreachable instead of SYN-ACK.
    failed_unreachable,
    /// Failed: RST on an established connection.
    failed_reset,
    /// Failed: the peer closed before its message was complete.
    failed_short,
    /// Failed: the received bytes are not a valid message.
    failed_malformed,
    /// Failed: aborted at the end of a run.
    failed_aborted,
    /// Connections open now.
    open,
    /// Launches skipped because all tuples tried were in use.
    tuples_busy,
    /// Requests sent (client) or received (server).
    requests,
    /// Responses received (client) or sent (server).
    responses,
    /// TCP requests without a complete answer at the end of their connection (client).
    requests_lost,
    /// Body bytes of answers, without chunk framing; only of a client with [`crate::Config::asks`].
    body_rx,
    /// HTTP responses with status 100 to 199 (interim responses are not counted).
    status_1xx,
    /// HTTP responses with status 200 to 299.
    status_2xx,
    /// HTTP responses with status 300 to 399.
    status_3xx,
    /// HTTP responses with status 400 to 499.
    status_4xx,
    /// HTTP responses with status 500 to 599.
    status_5xx,
    /// HTTP responses with any other status.
    status_other,
    /// Requests of a flood, for which no answer is awaited.
    unawaited,
    /// Requests at intervals that were due but not sent, because the caller was too late.
    requests_unsent,
    /// Requests at intervals that were due while the connection waited for an answer.
    requests_waited,
    /// UDP requests without an answer in time.
    udp_lost,
    /// UDP requests in flight now.
    udp_in_flight,
    /// Lost UDP requests that were given up before their timeout because too many were in flight.
    udp_given_up,
    /// UDP responses without a request number, attributed to the oldest request.
    udp_by_order,
    /// UDP answers to requests that were already lost or forgotten.
    udp_late,
    /// UDP answers to requests that were already answered.
    udp_duplicates,
    /// UDP answers that match no request.
    udp_unasked,
    /// SNMP responses that report an error.
    snmp_errors,
    /// Segments with a client address in the TOA option.
    toa_seen,
    /// Datagrams with a client address in the UOA option.
    uoa_seen,
    /// PROXY headers read.
    proxy_seen,
}

impl Counters {
    /// All failed connections.
    pub const fn failed(&self) -> u64 {
        self.failed_connect_timeout
            + self.failed_response_timeout
            + self.failed_close_timeout
            + self.failed_idle_timeout
            + self.failed_refused
            + self.failed_unreachable
            + self.failed_reset
            + self.failed_short
            + self.failed_malformed
            + self.failed_aborted
    }

    /// Returns true if every connection is accounted for.
    pub const fn is_balanced(&self) -> bool {
        self.attempted == self.completed + self.failed() + self.open
    }

    /// Frames and bytes received, without foreign ones.
    pub const fn rx_of_load(&self) -> (u64, u64) {
        (
            self.rx_frames - self.rx_foreign,
            self.rx_octets - self.rx_foreign_octets,
        )
    }

    /// TCP segments dropped for any reason.
    pub const fn tcp_dropped(&self) -> u64 {
        self.drop_unknown + self.drop_sequence + self.drop_ack + self.drop_flags + self.drop_ahead
    }

    const fn with_gauges(mut self, now: &Self) -> Self {
        self.open = now.open;
        self.udp_in_flight = now.udp_in_flight;
        self
    }

    /// Returns true if every request of a UDP client is accounted for.
    pub const fn requests_add_up(&self) -> bool {
        self.requests == self.responses + self.udp_lost + self.udp_in_flight + self.unawaited
    }

    pub(crate) fn status(&mut self, status: u16) {
        match status / 100 {
            1 => self.status_1xx += 1,
            2 => self.status_2xx += 1,
            3 => self.status_3xx += 1,
            4 => self.status_4xx += 1,
            5 => self.status_5xx += 1,
            _ => self.status_other += 1,
        }
    }
}
