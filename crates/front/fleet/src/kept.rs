//! Streams at the broker: the shares of hosts, the records of runs, and the entry of the leader.

use std::{future::poll_fn, io, pin::Pin, sync::Arc, time::Duration};

use async_nats::jetstream::{self, message::StreamMessage, stream};
use futures_core::Stream as _;
use tokio::runtime::Runtime;
use wb_fleet_core::{
    controller::RunRecord,
    leader::LEADER_TTL_NS,
    subjects::{EVENTS_STREAM, LEADER_BUCKET, SHARES_STREAM, Subject},
};

use crate::{
    bus::{Bus, Message},
    pki::CONTROLLER,
    wire,
};

/// Time for a request to the broker.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// Time for which shares and events are kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time in which the broker recognises a share that comes again.
const SAME_SHARE: Duration = Duration::from_secs(120);
/// Number of events of one subject that are kept.
const EVENTS: i64 = 1000;

/// Streams of the broker.
pub(crate) struct Kept {
    shares: stream::Stream,
    events: stream::Stream,
    /// Entry of the leader.
    pub(crate) entries: stream::Stream,
    /// Requests for streams.
    pub(crate) streams: jetstream::Context,
    runtime: Arc<Runtime>,
}

impl Kept {
    /// Opens the streams, and makes those that are not there.
    pub(crate) fn open(bus: &Bus) -> io::Result<Self> {
        let (client, runtime) = bus.client();
        let _inside = runtime.enter();
        let mut streams = jetstream::new(client.clone());
        streams.set_timeout(PATIENCE);
        let made = runtime.block_on(make_streams(&streams)).map_err(|why| {
            io::Error::other(format!("the broker keeps no streams (JetStream): {why}"))
        });
        let [shares, events, entries] = made?;
        Ok(Self {
            shares,
            events,
            entries,
            streams,
            runtime: Arc::clone(runtime),
        })
    }

    /// The runs that have records, the newest last.
    ///
    /// # Errors
    /// A sentence, if the broker does not answer.
    pub(crate) fn runs(&self) -> Result<Vec<String>, String> {
        let all = Subject::Event {
            host: CONTROLLER.to_owned(),
            run: Some("*".to_owned()),
        };
        let read = async {
            let info = self.events.info_with_subjects(all.to_string()).await;
            let mut info = info.map_err(|e| e.to_string())?;
            let mut runs = Vec::new();
            while let Some(one) = poll_fn(|context| Pin::new(&mut info).poll_next(context)).await {
                let (subject, _) = one.map_err(|e| e.to_string())?;
                if let Ok(Subject::Event { run, .. }) = subject.parse() {
                    runs.extend(run);
                }
            }
            // Names begin with the time.
            runs.sort();
            Ok(runs)
        };
        self.runtime.block_on(read)
    }

    /// The record of a run, as its controller wrote it last.
    ///
    /// # Errors
    /// A sentence, if the broker does not answer or the record cannot be read.
    pub(crate) fn record(&self, run: &str) -> Result<Option<RunRecord>, String> {
        let subject = Subject::Event {
            host: CONTROLLER.to_owned(),
            run: Some(run.to_owned()),
        };
        let subject = subject.to_string();
        let last = self.events.get_last_raw_message_by_subject(&subject);
        match self.runtime.block_on(last) {
            Ok(message) => wire::read(&message.payload).map(Some),
            Err(error) if error.kind() == stream::LastRawMessageErrorKind::NoMessageFound => {
                Ok(None)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// The shares of a run that have been delivered, piece by piece.
    ///
    /// # Errors
    /// A sentence, if the broker does not answer.
    pub(crate) fn shares(&self, run: &str) -> Result<Vec<Message>, String> {
        let subject = Subject::Share {
            run: run.to_owned(),
            host: "*".to_owned(),
        };
        let read = async {
            let (mut all, mut next) = (Vec::new(), 1);
            while let Some(message) = first_after(&self.shares, &subject.to_string(), next).await? {
                next = message.sequence + 1;
                all.push(Message {
                    subject: message.subject.to_string(),
                    reply: None,
                    content: message.payload.into(),
                });
            }
            Ok(all)
        };
        self.runtime.block_on(read)
    }
}

/// Makes the streams that are not there: shares, events, and the entry of the leader.
pub(crate) async fn make_streams(
    streams: &jetstream::Context,
) -> Result<[stream::Stream; 3], async_nats::Error> {
    Ok([
        streams.get_or_create_stream(of_shares()).await?,
        streams.get_or_create_stream(of_events()).await?,
        streams.get_or_create_stream(of_leader()).await?,
    ])
}

/// The first message of a subject from a sequence number on.
async fn first_after(
    stream: &stream::Stream,
    subject: &str,
    sequence: u64,
) -> Result<Option<StreamMessage>, String> {
    let message = stream.get_first_raw_message_by_subject(subject, sequence);
    match message.await {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.kind() == stream::RawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

// The broker answers a member at any subject that the member names, with all rights: such an answer must not be able to
// remove what others have stored.
fn of_shares() -> stream::Config {
    stream::Config {
        name: SHARES_STREAM.to_owned(),
        subjects: vec![Subject::shares()],
        max_age: KEPT,
        duplicate_window: SAME_SHARE,
        deny_delete: true,
        deny_purge: true,
        ..stream::Config::default()
    }
}

fn of_events() -> stream::Config {
    stream::Config {
        name: EVENTS_STREAM.to_owned(),
        subjects: vec![Subject::events()],
        max_age: KEPT,
        max_messages_per_subject: EVENTS,
        deny_delete: true,
        deny_purge: true,
        ..stream::Config::default()
    }
}

fn of_leader() -> stream::Config {
    stream::Config {
        name: format!("KV_{LEADER_BUCKET}"),
        subjects: vec![format!("$KV.{LEADER_BUCKET}.>")],
        max_age: Duration::from_nanos(LEADER_TTL_NS),
        max_messages_per_subject: 1,
        duplicate_window: Duration::from_nanos(LEADER_TTL_NS),
        deny_delete: true,
        deny_purge: true,
        ..stream::Config::default()
    }
}
