//! The server: its listeners, from the first to the last request.

use std::{
    fs::DirBuilder,
    io,
    net::{SocketAddr, TcpListener},
    os::unix::{
        fs::{DirBuilderExt as _, PermissionsExt as _},
        net::{SocketAddr as SocketPath, UnixListener},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum_server::{Handle, tls_rustls::RustlsConfig};
use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto::Builder,
};
use rustls::ServerConfig;
use tokio::{
    runtime::{self, Runtime},
    task::JoinHandle,
};
use wb_runs::{Runs, Settings, StoreError};

use crate::{
    access::Access,
    connections::Connections,
    guard::Reach,
    otg::{ClientNetwork, grpc_router},
    routes::router,
    runs::App,
    tls::{Acceptor, CertificateFiles, OptionalTls, of_http2},
    tokens::TokenFile,
};

/// Threads that serve requests.
const THREADS: usize = 2;
/// Time in which runs have to end after a signal.
const PATIENCE: Duration = Duration::from_secs(8);
/// Time in which the last answers have to be sent.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// Time in which a connection has to send its next request.
const IDLE: Duration = Duration::from_secs(60);
/// Interval at which signals are looked for.
const LOOK: Duration = Duration::from_millis(50);

/// Address of a server, and the protection of its connections.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Address; port 0 picks a free one.
    pub address: SocketAddr,
    /// True if clients need tokens. Without tokens, the address must be a loopback address.
    pub authenticates: bool,
    /// Encryption of connections.
    pub encryption: Encryption,
    /// Certificate (PEM) of an authority: its certificates replace tokens with the role `run`.
    pub authority: Option<PathBuf>,
    /// Networks with OTG clients that need no token.
    pub otg_open: Vec<ClientNetwork>,
    /// Receives a line when clients can no longer be admitted, for standard error.
    pub warn: fn(&str),
    /// Address for OTG clients that use gRPC; port 0 picks a free one. If the server has a certificate, connections with
    /// and without encryption are accepted.
    pub grpc: Option<SocketAddr>,
}

/// Encryption of connections.
#[derive(Clone, Debug)]
pub enum Encryption {
    /// No encryption; only for loopback addresses.
    Plain,
    /// TLS with a certificate that the server makes itself at its first start.
    Own,
    /// TLS with this certificate and key.
    Given(CertificateFiles),
}

/// Reason why the server cannot start.
#[derive(Debug)]
pub enum ServeError {
    /// The address cannot be listened on.
    Listen(SocketAddr, io::Error),
    /// Without authentication and encryption, only loopback addresses can be listened on.
    NotLoopback(SocketAddr),
    /// Without authentication and encryption, other hosts can use gRPC only from networks that are named.
    GrpcNotLoopback(SocketAddr),
    /// The messages of gRPC clients cannot be unpacked.
    Descriptors(String),
    /// The local socket cannot be made.
    Socket(PathBuf, io::Error),
    /// The tokens cannot be read.
    Tokens(String),
    /// The history cannot be used.
    Store(StoreError),
    /// The certificate or its key cannot be used.
    Certificate(io::Error),
    /// A thread cannot be started.
    Threads(io::Error),
}

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Listen(address, cause) => write!(f, "cannot listen on {address}: {cause}"),
            Self::NotLoopback(address) => write!(
                f,
                "{address} is not a loopback address; others can reach the server only with tokens and TLS"
            ),
            Self::GrpcNotLoopback(address) => write!(
                f,
                "--grpc {address} is not a loopback address; without tokens and TLS, name the networks of its clients with --otg-open"
            ),
            Self::Descriptors(cause) => write!(f, "cannot serve gRPC: {cause}"),
            Self::Socket(path, cause) => write!(f, "cannot listen on {}: {cause}", path.display()),
            Self::Tokens(text) => f.write_str(text),
            Self::Store(error) => error.fmt(f),
            Self::Certificate(cause) => cause.fmt(f),
            Self::Threads(cause) => write!(f, "cannot start threads: {cause}"),
        }
    }
}

impl std::error::Error for ServeError {}

/// A server that takes requests.
pub struct Server {
    runs: Runs,
    address: SocketAddr,
    grpc: Option<SocketAddr>,
    is_encrypted: bool,
    access: Access,
    connections: Connections,
    runtime: Runtime,
    listeners: Vec<JoinHandle<io::Result<()>>>,
    handle: Handle<SocketAddr>,
    local: Handle<SocketPath>,
    socket: Option<PathBuf>,
}

impl Server {
    /// Opens the history, and begins to listen.
    ///
    /// # Errors
    /// If the address, the certificate, the local socket or the history cannot be used.
    pub fn start(listen: &Listen, settings: Settings) -> Result<Self, ServeError> {
        let address = listen.address;
        let is_plain = matches!(listen.encryption, Encryption::Plain);
        if !address.ip().is_loopback() && (is_plain || !listen.authenticates) {
            return Err(ServeError::NotLoopback(address));
        }
        if let Some(grpc) = listen.grpc
            && !grpc.ip().is_loopback()
            && (is_plain || !listen.authenticates)
            && listen.otg_open.is_empty()
        {
            return Err(ServeError::GrpcNotLoopback(grpc));
        }
        let (listener, bound) = bind(address)?;
        let grpc = listen.grpc.map(bind).transpose()?;
        let (socket, state) = (settings.socket.clone(), settings.state.clone());
        let tokens = TokenFile::new(&state);
        if listen.authenticates
            && let Err(error) = tokens.read()
        {
            return Err(ServeError::Tokens(tokens.damage(&error)));
        }
        let runs = Runs::new(settings).map_err(ServeError::Store)?;
        let pair = match &listen.encryption {
            Encryption::Plain => None,
            Encryption::Own => {
                Some(CertificateFiles::own(&state, address.ip()).map_err(ServeError::Certificate)?)
            }
            Encryption::Given(pair) => Some(pair.clone()),
        };
        let tls = pair
            .map(|pair| pair.read(listen.authority.as_deref()))
            .transpose();
        let tls = tls.map_err(ServeError::Certificate)?;
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("wb-web")
            .enable_all()
            .build()
            .map_err(ServeError::Threads)?;
        let mut server = Self {
            address: bound,
            grpc: grpc.as_ref().map(|(_, bound)| *bound),
            is_encrypted: tls.is_some(),
            access: Access::Open,
            connections: Connections::new(),
            listeners: Vec::new(),
            handle: Handle::new(),
            local: Handle::new(),
            runs: runs.clone(),
            runtime,
            socket,
        };
        let otg_open = listen.otg_open.clone();
        let app = App::new(runs, tokens.clone(), tls.is_some(), otg_open);
        let (access, reach) = match listen.authenticates {
            true => (
                Access::by_tokens_of(tokens, bound.port(), listen.warn),
                Reach::Authenticated,
            ),
            false => (Access::Open, Reach::Open),
        };
        let grpc_tls = tls.as_deref().map(of_http2);
        let tls = tls.map(RustlsConfig::from_config);
        server.access = access.clone();
        let public = router(app.clone(), reach, &access);
        let refused = |cause| ServeError::Listen(address, cause);
        server.listen(listener, tls, public).map_err(refused)?;
        if let Some((listener, address)) = grpc {
            let router = grpc_router(&app.otg, &access).map_err(ServeError::Descriptors)?;
            let served = server.listen_for_grpc(listener, grpc_tls, router);
            served.map_err(|cause| ServeError::Listen(address, cause))?;
        }
        server.listen_locally(router(app, Reach::Socket, &Access::Open))?;
        Ok(server)
    }

    fn listen(
        &mut self,
        listener: TcpListener,
        tls: Option<RustlsConfig>,
        router: axum::Router,
    ) -> io::Result<()> {
        let handle = self.handle.clone();
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let _inside = self.runtime.enter();
        self.listeners.push(match tls {
            Some(tls) => {
                let server = axum_server::from_tcp_rustls(listener, tls)?;
                let limited = |acceptor| self.connections.limit(Acceptor(acceptor));
                let mut server = server.map(limited).http1_only();
                limit(server.http_builder());
                self.runtime.spawn(server.handle(handle).serve(service))
            }
            None => {
                let server = axum_server::from_tcp(listener)?;
                let limited = |acceptor| self.connections.limit(acceptor);
                let mut server = server.map(limited).http1_only();
                limit(server.http_builder());
                self.runtime.spawn(server.handle(handle).serve(service))
            }
        });
        Ok(())
    }

    /// Listens for gRPC clients.
    fn listen_for_grpc(
        &mut self,
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        router: axum::Router,
    ) -> io::Result<()> {
        let handle = self.handle.clone();
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let _inside = self.runtime.enter();
        let server = axum_server::from_tcp(listener)?;
        self.listeners.push(match tls {
            Some(tls) => {
                let limited = |_| self.connections.limit(OptionalTls::new(tls));
                let mut server = server.map(limited).http2_only();
                limit_http2(server.http_builder());
                self.runtime.spawn(server.handle(handle).serve(service))
            }
            None => {
                let limited = |acceptor| self.connections.limit(acceptor);
                let mut server = server.map(limited).http2_only();
                limit_http2(server.http_builder());
                self.runtime.spawn(server.handle(handle).serve(service))
            }
        });
        Ok(())
    }

    /// Listens on a socket in a private folder, by which other commands of the user reach the server.
    fn listen_locally(&mut self, router: axum::Router) -> Result<(), ServeError> {
        let Some(path) = &self.socket else {
            return Ok(());
        };
        let refused = |cause| ServeError::Socket(path.clone(), cause);
        // A process with the number of this one may have left it.
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, private).map_err(refused)?;
        let _inside = self.runtime.enter();
        let server = axum_server::from_unix(listener).map_err(refused)?;
        let served = server
            .handle(self.local.clone())
            .serve(router.into_make_service());
        self.listeners.push(self.runtime.spawn(served));
        Ok(())
    }

    /// The URL of the page, with a token by which one browser can log in, once.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn url(&self) -> io::Result<String> {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        let address = match self.address.ip() {
            ip if ip.is_loopback() => format!("localhost:{}", self.address.port()),
            _ => self.address.to_string(),
        };
        let token = self.access.once()?;
        let token = token.map(|token| format!("#token={token}"));
        Ok(format!(
            "{scheme}://{address}/{}",
            token.unwrap_or_default()
        ))
    }

    /// Address for gRPC clients.
    #[must_use]
    pub const fn grpc(&self) -> Option<SocketAddr> {
        self.grpc
    }

    /// The runs.
    #[must_use]
    pub const fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Serves until `is_over` returns true. Then new runs are refused, the current ones are stopped in order, and their
    /// reports are stored. Returns true if all runs ended in time.
    pub fn serve(self, is_over: impl Fn() -> bool) -> bool {
        while !is_over() {
            std::thread::sleep(LOOK);
        }
        let all_ended = self.runs.end(PATIENCE);
        self.handle.graceful_shutdown(Some(LAST_ANSWERS));
        self.local.graceful_shutdown(Some(LAST_ANSWERS));
        self.runtime.block_on(async {
            let over = async {
                for listener in self.listeners {
                    let _ = listener.await;
                }
            };
            let _ = tokio::time::timeout(2 * LAST_ANSWERS, over).await;
        });
        self.runtime.shutdown_timeout(Duration::ZERO);
        if let Some(path) = &self.socket {
            let _ = std::fs::remove_file(path);
        }
        all_ended
    }
}

fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let refused = |cause| ServeError::Listen(address, cause);
    let listener = TcpListener::bind(address).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    Ok((listener, bound))
}

/// Closes connections on which no whole request arrives in time.
fn limit(builder: &mut Builder<TokioExecutor>) {
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(IDLE);
}

/// Closes connections of clients that are gone.
fn limit_http2(builder: &mut Builder<TokioExecutor>) {
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).keep_alive_interval(IDLE);
}

/// Makes a folder that only its owner can read, and those above it.
pub(crate) fn make_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
