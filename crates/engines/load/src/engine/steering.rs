//! Addresses that a job asks with, and steering of answers to the workers that wait for them.

use std::net::IpAddr;

use wb_model::{
    PortPlan,
    load::{LoadEnd, LoadJob},
    units::AddressRange,
};

use wb_tcp::Steering;

/// Source address of a next-hop query, and the destination that the next hop must reach.
pub(super) struct NextHopQuery {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
}

impl NextHopQuery {
    /// Returns the query of a job, which was checked to have addresses. If the port has an address, that address is the
    /// source.
    pub(super) fn of(job: &LoadJob, port: &PortPlan) -> Self {
        let mut asked = Self::between(job);
        let own = port.addresses.iter().map(AddressRange::first);
        if let Some(own) = own
            .into_iter()
            .find(|a| a.is_ipv6() == asked.source.is_ipv6())
        {
            asked.source = own;
        }
        asked
    }

    fn between(job: &LoadJob) -> Self {
        let first = |ranges: &[wb_model::units::AddressRange]| ranges.first().map(|r| r.first());
        let unknown = IpAddr::from([0, 0, 0, 0]);
        match (&job.vxlan, job.end) {
            (Some(tunnel), _) => Self {
                source: tunnel.local.first(),
                destination: tunnel.remote.first(),
            },
            (None, LoadEnd::Client) => Self {
                source: first(&job.clients).unwrap_or(unknown),
                destination: first(&job.servers).unwrap_or(unknown),
            },
            (None, LoadEnd::Server) => Self {
                source: first(&job.servers).unwrap_or(unknown),
                destination: first(&job.clients).unwrap_or(unknown),
            },
        }
    }
}

/// Steering of connections to workers if addresses do not do it: drivers of interfaces steer by client port, whatever
/// addresses workers have.
pub(super) fn own(has_wire: bool, worker: u32, workers: u32) -> Option<Steering> {
    let number = |n: u32| u16::try_from(n).ok();
    has_wire.then_some(())?;
    Some(Steering::ClientPort {
        workers: number(workers)?,
        mine: number(worker)?,
    })
}
