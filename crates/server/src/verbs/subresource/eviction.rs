//! `pods/eviction`: a deletion by another name, as there are no disruption budgets to ask.

use http::StatusCode;
use serde_json::Value;

use super::success;
use crate::chain::admission::{self, AdmissionOperation};
use crate::error::Error;
use crate::request::info::ResourcePath;
use crate::request::options::{DeleteOptions, WriteOptions};
use crate::verbs::RequestContext;
use crate::verbs::delete;
use crate::verbs::write_path::DeleteOutcome;

/// Deletes the pod of the path as the eviction asks.
pub(super) async fn evict(
    call: &RequestContext<'_>,
    mut eviction: Value,
    options: &WriteOptions,
) -> Result<(StatusCode, Value), Error> {
    admission::mutate(call, AdmissionOperation::Create, &mut eviction)?;
    let mut delete = DeleteOptions::from_value(&eviction["deleteOptions"])?;
    delete.dry_run |= options.dry_run;
    // What follows is a deletion of the pod, by rules for deletions, on what is stored by then.
    let path = ResourcePath { subresource: String::new(), ..call.path.clone() };
    let deletion = RequestContext { path: &path, ..*call };
    match delete::delete_one(&deletion, &delete).await? {
        DeleteOutcome::Removed(_) | DeleteOutcome::Terminating(_) => {
            Ok((StatusCode::CREATED, success()))
        }
    }
}
