use std::{
    net::{Ipv4Addr, UdpSocket},
    os::fd::AsFd,
    thread,
};

use super::*;

fn plan<'a>(side: &'a SocketSide, options: &'a SocketOptions) -> SocketPlan<'a> {
    SocketPlan {
        bind: Some((Ipv4Addr::LOCALHOST, 0).into()),
        ipv6: false,
        protocol: SocketProtocol::Tcp,
        socket_type: None,
        side,
        options,
        server: false,
        join: None,
        speaks_first: true,
        busy_poll: false,
        only_from: &[],
    }
}

fn read(fd: &OwnedFd, level: i32, name: i32) -> i32 {
    get_int(fd, level, name).unwrap()
}

#[test]
fn each_option_of_tcp_is_in_effect() {
    let side = SocketSide {
        send_buffer: Some(20_000),
        receive_buffer: Some(30_000),
        priority: Some(5),
        tos: Some(0x10),
        congestion: Some("reno".to_owned()),
        pacing_bps: Some(8_000_000_000_000),
        send_by: SendBy::Zerocopy,
        ..SocketSide::default()
    };
    let options = SocketOptions {
        no_delay: true,
        cork: true,
        keepalive: true,
        dont_route: true,
        max_segment: Some(700),
        dont_fragment: true,
        fast_open: true,
        ..SocketOptions::default()
    };
    let opened = open(&plan(&side, &options)).unwrap();
    assert_eq!(opened.warnings, Vec::<String>::new());
    // The kernel doubles the requested size.
    assert_eq!(
        (opened.send_buffer, opened.receive_buffer),
        (40_000, 60_000)
    );
    let fd = &opened.fd;
    let (socket, tcp, ip) = (libc::SOL_SOCKET, libc::IPPROTO_TCP, libc::IPPROTO_IP);
    assert_eq!(read(fd, socket, libc::SO_PRIORITY), 5);
    assert_eq!(read(fd, socket, libc::SO_KEEPALIVE), 1);
    assert_eq!(read(fd, socket, libc::SO_DONTROUTE), 1);
    assert_eq!(read(fd, socket, libc::SO_ZEROCOPY), 1);
    assert_eq!(read(fd, socket, libc::SO_REUSEADDR), 1);
    assert_eq!(read(fd, tcp, libc::TCP_NODELAY), 1);
    assert_eq!(read(fd, tcp, libc::TCP_CORK), 1);
    assert_eq!(read(fd, tcp, TCP_FASTOPEN_CONNECT), 1);
    assert_eq!(read(fd, ip, libc::IP_TOS), 0x10);
    assert_eq!(read(fd, ip, libc::IP_MTU_DISCOVER), libc::IP_PMTUDISC_DO);
    let mut rate = [0; 8];
    crate::sys::get_bytes(fd, socket, libc::SO_MAX_PACING_RATE, &mut rate).unwrap();
    assert_eq!(u64::from_ne_bytes(rate), 1_000_000_000_000);
    let now = effective_settings(fd.as_fd());
    assert!(now.no_delay);
    assert_eq!(now.congestion, "reno");
    assert_eq!((now.priority, now.tos), (Some(5), Some(0x10)));
    assert_eq!(now.segment, Some(700));
    assert!(now.tcp.is_some());
    assert_ne!(local_address(fd.as_fd()).unwrap().port(), 0);
}

#[test]
fn nothing_is_set_that_was_not_asked_for() {
    let (side, options) = (SocketSide::default(), SocketOptions::default());
    let opened = open(&SocketPlan {
        bind: None,
        ..plan(&side, &options)
    })
    .unwrap();
    let fd = &opened.fd;
    let (socket, tcp) = (libc::SOL_SOCKET, libc::IPPROTO_TCP);
    for name in [
        libc::SO_KEEPALIVE,
        libc::SO_DONTROUTE,
        libc::SO_ZEROCOPY,
        libc::SO_REUSEADDR,
        libc::SO_PRIORITY,
    ] {
        assert_eq!(read(fd, socket, name), 0, "{name}");
    }
    for name in [libc::TCP_NODELAY, libc::TCP_CORK, TCP_FASTOPEN_CONNECT] {
        assert_eq!(read(fd, tcp, name), 0, "{name}");
    }
}

#[test]
fn a_server_has_its_own_options() {
    let side = SocketSide::default();
    let options = SocketOptions {
        cork: true,
        max_segment: Some(700),
        fast_open: true,
        defer_accept: true,
        ..SocketOptions::default()
    };
    let opened = open(&SocketPlan {
        server: true,
        ..plan(&side, &options)
    })
    .unwrap();
    let (fd, tcp) = (&opened.fd, libc::IPPROTO_TCP);
    assert_eq!(read(fd, tcp, libc::TCP_CORK), 0);
    assert_eq!(read(fd, tcp, TCP_FASTOPEN_CONNECT), 0);
    assert_eq!(read(fd, tcp, libc::TCP_FASTOPEN), FAST_OPEN_QUEUE);
    assert!(read(fd, tcp, libc::TCP_DEFER_ACCEPT) > 0);
    assert_ne!(effective_settings(fd.as_fd()).segment, Some(700));
}

#[test]
fn options_of_datagrams() {
    let side = SocketSide {
        gro: true,
        tos: Some(0xb8),
        ..SocketSide::default()
    };
    let options = SocketOptions {
        packet_info: true,
        no_delay: true,
        multicast_ttl: Some(7),
        ..SocketOptions::default()
    };
    let mut plan = SocketPlan {
        protocol: SocketProtocol::Udp,
        server: true,
        join: Some(Ipv4Addr::new(239, 255, 1, 2).into()),
        ..plan(&side, &options)
    };
    let fd = open(&plan).unwrap().fd;
    let ip = libc::IPPROTO_IP;
    assert_eq!(read(&fd, ip, libc::IP_RECVERR), 1);
    assert_eq!(read(&fd, ip, libc::IP_PKTINFO), 1);
    assert_eq!(read(&fd, ip, libc::IP_MULTICAST_TTL), 7);
    assert_eq!(read(&fd, ip, libc::IP_TOS), 0xb8);
    assert_eq!(read(&fd, libc::SOL_UDP, UDP_GRO), 1);
    plan.bind = Some((Ipv6Addr::LOCALHOST, 0).into());
    plan.join = None;
    let fd = match open(&plan) {
        Ok(opened) => opened.fd,
        // A kernel without IPv6, or without an IPv6 address.
        Err(error) if errno(&error) == Some(libc::EADDRNOTAVAIL) => return,
        Err(error) if errno(&error) == Some(libc::EAFNOSUPPORT) => return,
        Err(error) => panic!("{error}"),
    };
    let ip = libc::IPPROTO_IPV6;
    assert_eq!(read(&fd, ip, libc::IPV6_RECVERR), 1);
    assert_eq!(read(&fd, ip, libc::IPV6_RECVPKTINFO), 1);
    assert_eq!(read(&fd, ip, libc::IPV6_MULTICAST_HOPS), 7);
    assert_eq!(read(&fd, ip, libc::IPV6_TCLASS), 0xb8);
    assert_eq!(effective_settings(fd.as_fd()).tos, Some(0xb8));
}

#[test]
fn refusals_name_the_call_and_keep_the_number() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (side, options) = (SocketSide::default(), SocketOptions::default());
    let mut plan = SocketPlan {
        protocol: SocketProtocol::Udp,
        bind: Some(taken.local_addr().unwrap()),
        ..plan(&side, &options)
    };
    let error = open(&plan).unwrap_err();
    assert_eq!(errno(&error), Some(libc::EADDRINUSE));
    assert!(error.to_string().starts_with("bind: "), "{error}");
    let side = SocketSide {
        congestion: Some("nosuch".to_owned()),
        ..SocketSide::default()
    };
    plan.side = &side;
    plan.protocol = SocketProtocol::Tcp;
    plan.bind = None;
    let opened = open(&plan).unwrap();
    assert_eq!(opened.warnings.len(), 1);
    assert!(
        opened.warnings[0].contains("nosuch"),
        "{:?}",
        opened.warnings
    );
}

#[test]
fn connections_are_made_and_waits_for_them_end() {
    let (side, options) = (SocketSide::default(), SocketOptions::default());
    let mut listening = plan(&side, &options);
    listening.server = true;
    let listener = open(&listening).unwrap().fd;
    listen(listener.as_fd(), 16).unwrap();
    let to = local_address(listener.as_fd()).unwrap();
    let client = open(&plan(&side, &options)).unwrap().fd;
    let stop = Stopper::new();
    connect(client.as_fd(), to, &stop).unwrap();
    let (_, peer) = accept(listener.as_fd(), &stop).unwrap();
    assert_eq!(peer, local_address(client.as_fd()).unwrap());

    let inside = stop.clone();
    let waits = thread::spawn(move || {
        let _guard = inside.register_thread();
        accept(listener.as_fd(), &inside).map(drop)
    });
    while !stop.is_busy() {
        thread::yield_now();
    }
    assert!(stop.stop_and_wait(std::time::Duration::from_secs(20)));
    let error = waits.join().unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    let error = connect(client.as_fd(), to, &stop).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Interrupted);
}
