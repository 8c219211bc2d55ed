//! Available memory.

use std::fs;

/// Memory in bytes that can be used without swapping, as estimated by the kernel; `None` if unknown.
pub fn available() -> Option<u64> {
    parse(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counts_in_kibibytes() {
        let text = "MemTotal:       24689996 kB\nMemAvailable:   23811704 kB\n";
        assert_eq!(parse(text), Some(23_811_704 * 1024));
        assert_eq!(parse("MemTotal: 1 kB\n"), None);
    }
}
