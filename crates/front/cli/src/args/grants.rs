//! Powers that a server or an agent grants to the plans of others.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use wb_runs::Grants;

/// Reads the powers of `--allow`.
pub(crate) fn grants(words: &[String]) -> Result<Grants> {
    let mut grants = Grants::default();
    for word in words {
        match word.split_once('=') {
            None if word == "commands" => grants.commands = true,
            None if word == "leave" => grants.leave = true,
            Some(("files", folder)) => {
                let folder = PathBuf::from(folder);
                let known = folder.canonicalize();
                let known = known.with_context(|| format!("--allow {word}"))?;
                if !known.is_dir() {
                    bail!("--allow {word}: not a folder");
                }
                if grants.files.replace(known).is_some() {
                    bail!("--allow {word}: only one folder can be given");
                }
            }
            _ => bail!("--allow {word}: use commands, leave or files=DIR"),
        }
    }
    Ok(grants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_granted_by_name() {
        let words = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let all = grants(&words("commands,leave,files=/tmp")).unwrap();
        assert!(all.commands && all.leave);
        assert_eq!(
            all.files,
            Some(PathBuf::from("/tmp").canonicalize().unwrap())
        );
        for wrong in [
            "scripts",
            "files=/tmp,files=/etc",
            "files",
            "command",
            "files=/no/such/folder",
            "files=/dev/null",
        ] {
            assert!(grants(&words(wrong)).is_err(), "{wrong}");
        }
    }
}
