//! HTTP/3: requests are streams of a QUIC connection.

use std::{cmp::Reverse, io::IoSliceMut, net::SocketAddr, os::fd::OwnedFd};

use bytes::{Bytes, BytesMut};
use quinn_proto::{
    ConnectError, ConnectionError, DatagramEvent, Dir, EcnCodepoint, EndpointEvent, Event,
    ReadError, StreamEvent, StreamId,
};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use rustix::io::Errno;
use wb_http3::{Http3Fault, Http3Step, StreamFailure, frame};

use super::{CALLS, ConnectionTurn, HttpThread, count_name, now_ns, streams::StreamAnswers};
use crate::{
    connection::{HttpConnectionState, PendingStream},
    quic::{DatagramLayout, Http3, ROOMS, UnsentDatagrams, error_code, stream_id},
    thread_outcome::FailureCause,
};

/// Error codes of QUIC that are TLS alerts: RFC 9001 section 4.8.
const ALERTS: std::ops::Range<u64> = 0x100..0x200;
/// The alert of a server that does not speak HTTP/3.
const NO_PROTOCOL: u64 = 0x178;

impl HttpThread<'_> {
    /// Begins QUIC's handshake over an open socket.
    pub(super) fn begin_quic(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        let remote = self.load.address(connection.number);
        let (Some(quic), Some(socket), Some(remote)) = (&mut self.quic, &connection.socket, remote)
        else {
            return self.fail_connection(index, FailureCause::Other, now);
        };
        connection.state = HttpConnectionState::Handshake;
        let begun =
            UdpSocketState::new(socket.into()).map_err(|e| (failure_cause(&e), e.to_string()));
        let begun = begun.and_then(|udp| {
            let at = quic.to_instant(now);
            let connected = quic
                .endpoint
                .connect(at, quic.config.clone(), remote, &quic.name);
            let connected = connected.map_err(|e| match e {
                ConnectError::CidsExhausted => (FailureCause::Exhausted, e.to_string()),
                _ => (FailureCause::Other, e.to_string()),
            });
            Ok((connected?, udp))
        });
        match begun {
            Ok((quic, udp)) => {
                connection.http3 = Some(Box::new(Http3::new(quic, udp)));
                self.transmit(index, now);
            }
            Err((cause, why)) => {
                self.record_first_complaint(|| format!("cannot connect: {why}"));
                self.fail_connection(index, cause, now);
            }
        }
    }

    /// Reads datagrams from the socket.
    pub(super) fn receive_datagrams(&mut self, index: usize) {
        let number = self.connections[index].number;
        for _ in 0..CALLS {
            let connection = &mut self.connections[index];
            let (Some(quic), Some(http3), Some(socket)) =
                (&mut self.quic, &mut connection.http3, &connection.socket)
            else {
                return;
            };
            let mut metas = [RecvMeta::default(); ROOMS];
            let mut rooms = quic.rooms.each_mut().map(|room| IoSliceMut::new(room));
            let came = http3.udp.recv(socket.into(), &mut rooms, &mut metas);
            let now = now_ns();
            let at = quic.to_instant(now);
            let came = match came {
                Ok(came) => came,
                Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(why) => return self.quic_broken(index, &why, now),
            };
            let (seen, remote) = (quic.verified_certificates(), http3.quic.remote_address());
            for (meta, room) in metas[..came].iter().zip(&quic.rooms) {
                let ecn = meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
                for datagram in room[..meta.len].chunks(meta.stride.max(1)) {
                    quic.out.clear();
                    let bytes = BytesMut::from(datagram);
                    let event = quic
                        .endpoint
                        .handle(at, remote, None, ecn, bytes, &mut quic.out);
                    // Other events get no reply: the socket belongs to one connection, and unknown datagrams are old
                    // ones.
                    if let Some(DatagramEvent::ConnectionEvent(handle, event)) = event
                        && handle == http3.handle
                    {
                        http3.quic.handle_event(event);
                    }
                }
            }
            http3.full |= quic.verified_certificates() != seen;
            self.take_quic_turn(index, now);
            if came < ROOMS || self.connections[index].number != number {
                return;
            }
        }
        self.unread.push((index, number));
    }

    /// Processes a connection after events: reports results of requests, ends a completed connection, sends as many
    /// requests as it has room for, and transmits pending data.
    pub(super) fn take_quic_turn(&mut self, index: usize, now: u64) {
        if self.quic_events(index, now) == ConnectionTurn::Ended {
            return;
        }
        let connection = &mut self.connections[index];
        let Some(http3) = &mut connection.http3 else {
            return;
        };
        if connection.state == HttpConnectionState::Open {
            let most = self.load.job.per_connection;
            let spent = most > 0 && connection.requests >= most;
            if http3.protocol.open_streams() == 0 && (spent || http3.protocol.is_over()) {
                return self.close(index, now);
            }
            self.look_ahead(index);
            self.ask_again(index, now);
            if self.sendable_requests(index) > 0 {
                self.next(index, now);
            }
        }
        self.transmit(index, now);
    }

    fn look_ahead(&mut self, index: usize) {
        if let Some(http3) = &mut self.connections[index].http3 {
            self.out.http3.stream_waits += u64::from(http3.look_ahead());
        }
    }

    fn quic_events(&mut self, index: usize, now: u64) -> ConnectionTurn {
        let number = self.connections[index].number;
        loop {
            let (Some(quic), Some(http3)) = (&mut self.quic, &mut self.connections[index].http3)
            else {
                return ConnectionTurn::Ended;
            };
            while let Some(event) = http3.quic.poll_endpoint_events() {
                http3.drained |= event.is_drained();
                if let Some(event) = quic.endpoint.handle_event(http3.handle, event) {
                    http3.quic.handle_event(event);
                }
            }
            let goes = match http3.quic.poll() {
                None => return ConnectionTurn::On,
                Some(Event::Connected) => self.finish_quic_handshake(index, now),
                Some(Event::ConnectionLost { reason }) => self.quic_lost(index, &reason, now),
                Some(Event::Stream(event)) => self.stream_event(index, event, now),
                Some(_) => ConnectionTurn::On,
            };
            if goes == ConnectionTurn::Ended || self.connections[index].number != number {
                return ConnectionTurn::Ended;
            }
        }
    }

    /// The handshake is complete.
    fn finish_quic_handshake(&mut self, index: usize, now: u64) -> ConnectionTurn {
        let connection = &mut self.connections[index];
        let Some(http3) = &mut connection.http3 else {
            return ConnectionTurn::Ended;
        };
        self.out
            .connect
            .record(now.saturating_sub(connection.since_ns));
        match http3.full {
            true => self.out.handshakes.0 += 1,
            false => self.out.handshakes.1 += 1,
        }
        match self.out.agreed.get_mut(QUIC_TLS) {
            Some(n) => *n += 1,
            None => drop(self.out.agreed.insert(QUIC_TLS.to_owned(), 1)),
        }
        self.out.totals.sent_bytes += http3.send_settings();
        self.look_ahead(index);
        self.mark_ready(index, now);
        match self.connections[index].http3 {
            Some(_) => ConnectionTurn::On,
            None => ConnectionTurn::Ended,
        }
    }

    fn stream_event(&mut self, index: usize, event: StreamEvent, now: u64) -> ConnectionTurn {
        let Some(http3) = &mut self.connections[index].http3 else {
            return ConnectionTurn::Ended;
        };
        match event {
            StreamEvent::Readable { id } => match id.dir() {
                Dir::Bi => return self.read_answer(index, id, now),
                Dir::Uni => return self.read_uni(index, id, now),
            },
            StreamEvent::Opened { dir: Dir::Uni } => {
                while let Some(http3) = &mut self.connections[index].http3
                    && let Some(id) = http3.quic.streams().accept(Dir::Uni)
                {
                    if self.read_uni(index, id, now) == ConnectionTurn::Ended {
                        return ConnectionTurn::Ended;
                    }
                }
            }
            StreamEvent::Writable { id } => self.out.totals.sent_bytes += http3.go_on(id),
            // The answer may still be complete.
            StreamEvent::Stopped { id, error_code } => http3.stop_asking(id, error_code),
            _ => {}
        }
        ConnectionTurn::On
    }

    /// Parses answers from received data.
    fn read_answer(&mut self, index: usize, id: StreamId, now: u64) -> ConnectionTurn {
        let (Some(quic), Some(http3)) = (&mut self.quic, &mut self.connections[index].http3) else {
            return ConnectionTurn::Ended;
        };
        let mut received = http3.quic.recv_stream(id);
        // It was ended from here.
        let Ok(mut chunks) = received.read(true) else {
            return ConnectionTurn::On;
        };
        let mut answers = StreamAnswers {
            bytes: &mut self.out.totals.body_bytes,
            warm_bytes: &mut self.warm_bytes.body,
            judge: &self.judge,
            now,
        };
        let number = id.index();
        let step = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    self.out.totals.received_bytes += chunk.bytes.len() as u64;
                    let read =
                        http3
                            .protocol
                            .read(number, &mut quic.decoder, &chunk.bytes, &mut answers);
                    match read {
                        Ok(None) => {}
                        step => break step,
                    }
                }
                Ok(None) => break http3.protocol.end(number),
                Err(ReadError::Blocked) => break Ok(None),
                Err(ReadError::Reset(why)) => {
                    let why = StreamFailure::Reset(why.into_inner());
                    let of = http3.protocol.remove_request(number);
                    break Ok(of.map(|of| Http3Step::Failed { of, why }));
                }
            }
        };
        // Resulting data is sent at the end of the turn.
        let _ = chunks.finalize();
        match step {
            Ok(None) => {}
            Ok(Some(Http3Step::Ended { of, status })) => {
                http3.forget_rest(id);
                let mut kept = of.kept;
                self.count_answer(of.asked, status, kept.as_deref_mut(), true, now);
                self.spare.extend(kept);
            }
            Ok(Some(Http3Step::Failed { of, why })) => {
                http3.cancel_stream(id, frame::code::MESSAGE_ERROR);
                self.request_failed(of, why);
            }
            Err(fault) => return self.handle_http3_fault(index, fault, now),
        }
        ConnectionTurn::On
    }

    /// Reads a unidirectional stream of the server.
    fn read_uni(&mut self, index: usize, id: StreamId, now: u64) -> ConnectionTurn {
        let Some(http3) = &mut self.connections[index].http3 else {
            return ConnectionTurn::Ended;
        };
        let mut received = http3.quic.recv_stream(id);
        let Ok(mut chunks) = received.read(true) else {
            return ConnectionTurn::On;
        };
        let mut away = false;
        let read = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => match http3.protocol.read_uni(id.index(), &chunk.bytes) {
                    Ok(goes) => away |= goes,
                    Err(fault) => break Err(fault),
                },
                Ok(None) | Err(ReadError::Reset(_)) => break http3.protocol.end_uni(id.index()),
                Err(ReadError::Blocked) => break Ok(()),
            }
        };
        let _ = chunks.finalize();
        if let Err(fault) = read {
            return self.handle_http3_fault(index, fault, now);
        }
        if away {
            self.out.http3.goaways += 1;
            while let Some(http3) = &mut self.connections[index].http3
                && let Some((number, of)) = http3.protocol.unprocessed()
            {
                http3.cancel_stream(stream_id(number), frame::code::REQUEST_CANCELLED);
                self.request_failed(of, StreamFailure::Unprocessed);
            }
        }
        ConnectionTurn::On
    }

    /// Handles a protocol violation: informs the server, and ends the connection.
    #[cold]
    fn handle_http3_fault(&mut self, index: usize, fault: Http3Fault, now: u64) -> ConnectionTurn {
        let Http3Fault { what, code: number } = fault;
        let name = frame::code_name(number);
        self.record_first_complaint(|| {
            format!("HTTP/3 protocol error by the server: {what} ({name})")
        });
        if let (Some(quic), Some(http3)) = (&self.quic, &mut self.connections[index].http3) {
            let reason = Bytes::from_static(what.as_bytes());
            http3
                .quic
                .close(quic.to_instant(now), error_code(number), reason);
        }
        self.fail_connection(index, FailureCause::Malformed, now);
        ConnectionTurn::Ended
    }

    #[cold]
    fn request_failed(&mut self, pending: PendingStream, why: StreamFailure) {
        let (cause, again) = match why {
            StreamFailure::Reset(code) => {
                count_name(&mut self.out.http3.resets, frame::code_name(code));
                let rejected = code == frame::code::REQUEST_REJECTED;
                (FailureCause::StreamReset, rejected)
            }
            StreamFailure::Unprocessed => (FailureCause::Unprocessed, true),
            StreamFailure::Malformed(what) => {
                self.record_first_complaint(|| format!("malformed HTTP/3 response: {what}"));
                (FailureCause::Malformed, false)
            }
        };
        self.end_failed_stream(pending, cause, again);
    }

    /// Handles the loss of the connection reported by QUIC.
    #[cold]
    fn quic_lost(&mut self, index: usize, reason: &ConnectionError, now: u64) -> ConnectionTurn {
        let mut in_order = false;
        let mut closed = |name: &str| count_name(&mut self.out.http3.closes, name);
        let (cause, said) = match reason {
            ConnectionError::VersionMismatch => (
                FailureCause::Version,
                Some("the server does not support QUIC version 1 (RFC 9000)".to_owned()),
            ),
            ConnectionError::TransportError(error) => match u64::from(error.code) {
                code if ALERTS.contains(&code) => {
                    (FailureCause::Tls, Some(format!("TLS: {error}")))
                }
                _ => (
                    FailureCause::Malformed,
                    Some(format!("QUIC protocol error: {error}")),
                ),
            },
            ConnectionError::ConnectionClosed(close) => {
                let number = u64::from(close.error_code);
                match ALERTS.contains(&number) {
                    true => closed(&format!("TLS alert {}", number - ALERTS.start)),
                    false => closed(&format!("{:?}", close.error_code)),
                }
                match number {
                    NO_PROTOCOL => (
                        FailureCause::Tls,
                        Some("the server does not support HTTP/3: it refused h3 in the TLS handshake (ALPN)".to_owned()),
                    ),
                    code if ALERTS.contains(&code) => {
                        (FailureCause::Tls, Some(format!("TLS: the server reports: {close}")))
                    }
                    0 => {
                        in_order = true;
                        (FailureCause::Closed, None)
                    }
                    2 => (FailureCause::Refused, Some(format!("the server reports: {close}"))),
                    _ => (FailureCause::Closed, Some(format!("the server reports: {close}"))),
                }
            }
            ConnectionError::ApplicationClosed(close) => {
                let number = close.error_code.into_inner();
                let name = frame::code_name(number);
                closed(name);
                in_order = number == frame::code::NO_ERROR;
                let said = (!in_order).then(|| format!("the server reports: {name}: {close}"));
                (FailureCause::Closed, said)
            }
            ConnectionError::Reset => (FailureCause::Reset, None),
            ConnectionError::TimedOut => {
                in_order = true;
                (FailureCause::IdleTimeout, None)
            }
            ConnectionError::LocallyClosed | ConnectionError::CidsExhausted => {
                (FailureCause::Other, Some(reason.to_string()))
            }
        };
        if let Some(said) = said {
            self.record_first_complaint(|| said);
        }
        let connection = &self.connections[index];
        match in_order
            && connection.state == HttpConnectionState::Open
            && connection.under_way() == 0
        {
            true => self.close(index, now),
            false => self.fail_connection(index, cause, now),
        }
        ConnectionTurn::Ended
    }

    /// Handles a socket error that ends the connection.
    #[cold]
    fn quic_broken(&mut self, index: usize, why: &std::io::Error, now: u64) {
        self.record_first_complaint(|| format!("cannot connect: {why}"));
        self.fail_connection(index, failure_cause(why), now);
    }

    /// Transmits pending QUIC data.
    pub(super) fn transmit(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        let (Some(quic), Some(http3), Some(socket)) =
            (&mut self.quic, &mut connection.http3, &connection.socket)
        else {
            return;
        };
        let at = quic.to_instant(now);
        let remote = http3.quic.remote_address();
        let broken = loop {
            if let Some(unsent) = http3.unsent.take() {
                match send(&http3.udp, socket, remote, &unsent.bytes, unsent.how) {
                    Ok(true) => {}
                    Ok(false) => {
                        http3.unsent = Some(unsent);
                        break None;
                    }
                    Err(why) => break Some(why),
                }
            }
            quic.out.clear();
            let most = http3.udp.max_gso_segments();
            let Some(made) = http3.quic.poll_transmit(at, most, &mut quic.out) else {
                break None;
            };
            let bytes = &quic.out[..made.size];
            let how = (made.segment_size, made.ecn.map(|ecn| ecn as u8));
            match send(&http3.udp, socket, remote, bytes, how) {
                Ok(true) => {}
                Ok(false) => {
                    let bytes = bytes.to_vec();
                    http3.unsent = Some(UnsentDatagrams { bytes, how });
                    break None;
                }
                Err(why) => break Some(why),
            }
        };
        quic.arm_timer(http3, index, connection.number);
        if let Some(why) = broken {
            self.quic_broken(index, &why, now);
        }
    }

    /// Runs connection timers that are due.
    pub(super) fn run_due_quic_timers(&mut self, now: u64) {
        while let Some(quic) = &mut self.quic
            && let Some(Reverse((at, index, number))) = quic.timers.peek().copied()
            && at <= now
        {
            quic.timers.pop();
            let connection = &mut self.connections[index];
            let Some(http3) = &mut connection.http3 else {
                continue;
            };
            if connection.number != number || http3.timer_ns != at {
                continue;
            }
            http3.timer_ns = 0;
            match quic.next_timer(http3) {
                Some(due) if due <= now => {
                    http3.quic.handle_timeout(quic.to_instant(now));
                    self.take_quic_turn(index, now);
                }
                _ => quic.arm_timer(http3, index, number),
            }
        }
    }

    /// Time of the next connection timer.
    pub(super) fn next_of_quic(&self) -> u64 {
        let quic = self.quic.as_ref();
        let next = quic.and_then(|quic| quic.timers.peek());
        next.map_or(u64::MAX, |Reverse((at, ..))| *at)
    }

    /// Ends a connection: informs the server if necessary, and adds the QUIC statistics.
    pub(super) fn send_goaway(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        let (Some(quic), Some(mut http3)) = (&mut self.quic, connection.http3.take()) else {
            return;
        };
        let at = quic.to_instant(now);
        if !http3.quic.is_closed() {
            let code = error_code(frame::code::NO_ERROR);
            http3.quic.close(at, code, Bytes::new());
        }
        quic.out.clear();
        // Once, and only if the socket accepts it: a server that misses it uses its timeout.
        if let Some(made) = http3.quic.poll_transmit(at, 1, &mut quic.out)
            && let Some(socket) = &connection.socket
        {
            let remote = http3.quic.remote_address();
            let how = (None, made.ecn.map(|ecn| ecn as u8));
            let _ = send(&http3.udp, socket, remote, &quic.out[..made.size], how);
        }
        if !http3.drained {
            let drained = EndpointEvent::drained();
            quic.endpoint.handle_event(http3.handle, drained);
        }
        let stats = http3.quic.stats();
        let all = &mut self.out.http3;
        all.sent_packets += stats.path.sent_packets;
        all.lost_packets += stats.path.lost_packets;
        all.sent_datagrams += stats.udp_tx.datagrams;
        all.received_datagrams += stats.udp_rx.datagrams;
    }

    /// Gives up requests that exceed their timeout, and the connection if the server does not answer a ping then.
    pub(super) fn scan_quic(&mut self, index: usize, now: u64) {
        let mut expired = false;
        loop {
            let Some(http3) = &mut self.connections[index].http3 else {
                return;
            };
            let any = self.load.job.first_byte_timeout.is_some();
            let (load, ears) = (self.load, &self.listening);
            let late = |of: &PendingStream| {
                let waited = ears.effective_wait(of.asked.sent_ns);
                load.exceeded_timeout(&of.asked, waited).is_some()
            };
            let Some(number) = http3.protocol.find(any, late) else {
                break;
            };
            let Some(pending) = http3.protocol.remove_request(number) else {
                break;
            };
            http3.cancel_stream(stream_id(number), frame::code::REQUEST_CANCELLED);
            expired = true;
            self.out.http3.cancelled += 1;
            let cause = self.exceeded_timeout(&pending.asked);
            self.count_failed_request(pending.asked, cause.unwrap_or(FailureCause::Timeout));
            self.keep_spare(pending.kept);
        }
        let timeout = self.load.job.timeout.as_nanos();
        let Some(http3) = &mut self.connections[index].http3 else {
            return;
        };
        if !expired && http3.pinged_ns == 0 {
            return;
        }
        let acks = http3.quic.stats().frame_rx.acks;
        if acks != http3.acks {
            (http3.pinged_ns, http3.acks) = (0, acks);
        }
        if http3.pinged_ns > 0 && self.listening.effective_wait(http3.pinged_ns) >= timeout {
            return self.fail_connection(index, FailureCause::Timeout, now);
        }
        if expired {
            if http3.pinged_ns == 0 {
                http3.pinged_ns = now;
                http3.quic.ping();
            }
            self.take_quic_turn(index, now);
        }
    }
}

/// The only TLS version of QUIC; the library does not expose the cipher.
const QUIC_TLS: &str = "TLSv1_3";

fn failure_cause(why: &std::io::Error) -> FailureCause {
    let errno = why.raw_os_error();
    errno.map_or(FailureCause::Other, |n| {
        FailureCause::from_errno(Errno::from_raw_os_error(n))
    })
}

/// Sends datagrams. Returns false if there is no room for them. Datagrams that can only be lost count as sent.
fn send(
    udp: &UdpSocketState,
    socket: &OwnedFd,
    destination: SocketAddr,
    contents: &[u8],
    (segment_size, ecn): DatagramLayout,
) -> std::io::Result<bool> {
    let sent = udp.try_send(
        socket.into(),
        &Transmit {
            destination,
            ecn: ecn.and_then(quinn_udp::EcnCodepoint::from_bits),
            contents,
            segment_size,
            src_ip: None,
        },
    );
    match sent {
        Ok(()) => Ok(true),
        Err(why) if why.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
        Err(why) => match why.raw_os_error().map(Errno::from_raw_os_error) {
            // A path MTU probe, or several datagrams if the device accepts only one.
            Some(Errno::MSGSIZE) => Ok(true),
            Some(Errno::IO | Errno::INVAL) if segment_size.is_some() => Ok(true),
            _ => Err(why),
        },
    }
}
