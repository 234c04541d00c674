//! managedFields: which manager last wrote which field.

use serde_json::Value;
use windlass_api::apply::{self, FieldManager, FieldSet};
use windlass_api::schema::Schema;
use windlass_api::timestamp;

use crate::registry::kind::{Subresource, SubresourceAction};
use crate::verbs::RequestContext;

/// The writer that managedFields record for a request.
pub(crate) struct FieldWriter<'a> {
    manager: &'a str,
    api_version: String,
    subresource: &'a str,
    time: String,
}

impl<'a> FieldWriter<'a> {
    /// The writer of `call`, under the name `manager`.
    pub(crate) fn new(call: &RequestContext<'a>, manager: &'a str) -> FieldWriter<'a> {
        FieldWriter {
            manager,
            api_version: call.served.api_version(),
            subresource: &call.path.subresource,
            time: timestamp::format(call.now),
        }
    }

    /// The same in the form that server-side apply takes.
    pub(crate) fn as_manager(&self) -> FieldManager<'_> {
        FieldManager {
            manager: self.manager,
            api_version: &self.api_version,
            subresource: self.subresource,
            time: &self.time,
        }
    }
}

/// Records in managedFields which fields this write changed.
pub(crate) fn record(call: &RequestContext<'_>, before: Option<&Value>, object: &mut Value, manager: &str) {
    let schema = Schema::get();
    let Some(id) = schema.lookup(call.kind.stored().type_name) else { return };
    let writer = FieldWriter::new(call, manager);
    apply::on_update(schema, id, before, object, &writer.as_manager(), &reset_fields(call));
}

/// Returns the fields that a write to this path never owns, because the server resets them: the status for the object
/// itself, the spec for its `status`, unless the kind says otherwise.
pub(crate) fn reset_fields(call: &RequestContext<'_>) -> FieldSet {
    let mut own = call.kind.resets.iter();
    if let Some(reset) = own.find(|r| r.subresource == call.path.subresource) {
        return FieldSet::from_paths(reset.fields);
    }
    let is_status =
        |s: &Subresource| matches!(s.action, SubresourceAction::View { .. }) && s.name == "status";
    if !call.kind.subresources.iter().any(is_status) {
        return FieldSet::default();
    }
    match call.path.subresource.as_str() {
        "" => FieldSet::from_paths(&[&["status"]]),
        "status" => FieldSet::from_paths(&[&["spec"]]),
        _ => FieldSet::default(),
    }
}
