//! Expiry of objects with a TTL: events expire an hour after their last write.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use time::OffsetDateTime;
use tokio::sync::watch;
use windlass_api::timestamp;
use windlass_store::{KeyChange, WritePrecondition, WriteRequest};

use crate::cache::{KindCache, WalkAction, store_key};
use crate::object::Object;
use crate::server::Server;

/// Interval of expiry sweeps; a minute of delay is acceptable for a TTL of an hour.
const LOOK: Duration = Duration::from_secs(60);
/// Deletions between two checks of the shutdown signal.
const BATCH: usize = 200;

/// Deletes expired objects until the server shuts down.
pub(crate) async fn run(server: Arc<Server>, mut shutdown: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = shutdown.wait_for(|down| *down) => return,
        }
        for kind in server.registry.kinds() {
            if let (Some(ttl), Some(cache)) = (kind.ttl, server.caches.for_kind(kind)) {
                sweep(&server, cache, ttl).await;
            }
        }
    }
}

/// Deletes the objects of one kind that are older than `ttl`.
pub(crate) async fn sweep(server: &Server, cache: &KindCache, ttl: Duration) {
    let oldest = (server.clock)() - ttl;
    let mut after: Option<String> = None;
    loop {
        let mut seen = 0;
        let page = cache.snapshot("", after.as_deref(), |_| {
            seen += 1;
            if seen > BATCH { WalkAction::Stop } else { WalkAction::Include }
        });
        let Some(last) = page.objects.last().map(|o| o.key.to_string()) else { return };
        for object in page.objects.iter().filter(|o| has_expired(o, oldest)) {
            let write = WriteRequest {
                key: store_key(cache.kind, &object.key),
                expect: WritePrecondition::Revision(object.revision),
                change: KeyChange::Delete,
            };
            match server.store.commit(write).await {
                // The object was written or deleted concurrently.
                Ok(_) | Err(windlass_store::Error::Conflict { .. }) => {}
                Err(error) => {
                    tracing::warn!(%error, "deleting expired objects failed; retrying later");
                    return;
                }
            }
        }
        after = Some(last);
    }
}

fn has_expired(object: &Object, oldest: OffsetDateTime) -> bool {
    last_written(&object.stored_value()).is_some_and(|at| at < oldest)
}

/// Returns the last write time from managedFields, else the creation time.
fn last_written(object: &Value) -> Option<OffsetDateTime> {
    let metadata = &object["metadata"];
    let entries = metadata["managedFields"].as_array().into_iter().flatten();
    let times = entries.map(|e| &e["time"]).chain([&metadata["creationTimestamp"]]);
    times.filter_map(Value::as_str).filter_map(|t| timestamp::parse(t).ok()).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_write_counts() {
        let object = json!({"metadata": {
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"time": "2026-01-01T01:00:00Z"}, {"time": "2026-01-01T00:30:00Z"}],
        }});
        let want = timestamp::parse("2026-01-01T01:00:00Z").unwrap();
        assert_eq!(last_written(&object), Some(want));
        assert_eq!(last_written(&json!({"metadata": {}})), None);
    }
}
