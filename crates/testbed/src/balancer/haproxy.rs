//! haproxy as the balancer: configuration and process.

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use rustix::process::{Resource, getrlimit};
use wb_machine::{Namespace, sysctl};

use super::{BalancerOptions, PORT, VIRTUAL};
use crate::daemon::{Daemon, Ready, find_program, start_daemon};
use crate::{LabState, Process, Result, TestbedError, state};

/// Address of its counters within the node.
const COUNTERS: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 8404);

/// Path of `haproxy`.
pub(super) fn haproxy_program() -> Result<PathBuf> {
    find_program("haproxy", "haproxy")
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
    let file = state::haproxy_path(&lab_file);
    fs::write(&file, haproxy_config(options))
        .map_err(TestbedError::io("write", file.display().to_string()))?;
    start_daemon(&Daemon {
        name: "haproxy".into(),
        namespace: lab.links[1].a.namespace.clone(),
        program,
        arguments: vec!["-db".into(), "-f".into(), file.into()],
        log: state::log_path(&lab_file),
        ready: Ready::Listens(COUNTERS.into()),
    })
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
}
