//! Conflicts of a server-side apply and how they are reported.

use super::managed_fields::{ManagedFieldsEntry, ManagedFieldsOperation};
use super::set::FieldSet;
use crate::limits::MAX_ERRORS;
use crate::status::{CauseType, StatusCause};

/// A field owned by another manager whose value the apply would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldConflict {
    /// Owner in display form: `"kubectl" with subresource "status" using v1`.
    pub manager: String,
    /// Path of the contested field, for example `.spec.containers[name="c"].image`.
    pub path: String,
}

/// Conflicts that stop an apply without `force`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplyConflicts {
    /// First [`MAX_ERRORS`] conflicts, sorted by owner.
    pub listed: Vec<FieldConflict>,
    /// Number of conflicts, including those not listed.
    pub total: usize,
}

impl ApplyConflicts {
    pub(super) fn add(&mut self, manager: &ManagedFieldsEntry, fields: &FieldSet) {
        self.total += fields.len();
        let paths = fields.paths(MAX_ERRORS - self.listed.len()).into_iter();
        self.listed.extend(paths.map(|path| FieldConflict { manager: describe_manager(manager), path }));
    }
}

/// Returns the message and causes of the `Status` that reports conflicts (409, `Conflict`).
pub fn conflict_status_parts(conflicts: &ApplyConflicts) -> (String, Vec<StatusCause>) {
    let more = conflicts.total - conflicts.listed.len();
    let more = (more > 0).then(|| format!("… and {more} more"));
    let cause = |message, field| StatusCause { kind: CauseType::FieldManagerConflict, message, field };
    let causes = conflicts
        .listed
        .iter()
        .map(|conflict| cause(format!("conflict with {}", conflict.manager), conflict.path.clone()));
    let causes = causes.chain(more.clone().map(|text| cause(text, String::new())));
    let message = match conflicts.listed.as_slice() {
        [FieldConflict { manager, path }] => {
            format!("Apply failed with 1 conflict: conflict with {manager}: {path}")
        }
        many => {
            let mut lines = Vec::new();
            for group in many.chunk_by(|a, b| a.manager == b.manager) {
                lines.push(format!("conflicts with {}:", group[0].manager));
                lines.extend(group.iter().map(|conflict| format!("- {}", conflict.path)));
            }
            lines.extend(more);
            format!("Apply failed with {} conflicts: {}", conflicts.total, lines.join("\n"))
        }
    };
    (message, causes.collect())
}

/// Formats a manager for display. Appliers are shown by name only.
pub(super) fn describe_manager(manager: &ManagedFieldsEntry) -> String {
    let mut text = format!("{:?}", manager.manager);
    if !manager.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", manager.subresource));
    }
    if manager.operation == ManagedFieldsOperation::Update {
        text.push_str(&format!(" using {}", manager.api_version));
    }
    text
}
