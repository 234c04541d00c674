//! NamespaceLifecycle: rejects creation in missing or terminating namespaces, and deletion of
//! system namespaces.

use serde_json::Value;
use windlass_api::meta::ObjectMetaView;

use super::AdmissionOperation;
use crate::error::{Error, ErrorSubject};
use crate::registry::kind::Scope;
use crate::verbs::RequestContext;

/// Namespaces that cannot be deleted, because system components use them.
const LASTING: &[&str] = &["default", "kube-system", "kube-public"];

/// Checks the namespace of a new object, and namespace deletions.
pub(super) fn admit(
    call: &RequestContext<'_>,
    operation: AdmissionOperation<'_>,
    object: &Value,
) -> Result<(), Error> {
    match operation {
        AdmissionOperation::Delete if is_namespaces(call) && LASTING.contains(&call.path.name.as_str()) => {
            let why = "this namespace may not be deleted".to_owned();
            Err(Error::Forbidden(call.subject(&call.path.name), why))
        }
        AdmissionOperation::Create if call.kind.scope == Scope::Namespaced => check_namespace(call, object),
        AdmissionOperation::Create | AdmissionOperation::Update(_) | AdmissionOperation::Delete => Ok(()),
    }
}

fn is_namespaces(call: &RequestContext<'_>) -> bool {
    call.kind.plural == "namespaces" && call.served.group.is_empty()
}

fn check_namespace(call: &RequestContext<'_>, object: &Value) -> Result<(), Error> {
    let name = call.path.namespace.as_str();
    let Some(namespace) = call.server.core_object("namespaces", name)? else {
        return Err(Error::NotFound(ErrorSubject::new("", "namespaces", name)));
    };
    if ObjectMetaView::from_object(&namespace).is_deleting() {
        let meta = ObjectMetaView::from_object(object);
        let about = if meta.name().is_empty() { meta.generate_name() } else { meta.name() };
        return Err(Error::NamespaceTerminating(call.subject(about), name.to_owned()));
    }
    Ok(())
}
