//! Which addresses a job asks with, and whether answers find the worker that waits for them.

use std::net::IpAddr;

use wb_model::{
    Plan, PortPlan,
    load::{LoadEnd, LoadJob},
    units::AddressRange,
};

use wb_tcp::Steering;

use crate::ports::OpenPort;

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

/// How a worker's connections are told apart where it is not by the job: the packet driver steers by client
/// port, whatever addresses workers have.
pub(super) fn own(driver: &str, worker: u32, workers: u32) -> Option<Steering> {
    let number = |n: u32| u16::try_from(n).ok();
    (driver == "packet").then_some(())?;
    Some(Steering::ClientPort {
        workers: number(workers)?,
        mine: number(worker)?,
    })
}

/// What to know where answers may reach the wrong worker.
pub(super) fn warnings(plan: &Plan, ports: &[OpenPort]) -> Vec<String> {
    ports
        .iter()
        .filter(|port| port.facts.driver == "xdp" && port.queues.len() > 1)
        .filter(|port| {
            let job = plan.loads.iter().find(|j| j.port == port.plan.name);
            job.is_some_and(|job| job.end == LoadEnd::Client && !job.flood)
        })
        .filter(|port| !leads_to_ours(plan, port))
        .map(|port| {
            format!(
                "{}: {} queues, each with a worker: answers that come back on another queue than their requests left by are lost (drop_unknown); packet:{} steers them by itself",
                port.facts.locator,
                port.queues.len(),
                port.plan.locator.place()
            )
        })
        .collect()
}

/// Whether a server of the same plan has as many XDP queues.
fn leads_to_ours(plan: &Plan, port: &OpenPort) -> bool {
    plan.loads.iter().any(|job| {
        let workers = plan.ports.iter().find(|p| p.name == job.port);
        job.end == LoadEnd::Server
            && workers.is_some_and(|p| p.workers as usize == port.queues.len())
    })
}
