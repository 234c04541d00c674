//! Tokens: a node may request tokens of service accounts that its pods run as, bound to such a pod,
//! for an audience that the pod requests.

use std::collections::HashSet;

use serde_json::Value;
use windlass_api::field::quote;
use windlass_api::meta::ObjectMetaView;

use super::{AdmissionResult, NodeWrite, forbidden};
use crate::chain::authz::node::references;
use crate::registry::object_fields::{list, text, texts};

pub(super) fn check(written: &NodeWrite<'_>) -> AdmissionResult {
    let bound = |field| text(&written.object["spec"]["boundObjectRef"], field);
    let name = bound("/name");
    if (bound("/apiVersion"), bound("/kind")) != ("v1", "Pod") || name.is_empty() {
        return forbidden("node requested token not bound to a pod");
    }
    let uid = bound("/uid");
    if uid.is_empty() {
        return forbidden("node requested token with a pod binding without a uid");
    }
    let pod = written.get_pod(name)?;
    if uid != ObjectMetaView::from_object(&pod).uid() {
        return forbidden(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        ));
    }
    if text(&pod, "/spec/nodeName") != written.node {
        return forbidden("node requested token bound to a pod scheduled on a different node");
    }
    audience(written, &pod)
}

fn audience(written: &NodeWrite<'_>, pod: &Value) -> AdmissionResult {
    let mut asked = texts(written.object, "/spec/audiences");
    let audience = asked.next().unwrap_or_default();
    if asked.next().is_some() {
        return forbidden("node may only request 0 or 1 audiences");
    }
    let shown = quote(audience);
    match is_requested(written, pod, audience) {
        Err(why) => forbidden(format!("error validating audience {shown}: {why}")),
        Ok(true) => Ok(()),
        Ok(false) if (written.may_request)(audience) => Ok(()),
        Ok(false) => forbidden(format!(
            "audience {shown} not found in pod spec volume, {} is not authorized to request tokens for this audience",
            written.user
        )),
    }
}

/// Returns true if the pod projects a token for the audience, or a CSI driver of one of its volumes
/// requests it.
fn is_requested(written: &NodeWrite<'_>, pod: &Value, audience: &str) -> Result<bool, String> {
    let mut problems: Vec<String> = Vec::new();
    let mut known = HashSet::new();
    for volume in list(pod, "/spec/volumes") {
        let projected = references::sources(volume).iter().any(|source| {
            let token = source.get("serviceAccountToken").filter(|token| !token.is_null());
            token.is_some_and(|token| text(token, "/audience") == audience)
        });
        if projected {
            return Ok(true);
        }
        match driver_requests(written, pod, volume, audience) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(problem) if known.insert(problem.clone()) => problems.push(problem),
            Err(_) => {}
        }
    }
    match problems.as_slice() {
        [] => Ok(false),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

fn driver_requests(
    written: &NodeWrite<'_>,
    pod: &Value,
    volume: &Value,
    audience: &str,
) -> Result<bool, String> {
    let driver = match references::claim(pod, volume) {
        Some(claim) => driver_of(written, &claim)?,
        None => text(volume, "/csi/driver").to_owned(),
    };
    if driver.is_empty() {
        return Ok(false);
    }
    let found = (written.find)("storage.k8s.io", "csidrivers", "", &driver);
    let found = found.ok_or_else(|| missing("csidriver.storage.k8s.io", &driver))?;
    Ok(list(&found, "/spec/tokenRequests").iter().any(|r| text(r, "/audience") == audience))
}

/// Returns the CSI driver of the volume bound to a claim; empty if none.
fn driver_of(written: &NodeWrite<'_>, claim: &str) -> Result<String, String> {
    let found = (written.find)("", "persistentvolumeclaims", written.namespace, claim);
    let found = found.ok_or_else(|| missing("persistentvolumeclaim", claim))?;
    let name = text(&found, "/spec/volumeName");
    let volume = (written.find)("", "persistentvolumes", "", name);
    let volume = volume.ok_or_else(|| missing("persistentvolume", name))?;
    Ok(text(&volume, "/spec/csi/driver").to_owned())
}

fn missing(kind: &str, name: &str) -> String {
    format!("{kind} {} not found", quote(name))
}
