//! POST: creates the object in the body.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::RequestContext;
use super::decode::DecodedRequest;
use super::write_path::{self, WriteOperation, WriteResult, mutate};
use crate::error::Error;
use crate::object::Object;
use crate::offload;
use crate::request::options::WriteOptions;

pub(crate) async fn create(call: &RequestContext<'_>, body: &Bytes) -> Result<WriteResult, Error> {
    let options = WriteOptions::parse(call.query, "CreateOptions")?;
    let DecodedRequest { value, warnings } = write_path::decode_body(call, body, &options).await?;
    match write_new(call, value, &options).await {
        Ok(object) => Ok(WriteResult { object, created: true, warnings }),
        Err(error) => Err(error.warned(warnings)),
    }
}

async fn write_new(
    call: &RequestContext<'_>,
    value: Value,
    options: &WriteOptions,
) -> Result<Arc<Object>, Error> {
    let size = offload::size(&value);
    let complete = || mutate::complete_new(call, mutate::stored_form(call, value), &options.field_manager);
    let object = call.run_offloaded(size, complete).await?;
    write_path::write(call, WriteOperation::Create, object, options.dry_run).await
}
