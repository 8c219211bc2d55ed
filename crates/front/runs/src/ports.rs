//! Users of ports. A port is used by one run at a time. It may belong to an owner, and then only runs of this owner use
//! it.
//!
//! Times are passed by the caller, in ns of the monotonic clock.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

/// User of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Holder {
    /// A run, by its name.
    Run(String),
    /// An owner; only runs of this owner may use the port.
    Owner(String),
    /// Another process, with its command line.
    Process(String),
    /// A run that waits for this port and others, by its name. Nothing else uses the port.
    Waiting(String),
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Run(id) => write!(f, "run {id}"),
            Self::Owner(name) => write!(f, "owner {name}"),
            Self::Process(text) => f.write_str(text),
            Self::Waiting(id) => write!(f, "run {id}, which waits for other ports"),
        }
    }
}

/// Port that is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HeldPort {
    /// The port, `NODE/IF` or `IF`.
    pub port: String,
    /// Its user.
    pub held_by: Holder,
}

impl HeldPort {
    /// The use of the port: `is held by run R`.
    #[must_use]
    pub fn in_words(&self) -> String {
        let how = match self.held_by {
            Holder::Waiting(_) => "is reserved for",
            _ => "is held by",
        };
        format!("{how} {}", self.held_by)
    }
}

impl std::fmt::Display for HeldPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.port, self.in_words())
    }
}

/// Lease of a port by an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    owner: String,
    until_ns: u64,
}

/// Users of all ports.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    /// Run of a port, and the owner of that run.
    runs: BTreeMap<String, (String, Option<String>)>,
    leases: BTreeMap<String, Lease>,
}

impl Ports {
    /// The users that keep a run of `owner` from using these ports.
    pub(crate) fn holders(
        &self,
        ports: &BTreeSet<String>,
        owner: Option<&str>,
        now_ns: u64,
    ) -> Vec<HeldPort> {
        let held = ports.iter().filter_map(|port| {
            let held_by = self.holder(port, owner, now_ns)?;
            Some(HeldPort {
                port: port.clone(),
                held_by,
            })
        });
        held.collect()
    }

    /// The user that keeps a run of `owner` from using a port.
    pub(crate) fn holder(&self, port: &str, owner: Option<&str>, now_ns: u64) -> Option<Holder> {
        let run = self.runs.get(port);
        let run = run.map(|(id, _)| Holder::Run(id.clone()));
        run.or_else(|| {
            let lease = self.leases.get(port)?;
            let is_of_other = lease.until_ns > now_ns && owner != Some(&lease.owner);
            is_of_other.then(|| Holder::Owner(lease.owner.clone()))
        })
    }

    /// Gives free ports to a run of an owner.
    pub(crate) fn take(&mut self, ports: &BTreeSet<String>, id: &str, owner: Option<&str>) {
        for port in ports {
            let run = (id.to_owned(), owner.map(str::to_owned));
            self.runs.insert(port.clone(), run);
        }
    }

    /// Takes all ports from a run.
    pub(crate) fn release(&mut self, id: &str) {
        self.runs.retain(|_, (run, _)| run != id);
    }

    /// Gives a port to an owner until a time, or extends the lease. With `steals`, other owners and runs lose it;
    /// returns the run that has to end then.
    ///
    /// # Errors
    /// The user of the port, if it is not of this owner.
    pub(crate) fn own(
        &mut self,
        port: &str,
        owner: &str,
        until_ns: u64,
        now_ns: u64,
        steals: bool,
    ) -> Result<Option<String>, Holder> {
        let lease = self
            .leases
            .get(port)
            .filter(|lease| lease.until_ns > now_ns);
        let run = self.runs.get(port);
        let is_own = match (lease, run) {
            (Some(lease), _) => lease.owner == owner,
            (None, Some((_, of))) => of.as_deref() == Some(owner),
            (None, None) => true,
        };
        if let Some(holder) = self.holder(port, Some(owner), now_ns)
            && !is_own
            && !steals
        {
            return Err(holder);
        }
        let lease = Lease {
            owner: owner.to_owned(),
            until_ns,
        };
        self.leases.insert(port.to_owned(), lease);
        let stolen = self.runs.get(port).filter(|_| !is_own);
        Ok(stolen.map(|(id, _)| id.clone()))
    }

    /// Ends the lease of a port. Returns false if it is not of this owner.
    pub(crate) fn disown(&mut self, port: &str, owner: &str) -> bool {
        let is_own = self
            .leases
            .get(port)
            .is_some_and(|lease| lease.owner == owner);
        if is_own {
            self.leases.remove(port);
        }
        is_own
    }
}

/// Returns true if a name has the form of a pattern, in which `*` is any text and `?` any character.
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some(first) = pattern.chars().next() else {
        return name.is_empty();
    };
    let rest = &pattern[first.len_utf8()..];
    match first {
        '*' => {
            let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            ends.into_iter().any(|at| matches(rest, &name[at..]))
        }
        _ => name.chars().next().is_some_and(|own| {
            (first == '?' || first == own) && matches(rest, &name[own.len_utf8()..])
        }),
    }
}

/// Run that waits for its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) id: String,
    pub(crate) ports: BTreeSet<String>,
    pub(crate) owner: Option<String>,
}

/// The runs that may start now, in the order of the queue. A run may pass earlier ones only if it shares no port with
/// them. `free` is the number of runs that may start.
pub(crate) fn may_start(queue: &[Waiting], ports: &Ports, free: usize, now_ns: u64) -> Vec<String> {
    let (mut started, mut taken) = (Vec::new(), BTreeSet::new());
    for run in queue {
        let owner = run.owner.as_deref();
        let is_free = ports.holders(&run.ports, owner, now_ns).is_empty();
        if started.len() < free && is_free && run.ports.is_disjoint(&taken) {
            started.push(run.id.clone());
        }
        taken.extend(run.ports.iter().cloned());
    }
    started
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(ports: &[&str]) -> BTreeSet<String> {
        ports.iter().map(|port| (*port).to_owned()).collect()
    }

    fn waiting(id: &str, ports: &[&str]) -> Waiting {
        Waiting {
            id: id.to_owned(),
            ports: set(ports),
            owner: None,
        }
    }

    #[test]
    fn a_port_has_one_run_and_one_owner() {
        let mut ports = Ports::default();
        ports.take(&set(&["a", "b"]), "r1", None);
        let held = ports.holders(&set(&["b", "c"]), None, 0);
        assert_eq!(held.len(), 1);
        assert_eq!(held[0].to_string(), "b is held by run r1");
        ports.release("r1");
        assert_eq!(ports.holders(&set(&["a", "b"]), None, 0), []);

        assert_eq!(ports.own("a", "me", 100, 0, false), Ok(None));
        assert_eq!(ports.holder("a", Some("me"), 50), None);
        let other = Some(Holder::Owner("me".to_owned()));
        assert_eq!(ports.holder("a", None, 50), other);
        assert_eq!(ports.holder("a", Some("you"), 50), other);
        assert_eq!(ports.holder("a", None, 100), None, "the lease has ended");
        assert_eq!(
            ports.own("a", "you", 200, 50, false),
            Err(Holder::Owner("me".to_owned()))
        );
        // The owner's own run does not hinder an extension; a thief's does.
        ports.take(&set(&["a"]), "r2", Some("me"));
        assert_eq!(ports.own("a", "me", 300, 50, false), Ok(None));
        assert_eq!(
            ports.own("a", "you", 300, 60, true),
            Ok(Some("r2".to_owned()))
        );
        assert!(!ports.disown("a", "me") && ports.disown("a", "you"));
        // A port that only the owner's run uses is leased again.
        assert_eq!(ports.own("a", "me", 900, 700, false), Ok(None));
    }

    #[test]
    fn a_run_passes_only_those_that_share_no_port_with_it() {
        let mut ports = Ports::default();
        ports.take(&set(&["a"]), "r1", None);
        let queue = [
            waiting("r2", &["a", "b"]),
            waiting("r3", &["b"]),
            waiting("r4", &["c"]),
            waiting("r5", &[]),
        ];
        assert_eq!(may_start(&queue, &ports, 9, 0), ["r4", "r5"]);
        assert_eq!(may_start(&queue, &ports, 1, 0), ["r4"]);
        ports.release("r1");
        assert_eq!(may_start(&queue, &ports, 9, 0), ["r2", "r4", "r5"]);
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, is_match) in [
            ("*", "", true),
            ("eth?", "eth0", true),
            ("eth?", "eth10", false),
            ("wb-*/a0", "wb-pair-a/a0", true),
            ("wb-*/a0", "wb-pair-a/a00", false),
            ("*b*", "abc", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, name), is_match, "{pattern} {name}");
        }
    }

    proptest! {
        /// A started run shares no port with a running one, and the first run with free ports always starts.
        #[test]
        fn started_runs_share_no_port(
            held in proptest::collection::btree_set(0_u8..6, 0..4),
            queue in proptest::collection::vec(proptest::collection::btree_set(0_u8..6, 0..4), 0..8),
        ) {
            let names = |ports: &BTreeSet<u8>| -> BTreeSet<String> {
                ports.iter().map(|port| format!("p{port}")).collect()
            };
            let mut ports = Ports::default();
            ports.take(&names(&held), "before", None);
            let queue: Vec<Waiting> = queue.iter().enumerate().map(|(n, used)| Waiting {
                id: format!("r{n}"),
                ports: names(used),
                owner: None,
            }).collect();
            let started = may_start(&queue, &ports, usize::MAX, 0);
            let mut used = names(&held);
            for run in queue.iter().filter(|run| started.contains(&run.id)) {
                prop_assert!(run.ports.is_disjoint(&used));
                used.extend(run.ports.iter().cloned());
            }
            let first = queue.iter().find(|run| run.ports.is_disjoint(&names(&held)));
            if let Some(first) = first.filter(|run| run.id == queue[0].id) {
                prop_assert!(started.contains(&first.id));
            }
        }
    }
}
