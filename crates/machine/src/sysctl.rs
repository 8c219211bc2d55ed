//! Kernel settings under `/proc/sys`, as a namespace sees them.

use std::fs;
use std::path::PathBuf;

use crate::error::{HostError, Result};
use crate::netns::{Namespace, in_namespace};

/// Reads a setting: `net.ipv4.ip_forward`. A key with slashes is not translated, for names that contain dots:
/// `net/ipv6/conf/eth0.10/disable_ipv6`.
///
/// # Errors
/// If the namespace has no such setting: many exist only in the initial namespace.
pub fn get(namespace: &Namespace, key: &str) -> Result<String> {
    let path = path(key)?;
    in_namespace(namespace, || fs::read_to_string(path))?
        .map(|text| text.trim_end().to_owned())
        .map_err(HostError::refused(
            "read",
            format!("{key} in {}", namespace.place()),
        ))
}

/// Changes a setting.
///
/// # Errors
/// See [`get`]. Also fails without the required privileges, or if the kernel refuses the value.
pub fn set(namespace: &Namespace, key: &str, value: &str) -> Result<()> {
    let path = path(key)?;
    // Open without O_CREAT: procfs would report a missing setting as "permission denied".
    in_namespace(namespace, || {
        use std::io::Write;
        fs::OpenOptions::new()
            .write(true)
            .open(path)?
            .write_all(value.as_bytes())
    })?
    .map_err(HostError::refused(
        "set",
        format!("{key} = {value} in {}", namespace.place()),
    ))
    .map_err(|e| e.or_privilege(|| "run as root, or under `unshare -Urnm`".into()))
}

/// Stops unsolicited IPv6 traffic of an interface: router solicitations, automatic addresses and duplicate address
/// detection. Call it before the interface is set up. IPv6 addresses can still be added.
///
/// # Errors
/// See [`set`]; no error on a kernel without IPv6.
pub fn silence_ipv6(namespace: &Namespace, interface: &str) -> Result<()> {
    // addr_gen_mode 1: no automatic link-local address.
    const QUIET: [(&str, &str); 5] = [
        ("accept_ra", "0"),
        ("autoconf", "0"),
        ("router_solicitations", "0"),
        ("dad_transmits", "0"),
        ("addr_gen_mode", "1"),
    ];
    QUIET
        .iter()
        .try_for_each(|(key, value)| set_ipv6(namespace, interface, key, value))
}

/// Disables IPv6 on an interface.
///
/// # Errors
/// See [`set`]; no error on a kernel without IPv6.
pub fn disable_ipv6(namespace: &Namespace, interface: &str) -> Result<()> {
    set_ipv6(namespace, interface, "disable_ipv6", "1")
}

fn set_ipv6(namespace: &Namespace, interface: &str, key: &str, value: &str) -> Result<()> {
    if !PathBuf::from("/proc/sys/net/ipv6").exists() {
        return Ok(());
    }
    set(
        namespace,
        &format!("net/ipv6/conf/{interface}/{key}"),
        value,
    )
}

fn path(key: &str) -> Result<PathBuf> {
    let relative = if key.contains('/') {
        key.to_owned()
    } else {
        key.replace('.', "/")
    };
    if relative.is_empty()
        || relative
            .split('/')
            .any(|part| matches!(part, "" | "." | ".."))
    {
        let why = "it must be words separated by dots or slashes";
        return Err(HostError::BadName {
            name: key.into(),
            what: "a setting",
            why,
        });
    }
    Ok(PathBuf::from("/proc/sys").join(relative))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        assert_eq!(
            path("net.ipv4.ip_forward").unwrap(),
            PathBuf::from("/proc/sys/net/ipv4/ip_forward")
        );
        assert_eq!(
            path("net/ipv6/conf/eth0.10/disable_ipv6").unwrap(),
            PathBuf::from("/proc/sys/net/ipv6/conf/eth0.10/disable_ipv6")
        );
        for bad in ["", "net..x", "../shadow", "/etc/passwd", "net/./x"] {
            assert!(path(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn reads_without_privileges() {
        let here = Namespace::current().unwrap();
        assert!(["0", "1"].contains(&get(&here, "net.ipv4.ip_forward").unwrap().as_str()));
        let error = get(&here, "net.no.such").unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENOENT), "{error}");
    }
}
