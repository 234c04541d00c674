//! Estimates the seats of a request, as in Kubernetes.

use crate::limits;
use crate::request::info::{RequestInfo, RequestTarget};
use crate::request::query::QueryParameters;
use crate::server::Server;

/// Returns the seats of a request, estimated from the cache before execution.
pub(crate) fn estimate(server: &Server, info: &RequestInfo, query: &QueryParameters) -> usize {
    let RequestTarget::Resource(path) = &info.target else { return 1 };
    let sends_objects = match info.verb {
        "list" | "deletecollection" => true,
        "watch" => sends_state(query),
        _ => false,
    };
    // A named object, also by field selector, is one lookup.
    if !sends_objects || !path.name.is_empty() || !path.subresource.is_empty() {
        return 1;
    }
    let kind = server.registry.by_path(&path.group, &path.version, &path.resource);
    let Some(cache) = kind.and_then(|(kind, _)| server.caches.for_kind(kind)) else { return 1 };
    let most = limits::OBJECTS_PER_SEAT * limits::SEATS_PER_LIST;
    let objects = if path.namespace.is_empty() {
        cache.len()
    } else {
        cache.count_up_to(&format!("{}/", path.namespace), most)
    };
    let selects = ["labelSelector", "fieldSelector"]
        .iter()
        .any(|name| query.first(name).is_some_and(|text| !text.is_empty()));
    // A selector examines all objects, however few are sent.
    let limit = query.first("limit").and_then(|text| text.parse().ok()).filter(|limit| *limit > 0);
    seats(if selects { objects } else { limit.map_or(objects, |limit| objects.min(limit)) })
}

/// Returns the seats of a response with that many objects.
pub(crate) fn seats(objects: usize) -> usize {
    objects.div_ceil(limits::OBJECTS_PER_SEAT).clamp(1, limits::SEATS_PER_LIST)
}

/// Returns true if a watch starts with the current state, as the watch verb decides.
fn sends_state(query: &QueryParameters) -> bool {
    let from_now = || matches!(query.first("resourceVersion").unwrap_or_default(), "" | "0");
    query.flag("sendInitialEvents").unwrap_or_else(from_now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_for_a_hundred_objects_and_there_are_ten_at_most() {
        for (objects, want) in [(0, 1), (1, 1), (100, 1), (101, 2), (999, 10), (1_000_000, 10)] {
            assert_eq!(seats(objects), want, "{objects}");
        }
    }
}
