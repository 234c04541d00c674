//! Freshness of the state that a write is based on, when other servers share the store.
//!
//! The store accepts a change only if its base is current, so a write may be prepared from the
//! cache even if that is stale. Only three outcomes are not confirmed by the store: a rejection, a
//! no-op and a dry run. These are returned only after the cache has caught up. Other state that
//! checks read, such as the namespace, is as stale as an informer of kube-apiserver may be.

use std::future::Future;
use std::sync::Arc;

use super::RequestContext;
use super::write_path::preconditions::modified;
use crate::error::Error;
use crate::object::Object;

/// Performs a write on the cached state and, if rejected, retries on the newest state.
pub(crate) async fn write_and_retry<T, F>(
    call: &RequestContext<'_>,
    attempt: impl Fn() -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    if must_catch_up_first(call) {
        call.server.catch_up().await?;
        return attempt().await;
    }
    match attempt().await {
        Err(error) if call.server.store.is_shared() && may_be_stale(call, &error) => {
            call.server.catch_up().await?;
            attempt().await
        }
        done => done,
    }
}

/// Returns the object if it is confirmed unchanged; else a conflict.
pub(crate) async fn confirm_unchanged(
    call: &RequestContext<'_>,
    object: Arc<Object>,
) -> Result<Arc<Object>, Error> {
    call.server.catch_up().await?;
    match call.cache()?.get(&object.key) {
        Some(now) if now.revision == object.revision => Ok(now),
        _ => Err(modified(call)),
    }
}

/// Returns true if a stale state must not be tried first: when nothing is sent to the store, or
/// when the cache is cut off from it.
fn must_catch_up_first(call: &RequestContext<'_>) -> bool {
    call.query.first("dryRun").is_some() || call.server.store.lost_since().is_some()
}

/// Returns true if a rejection may be caused by a stale cache.
fn may_be_stale(call: &RequestContext<'_>, error: &Error) -> bool {
    match error {
        Error::Warned(_, inner) => may_be_stale(call, inner),
        // For a POST, this comes from the store itself.
        Error::AlreadyExists { .. } => !call.path.name.is_empty(),
        Error::BadRequest(_)
        | Error::Forbidden(..)
        | Error::NamespaceTerminating(..)
        | Error::NotFound(_)
        | Error::Conflict(..)
        | Error::ApplyConflict(..)
        | Error::TooLarge(_)
        | Error::Invalid { .. }
        | Error::UnprocessablePatch
        | Error::Unclassified(_) => true,
        Error::Unauthorized
        | Error::ForbiddenPath(_)
        | Error::NoSuchResource
        | Error::NoSuchPath
        | Error::MethodNotAllowed
        | Error::VerbNotSupported(_)
        | Error::NotAcceptable(_)
        | Error::Expired(..)
        | Error::UnsupportedMediaType(_)
        | Error::UnsupportedPatchType
        | Error::TooManyRequests
        | Error::Internal(_)
        | Error::Unavailable(_)
        | Error::FutureVersion { .. }
        | Error::Timeout => false,
    }
}
