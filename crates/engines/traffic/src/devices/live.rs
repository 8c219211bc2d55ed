//! Devices with packets made by the kernel: conditions, and reasons for refusing other devices.

use crate::{DeviceOffload, LoadedPort};
use wb_live::{PassProgram, Sender as LiveSender, takes_frames};
use wb_model::{Driver, Plan, SendWay, plan::XdpMode};
use wb_port::offload::{Refusal, SendOffload};

use super::DeviceSlot;
use wb_open::{OpenPort, Sharing, StartError};

use crate::engine::{
    Device,
    live::{at_interface, let_in, refuse},
};

/// Moves devices into the kernel if their ports and settings allow it, and notes the result at each port. Returns the
/// programs that let the frames in at other ends; the caller keeps them for the run.
///
/// # Errors
/// Fails if a port with the live driver cannot send inside the kernel.
pub(super) fn offload(
    ports: &mut [OpenPort],
    slots: &mut [DeviceSlot],
) -> Result<Vec<PassProgram>, StartError> {
    let mut passages = Vec::new();
    let cpus: Vec<u32> = slots.iter().map(|slot| slot.cpu).collect();
    for (number, port) in ports.iter_mut().enumerate() {
        let asked = port.plan.locator.driver;
        if port.wire.is_none() || !port.used.tx || !matches!(asked, None | Some(Driver::Live)) {
            continue;
        }
        let mut why_not = not_by_port(port).map(str::to_owned);
        if why_not.is_none() && asked.is_none() {
            let devices = slots.iter().filter(|slot| slot.port == number).count();
            why_not = crowded(port, devices).map(|why| why.to_string());
        }
        let mut let_in_by = String::new();
        if why_not.is_none()
            && let Some((passage, place)) = let_in(port)?
        {
            passages.push(passage);
            let_in_by =
                format!("; an XDP program at {place} that passes all frames enables sending");
        }
        let takes = at_interface(port, port.wire.as_ref(), |i| Ok(takes_frames(i)))?;
        if takes != Some(true) && asked.is_none() && why_not.is_none() {
            why_not = Some("its driver does not report XDP transmission".to_owned());
        }
        let (mut by_kernel, mut others) = (0, Vec::new());
        for slot in slots.iter_mut().filter(|slot| slot.port == number) {
            let made = match &why_not {
                Some(why) => Err(why.clone()),
                None if cpus.iter().filter(|cpu| **cpu == slot.cpu).count() > 1 => {
                    Err("several devices share a CPU".to_owned())
                }
                None => offload_device(port, slot, asked.is_some()),
            };
            match made {
                Ok(offload) => {
                    by_kernel += 1;
                    slot.offload = Some(offload);
                }
                Err(why) if asked.is_some() => {
                    return Err(refuse(&port.plan, Refusal::Streams(why)));
                }
                Err(why) => others.push((slot.walker.config().name.clone(), why)),
            }
        }
        if others.is_empty() && by_kernel > 0 {
            let facts = &mut port.facts;
            let other = format!("{}, {}", facts.driver, facts.mode);
            facts.locator = format!("live:{}", port.plan.locator.place());
            facts.driver = "live";
            facts.mode = "live frames".to_owned();
            port.chosen_because = match asked {
                Some(_) => format!("requested{let_in_by}"),
                None => format!(
                    "fastest available (in-kernel){let_in_by}; packets that the kernel cannot build use {other}"
                ),
            };
            continue;
        }
        let because = &mut port.chosen_because;
        if by_kernel > 0 {
            because.push_str("; the other devices send in the kernel");
            because.push_str(&let_in_by);
        }
        others.dedup_by(|a, b| a.1 == b.1);
        for (name, why) in others {
            because.push_str(&format!("; {name}: live not used: {why}"));
        }
    }
    Ok(passages)
}

/// Returns why no device of a port can send inside the kernel, whatever its settings.
fn not_by_port(port: &OpenPort) -> Option<&'static str> {
    if port.plan.way != SendWay::Direct {
        return Some("its packets do not go directly to the driver (xmit_mode)");
    }
    if port.plan.xdp_mode != XdpMode::Auto {
        return Some("an XDP mode is set");
    }
    (port.used.sharing != Sharing::Alone).then_some("several jobs share its port")
}

/// Returns why the devices of a port would block each other.
fn crowded(port: &OpenPort, devices: usize) -> Option<Refusal> {
    let device = Device::of(&port.plan, port.wire.as_ref()?, &Plan::default());
    device.crowds(u32::try_from(devices).ok()?, "devices")
}

fn offload_device(
    port: &OpenPort,
    slot: &DeviceSlot,
    is_only_way: bool,
) -> Result<DeviceOffload, String> {
    let wire = port.wire.as_ref().ok_or("the port is not an interface")?;
    let (namespace, interface) = (wire.namespace.clone(), wire.interface.clone());
    let load = move |stream: &_| {
        let loaded = wb_machine::in_namespace(&namespace, || {
            LiveSender::load(&interface, std::slice::from_ref(stream))
        });
        let sender = loaded.map_err(|cause| wb_port::PortError::Unsupported {
            port: interface.port.clone(),
            what: cause.to_string(),
        })??;
        let halt = sender.halt();
        Ok::<LoadedPort, wb_port::PortError>((Box::new(sender) as Box<dyn SendOffload>, halt))
    };
    DeviceOffload::new(&slot.walker, is_only_way, Box::new(load))
}
