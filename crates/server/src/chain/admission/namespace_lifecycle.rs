//! NamespaceLifecycle: nothing new in a namespace that is missing or going away, and some
//! namespaces stay.

use serde_json::Value;
use windlass_api::meta::Meta;

use super::Operation;
use crate::error::{Error, Subject};
use crate::registry::kind::Scope;
use crate::verbs::Call;

/// Namespaces that parts of the system live in.
const LASTING: &[&str] = &["default", "kube-system", "kube-public"];

/// Checks the namespace of what is created, and the namespaces that are deleted.
pub fn admit(call: &Call<'_>, operation: Operation<'_>, object: &Value) -> Result<(), Error> {
    match operation {
        Operation::Delete if is_namespaces(call) && LASTING.contains(&call.path.name.as_str()) => {
            let why = "this namespace may not be deleted".to_owned();
            Err(Error::Forbidden(call.subject(&call.path.name), why))
        }
        Operation::Create if call.kind.scope == Scope::Namespaced => check_namespace(call, object),
        Operation::Create | Operation::Update(_) | Operation::Delete => Ok(()),
    }
}

fn is_namespaces(call: &Call<'_>) -> bool {
    call.kind.plural == "namespaces" && call.served.group.is_empty()
}

fn check_namespace(call: &Call<'_>, object: &Value) -> Result<(), Error> {
    let name = call.path.namespace.as_str();
    let Some(namespace) = call.server.core_object("namespaces", name)? else {
        return Err(Error::NotFound(Subject::new("", "namespaces", name)));
    };
    if Meta::of(&namespace).is_deleting() {
        let meta = Meta::of(object);
        let about = if meta.name().is_empty() { meta.generate_name() } else { meta.name() };
        return Err(Error::NamespaceTerminating(call.subject(about), name.to_owned()));
    }
    Ok(())
}
