//! Checks whether other users of the host have access to the directory with the keys, tokens and
//! secrets of pods.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Returns what is wrong with the permissions of a root directory, with the remedy. `None` if
/// nothing is, or if it does not exist.
pub fn check(root_dir: &Path) -> Option<String> {
    let shown = root_dir.display();
    if let Ok(Some(untrusted)) = windlass_safe_path::find_untrusted_directory(root_dir) {
        return Some(format!("other users can replace {shown}: {untrusted}"));
    }
    let mode = root_dir.metadata().ok()?.permissions().mode() & 0o7777;
    let text = format!("other users have access to {shown} (mode {mode:04o}); run chmod o= {shown}");
    (mode & 0o007 != 0).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};

    use super::*;

    #[test]
    fn directories_open_to_others_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        assert_eq!(check(&root), None);
        std::fs::create_dir(&root).unwrap();
        for (mode, reported) in [(0o700, ""), (0o750, ""), (0o755, "chmod o="), (0o777, "replace")] {
            set_permissions(&root, Permissions::from_mode(mode)).unwrap();
            let found = check(&root);
            assert_eq!(found.is_some(), !reported.is_empty(), "{mode:o}: {found:?}");
            assert!(found.unwrap_or_default().contains(reported), "{mode:o}");
        }
    }
}
