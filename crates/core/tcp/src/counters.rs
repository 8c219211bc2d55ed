//! What a machine counts. Plain numbers: workers' are added up, intervals are differences.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Totals since the machine was made. `attempted = completed + failed() + open` always holds.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Names and values, in order of declaration.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            /// Adds those of another worker.
            pub fn merge(&mut self, other: &Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }

            /// What was added since `earlier`; `open` and `udp_in_flight` stay what they are now.
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
    /// Frames given to the machine.
    rx_frames,
    /// Bytes of those, without FCS.
    rx_octets,
    /// Frames sent.
    tx_frames,
    /// Bytes of those, without FCS.
    tx_octets,
    /// Frames for or from somebody else, or of another protocol.
    rx_foreign,
    /// Bytes of those, without FCS.
    rx_foreign_octets,
    /// Frames with lengths that do not fit.
    rx_malformed,
    /// Frames with a wrong checksum of IPv4, TCP or UDP: broken on their way.
    rx_bad_checksum,
    /// Fragments.
    rx_fragments,
    /// ICMP messages about packets of our connections.
    icmp_rx,
    /// Packets whose TOS or traffic class is ours.
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
    /// Segments with SYN sent, again included.
    syn_tx,
    /// Segments with FIN received.
    fin_rx,
    /// Segments with FIN sent, again included.
    fin_tx,
    /// Segments with RST received.
    rst_rx,
    /// Segments with RST sent.
    rst_tx,
    /// SYN or SYN-ACK sent again.
    syn_again,
    /// Data sent again.
    data_again,
    /// FIN alone sent again.
    fin_again,
    /// Acknowledgements because of a segment that came again.
    ack_again,
    /// Data sent again because later data arrived, before any timer expired.
    fast_again,
    /// Last segments sent again to hear of what is missing before them.
    tail_probes,
    /// Probes of a zero window.
    window_probes,
    /// Acknowledgements received that told of segments behind a gap.
    duplicate_acks,
    /// Segments that came out of order and were kept.
    out_of_order,
    /// TCP segments dropped: no such connection.
    drop_unknown,
    /// TCP segments dropped: wrong sequence number.
    drop_sequence,
    /// TCP segments dropped: wrong acknowledgement.
    drop_ack,
    /// TCP segments dropped: flags that do not fit the state.
    drop_flags,
    /// TCP segments dropped: ahead of what is expected and not kept, or without room for their answers.
    drop_ahead,
    /// UDP datagrams dropped: no such connection.
    drop_datagram,
    /// Answers of no connection (RST, UDP reply) left out because the sink had no room.
    drop_no_room,
    /// SYNs refused because the table was full.
    drop_table_full,
    /// SYNs refused because they came from too many neighbours.
    drop_hops_full,
    /// SYNs refused because too many handshakes had not ended.
    drop_half_open,
    /// Payload bytes received in order.
    payload_rx,
    /// Payload bytes sent, again included.
    payload_tx,
    /// Connections begun: SYN or first datagram sent, SYN accepted.
    attempted,
    /// Handshakes completed.
    established,
    /// Connections that ended with all exchanged that was to be.
    completed,
    /// Of those, ended by a RST.
    completed_by_reset,
    /// Of those, closed before all their requests were asked: the run, or the peer, ended them.
    completed_cut,
    /// Failed: no answer to SYN or SYN-ACK in time.
    failed_connect_timeout,
    /// Failed: no complete answer in time.
    failed_response_timeout,
    /// Failed: the end was not acknowledged in time.
    failed_close_timeout,
    /// Failed: the peer was silent for too long (server).
    failed_idle_timeout,
    /// Failed: RST instead of SYN-ACK.
    failed_refused,
    /// Failed: an ICMP message instead of SYN-ACK said that the destination cannot be reached.
    failed_unreachable,
    /// Failed: RST in the middle.
    failed_reset,
    /// Failed: the peer closed before its message was complete.
    failed_short,
    /// Failed: what came is no message.
    failed_malformed,
    /// Failed: given up by us, at the end of a run.
    failed_aborted,
    /// Connections open now.
    open,
    /// Launches left out because all tuples tried were in use.
    tuples_busy,
    /// Requests sent (client) or received (server).
    requests,
    /// Responses received (client) or sent (server).
    responses,
    /// TCP requests whose connection ended before their answer did (client).
    requests_lost,
    /// Bytes of bodies of answers, without what frames chunks: of a client with [`crate::Config::asks`].
    body_rx,
    /// HTTP responses by first digit of the status: 1 (interim ones are not counted).
    status_1xx,
    /// 2.
    status_2xx,
    /// 3.
    status_3xx,
    /// 4.
    status_4xx,
    /// 5.
    status_5xx,
    /// Any other.
    status_other,
    /// Requests of a flood, whose answers nobody waits for.
    unawaited,
    /// Requests at intervals that were due and not sent, because the caller was too late.
    requests_unsent,
    /// Requests at intervals that were due while the connection waited for an answer.
    requests_waited,
    /// UDP requests that were not answered in time.
    udp_lost,
    /// UDP requests that wait for their answers now.
    udp_in_flight,
    /// Of those lost, given up before their time because too many waited.
    udp_given_up,
    /// Of the responses, those that brought no number back: taken for the answer to the oldest request.
    udp_by_order,
    /// UDP answers to requests that had been given up as lost, or that are forgotten.
    udp_late,
    /// UDP answers to requests that had been answered.
    udp_duplicates,
    /// UDP answers that belong to no request.
    udp_unasked,
    /// Of the responses, those of SNMP that tell of an error.
    snmp_errors,
    /// Segments that told the client's address by TOA option.
    toa_seen,
    /// Datagrams that told the client's address by UOA.
    uoa_seen,
    /// PROXY headers read.
    proxy_seen,
}

impl Counters {
    /// All failures.
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

    /// Whether every connection is accounted for.
    pub const fn is_balanced(&self) -> bool {
        self.attempted == self.completed + self.failed() + self.open
    }

    /// Frames and bytes received, without those that are none of the load's.
    pub const fn rx_of_load(&self) -> (u64, u64) {
        (
            self.rx_frames - self.rx_foreign,
            self.rx_octets - self.rx_foreign_octets,
        )
    }

    /// TCP segments dropped, whatever the cause.
    pub const fn tcp_dropped(&self) -> u64 {
        self.drop_unknown + self.drop_sequence + self.drop_ack + self.drop_flags + self.drop_ahead
    }

    const fn with_gauges(mut self, now: &Self) -> Self {
        self.open = now.open;
        self.udp_in_flight = now.udp_in_flight;
        self
    }

    /// Whether every request of a UDP client is accounted for.
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
