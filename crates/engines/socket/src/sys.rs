//! Socket options by number, and TCP statistics, which have no safe wrapper.
#![allow(unsafe_code, reason = "options that no wrapper knows, and TCP_INFO")]

use std::{
    io,
    mem::MaybeUninit,
    net::IpAddr,
    os::fd::{AsFd, AsRawFd},
};

use wb_model::socket::TcpSample;

/// Sets an option of type `int`.
///
/// # Errors
/// Returns the system's error.
pub(crate) fn set_int(socket: impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    set_bytes(socket, level, name, &value.to_ne_bytes())
}

/// Sets an option of any type.
///
/// # Errors
/// Returns the system's error.
pub(crate) fn set_bytes(socket: impl AsFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let length = libc::socklen_t::try_from(value.len()).expect("options are short");
    // SAFETY: the pointer and the length are those of one slice, which the call only reads.
    let done = unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), length) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads an option of type `int`.
///
/// # Errors
/// Returns the system's error.
pub(crate) fn get_int(socket: impl AsFd, level: i32, name: i32) -> io::Result<i32> {
    let mut bytes = [0_u8; 4];
    get_bytes(socket, level, name, &mut bytes)?;
    Ok(i32::from_ne_bytes(bytes))
}

/// Reads an option of any type. Returns the number of bytes from the kernel.
///
/// # Errors
/// Returns the system's error.
pub(crate) fn get_bytes(
    socket: impl AsFd,
    level: i32,
    name: i32,
    value: &mut [u8],
) -> io::Result<usize> {
    let fd = socket.as_fd().as_raw_fd();
    let mut length = libc::socklen_t::try_from(value.len()).expect("options are short");
    // SAFETY: the kernel writes at most `length` bytes, the length of the slice, and sets it.
    let done =
        unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut length) };
    match done {
        0 => Ok(length as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

/// linux/filter.h: offset of the network header, seen from any socket.
const SKF_NET_OFF: u32 = -0x10_0000_i32 as u32;
/// Offsets of the source address in the IP headers.
const SOURCE_V4: u32 = 12;
const SOURCE_V6: u32 = 8;

/// Makes the kernel drop data from all other addresses. This costs the loops nothing, and unknown peers cannot fill the
/// queue.
///
/// # Errors
/// Returns the system's error.
pub(crate) fn filter_sources(socket: impl AsFd, addresses: &[IpAddr]) -> io::Result<()> {
    let mut program = source_filter(addresses);
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: program.as_mut_ptr(),
    };
    let length = libc::socklen_t::try_from(size_of_val(&filter)).expect("it is small");
    // SAFETY: the struct and the program that it points to outlive the call, which only reads them.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            length,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn source_filter(addresses: &[IpAddr]) -> Vec<libc::sock_filter> {
    let step = |code: u32, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let load = |at: u32| {
        step(
            libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
            0,
            SKF_NET_OFF + at,
        )
    };
    let unless =
        |word: u32, skip: u8| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, skip, word);
    let give = |bytes: u32| step(libc::BPF_RET | libc::BPF_K, 0, bytes);
    let mut program = Vec::new();
    for address in addresses {
        let (at, bytes) = match address {
            IpAddr::V4(v4) => (SOURCE_V4, v4.octets().to_vec()),
            IpAddr::V6(v6) => (SOURCE_V6, v6.octets().to_vec()),
        };
        let words = bytes.len() / 4;
        for (n, word) in bytes.chunks_exact(4).enumerate() {
            let word = u32::from_be_bytes(word.try_into().expect("four bytes"));
            program.push(load(at + 4 * n as u32));
            // Skips the remaining words and the end of this address.
            program.push(unless(word, 2 * (words - 1 - n) as u8 + 1));
        }
        program.push(give(u32::MAX));
    }
    program.push(give(0));
    program
}

/// Beginning of the kernel's `struct tcp_info` (linux/tcp.h), as far as it is used. Older kernels fill less, and the
/// rest stays 0.
#[repr(C)]
#[derive(Clone, Copy)]
struct TcpInfo {
    bytes: [u8; 8],
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
}

/// TCP statistics of a connection; `None` if the socket is not TCP (MPTCP answers too).
pub fn tcp_sample(socket: impl AsFd) -> Option<TcpSample> {
    let fd = socket.as_fd().as_raw_fd();
    let mut info = MaybeUninit::<TcpInfo>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<TcpInfo>()).expect("it is small");
    // SAFETY: the kernel writes at most `length` bytes into the struct of that size. All of it is
    // zeroed before, and every bit pattern is valid.
    let info = unsafe {
        let done = libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        );
        if done != 0 {
            return None;
        }
        info.assume_init()
    };
    let bits = |bytes: u64| bytes.saturating_mul(8);
    Some(TcpSample {
        rtt_us: info.rtt,
        rtt_var_us: info.rttvar,
        min_rtt_us: info.min_rtt,
        cwnd: info.snd_cwnd,
        ssthresh: info.snd_ssthresh,
        retransmissions: info.total_retrans,
        lost: info.lost,
        reordering: info.reordering,
        mss: info.snd_mss,
        path_mtu: info.pmtu,
        rto_us: info.rto,
        ato_us: info.ato,
        receive_ssthresh: info.rcv_ssthresh,
        pacing_bps: bits(info.pacing_rate),
        delivery_bps: bits(info.delivery_rate),
        bytes_acked: info.bytes_acked,
        bytes_received: info.bytes_received,
        not_sent: info.notsent_bytes,
        busy_us: info.busy_time,
        receiver_limited_us: info.rwnd_limited,
        buffer_limited_us: info.sndbuf_limited,
        receive_rtt_us: info.rcv_rtt,
        receive_space: info.rcv_space,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn tcp_tells_what_was_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.write_all(&[7; 5000]).unwrap();
        let acked = || tcp_sample(&client).unwrap().bytes_acked;
        wb_testing::eventually("all is acknowledged", || acked() >= 5000);
        let acked = acked();
        // The SYN counts as a byte in some kernels.
        assert!((5000..=5001).contains(&acked), "{acked}");
        assert_eq!(tcp_sample(&server).unwrap().bytes_received, 5000);
        let sample = tcp_sample(&client).unwrap();
        assert!(sample.mss > 500 && sample.rto_us >= 1000, "{sample:?}");
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(tcp_sample(&datagrams).is_none());
    }

    #[test]
    fn an_int_comes_back() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        set_int(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY, 5).unwrap();
        let got = get_int(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY).unwrap();
        assert_eq!(got, 5);
        assert!(set_int(&socket, libc::SOL_SOCKET, 9999, 5).is_err());
    }
}
