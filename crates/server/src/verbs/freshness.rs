//! Which state a write looks at, where other servers write to the same store.
//!
//! The store takes a change only of the state that it was made of, so a write may be prepared on
//! what the cache shows, late as that may be. Only three outcomes are not the store's word: a
//! refusal, a change that changes nothing, and a dry run. These are told to nobody before the cache
//! has caught up. What else a check looks at, such as the namespace, is as old as an informer of
//! kube-apiserver's may be.

use std::future::Future;
use std::sync::Arc;

use super::RequestContext;
use super::write_path::preconditions::modified;
use crate::error::Error;
use crate::object::Object;

/// Carries out a write on what the cache shows and, if that is refused, once more on the newest
/// state.
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

/// The object, if it is certainly still there as it is; else a conflict.
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

/// Whether nothing is to be tried on a state that may be old: where nothing is sent to the store,
/// and where the cache hears nothing from it.
fn must_catch_up_first(call: &RequestContext<'_>) -> bool {
    call.query.first("dryRun").is_some() || call.server.store.lost_since().is_some()
}

/// Whether a refusal may be due to what the cache did not show yet.
fn may_be_stale(call: &RequestContext<'_>, error: &Error) -> bool {
    match error {
        Error::Warned(_, inner) => may_be_stale(call, inner),
        // A POST hears that from the store itself.
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
