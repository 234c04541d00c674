//! GET with `watch`: streams the changes of a collection.

use std::time::Duration;

use bytes::Bytes;
use rand::Rng as _;

use super::RequestContext;
use super::get::wait_for;
use crate::body::ResponseBody;
use crate::cache::WalkAction;
use crate::error::Error;
use crate::request::options::{ListOptions, ResourceVersionMatch};
use crate::request::selection::ObjectSelection;
use crate::watch::{EventEncoding, WatchPlan, WatchStream, expired};

/// Starts a watch on the objects selected by the path and the options.
pub(crate) async fn watch(
    call: &RequestContext<'_>,
    options: &ListOptions,
    shape: EventEncoding,
) -> Result<ResponseBody, Error> {
    let mut selection = ObjectSelection::parse(call.kind, &call.path.namespace, options)?;
    selection.restrict_to_name(&call.path.name);
    let cache = call.cache()?.clone();
    let start = match options.version {
        ResourceVersionMatch::NotOlderThan(asked) | ResourceVersionMatch::Exact(asked) => Some(asked),
        ResourceVersionMatch::Latest | ResourceVersionMatch::Any => None,
    };
    let wants_state = options.send_initial_events.unwrap_or(start.is_none());
    // Only the initial state must exist already; changes after a future revision follow when they
    // happen.
    if wants_state
        && let Some(asked) = start
        && let Err(error) = wait_for(call, asked).await
    {
        return Ok(ResponseBody::from(crate::watch::error_line(&error)));
    }
    if options.version == ResourceVersionMatch::Latest {
        call.server.catch_up().await?;
    }
    let open = call.server.flow.watch(call.user)?;
    let (initial, after) = match start {
        Some(asked) if !wants_state => match cache.changes(asked, 1) {
            Ok(_) => (Vec::new(), asked),
            Err(too_old) => return Ok(ResponseBody::from(expired(asked, too_old.floor))),
        },
        _ if wants_state && let Some(key) = selection.single_key(call.kind) => {
            let (object, revision) = cache.get_at(&key);
            (object.into_iter().filter(|object| selection.matches(object)).collect(), revision)
        }
        _ if wants_state => {
            let snapshot = cache.snapshot(&selection.scope, None, |object| {
                if selection.matches(object) { WalkAction::Include } else { WalkAction::Skip }
            });
            (snapshot.objects, snapshot.revision)
        }
        _ => (Vec::new(), cache.revision()),
    };
    let plan = WatchPlan {
        selection,
        shape,
        initial: initial.into_iter(),
        initial_end: options.send_initial_events == Some(true) && options.bookmarks,
        after,
        bookmarks: options.bookmarks,
        timeout: timeout(options, call.server.min_request_timeout),
        empty: empty(call),
        served: call.served,
        shutdown: call.server.shutdown.clone(),
        counted: (call.server.metrics.watch_started(call.served, call.kind), open),
        cache,
    };
    Ok(ResponseBody::Watch(Box::new(WatchStream::new(plan))))
}

/// Returns the duration of a watch. `timeoutSeconds` is honoured up to twice the minimum. A watch
/// that requests more, or nothing, ends at a random time between the two, so that the clients of a
/// restarted server do not all reconnect at once.
fn timeout(options: &ListOptions, least: Duration) -> Duration {
    match options.timeout {
        Some(asked) if !asked.is_zero() && asked <= least * 2 => asked,
        _ => least.mul_f64(rand::rng().random_range(1.0..2.0)),
    }
}

/// Returns the encoding of an empty object of the kind after its metadata, for bookmarks.
fn empty(call: &RequestContext<'_>) -> Bytes {
    let schema = windlass_api::schema::Schema::get();
    let Some(id) = schema.lookup(call.served.type_name) else { return Bytes::from_static(b"}") };
    let mut zero = windlass_api::normal_form::zero(schema, id);
    if let Some(map) = zero.as_object_mut() {
        map.remove("metadata");
    }
    let text = zero.to_string();
    match text.as_str() {
        "{}" | "null" => Bytes::from_static(b"}"),
        fields => Bytes::from(format!(",{}", &fields[1..])),
    }
}
