//! Whether streams can run inside the kernel here, and what would make it so.

use wb_host::privilege::{Capability, Privileges};
use wb_model::{Locator, Plan, plan::PortPlan};

use crate::{
    StartError,
    ports::{Use, locate_wire},
    traffic::{Device, Host},
};

/// One thing found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InKernel {
    /// Whether it can.
    pub can: bool,
    /// In a sentence.
    pub text: String,
    /// The command that would make it so.
    pub fix: Option<String>,
}

/// What this machine can, and, where one is given, an interface.
///
/// # Errors
/// When there is no such interface.
pub fn in_kernel(port: Option<&Locator>) -> Result<Vec<InKernel>, StartError> {
    let mut found = vec![machine()];
    if let Some(locator) = port {
        let plan = PortPlan::new("port", locator.clone());
        let wire = locate_wire(&plan)?;
        let device = Device::of(&plan, &wire, &Plan::default());
        let why = device.keeps_out(true);
        let command = device.far.as_ref().map(|far| far.command.clone());
        let veth = device.driver == "veth";
        found.push(InKernel {
            can: why.is_none(),
            fix: why
                .as_ref()
                .filter(|_| veth)
                .map(|_| command.unwrap_or_else(|| "ethtool -K PEER gro on".to_owned())),
            text: match (why, &device.far) {
                (Some(why), _) => format!("it cannot send by programs: {why}"),
                (None, Some(far)) if far.of_a_lab && device.takes_frames == Some(false) => "it can send by programs, let in by one at the other end for as long as a run".to_owned(),
                (None, _) if device.takes_frames.is_none() => "whether it can send by programs shows only when it is tried: the kernel does not tell".to_owned(),
                (None, _) => "it can send by programs".to_owned(),
            },
        });
        if let Some(id) = device.program {
            let prefix = wire.namespace.command_prefix();
            found.push(InKernel {
                can: false,
                text: format!("it cannot account by a program: program {id} is attached"),
                fix: Some(format!("{prefix}ip link set {} xdp off", locator.name)),
            });
        }
    }
    Ok(found)
}

fn machine() -> InKernel {
    let both = Use {
        tx: true,
        rx: true,
        ..Use::default()
    };
    let Some(why) = Host::here().why_not(both) else {
        return InKernel {
            can: true,
            text: "streams can be sent and accounted for by programs (live)".to_owned(),
            fix: None,
        };
    };
    let needed = [
        Capability::NetAdmin,
        Capability::SysAdmin,
        Capability::Bpf,
        Capability::Perfmon,
    ];
    let missing = Privileges::of_this_process().missing(&needed);
    InKernel {
        can: false,
        text: format!("streams cannot be sent and accounted for by programs (live): {why}"),
        fix: missing.into_iter().next().map(|missing| missing.command),
    }
}
