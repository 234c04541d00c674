//! `pods/binding`: binds an unscheduled pod to a node.

use http::StatusCode;
use serde_json::{Value, json};
use windlass_api::field::{FieldErrors, FieldPath};

use super::success;
use crate::chain::admission::{self, AdmissionOperation};
use crate::error::{Error, ErrorSubject};
use crate::limits;
use crate::request::options::WriteOptions;
use crate::verbs::write_path::{commit, preconditions::contended};
use crate::verbs::{RequestContext, get};

/// Binds the pod of the path to the node in the binding.
pub(super) async fn bind(
    call: &RequestContext<'_>,
    mut binding: Value,
    options: &WriteOptions,
) -> Result<(StatusCode, Value), Error> {
    admission::mutate(call, AdmissionOperation::Create, &mut binding)?;
    let node = binding["target"]["name"].as_str().unwrap_or_default();
    if node.is_empty() {
        let mut errors = FieldErrors::new();
        errors.required(&FieldPath::new("target").child("name"), "");
        return Err(Error::Invalid {
            group: String::new(),
            kind: "Binding".into(),
            name: call.path.name.clone(),
            errors,
        });
    }
    for _ in 0..limits::PATCH_RETRIES {
        let old = get::get_object(call)?;
        let mut pod = old.stored_value();
        let bound = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if !bound.is_empty() {
            let why = format!(
                "pod {} is already assigned to node {}",
                call.path.name,
                windlass_api::field::quote(bound)
            );
            return Err(Error::Conflict(ErrorSubject::new("", "pods/binding", &call.path.name), why));
        }
        pod["spec"]["nodeName"] = json!(node);
        let stored = commit::encode_stored(call, &pod);
        match commit::replace(call, &old, stored, options.dry_run).await {
            Err(Error::Conflict(..)) => {}
            other => return other.map(|_| (StatusCode::CREATED, success())),
        }
    }
    Err(contended(call))
}
