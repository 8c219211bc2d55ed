//! Preparation of a stream before its server is asked: a bound socket, sizes and buffers.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
};

use wb_model::socket::{SendBy, SocketEndReport, SocketFailure, SocketJob, SocketStage};
use wb_wire::SplitMix64;

use super::{
    connect_loop::ConnectLoop,
    failure::{stage_failure, system_failure},
    ports::{PortWalk, USUAL},
    role::StreamRole,
    stream_thread::StreamTask,
    target::DataAddresses,
};
use crate::{
    agreement::StreamLength,
    flow::{
        BufferPlan, BurstPace, DatagramReceivePlan, DatagramSendPlan, ReceivePlan, RequestPlan,
        SendPlan, datagrams_per_second, default_width,
    },
    host::endpoint,
    open::{SocketPlan, effective_settings, local_address, open},
};

/// Payload of the longest datagram.
const LONGEST_DATAGRAM: u32 = 65_507;
/// Bytes per call if the kernel does not report its buffer sizes.
const UNKNOWN: u32 = 4096;

/// A stream that is ready to be requested.
#[derive(Debug)]
pub(super) struct PreparedStream {
    pub(super) role: StreamRole,
    pub(super) ends: DataAddresses,
    pub(super) socket: OwnedFd,
    /// Local ports of tests that connect for each transaction.
    pub(super) walk: Option<PortWalk>,
    /// Address of the local socket.
    pub(super) local: SocketAddr,
    pub(super) send_buffer: u32,
    pub(super) receive_buffer: u32,
    pub(super) send_size: u32,
    pub(super) receive_size: u32,
    pub(super) send_width: u32,
    pub(super) receive_width: u32,
    pub(super) warnings: Vec<String>,
}

/// Opens and binds the data socket of a stream, the `number`-th of its job from 0.
pub(super) fn prepare_stream(
    job: &SocketJob,
    role: StreamRole,
    number: u16,
    ends: DataAddresses,
    random: &mut SplitMix64,
) -> Result<PreparedStream, SocketFailure> {
    let refused = |error: &std::io::Error| {
        let what = format!("cannot create a data socket at {}", ends.local);
        system_failure(SocketStage::Socket, &what, error)
    };
    let side = &job.local;
    let mut walk = None;
    let (socket, send_buffer, receive_buffer, warnings);
    if role.connects_each() {
        let range = job.client_ports.unwrap_or(USUAL);
        let mut connects = ConnectLoop {
            job,
            role,
            from: ends.local,
            to: endpoint(ends.server, 0, ends.scope),
            scope: ends.scope,
            walk: PortWalk::new(range, random.next()),
            limit: None,
            server_closes: true,
        };
        let bound = connects.bind_next().map_err(|error| refused(&error))?;
        (socket, send_buffer, receive_buffer) = (bound.fd, bound.send_buffer, bound.receive_buffer);
        warnings = bound.warnings;
        walk = Some(connects.walk);
    } else {
        // Further streams use the following ports.
        let port = match job.data.local_port {
            0 => 0,
            first => first.checked_add(number).ok_or_else(|| {
                let what = format!("no port for stream {}: the last port is 65535", number + 1);
                stage_failure(SocketStage::Socket, what)
            })?,
        };
        let multicast = ends.server.is_multicast() && role == StreamRole::Down;
        let opened = open(&SocketPlan {
            bind: Some(endpoint(ends.local, port, ends.scope)),
            ipv6: ends.server.is_ipv6(),
            protocol: job.protocol,
            socket_type: job.socket_type,
            side,
            options: &job.options,
            server: false,
            join: multicast.then_some(ends.server),
            only_from: &[],
            speaks_first: role.speaks_first(),
            busy_poll: job.busy_poll,
        })
        .map_err(|error| refused(&error))?;
        (socket, send_buffer, receive_buffer) =
            (opened.fd, opened.send_buffer, opened.receive_buffer);
        warnings = opened.warnings;
    }
    let local = local_address(socket.as_fd()).map_err(|error| refused(&error))?;
    let datagrams = job.protocol.is_datagram();
    let usual = |buffer: u32| match buffer {
        0 => UNKNOWN,
        size if datagrams => size.min(LONGEST_DATAGRAM),
        size => size,
    };
    let send_size = side.send_size.unwrap_or_else(|| usual(send_buffer));
    let receive_size = side.receive_size.unwrap_or_else(|| usual(receive_buffer));
    let width = |asked: u32, used: bool, buffer, size| match (asked, used, role) {
        (0, _, StreamRole::Rr | StreamRole::Crr) => 1,
        (0, true, _) => default_width(buffer, size),
        (asked, _, _) => asked,
    };
    Ok(PreparedStream {
        role,
        ends,
        walk,
        local,
        send_buffer,
        receive_buffer,
        send_width: width(
            side.send_width,
            role == StreamRole::Up,
            send_buffer,
            send_size,
        ),
        receive_width: width(
            side.receive_width,
            role == StreamRole::Down,
            receive_buffer,
            receive_size,
        ),
        send_size,
        receive_size,
        warnings,
        socket,
    })
}

/// Parameters of a task in addition to the job.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskTerms {
    pub(super) length: StreamLength,
    pub(super) to: SocketAddr,
    /// Stream ID in the tags of datagrams; `None` without tags.
    pub(super) tag: Option<u32>,
    /// The server ends our stream when it has sent everything.
    pub(super) server_counts: bool,
}

impl PreparedStream {
    /// The task of the thread, and the socket if one socket carries everything.
    pub(super) fn into_task<'a>(
        self,
        job: &'a SocketJob,
        terms: TaskTerms,
    ) -> (StreamTask<'a>, Option<OwnedFd>) {
        let datagrams = job.protocol.is_datagram();
        let pace = BurstPace::of_side(&job.local);
        let sends = BufferPlan::for_sending(&job.local, self.send_size, self.send_width);
        let receives = BufferPlan::for_receiving(&job.local, self.receive_size, self.receive_width);
        let whole_sends = sends.round_up_to_buffers(terms.length.unit_limit());
        let task = match self.role {
            StreamRole::Up if datagrams => StreamTask::SendDatagrams(DatagramSendPlan {
                buffers: sends,
                batch: job.local.batch,
                gso: job.local.gso,
                zerocopy: job.local.send_by == SendBy::Zerocopy,
                rate: job
                    .rate
                    .or_else(|| datagrams_per_second(job.local.pacing_bps, self.send_size)),
                time: terms.length.time_limit(),
                pace,
                limit: whole_sends,
                flow: terms.tag,
                spin: job.busy_poll,
            }),
            StreamRole::Up => StreamTask::Send(SendPlan {
                buffers: sends,
                by: job.local.send_by,
                limit: whole_sends,
                pace,
            }),
            StreamRole::Down if datagrams => StreamTask::ReceiveDatagrams(DatagramReceivePlan {
                buffers: receives,
                batch: job.local.batch,
                gro: job.local.gro,
                discard: false,
                tagged: terms.tag.is_some(),
                limit: terms.length.unit_limit().filter(|_| !terms.server_counts),
                connect: false,
                spin: job.busy_poll,
            }),
            StreamRole::Down => StreamTask::Receive(ReceivePlan {
                buffers: receives,
                by: job.local.receive_by,
                limit: terms.length.unit_limit().filter(|_| !terms.server_counts),
            }),
            StreamRole::Rr => StreamTask::Request(self.request_plan(job, terms.length)),
            StreamRole::Crr | StreamRole::Cc => return (self.into_connect_task(job, terms), None),
            StreamRole::Mss => StreamTask::Look,
        };
        (task, Some(self.socket))
    }

    fn into_connect_task(self, job: &SocketJob, terms: TaskTerms) -> StreamTask<'_> {
        let requests =
            (self.role == StreamRole::Crr).then(|| self.request_plan(job, StreamLength::Open));
        let mut walk = self.walk.expect("a test that connects each time has ports");
        if terms.to.ip() == self.local.ip() || terms.to.ip().is_loopback() {
            walk.leave_out(terms.to.port());
        }
        let connects = ConnectLoop {
            job,
            role: self.role,
            from: self.ends.local,
            scope: self.ends.scope,
            to: terms.to,
            walk,
            limit: terms.length.unit_limit(),
            server_closes: !job.control.none,
        };
        StreamTask::Connect(connects, self.socket, requests)
    }

    fn request_plan(&self, job: &SocketJob, length: StreamLength) -> RequestPlan {
        let side = &job.local;
        // An echo is as long as its request.
        let response = if job.control.none {
            job.request_size
        } else {
            job.response_size
        };
        RequestPlan {
            request: BufferPlan::for_sending(side, job.request_size, self.send_width),
            response: BufferPlan::for_receiving(side, response, self.receive_width),
            first_burst: job.first_burst,
            rate: job.rate,
            time: length.time_limit(),
            pace: BurstPace::of_side(side),
            spin: job.busy_poll,
            datagrams: job.protocol.is_datagram(),
            timeout: job.timeout.map(|timeout| timeout.0),
            limit: length.unit_limit(),
        }
    }

    /// Adds this stream to the report of this end.
    pub(super) fn add_to(&self, end: &mut SocketEndReport, job: &SocketJob) {
        let side = &job.local;
        if end.send_buffer[1].is_some() {
            return;
        }
        end.send_buffer = [side.send_buffer, Some(self.send_buffer), None];
        end.receive_buffer = [side.receive_buffer, Some(self.receive_buffer), None];
        end.send_size = Some(self.send_size);
        end.receive_size = Some(self.receive_size);
        end.send_width = self.send_width;
        end.receive_width = self.receive_width;
        end.burst = side.burst;
        let interval = side.burst_interval.0.as_micros();
        end.burst_interval_us = u32::try_from(interval).unwrap_or(u32::MAX);
        let now = effective_settings(self.socket.as_fd());
        end.no_delay = now.no_delay;
        end.congestion = now.congestion;
        end.priority = now.priority;
        end.tos = now.tos;
    }
}

impl PreparedStream {
    /// Buffer counts as netperf sends them: only that of the ring in use, unless another was requested.
    pub(super) fn send_width_on_the_wire(&self, job: &SocketJob) -> u32 {
        match self.role {
            StreamRole::Up | StreamRole::Mss | StreamRole::Rr | StreamRole::Crr => self.send_width,
            StreamRole::Down | StreamRole::Cc => job.local.send_width,
        }
    }

    pub(super) fn receive_width_on_the_wire(&self, job: &SocketJob) -> u32 {
        match self.role {
            StreamRole::Down | StreamRole::Rr | StreamRole::Crr => self.receive_width,
            StreamRole::Up | StreamRole::Mss | StreamRole::Cc => job.local.receive_width,
        }
    }
}
