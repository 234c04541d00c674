//! PUT: replaces an object, or through a subresource a part of it.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use windlass_api::meta::ObjectMetaView;

use super::RequestContext;
use super::decode::DecodedRequest;
use super::write_path::preconditions::{check_name, check_uid, check_version, contended};
use super::write_path::{self, WriteOperation, WriteResult, managed_fields, metadata_mut, mutate};
use crate::error::Error;
use crate::limits;
use crate::object::Object;
use crate::offload;
use crate::request::options::WriteOptions;

/// Replaces the object that the path names, or through a subresource a part of it.
pub(crate) async fn update(call: &RequestContext<'_>, body: &Bytes) -> Result<WriteResult, Error> {
    let options = WriteOptions::parse(call.query, "UpdateOptions")?;
    let DecodedRequest { value, warnings } = write_path::decode_body(call, body, &options).await?;
    let sent = warnings.clone();
    put(call, value, warnings, &options).await.map_err(|error| error.warned(sent))
}

async fn put(
    call: &RequestContext<'_>,
    value: Value,
    warnings: Vec<String>,
    options: &WriteOptions,
) -> Result<WriteResult, Error> {
    let size = offload::size(&value);
    let value = call.run_offloaded(size, || Ok(mutate::stored_form(call, value))).await?;
    check_name(call, &value)?;
    let manager = call.manager(&options.field_manager);
    for _ in 0..limits::UPDATE_RETRIES {
        let Some(old) = call.cache()?.get(&call.key(&call.path.name)) else {
            let object = create_instead(call, value, options).await?;
            return Ok(WriteResult { object, created: true, warnings });
        };
        let unconditional = ObjectMetaView::from_object(&value).resource_version().is_empty();
        let compare = || {
            let (mut new, before) = (value.clone(), old.stored_value());
            check_uid(call, &new, &before)?;
            check_version(call, &mut new, &old)?;
            managed_fields::record(call, Some(&before), &mut new, &manager);
            Ok((new, before))
        };
        let (new, before) = call.run_offloaded(size.max(old.size()), compare).await?;
        let operation = WriteOperation::Replace { old: &old, before: &before };
        match write_path::write(call, operation, new, options.dry_run).await {
            Err(Error::Conflict(..)) if unconditional => {}
            other => {
                let object = other?;
                return Ok(WriteResult { object, created: false, warnings });
            }
        }
    }
    Err(contended(call))
}

/// Creates an object that does not exist, where the kind allows that and the body does not refer to an existing one.
async fn create_instead(
    call: &RequestContext<'_>,
    mut value: Value,
    options: &WriteOptions,
) -> Result<Arc<Object>, Error> {
    let meta = ObjectMetaView::from_object(&value);
    if !call.kind.create_on_update
        || !call.path.subresource.is_empty()
        || !meta.resource_version().is_empty()
        || !meta.uid().is_empty()
    {
        return Err(Error::NotFound(call.subject(&call.path.name)));
    }
    metadata_mut(&mut value).insert("name".into(), json!(call.path.name));
    let size = offload::size(&value);
    let complete = || mutate::complete_new(call, value, &options.field_manager);
    let object = call.run_offloaded(size, complete).await?;
    write_path::write(call, WriteOperation::Create, object, options.dry_run).await
}
