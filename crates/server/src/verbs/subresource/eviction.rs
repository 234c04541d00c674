//! `pods/eviction`: a deletion by another name, as there are no disruption budgets to ask.

use http::StatusCode;
use serde_json::Value;

use super::success;
use crate::error::Error;
use crate::request::options::{DeleteOptions, WriteOptions};
use crate::verbs::Call;
use crate::verbs::delete::{self, Deleted};

/// Deletes the pod of the path as the eviction asks.
pub async fn evict(
    call: &Call<'_>,
    eviction: &Value,
    options: &WriteOptions,
) -> Result<(StatusCode, Value), Error> {
    let mut delete = DeleteOptions::from_value(&eviction["deleteOptions"])?;
    delete.dry_run |= options.dry_run;
    match delete::delete_one(call, &delete).await? {
        Deleted::Gone(_) | Deleted::Going(_) => Ok((StatusCode::CREATED, success())),
    }
}
