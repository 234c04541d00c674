//! POST to subresources with an action: tokens, evictions, bindings.

mod binding;
mod eviction;
mod token;

use http::StatusCode;
use serde_json::{Value, json};

use super::RequestContext;
use super::decode::{self, ExpectedType};
use crate::error::Error;
use crate::registry::kind::SubresourceAction;
use crate::request::options::WriteOptions;

/// Performs the action of the subresource. Returns status code and body.
pub(crate) async fn create(
    call: &RequestContext<'_>,
    action: &SubresourceAction,
    body: &[u8],
) -> Result<(StatusCode, Value), Error> {
    let SubresourceAction::Create { group, version, kind, type_name } = *action else {
        return Err(Error::MethodNotAllowed);
    };
    let options = WriteOptions::parse(call.query, "CreateOptions")?;
    let expected = ExpectedType { group, version, kind, type_name };
    let decode = || decode::object(call, expected, body, options.field_validation);
    let draft = call.run_offloaded(body.len(), decode).await?;
    match kind {
        "TokenRequest" => token::request(call, draft.value, &options),
        "Eviction" => eviction::evict(call, draft.value, &options).await,
        "Binding" => binding::bind(call, draft.value, &options).await,
        _ => Err(Error::MethodNotAllowed),
    }
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}
