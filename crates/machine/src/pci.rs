//! Finds interfaces by the PCI address of their device.

use std::path::Path;

/// Interface of the device at a PCI address (`0000:1b:00.0`, also without the domain), if the kernel has one. If a
/// device has several interfaces, returns the first by name.
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

/// Vendor and device id at a PCI address: `8086:10fb`.
#[must_use]
pub fn id_at(address: &str) -> Option<String> {
    id_under(Path::new("/sys/bus/pci/devices"), address)
}

fn id_under(devices: &Path, address: &str) -> Option<String> {
    // Drivers return arbitrary text; only an address is a folder.
    let plain = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    if address.is_empty() || !address.contains(':') || !address.chars().all(plain) {
        return None;
    }
    let number = |file: &str| {
        let text = std::fs::read_to_string(devices.join(address).join(file)).ok()?;
        Some(text.trim().strip_prefix("0x")?.to_owned())
    };
    Some(format!("{}:{}", number("vendor")?, number("device")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_numbers() {
        let devices = tempfile::tempdir().unwrap();
        let device = devices.path().join("0000:1b:00.0");
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("vendor"), "0x8086\n").unwrap();
        std::fs::write(device.join("device"), "0x10fb\n").unwrap();
        let at = |address| id_under(devices.path(), address);
        assert_eq!(at("0000:1b:00.0").as_deref(), Some("8086:10fb"));
        for other in ["", "..", "0000:1b:00.1", "virtio0", "../0000:1b:00.0"] {
            assert_eq!(at(other), None, "{other}");
        }
    }

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
