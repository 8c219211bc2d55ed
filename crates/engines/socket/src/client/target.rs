//! Addresses of the server, and the local addresses used to reach it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use wb_model::socket::{Family, SocketFailure, SocketJob, SocketStage};
use wb_wire::SplitMix64;

use super::failure::stage_failure;
use crate::host::{Host, Resolved, endpoint};

/// The resolved names of a job.
#[derive(Clone, Debug)]
pub(super) struct ResolvedTarget {
    /// The resolver's canonical name of the server.
    pub(super) name: String,
    servers: Vec<IpAddr>,
    port: u16,
    locals: Option<Vec<IpAddr>>,
    local_port: u16,
    /// Addresses for data, if they differ from the control connection's.
    data_servers: Option<Vec<IpAddr>>,
    data_locals: Option<Vec<IpAddr>>,
    server_prefix: Option<u8>,
    local_prefix: Option<u8>,
    /// The server must bind the address named by the client.
    server_named: bool,
    /// Scope of link-local addresses, shared by both ends because they are on one link.
    scope: u32,
}

/// Addresses of a data connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DataAddresses {
    /// The server's address.
    pub(super) server: IpAddr,
    /// Local address; unspecified if the system chooses.
    pub(super) local: IpAddr,
    /// The server must bind its address rather than any.
    pub(super) server_named: bool,
    /// Scope of link-local addresses.
    pub(super) scope: u32,
}

fn resolve_name(host: &dyn Host, name: &str, family: Family) -> Result<Resolved, SocketFailure> {
    match host.resolve(name, family) {
        Ok(resolved) if !resolved.addresses.is_empty() => Ok(resolved),
        Ok(_) => Err(stage_failure(
            SocketStage::Resolve,
            format!("{name}: no address of the requested IP version"),
        )),
        Err(what) => Err(stage_failure(
            SocketStage::Resolve,
            format!("{name}: {what}"),
        )),
    }
}

fn first_specified(family: Family, other: Family) -> Family {
    if family == Family::Any { other } else { family }
}

impl ResolvedTarget {
    pub(super) fn resolve(job: &SocketJob, host: &dyn Host) -> Result<Self, SocketFailure> {
        let control = &job.control;
        let data = &job.data;
        let Resolved {
            name,
            addresses: servers,
            mut scope,
        } = resolve_name(host, &control.server, control.family)?;
        let mut list = |name: &str, family| {
            let found = resolve_name(host, name, family)?;
            scope = scope.max(found.scope);
            Ok(found.addresses)
        };
        let locals = match &control.local {
            Some(local) => Some(list(
                local,
                first_specified(control.local_family, control.family),
            )?),
            None => None,
        };
        let family = first_specified(data.family, control.family);
        let data_servers = match &data.server {
            Some(server) => Some(list(server, family)?),
            None if data.family == Family::Any => None,
            None => Some(list(&control.server, data.family)?),
        };
        let data_locals = match &data.local {
            Some(local) => Some(list(local, family)?),
            None => None,
        };
        Ok(Self {
            name,
            servers,
            port: control.port,
            locals,
            local_port: control.local_port,
            data_servers,
            data_locals,
            server_prefix: data.server_prefix,
            local_prefix: data.local_prefix,
            server_named: data.server.is_some(),
            scope,
        })
    }

    /// Address pairs to try for the control connection, in order: the local address, if one must be bound, and the
    /// server's.
    pub(super) fn control_addresses(&self) -> Vec<(Option<SocketAddr>, SocketAddr)> {
        let pair = |server: &IpAddr| {
            let local = match &self.locals {
                Some(locals) => Some(*same_family(locals, *server)?),
                None if self.local_port != 0 => Some(unspecified_like(*server)),
                None => None,
            };
            Some((
                local.map(|ip| endpoint(ip, self.local_port, self.scope)),
                endpoint(*server, self.port, self.scope),
            ))
        };
        self.servers.iter().filter_map(pair).collect()
    }

    /// Addresses of a data connection. `control` is the server's address of the control connection, if there is one.
    pub(super) fn data_addresses(
        &self,
        control: Option<IpAddr>,
        random: &mut SplitMix64,
    ) -> Result<DataAddresses, SocketFailure> {
        let usual = control.unwrap_or(self.servers[0]);
        let server = match &self.data_servers {
            Some(list) => *same_family(list, usual).unwrap_or(&list[0]),
            None => usual,
        };
        let local = match (&self.data_locals, &self.locals) {
            (Some(list), _) => *same_family(list, server).ok_or_else(|| {
                let what = format!("the local data address has another IP version than {server}");
                stage_failure(SocketStage::Resolve, what)
            })?,
            (None, Some(list)) => same_family(list, server)
                .copied()
                .unwrap_or(unspecified_like(server)),
            (None, None) => unspecified_like(server),
        };
        // Data that takes another route than the control connection comes from another address. A server that accepts
        // data from its client only must know that address.
        let local = match local.is_unspecified() && server != usual && !server.is_multicast() {
            true => source_towards(server).unwrap_or(local),
            false => local,
        };
        Ok(DataAddresses {
            server: draw_address(server, self.server_prefix, random),
            local: draw_address(local, self.local_prefix, random),
            server_named: self.server_named,
            scope: self.scope,
        })
    }
}

/// Local address that the system would choose for this destination. Sends nothing.
fn source_towards(server: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((unspecified_like(server), 0)).ok()?;
    socket.connect((server, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn same_family(list: &[IpAddr], like: IpAddr) -> Option<&IpAddr> {
    list.iter().find(|ip| ip.is_ipv4() == like.is_ipv4())
}

/// The unspecified address of the same family.
pub(super) fn unspecified_like(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// The address with all bits after the prefix randomised.
fn draw_address(ip: IpAddr, prefix: Option<u8>, random: &mut SplitMix64) -> IpAddr {
    let Some(prefix) = prefix else { return ip };
    let prefix = u32::from(prefix);
    match ip {
        IpAddr::V4(v4) => {
            let free = u32::MAX.checked_shr(prefix).unwrap_or(0);
            // The upper half of the random number is the better one.
            let bits = (random.next() >> 32) as u32;
            Ipv4Addr::from_bits(v4.to_bits() & !free | bits & free).into()
        }
        IpAddr::V6(v6) => {
            let free = u128::MAX.checked_shr(prefix).unwrap_or(0);
            let bits = u128::from(random.next()) << 64 | u128::from(random.next());
            Ipv6Addr::from_bits(v6.to_bits() & !free | bits & free).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::CpuTimes;

    struct Names;

    impl Host for Names {
        fn resolve(&self, name: &str, family: Family) -> Result<Resolved, String> {
            let all: &[&str] = match name {
                "both" => &["::1", "10.0.0.1"],
                "four" => &["10.0.0.2"],
                "six" => &["fd00::2"],
                _ => return Err("Name or service not known".to_owned()),
            };
            let addresses = all.iter().map(|ip| ip.parse::<IpAddr>().unwrap());
            let fits = |ip: &IpAddr| match family {
                Family::Any => true,
                Family::Ipv4 => ip.is_ipv4(),
                Family::Ipv6 => ip.is_ipv6(),
            };
            Ok(Resolved {
                name: name.to_owned(),
                addresses: addresses.filter(fits).collect(),
                scope: 0,
            })
        }

        fn cpu_times(&self) -> Option<CpuTimes> {
            None
        }

        fn bind_cpu(&self, _: u32) -> Result<(), String> {
            Ok(())
        }

        fn has_address(&self, _: IpAddr) -> bool {
            true
        }
    }

    fn job(server: &str) -> SocketJob {
        let mut job = SocketJob::default();
        server.clone_into(&mut job.control.server);
        job
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_nobody_knows_fails_with_the_name() {
        let failed = ResolvedTarget::resolve(&job("nobody"), &Names).unwrap_err();
        assert_eq!(failed.stage, SocketStage::Resolve);
        assert_eq!(failed.what, "nobody: Name or service not known");
        let mut job = job("four");
        job.control.family = Family::Ipv6;
        let failed = ResolvedTarget::resolve(&job, &Names).unwrap_err();
        assert!(failed.what.starts_with("four: "), "{}", failed.what);
    }

    #[test]
    fn both_ends_of_the_control_connection_are_of_one_family() {
        let mut job = job("both");
        job.control.local = Some("four".to_owned());
        job.control.local_port = 7;
        let target = ResolvedTarget::resolve(&job, &Names).unwrap();
        let local: SocketAddr = "10.0.0.2:7".parse().unwrap();
        let server: SocketAddr = "10.0.0.1:12865".parse().unwrap();
        assert_eq!(target.control_addresses(), [(Some(local), server)]);
        // The data connection has the same ends, unless its family is different.
        let mut random = SplitMix64(1);
        let ends = target
            .data_addresses(Some(ip("10.0.0.1")), &mut random)
            .unwrap();
        assert_eq!((ends.server, ends.local), (ip("10.0.0.1"), ip("10.0.0.2")));
        assert!(!ends.server_named);
        job.data.family = Family::Ipv6;
        let target = ResolvedTarget::resolve(&job, &Names).unwrap();
        let ends = target
            .data_addresses(Some(ip("10.0.0.1")), &mut random)
            .unwrap();
        // Data takes another route, so the local address is looked up; it stays unspecified without IPv6.
        assert_eq!(ends.server, ip("::1"));
        assert!(
            [ip("::1"), ip("::")].contains(&ends.local),
            "{}",
            ends.local
        );
    }

    #[test]
    fn a_data_end_of_the_other_family_is_refused() {
        let mut job = job("four");
        job.data.local = Some("six".to_owned());
        let target = ResolvedTarget::resolve(&job, &Names).unwrap();
        let failed = target.data_addresses(None, &mut SplitMix64(1)).unwrap_err();
        assert_eq!(failed.stage, SocketStage::Resolve);
    }

    #[test]
    fn bits_behind_the_prefix_are_drawn_and_the_others_stay() {
        let mut random = SplitMix64(3);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..64 {
            let drawn = draw_address(ip("10.1.2.3"), Some(30), &mut random);
            seen.insert(drawn);
        }
        let all: Vec<IpAddr> = (0..4).map(|n| ip(&format!("10.1.2.{n}"))).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
        assert_eq!(
            draw_address(ip("10.1.2.3"), Some(32), &mut random),
            ip("10.1.2.3")
        );
        assert_eq!(
            draw_address(ip("fd00::7"), Some(128), &mut random),
            ip("fd00::7")
        );
        assert_eq!(
            draw_address(ip("fd00::7"), None, &mut random),
            ip("fd00::7")
        );
        let IpAddr::V6(six) = draw_address(ip("fd00::7"), Some(64), &mut random) else {
            panic!("it is IPv6")
        };
        assert_eq!(six.segments()[..4], [0xfd00, 0, 0, 0]);
        assert_ne!(six.to_bits() as u64, 7);
    }
}
