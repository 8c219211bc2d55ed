//! Certificates of a fleet, and the configuration of its broker.
//!
//! The folder of a fleet has the key of its authority. Every member has one file, [`Access`], with all that it needs to
//! reach the broker. The broker knows members by the names in their certificates, and lets an agent publish only what is
//! its own.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};
use wb_machine::process;

/// Name of the controller in its certificate.
pub const CONTROLLER: &str = "controller";
/// Validity of the certificates.
const VALID: Duration = Duration::days(3650);
/// Validity begins this long before now, because the clocks of some hosts are behind.
const BEFORE: Duration = Duration::days(1);
/// File with the process of the broker.
const PID_FILE: &str = "broker/nats.pid";
/// Largest access file in bytes.
const LARGEST_ACCESS: u64 = 1 << 20;
/// Largest message of the broker, in bytes.
const MAX_PAYLOAD: u32 = 1 << 20;

/// Access of one member to the broker of a fleet: the content of a file `NAME.fleet`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// Name of the member: of the host of an agent, or `controller`.
    pub name: String,
    /// URLs of the brokers.
    pub servers: Vec<String>,
    /// Network namespace in which the broker is reached; `None`: that of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Certificate of the authority, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
    /// Certificate of the member, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// Key of the certificate, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

impl Access {
    /// Access to a broker that asks for no certificate.
    #[must_use]
    pub fn open(servers: &str, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            servers: servers.split(',').map(str::to_owned).collect(),
            namespace: None,
            authority: None,
            certificate: None,
            key: None,
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or is no such file.
    pub fn read(path: &Path) -> io::Result<Self> {
        // A pipe or a device may never end.
        let about = fs::metadata(path).map_err(|e| in_file(path, &e))?;
        if !about.is_file() || about.len() > LARGEST_ACCESS {
            return Err(in_file(path, &"is no access file of a fleet"));
        }
        let text = fs::read_to_string(path).map_err(|e| in_file(path, &e))?;
        let access: Self = toml::from_str(&text).map_err(|e| {
            in_file(
                path,
                &format_args!("is no access file of a fleet: {}", e.message()),
            )
        })?;
        match access.servers.is_empty() {
            true => Err(in_file(path, &"names no server")),
            false => Ok(access),
        }
    }
}

/// Folder with the authority of a fleet.
#[derive(Clone, Debug)]
pub struct Fleet {
    folder: PathBuf,
}

/// Settings of a fleet, in its folder.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Settings {
    /// Names and addresses of the broker, each with its port.
    servers: Vec<String>,
    /// Names of the hosts.
    hosts: Vec<String>,
}

impl Fleet {
    /// Makes a fleet in a new or empty folder. `servers` are the addresses of the broker, `HOST:PORT` each, as agents
    /// reach them; the broker listens on the port of the first one.
    ///
    /// # Errors
    /// If the folder has a fleet already or cannot be written, or an address has no port.
    pub fn init(folder: &Path, servers: &[String]) -> io::Result<Self> {
        let fleet = Self {
            folder: folder.to_owned(),
        };
        if fleet.settings_file().exists() {
            return Err(in_file(folder, &"has a fleet already"));
        }
        let names = servers.iter().map(|s| split(s).map(|(name, _)| name));
        names.collect::<io::Result<Vec<String>>>()?;
        // It is written into the configuration of the broker.
        if folder.to_string_lossy().contains(['"', '\\', '\n']) {
            return Err(in_file(
                folder,
                &"has a quote, a backslash or a line end in its name",
            ));
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|e| in_file(folder, &e))?;
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let authority = authority();
        let certificate = authority.self_signed(&key).map_err(io::Error::other)?;
        fleet.write("ca.key", &key.serialize_pem())?;
        fleet.write("ca.pem", &certificate.pem())?;
        fleet.set_servers(servers)?;
        Ok(fleet)
    }

    /// Sets the addresses of the broker, `HOST:PORT` each, and makes its certificate and the files of all members for
    /// them. Hosts with an earlier file do not know the new addresses.
    ///
    /// # Errors
    /// If a file cannot be written, or an address has no port.
    pub fn set_servers(&self, servers: &[String]) -> io::Result<()> {
        let mut settings = match self.settings_file().exists() {
            true => self.settings()?,
            false => Settings::default(),
        };
        if settings.servers == servers {
            return Ok(());
        }
        let names = servers.iter().map(|s| split(s).map(|(name, _)| name));
        let mut names: Vec<String> = names.collect::<io::Result<_>>()?;
        names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
        names.sort();
        names.dedup();
        let (certificate, key) =
            self.issue("server", names, ExtendedKeyUsagePurpose::ServerAuth)?;
        self.write("server.pem", &certificate)?;
        self.write("server.key", &key)?;
        settings.servers = servers.to_vec();
        self.settle(&settings)?;
        for member in settings
            .hosts
            .iter()
            .map(String::as_str)
            .chain([CONTROLLER])
        {
            self.admit(member)?;
        }
        Ok(())
    }

    /// Opens the fleet in a folder.
    ///
    /// # Errors
    /// If the folder has none.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let fleet = Self {
            folder: folder.to_owned(),
        };
        match fleet.settings_file().exists() {
            true => Ok(fleet),
            false => Err(in_file(
                folder,
                &"has no fleet; `wirebench fleet init` makes one",
            )),
        }
    }

    /// Lets the controller reach the broker in a network namespace.
    ///
    /// # Errors
    /// If its access file cannot be read or written.
    pub fn place_broker(&self, namespace: &str) -> io::Result<()> {
        let access = Access {
            namespace: Some(namespace.to_owned()),
            ..Access::read(&self.access_file(CONTROLLER))?
        };
        let text = toml::to_string(&access).map_err(io::Error::other)?;
        self.write(&format!("{CONTROLLER}.fleet"), &text)
    }

    /// Adds a host, and returns the file for its agent. The broker must read its configuration again.
    ///
    /// # Errors
    /// If the name is not that of a host, or a file cannot be written.
    pub fn add(&self, host: &str) -> io::Result<PathBuf> {
        if [CONTROLLER, "server", "ca"].contains(&host) {
            return Err(io::Error::other(format!(
                "{host:?}: a file of the fleet has this name; use another one"
            )));
        }
        if !wb_model::locator::is_host(host) {
            return Err(io::Error::other(format!(
                "{host:?}: not a host name; use 1 to 63 lower-case letters, digits and hyphens, and no driver name"
            )));
        }
        let mut settings = self.settings()?;
        if !settings.hosts.iter().any(|known| known == host) {
            settings.hosts.push(host.to_owned());
            settings.hosts.sort();
            self.settle(&settings)?;
        }
        self.admit(host)
    }

    /// Lets the broker read its configuration again, if it runs on this host. Returns false if it does not.
    #[must_use]
    pub fn reload_broker(&self) -> bool {
        let broker = self.broker_process();
        broker.is_some_and(|pid| kill_process(pid, Signal::HUP).is_ok())
    }

    /// Ends the broker of this folder, if it runs on this host: one that its killed process has left behind.
    pub(crate) fn end_broker(&self) {
        if let Some(pid) = self.broker_process() {
            // It ends on its own in the meantime.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// The broker of this folder, if it runs on this host.
    fn broker_process(&self) -> Option<Pid> {
        let pid = fs::read_to_string(self.folder.join(PID_FILE)).ok();
        let pid: u32 = pid?.trim().parse().ok()?;
        // Another process may have the number of a broker that was killed.
        let command = process::command_of(pid).unwrap_or_default();
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        pid.filter(|_| command.contains("nats-server"))
    }

    /// Configuration file of the broker.
    #[must_use]
    pub fn broker_file(&self) -> PathBuf {
        self.folder.join("nats.conf")
    }

    /// File with the access of a member.
    #[must_use]
    pub fn access_file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.fleet"))
    }

    /// Names of the hosts.
    ///
    /// # Errors
    /// If the settings cannot be read.
    pub fn hosts(&self) -> io::Result<Vec<String>> {
        Ok(self.settings()?.hosts)
    }

    fn settings_file(&self) -> PathBuf {
        self.folder.join("fleet.toml")
    }

    fn settings(&self) -> io::Result<Settings> {
        let path = self.settings_file();
        let text = fs::read_to_string(&path).map_err(|e| in_file(&path, &e))?;
        toml::from_str(&text).map_err(|e| in_file(&path, &e.message()))
    }

    /// Writes the settings, and the configuration of the broker that follows from them.
    fn settle(&self, settings: &Settings) -> io::Result<()> {
        let text = toml::to_string(settings).map_err(io::Error::other)?;
        let broker = self.broker(settings)?;
        let state = self.folder.join("broker");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&state)
            .map_err(|e| in_file(&state, &e))?;
        self.write("fleet.toml", &text)?;
        self.write("nats.conf", &broker)
    }

    fn broker(&self, settings: &Settings) -> io::Result<String> {
        let first = settings.servers.first().map(String::as_str);
        let (_, port) = split(first.unwrap_or_default())?;
        let folder = std::path::absolute(&self.folder)?;
        let folder = folder.display();
        let agents: String = settings.hosts.iter().map(|host| agent(host)).collect();
        Ok(format!(
            r#"# Broker of a fleet. `wirebench fleet add HOST` writes this file anew.
port: {port}
pid_file: "{folder}/{PID_FILE}"
max_payload: {MAX_PAYLOAD}
jetstream {{ store_dir: "{folder}/broker" }}
tls {{
  cert_file: "{folder}/server.pem"
  key_file: "{folder}/server.key"
  ca_file: "{folder}/ca.pem"
  verify_and_map: true
}}
authorization {{
  users: [
    {{ user: "CN={CONTROLLER}" }}
{agents}  ]
}}
"#
        ))
    }

    /// Makes the file with the access of a member.
    fn admit(&self, name: &str) -> io::Result<PathBuf> {
        let servers = self.settings()?.servers;
        let path = self.access_file(name);
        let (certificate, key) =
            self.issue(name, Vec::new(), ExtendedKeyUsagePurpose::ClientAuth)?;
        let authority = fs::read_to_string(self.folder.join("ca.pem"))?;
        let access = Access {
            name: name.to_owned(),
            servers: servers
                .iter()
                .map(|server| format!("tls://{server}"))
                .collect(),
            namespace: None,
            authority: Some(authority),
            certificate: Some(certificate),
            key: Some(key),
        };
        let text = toml::to_string(&access).map_err(io::Error::other)?;
        self.write(&format!("{name}.fleet"), &text)?;
        Ok(path)
    }

    /// Makes a certificate that the authority signs, and its key, both as PEM.
    fn issue(
        &self,
        name: &str,
        alternatives: Vec<String>,
        purpose: ExtendedKeyUsagePurpose,
    ) -> io::Result<(String, String)> {
        let path = self.folder.join("ca.key");
        let text = fs::read_to_string(&path).map_err(|e| in_file(&path, &e))?;
        let key = KeyPair::from_pem(&text).map_err(|e| in_file(&path, &e))?;
        let issuer = Issuer::new(authority(), key);
        let mut params = CertificateParams::new(alternatives).map_err(io::Error::other)?;
        params.distinguished_name = named(name);
        params.extended_key_usages = vec![purpose];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        set_validity(&mut params);
        let own = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.signed_by(&own, &issuer).map_err(io::Error::other)?;
        Ok((certificate.pem(), own.serialize_pem()))
    }

    /// Writes a file of the folder that only its owner can read.
    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.folder.join(name);
        let part = self.folder.join(format!("{name}.part"));
        let write = || {
            let _ = fs::remove_file(&part);
            let mut options = File::options();
            let mut file = options
                .create_new(true)
                .write(true)
                .mode(0o600)
                .open(&part)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&part, &path)
        };
        write().map_err(|e| in_file(&path, &e))
    }
}

/// Contents of the certificate of the authority, which are also needed to sign.
fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("wirebench fleet");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params);
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn set_validity(params: &mut CertificateParams) {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - BEFORE;
    params.not_after = now + VALID;
}

/// User of the broker for the agent of a host: it can publish only what is its own.
fn agent(host: &str) -> String {
    let publish = crate::bus::AGENT_PUBLISHES.map(|subject| quoted(subject, host));
    let subscribe = crate::bus::AGENT_SUBSCRIBES.map(|subject| quoted(subject, host));
    format!(
        "    {{ user: \"CN={host}\", permissions: {{ publish: [{}], subscribe: [{}] }} }}\n",
        publish.join(", "),
        subscribe.join(", "),
    )
}

fn quoted(subject: &str, host: &str) -> String {
    format!("\"{}\"", subject.replace("HOST", host))
}

/// Splits `HOST:PORT` or `[IPV6]:PORT`.
fn split(server: &str) -> io::Result<(String, u16)> {
    let parts = server.rsplit_once(':');
    let parts = parts.and_then(|(name, port)| Some((name, port.parse().ok()?)));
    let (name, port) = parts.ok_or_else(|| {
        io::Error::other(format!(
            "{server:?}: not an address of a broker; use HOST:PORT"
        ))
    })?;
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_name = !name.is_empty() && name.chars().all(is_of_name);
    match port > 0 && (is_name || name.parse::<std::net::IpAddr>().is_ok()) {
        true => Ok((name.to_owned(), port)),
        false => Err(io::Error::other(format!(
            "{server:?}: not the name or address of a host, with a port from 1 to 65535"
        ))),
    }
}

pub(crate) fn in_file(path: &Path, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_files_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("fleet");
        let fleet = Fleet::init(&folder, &["10.0.0.1:4222".to_owned()]).unwrap();
        assert!(Fleet::init(&folder, &["10.0.0.1:4222".to_owned()]).is_err());
        let path = fleet.add("h1").unwrap();
        let access = Access::read(&path).unwrap();
        assert_eq!(access.name, "h1");
        assert_eq!(access.servers, ["tls://10.0.0.1:4222"]);
        let config = fs::read_to_string(fleet.broker_file()).unwrap();
        assert!(
            config.contains("\"CN=h1\"") && config.contains("wb.v1.alive.h1"),
            "{config}"
        );
        assert_eq!(Fleet::open(&folder).unwrap().hosts().unwrap(), ["h1"]);
        for wrong in ["", "H1", "xdp", "a.b", "controller", "a\" }"] {
            assert!(fleet.add(wrong).is_err(), "{wrong}");
        }
        for wrong in ["10.0.0.1", ":4222", "10.0.0.1:x"] {
            let other = folder.join("other");
            assert!(Fleet::init(&other, &[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }
}
