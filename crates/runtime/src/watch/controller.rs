//! Watches of controllers: events are handled by a callback, errors are logged and counted.

use std::convert::Infallible;
use std::fmt::Debug;

use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::core::ApiResource;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, Resource};
use tokio::time::Instant;

use super::{ObjectWatch, WatchError};
use crate::failure_log::FailureLog;
use crate::metrics::ControllerMetrics;

/// Metadata of an object of any kind. Watches of it transfer nothing else.
pub type ObjectMetadata = PartialObjectMeta<DynamicObject>;

/// Watches the metadata of all objects of a resource, or of those that a field selector selects.
/// Errors are logged and counted only.
pub async fn watch_metadata(
    client: Client,
    resource: &ApiResource,
    field_selector: Option<&str>,
    metrics: &ControllerMetrics,
    mut handle: impl FnMut(Event<ObjectMetadata>),
) -> Infallible {
    let api: Api<ObjectMetadata> = Api::all_with(client, resource);
    let field_selector = field_selector.map(str::to_owned);
    let config = Config { field_selector, ..Config::default() };
    watch_objects(api, &resource.plural, config, metrics, |event| {
        if let Ok(event) = event {
            handle(event);
        }
    })
    .await
}

/// Watches the objects that `config` selects. `resource` is the plural for the log.
///
/// Errors are logged and counted before `handle` gets them; the watch continues by itself.
pub async fn watch_objects<K>(
    api: Api<K>,
    resource: &str,
    config: Config,
    metrics: &ControllerMetrics,
    mut handle: impl FnMut(Result<Event<K>, &WatchError>),
) -> Infallible
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut watch = ObjectWatch::new(api, config);
    let mut failures = FailureLog::default();
    loop {
        match watch.next().await {
            Ok(event) => {
                if matches!(event, Event::InitDone) {
                    failures.clear();
                }
                handle(Ok(event));
            }
            Err(error) => {
                metrics.watch_errors.inc();
                log_error(metrics.name(), resource, &error, &mut failures);
                handle(Err(&error));
            }
        }
    }
}

/// Logs why a watch failed. Established watches end all the time and are resumed, so only a watch that cannot
/// start is a warning, and a repeated cause only every few minutes.
fn log_error(controller: &str, resource: &str, error: &WatchError, failures: &mut FailureLog) {
    let cause = error.message.as_str();
    if error.was_established {
        tracing::debug!(controller, resource, error = cause, "watch ended; resuming");
    } else if failures.is_due(cause, Instant::now()) {
        tracing::warn!(controller, resource, error = cause, "cannot watch; retrying with backoff");
    } else {
        tracing::debug!(controller, resource, error = cause, "still cannot watch");
    }
}
