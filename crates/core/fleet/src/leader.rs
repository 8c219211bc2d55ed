//! Choice of the leading controller: one controller at a time holds a key with a value that expires.
//!
//! The key is created and renewed only against the revision that the controller saw last, so of two controllers one
//! fails. The revision of the entry that begins a leadership is its epoch: revisions only rise. A broker that lost its
//! store begins at revision 1 again, so the epoch also counts from the time at which the store was made.

use crate::{MS, SECOND, message::LeaderEntry, message::V1};

/// Time after which the entry of a leader expires.
pub const LEADER_TTL_NS: u64 = 5 * SECOND;
/// Time between two renewals.
const RENEW_NS: u64 = 1_500 * MS;
/// Time without a successful renewal after which a leader steps down, before its entry expires.
const STEP_DOWN_NS: u64 = 4 * SECOND;

/// Input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Current entry of the key, from the watch of the bucket.
    Entry {
        /// Revision of the entry.
        revision: u64,
        /// Contents.
        entry: LeaderEntry,
    },
    /// The key has no entry: it never had one, it expired, or its holder deleted it.
    Empty,
    /// The last [`Action::Put`] succeeded with this revision.
    Stored {
        /// Revision of the new entry.
        revision: u64,
    },
    /// The last [`Action::Put`] failed: another controller was faster, or the broker is away.
    NotStored,
    /// Time has passed.
    Tick,
}

/// Output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Writes the entry, only if the key still has this revision; `None`: only if it has no entry.
    Put {
        /// Expected revision.
        expected: Option<u64>,
        /// New contents.
        entry: LeaderEntry,
    },
    /// The controller leads from now on, with this epoch. It adopts the runs that have not ended.
    Lead {
        /// Epoch of its messages.
        epoch: u64,
    },
    /// The controller leads no more: it sends no lease and no request.
    StepDown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Another controller may lead; seen last at this time.
    Standby,
    /// An entry that begins a leadership is on its way.
    Taking,
    /// This controller leads. `since_ns`: the last successful renewal.
    Leading {
        epoch: u64,
        revision: u64,
        since_ns: u64,
        is_storing: bool,
    },
}

/// Leadership of one controller.
#[derive(Clone, Debug)]
pub struct Leader {
    controller: String,
    id: String,
    state: State,
    holder: Option<LeaderEntry>,
    /// Epoch of revision 0, from the time at which the store was made.
    first_epoch: u64,
    /// Time of the put on its way. The entry may be stored then, so its life is counted from here.
    put_ns: u64,
    next_ns: u64,
}

impl Leader {
    /// Creates a controller on stand-by.
    #[must_use]
    pub fn new(controller: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            controller: controller.into(),
            id: id.into(),
            state: State::Standby,
            holder: None,
            first_epoch: 0,
            put_ns: 0,
            next_ns: 0,
        }
    }

    /// Sets the time at which the store of the entry was made, in ns since 1970. Epochs rise by at most one in 100 ms, so
    /// those of a later store are higher.
    pub const fn set_store_time(&mut self, made_wall_ns: u64) {
        self.first_epoch = made_wall_ns / (100 * MS);
    }

    /// Entry that gives up the leadership, and the revision that it replaces.
    #[must_use]
    pub fn released(&self) -> Option<(u64, LeaderEntry)> {
        match self.state {
            State::Leading { revision, .. } => Some((revision, LeaderEntry::default())),
            _ => None,
        }
    }

    /// Epoch of this controller, while it leads.
    #[must_use]
    pub const fn epoch(&self) -> Option<u64> {
        match self.state {
            State::Leading { epoch, .. } => Some(epoch),
            _ => None,
        }
    }

    /// Entry of the leading controller, as far as known.
    #[must_use]
    pub const fn holder(&self) -> Option<&LeaderEntry> {
        self.holder.as_ref()
    }

    /// Handles an event at a monotonic time in ns.
    pub fn on(&mut self, event: Event, now_ns: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        if let State::Leading { since_ns, .. } = self.state
            && now_ns >= since_ns.saturating_add(STEP_DOWN_NS)
        {
            self.step_down(&mut actions);
        }
        match event {
            Event::Entry { revision, entry } if entry.id.is_empty() => {
                self.seen_free(Some(revision), now_ns, &mut actions);
            }
            Event::Entry { revision, entry } => self.seen(revision, entry, &mut actions),
            Event::Empty => self.seen_free(None, now_ns, &mut actions),
            Event::Stored { revision } => self.stored(revision, &mut actions),
            Event::NotStored => match self.state {
                State::Taking => self.state = State::Standby,
                State::Leading {
                    ref mut is_storing, ..
                } => *is_storing = false,
                State::Standby => {}
            },
            Event::Tick => {}
        }
        self.renew(now_ns, &mut actions);
        actions
    }

    fn entry(&self, epoch: u64) -> LeaderEntry {
        LeaderEntry {
            v: V1,
            controller: self.controller.clone(),
            id: self.id.clone(),
            epoch,
        }
    }

    fn step_down(&mut self, actions: &mut Vec<Action>) {
        self.state = State::Standby;
        self.holder.take_if(|holder| holder.id == self.id);
        actions.push(Action::StepDown);
    }

    fn seen(&mut self, revision: u64, entry: LeaderEntry, actions: &mut Vec<Action>) {
        let is_other = entry.id != self.id;
        self.holder = Some(entry);
        if let State::Leading { revision: own, .. } = self.state
            && is_other
            && revision > own
        {
            self.step_down(actions);
        }
    }

    /// No controller leads. `revision` is that of the entry by which the last one gave up.
    fn seen_free(&mut self, revision: Option<u64>, now_ns: u64, actions: &mut Vec<Action>) {
        if let State::Leading { revision: own, .. } = self.state
            && revision.is_some_and(|revision| revision <= own)
        {
            return;
        }
        self.holder = None;
        match self.state {
            State::Standby => {
                self.state = State::Taking;
                self.put_ns = now_ns;
                actions.push(Action::Put {
                    expected: revision,
                    entry: self.entry(0),
                });
            }
            State::Leading { .. } => self.step_down(actions),
            State::Taking => {}
        }
    }

    fn stored(&mut self, stored: u64, actions: &mut Vec<Action>) {
        match &mut self.state {
            State::Taking => {
                let epoch = self.first_epoch.saturating_add(stored);
                self.state = State::Leading {
                    epoch,
                    revision: stored,
                    since_ns: self.put_ns,
                    is_storing: false,
                };
                self.next_ns = self.put_ns + RENEW_NS;
                self.holder = Some(self.entry(epoch));
                actions.push(Action::Lead { epoch });
            }
            State::Leading {
                revision,
                since_ns,
                is_storing,
                ..
            } => {
                *revision = stored;
                *since_ns = self.put_ns;
                *is_storing = false;
            }
            State::Standby => {}
        }
    }

    fn renew(&mut self, now_ns: u64, actions: &mut Vec<Action>) {
        let due = now_ns >= self.next_ns;
        if let State::Leading {
            epoch,
            revision,
            ref mut is_storing,
            ..
        } = self.state
            && due
            && !*is_storing
        {
            *is_storing = true;
            self.put_ns = now_ns;
            self.next_ns = now_ns + RENEW_NS;
            actions.push(Action::Put {
                expected: Some(revision),
                entry: self.entry(epoch),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS_500: u64 = 500 * MS;

    fn put_expected(actions: &[Action]) -> Vec<Option<u64>> {
        let puts = actions.iter().filter_map(|action| match action {
            Action::Put { expected, .. } => Some(*expected),
            _ => None,
        });
        puts.collect()
    }

    #[test]
    fn the_first_controller_leads_with_the_revision_as_epoch() {
        let mut leader = Leader::new("c1", "x");
        assert_eq!(put_expected(&leader.on(Event::Empty, 0)), [None]);
        let actions = leader.on(Event::Stored { revision: 7 }, MS_500);
        assert_eq!(actions, [Action::Lead { epoch: 7 }]);
        let actions = leader.on(Event::Tick, RENEW_NS);
        assert_eq!(put_expected(&actions), [Some(7)]);
        assert_eq!(leader.on(Event::Stored { revision: 9 }, RENEW_NS + 1), []);
        assert_eq!(leader.epoch(), Some(7));
    }

    #[test]
    fn a_new_store_has_higher_epochs_than_the_one_before() {
        let mut leader = Leader::new("c1", "x");
        leader.set_store_time(1_000 * SECOND);
        leader.on(Event::Empty, 0);
        leader.on(Event::Stored { revision: 600 }, 1);
        let before = leader.epoch().unwrap();
        // The store is lost: no renewal succeeds, and the new one begins at revision 1.
        leader.on(Event::Tick, STEP_DOWN_NS);
        assert_eq!((leader.epoch(), leader.holder()), (None, None));
        leader.set_store_time(1_600 * SECOND);
        assert_eq!(put_expected(&leader.on(Event::Empty, 9 * SECOND)), [None]);
        leader.on(Event::Stored { revision: 1 }, 9 * SECOND);
        assert!(leader.epoch().unwrap() > before);
    }

    #[test]
    fn a_released_entry_is_replaced() {
        let mut first = Leader::new("c1", "x");
        assert_eq!(first.released(), None);
        first.on(Event::Empty, 0);
        first.on(Event::Stored { revision: 7 }, 1);
        let (replaced, entry) = first.released().unwrap();
        assert_eq!(replaced, 7);
        let mut second = Leader::new("c2", "y");
        let event = Event::Entry { revision: 8, entry };
        assert_eq!(put_expected(&second.on(event.clone(), 2)), [Some(8)]);
        second.on(Event::Stored { revision: 9 }, 3);
        // An answer that was delayed.
        assert_eq!(second.on(event, 4), []);
        assert_eq!(second.epoch(), Some(9));
    }

    #[test]
    fn a_stand_by_waits_for_the_end_of_the_entry() {
        let mut leader = Leader::new("c2", "y");
        let entry = LeaderEntry {
            controller: "c1".into(),
            id: "x".into(),
            epoch: 7,
            ..LeaderEntry::default()
        };
        assert_eq!(leader.on(Event::Entry { revision: 9, entry }, 0), []);
        assert_eq!(leader.on(Event::Tick, 60 * SECOND), []);
        assert_eq!(put_expected(&leader.on(Event::Empty, 61 * SECOND)), [None]);
        // Another one was faster.
        assert_eq!(leader.on(Event::NotStored, 61 * SECOND), []);
        assert_eq!(leader.epoch(), None);
    }

    #[test]
    fn a_leader_that_cannot_renew_steps_down_before_its_entry_expires() {
        let mut leader = Leader::new("c1", "x");
        leader.on(Event::Empty, 0);
        leader.on(Event::Stored { revision: 7 }, 1);
        leader.on(Event::Tick, 2 * SECOND);
        leader.on(Event::NotStored, 3 * SECOND);
        let actions = leader.on(Event::Tick, STEP_DOWN_NS);
        assert_eq!(actions, [Action::StepDown]);
        const { assert!(STEP_DOWN_NS < LEADER_TTL_NS) };
    }

    #[test]
    fn a_leader_that_sees_another_one_steps_down() {
        let mut leader = Leader::new("c1", "x");
        leader.on(Event::Empty, 0);
        leader.on(Event::Stored { revision: 7 }, 1);
        let entry = LeaderEntry {
            id: "y".into(),
            ..LeaderEntry::default()
        };
        let own = LeaderEntry {
            id: "x".into(),
            ..LeaderEntry::default()
        };
        let event = Event::Entry {
            revision: 8,
            entry: own,
        };
        assert_eq!(leader.on(event, 2), []);
        let event = Event::Entry { revision: 9, entry };
        assert_eq!(leader.on(event, 3), [Action::StepDown]);
    }
}
