//! GET with `watch`: the changes of a collection.

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

/// Starts a watch on what the path and the options select.
pub(crate) async fn watch(
    call: &RequestContext<'_>,
    options: &ListOptions,
    shape: EventEncoding,
) -> Result<ResponseBody, Error> {
    let mut selection = ObjectSelection::parse(call.kind, &call.path.namespace, options)?;
    selection.restrict_to_name(&call.path.name);
    let cache = call.cache()?.clone();
    let start = match options.version {
        ResourceVersionMatch::NotOlderThan(asked) | ResourceVersionMatch::Exact(asked) => {
            Some(asked)
        }
        ResourceVersionMatch::Latest | ResourceVersionMatch::Any => None,
    };
    let wants_state = options.send_initial_events.unwrap_or(start.is_none());
    // Only a state must be there to be sent; changes after a version yet to come just follow it.
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

/// A `timeoutSeconds` is honoured up to twice the least time. A watch that asks for more, or for nothing,
/// ends between the two, at random: the clients of a restarted server should not all come back at once.
fn timeout(options: &ListOptions, least: Duration) -> Duration {
    match options.timeout {
        Some(asked) if !asked.is_zero() && asked <= least * 2 => asked,
        _ => least.mul_f64(rand::rng().random_range(1.0..2.0)),
    }
}

/// What stands behind the metadata of an empty object of the kind, for bookmarks.
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
