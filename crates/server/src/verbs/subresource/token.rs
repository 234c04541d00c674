//! `serviceaccounts/token`: issues a token for a service account.
//!
//! Kubernetes extends pod tokens requested for 3607 seconds to a year, for clients older than token
//! expiry (`--service-account-extend-token-expiration`). Here a token lasts as long as requested.

use http::StatusCode;
use serde_json::{Value, json};
use time::Duration;
use windlass_api::field::{FieldErrors, FieldPath, quote};
use windlass_api::meta::ObjectMetaView;
use windlass_api::timestamp;

use crate::chain::admission::{self, AdmissionOperation};
use crate::error::{Error, ErrorSubject};
use crate::request::options::WriteOptions;
use crate::verbs::{RequestContext, get};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";

/// Kubernetes' limits on a token's lifetime, in seconds.
const SHORTEST: i64 = 10 * 60;
const MAX_EXPIRATION_SECONDS: i64 = 1 << 32;
const DEFAULT: i64 = 60 * 60;

/// Issues a token for the service account of the path.
pub(super) fn request(
    call: &RequestContext<'_>,
    mut request: Value,
    options: &WriteOptions,
) -> Result<(StatusCode, Value), Error> {
    check_namespace(call, &request)?;
    admission::mutate(call, AdmissionOperation::Create, &mut request)?;
    check_name(call, &request)?;
    let account = get::get_object(call)?.stored_value();
    check_account_uid(&request, &account)?;
    let signer = call.server.tokens.as_ref();
    let signer = signer
        .ok_or_else(|| Error::Unavailable("this server has no key to sign service account tokens".into()))?;
    complete(call, &mut request, &account, signer.issuer());
    let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or_default();
    check_lifetime(seconds)?;
    admission::validate(call, AdmissionOperation::Create, &request)?;
    let meta = ObjectMetaView::from_object(&account);
    let mut about = json!({
        "namespace": meta.namespace(),
        "serviceaccount": {"name": meta.name(), "uid": meta.uid()},
    });
    bind(call, &request["spec"]["boundObjectRef"], &account, &mut about)?;
    let from = call.now.unix_timestamp();
    let claims = json!({
        "sub": format!("system:serviceaccount:{}:{}", meta.namespace(), meta.name()),
        "aud": request["spec"]["audiences"],
        "iat": from,
        "nbf": from,
        "exp": from.saturating_add(seconds),
        "jti": uuid::Uuid::new_v4().to_string(),
        "kubernetes.io": about,
    });
    let token = if options.dry_run {
        String::new()
    } else {
        signer.sign(claims).map_err(|e| Error::Internal(e.to_string()))?
    };
    let until = call.now + Duration::seconds(seconds);
    request["status"] = json!({"token": token, "expirationTimestamp": timestamp::format(until)});
    Ok((StatusCode::CREATED, request))
}

/// A name in the request must match the service account of the path.
fn check_name(call: &RequestContext<'_>, request: &Value) -> Result<(), Error> {
    let name = ObjectMetaView::from_object(request).name();
    if name.is_empty() || name == call.path.name {
        return Ok(());
    }
    let mut errors = FieldErrors::new();
    let why = "must match the service account name if specified";
    errors.invalid_str(&FieldPath::new("metadata").child("name"), name, why);
    Err(invalid(&call.path.name, errors))
}

/// A namespace in the request must match the path, as for every object.
fn check_namespace(call: &RequestContext<'_>, request: &Value) -> Result<(), Error> {
    let namespace = ObjectMetaView::from_object(request).namespace();
    if namespace.is_empty() || namespace == call.path.namespace {
        return Ok(());
    }
    let text = "the namespace of the provided object does not match the namespace sent on the request";
    Err(Error::BadRequest(text.into()))
}

fn invalid(name: &str, errors: FieldErrors) -> Error {
    Error::Invalid { group: GROUP.into(), kind: KIND.into(), name: name.to_owned(), errors }
}

fn check_account_uid(request: &Value, account: &Value) -> Result<(), Error> {
    let (asked, there) =
        (ObjectMetaView::from_object(request).uid(), ObjectMetaView::from_object(account).uid());
    if asked.is_empty() || asked == there {
        return Ok(());
    }
    let why = format!(
        "the UID in the token request ({asked}) does not match the UID of the service account ({there})"
    );
    Err(Error::Conflict(ErrorSubject::new(GROUP, KIND, ObjectMetaView::from_object(account).name()), why))
}

/// Fills in the defaults: audience, lifetime and service account.
fn complete(call: &RequestContext<'_>, request: &mut Value, account: &Value, issuer: &str) {
    let spec = &mut request["spec"];
    if spec["audiences"].as_array().is_none_or(Vec::is_empty) {
        let own = call.server.authenticator.audiences();
        spec["audiences"] = if own.is_empty() { json!([issuer]) } else { json!(own) };
    }
    if spec["expirationSeconds"].is_null() {
        spec["expirationSeconds"] = json!(DEFAULT);
    }
    let meta = ObjectMetaView::from_object(account);
    request["metadata"]["name"] = json!(meta.name());
    request["metadata"]["namespace"] = json!(meta.namespace());
    request["metadata"]["uid"] = json!(meta.uid());
    request["metadata"]["creationTimestamp"] = json!(timestamp::format(call.now));
}

fn check_lifetime(seconds: i64) -> Result<(), Error> {
    let mut errors = FieldErrors::new();
    let at = FieldPath::new("spec").child("expirationSeconds");
    if seconds < SHORTEST {
        let why = "may not specify a duration less than 10 minutes";
        errors.invalid(&at, &json!(seconds), why);
    }
    if seconds > MAX_EXPIRATION_SECONDS {
        let why = "may not specify a duration larger than 2^32 seconds";
        errors.invalid(&at, &json!(seconds), why);
    }
    if errors.is_empty() { Ok(()) } else { Err(invalid("", errors)) }
}

/// Binds a token to an object, which must exist with the given UID.
fn bind(call: &RequestContext<'_>, bound: &Value, account: &Value, about: &mut Value) -> Result<(), Error> {
    if bound.is_null() {
        return Ok(());
    }
    let text = |field: &str| bound[field].as_str().unwrap_or_default();
    let (kind, name, uid) = (text("kind"), text("name"), text("uid"));
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let namespace = ObjectMetaView::from_object(account).namespace();
    let (plural, key, claim) = match (group, kind) {
        ("", "Pod") => ("pods", format!("{namespace}/{name}"), "pod"),
        ("", "Secret") => ("secrets", format!("{namespace}/{name}"), "secret"),
        ("", "Node") => ("nodes", name.to_owned(), "node"),
        _ => {
            let text = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Error::BadRequest(text));
        }
    };
    let found = call.server.core_object(plural, &key)?;
    let found = found.ok_or_else(|| Error::NotFound(ErrorSubject::new("", plural, name)))?;
    if claim == "pod" {
        check_runs_as(&found, ObjectMetaView::from_object(account).name())?;
        bind_node(call, &found, about)?;
    }
    let there = ObjectMetaView::from_object(&found).uid();
    if !uid.is_empty() && uid != there {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Error::Conflict(ErrorSubject::new("", kind, name), why));
    }
    about[claim] = json!({"name": name, "uid": there});
    Ok(())
}

fn check_runs_as(pod: &Value, account: &str) -> Result<(), Error> {
    if pod["spec"]["serviceAccountName"].as_str().unwrap_or_default() == account {
        return Ok(());
    }
    let text = format!(
        "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
        quote(account)
    );
    Err(Error::BadRequest(text))
}

/// Adds the node of a pod to its token, by name only if the Node does not exist.
fn bind_node(call: &RequestContext<'_>, pod: &Value, about: &mut Value) -> Result<(), Error> {
    let Some(node) = pod["spec"]["nodeName"].as_str().filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    about["node"] = json!({"name": node});
    if let Some(object) = call.server.core_object("nodes", node)? {
        about["node"]["uid"] = json!(ObjectMetaView::from_object(&object).uid());
    }
    Ok(())
}
