//! POST to a subresource that does something: tokens, evictions, bindings.

mod binding;
mod eviction;
mod token;

use http::StatusCode;
use serde_json::{Value, json};

use super::Call;
use super::decode::{self, Expected};
use crate::error::Error;
use crate::registry::kind::Action;
use crate::request::options::WriteOptions;

/// Does what the subresource is for. Answers with a code and a body.
pub async fn create(
    call: &Call<'_>,
    action: &Action,
    body: &[u8],
) -> Result<(StatusCode, Value), Error> {
    let Action::Create { group, version, kind, type_name } = *action else {
        return Err(Error::MethodNotAllowed);
    };
    let options = WriteOptions::parse(call.query, "CreateOptions")?;
    let expected = Expected { group, version, kind, type_name };
    let decode = || decode::object(call, expected, body, options.field_validation);
    let draft = call.work(body.len(), decode).await?;
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
