//! Files that a plan reads. The controller reads them once, and each agent fetches those of its part, piece by piece.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, OpenOptions},
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use wb_fleet_core::{
    message::{PartFile, Problem, RowShare, V1},
    place::Placement,
    split,
};
use wb_model::Plan;

use crate::wire;

/// Begin of the subject on which an agent asks for a piece of a file; its host follows.
pub(crate) const FILE: &str = "wb.v1.file.";
/// Maximum size of a file in bytes.
const LARGEST: u64 = 1 << 30;
/// Maximum size of a piece in bytes: brokers take messages of 1 MiB.
const PIECE: usize = 900_000;

/// Question for a piece of a file, which begins at an offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PieceRequest {
    v: V1,
    pub(crate) run: String,
    sha256: String,
    offset: u64,
}

/// Files of a run that its controller offers, by host and digest.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    files: BTreeMap<(String, String), Arc<[u8]>>,
}

impl Offer {
    /// Reads the files of all parts, and notes their sizes and digests in the placement. `base` is the folder of relative
    /// names.
    ///
    /// # Errors
    /// All files that cannot be read.
    pub(crate) fn read(
        placement: &mut Placement,
        base: Option<&Path>,
    ) -> Result<Self, Vec<Problem>> {
        let mut known: BTreeMap<String, Result<Arc<[u8]>, String>> = BTreeMap::new();
        let mut problems = BTreeMap::new();
        let mut files = BTreeMap::new();
        for (host, part) in &mut placement.parts {
            for file in &mut part.files {
                let content = known
                    .entry(file.name.clone())
                    .or_insert_with(|| read(&file.name, base));
                let own = content.clone().and_then(|whole| match file.rows.take() {
                    Some(share) => rows(&whole, share).map(Arc::from),
                    None => Ok(whole),
                });
                match own {
                    Ok(own) => {
                        file.size = own.len() as u64;
                        file.sha256 = hex(&own);
                        files.insert((host.clone(), file.sha256.clone()), own);
                    }
                    Err(why) => {
                        problems.insert(file.name.clone(), why);
                    }
                }
            }
        }
        if problems.is_empty() {
            return Ok(Self { files });
        }
        let problem = |(name, why): (String, String)| Problem::new(name, why);
        Err(problems.into_iter().map(problem).collect())
    }

    /// The piece that the agent of a host asks for. `None` if the file is not one of its part.
    pub(crate) fn piece(&self, host: &str, request: &PieceRequest) -> Option<Vec<u8>> {
        let key = (host.to_owned(), request.sha256.clone());
        let whole = self.files.get(&key)?;
        let rest = whole.get(usize::try_from(request.offset).ok()?..)?;
        Some(rest[..rest.len().min(PIECE)].to_vec())
    }
}

fn read(name: &str, base: Option<&Path>) -> Result<Arc<[u8]>, String> {
    let path = base.map_or_else(|| PathBuf::from(name), |base| base.join(name));
    let why = |e: std::io::Error| format!("cannot be read: {}", wb_machine::cause_text(&e));
    let about = fs::metadata(&path).map_err(why)?;
    match (about.is_file(), about.len() <= LARGEST) {
        (false, _) => Err("is no file with contents".to_owned()),
        (_, false) => Err(format!("has {} bytes; {LARGEST} are possible", about.len())),
        _ => fs::read(&path).map(Arc::from).map_err(why),
    }
}

/// The header of a CSV file, with the data lines of one part.
fn rows(whole: &[u8], share: RowShare) -> Result<Vec<u8>, String> {
    let RowShare { index, of } = share;
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(whole);
    let mut writer = csv::WriterBuilder::new()
        .flexible(true)
        .from_writer(Vec::new());
    let header = reader.byte_headers().map_err(|e| e.to_string())?;
    writer
        .write_byte_record(header)
        .map_err(|e| e.to_string())?;
    let all = reader.into_byte_records().collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|e| e.to_string())?;
    let count = |index| split::part(all.len() as u64, index, of);
    if all.len() < of as usize {
        let lines = wb_model::counted(all.len() as u64, "line", "lines");
        return Err(format!("has {lines} of values for {of} hosts"));
    }
    let before: u64 = (0..index).map(count).sum();
    let own = all
        .iter()
        .skip(usize::try_from(before).unwrap_or(usize::MAX));
    let own = own.take(usize::try_from(count(index)).unwrap_or(usize::MAX));
    for record in own {
        writer
            .write_byte_record(record)
            .map_err(|e| e.to_string())?;
    }
    writer.into_inner().map_err(|e| e.to_string())
}

/// Asks the controller for a piece and waits for it.
pub(crate) type Ask = Arc<dyn Fn(Vec<u8>) -> Result<Vec<u8>, String> + Send + Sync>;

/// Folder with the files of a run, which ends with the run.
#[derive(Debug)]
pub(crate) struct Fetched {
    folder: PathBuf,
    /// Paths here, by the names that the plan of the controller has.
    names: BTreeMap<String, String>,
}

impl Fetched {
    /// Fetches the files of a part, and changes their names in its plan. `None` without files.
    ///
    /// # Errors
    /// A sentence, if the controller does not send a file, or it cannot be written.
    pub(crate) fn fetch(
        run: &str,
        files: &[PartFile],
        plan: &mut Plan,
        state: &Path,
        ask: &Ask,
    ) -> Result<Option<Self>, String> {
        if files.is_empty() {
            return Ok(None);
        }
        let mut fetched = Self {
            folder: folder(state).join(run),
            names: BTreeMap::new(),
        };
        let own = fetched.folder.clone();
        let in_folder = |e: std::io::Error| format!("{}: {e}", own.display());
        let mut new = DirBuilder::new();
        new.recursive(true).mode(0o700);
        new.create(&fetched.folder).map_err(in_folder)?;
        for (number, file) in files.iter().enumerate() {
            let content = content(run, file, ask)?;
            // The end of a name has a meaning for some readers.
            let end = Path::new(&file.name)
                .extension()
                .and_then(|end| end.to_str());
            let end = end.map_or_else(String::new, |end| format!(".{end}"));
            let path = fetched.folder.join(format!("{number}{end}"));
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let written = options.open(&path).and_then(|mut f| f.write_all(&content));
            written.map_err(in_folder)?;
            let names = &mut fetched.names;
            names.insert(file.name.clone(), path.display().to_string());
        }
        *plan = plan.with_files(&fetched.names);
        Ok(Some(fetched))
    }

    /// A text with the names of files that the user knows.
    pub(crate) fn with_names(fetched: Option<&Self>, text: &str) -> String {
        let names = fetched.iter().flat_map(|fetched| &fetched.names);
        names.fold(text.to_owned(), |text, (name, path)| {
            text.replace(path, name)
        })
    }

    /// Returns true for a file of the run.
    pub(crate) fn holds(&self, name: &str) -> bool {
        Path::new(name).parent() == Some(&self.folder)
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Folder of all files, which a crash may have left.
pub(crate) fn folder(state: &Path) -> PathBuf {
    state.join("files")
}

fn content(run: &str, file: &PartFile, ask: &Ask) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    while (content.len() as u64) < file.size {
        let request = PieceRequest {
            v: V1,
            run: run.to_owned(),
            sha256: file.sha256.clone(),
            offset: content.len() as u64,
        };
        let piece = ask(wire::write(&request));
        let piece = piece.map_err(|why| format!("{}: {why}", file.name))?;
        if piece.is_empty() {
            return Err(format!("{}: the controller has no such file", file.name));
        }
        content.extend(piece);
    }
    match hex(&content) == file.sha256 {
        true => Ok(content),
        false => Err(format!("{}: it arrived with other contents", file.name)),
    }
}

fn hex(content: &[u8]) -> String {
    let bytes = digest(&SHA256, content);
    bytes.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use wb_fleet_core::place::Part;

    use super::*;

    fn part(name: &str, rows: Option<RowShare>) -> Part {
        Part {
            plan: Plan::default(),
            files: vec![PartFile {
                name: name.to_owned(),
                rows,
                ..PartFile::default()
            }],
        }
    }

    #[test]
    fn hosts_fetch_the_files_of_their_parts_alone() {
        let base = tempfile::tempdir().unwrap();
        let long: Vec<u8> = (0..2_000_000u32).map(|n| (n >> 3) as u8).collect();
        fs::write(base.path().join("long"), &long).unwrap();
        let users = "name,word\n\"a\nb\",1\nc,2\nd,3\n";
        fs::write(base.path().join("users.csv"), users).unwrap();
        let mut placement = Placement::default();
        let share = |index| Some(RowShare { index, of: 2 });
        let parts = [
            ("h1", "users.csv", share(0)),
            ("h2", "users.csv", share(1)),
            ("h3", "long", None),
        ];
        for (host, name, rows) in parts {
            placement.parts.insert(host.to_owned(), part(name, rows));
        }
        let offer = Arc::new(Offer::read(&mut placement, Some(base.path())).unwrap());
        let fetch = |asking: &str, of: &str| {
            let (offer, host) = (Arc::clone(&offer), asking.to_owned());
            let ask: Ask = Arc::new(move |request| {
                let request = wire::read(&request).unwrap();
                Ok(offer.piece(&host, &request).unwrap_or_default())
            });
            content("r1", &placement.parts[of].files[0], &ask)
        };
        assert_eq!(fetch("h1", "h1").unwrap(), b"name,word\n\"a\nb\",1\nc,2\n");
        assert_eq!(fetch("h2", "h2").unwrap(), b"name,word\nd,3\n");
        assert_eq!(fetch("h3", "h3").unwrap(), long);
        assert!(fetch("h1", "h3").unwrap_err().contains("no such file"));
    }

    #[test]
    fn plans_name_the_fetched_files_while_the_run_lasts() {
        let state = tempfile::tempdir().unwrap();
        let text = r#"{"traffic": [{"tx": "a", "stream": [{"replay": "x.pcap"}]}], "http": [{"url": "http://198.18.1.2/", "data": "users.csv"}]}"#;
        let mut plan = serde_json::from_str::<Plan>(text).unwrap();
        let file = PartFile {
            name: "x.pcap".to_owned(),
            size: 3,
            sha256: hex(b"abc"),
            ..PartFile::default()
        };
        let right: Ask = Arc::new(|_| Ok(b"abc".to_vec()));
        let files = std::slice::from_ref(&file);
        let fetched = Fetched::fetch("r1", files, &mut plan, state.path(), &right).unwrap();
        let path = plan.traffic[0].streams[0].replay.clone().unwrap();
        assert!(path.ends_with("0.pcap") && fetched.as_ref().unwrap().holds(&path));
        assert_eq!(fs::read(&path).unwrap(), b"abc");
        assert_eq!(plan.http_jobs[0].data.as_deref(), Some("users.csv"));
        drop(fetched);
        assert!(!Path::new(&path).exists());
        let wrong: Ask = Arc::new(|_| Ok(b"abd".to_vec()));
        let error = Fetched::fetch("r1", files, &mut plan, state.path(), &wrong).unwrap_err();
        assert!(error.contains("other contents"), "{error}");
    }

    #[test]
    fn all_files_that_cannot_be_read_are_named() {
        let mut placement = Placement::default();
        placement
            .parts
            .insert("h1".to_owned(), part("/no/such/file", None));
        placement
            .parts
            .insert("h2".to_owned(), part("/dev/zero", None));
        let problems = Offer::read(&mut placement, None).unwrap_err();
        let places: Vec<&str> = problems.iter().map(|p| p.place.as_str()).collect();
        assert_eq!(places, ["/dev/zero", "/no/such/file"]);
    }
}
