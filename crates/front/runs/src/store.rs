//! Runs on disk: facts about each run, its plan, its events and its report.
//!
//! A run is a folder `runs/ID` with `run.json`, `plan.json`, `events.jsonl.zst`, `report.json.zst` and the folder
//! `files` of its captures. While it lasts, `so-far.json` has the report so far. Files are written under another name
//! and renamed, so a file is whole or absent. The folders are the index; it is read once, at the start.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File},
    io::{self, BufRead, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use rustix::{
    fs::{FlockOperation, OFlags, flock},
    process::geteuid,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;
use wb_model::{Plan, Report, Verdict};
use wb_render::report::Mark;

use crate::feed::NumberedEvent;

/// Compression level of reports and events.
const LEVEL: i32 = 3;
/// Longest line of a file of events, in bytes. A longer one is damage, and ends the events.
const LONGEST_LINE: u64 = 16 << 20;
/// Reason in the report of a run that a server left behind.
const LEFT_BEHIND: &str = "the server ended";

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// It waits for its ports, or for other runs to end.
    Queued,
    /// Ports are opened and neighbours are searched.
    Preparing,
    /// It is ready to start.
    Armed,
    /// It sends, receives or captures.
    Running,
    /// It waits for frames in flight.
    Draining,
    /// It has ended.
    Ended,
}

/// Way in which a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunEnd {
    /// It ended as planned.
    Finished,
    /// It was stopped.
    Stopped,
    /// A fault ended it.
    Fault,
    /// It never started; `reason` says why.
    Refused,
}

/// Facts about a run, without its report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunMeta {
    /// Name: time of the request and four hexadecimal digits.
    pub id: String,
    /// Name that the requester chose.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Kind, such as `trial`.
    pub kind: String,
    /// Ports, URLs or servers, for people.
    pub target: String,
    /// Ports of the run, `NODE/IF` or `IF`.
    pub ports: Vec<String>,
    /// Labels that the requester chose.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Owner of the ports that it uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// State.
    pub state: RunState,
    /// Way in which it ended, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<RunEnd>,
    /// Verdict, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Reason for the verdict, or why the run was refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Time of the request, RFC 3339.
    pub requested: String,
    /// Start, RFC 3339, once it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// End, RFC 3339, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Time since the start, in ns; of an ended run its duration.
    pub elapsed_ns: u64,
    /// Share of the planned time that has passed, 0 to 1, while it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    /// Rates of the last interval, as the lines of a command show them, during the run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub now: String,
    /// Main figures, so far or at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<KeyFigure>,
}

impl RunMeta {
    /// Takes over the results of a run that has ended.
    pub(crate) fn take_over(&mut self, report: &Report) {
        self.verdict = Some(report.verdict);
        self.elapsed_ns = report.elapsed_ns;
        self.figures = KeyFigure::of(report);
    }
}

/// Main figure of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyFigure {
    /// Name.
    pub label: String,
    /// Value with its unit.
    pub value: String,
    /// Meaning of the value.
    #[serde(default)]
    pub tone: Tone,
}

/// Meaning of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tone {
    /// Neither good nor bad.
    #[default]
    Plain,
    /// Expected.
    Good,
    /// Not expected.
    Bad,
}

impl KeyFigure {
    /// Main figures of a report.
    #[must_use]
    pub fn of(report: &Report) -> Vec<Self> {
        let tiles = wb_render::report::tiles(report).into_iter();
        let figures = tiles.map(|tile| Self {
            label: tile.label,
            value: tile.value.text,
            tone: match tile.value.mark {
                Mark::Plain => Tone::Plain,
                Mark::Good => Tone::Good,
                Mark::Bad => Tone::Bad,
            },
        });
        figures.collect()
    }
}

/// Failure of the store.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A file operation failed.
    #[error("cannot {what} {path}: {cause}")]
    File {
        /// Operation, such as `write`.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Cause.
        #[source]
        cause: io::Error,
    },
    /// Another server uses the folder.
    #[error("{0} is used by another server; give another folder with --state")]
    InUse(PathBuf),
    /// Other users can write to the folder, so they could add tokens and results.
    #[error(
        "{0} is a folder of another user, or others can write to it; use chmod go-w, or give another folder with --state"
    )]
    NotOwn(PathBuf),
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |cause| StoreError::File { what, path, cause }
}

/// Ended runs on disk, and the folders of current ones.
#[derive(Debug)]
pub struct Store {
    runs: PathBuf,
    keep: usize,
    /// Ended runs, by their names, which are in the order of their times.
    index: Mutex<BTreeMap<String, Arc<RunMeta>>>,
    /// Runs that a server left behind without their results, as they were then.
    left_behind: Vec<RunMeta>,
    /// Keeps other servers out.
    _lock: File,
}

impl Store {
    /// Opens the folder and reads its index. Runs that a server left behind get a report of what was known last.
    ///
    /// # Errors
    /// If another server uses the folder, others can write to it, or it cannot be used.
    pub fn open(folder: &Path, keep: usize) -> Result<Self, StoreError> {
        let runs = folder.join("runs");
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&runs).map_err(failed("make", &runs))?;
        for path in [folder, &runs] {
            let about = fs::metadata(path).map_err(failed("read", path))?;
            let is_own = [0, geteuid().as_raw()].contains(&about.uid());
            if !is_own || about.mode() & 0o022 != 0 {
                return Err(StoreError::NotOwn(path.to_owned()));
            }
        }
        let path = folder.join("lock");
        let mut options = File::options();
        let options = options.create(true).truncate(false).write(true);
        let lock = options.open(&path).map_err(failed("open", &path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| StoreError::InUse(folder.to_owned()))?;
        let mut store = Self {
            runs,
            keep,
            index: Mutex::default(),
            left_behind: Vec::new(),
            _lock: lock,
        };
        let mut index = BTreeMap::new();
        let entries = fs::read_dir(&store.runs).map_err(failed("read", &store.runs))?;
        for entry in entries.flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let folder = RunFolder(entry.path());
            // A folder without this file was made by a server that ended at this moment. A name that is not that of the
            // folder could lead to any other folder.
            let name = entry.file_name();
            let meta = folder.read::<RunMeta>("run.json");
            let Some(mut meta) = meta.filter(|meta| *name == *meta.id) else {
                continue;
            };
            if meta.state != RunState::Ended {
                let left = meta.clone();
                folder.recover(&mut meta);
                if meta.verdict.is_none_or(|v| v == Verdict::Incomplete) {
                    store.left_behind.push(left);
                }
            }
            index.insert(meta.id.clone(), Arc::new(meta));
        }
        *store.lock() = index;
        store.remove_oldest(None);
        Ok(store)
    }

    /// Runs that a server left behind without their results, as they were then.
    pub(crate) fn left_behind(&self) -> &[RunMeta] {
        &self.left_behind
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<RunMeta>>> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Folder of a run. The name must be one of this store or of [`Store::create`].
    pub(crate) fn folder(&self, id: &str) -> RunFolder {
        RunFolder(self.runs.join(id))
    }

    /// Makes the folder of a new run.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn create(&self, meta: &RunMeta, plan: &Plan) -> Result<RunFolder, StoreError> {
        let folder = self.folder(&meta.id);
        let files = folder.files();
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        let made = builder.create(&files).map_err(failed("make", &files));
        let made = made
            .and_then(|()| folder.write("plan.json", plan))
            .and_then(|()| folder.write("run.json", meta));
        match made {
            Ok(()) => Ok(folder),
            Err(error) => {
                let _ = fs::remove_dir_all(&folder.0);
                Err(error)
            }
        }
    }

    /// Adds an ended run to the index. Its files have been written.
    pub(crate) fn add(&self, meta: RunMeta) {
        let id = meta.id.clone();
        self.lock().insert(id.clone(), Arc::new(meta));
        self.remove_oldest(Some(&id));
    }

    /// Removes the runs that ended first. Runs that never started are counted separately, so that they do not displace
    /// results. The run that ended now stays, even if the clock was set back.
    fn remove_oldest(&self, now: Option<&str>) {
        let mut index = self.lock();
        if index.len() <= self.keep {
            return;
        }
        for has_started in [true, false] {
            let mut same: Vec<(bool, String, String)> = index
                .values()
                .filter(|meta| meta.started.is_some() == has_started)
                .map(|meta| {
                    let is_now = now == Some(meta.id.as_str());
                    let ended = meta.ended.clone().unwrap_or_default();
                    (is_now, ended, meta.id.clone())
                })
                .collect();
            same.sort();
            let over = same.len().saturating_sub(self.keep);
            for (.., id) in same.into_iter().take(over) {
                index.remove(&id);
                let _ = fs::remove_dir_all(self.runs.join(id));
            }
        }
    }

    /// The ended runs, the newest first.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<RunMeta>> {
        self.lock().values().rev().cloned().collect()
    }

    /// An ended run.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<RunMeta> {
        self.lock().get(id).map(|meta| (**meta).clone())
    }

    /// Removes an ended run. Returns false if there is none.
    pub fn remove(&self, id: &str) -> bool {
        let known = self.lock().remove(id).is_some();
        if known {
            let _ = fs::remove_dir_all(self.runs.join(id));
        }
        known
    }

    /// Free space for the runs in bytes.
    pub(crate) fn free_bytes(&self) -> u64 {
        rustix::fs::statvfs(&self.runs).map_or(u64::MAX, |found| found.f_bavail * found.f_frsize)
    }
}

/// Folder of one run.
#[derive(Clone, Debug)]
pub(crate) struct RunFolder(PathBuf);

impl RunFolder {
    /// Folder of the files that captures write.
    pub(crate) fn files(&self) -> PathBuf {
        self.0.join("files")
    }

    /// Writes a document under another name and renames it. It is on the disk when this returns.
    pub(crate) fn write<T: Serialize>(&self, name: &str, document: &T) -> Result<(), StoreError> {
        self.write_with(name, document, File::sync_all)
    }

    /// Writes a document that need not survive a crash of the machine.
    pub(crate) fn write_quickly<T: Serialize>(
        &self,
        name: &str,
        document: &T,
    ) -> Result<(), StoreError> {
        self.write_with(name, document, |_| Ok(()))
    }

    fn write_with<T: Serialize>(
        &self,
        name: &str,
        document: &T,
        sync: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let path = self.0.join(name);
        let text = serde_json::to_vec(document).map_err(io::Error::other);
        let text = text.map_err(failed("write", &path))?;
        let text = match name.ends_with(".zst") {
            true => zstd::encode_all(&text[..], LEVEL).map_err(failed("write", &path))?,
            false => text,
        };
        let part = self.0.join(format!("{name}.part"));
        let written = File::create(&part).and_then(|mut file| {
            file.write_all(&text)?;
            sync(&file)?;
            fs::rename(&part, &path)
        });
        written.map_err(failed("write", &path))
    }

    /// Opens a file of the run. Links are not followed, and pipes, which could wait forever, are refused.
    fn open(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut options = File::options();
        options.read(true).custom_flags(flags.bits().cast_signed());
        let file = options.open(self.0.join(name))?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Reads a document.
    pub(crate) fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let file = self.open(name).ok()?;
        let file = io::BufReader::new(file);
        match name.ends_with(".zst") {
            true => serde_json::from_reader(zstd::Decoder::new(file).ok()?).ok(),
            false => serde_json::from_reader(file).ok(),
        }
    }

    /// Removes the report so far, once there is the report.
    pub(crate) fn forget_so_far(&self) {
        for name in ["so-far.json", "so-far.json.part"] {
            let _ = fs::remove_file(self.0.join(name));
        }
    }

    /// Completes a run that its server left behind. Its report, or else the report so far, has the result.
    fn recover(&self, meta: &mut RunMeta) {
        meta.state = RunState::Ended;
        meta.ended = Some(Timestamp::now().to_string());
        if let Some(report) = self.read::<Report>("report.json.zst") {
            meta.end = Some(match report.verdict {
                Verdict::Incomplete => RunEnd::Stopped,
                _ => RunEnd::Finished,
            });
            meta.take_over(&report);
            meta.reason = report.reason;
        } else {
            let has_started = meta.started.is_some();
            meta.end = Some(if has_started {
                RunEnd::Fault
            } else {
                RunEnd::Refused
            });
            meta.verdict = has_started.then_some(Verdict::Incomplete);
            meta.reason = LEFT_BEHIND.to_owned();
            if let Some(mut report) = self.read::<Report>("so-far.json") {
                report.verdict = Verdict::Incomplete;
                let seconds = report.elapsed_ns as f64 / 1e9;
                report.reason = format!(
                    "{LEFT_BEHIND}; the figures are those of {seconds:.1} s after the start"
                );
                meta.reason.clone_from(&report.reason);
                // Nobody waited for frames in flight, so the losses are unknown.
                for stream in report.jobs.iter_mut().flat_map(|job| &mut job.streams) {
                    stream.totals.lost_frames = None;
                }
                meta.take_over(&report);
                // The next start tries again.
                if self.write("report.json.zst", &report).is_err() {
                    return;
                }
            }
        }
        if self.write("run.json", meta).is_ok() {
            self.forget_so_far();
        }
    }

    /// Begins the file of events. The events of a server that was killed are written again, as nothing can follow the
    /// open end of its file.
    pub(crate) fn events(&self) -> Result<EventFile, StoreError> {
        let path = self.0.join("events.jsonl.zst");
        let earlier: Vec<NumberedEvent> = self.read_events().collect();
        let file = File::create(&path).map_err(failed("write", &path))?;
        let encoder = zstd::Encoder::new(file, LEVEL).map_err(failed("write", &path))?;
        let mut events = EventFile { encoder, path };
        for event in earlier {
            events.add(event.id, event.name, &event.data)?;
        }
        Ok(events)
    }

    /// The events of an ended run, as far as they were written. They are read one by one: there may be very many.
    pub(crate) fn read_events(&self) -> impl Iterator<Item = NumberedEvent> + Send + use<> {
        let file = self.open("events.jsonl.zst");
        let decoder = file.and_then(zstd::Decoder::new).ok();
        let mut reader = decoder.map(io::BufReader::new);
        let lines = std::iter::from_fn(move || line_of(reader.as_mut()?));
        lines.filter_map(|line| event_of(&line))
    }
}

/// Names of events.
pub(crate) const EVENTS: [&str; 4] = ["state", "snapshot", "message", "report"];

/// The next line, if it is whole: a server that was killed left the stream without its end.
fn line_of(reader: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    let mut reader = reader.take(LONGEST_LINE);
    reader.read_until(b'\n', &mut line).ok()?;
    line.pop_if(|last| *last == b'\n')?;
    String::from_utf8(line).ok()
}

/// The event of a line `ID NAME JSON`.
fn event_of(line: &str) -> Option<NumberedEvent> {
    let mut words = line.splitn(3, ' ');
    let (id, name, data) = (words.next()?, words.next()?, words.next()?);
    Some(NumberedEvent {
        id: id.parse().ok()?,
        name: EVENTS.into_iter().find(|known| *known == name)?,
        data: data.into(),
    })
}

/// File of a run's events.
pub(crate) struct EventFile {
    encoder: zstd::Encoder<'static, File>,
    path: PathBuf,
}

impl EventFile {
    /// Adds an event. It is in the file when this returns, also if the process is killed after it.
    pub(crate) fn add(&mut self, id: u64, name: &str, data: &str) -> Result<(), StoreError> {
        let added = writeln!(self.encoder, "{id} {name} {data}");
        added
            .and_then(|()| self.encoder.flush())
            .map_err(failed("write", &self.path))
    }

    /// Ends the file.
    pub(crate) fn finish(self) -> Result<(), StoreError> {
        let path = self.path;
        let finished = self.encoder.finish().and_then(|file| file.sync_all());
        finished.map_err(failed("write", &path))
    }
}

#[cfg(test)]
mod tests {
    use wb_model::report::{JobReport, StreamReport};

    use super::*;

    pub(crate) fn meta(id: &str, state: RunState) -> RunMeta {
        RunMeta {
            id: id.to_owned(),
            name: String::new(),
            kind: "trial".to_owned(),
            target: "a and b".to_owned(),
            ports: vec!["a".to_owned(), "b".to_owned()],
            labels: BTreeMap::new(),
            owner: None,
            state,
            end: None,
            verdict: None,
            reason: String::new(),
            requested: "2026-11-29T20:00:00Z".to_owned(),
            started: Some("2026-11-29T20:00:01Z".to_owned()),
            ended: (state == RunState::Ended).then(|| format!("2026-11-29T20:00:0{id}Z")),
            elapsed_ns: 0,
            progress: None,
            now: String::new(),
            figures: Vec::new(),
        }
    }

    #[test]
    fn a_name_that_is_not_that_of_its_folder_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        fs::create_dir(&victim).unwrap();
        let store = Store::open(folder.path(), 9).unwrap();
        for id in ["../victim", "", "other"] {
            let run = store
                .create(&meta("1", RunState::Ended), &Plan::default())
                .unwrap();
            run.write("run.json", &meta(id, RunState::Ended)).unwrap();
        }
        drop(store);
        let store = Store::open(folder.path(), 1).unwrap();
        assert_eq!(store.list(), []);
        assert!(!store.remove("../victim") && victim.exists());
    }

    #[test]
    fn a_folder_that_others_can_change_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let allow = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            fs::set_permissions(folder.path(), mode).unwrap();
            Store::open(folder.path(), 9)
        };
        for mode in [0o700, 0o755] {
            allow(mode).unwrap();
        }
        for mode in [0o775, 0o757, 0o1777] {
            assert!(
                matches!(allow(mode), Err(StoreError::NotOwn(_))),
                "{mode:o}"
            );
        }
    }

    #[test]
    fn links_pipes_and_damaged_files_in_the_history_lead_nowhere() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), 9).unwrap();
        let run = store
            .create(&meta("1", RunState::Ended), &Plan::default())
            .unwrap();
        let pipe = |path: &Path| {
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
        };
        // Opening a pipe would wait for its other end.
        pipe(&run.0.join("report.json.zst"));
        pipe(&folder.path().join("runs/pipe"));
        symlink(run.0.join("run.json"), run.0.join("link.json")).unwrap();
        symlink(&run.0, folder.path().join("runs/2")).unwrap();
        assert!(run.read::<Report>("report.json.zst").is_none());
        assert!(run.read::<RunMeta>("run.json").is_some());
        assert!(run.read::<RunMeta>("link.json").is_none());
        // A line that never ends.
        let endless = zstd::encode_all(io::repeat(b'1').take(LONGEST_LINE + 9), LEVEL).unwrap();
        fs::write(run.0.join("events.jsonl.zst"), endless).unwrap();
        assert_eq!(run.read_events().count(), 0);
        drop(store);
        let store = Store::open(folder.path(), 9).unwrap();
        assert_eq!(store.list().len(), 1);
    }

    #[test]
    fn runs_that_never_started_displace_no_results() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), 1).unwrap();
        store.add(meta("1", RunState::Ended));
        for id in ["2", "3"] {
            store.add(RunMeta {
                started: None,
                ..meta(id, RunState::Ended)
            });
        }
        let ids = || {
            store
                .list()
                .into_iter()
                .map(|meta| meta.id.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(), ["3", "1"]);
        // One that ended after the clock was set back.
        store.add(RunMeta {
            ended: Some("2020-01-01T00:00:00Z".to_owned()),
            ..meta("0", RunState::Ended)
        });
        assert_eq!(ids(), ["3", "0"]);
    }

    #[test]
    fn ended_runs_are_kept_in_order_and_the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), 2).unwrap();
        for id in ["3", "1", "2"] {
            let meta = meta(id, RunState::Ended);
            store.create(&meta, &Plan::default()).unwrap();
            store.add(meta);
        }
        let ids = |store: &Store| {
            store
                .list()
                .into_iter()
                .map(|m| m.id.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(&store), ["3", "2"]);
        assert!(!store.folder("1").files().exists());
        assert!(matches!(
            Store::open(folder.path(), 2),
            Err(StoreError::InUse(_))
        ));
        drop(store);
        let store = Store::open(folder.path(), 2).unwrap();
        assert_eq!(ids(&store), ["3", "2"]);
        assert!(store.remove("3") && !store.remove("3"));
        assert_eq!(ids(&store), ["2"]);
    }

    #[test]
    fn a_run_that_was_left_behind_keeps_what_was_known() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), 9).unwrap();
        for id in ["known", "new"] {
            let run = store
                .create(&meta(id, RunState::Running), &Plan::default())
                .unwrap();
            if id == "known" {
                let mut report = Report {
                    elapsed_ns: 2_500_000_000,
                    ..Report::default()
                };
                report.totals.offered_frames = Some(5);
                let mut stream = StreamReport::default();
                stream.totals.offered_frames = Some(5);
                stream.totals.lost_frames = Some(0);
                report.jobs.push(JobReport {
                    streams: vec![stream],
                    ..JobReport::default()
                });
                run.write("so-far.json", &report).unwrap();
                let mut events = run.events().unwrap();
                events.add(1, "state", "{\"state\":\"running\"}").unwrap();
                events.add(2, "snapshot", "{ }").unwrap();
                // Killed: the file is never finished.
                std::mem::forget(events);
            }
        }
        // One that was killed after its report had been written.
        let whole = store
            .create(&meta("whole", RunState::Draining), &Plan::default())
            .unwrap();
        let report = Report {
            verdict: Verdict::Pass,
            ..Report::default()
        };
        whole.write("report.json.zst", &report).unwrap();
        whole.write("so-far.json", &Report::default()).unwrap();
        // A folder without anything in it.
        fs::create_dir(folder.path().join("runs/empty")).unwrap();
        drop(store);
        for _ in 0..2 {
            let store = Store::open(folder.path(), 9).unwrap();
            let known = store.get("known").unwrap();
            assert_eq!(
                (known.state, known.end),
                (RunState::Ended, Some(RunEnd::Fault))
            );
            assert_eq!(
                (known.verdict, known.elapsed_ns),
                (Some(Verdict::Incomplete), 2_500_000_000)
            );
            assert_eq!(
                known.reason,
                "the server ended; the figures are those of 2.5 s after the start"
            );
            let report: Report = store.folder("known").read("report.json.zst").unwrap();
            assert_eq!(report.totals.offered_frames, Some(5));
            assert_eq!(report.verdict, Verdict::Incomplete);
            // Frames may have been in flight.
            let stream = &report.jobs[0].streams[0].totals;
            assert_eq!((stream.offered_frames, stream.lost_frames), (Some(5), None));
            let whole = store.get("whole").unwrap();
            assert_eq!(
                (whole.end, whole.verdict),
                (Some(RunEnd::Finished), Some(Verdict::Pass))
            );
            let events: Vec<_> = store.folder("known").read_events().collect();
            assert_eq!(events.len(), 2);
            assert_eq!(
                (events[1].id, events[1].name, &*events[1].data),
                (2, "snapshot", "{ }")
            );
            // It had started, and had no snapshot yet.
            assert_eq!(store.get("new").unwrap().end, Some(RunEnd::Fault));
            assert_eq!(store.list().len(), 3);
        }
    }
}
