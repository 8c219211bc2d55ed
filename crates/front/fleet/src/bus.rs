//! The broker as controller and agents use it: messages arrive in one channel, and nothing waits for an answer.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{
    Client, ConnectOptions, Event, HeaderMap, Request, ServerAddr, Subject, Subscriber,
};
use futures_core::Stream;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{
    runtime::{self, Runtime},
    task::AbortHandle,
};
use wb_fleet_core::clock::Exchange;
use wb_machine::{Namespace, clock::wall_ns, in_namespace};

use crate::{clock::HostClock, files::Ask, pki::Access};

/// Subjects that the agent of HOST publishes.
/// It may answer only the requests that name it: the broker's own permission for answers (`allow_responses`) would let an
/// agent publish to any subject, because it can send itself a request with any.
pub(crate) const AGENT_PUBLISHES: [&str; 10] = [
    "wb.v1.alive.HOST",
    "wb.v1.run.*.snap.HOST",
    "wb.v1.run.*.sent.HOST.*.*",
    "wb.v1.share.*.HOST",
    "wb.v1.event.HOST.>",
    "wb.v1.agent.HOST",
    "wb.v1.file.HOST",
    "_INBOX.HOST.>",
    "_INBOX.controller.answer.*.HOST.*",
    "_INBOX.controller.clock.HOST.*",
];

/// Subjects that the agent of HOST reads.
pub(crate) const AGENT_SUBSCRIBES: [&str; 9] = [
    "wb.v1.ctl.HOST",
    "wb.v1.clock.HOST",
    "wb.v1.who",
    "wb.v1.alive.HOST",
    "wb.v1.run.*.start",
    "wb.v1.run.*.stop",
    "wb.v1.run.*.lease",
    "wb.v1.run.*.sent.*.HOST.*",
    "_INBOX.HOST.>",
];

/// Longest time between two tries to reach the broker.
const RETRY: Duration = Duration::from_secs(1);
/// Time between two signs of life to the broker, after two of which without an answer the connection is given up.
const PING: Duration = Duration::from_secs(2);
/// Time in which the first connection must succeed.
const FIRST: Duration = Duration::from_secs(5);
/// Time for an exchange of stamps.
const EXCHANGE: Duration = Duration::from_millis(500);
/// Word in the subjects of answers to named requests.
const ANSWER: &str = "answer";
/// Messages to the broker that may wait.
const MOST_WAITING: usize = 65_536;

/// News from the broker.
#[derive(Debug)]
pub(crate) enum News {
    /// A message.
    Message(Message),
    /// The connection is there, for the first time or again.
    Connected,
    /// The connection is lost; it is tried again.
    Lost,
}

/// Message from the broker.
#[derive(Debug)]
pub(crate) struct Message {
    /// Subject.
    pub(crate) subject: String,
    /// Subject for an answer.
    pub(crate) reply: Option<String>,
    /// Content.
    pub(crate) content: Vec<u8>,
}

/// Takes what arrives from the broker.
pub(crate) type Sink = Arc<dyn Fn(News) + Send + Sync>;

/// Connection to the broker.
pub(crate) struct Bus {
    client: Client,
    news: Sink,
    inbox: String,
    next: AtomicU64,
    runtime: Arc<Runtime>,
    /// Tasks that pass on what arrives.
    tasks: Mutex<Vec<AbortHandle>>,
}

/// Threads for connections to a broker, in the network namespace in which it is reached.
pub(crate) struct Threads {
    runtime: Arc<Runtime>,
    namespace: Option<Namespace>,
}

impl Threads {
    /// Starts a thread.
    ///
    /// # Errors
    /// If there is no such namespace, or no thread can be started.
    pub(crate) fn start(access: &Access) -> io::Result<Self> {
        let mut builder = runtime::Builder::new_multi_thread();
        builder
            .worker_threads(1)
            .thread_name("wb-fleet")
            .enable_all();
        let namespace = access.namespace.as_ref().map(|name| Namespace::named(name));
        let namespace = namespace.transpose().map_err(io::Error::other)?;
        if let Some(name) = access.namespace.clone() {
            // Later connections are made by threads of the runtime.
            builder.on_thread_start(move || {
                let _ = Namespace::named(&name).and_then(|namespace| namespace.enter());
            });
        }
        Ok(Self {
            runtime: Arc::new(builder.build()?),
            namespace,
        })
    }
}

impl Bus {
    /// Connects to the broker. What arrives goes to `news`.
    ///
    /// # Errors
    /// If no server can be reached, or the certificates cannot be used.
    pub(crate) fn connect(access: &Access, news: Sink) -> io::Result<Self> {
        Self::connect_with(&Threads::start(access)?, access, news)
    }

    /// Connects to the broker with threads that several connections share.
    ///
    /// # Errors
    /// If no server can be reached, or the certificates cannot be used.
    pub(crate) fn connect_with(threads: &Threads, access: &Access, news: Sink) -> io::Result<Self> {
        let Threads { runtime, namespace } = threads;
        let inbox = format!("_INBOX.{}", access.name);
        let told = Arc::clone(&news);
        let mut options = ConnectOptions::new()
            .name(&access.name)
            .custom_inbox_prefix(&inbox)
            .ping_interval(PING)
            .connection_timeout(FIRST)
            .client_capacity(MOST_WAITING)
            .reconnect_delay_callback(|tries| match tries {
                0 | 1 => Duration::from_millis(50),
                _ => RETRY,
            })
            .event_callback(move |event| {
                let news = match event {
                    Event::Connected => Some(News::Connected),
                    Event::Disconnected | Event::Closed => Some(News::Lost),
                    _ => None,
                };
                if let Some(news) = news {
                    told(news);
                }
                std::future::ready(())
            });
        if let Some(tls) = tls(access)? {
            options = options.tls_client_config(tls).require_tls(true);
        }
        let servers = access
            .servers
            .iter()
            .map(|server| server.parse::<ServerAddr>());
        let servers: Vec<ServerAddr> = servers.collect::<Result<_, _>>()?;
        let connect = || runtime.block_on(options.connect(servers));
        let client = match namespace {
            Some(namespace) => in_namespace(namespace, connect).map_err(io::Error::other)?,
            None => connect(),
        };
        let client = client.map_err(|e| {
            let text = e.to_string();
            let why = std::error::Error::source(&e).map(ToString::to_string);
            let why = match why.filter(|why| !text.contains(why)) {
                Some(why) => format!("{text}: {why}"),
                None => text,
            };
            let hint = match why.contains("ertificate") {
                true => "; the access file is of another fleet, its certificate has expired, or a clock is wrong",
                false => "",
            };
            io::Error::other(format!(
                "cannot connect to {}: {why}{hint}",
                access.servers.join(", ")
            ))
        })?;
        let bus = Self {
            client,
            news,
            inbox,
            next: AtomicU64::new(1),
            runtime: Arc::clone(runtime),
            tasks: Mutex::default(),
        };
        bus.subscribe(&format!("{}.>", bus.inbox))?;
        Ok(bus)
    }

    /// Lets the messages of a subject arrive.
    ///
    /// # Errors
    /// If the connection has been closed.
    pub(crate) fn subscribe(&self, subject: &str) -> io::Result<()> {
        let subscribed = self.client.subscribe(Subject::from(subject));
        let mut messages = self
            .runtime
            .block_on(subscribed)
            .map_err(io::Error::other)?;
        let news = Arc::clone(&self.news);
        self.spawn(async move {
            while let Some(message) = next(&mut messages).await {
                news(News::Message(Message {
                    subject: message.subject.to_string(),
                    reply: message.reply.map(|reply| reply.to_string()),
                    content: message.payload.into(),
                }));
            }
        });
        Ok(())
    }

    /// Starts a task that ends with the connection.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = self.runtime.spawn(task).abort_handle();
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.push(task);
    }

    /// A new subject for one answer.
    pub(crate) fn inbox(&self) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("{}.{number}", self.inbox)
    }

    /// A subject for the answer to a request with this name, of words with dots.
    pub(crate) fn inbox_for(&self, name: &str) -> String {
        format!("{}.{ANSWER}.{name}", self.inbox)
    }

    /// Name of the request that a message answers.
    pub(crate) fn answered(subject: &str) -> Option<&str> {
        let (_, name) = subject.strip_prefix("_INBOX.")?.split_once('.')?;
        name.strip_prefix(ANSWER)?.strip_prefix('.')
    }

    /// Publishes a message from a thread of this connection, which must not wait.
    pub(crate) fn post(&self, subject: &str, content: Vec<u8>) {
        let (client, subject) = (self.client.clone(), Subject::from(subject));
        self.runtime.spawn(async move {
            let _ = client.publish(subject, content.into()).await;
        });
    }

    /// Answers comparisons of the clock of this host.
    ///
    /// # Errors
    /// If the connection has been closed.
    pub(crate) fn answer_clock(&self, host: &str, clock: HostClock) -> io::Result<()> {
        let client = self.client.clone();
        let subscribed = self.client.subscribe(Subject::from(clock_of(host)));
        let mut requests = self
            .runtime
            .block_on(subscribed)
            .map_err(io::Error::other)?;
        self.spawn(async move {
            while let Some(request) = next(&mut requests).await {
                let received = clock.wall_ns();
                if let Some(reply) = request.reply {
                    let sent = clock.wall_ns();
                    let stamps = [received.to_be_bytes(), sent.to_be_bytes()].concat();
                    let _ = client.publish(reply, stamps.into()).await;
                }
            }
        });
        Ok(())
    }

    /// Exchanges stamps with a host, one after another, and passes them on.
    pub(crate) fn compare_clock(
        &self,
        host: &str,
        times: usize,
        then: impl FnOnce(Vec<Exchange>) + Send + 'static,
    ) {
        let (client, subject) = (self.client.clone(), clock_of(host));
        let first = self.next.fetch_add(times as u64, Ordering::Relaxed);
        let inbox = format!("{}.clock.{host}", self.inbox);
        self.runtime.spawn(async move {
            let mut all = Vec::new();
            for number in (first..).take(times) {
                let request = Request::new().inbox(format!("{inbox}.{number}"));
                let sent_ns = wall_ns();
                let answer = client.send_request(Subject::from(subject.as_str()), request);
                let Ok(Ok(answer)) = tokio::time::timeout(EXCHANGE, answer).await else {
                    break;
                };
                let received_ns = wall_ns();
                let stamps: Result<[u8; 16], _> = answer.payload.as_ref().try_into();
                let Ok(stamps) = stamps.map(u128::from_be_bytes) else {
                    break;
                };
                #[allow(clippy::cast_possible_truncation)]
                all.push(Exchange {
                    sent_ns,
                    far_received_ns: (stamps >> 64) as u64,
                    far_sent_ns: stamps as u64,
                    received_ns,
                });
            }
            then(all);
        });
    }

    /// A question to a member on a subject, which waits for the answer. It is not for the threads of the connection.
    pub(crate) fn asks(&self, subject: String) -> Ask {
        let (client, runtime) = (self.client.clone(), Arc::clone(&self.runtime));
        Arc::new(move |request: Vec<u8>| {
            let asked = client.request(Subject::from(subject.as_str()), request.into());
            let answer = runtime.block_on(async { tokio::time::timeout(FIRST, asked).await });
            match answer {
                Ok(Ok(answer)) => Ok(answer.payload.into()),
                Ok(Err(error)) => Err(format!("no answer: {error}")),
                Err(_) => Err("no answer within 5 s".to_owned()),
            }
        })
    }

    /// Publishes a message. Without a connection, it waits in this process.
    pub(crate) fn publish(&self, subject: &str, content: Vec<u8>) {
        let published = self.client.publish(Subject::from(subject), content.into());
        // It fails only after the connection was closed for good.
        let _ = self.runtime.block_on(published);
    }

    /// Publishes a message; its answer arrives at `reply`.
    pub(crate) fn ask(&self, subject: &str, reply: &str, content: Vec<u8>) {
        let (subject, reply) = (Subject::from(subject), Subject::from(reply));
        let published = self
            .client
            .publish_with_reply(subject, reply, content.into());
        let _ = self.runtime.block_on(published);
    }

    /// Publishes a message that a stream of the broker keeps. `id` identifies it: the stream keeps it once. The
    /// acknowledgement arrives at `reply`.
    pub(crate) fn store(&self, subject: &str, id: &str, reply: &str, content: Vec<u8>) {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", id);
        let (subject, reply) = (Subject::from(subject), Subject::from(reply));
        let published =
            self.client
                .publish_with_reply_and_headers(subject, reply, headers, content.into());
        let _ = self.runtime.block_on(published);
    }

    /// Waits until the broker has everything that was published.
    pub(crate) fn flush(&self) {
        let flushed = async { tokio::time::timeout(FIRST, self.client.flush()).await };
        let _ = self.runtime.block_on(flushed);
    }

    /// The client and its runtime, for requests to the broker itself.
    pub(crate) fn client(&self) -> (&Client, &Arc<Runtime>) {
        (&self.client, &self.runtime)
    }
}

impl Drop for Bus {
    /// Closes this connection; others may use the same threads.
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        tasks.iter().for_each(AbortHandle::abort);
    }
}

/// The next message of a subscription.
async fn next(messages: &mut Subscriber) -> Option<async_nats::Message> {
    std::future::poll_fn(|context| Stream::poll_next(Pin::new(messages), context)).await
}

fn clock_of(host: &str) -> String {
    format!("wb.v1.clock.{host}")
}

/// TLS of a member; `None` if the broker does not ask for it.
fn tls(access: &Access) -> io::Result<Option<ClientConfig>> {
    let Some(authority) = &access.authority else {
        return Ok(None);
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authority)? {
        roots.add(certificate).map_err(io::Error::other)?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots);
    let config = match (&access.certificate, &access.key) {
        (Some(certificate), Some(key)) => {
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(io::Error::other)?;
            builder
                .with_client_auth_cert(certificates(certificate)?, key)
                .map_err(io::Error::other)?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Some(config))
}

fn certificates(pem: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_slice_iter(pem.as_bytes());
    all.collect::<Result<_, _>>().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, path::Path, sync::mpsc::channel};

    use wb_testing::{eventually, installed};

    use super::*;
    use crate::{broker::Broker, pki::Fleet};

    /// A fleet with a broker on a free port of this host.
    fn fleet(folder: &Path) -> (Fleet, Broker) {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = free.local_addr().unwrap().to_string();
        let fleet = Fleet::init(&folder.join("fleet"), std::slice::from_ref(&server)).unwrap();
        for host in ["h1", "h2"] {
            fleet.add(host).unwrap();
        }
        drop(free);
        let broker = Broker::start(&fleet.broker_file(), &folder.join("log")).unwrap();
        eventually("the broker listens", || {
            std::net::TcpStream::connect(&server).is_ok()
        });
        (fleet, broker)
    }

    fn member(fleet: &Fleet, name: &str) -> (Bus, std::sync::mpsc::Receiver<String>) {
        let access = Access::read(&fleet.access_file(name)).unwrap();
        let (subjects, arrivals) = channel();
        let bus = Bus::connect(
            &access,
            Arc::new(move |news| {
                if let News::Message(message) = news {
                    let _ = subjects.send(message.subject);
                }
            }),
        );
        (bus.unwrap(), arrivals)
    }

    fn controller(fleet: &Fleet) -> crate::Fleet {
        let access = Access::read(&fleet.access_file("controller")).unwrap();
        crate::Fleet::join(&access).unwrap()
    }

    /// A forged message never arrives: the message after it, over the same connection, does.
    #[test]
    fn agents_speak_for_themselves_alone() {
        if !installed(&["nats-server"]) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (fleet, _broker) = fleet(folder.path());
        let (controller, arrivals) = member(&fleet, "controller");
        controller.subscribe("wb.v1.>").unwrap();
        controller.flush();
        let (agent, _) = member(&fleet, "h1");
        for forged in [
            "wb.v1.alive.h2",
            "wb.v1.agent.h2",
            "wb.v1.file.h2",
            "wb.v1.run.r1.start",
            "wb.v1.run.r1.lease",
            "wb.v1.run.r1.stop",
            "wb.v1.run.r1.snap.h2",
            "wb.v1.run.r1.sent.h2.h1.0",
            "wb.v1.share.r1.h2",
            "wb.v1.ctl.h2",
            "wb.v1.event.h2.agent",
            "_INBOX.controller.answer.r1.h2.4",
            "_INBOX.controller.clock.h2.4",
            "$JS.API.STREAM.DELETE.WB_SHARES",
        ] {
            // A request to itself does not permit an answer at any subject.
            agent.ask("_INBOX.h1.own", forged, Vec::new());
            agent.flush();
            agent.publish(forged, b"{}".to_vec());
            agent.publish("wb.v1.alive.h1", b"{}".to_vec());
            assert_eq!(arrivals.recv().unwrap(), "wb.v1.alive.h1", "after {forged}");
        }
        let own = [
            "wb.v1.agent.h1",
            "wb.v1.run.r1.snap.h1",
            "wb.v1.run.r1.sent.h1.h2.0",
            "wb.v1.share.r1.h1",
            "wb.v1.event.h1.agent",
        ];
        for subject in own {
            agent.publish(subject, b"{}".to_vec());
            assert_eq!(arrivals.recv().unwrap(), subject);
        }
    }

    /// The broker and the controller answer an agent at the subject that it names, and may do anything there.
    #[test]
    fn answers_remove_no_results() {
        if !installed(&["nats-server"]) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (fleet, _broker) = fleet(folder.path());
        let controller = controller(&fleet);
        let (agent, arrivals) = member(&fleet, "h1");
        let kept = |run: &str| controller.kept.shares(run).unwrap().len();
        agent.publish("wb.v1.share.r1.h1", b"{}".to_vec());
        for stream in ["WB_SHARES", "WB_EVENTS", "KV_WB_LEADER"] {
            for api in ["PURGE", "MSG.DELETE", "DELETE"] {
                let subject = format!("$JS.API.STREAM.{api}.{stream}");
                agent.ask("wb.v1.share.r2.h1", &subject, b"{}".to_vec());
                agent.ask(
                    "wb.v1.file.h1",
                    &subject,
                    br#"{"v":1,"run":"r","sha256":"0","offset":0}"#.to_vec(),
                );
            }
        }
        // The controller has seen the requests for files once it has answered the last one.
        let request = br#"{"v":1,"run":"r","sha256":"0","offset":0}"#;
        agent.ask("wb.v1.file.h1", "_INBOX.h1.last", request.to_vec());
        assert_eq!(arrivals.recv().unwrap(), "_INBOX.h1.last");
        agent.publish("wb.v1.share.r3.h1", b"{}".to_vec());
        eventually("the last share is kept", || kept("r3") == 1);
        assert_eq!((kept("r1"), kept("r2")), (1, 9));
        assert!(controller.leadership.epoch(None).is_ok());
    }

    #[test]
    fn a_broker_that_lost_its_store_gets_a_leader_with_a_higher_epoch() {
        if !installed(&["nats-server"]) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (fleet, broker) = fleet(folder.path());
        let controller = controller(&fleet);
        let epoch = || controller.leadership.epoch(None);
        let before = epoch().unwrap();
        drop(broker);
        std::fs::remove_dir_all(folder.path().join("fleet/broker/jetstream")).unwrap();
        let _broker = Broker::start(&fleet.broker_file(), &folder.path().join("log")).unwrap();
        eventually("another epoch", || epoch().is_ok_and(|now| now > before));
        assert_eq!(controller.kept.runs(), Ok(Vec::new()));
    }

    #[test]
    fn strangers_stay_outside() {
        if !installed(&["nats-server"]) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (fleet, _broker) = fleet(folder.path());
        let known = Access::read(&fleet.access_file("h1")).unwrap();
        let other = Fleet::init(&folder.path().join("other"), &["127.0.0.1:1".to_owned()]).unwrap();
        let other = Access::read(&other.add("h1").unwrap()).unwrap();
        let without = Access {
            certificate: None,
            key: None,
            ..known.clone()
        };
        let foreign = Access {
            certificate: other.certificate,
            key: other.key,
            ..known.clone()
        };
        let plain = Access {
            servers: vec![known.servers[0].replace("tls", "nats")],
            authority: None,
            ..without.clone()
        };
        for (what, access) in [("none", without), ("foreign", foreign), ("plain", plain)] {
            assert!(Bus::connect(&access, Arc::new(|_| {})).is_err(), "{what}");
        }
        assert!(Bus::connect(&known, Arc::new(|_| {})).is_ok());
    }
}
