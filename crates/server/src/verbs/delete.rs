//! DELETE: an object, immediately or after its finalizers, and whole collections.

use std::sync::Arc;

use bytes::Bytes;

use super::RequestContext;
use super::decode::{self, ExpectedType};
use super::list::{self, ObjectList};
use super::write_path::preconditions::contended;
use super::write_path::{self, DeleteOutcome};
use crate::error::Error;
use crate::limits;
use crate::list_body::HistoricalPage;
use crate::object::Object;
use crate::request::info::ResourcePath;
use crate::request::options::{DeleteOptions, FieldValidation, ListOptions};

/// Deletes the object named in the path.
pub(crate) async fn delete(call: &RequestContext<'_>, body: &Bytes) -> Result<DeleteOutcome, Error> {
    let options = call.run_offloaded(body.len(), || options(call, body)).await?;
    delete_one(call, &options).await
}

/// Deletes the selected objects one by one, and returns them.
pub(crate) async fn delete_collection(call: &RequestContext<'_>, body: &Bytes) -> Result<ObjectList, Error> {
    let options = call.run_offloaded(body.len(), || self::options(call, body)).await?;
    let found = list::list(call, &ListOptions::parse(call.query, false)?).await?;
    delete_each(call, &options, &found.objects).await?;
    let mut rest = found.rest.clone().map(HistoricalPage::new);
    while let Some(rest) = &mut rest
        && let Some(objects) = rest.next().await.map_err(|e| Error::Internal(e.to_string()))?
    {
        delete_each(call, &options, &objects).await?;
    }
    Ok(found)
}

async fn delete_each(
    call: &RequestContext<'_>,
    options: &DeleteOptions,
    objects: &[Arc<Object>],
) -> Result<(), Error> {
    for object in objects {
        let path = ResourcePath {
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            ..call.path.clone()
        };
        let one = RequestContext { path: &path, ..*call };
        match delete_one(&one, options).await {
            // It was deleted concurrently, which is the desired result.
            Ok(_) | Err(Error::NotFound(_)) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

fn options(call: &RequestContext<'_>, body: &Bytes) -> Result<DeleteOptions, Error> {
    if body.is_empty() {
        return DeleteOptions::from_query(call.query);
    }
    let expected = ExpectedType {
        group: "",
        version: "v1",
        kind: "DeleteOptions",
        type_name: "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    };
    let draft = decode::any_version(call, expected, body, FieldValidation::Ignore)?;
    DeleteOptions::from_value(&draft.value)
}

/// Deletes the object named in the path, with parsed options.
pub(crate) async fn delete_one(
    call: &RequestContext<'_>,
    options: &DeleteOptions,
) -> Result<DeleteOutcome, Error> {
    for _ in 0..limits::UPDATE_RETRIES {
        let found = call.cache()?.get(&call.key(&call.path.name));
        let old = found.ok_or_else(|| Error::NotFound(call.subject(&call.path.name)))?;
        let marked = write_path::prepare_deletion(call, &old, options).await?;
        match write_path::commit_deletion(call, old, &marked, options.dry_run).await {
            Err(Error::Conflict(..)) if options.resource_version.is_none() => {}
            other => return other,
        }
    }
    Err(contended(call))
}
