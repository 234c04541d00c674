//! SubjectAccessReview and its variants.

mod selectors;
mod validate;

use serde_json::{Map, Value, json};
use windlass_api::field::FieldErrors;
use windlass_api::meta::ObjectMetaView;

use self::selectors::ReviewSelectors;
use crate::chain::authz::Decision;
use crate::chain::authz::attributes::{AuthorizationAttributes, AuthorizationTarget, ResourceAttributes};
use crate::error::Error;
use crate::user::User;
use crate::verbs::RequestContext;
use crate::verbs::write_path::metadata_mut;

/// Answers a SubjectAccessReview about any user in any namespace.
pub(super) fn answer(call: &RequestContext<'_>, question: &mut Value) -> Result<(), Error> {
    metadata_mut(question).remove("namespace");
    let mut errors = FieldErrors::new();
    validate::spec(&question["spec"], &mut errors);
    validate::subject(&question["spec"], &mut errors);
    validate::attributes(&question["spec"], &mut errors);
    validate::metadata(&question["metadata"], &[], "must be empty", &mut errors);
    check(errors)?;
    let user = subject(&question["spec"]);
    decide(call, &user, question);
    Ok(())
}

/// Answers a LocalSubjectAccessReview about any user, in the namespace of the path.
pub(super) fn answer_local(call: &RequestContext<'_>, question: &mut Value) -> Result<(), Error> {
    place(call, question)?;
    let mut errors = FieldErrors::new();
    validate::spec(&question["spec"], &mut errors);
    validate::subject(&question["spec"], &mut errors);
    validate::attributes(&question["spec"], &mut errors);
    let words = "must be empty except for namespace";
    validate::metadata(&question["metadata"], &["namespace"], words, &mut errors);
    validate::local(question, &mut errors);
    check(errors)?;
    let user = subject(&question["spec"]);
    decide(call, &user, question);
    Ok(())
}

/// Answers a SelfSubjectAccessReview about the calling user.
pub(super) fn answer_self(call: &RequestContext<'_>, question: &mut Value) -> Result<(), Error> {
    metadata_mut(question).remove("namespace");
    let mut errors = FieldErrors::new();
    validate::spec(&question["spec"], &mut errors);
    validate::attributes(&question["spec"], &mut errors);
    validate::metadata(&question["metadata"], &[], "must be empty", &mut errors);
    check(errors)?;
    decide(call, call.user, question);
    Ok(())
}

/// Sets the namespace of a review posted to a namespace.
fn place(call: &RequestContext<'_>, question: &mut Value) -> Result<(), Error> {
    let (own, path) = (ObjectMetaView::from_object(question).namespace(), call.path.namespace.as_str());
    if !own.is_empty() && own != path {
        let text = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Error::BadRequest(text.into()));
    }
    metadata_mut(question).insert("namespace".into(), json!(path));
    Ok(())
}

/// Kubernetes takes the kind from an object that has lost it by then, so the text starts with a
/// dot.
fn check(errors: FieldErrors) -> Result<(), Error> {
    if errors.is_empty() {
        return Ok(());
    }
    let group = "authorization.k8s.io".into();
    Err(Error::Invalid { group, kind: String::new(), name: String::new(), errors })
}

fn subject(spec: &Value) -> User {
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: text(&spec["user"]).into(),
        uid: text(&spec["uid"]).into(),
        groups: texts(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect(),
    }
}

/// Writes the decision into the status of the review.
fn decide(call: &RequestContext<'_>, user: &User, question: &mut Value) {
    let spec = &question["spec"];
    let (what, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let selectors = ReviewSelectors::parse(what);
    let (verb, target) = if what.is_null() {
        (text(&path["verb"]), AuthorizationTarget::Path(text(&path["path"])))
    } else {
        let version = text(&what["version"]);
        let resource = ResourceAttributes {
            group: text(&what["group"]),
            version: if version.is_empty() { "*" } else { version },
            resource: text(&what["resource"]),
            subresource: text(&what["subresource"]),
            namespace: text(&what["namespace"]),
            name: text(&what["name"]),
            fields: selectors.fields.as_ref(),
        };
        (text(&what["verb"]), AuthorizationTarget::Resource(resource))
    };
    let decision = call.server.authorizer.decide(&AuthorizationAttributes { user, verb, target });
    question["status"] = status(&decision, &selectors.errors);
}

fn status(decision: &Decision, errors: &[String]) -> Value {
    let (allowed, denied, reason) = match decision {
        Decision::Allow(why) => (true, false, why),
        Decision::Deny(why) => (false, true, why),
        Decision::NoOpinion(why) => (false, false, why),
    };
    let mut status = Map::new();
    status.insert("allowed".into(), json!(allowed));
    if denied {
        status.insert("denied".into(), json!(true));
    }
    if !reason.is_empty() {
        status.insert("reason".into(), json!(reason));
    }
    if !errors.is_empty() {
        status.insert("evaluationError".into(), json!(errors.join("; ")));
    }
    Value::Object(status)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn texts(list: &Value) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    all.map(|v| text(v).to_owned()).collect()
}
