//! Paths of files in volumes, which must not leave the volume.

use windlass_api::field::{FieldErrors, FieldPath};

/// Requires a relative path without `..` elements that does not begin with `..`, which is reserved
/// for the node.
pub(super) fn local_and_not_reserved(path: &FieldPath, target: &str, errors: &mut FieldErrors) {
    local(path, target, errors);
    if target.starts_with("..") && !target.starts_with("../") {
        errors.invalid_str(path, target, "must not start with '..'");
    }
}

/// Requires a relative path without `..` elements.
pub(super) fn local(path: &FieldPath, target: &str, errors: &mut FieldErrors) {
    if target.starts_with('/') {
        errors.invalid_str(path, target, "must be a relative path");
    }
    no_backsteps(path, target, errors);
}

/// Reports an error if a path has an element `..`.
pub(super) fn no_backsteps(path: &FieldPath, target: &str, errors: &mut FieldErrors) {
    if has_backsteps(target) {
        errors.invalid_str(path, target, "must not contain '..'");
    }
}

/// Returns true if an element is `..`.
pub(super) fn has_backsteps(target: &str) -> bool {
    target.split('/').any(|element| element == "..")
}

/// Validates an optional file mode.
pub(super) fn mode(path: &FieldPath, mode: Option<i64>, errors: &mut FieldErrors) {
    if let Some(mode) = mode
        && !(0..=0o777).contains(&mode)
    {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.invalid(path, &mode.into(), detail);
    }
}
