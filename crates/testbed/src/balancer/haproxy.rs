//! haproxy as the balancer: configuration, process and readiness.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use wb_machine::{Namespace, descriptors::keep_limit, in_namespace, sysctl};

use super::{BalancerOptions, PORT, VIRTUAL, find};
use crate::process::{identify_process, own_session};
use crate::{LabState, Process, Result, TestbedError, state};

/// Address of its counters within the node.
const COUNTERS: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 8404);
/// Maximum time until haproxy listens.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Path of `haproxy`.
pub(super) fn haproxy_program() -> Result<PathBuf> {
    find("haproxy", "haproxy")
}

/// Starts haproxy in the device's node and waits until it listens.
pub(super) fn start(
    lab: &LabState,
    options: BalancerOptions,
    device: &Namespace,
) -> Result<Process> {
    let program = haproxy_program()?;
    prepare_device(device);
    let lab_file = state::path_of(&lab.name)?;
    let (file, log_path) = (state::haproxy_path(&lab_file), state::log_path(&lab_file));
    let failed = |verb, path: &PathBuf| TestbedError::io(verb, path.display().to_string());
    fs::write(&file, haproxy_config(options)).map_err(failed("write", &file))?;
    let log = File::create(&log_path).map_err(failed("create", &log_path))?;
    let also_log = log.try_clone().map_err(failed("open", &log_path))?;
    let mut command = Command::new(&program);
    command
        .arg("-db")
        .arg("-f")
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(also_log);
    own_session(&mut command);
    keep_limit(&mut command);
    let mut child = in_namespace(device, || command.spawn())?
        .map_err(TestbedError::io("start", program.display().to_string()))?;

    let begin = Instant::now();
    let address = SocketAddr::from(COUNTERS);
    let message = loop {
        if let Ok(Some(_)) = child.try_wait() {
            break error_line(&fs::read_to_string(&log_path).unwrap_or_default());
        }
        let answers = in_namespace(device, || TcpStream::connect(address).is_ok())?;
        if answers && let Some(process) = identify_process(child.id()) {
            // The handle is dropped without waiting, since the process must outlive this one.
            return Ok(process);
        }
        if begin.elapsed() > START_TIMEOUT {
            break format!(
                "haproxy is not listening after {} s",
                START_TIMEOUT.as_secs()
            );
        }
        thread::sleep(Duration::from_millis(10));
    };
    let _ = child.kill();
    let _ = child.wait();
    Err(TestbedError::Device { message })
}

/// Applies the kernel settings that a load over sockets needs. Ignores unavailable ones.
fn prepare_device(device: &Namespace) {
    for (key, value) in [
        ("ipv4/ip_local_port_range", "1024 65535"),
        ("ipv4/tcp_tw_reuse", "1"),
        ("ipv4/tcp_max_syn_backlog", "65535"),
        ("core/somaxconn", "65535"),
    ] {
        let _ = sysctl::set(device, &format!("net/{key}"), value);
    }
}

/// The relevant error line of the log.
fn error_line(log: &str) -> String {
    let alert = log.lines().find(|line| line.contains("[ALERT]"));
    let line = alert.or_else(|| log.lines().last());
    format!(
        "haproxy: {}",
        line.unwrap_or("ended without a message").trim()
    )
}

/// Limit of connections; each connection takes two descriptors.
fn most_connections() -> u64 {
    let descriptors = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    (descriptors.saturating_sub(200) / 2).clamp(100, 100_000)
}

fn haproxy_config(options: BalancerOptions) -> String {
    let mut text = format!(
        "global\n  maxconn {}\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 60s\n  \
         timeout server 60s\n",
        most_connections()
    );
    let (v4, v6) = VIRTUAL;
    for (family, address) in [
        ("v4", format!("{v4}:{PORT}")),
        ("v6", format!("[{v6}]:{PORT}")),
    ] {
        let _ = write!(
            text,
            "frontend vip_{family}\n  bind {address}\n  default_backend servers_{family}\n\
             backend servers_{family}\n  balance roundrobin\n"
        );
        for (n, (v4, v6)) in options.all_servers().enumerate() {
            let server = if family == "v4" {
                format!("{v4}:{PORT}")
            } else {
                format!("[{v6}]:{PORT}")
            };
            let _ = writeln!(text, "  server server{n} {server}");
        }
    }
    let (address, port) = COUNTERS;
    let _ = write!(
        text,
        "frontend counters\n  mode http\n  bind {address}:{port}\n  stats enable\n  stats uri /\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_both_families() {
        let text = haproxy_config(BalancerOptions::default());
        for part in [
            "bind 198.18.1.100:80\n",
            "bind [2001:2:0:1::100]:80\n",
            "server server1 198.19.2.2:80\n",
            "server server0 [2001:2:0:8002::1]:80\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.matches("  server server").count(), 4);
    }

    #[test]
    fn its_complaint_is_found() {
        let log = "[NOTICE] path\n[ALERT] (7) : cannot bind socket\n[ALERT] (7) : fatal\n";
        assert_eq!(error_line(log), "haproxy: [ALERT] (7) : cannot bind socket");
        assert_eq!(error_line(""), "haproxy: ended without a message");
    }
}
