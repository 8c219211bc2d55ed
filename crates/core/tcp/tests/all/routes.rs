//! Server that answers by path: the right answer at the right time, each counted once.

use crate::common::*;
use wb_tcp::*;

#[derive(Default)]
struct Told(Vec<Exchange>);

impl Observer for Told {
    fn exchanged(&mut self, exchange: &Exchange) {
        self.0.push(*exchange);
    }
}

fn route(path: &str, status: u16, size: u32, delay: u64, close: bool) -> Route {
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {size}\r\n\r\n");
    let len = head.len() as u32 + size;
    Route {
        path: path.to_owned(),
        answer: Message::new(head.as_bytes(), len, Filler::Letter(b'r')),
        status,
        delay,
        close,
    }
}

/// Client that requests these paths in turn, a server with routes, and a path that loses `loss` percent of the frames.
fn joined(paths: &[&str], requests: u16, pipeline: u16, loss: u64) -> (Machine<Told>, Machine) {
    let mut c = client(false);
    (c.requests, c.pipeline) = (Some(requests), pipeline);
    let mut config = client_config(c, Transport::Tcp);
    config.asks = paths
        .iter()
        .map(|path| WeightedRequest {
            message: Message::bytes(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()),
            weight: 1,
            head: false,
        })
        .collect();
    // Small segments split the requests at any byte.
    config.mss = 50;
    let mut s = server(false);
    (s.request, s.answers) = (Reading::Http, None);
    let mut there_config = server_config(s, Transport::Tcp);
    there_config.routes = vec![
        route("/a", 200, 100, 0, false),
        route("/slow*", 503, 3000, 20 * MS, false),
        route("/end", 201, 1, 5 * MS, true),
        route("*", 404, 0, 0, false),
    ];
    let mut client = Machine::new(config, Told::default()).unwrap();
    let mut server = Machine::new(there_config, ()).unwrap();
    let (mut there, mut back) = (Frames::new(usize::MAX), Frames::new(usize::MAX));
    client.launch(0, 4, &mut there);
    let mut random = 5u64;
    let mut lost = move || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(99);
        (random >> 33) % 100 < loss
    };
    for step in 0..400_000u64 {
        let now = step * MS / 4;
        for frame in there.take_frames().into_iter().filter(|_| !lost()) {
            server.receive(now, &frame, &mut back);
        }
        for frame in back.take_frames().into_iter().filter(|_| !lost()) {
            client.receive(now, &frame, &mut there);
        }
        client.poll(now, &mut there);
        server.poll(now, &mut back);
        if client.is_idle() && server.is_idle() {
            break;
        }
    }
    (client, server)
}

#[test]
fn each_path_has_its_answer_in_its_time() {
    for (pipeline, loss) in [(1, 0), (6, 0), (1, 3), (6, 3)] {
        let paths = ["/a", "/slow/down?x=1", "/none"];
        let (client, server) = joined(&paths, 60, pipeline, loss);
        let (c, s) = (client.counters(), server.counters());
        assert_eq!(
            (c.requests, c.responses, c.completed),
            (240, 240, 4),
            "{pipeline} {loss}"
        );
        assert_eq!(server.route_answers(), [80, 80, 0, 80]);
        assert_eq!((s.requests, s.responses), (240, 240));
        assert_eq!([s.status_2xx, s.status_4xx, s.status_5xx], [80; 3]);
        for told in &client.observer().0 {
            assert_eq!(told.status, [200, 503, 404][usize::from(told.text)]);
            if told.status == 503 {
                assert!(told.ns >= 20 * MS, "{told:?}");
            } else if (pipeline, loss) == (1, 0) {
                assert!(told.ns < 2 * MS, "{told:?}");
            }
        }
        assert_eq!(c.body_rx, 80 * 3100);
    }
}

#[test]
fn an_answer_that_ends_the_connection_does_so_after_its_delay() {
    let (client, server) = joined(&["/end"], 2, 1, 0);
    assert_eq!(server.route_answers(), [0, 0, 4, 0]);
    assert!(client.observer().0.iter().all(|told| told.ns >= 5 * MS));
    assert_eq!(
        (client.counters().completed, server.counters().completed),
        (4, 4)
    );
    // A request behind it is lost with the connection.
    let (client, server) = joined(&["/end", "/a"], 2, 2, 0);
    let c = client.counters();
    assert_eq!((c.responses, c.requests_lost), (4, 4));
    assert_eq!(server.route_answers()[0], 0);
}
