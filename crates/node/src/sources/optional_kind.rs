//! Watch of all objects of a kind that the server may not have, in the API version that it has.

use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use tokio::sync::watch;
use windlass_runtime::discovery::{AGENT_PACING, ApiKind, KindPresence, RecheckSignal, watch_presence};
use windlass_runtime::watch::{ObjectWatch, WatchErrorKind};

/// What a watch of an optional kind delivers.
#[allow(clippy::large_enum_variant, reason = "handled at once, never stored")]
pub enum OptionalKindEvent {
    /// The server does not have the kind.
    NotServed,
    /// A list has begun or ended, or an object has changed.
    Object(Event<DynamicObject>),
    /// All events that have arrived so far were delivered.
    BatchEnd,
}

/// Watches the kind in the version that the server has, and waits for it where it has none. Never returns. Objects of
/// another version stay known to the caller until the first list of the new one is complete.
pub async fn watch_optional_kind(client: Client, kind: ApiKind, handle: impl FnMut(OptionalKindEvent)) {
    let (found, presence) = watch::channel(KindPresence::Unknown);
    let recheck = RecheckSignal::default();
    let discovery = watch_presence(client.clone(), kind, AGENT_PACING, recheck.clone(), found);
    tokio::join!(discovery, watch_while_served(client, kind.plural, presence, recheck, handle));
}

async fn watch_while_served(
    client: Client,
    plural: &'static str,
    mut presence: watch::Receiver<KindPresence>,
    recheck: RecheckSignal,
    mut handle: impl FnMut(OptionalKindEvent),
) {
    loop {
        let now = presence.borrow_and_update().clone();
        let watching = async {
            match now {
                KindPresence::Unknown => std::future::pending().await,
                KindPresence::NotServed => {
                    handle(OptionalKindEvent::NotServed);
                    std::future::pending().await
                }
                KindPresence::Served(resource) => {
                    watch_version(&client, plural, &resource, &recheck, &mut handle).await;
                }
            }
        };
        tokio::select! {
            () = watching => {}
            // The sender outlives this future.
            _ = presence.changed() => {}
        }
    }
}

/// Watches one API version. Never returns.
async fn watch_version(
    client: &Client,
    plural: &'static str,
    resource: &ApiResource,
    recheck: &RecheckSignal,
    handle: &mut impl FnMut(OptionalKindEvent),
) {
    let api = Api::<DynamicObject>::all_with(client.clone(), resource);
    let mut events = ObjectWatch::with_fields(api, None);
    loop {
        events
            .next_batch(|event| match event {
                Ok(event) => handle(OptionalKindEvent::Object(event)),
                Err(error) => {
                    match error.kind {
                        WatchErrorKind::Refused => {
                            tracing::warn!(resource = plural, %error, "cannot watch; retrying with backoff");
                        }
                        WatchErrorKind::NotServed | WatchErrorKind::Broken => {
                            tracing::debug!(resource = plural, %error, "watch ended; resuming");
                        }
                    }
                    // A server that has turned the kind off may respond 403 before it responds 404.
                    if error.kind != WatchErrorKind::Broken {
                        recheck.notify_one();
                    }
                }
            })
            .await;
        handle(OptionalKindEvent::BatchEnd);
    }
}
