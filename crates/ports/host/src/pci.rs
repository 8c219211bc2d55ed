//! Interfaces by the PCI address of their device.

use std::path::Path;

/// The interface of the device at a PCI address (`0000:1b:00.0`, also without the domain), if the
/// kernel has one there. A device with several interfaces gives the first by name.
#[must_use]
pub fn interface_at(address: &str) -> Option<String> {
    interface_under(Path::new("/sys/bus/pci/devices"), address)
}

fn interface_under(devices: &Path, address: &str) -> Option<String> {
    let full = match address.matches(':').count() {
        1 => format!("0000:{address}"),
        _ => address.to_owned(),
    };
    let mut names: Vec<String> = std::fs::read_dir(devices.join(full.to_lowercase()).join("net"))
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_to_its_interface() {
        let devices = tempfile::tempdir().unwrap();
        let net = devices.path().join("0000:1b:00.0/net");
        std::fs::create_dir_all(net.join("eth3")).unwrap();
        std::fs::create_dir_all(net.join("eth2")).unwrap();
        let at = |address| interface_under(devices.path(), address);
        assert_eq!(at("0000:1B:00.0").as_deref(), Some("eth2"));
        assert_eq!(at("1b:00.0").as_deref(), Some("eth2"));
        assert_eq!(at("0000:1b:00.1"), None);
    }
}
