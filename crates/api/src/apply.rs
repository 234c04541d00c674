//! Who owns which field: `metadata.managedFields`, and server-side apply on top of it.
//!
//! ```text
//! set        field sets, in the form they have on the wire (FieldsV1)
//! element    the parts of a path: field, keyed element, set value
//! node       what the schema says of a value: one leaf, or something with parts
//! walk       object ─▶ field set;  two objects ─▶ what changed
//! merge      laying an applied object over the live one; removing fields by set
//! validate   what an applied object must be before it can be merged
//! managers   the entries of managedFields: parse, order, cap
//! update     create, update and patch: what changed belongs to the writer
//! request    apply: merge, drop what is no longer applied, conflicts
//! ```
//!
//! The rules are those of structured-merge-diff, with which Kubernetes does this. All versions of a
//! kind have one schema here, so a set recorded at another version is used as it is.

mod conflict;
mod field_walk;
mod managed_fields;
mod merge;
mod merge_node;
mod path_element;
mod request;
mod set;
#[cfg(test)]
mod tests;
mod update;
mod validate;

pub use conflict::{ApplyConflicts, FieldConflict, conflict_status_parts};
pub use field_walk::field_set;
pub use managed_fields::{ManagedFieldsEntry, ManagedFieldsOperation, encode, parse};
pub use request::{ApplyError, on_apply};
pub use set::FieldSet;
pub use update::on_update;

/// Identity of the writer that will own the fields.
#[derive(Clone, Copy, Debug)]
pub struct FieldManager<'a> {
    /// Name of the field manager under which the fields are owned.
    pub manager: &'a str,
    /// Group and version of the request.
    pub api_version: &'a str,
    /// Subresource of the request; empty for the main resource.
    pub subresource: &'a str,
    /// Time of the request: RFC 3339, UTC, whole seconds.
    pub time: &'a str,
}
