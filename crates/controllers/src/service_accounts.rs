//! Service account `default` in every namespace that is not terminating: pods that name no account use it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use kube::core::ApiResource;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use windlass_runtime::backoff::Backoff;
use windlass_runtime::metrics::ControllerMetrics;
use windlass_runtime::watch::{ObjectMetadata, watch_metadata};
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::{Requeue, run_workers};

const NAME: &str = "default";
const WORKERS: usize = 4;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(30));

/// Creates the service account `default` in every namespace; does not return.
pub async fn run(client: Client, metrics: Arc<ControllerMetrics>) -> Infallible {
    let queue = Arc::new(WorkQueue::new(metrics.clone(), BACKOFF));
    let namespaces = ApiResource::erase::<Namespace>(&());
    let accounts = ApiResource::erase::<ServiceAccount>(&());
    let selector = format!("metadata.name={NAME}");
    let new_namespaces = watch_metadata(client.clone(), &namespaces, None, &metrics, |event| {
        if let Event::Apply(ObjectMetadata { metadata, .. })
        | Event::InitApply(ObjectMetadata { metadata, .. }) = event
            && metadata.deletion_timestamp.is_none()
            && let Some(name) = metadata.name
        {
            queue.add(name);
        }
    });
    let lost_accounts = watch_metadata(client.clone(), &accounts, Some(&selector), &metrics, |event| {
        if let Event::Delete(ObjectMetadata { metadata, .. }) = event
            && let Some(namespace) = metadata.namespace
        {
            queue.add(namespace);
        }
    });
    let reconcile = |namespace| reconcile(client.clone(), namespace);
    tokio::join!(new_namespaces, lost_accounts, run_workers(queue.clone(), WORKERS, reconcile)).0
}

async fn reconcile(client: Client, namespace: String) -> anyhow::Result<Requeue> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match namespaces.get_metadata_opt(&namespace).await? {
        Some(found) if found.metadata.deletion_timestamp.is_none() => {}
        _ => return Ok(Requeue::Done),
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(client, &namespace);
    if accounts.get_metadata_opt(NAME).await?.is_some() {
        return Ok(Requeue::Done);
    }
    let metadata = ObjectMeta { name: Some(NAME.into()), ..ObjectMeta::default() };
    let account = ServiceAccount { metadata, ..ServiceAccount::default() };
    match accounts.create(&PostParams::default(), &account).await {
        Ok(_) => Ok(Requeue::Done),
        Err(kube::Error::Api(status)) if is_settled(&status) => Ok(Requeue::Done),
        Err(error) => Err(error.into()),
    }
}

/// Whether the response means that there is nothing to create: the account exists, or the namespace is gone or
/// terminating.
fn is_settled(status: &kube::core::Status) -> bool {
    let terminating = status.details.iter().flat_map(|details| &details.causes);
    status.is_already_exists()
        || status.is_not_found()
        || terminating.clone().any(|cause| cause.reason == "NamespaceTerminating")
}
