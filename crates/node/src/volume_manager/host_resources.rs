//! Resources of the host, the default limits of containers without limits.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// CPU and memory as quantities. Unknown resources are missing.
pub static RESOURCES: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().ok().map(|number| number.to_string());
    let memory = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let resources = [("cpu", processors), ("memory", memory)];
    resources.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), amount?))).collect()
});

/// Parses the total memory from `/proc/meminfo`.
fn total(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    Some(format!("{kibibytes}Ki"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_the_system_says() {
        let text = "MemTotal:       24143672 kB\nMemFree:        12 kB\n";
        assert_eq!(total(text).as_deref(), Some("24143672Ki"));
        for text in ["", "MemFree: 1 kB", "MemTotal: x kB", "MemTotal: 5"] {
            assert_eq!(total(text), None, "{text}");
        }
        assert!(RESOURCES.get("cpu").is_some_and(|cpu| cpu.parse::<u64>().unwrap() > 0));
    }
}
