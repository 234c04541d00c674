//! GET of a single object.

use std::sync::Arc;

use super::RequestContext;
use crate::error::Error;
use crate::limits;
use crate::object::Object;
use crate::request::options::parse_version;

/// Returns the object named in the path, at least as new as `resourceVersion`.
pub(crate) async fn get(call: &RequestContext<'_>) -> Result<Arc<Object>, Error> {
    match call.query.first("resourceVersion") {
        None | Some("") => call.server.catch_up().await?,
        Some("0") => {}
        Some(text) => wait_for(call, parse_version(text)?).await?,
    }
    get_object(call)
}

/// Returns the object named in the path from the cache.
pub(crate) fn get_object(call: &RequestContext<'_>) -> Result<Arc<Object>, Error> {
    let found = call.cache()?.get(&call.key(&call.path.name));
    found.ok_or_else(|| Error::NotFound(call.subject(&call.path.name)))
}

/// Waits until the caches reach `version`; a version far in the future is a 504.
pub(crate) async fn wait_for(call: &RequestContext<'_>, version: u64) -> Result<(), Error> {
    let cache = call.cache()?;
    if cache.revision() >= version {
        return Ok(());
    }
    // A revision that another server has returned to a client exists and only has to arrive. If the
    // store cannot be queried, it may still arrive.
    if call.server.catch_up().await.is_ok() && cache.revision() >= version {
        return Ok(());
    }
    let deadline = tokio::time::Instant::now() + limits::FUTURE_VERSION;
    // Other kinds advance the revision too, without notifying this kind's channel.
    let mut tick = tokio::time::interval(std::time::Duration::from_millis(20));
    while tokio::time::Instant::now() < deadline {
        tick.tick().await;
        if cache.revision() >= version {
            return Ok(());
        }
    }
    Err(Error::FutureVersion { requested: version, current: cache.revision() })
}
