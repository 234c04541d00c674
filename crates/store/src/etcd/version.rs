//! Version-dependent behaviour of etcd.

/// Returns true if a member of this version reports stream progress only for changes that it has
/// already sent. Before 3.4.31 and 3.5.13 the report could overtake them.
pub(super) fn has_reliable_progress(version: &str) -> bool {
    // A prerelease may predate the fixes.
    let Some([major, minor, patch]) = parse_version(version) else { return false };
    match (major, minor) {
        (3, 0..=3) => false,
        (3, 4) => patch >= 31,
        (3, 5) => patch >= 13,
        (major, _) => major >= 3,
    }
}

fn parse_version(version: &str) -> Option<[u32; 3]> {
    let release = version.split('+').next()?;
    let mut parts = release.split('.').map(|part| part.parse().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_true_since_its_repair() {
        for (version, is_true) in [
            ("3.3.27", false),
            ("3.4.23", false),
            ("3.4.30", false),
            ("3.4.31", true),
            ("3.5.1", false),
            ("3.5.12", false),
            ("3.5.13", true),
            ("3.5.16+dfsg", true),
            ("3.5.13-rc.1", false),
            ("3.6.0", true),
            ("3.6.0-alpha.0", false),
            ("4.0.0", true),
            ("2.3.8", false),
            ("3.5", false),
            ("", false),
            ("3.5.16.1", false),
        ] {
            assert_eq!(has_reliable_progress(version), is_true, "{version}");
        }
    }
}
