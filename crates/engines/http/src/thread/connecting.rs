//! Establishes connections: begin, handshake, retry.

use std::{cmp::Reverse, os::fd::OwnedFd};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    net::{Shutdown, connect_unspec, shutdown, sockopt},
};
use rustls::HandshakeKind;

use super::{ConnectionTurn, HttpThread, now_ns};
use crate::{
    connection::{HttpConnectionState, start_connect},
    thread_outcome::FailureCause,
    tls::ALPN,
};

/// Maximum number of connections being established at a time.
const CONNECTING: usize = 512;
/// Time before the first retry of an unreachable server; doubled for each further one.
const BACKOFF_NS: u64 = 1_000_000;
const LONGEST_BACKOFF_NS: u64 = 1_000_000_000;
/// If ending takes time, this number of sockets is closed before reuse is tried again.
const RENEWS_AFTER: u32 = 63;

/// Shuts down sending. Returns true if both ends have finished.
fn shut_down_sending(socket: &OwnedFd) -> bool {
    let say = || shutdown(socket, Shutdown::Write) == Err(Errno::NOTCONN);
    say() || say()
}

impl HttpThread<'_> {
    /// Begins further connections, a limited number at a time: those that do not fit into a server's queue would cost a
    /// second each.
    pub(super) fn begin_more(&mut self, now: u64) {
        while self.begun < self.connections.len()
            && !self.stops_asking()
            && self.needs_connection()
            && (self.connecting < CONNECTING || self.load.job.as_wrk)
        {
            let index = self.begun;
            self.begun += 1;
            self.connect(index, now, None);
        }
    }

    /// Returns true if there are more requests left than connections that will take one: those being established, and
    /// those that wait for a request that is due.
    pub(super) fn needs_connection(&self) -> bool {
        let connecting = self.connecting as u64;
        let left = self.budget.saturating_add(self.unprocessed.len() as u64);
        if left > connecting + self.idle.len() as u64 {
            return true;
        }
        // The queue also holds connections that have ended since.
        let begun = &self.connections[..self.begun];
        let idle = begun.iter().filter(|c| c.idle).count();
        left > connecting + idle as u64
    }

    /// Begins a connection, on the socket of an ended one if given.
    pub(super) fn connect(&mut self, index: usize, now: u64, renewed: Option<OwnedFd>) {
        let number = self.numbers;
        self.numbers += u64::from(self.load.job.threads);
        self.out.totals.attempted_connections += 1;
        let address = self.task.script.as_ref().and_then(|s| s.address());
        let address = address.or_else(|| self.load.address(number));
        let ipv6 = address.is_some_and(|address| address.is_ipv6());
        let renewed = renewed.filter(|_| self.connections[index].ipv6 == ipv6);
        // It is registered with epoll.
        let known = renewed.is_some();
        let begun = start_connect(self.load, address, number, renewed).and_then(|socket| {
            if known {
                return Ok(socket);
            }
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(
                &self.epoll,
                &socket,
                EventData::new_u64(index as u64),
                flags,
            )?;
            Ok(socket)
        });
        let connection = &mut self.connections[index];
        (connection.number, connection.ipv6) = (number, ipv6);
        (connection.since_ns, connection.begun_ns) = (now, now);
        match begun {
            Ok(socket) => {
                connection.socket = Some(socket);
                connection.state = HttpConnectionState::Connecting;
                self.connecting += 1;
                if self.quic.is_some() {
                    self.begin_quic(index, now);
                }
            }
            Err(why) => {
                if let Some(exact) = &mut self.out.exact {
                    exact.errors[0] += 1;
                }
                FailureCause::from_errno(why).count(&mut self.out.totals.refused_connections, 1);
                // Errors from the network arrive later: this one comes from the local kernel.
                let unrouted = matches!(
                    why,
                    Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::NODEV
                );
                self.out.unrouted += u64::from(unrouted);
                self.record_first_complaint(|| format!("cannot connect: {why}"));
                self.retry_later(index, now);
            }
        }
    }

    /// Ends a connection as closing its socket would. Returns the socket if this is complete at once, as with a nearby
    /// server. Reconnecting a socket costs the kernel a fifth less than a new one.
    pub(super) fn renew_socket(&mut self, index: usize) -> Option<OwnedFd> {
        if !self.renews || self.stops_asking() || !self.needs_connection() {
            return None;
        }
        if self.renews_after > 0 {
            self.renews_after -= 1;
            return None;
        }
        let socket = self.connections[index].socket.take()?;
        // Do not wait for a distant server to close its side.
        if !shut_down_sending(&socket) || connect_unspec(&socket).is_err() {
            self.renews_after = RENEWS_AFTER;
            return None;
        }
        Some(socket)
    }

    /// Retries after an increasing delay.
    pub(super) fn retry_later(&mut self, index: usize, now: u64) {
        let connection = &mut self.connections[index];
        connection.clear();
        connection.backoff_ns = (connection.backoff_ns * 2).clamp(BACKOFF_NS, LONGEST_BACKOFF_NS);
        let at = now + connection.backoff_ns;
        self.timers.push(Reverse((at, index, connection.number)));
    }

    /// The TCP handshake has succeeded or failed.
    pub(super) fn finish_tcp_handshake(
        &mut self,
        index: usize,
        flags: EventFlags,
        now: u64,
    ) -> ConnectionTurn {
        if flags.intersects(EventFlags::ERR | EventFlags::HUP) {
            let socket = self.connections[index].socket.as_ref();
            let why = match socket.map(sockopt::socket_error) {
                Some(Ok(Err(why)) | Err(why)) => why,
                _ => Errno::CONNRESET,
            };
            self.record_first_complaint(|| format!("cannot connect: {why}"));
            self.fail_connection(index, FailureCause::from_errno(why), now);
            return ConnectionTurn::Ended;
        }
        if !flags.contains(EventFlags::OUT) {
            return ConnectionTurn::On;
        }
        let connection = &mut self.connections[index];
        self.out
            .connect
            .record(now.saturating_sub(connection.since_ns));
        connection.since_ns = now;
        let (Some(tls), Some(config)) = (&self.load.tls, &self.tls) else {
            self.start_protocol(index, now);
            return ConnectionTurn::On;
        };
        match tls.connect(config) {
            Ok(session) => {
                connection.tls = Some(Box::new(session));
                connection.state = HttpConnectionState::Handshake;
                self.flush(index, now);
                ConnectionTurn::On
            }
            Err(_) => {
                self.fail_connection(index, FailureCause::Tls, now);
                ConnectionTurn::Ended
            }
        }
    }

    /// The TCP and TLS handshakes are complete.
    fn start_protocol(&mut self, index: usize, now: u64) {
        match self.http2 {
            true => self.send_preface(index, now),
            false => self.mark_ready(index, now),
        }
    }

    /// The connection may carry requests.
    pub(super) fn mark_ready(&mut self, index: usize, now: u64) {
        self.reached_ns = now;
        self.connecting -= 1;
        self.out.totals.established_connections += 1;
        let keeps = self.keeps && !self.load.job.version.has_streams();
        if keeps && self.connections[index].kept.is_none() {
            self.connections[index].kept = Some(self.kept_answer());
        }
        let connection = &mut self.connections[index];
        connection.state = HttpConnectionState::Open;
        connection.backoff_ns = 0;
        self.next(index, now);
    }

    /// Checks if the handshake is complete.
    pub(super) fn check_tls_handshake(&mut self, index: usize) -> ConnectionTurn {
        let connection = &mut self.connections[index];
        let Some(tls) = &connection.tls else {
            return ConnectionTurn::Ended;
        };
        if connection.state != HttpConnectionState::Handshake || tls.is_handshaking() {
            return ConnectionTurn::On;
        }
        let now = now_ns();
        self.out
            .handshake
            .record(now.saturating_sub(connection.since_ns));
        match tls.handshake_kind() {
            Some(HandshakeKind::Resumed) => self.out.handshakes.1 += 1,
            _ => self.out.handshakes.0 += 1,
        }
        let version = tls.protocol_version().and_then(|v| v.as_str());
        let suite = tls
            .negotiated_cipher_suite()
            .and_then(|s| s.suite().as_str());
        let name = (version.unwrap_or("?"), suite.unwrap_or("?"));
        match self
            .out
            .agreed
            .iter_mut()
            .find(|(k, _)| k.split_once(' ') == Some(name))
        {
            Some((_, n)) => *n += 1,
            None => {
                self.out.agreed.insert(format!("{} {}", name.0, name.1), 1);
            }
        }
        let protocol = tls.alpn_protocol();
        if self.http2 && protocol != Some(ALPN) {
            let protocol = protocol.map_or_else(
                || "nothing".to_owned(),
                |name| String::from_utf8_lossy(name).into_owned(),
            );
            self.record_first_complaint(|| {
                format!("the server does not support HTTP/2: it selected {protocol} in the TLS handshake (ALPN)")
            });
            self.fail_connection(index, FailureCause::Tls, now);
            return ConnectionTurn::Ended;
        }
        self.start_protocol(index, now);
        match self.connections[index].socket {
            Some(_) => ConnectionTurn::On,
            None => ConnectionTurn::Ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
    };

    use rustix::net::connect;

    use super::*;

    #[test]
    fn a_socket_is_over_when_both_ends_said_so_and_connects_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let socket = OwnedFd::from(client.try_clone().unwrap());
        assert!(
            !shut_down_sending(&socket),
            "the server may still have something to say"
        );
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
        assert!(!shut_down_sending(&socket));
        drop(server);
        while !shut_down_sending(&socket) {
            std::thread::yield_now();
        }
        connect_unspec(&socket).unwrap();
        connect(&socket, &address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"a").unwrap();
        server.read_exact(&mut [0]).unwrap();
    }
}
