//! TokenReview: authenticates a token.

use serde_json::{Value, json};

use super::self_subject::user_info;
use crate::chain::authn::TokenAuthError;
use crate::error::Error;
use crate::verbs::RequestContext;

/// Writes the result into the status. The token stays in the spec, as in Kubernetes; it is copied
/// nowhere else.
pub(super) fn answer(call: &RequestContext<'_>, question: &mut Value) -> Result<(), Error> {
    let token = question["spec"]["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        let text = "token is required for TokenReview in authentication";
        return Err(Error::BadRequest(text.into()));
    }
    let authenticator = &call.server.authenticator;
    let asked: Vec<String> = question["spec"]["audiences"]
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    let audiences = if asked.is_empty() { authenticator.audiences() } else { &asked };
    question["status"] = match authenticator.authenticate_token(call.server, token, audiences, call.now) {
        Ok(vouched) => {
            let mut status = json!({"authenticated": true, "user": user_info(&vouched.user)});
            if !vouched.audiences.is_empty() {
                status["audiences"] = json!(vouched.audiences);
            }
            status
        }
        Err(TokenAuthError::Unknown) => json!({"user": {}, "error": UNKNOWN}),
        // Kubernetes asks the authenticator of its loopback client first, and reports both
        // errors.
        Err(TokenAuthError::Refused(why)) => {
            json!({"user": {}, "error": format!("[{UNKNOWN}, {why}]")})
        }
        Err(TokenAuthError::Failed(error)) => return Err(error),
    };
    Ok(())
}

const UNKNOWN: &str = "invalid bearer token";
