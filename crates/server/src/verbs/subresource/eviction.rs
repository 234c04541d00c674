//! `pods/eviction`: deletes the pod; there are no disruption budgets to check.

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

/// Deletes the pod of the path with the options of the eviction.
pub(super) async fn evict(
    call: &RequestContext<'_>,
    mut eviction: Value,
    options: &WriteOptions,
) -> Result<(StatusCode, Value), Error> {
    admission::mutate(call, AdmissionOperation::Create, &mut eviction)?;
    let mut delete = DeleteOptions::from_value(&eviction["deleteOptions"])?;
    delete.dry_run |= options.dry_run;
    // From here on this is a deletion of the stored pod, by the rules for deletions.
    let path = ResourcePath { subresource: String::new(), ..call.path.clone() };
    let deletion = RequestContext { path: &path, ..*call };
    match delete::delete_one(&deletion, &delete).await? {
        DeleteOutcome::Removed(_) | DeleteOutcome::Terminating(_) => Ok((StatusCode::CREATED, success())),
    }
}
