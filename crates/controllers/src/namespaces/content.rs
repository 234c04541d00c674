//! Deletion of the content of a namespace, resource by resource.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use kube::{Client, Error};
use windlass_runtime::client_error::describe;
use windlass_runtime::watch::ObjectMetadata;

use crate::api_catalog::{ApiCatalog, CatalogSnapshot, ServedResource};

/// Result of deleting the content of a namespace.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DeletionReport {
    /// Discovery error, as text for the condition.
    pub discovery: Option<String>,
    /// Message about group-versions that do not parse; `None` if all do.
    pub malformed: Option<String>,
    /// Errors of the deletion, by resource.
    pub failures: Vec<String>,
    /// Remaining objects, by (group, plural).
    pub remaining: BTreeMap<(String, String), usize>,
    /// Remaining objects with finalizers, by finalizer.
    pub finalizers: BTreeMap<String, usize>,
}

/// Maximum age of a discovery result.
const FRESH: Duration = Duration::from_secs(1);
/// Number of resources that are deleted concurrently.
const AT_ONCE: usize = 8;
/// Page size of list requests.
const PAGE: u32 = 500;

/// Deletes everything in a namespace and reports what is left.
pub async fn delete_content(client: &Client, catalog: &ApiCatalog, namespace: &str) -> DeletionReport {
    let mut findings = DeletionReport::default();
    let snapshot = match catalog.refresh(FRESH).await {
        Ok(snapshot) => snapshot,
        Err(error) => {
            findings.discovery = Some(describe(error.as_ref()));
            return findings;
        }
    };
    record_discovery_failures(&mut findings, &snapshot);
    let all = snapshot.preferred(&["delete"]).filter(|resource| resource.namespaced);
    // Pods first: they must not outlive the policies and secrets around them.
    let (pods, others): (Vec<_>, Vec<_>) =
        all.cloned().partition(|resource| resource.group_resource() == ("", "pods"));
    for kinds in [pods, others] {
        let emptied = stream::iter(kinds)
            .map(|resource| async move {
                let left = delete_resource(client, &resource, namespace).await;
                (resource, left)
            })
            .buffer_unordered(AT_ONCE);
        for (resource, left) in emptied.collect::<Vec<_>>().await {
            findings.add(&resource, namespace, left);
        }
        if !findings.remaining.is_empty() || !findings.failures.is_empty() {
            break;
        }
    }
    findings
}

fn record_discovery_failures(findings: &mut DeletionReport, snapshot: &CatalogSnapshot) {
    if !snapshot.failures.is_empty() {
        let words = snapshot.failures.iter().map(|(version, why)| format!("{version}: {why}"));
        findings.discovery = Some(format!(
            "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
            snapshot.failures.len(),
            words.collect::<Vec<_>>().join(", ")
        ));
    }
    if let Some(version) = snapshot.malformed.first() {
        findings.malformed = Some(format!("unexpected GroupVersion string: {version}"));
    }
}

impl DeletionReport {
    /// Describes what blocks the deletion of the namespace; `None` if nothing does.
    pub fn blocking_reason(&self) -> Option<String> {
        let failures = self.discovery.iter().chain(&self.malformed).chain(&self.failures);
        let left = self.remaining.iter().map(|((group, plural), n)| {
            let dot = if group.is_empty() { "" } else { "." };
            format!("{n} {plural}{dot}{group} remaining")
        });
        let words: Vec<String> = failures.cloned().chain(left).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }

    /// Whether an error occurred, as opposed to a deletion that is in progress.
    pub fn has_failed(&self) -> bool {
        self.discovery.is_some() || self.malformed.is_some() || !self.failures.is_empty()
    }

    fn add(&mut self, resource: &ServedResource, namespace: &str, left: kube::Result<Vec<ObjectMetadata>>) {
        let left = match left {
            Ok(left) if left.is_empty() => return,
            Ok(left) => left,
            Err(error) => {
                self.failures.push(error.to_string());
                return;
            }
        };
        let (group, plural) = resource.group_resource();
        self.remaining.insert((group.to_owned(), plural.to_owned()), left.len());
        let mut under_way = false;
        for object in &left {
            let meta = &object.metadata;
            under_way |= meta.deletion_grace_period_seconds.is_some_and(|seconds| seconds > 0);
            for finalizer in meta.finalizers.iter().flatten() {
                under_way = true;
                *self.finalizers.entry(finalizer.clone()).or_insert(0) += 1;
            }
        }
        if !under_way {
            let version = &resource.api.version;
            self.failures.push(format!(
                "unexpected items still remain in namespace: {namespace} for gvr: {group}/{version}, Resource={plural}"
            ));
        }
    }
}

/// Deletes all objects of a kind in a namespace. Returns those that still exist afterwards.
async fn delete_resource(
    client: &Client,
    resource: &ServedResource,
    namespace: &str,
) -> kube::Result<Vec<ObjectMetadata>> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource.api);
    let found = match resource.supports("list") {
        true => list_all(&api).await?,
        false => Vec::new(),
    };
    let delete = DeleteParams::background();
    if resource.supports("deletecollection") {
        if !resource.supports("list") || !found.is_empty() {
            ignore_unserved(api.delete_collection(&delete, &ListParams::default()).await)?;
        }
    } else {
        for name in found.iter().filter_map(|object| object.metadata.name.as_deref()) {
            ignore_unserved(api.delete(name, &delete).await)?;
        }
    }
    if found.is_empty() { Ok(found) } else { list_all(&api).await }
}

async fn list_all(api: &Api<DynamicObject>) -> kube::Result<Vec<ObjectMetadata>> {
    let mut found = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let Some(list) = ignore_unserved(api.list_metadata(&page).await)? else { return Ok(found) };
        found.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Ignores resources and objects that do not exist or do not support the verb: they leave nothing to delete.
fn ignore_unserved<T>(answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Error::Api(status)) if matches!(status.code, 404 | 405) => Ok(None),
        Err(error) => Err(error),
    }
}
