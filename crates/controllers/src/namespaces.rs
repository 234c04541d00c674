//! Namespace deletion: deletes the content of a terminating namespace, reports what blocks that, and removes the
//! finalizer when nothing is left.

mod conditions;
mod content;

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use serde_json::{Value, json};
use windlass_runtime::backoff::Backoff;
use windlass_runtime::metrics::ControllerMetrics;
use windlass_runtime::watch::{ObjectMetadata, watch_metadata};
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::{Requeue, run_workers};

use crate::api_catalog::ApiCatalog;

use content::DeletionReport;

const WORKERS: usize = 4;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(15));

/// Finalizer that this controller removes.
const FINALIZER: &str = "kubernetes";

/// Deletes the contents of terminating namespaces; does not return.
pub async fn run(
    client: Client,
    catalog: Arc<ApiCatalog>,
    terminating: Arc<TerminatingNamespaces>,
) -> Infallible {
    let queue = terminating.queue.clone();
    let resource = ApiResource::erase::<Namespace>(&());
    let watch = watch_metadata(client.clone(), &resource, None, queue.metrics(), |event| {
        if let Event::Apply(ObjectMetadata { metadata, .. })
        | Event::InitApply(ObjectMetadata { metadata, .. }) = event
            && metadata.deletion_timestamp.is_some()
            && let Some(name) = metadata.name
        {
            queue.add(name);
        }
    });
    let reconcile = |name: String| {
        let (client, catalog, terminating) = (client.clone(), catalog.clone(), terminating.clone());
        async move {
            // Before the first read, so that objects that are deleted meanwhile are not missed.
            terminating.insert(&name);
            let next = reconcile(client, &catalog, &name).await;
            if matches!(next, Ok(Requeue::Done)) {
                terminating.remove(&name);
            }
            next
        }
    };
    tokio::join!(watch, run_workers(queue.clone(), WORKERS, reconcile)).0
}

/// Terminating namespaces that wait for their content. The garbage collector, which sees objects being deleted,
/// requeues them at once.
#[derive(Debug)]
pub struct TerminatingNamespaces {
    queue: Arc<WorkQueue<String>>,
    waiting: Mutex<HashSet<String>>,
}

impl TerminatingNamespaces {
    /// Creates an empty set with its own work queue.
    pub fn new(metrics: Arc<ControllerMetrics>) -> TerminatingNamespaces {
        let queue = Arc::new(WorkQueue::new(metrics, BACKOFF));
        TerminatingNamespaces { queue, waiting: Mutex::default() }
    }

    /// Requeues the namespace of an object that was deleted, if it is terminating.
    pub fn object_removed(&self, namespace: &str) {
        if self.lock().contains(namespace) {
            self.queue.add(namespace.to_owned());
        }
    }

    fn insert(&self, namespace: &str) {
        self.lock().insert(namespace.to_owned());
    }

    fn remove(&self, namespace: &str) {
        self.lock().remove(namespace);
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn reconcile(client: Client, catalog: &ApiCatalog, name: &str) -> anyhow::Result<Requeue> {
    let resource = ApiResource::erase::<Namespace>(&());
    // Untyped, so that unknown fields survive the write.
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let Some(mut namespace) = api.get_opt(name).await? else { return Ok(Requeue::Done) };
    if namespace.metadata.deletion_timestamp.is_none() || !has_finalizer(&namespace) {
        return Ok(Requeue::Done);
    }
    let findings = content::delete_content(&client, catalog, name).await;
    let now = k8s_openapi::jiff::Timestamp::now();
    if write_conditions(&mut namespace, &findings, &now.strftime("%FT%TZ").to_string()) {
        let written = api.replace_status(name, &PostParams::default(), &namespace).await;
        match ignore_gone(written)? {
            Some(newer) => namespace = newer,
            None => return Ok(Requeue::Done),
        }
    }
    match findings.blocking_reason() {
        Some(reason) if findings.has_failed() => anyhow::bail!(reason),
        Some(reason) => Ok(Requeue::WithBackoff(reason)),
        None => finalize(&api, namespace, name).await,
    }
}

fn has_finalizer(namespace: &DynamicObject) -> bool {
    let finalizers = namespace.data.pointer("/spec/finalizers").and_then(Value::as_array);
    finalizers.is_some_and(|list| list.iter().any(|finalizer| finalizer == FINALIZER))
}

/// Updates the conditions in the status; returns whether any changed.
fn write_conditions(namespace: &mut DynamicObject, findings: &DeletionReport, now: &str) -> bool {
    let Some(object) = namespace.data.as_object_mut() else { return false };
    let status = object.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else { return false };
    // Older servers may not have set it.
    status.insert("phase".into(), "Terminating".into());
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    match conditions {
        Value::Array(list) => conditions::update(list, findings, now),
        _ => false,
    }
}

/// Removes the finalizer; the server then deletes the namespace.
async fn finalize(
    api: &Api<DynamicObject>,
    mut namespace: DynamicObject,
    name: &str,
) -> anyhow::Result<Requeue> {
    if let Some(list) = namespace.data.pointer_mut("/spec/finalizers").and_then(Value::as_array_mut) {
        list.retain(|finalizer| finalizer != FINALIZER);
    }
    let written = api.replace_subresource("finalize", name, &PostParams::default(), &namespace).await;
    ignore_gone(written)?;
    Ok(Requeue::Done)
}

/// Returns the written object; `None` if it is gone.
fn ignore_gone(answer: kube::Result<DynamicObject>) -> anyhow::Result<Option<DynamicObject>> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error).context("cannot write namespace"),
    }
}
