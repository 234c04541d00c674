//! Watches of objects' metadata that go on through errors.

use std::fmt::Debug;
use std::sync::atomic::Ordering::Relaxed;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::core::ApiResource;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Api, Client, Resource};
use tokio::time::Instant;
use windlass_client_error::describe;

use crate::failure_log::FailureLog;
use crate::metrics::ControllerCounters;

/// An object's metadata, and nothing else of it.
pub type Metadata = PartialObjectMeta<DynamicObject>;

/// Watches all objects of a resource, or those a field selector allows, and hands over what
/// happens to them. Does not end.
pub async fn watch_metadata(
    client: Client,
    resource: &ApiResource,
    fields: Option<&str>,
    counters: &'static ControllerCounters,
    on: impl FnMut(Event<Metadata>),
) {
    let api: Api<Metadata> = Api::all_with(client, resource);
    watch_objects(api, &resource.plural, fields, counters, on).await;
}

/// As [`watch_metadata`], with all of each object.
pub async fn watch_objects<K>(
    api: Api<K>,
    plural: &str,
    fields: Option<&str>,
    counters: &'static ControllerCounters,
    mut on: impl FnMut(Event<K>),
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = Config { field_selector: fields.map(str::to_owned), ..Config::default() };
    let events = |event: Result<Event<K>, &watcher::Error>| {
        if let Ok(event) = event {
            on(event);
        }
    };
    watch_with_config(api, plural, config, counters, events).await;
}

/// As [`watch_objects`], with those objects that the configuration selects, and with what goes wrong.
/// Of [`Metadata`], nothing else is sent.
pub async fn watch_with_config<K>(
    api: Api<K>,
    plural: &str,
    config: Config,
    counters: &'static ControllerCounters,
    mut on: impl FnMut(Result<Event<K>, &watcher::Error>),
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut config = config.streaming_lists();
    let mut failures = FailureLog::default();
    loop {
        let mut events: BoxStream<'_, _> =
            watcher(api.clone(), config.clone()).default_backoff().boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    if matches!(event, Event::InitDone) {
                        failures.clear();
                    }
                    on(Ok(event));
                }
                Err(error) if rejects_streaming_list(&error, &config) => {
                    config.initial_list_strategy = watcher::InitialListStrategy::ListWatch;
                    break;
                }
                Err(error) => {
                    counters.watch_errors.fetch_add(1, Relaxed);
                    log_watch_error(counters.name, plural, &error, &mut failures);
                    on(Err(&error));
                }
            }
        }
    }
}

/// Logs why a watch failed. Established watches end all the time and are resumed, so only a watch that cannot
/// start is a warning, and a repeated cause only every few minutes.
fn log_watch_error(
    controller: &str,
    resource: &str,
    error: &watcher::Error,
    failures: &mut FailureLog,
) {
    let established =
        matches!(error, watcher::Error::WatchFailed(_) | watcher::Error::WatchError(_));
    let error = describe(error);
    if established {
        tracing::debug!(controller, resource, error, "watch ended; resuming");
    } else if failures.is_due(&error, Instant::now()) {
        tracing::warn!(controller, resource, error, "cannot watch; retrying with backoff");
    } else {
        tracing::debug!(controller, resource, error, "still cannot watch");
    }
}

/// Whether the server refuses lists that come as a watch, which not all have.
fn rejects_streaming_list(error: &watcher::Error, config: &Config) -> bool {
    let streaming = config.initial_list_strategy == watcher::InitialListStrategy::StreamingList;
    let refused = match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => {
            matches!(status.code, 400 | 422)
        }
        _ => false,
    };
    streaming && refused
}
