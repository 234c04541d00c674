//! Conflicts of an apply, and how they are told.

use super::managers::{Manager, Operation};
use crate::status::{Cause, CauseType};

/// A field that someone else owns and that the apply would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The owner, as it is shown: `"kubectl" with subresource "status" using v1`.
    pub manager: String,
    /// The field: `.spec.containers[name="c"].image`.
    pub path: String,
}

/// The message and the causes of the `Status` that tells of conflicts (409, `Conflict`).
pub fn conflict_status_parts(conflicts: &[Conflict]) -> (String, Vec<Cause>) {
    let causes = conflicts.iter().map(|conflict| Cause {
        kind: CauseType::FieldManagerConflict,
        message: format!("conflict with {}", conflict.manager),
        field: conflict.path.clone(),
    });
    let message = match conflicts {
        [Conflict { manager, path }] => {
            format!("Apply failed with 1 conflict: conflict with {manager}: {path}")
        }
        many => {
            let mut lines = Vec::new();
            for group in many.chunk_by(|a, b| a.manager == b.manager) {
                lines.push(format!("conflicts with {}:", group[0].manager));
                lines.extend(group.iter().map(|conflict| format!("- {}", conflict.path)));
            }
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    (message, causes.collect())
}

/// How a manager is shown. Appliers go by their name alone.
pub(super) fn show(manager: &Manager) -> String {
    let mut text = format!("{:?}", manager.manager);
    if !manager.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", manager.subresource));
    }
    if manager.operation == Operation::Update {
        text.push_str(&format!(" using {}", manager.api_version));
    }
    text
}
