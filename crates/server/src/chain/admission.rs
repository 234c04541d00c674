//! Stage: rules that need more than the object itself: other objects, or who asks.
//!
//! Mutating admission runs before validation, validating admission after it, as in Kubernetes; which
//! of two broken rules a client hears of depends on that.

mod namespace_lifecycle;
mod projections;

use serde_json::Value;

use crate::error::Error;
use crate::verbs::Call;

/// What is being done.
#[derive(Clone, Copy)]
pub enum Operation<'a> {
    /// A new object.
    Create,
    /// A change of this object.
    Update(&'a Value),
    /// A deletion.
    Delete,
}

/// The rules that come before validation and may change the object.
pub fn mutate(call: &Call<'_>, operation: Operation<'_>, object: &mut Value) -> Result<(), Error> {
    namespace_lifecycle::admit(call, operation, object)?;
    projections::drop_disabled(call, operation, object);
    Ok(())
}

/// The rules that come after validation.
pub fn validate(
    call: &Call<'_>,
    operation: Operation<'_>,
    old: Option<&Value>,
    object: &Value,
) -> Result<(), Error> {
    let _ = old;
    match operation {
        Operation::Delete => namespace_lifecycle::admit(call, operation, object),
        Operation::Create | Operation::Update(_) => Ok(()),
    }
}
