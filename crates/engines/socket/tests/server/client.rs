//! A server in a thread, and a hand-written client that sends control messages.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use wb_model::{
    socket::{Family, SocketServerJob, SocketServerReport},
    units::Span,
};
use wb_netperf_wire::{
    ClassicKind, ClassicRequest, ClassicResponse, ClassicResults, Generation, OmniRequest,
    OmniResponse, OmniResults, Request, ResultsLayout,
};
use wb_socket::{CpuTimes, Host, Resolved, SocketServer, StopRequest};

/// Longer than any step takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// This CPU number and the address 127.0.0.66 make the machine panic.
pub(crate) const FAULTY: u32 = 66;

/// An address that the kernel would bind but the machine reports as not local.
pub(crate) const NOT_OURS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 77));

/// A machine with the loopback addresses. Between two readings its first CPU is half idle and its second is fully idle.
#[derive(Default)]
pub(crate) struct Machine {
    readings: AtomicU64,
}

impl Host for Machine {
    fn resolve(&self, name: &str, _: Family) -> Result<Resolved, String> {
        let address = name.parse().map_err(|_| "no such name".to_owned())?;
        Ok(Resolved {
            name: name.to_owned(),
            addresses: vec![address],
            scope: 0,
        })
    }

    fn cpu_times(&self) -> Option<CpuTimes> {
        let n = self.readings.fetch_add(1, Ordering::Relaxed);
        Some(CpuTimes {
            cpus: vec![
                (0, [30 * n, 0, 10 * n, 50 * n, 0, 2 * n, 8 * n, 0, 0, 0]),
                (1, [0, 0, 0, 100 * n, 0, 0, 0, 0, 0, 0]),
            ],
        })
    }

    fn bind_cpu(&self, cpu: u32) -> Result<(), String> {
        assert_ne!(cpu, FAULTY, "a fault on purpose");
        Ok(())
    }

    fn has_address(&self, address: IpAddr) -> bool {
        assert_ne!(address, IpAddr::from([127, 0, 0, 66]), "a fault on purpose");
        address.is_loopback() && address != NOT_OURS
    }
}

/// A running server.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    stop: Arc<StopRequest>,
    thread: Option<JoinHandle<SocketServerReport>>,
}

impl TestServer {
    pub(crate) fn new() -> Self {
        Self::of(SocketServerJob::default())
    }

    /// Starts a server on a free port of the loopback address.
    pub(crate) fn of(job: SocketServerJob) -> Self {
        let job = SocketServerJob {
            listen: Some(job.listen.unwrap_or_else(|| "127.0.0.1".to_owned())),
            port: 0,
            ..job
        };
        let server = SocketServer::bind(&job, Arc::new(Machine::default())).unwrap();
        let address = server.local_addresses()[0];
        let stop = Arc::new(StopRequest::default());
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || server.serve(&told, &mut |_| {}));
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }

    pub(crate) fn with_idle(idle: Duration) -> Self {
        Self::of(SocketServerJob {
            idle: Span::from_nanos(u64::try_from(idle.as_nanos()).unwrap()),
            ..SocketServerJob::default()
        })
    }

    pub(crate) fn client(&self) -> Client {
        Client::to(self.address)
    }

    /// Waits until the server ends without a request.
    pub(crate) fn wait(&mut self) -> SocketServerReport {
        self.thread.take().unwrap().join().unwrap()
    }

    /// Stops the server.
    pub(crate) fn end(mut self) -> SocketServerReport {
        self.stop.set();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.set();
    }
}

/// A client's control connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) generation: Generation,
}

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            generation: Generation::Words164,
        }
    }

    pub(crate) fn old(address: SocketAddr) -> Self {
        Self {
            generation: Generation::Words64,
            ..Self::to(address)
        }
    }

    pub(crate) fn say(&mut self, request: &Request) {
        self.stream
            .write_all(&request.encode(self.generation))
            .unwrap();
    }

    /// Sends a message with these words, the rest zero.
    pub(crate) fn say_words(&mut self, words: &[(usize, u32)]) {
        self.stream.write_all(&message(words)).unwrap();
    }

    pub(crate) fn hear(&mut self) -> Vec<u8> {
        let mut message = vec![0; self.generation.len()];
        self.stream.read_exact(&mut message).unwrap();
        message
    }

    /// Everything received until the server closes.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).unwrap();
        rest
    }

    pub(crate) fn omni(&mut self, request: OmniRequest) -> OmniResponse {
        self.say(&request.into());
        OmniResponse::parse(&self.hear()).unwrap()
    }

    pub(crate) fn results(&mut self) -> OmniResults {
        let layout = match self.generation {
            Generation::Words64 => ResultsLayout::V25,
            Generation::Words164 => ResultsLayout::V27,
        };
        OmniResults::parse(&self.hear(), layout, true).unwrap()
    }

    pub(crate) fn classic(&mut self, request: ClassicRequest) -> (ClassicKind, ClassicResponse) {
        self.say(&request.into());
        let kind = request.test.kind();
        (kind, ClassicResponse::parse(&self.hear(), kind).unwrap())
    }

    pub(crate) fn classic_results(&mut self, kind: ClassicKind) -> ClassicResults {
        ClassicResults::parse(&self.hear(), kind, true).unwrap()
    }

    /// The number with which the server refuses a request.
    pub(crate) fn refused(&mut self, request: &Request) -> i32 {
        self.say(request);
        word(&self.hear(), 1).cast_signed()
    }

    /// Opens a data connection.
    pub(crate) fn data(&self, port: u16) -> TcpStream {
        let mut address = self.stream.peer_addr().unwrap();
        address.set_port(port);
        let data = TcpStream::connect(address).unwrap();
        data.set_read_timeout(Some(PATIENCE)).unwrap();
        data
    }
}

/// A message of 656 bytes with these words.
pub(crate) fn message(words: &[(usize, u32)]) -> Vec<u8> {
    let mut message = vec![0; 656];
    for (word, value) in words {
        message[4 * word..4 * word + 4].copy_from_slice(&value.to_be_bytes());
    }
    message
}

pub(crate) fn word(message: &[u8], word: usize) -> u32 {
    u32::from_be_bytes(message[4 * word..4 * word + 4].try_into().unwrap())
}

/// Reads to the end. Returns the number of bytes.
pub(crate) fn read_all(mut data: &TcpStream) -> u64 {
    std::io::copy(&mut data, &mut std::io::sink()).unwrap()
}

/// Returns true if the port is free.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// Waits until the condition is true.
pub(crate) fn until(is_so: impl FnMut() -> bool) {
    wb_testing::eventually_within(PATIENCE, "the condition", is_so);
}
