//! Tokens, which authenticate clients.
//!
//! A token is `wbt_ID_SECRET` with 256 random bits. The file has only a digest of each token, so a reader of the file
//! cannot use them. It is read again whenever it has changed.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jiff::Timestamp;
use ring::{
    digest,
    rand::{SecureRandom as _, SystemRandom},
};
use rustix::fs::{FlockOperation, flock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_model::{text::is_unprintable, units::Span};

/// Length of a secret in bytes.
const SECRET: usize = 32;
/// Length of an id in bytes.
const ID: usize = 4;
/// Maximum number of browsers that are logged in with a token. Further logins end the oldest.
const MOST_BROWSERS: usize = 50;
/// Maximum length of the name of a client, in bytes.
const MOST_NAME: usize = 100;

/// Rights of a client.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read everything.
    Read,
    /// Also start, stop and steer runs, and lease ports.
    Run,
    /// Also remove runs, and take ports from others.
    Admin,
}

impl Role {
    /// All roles, each of which may do what those before it may.
    pub const ALL: [Self; 3] = [Self::Read, Self::Run, Self::Admin];

    /// The word for the role.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|role| role.name() == text);
        known.ok_or_else(|| "use read, run or admin".to_owned())
    }
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenEntry {
    /// Part of the token that names it.
    pub id: String,
    /// Name of the client.
    pub name: String,
    /// Rights of the client.
    pub role: Role,
    /// SHA-256 of the token, in hexadecimal digits.
    sha256: String,
    /// Time from which on the token is refused, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
    /// For a token that was made for a browser, the id of the token with which the user logged in, or of the browser's
    /// other token. It is empty after the link of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<String>,
}

/// Tokens of a browser.
pub(crate) struct BrowserTokens {
    /// Token with the rights of the user, which only pages of this server get.
    pub(crate) page: String,
    /// Token for reading, which the browser adds to all requests, also those to servers at other ports of the host.
    pub(crate) cookie: String,
}

impl TokenEntry {
    /// Returns true if the token was made for a browser.
    pub(crate) const fn is_of_browser(&self) -> bool {
        self.of.is_some()
    }

    fn is_valid(&self) -> bool {
        self.expires_s.is_none_or(|until| now_s() < until)
    }

    /// Time from which on the token is refused.
    #[must_use]
    pub fn expires(&self) -> Option<Timestamp> {
        let expires = i64::try_from(self.expires_s?).ok()?;
        Timestamp::from_second(expires).ok()
    }
}

/// Reads the lifetime of a token: `12h`, `90d`.
///
/// # Errors
/// If the text is no time; the error says what is allowed.
pub fn lifetime(text: &str) -> Result<Duration, String> {
    let days = text
        .strip_suffix('d')
        .and_then(|days| days.parse::<u64>().ok());
    if let Some(days) = days {
        return Ok(Duration::from_secs(days.saturating_mul(86_400)));
    }
    let time = text.parse::<Span>().map_err(|e| e.to_string())?;
    Ok(Duration::from_nanos(time.as_nanos()))
}

/// The file of the tokens.
#[derive(Clone, Debug)]
pub struct TokenFile(PathBuf);

impl TokenFile {
    /// The tokens in the folder of a server's history.
    #[must_use]
    pub fn new(state: &Path) -> Self {
        Self(state.join("tokens.json"))
    }

    /// All tokens; none if there is no file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(&self) -> io::Result<Vec<TokenEntry>> {
        match fs::read(&self.0) {
            Ok(text) => Ok(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Describes a file that cannot be read, and what to do.
    pub(crate) fn damage(&self, error: &io::Error) -> String {
        format!(
            "{}: cannot read the tokens, so no client is admitted ({error}); restore the file, or remove it and make new tokens with wirebench token add",
            self.0.display()
        )
    }

    /// Describes a change that failed.
    pub(crate) fn unchanged(&self, error: &io::Error) -> String {
        format!("cannot change {}: {error}", self.0.display())
    }

    /// Makes a token for a client, which is valid for `lifetime` or forever. Returns its text, which cannot be found
    /// out later.
    ///
    /// # Errors
    /// If the name is invalid, the file cannot be changed, or the system has no random numbers.
    pub fn add(&self, name: &str, role: Role, lifetime: Option<Duration>) -> io::Result<String> {
        if name.is_empty() || name.len() > MOST_NAME || name.contains(is_unprintable) {
            let what = format!(
                "{name:?}: a name has 1 to {MOST_NAME} characters and no control characters"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let text = random_token()?;
        let expires = lifetime.map(|lifetime| now_s().saturating_add(lifetime.as_secs()));
        self.change(|tokens| {
            tokens.retain(TokenEntry::is_valid);
            tokens.push(entry(&text, name, role, expires, None));
        })?;
        Ok(text)
    }

    /// Makes the tokens of a browser after a login with a token, or with the link of the server. They are removed
    /// with that token, and are not valid for longer.
    pub(crate) fn log_in(
        &self,
        user: Option<&TokenEntry>,
        lifetime: Duration,
    ) -> io::Result<BrowserTokens> {
        let (page, cookie) = (random_token()?, random_token()?);
        let until = now_s().saturating_add(lifetime.as_secs());
        let known = user.and_then(|user| user.expires_s);
        let until = Some(known.map_or(until, |known| known.min(until)));
        let (name, role) = user.map_or(("link", Role::Admin), |user| (&user.name, user.role));
        let of = user.map_or(String::new(), |user| user.id.clone());
        let own = entry(
            &page,
            &format!("{name}, browser"),
            role,
            until,
            Some(of.clone()),
        );
        let read = format!("{name}, cookie");
        let read = entry(&cookie, &read, Role::Read, until, Some(own.id.clone()));
        self.change(|tokens| {
            tokens.retain(TokenEntry::is_valid);
            let same = tokens.iter().filter(|token| token.of.as_ref() == Some(&of));
            let same: Vec<String> = same.map(|token| token.id.clone()).collect();
            let over = (same.len() + 1).saturating_sub(MOST_BROWSERS);
            for id in &same[..over] {
                tokens.retain(|token| token.id != *id && token.of.as_ref() != Some(id));
            }
            tokens.extend([own, read]);
        })?;
        Ok(BrowserTokens { page, cookie })
    }

    /// Removes the tokens with this id or name, and those of browsers that logged in with them. Returns the number of
    /// the former.
    ///
    /// # Errors
    /// If the file cannot be changed.
    pub fn remove(&self, which: &str) -> io::Result<usize> {
        let mut removed = 0;
        if !self.0.exists() {
            return Ok(0);
        }
        self.change(|tokens| {
            let mut gone = BTreeSet::new();
            tokens.retain(|token| {
                let stays = token.id != which && token.name != which;
                if !stays {
                    removed += 1;
                    gone.insert(token.id.clone());
                }
                stays
            });
            // A browser's tokens stand behind that of its user, and its cookie behind its other token.
            tokens.retain(|token| {
                let stays = token.of.as_ref().is_none_or(|of| !gone.contains(of));
                if !stays {
                    gone.insert(token.id.clone());
                }
                stays
            });
        })?;
        Ok(removed)
    }

    /// Changes the file; two programs that do so at once wait for each other.
    fn change(&self, change: impl FnOnce(&mut Vec<TokenEntry>)) -> io::Result<()> {
        let folder = self.0.parent().unwrap_or(Path::new("."));
        crate::server::make_private_folder(folder)?;
        let private = |path: &Path| {
            let mut options = File::options();
            options.create(true).truncate(false).write(true).mode(0o600);
            options.open(path)
        };
        let lock = private(&folder.join("tokens.lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let mut tokens = self.read()?;
        change(&mut tokens);
        let part = folder.join("tokens.json.part");
        let mut file = private(&part)?;
        file.set_len(0)?;
        file.write_all(&serde_json::to_vec_pretty(&tokens)?)?;
        file.sync_all()?;
        fs::rename(part, &self.0)
    }
}

fn entry(
    text: &str,
    name: &str,
    role: Role,
    expires_s: Option<u64>,
    of: Option<String>,
) -> TokenEntry {
    TokenEntry {
        id: id_of(text).unwrap_or_default().to_owned(),
        name: name.to_owned(),
        role,
        sha256: digest_of(text.as_bytes()),
        expires_s,
        of,
    }
}

/// The tokens that a server accepts.
#[derive(Debug)]
pub(crate) struct Tokens {
    file: TokenFile,
    known: Mutex<KnownTokens>,
    /// Receives a line when the file can no longer be read.
    warn: fn(&str),
}

/// The file as it was read.
#[derive(Debug, Default)]
struct KnownTokens {
    changed: Option<SystemTime>,
    tokens: Vec<TokenEntry>,
    /// True if the last attempt to read the file failed.
    is_damaged: bool,
}

impl Tokens {
    pub(crate) fn new(file: TokenFile, warn: fn(&str)) -> Self {
        Self {
            file,
            known: Mutex::default(),
            warn,
        }
    }

    /// The entry of a token, if it is valid.
    pub(crate) fn find(&self, text: &str) -> Option<TokenEntry> {
        let id = id_of(text)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = fs::metadata(&self.file.0)
            .and_then(|about| about.modified())
            .ok();
        if known.changed != changed || changed.is_none() {
            let read = self.file.read();
            if let Err(error) = &read
                && !known.is_damaged
            {
                (self.warn)(&self.file.damage(error));
            }
            *known = KnownTokens {
                changed,
                is_damaged: read.is_err(),
                // An unreadable file admits no client.
                tokens: read.unwrap_or_default(),
            };
        }
        let token = known.tokens.iter().find(|token| token.id == id)?;
        let is_right = is_same(&token.sha256, &digest_of(text.as_bytes()));
        (is_right && token.is_valid()).then(|| token.clone())
    }
}

/// A new token: `wbt_ID_SECRET`.
pub(crate) fn random_token() -> io::Result<String> {
    let mut random = [0; ID + SECRET];
    let drawn = SystemRandom::new().fill(&mut random);
    drawn.map_err(|_| io::Error::other("the system has no random numbers"))?;
    let (id, secret) = random.split_at(ID);
    Ok(format!("wbt_{}_{}", hexadecimal(id), hexadecimal(secret)))
}

fn id_of(text: &str) -> Option<&str> {
    text.strip_prefix("wbt_")?.split('_').next()
}

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 in hexadecimal digits.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    hexadecimal(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// Compares digests in a time that does not depend on where they differ.
pub(crate) fn is_same(a: &str, b: &str) -> bool {
    let differences = a
        .bytes()
        .zip(b.bytes())
        .fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn tokens_are_valid_until_they_are_removed_or_expire() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::new(folder.path());
        assert_eq!(file.read().unwrap(), []);
        let tokens = Tokens::new(file.clone(), |_| ());
        assert!(tokens.find("wbt_00000000_00").is_none());
        let run = file.add("ci", Role::Run, None).unwrap();
        let expired = file.add("old", Role::Admin, Some(Duration::ZERO)).unwrap();
        assert_eq!(tokens.find(&run).unwrap().role, Role::Run);
        assert!(tokens.find(&expired).is_none());
        // The secret counts, not only the name.
        let mut other = run.clone();
        let last = if other.ends_with('0') { "1" } else { "0" };
        other.replace_range(other.len() - 1.., last);
        assert!(tokens.find(&other).is_none());
        for wrong in ["", "wbt_", "wbt__", &run[..20], &format!("{run}0")] {
            assert_eq!(tokens.find(wrong), None, "{wrong}");
        }
        let text = fs::read_to_string(folder.path().join("tokens.json")).unwrap();
        assert!(!text.contains(&run[13..]), "the file has no secrets");
        let mode = fs::metadata(folder.path().join("tokens.json")).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
        assert_eq!(
            (file.remove("ci").unwrap(), file.remove("ci").unwrap()),
            (1, 0)
        );
        assert!(tokens.find(&run).is_none());
    }

    #[test]
    fn a_browser_has_tokens_for_as_long_as_its_user() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::new(folder.path());
        let tokens = Tokens::new(file.clone(), |_| ());
        let day = Duration::from_secs(86_400);
        let user = file.add("me", Role::Run, Some(day)).unwrap();
        let user = tokens.find(&user).unwrap();
        let browser = file.log_in(Some(&user), 30 * day).unwrap();
        let page = tokens.find(&browser.page).unwrap();
        assert_eq!((page.role, page.expires_s), (Role::Run, user.expires_s));
        assert_eq!(tokens.find(&browser.cookie).unwrap().role, Role::Read);
        let by_link = file.log_in(None, day).unwrap();
        assert_eq!(tokens.find(&by_link.page).unwrap().role, Role::Admin);
        // A client that logs in again and again does not fill the file.
        for _ in 1..MOST_BROWSERS {
            file.log_in(Some(&user), day).unwrap();
        }
        assert!(tokens.find(&browser.cookie).is_some());
        file.log_in(Some(&user), day).unwrap();
        assert!(tokens.find(&browser.page).is_none() && tokens.find(&browser.cookie).is_none());
        assert!(tokens.find(&by_link.page).is_some());
        assert_eq!(file.read().unwrap().len(), 3 + 2 * MOST_BROWSERS);
        let browser = file.log_in(Some(&user), day).unwrap();
        // Without the user there is no browser, without the browser no cookie.
        assert_eq!(file.remove("me").unwrap(), 1);
        assert!(tokens.find(&browser.page).is_none() && tokens.find(&browser.cookie).is_none());
        assert!(tokens.find(&by_link.cookie).is_some());
        let id = tokens.find(&by_link.page).unwrap().id;
        assert_eq!(file.remove(&id).unwrap(), 1);
        assert_eq!(file.read().unwrap(), []);
    }

    #[test]
    fn lifetimes_are_also_days() {
        assert_eq!(lifetime("90d"), Ok(Duration::from_secs(90 * 86_400)));
        assert_eq!(lifetime("12h"), Ok(Duration::from_secs(43_200)));
        assert!(lifetime("x").is_err() && lifetime("d").is_err());
    }

    #[test]
    fn a_damaged_file_is_reported_once() {
        static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::new(folder.path());
        let text = file.add("me", Role::Run, None).unwrap();
        let tokens = Tokens::new(file.clone(), |line| {
            LINES.lock().unwrap().push(line.to_owned())
        });
        assert!(tokens.find(&text).is_some());
        let whole = fs::read(&file.0).unwrap();
        let write = |text: &[u8], age_s: u64| {
            fs::write(&file.0, text).unwrap();
            let at = SystemTime::now() - Duration::from_secs(age_s);
            File::options()
                .write(true)
                .open(&file.0)
                .unwrap()
                .set_modified(at)
                .unwrap();
        };
        for age_s in [30, 20] {
            write(&whole[..whole.len() / 2], age_s);
            assert!(tokens.find(&text).is_none() && tokens.find(&text).is_none());
        }
        let lines = LINES.lock().unwrap().clone();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("tokens.json: cannot read the tokens"),
            "{lines:?}"
        );
        write(&whole, 10);
        assert!(tokens.find(&text).is_some());
        write(b"", 5);
        assert!(tokens.find(&text).is_none());
        assert_eq!(LINES.lock().unwrap().len(), 2);
    }
}
