//! Which addresses a job asks with, and how answers find the worker that waits for them.

use std::net::IpAddr;

use wb_model::{
    PortPlan,
    load::{LoadEnd, LoadJob},
    units::AddressRange,
};

use wb_tcp::Steering;

/// Who asks for the next hop, and for the way to whom.
pub(super) struct Asked {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
}

impl Asked {
    /// Of a job that was checked: it has addresses. The port's own address is the one that asks.
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

/// How a worker's connections are told apart where it is not by the job: drivers of interfaces steer by client
/// port, whatever addresses workers have.
pub(super) fn own(has_wire: bool, worker: u32, workers: u32) -> Option<Steering> {
    let number = |n: u32| u16::try_from(n).ok();
    has_wire.then_some(())?;
    Some(Steering::ClientPort {
        workers: number(workers)?,
        mine: number(worker)?,
    })
}
