//! `serviceaccounts/token`: a signed token for a service account.

use http::StatusCode;
use serde_json::{Value, json};
use time::Duration;
use windlass_api::field::{Errors, Path};
use windlass_api::meta::Meta;
use windlass_api::timestamp;

use crate::error::{Error, Subject};
use crate::request::options::WriteOptions;
use crate::verbs::{Call, get};

/// Signs a token for the service account of the path.
pub fn request(
    call: &Call<'_>,
    mut request: Value,
    options: &WriteOptions,
) -> Result<(StatusCode, Value), Error> {
    check_account_name(&request, &call.path.name)?;
    let account = get::find(call)?;
    let account = account.stored_value();
    check_account_uid(&request, &account)?;
    let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT);
    check_lifetime(seconds)?;
    let signer = call.server.tokens.as_ref();
    let signer = signer.ok_or_else(|| {
        Error::Unavailable("this server has no key to sign service-account tokens with".into())
    })?;
    let asked = request["spec"]["audiences"].as_array().filter(|a| !a.is_empty()).cloned();
    let audiences = asked.unwrap_or_else(|| vec![json!(signer.issuer())]);
    let meta = Meta::of(&account);
    let mut about = json!({
        "namespace": meta.namespace(),
        "serviceaccount": {"name": meta.name(), "uid": meta.uid()},
    });
    bind_token(call, &request["spec"]["boundObjectRef"], &account, &mut about)?;
    let (from, until) = (call.now.unix_timestamp(), call.now.unix_timestamp() + seconds);
    let claims = json!({
        "sub": format!("system:serviceaccount:{}:{}", meta.namespace(), meta.name()),
        "aud": audiences,
        "iat": from,
        "nbf": from,
        "exp": until,
        "jti": uuid::Uuid::new_v4().to_string(),
        "kubernetes.io": about,
    });
    let token = if options.dry_run {
        String::new()
    } else {
        signer.sign(claims).map_err(|e| Error::Internal(e.to_string()))?
    };
    let until = call.now + Duration::seconds(seconds);
    request["spec"]["audiences"] = json!(audiences);
    request["spec"]["expirationSeconds"] = json!(seconds);
    request["status"] = json!({"token": token, "expirationTimestamp": timestamp::format(until)});
    request["metadata"] = json!({
        "name": meta.name(),
        "namespace": meta.namespace(),
        "uid": meta.uid(),
        "creationTimestamp": timestamp::format(call.now),
    });
    Ok((StatusCode::CREATED, request))
}

/// Kubernetes' bounds on a token's lifetime, in seconds.
const SHORTEST: i64 = 10 * 60;
const LONGEST: i64 = 1 << 32;
const DEFAULT: i64 = 60 * 60;

/// A request that says which account it is for must say the one it is sent to.
fn check_account_name(request: &Value, account: &str) -> Result<(), Error> {
    let asked = Meta::of(request).name();
    if asked.is_empty() || asked == account {
        return Ok(());
    }
    let mut errors = Errors::new();
    let why = "must match the service account name if specified";
    errors.invalid_str(&Path::new("metadata").child("name"), asked, why);
    let (group, kind) = ("authentication.k8s.io".into(), "TokenRequest".into());
    Err(Error::Invalid { group, kind, name: account.to_owned(), errors })
}

fn check_account_uid(request: &Value, account: &Value) -> Result<(), Error> {
    let (asked, there) = (Meta::of(request).uid(), Meta::of(account).uid());
    if asked.is_empty() || asked == there {
        return Ok(());
    }
    let why = format!(
        "the UID in the token request ({asked}) does not match the UID of the service account ({there})"
    );
    let name = Meta::of(account).name();
    Err(Error::Conflict(Subject::new("authentication.k8s.io", "TokenRequest", name), why))
}

fn check_lifetime(seconds: i64) -> Result<(), Error> {
    let mut errors = Errors::new();
    let at = Path::new("spec").child("expirationSeconds");
    if seconds < SHORTEST {
        let why = "may not specify a duration less than 10 minutes";
        errors.invalid(&at, &json!(seconds), why);
    }
    if seconds > LONGEST {
        let why = "may not specify a duration larger than 2^32 seconds";
        errors.invalid(&at, &json!(seconds), why);
    }
    if errors.is_empty() {
        return Ok(());
    }
    let (group, kind) = ("authentication.k8s.io".into(), "TokenRequest".into());
    Err(Error::Invalid { group, kind, name: String::new(), errors })
}

/// Ties a token to an object that must exist and be the one meant.
fn bind_token(
    call: &Call<'_>,
    bound: &Value,
    account: &Value,
    about: &mut Value,
) -> Result<(), Error> {
    let Some(kind) = bound["kind"].as_str() else { return Ok(()) };
    let name = bound["name"].as_str().unwrap_or_default();
    let namespace = Meta::of(account).namespace();
    let (plural, key, claim) = match (bound["apiVersion"].as_str(), kind) {
        (Some("v1"), "Pod") => ("pods", format!("{namespace}/{name}"), "pod"),
        (Some("v1"), "Secret") => ("secrets", format!("{namespace}/{name}"), "secret"),
        (Some("v1"), "Node") => ("nodes", name.to_owned(), "node"),
        _ => {
            let version = bound["apiVersion"].as_str().unwrap_or_default();
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let text =
                format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Error::BadRequest(text));
        }
    };
    let found =
        other(call, plural, &key).ok_or_else(|| Error::NotFound(Subject::new("", plural, name)))?;
    let uid = Meta::of(&found).uid();
    if let Some(asked) = bound["uid"].as_str()
        && !asked.is_empty()
        && asked != uid
    {
        let why = format!(
            "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Error::Conflict(Subject::new("", kind, name), why));
    }
    if kind == "Pod" {
        let runs_as = found["spec"]["serviceAccountName"].as_str().unwrap_or_default();
        if runs_as != Meta::of(account).name() {
            let text = format!(
                "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
                windlass_api::field::quote(Meta::of(account).name())
            );
            return Err(Error::BadRequest(text));
        }
        if let Some(node) = found["spec"]["nodeName"].as_str().filter(|n| !n.is_empty()) {
            let mut claim = json!({"name": node});
            if let Some(object) = other(call, "nodes", node) {
                claim["uid"] = json!(Meta::of(&object).uid());
            }
            about["node"] = claim;
        }
    }
    about[claim] = json!({"name": name, "uid": uid});
    Ok(())
}

fn other(call: &Call<'_>, plural: &str, key: &str) -> Option<Value> {
    let (kind, _) = call.server.registry.by_path("", "v1", plural)?;
    Some(call.server.caches.of(kind)?.get(key)?.stored_value())
}
