//! Leadership of a fleet: one controller at a time, by an entry that the broker keeps for a few seconds.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_nats::{
    HeaderMap, HeaderValue, Subject as Name,
    jetstream::{self, stream},
};
use tokio::runtime::Runtime;
use wb_fleet_core::{
    leader::{Action, Event, Leader},
    message::LeaderEntry,
    subjects::{LEADER_BUCKET, LEADER_KEY},
};
use wb_machine::clock::monotonic_ns;

use crate::{
    bus::Bus,
    kept::{self, Kept, PATIENCE},
    wire,
};

/// Interval at which the entry is read and renewed.
const LOOK: Duration = Duration::from_millis(500);
/// Time in which the leadership must be known at the begin.
const FIRST: Duration = Duration::from_secs(7);

/// Time after which the user learns why nothing happens.
const SILENCE: Duration = Duration::from_secs(1);

/// State of the leadership.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Epoch, if this controller leads.
    epoch: Option<u64>,
    /// Entry that gives up the leadership, and the revision that it replaces.
    released: Option<(u64, LeaderEntry)>,
    /// Name of another controller that leads.
    other: Option<String>,
    /// True once the leadership is given up for good.
    is_released: bool,
}

/// Leadership of this controller, sought and renewed in the background.
pub(crate) struct Leadership {
    known: Arc<Mutex<Known>>,
    client: async_nats::Client,
    runtime: Arc<Runtime>,
}

impl Leadership {
    /// Begins to seek the leadership.
    pub(crate) fn seek(bus: &Bus, kept: &Kept, name: &str) -> io::Result<Self> {
        let (client, runtime) = bus.client();
        let known: Arc<Mutex<Known>> = Arc::default();
        let mut seeker = Seeker {
            client: client.clone(),
            streams: kept.streams.clone(),
            entries: kept.entries.clone(),
            leader: Leader::new(name, wire::random_id()?),
            known: Arc::downgrade(&known),
        };
        seeker.leader.set_store_time(made_ns(&seeker.entries));
        runtime.spawn(seeker.seek());
        Ok(Self {
            known,
            client: client.clone(),
            runtime: Arc::clone(runtime),
        })
    }

    /// Epoch of this controller. Waits until it leads, and reports once that another one leads.
    ///
    /// # Errors
    /// A sentence, if another controller leads or the broker does not answer.
    pub(crate) fn epoch(&self, say: Option<fn(&str)>) -> Result<u64, String> {
        let (began, mut say) = (Instant::now(), say);
        loop {
            let known = self
                .known
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            if let Some(epoch) = known.epoch {
                return Ok(epoch);
            }
            if let Some(name) = &known.other
                && let Some(say) = say.take_if(|_| began.elapsed() >= SILENCE)
            {
                say(&format!(
                    "waiting for another controller of the fleet: {name}"
                ));
            }
            if began.elapsed() >= FIRST {
                return Err(match known.other {
                    Some(name) => format!(
                        "another controller leads the fleet: {name}; wait for its end, or stop it"
                    ),
                    None => "the broker does not say who leads the fleet".to_owned(),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Leadership {
    /// Lets the next controller lead at once. A renewal that is still on its way fails, because the entry is gone.
    pub(crate) fn release(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.is_released = true;
        known.epoch = None;
        let Some((revision, entry)) = known.released.take() else {
            return;
        };
        drop(known);
        // Without an answer, or after a renewal that was on its way, the entry ends after a few seconds.
        let _ = self
            .runtime
            .block_on(put(&self.client, Some(revision), &entry));
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.release();
    }
}

/// Time at which a stream was made, in ns since 1970.
fn made_ns(stream: &stream::Stream) -> u64 {
    u64::try_from(stream.cached_info().created.unix_timestamp_nanos()).unwrap_or(0)
}

/// Writes the entry if it is still the expected one.
async fn put(client: &async_nats::Client, expected: Option<u64>, entry: &LeaderEntry) -> Event {
    let mut headers = HeaderMap::new();
    let revision = HeaderValue::from(expected.unwrap_or(0));
    headers.insert("Nats-Expected-Last-Subject-Sequence", revision);
    let name = Name::from(Seeker::subject());
    let request = client.request_with_headers(name, headers, wire::write(entry).into());
    #[derive(serde::Deserialize)]
    struct Stored {
        seq: u64,
    }
    let answer = tokio::time::timeout(PATIENCE, request).await;
    let stored = answer.ok().and_then(Result::ok);
    let stored = stored.and_then(|m| serde_json::from_slice::<Stored>(&m.payload).ok());
    match stored.filter(|stored| stored.seq > 0) {
        Some(stored) => Event::Stored {
            revision: stored.seq,
        },
        None => Event::NotStored,
    }
}

struct Seeker {
    client: async_nats::Client,
    streams: jetstream::Context,
    entries: stream::Stream,
    leader: Leader,
    known: std::sync::Weak<Mutex<Known>>,
}

impl Seeker {
    async fn seek(mut self) {
        while let Some(known) = self.known.upgrade() {
            let event = self.look().await;
            let mut actions = self.leader.on(event, monotonic_ns());
            actions.extend(self.leader.on(Event::Tick, monotonic_ns()));
            while let Some(action) = actions.pop() {
                if let Action::Put { expected, entry } = action {
                    let event = put(&self.client, expected, &entry).await;
                    actions.extend(self.leader.on(event, monotonic_ns()));
                }
            }
            if !self.publish(&known) {
                return;
            }
            drop(known);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Updates the known leader. Returns false if the leadership was released.
    fn publish(&self, known: &Mutex<Known>) -> bool {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_released {
            return false;
        }
        known.epoch = self.leader.epoch();
        known.released = self.leader.released();
        known.other = self.leader.holder().map(|holder| holder.controller.clone());
        true
    }

    fn subject() -> String {
        format!("$KV.{LEADER_BUCKET}.{LEADER_KEY}")
    }

    /// Reads the entry.
    async fn look(&mut self) -> Event {
        let subject = Self::subject();
        match self.entries.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => match wire::read::<LeaderEntry>(&message.payload) {
                Ok(entry) => Event::Entry {
                    revision: message.sequence,
                    entry,
                },
                Err(_) => Event::Empty,
            },
            Err(error)
                if matches!(
                    error.kind(),
                    stream::LastRawMessageErrorKind::NoMessageFound
                ) =>
            {
                Event::Empty
            }
            // The broker has lost its store.
            Err(error) if matches!(error.kind(), stream::LastRawMessageErrorKind::JetStream(_)) => {
                if let Ok([.., entries]) = kept::make_streams(&self.streams).await {
                    self.leader.set_store_time(made_ns(&entries));
                    self.entries = entries;
                }
                Event::Tick
            }
            Err(_) => Event::Tick,
        }
    }
}
