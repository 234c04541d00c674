//! Applies the entries of the signers file as Signer objects, with a field manager of their own, and deletes objects
//! whose entries were removed.

use std::convert::Infallible;
use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::core::ApiResource;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use windlass_pki::fingerprint;
use windlass_runtime::backoff::Backoff;
use windlass_runtime::client_error::describe;

use super::super::config::{MANAGED_BY, SignersConfig};
use super::super::object_name;
use super::sources::DEBOUNCE;
use super::{SignerObjects, SignerSources, spec};
use crate::csr::{is_conflict, is_not_found};

/// Field manager of the applied objects.
const FIELD_MANAGER: &str = "windlass-signers-file";
/// Annotation with the path of the file that an object comes from.
pub(super) const FILE_ANNOTATION: &str = "windlass.dev/signers-file";
/// Annotation with a hash of the entry as it was applied.
const HASH_ANNOTATION: &str = "windlass.dev/signers-file-entry";
const RETRY: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

/// Write that brings one object in line with the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FileAction {
    /// Applies the object of an entry.
    Apply {
        /// Name of the object, derived from the signer's name.
        name: String,
        /// Spec that the entry of the file describes.
        spec: Value,
    },
    /// Deletes the object of an entry that was removed.
    Delete {
        /// Name of the object.
        name: String,
        /// UID of the object, so that no other object of the name is deleted.
        uid: Option<String>,
    },
}

/// Compares the entries of a file with the objects.
pub(super) fn plan(entries: &SignersConfig, path: &str, objects: &SignerObjects) -> Vec<FileAction> {
    let names: Vec<String> = entries.signers.iter().map(|entry| object_name(&entry.name)).collect();
    let mut actions = Vec::new();
    for (name, entry) in names.iter().zip(&entries.specs) {
        let is_defined = |(other, object): (&String, &DynamicObject)| {
            other != name
                && spec(object).get("signerName") == entry.get("signerName")
                && !is_from(object, path)
        };
        // An object that somebody else created takes precedence.
        if objects.iter().any(is_defined) {
            continue;
        }
        if !objects.get(name).is_some_and(|object| is_applied(object, entry, path)) {
            actions.push(FileAction::Apply { name: name.clone(), spec: entry.clone() });
        }
    }
    let removed = objects.iter().filter(|(name, object)| is_from(object, path) && !names.contains(name));
    actions
        .extend(removed.map(|(name, object)| FileAction::Delete { name: name.clone(), uid: object.uid() }));
    actions
}

fn is_from(object: &DynamicObject, path: &str) -> bool {
    object.annotations().get(FILE_ANNOTATION).is_some_and(|file| file == path)
        && object.labels().get(MANAGED_BY.0).is_some_and(|manager| manager == MANAGED_BY.1)
}

/// Whether an object is as it was applied for this entry. Other managers may have added fields.
fn is_applied(object: &DynamicObject, entry: &Value, path: &str) -> bool {
    is_from(object, path)
        && object.annotations().get(HASH_ANNOTATION) == Some(&entry_hash(entry))
        && covers(spec(object), entry)
}

fn covers(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| found.get(key).is_some_and(|found| covers(found, value)))
        }
        _ => found == wanted,
    }
}

fn entry_hash(entry: &Value) -> String {
    fingerprint(entry.to_string().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Applies the file whenever it or the objects change.
pub(super) async fn run(
    api: &Api<DynamicObject>,
    resource: &ApiResource,
    sources: &SignerSources,
) -> Infallible {
    let Some(file) = sources.file() else { return std::future::pending().await };
    let (mut entries, mut objects) = (sources.entries(), sources.objects());
    let path = file.path().display().to_string();
    let mut failures = 0;
    loop {
        let (content, found) = (entries.borrow_and_update().clone(), objects.borrow_and_update().clone());
        let mut failed = false;
        for action in found.map(|found| plan(&content, &path, &found)).unwrap_or_default() {
            if let Err(error) = execute(api, resource, &path, &action).await {
                failed = true;
                let error = describe(&error);
                tracing::warn!(%path, error, "cannot apply the signers file as Signer objects; retrying");
            }
        }
        failures = if failed { failures + 1 } else { 0 };
        let retry = async {
            match failures {
                0 => std::future::pending().await,
                failures => tokio::time::sleep(RETRY.delay(failures - 1, rand::random())).await,
            }
        };
        tokio::select! {
            () = retry => {}
            Ok(()) = entries.changed() => {}
            Ok(()) = objects.changed(), if failures == 0 => {}
        }
        tokio::time::sleep(DEBOUNCE).await;
    }
}

async fn execute(
    api: &Api<DynamicObject>,
    resource: &ApiResource,
    path: &str,
    action: &FileAction,
) -> kube::Result<()> {
    match action {
        FileAction::Apply { name, spec } => {
            let object = json!({
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {
                    "name": name,
                    "labels": {MANAGED_BY.0: MANAGED_BY.1},
                    "annotations": {FILE_ANNOTATION: path, HASH_ANNOTATION: entry_hash(spec)},
                },
                "spec": spec,
            });
            let parameters = PatchParams::apply(FIELD_MANAGER).force();
            api.patch(name, &parameters, &Patch::Apply(object)).await.map(drop)
        }
        FileAction::Delete { name, uid } => {
            let preconditions = Preconditions { uid: uid.clone(), resource_version: None };
            let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match api.delete(name, &parameters).await {
                Err(error) if !is_not_found(&error) && !is_conflict(&error) => Err(error),
                _ => Ok(()),
            }
        }
    }
}
