//! Watches of objects' metadata that go on through errors.

use std::sync::atomic::Ordering::Relaxed;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::core::ApiResource;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Api, Client};

use crate::metrics::Counters;

/// An object's metadata, and nothing else of it.
pub type Metadata = PartialObjectMeta<DynamicObject>;

/// Watches all objects of a resource, or those a field selector allows, and hands over what
/// happens to them. Does not end.
pub async fn follow(
    client: Client,
    resource: &ApiResource,
    fields: Option<&str>,
    counters: &'static Counters,
    mut on: impl FnMut(Event<Metadata>),
) {
    let api: Api<Metadata> = Api::all_with(client, resource);
    let mut config = Config::default().streaming_lists();
    config.field_selector = fields.map(str::to_owned);
    loop {
        let mut events: BoxStream<'_, _> =
            watcher(api.clone(), config.clone()).default_backoff().boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => on(event),
                Err(error) if cannot_stream(&error, &config) => {
                    config.initial_list_strategy = watcher::InitialListStrategy::ListWatch;
                    break;
                }
                Err(error) => {
                    counters.watch_errors.fetch_add(1, Relaxed);
                    let (controller, resource) = (counters.name, &resource.plural);
                    tracing::debug!(controller, resource, %error, "a watch broke off");
                }
            }
        }
    }
}

/// Whether the server refuses lists that come as a watch, which not all have.
fn cannot_stream(error: &watcher::Error, config: &Config) -> bool {
    let streaming = config.initial_list_strategy == watcher::InitialListStrategy::StreamingList;
    let refused = match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => {
            matches!(status.code, 400 | 422)
        }
        _ => false,
    };
    streaming && refused
}
