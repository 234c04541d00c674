//! ServiceAccount: pods run as a service account of their namespace and get a token for it.
//!
//! A new pod gets the account `default` unless it names one, the account's pull secrets unless it
//! has some, and a volume with a token at a fixed path in every container. An account can restrict
//! its pods to the secrets that it lists.

mod references;
mod token_volume;

use std::time::Duration;

use serde_json::{Value, json};
use windlass_api::field::quote;
use windlass_api::meta::ObjectMetaView;

use super::AdmissionOperation;
use crate::error::Error;
use crate::verbs::RequestContext;

/// Service account of pods that name none. A controller creates it in every new namespace.
const DEFAULT: &str = "default";

/// How long a pod creation waits for a missing default account.
const PATIENCE: Duration = Duration::from_secs(1);

/// Annotation of mirror pods, which represent a node's static pods.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Annotation of accounts that restrict their pods to the secrets they list.
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

/// Waits briefly for the default service account of a new namespace.
pub(super) async fn wait_for_default(call: &RequestContext<'_>, object: &Value) {
    if !is_pods(call) || is_mirror(object) || !matches!(account_name(object), "" | DEFAULT) {
        return;
    }
    let namespace = call.path.namespace.as_str();
    if call.server.core("namespaces").map_or(true, |all| all.get(namespace).is_none()) {
        return;
    }
    let Ok(accounts) = call.server.core("serviceaccounts") else { return };
    let key = format!("{namespace}/{DEFAULT}");
    // Before the first lookup, so that no change in between is missed.
    let mut changes = accounts.subscribe();
    let appeared = async {
        while accounts.get(&key).is_none() {
            if changes.changed().await.is_err() {
                return;
            }
        }
    };
    // `admit` checks whether the account exists.
    let _ = tokio::time::timeout(PATIENCE, appeared).await;
}

/// Gives a new pod its service account and token volume.
pub(super) fn admit(
    call: &RequestContext<'_>,
    operation: AdmissionOperation<'_>,
    object: &mut Value,
) -> Result<(), Error> {
    if !is_pods(call) {
        return Ok(());
    }
    match (operation, call.path.subresource.as_str()) {
        (AdmissionOperation::Create, "") if is_mirror(object) => {
            check_mirror(object).map_err(|why| forbidden(call, object, why.into()))
        }
        (AdmissionOperation::Create, "") => mutate_pod(call, object),
        (AdmissionOperation::Update(old), "ephemeralcontainers") => check_added(call, old, object),
        (AdmissionOperation::Create | AdmissionOperation::Update(_) | AdmissionOperation::Delete, _) => {
            Ok(())
        }
    }
}

fn is_pods(call: &RequestContext<'_>) -> bool {
    call.kind.plural == "pods" && call.served.group.is_empty()
}

fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"].get(MIRROR).is_some()
}

fn account_name(pod: &Value) -> &str {
    pod["spec"]["serviceAccountName"].as_str().unwrap_or_default()
}

/// A mirror pod describes what a node runs: nothing may be added to it, and a node must not gain
/// access to secrets or accounts through it.
fn check_mirror(pod: &Value) -> Result<(), &'static str> {
    if !account_name(pod).is_empty() {
        return Err("a mirror pod may not reference service accounts");
    }
    if references::any_secret(&pod["spec"]) {
        return Err("a mirror pod may not reference secrets");
    }
    if references::any_token(&pod["spec"]) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

fn mutate_pod(call: &RequestContext<'_>, pod: &mut Value) -> Result<(), Error> {
    let name = match account_name(pod) {
        "" => DEFAULT.to_owned(),
        name => name.to_owned(),
    };
    let account = get_account(call, &name).map_err(|why| forbidden(call, pod, why))?;
    let spec = &mut pod["spec"];
    spec["serviceAccountName"] = json!(name);
    // The deprecated alias of the same field.
    spec["serviceAccount"] = json!(name);
    let asked = |object: &Value| object.get("automountServiceAccountToken")?.as_bool();
    if asked(spec).or_else(|| asked(&account)).unwrap_or(true) {
        token_volume::mount(spec);
    }
    inherit_pull_secrets(spec, &account);
    if enforces(&account) {
        references::check_pod(spec, &account).map_err(|why| forbidden(call, pod, why))?;
    }
    Ok(())
}

/// Ephemeral containers added to a running pod must follow the rules of its service account.
fn check_added(call: &RequestContext<'_>, old: &Value, new: &Value) -> Result<(), Error> {
    let name = account_name(old);
    if name.is_empty() {
        let pod = format!("{}/{}", call.path.namespace, call.path.name);
        let why = format!("no service account specified for pod {pod}");
        return Err(forbidden(call, new, why));
    }
    let account = get_account(call, name).map_err(|why| forbidden(call, new, why))?;
    if !enforces(&account) {
        return Ok(());
    }
    references::check_ephemeral(&new["spec"], &account).map_err(Error::Unclassified)
}

fn get_account(call: &RequestContext<'_>, name: &str) -> Result<Value, String> {
    let namespace = &call.path.namespace;
    let key = format!("{namespace}/{name}");
    // Accounts that cannot be looked up count as missing.
    let found = call.server.core_object("serviceaccounts", &key).ok().flatten();
    found.ok_or_else(|| {
        let missing = quote(name);
        format!("error looking up service account {namespace}/{name}: serviceaccount {missing} not found")
    })
}

fn inherit_pull_secrets(spec: &mut Value, account: &Value) {
    let listed = |object: &Value| object["imagePullSecrets"].as_array().cloned().unwrap_or_default();
    if !listed(spec).is_empty() {
        return;
    }
    let secrets: Vec<Value> = listed(account)
        .iter()
        .map(|secret| match secret.get("name") {
            Some(name) => json!({ "name": name }),
            None => json!({}),
        })
        .collect();
    if !secrets.is_empty() {
        spec["imagePullSecrets"] = Value::Array(secrets);
    }
}

/// Parses the annotation like Go's `ParseBool`; an invalid value counts as false, as in Kubernetes.
fn enforces(account: &Value) -> bool {
    let value = account["metadata"]["annotations"][ENFORCE].as_str();
    matches!(value, Some("1" | "t" | "T" | "true" | "True" | "TRUE"))
}

fn forbidden(call: &RequestContext<'_>, pod: &Value, why: String) -> Error {
    let meta = ObjectMetaView::from_object(pod);
    let name = match (call.path.name.as_str(), meta.name(), meta.generate_name()) {
        ("", "", "") => "Unknown",
        ("", "", generated) => generated,
        ("", name, _) => name,
        (path, ..) => path,
    };
    Error::Forbidden(call.subject(name), why)
}
