//! Powers that a server grants to plans.

use std::{
    fs::FileType,
    os::unix::fs::FileTypeExt as _,
    path::{Component, Path, PathBuf},
};

use wb_model::{
    Plan,
    powers::{Power, PowerUse},
    text::is_unprintable,
};

/// Powers that plans may use. By default none.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    /// Plans may run commands: probes, resets, commands for files.
    pub commands: bool,
    /// Plans may send to any address.
    pub leave: bool,
    /// Folder below which plans may read and write files, by absolute paths.
    pub files: Option<PathBuf>,
}

impl Grants {
    /// The powers that the plan uses and that are not granted. Captures may always write a file of a plain name, which
    /// goes into the folder of the run.
    #[must_use]
    pub fn refused(&self, plan: &Plan) -> Vec<PowerUse> {
        let uses = plan.powers().into_iter();
        uses.filter(|used| !self.grants(used)).collect()
    }

    fn grants(&self, used: &PowerUse) -> bool {
        match used.power {
            Power::Commands => self.commands,
            // Only `wirebench wrk` runs scripts.
            Power::Scripts => false,
            Power::Leaves => self.leave,
            Power::Reads => self.holds(&used.value),
            Power::Writes => is_plain_name(&used.value) || self.holds(&used.value),
        }
    }

    /// Returns true for an absolute path to a file below the folder, with all links resolved.
    fn holds(&self, path: &str) -> bool {
        let path = Path::new(path.strip_prefix("file:").unwrap_or(path));
        let Some(folder) = self.files.as_ref().and_then(|f| f.canonicalize().ok()) else {
            return false;
        };
        // A file that does not exist yet is in the folder that it would be made in.
        let known = match path.symlink_metadata() {
            // Opening a pipe or a device may wait forever.
            Ok(about) if is_special(about.file_type()) => return false,
            Ok(_) => path.canonicalize(),
            Err(_) => path.parent().unwrap_or(path).canonicalize(),
        };
        let goes_down = path.components().all(|part| part != Component::ParentDir);
        path.is_absolute() && goes_down && known.is_ok_and(|known| known.starts_with(&folder))
    }
}

/// Returns true for pipes and devices.
fn is_special(kind: FileType) -> bool {
    kind.is_fifo() || kind.is_char_device() || kind.is_block_device()
}

/// Returns true for a file name without a folder.
pub(crate) fn is_plain_name(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    let is_name = matches!(parts.next(), Some(Component::Normal(_))) && parts.next().is_none();
    is_name
        && !path.starts_with('.')
        && !path.contains(['/', ':'])
        && !path.contains(is_unprintable)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_granted_below_the_folder_only() {
        let all = tempfile::tempdir().unwrap();
        let folder = all.path().join("shared");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(all.path().join("secret"), "").unwrap();
        std::fs::write(folder.join("there.pcap"), "").unwrap();
        symlink(all.path().join("secret"), folder.join("link")).unwrap();
        symlink(all.path().join("nothing"), folder.join("dangling")).unwrap();
        let pipe = folder.join("pipe");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let grants = Grants {
            files: Some(folder.clone()),
            ..Grants::default()
        };
        let below = |name: &str| folder.join(name).display().to_string();
        for (path, granted) in [
            (below("there.pcap"), true),
            (format!("file:{}", below("there.pcap")), true),
            (below("new.pcap"), true),
            (below("../secret"), false),
            (below("no/such/folder"), false),
            (below("link"), false),
            (below("dangling"), false),
            // Opening it would wait for its other end.
            (below("pipe"), false),
            ("/etc/shadow".to_owned(), false),
            ("there.pcap".to_owned(), false),
        ] {
            assert_eq!(grants.holds(&path), granted, "{path}");
        }
        assert!(!Grants::default().holds(&below("there.pcap")));
    }

    #[test]
    fn captures_may_write_plain_names() {
        for (path, plain) in [
            ("a.pcap", true),
            ("..", false),
            (".hidden", false),
            ("a/b", false),
            ("a/", false),
            ("/a", false),
            ("", false),
            ("file:x", false),
            ("a\u{202e}pac.exe", false),
        ] {
            assert_eq!(is_plain_name(path), plain, "{path}");
        }
    }
}
