//! GET of one object.

use std::sync::Arc;

use super::RequestContext;
use crate::error::Error;
use crate::limits;
use crate::object::Object;
use crate::request::options::parse_version;

/// The object the path names, no older than `resourceVersion` asks.
pub(crate) async fn get(call: &RequestContext<'_>) -> Result<Arc<Object>, Error> {
    match call.query.first("resourceVersion") {
        None | Some("") => call.server.catch_up().await?,
        Some("0") => {}
        Some(text) => wait_for(call, parse_version(text)?).await?,
    }
    get_object(call)
}

/// The object the path names, now.
pub(crate) fn get_object(call: &RequestContext<'_>) -> Result<Arc<Object>, Error> {
    let found = call.cache()?.get(&call.key(&call.path.name));
    found.ok_or_else(|| Error::NotFound(call.subject(&call.path.name)))
}

/// Waits until the caches have come to `version`; a version far in the future is a 504.
pub(crate) async fn wait_for(call: &RequestContext<'_>, version: u64) -> Result<(), Error> {
    let cache = call.cache()?;
    if cache.revision() >= version {
        return Ok(());
    }
    // What another process has shown to a client has happened, and only has to be heard of. If it
    // cannot be asked for, it may still come.
    if call.server.catch_up().await.is_ok() && cache.revision() >= version {
        return Ok(());
    }
    let deadline = tokio::time::Instant::now() + limits::FUTURE_VERSION;
    // Other kinds move the revision too, and this kind's channel does not tell of them.
    let mut tick = tokio::time::interval(std::time::Duration::from_millis(20));
    while tokio::time::Instant::now() < deadline {
        tick.tick().await;
        if cache.revision() >= version {
            return Ok(());
        }
    }
    Err(Error::FutureVersion { requested: version, current: cache.revision() })
}
