//! SelfSubjectReview: identity of the caller.

use serde_json::{Map, Value, json};
use windlass_api::timestamp;

use crate::error::Error;
use crate::user::User;
use crate::verbs::RequestContext;

/// Writes the user into the status of the review.
pub(super) fn answer(call: &RequestContext<'_>, question: &mut Value) -> Result<(), Error> {
    question["metadata"] = json!({"creationTimestamp": timestamp::format(call.now)});
    question["status"] = json!({"userInfo": user_info(call.user)});
    Ok(())
}

/// Returns a user as reviews encode it, without empty fields.
pub(super) fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    for (key, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            info.insert(key.into(), json!(text));
        }
    }
    if !user.groups.is_empty() {
        info.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        info.insert("extra".into(), json!(user.extra));
    }
    Value::Object(info)
}
