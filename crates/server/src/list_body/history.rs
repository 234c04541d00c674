//! Objects of a past revision, read from the store while the client reads: they are not cached, and
//! holding all of them would copy the collection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use windlass_store::{KeyRange, StoredValue};

use crate::body::BodyError;
use crate::cache::{prefix, store_key};
use crate::limits;
use crate::object::{Object, UnreadableObject};
use crate::registry::kind::Kind;
use crate::request::selection::ObjectSelection;
use crate::server::Server;

/// A part of a past revision, which is known to exist and does not change.
#[derive(Clone)]
pub struct HistoricalObjects {
    /// Server whose store is read.
    pub server: Arc<Server>,
    pub kind: &'static Kind,
    /// Scope and selectors that objects must match to be sent.
    pub selection: ObjectSelection,
    pub revision: u64,
    /// Key after which to start, exclusive.
    pub after: String,
    /// Number of objects that match.
    pub count: usize,
    /// Length as list items, in the stored version and without opening braces.
    pub item_bytes: usize,
    /// Whether any object contains a tab.
    pub has_tabs: bool,
}

/// The next page of a past revision.
pub(crate) struct HistoricalPage {
    rest: HistoricalObjects,
    reading: Option<PendingRead>,
}

type PendingRead =
    Pin<Box<dyn Future<Output = Result<windlass_store::RangePage, windlass_store::Error>> + Send>>;

impl HistoricalObjects {
    /// Returns the next key range: about [`limits::PAST_BYTES`], if the objects have average size.
    fn range(&self) -> KeyRange {
        let most = objects_in(limits::PAST_BYTES, self.item_bytes, self.count);
        range(self.kind, &self.selection, self.revision, Some(&self.after), most)
    }
}

/// Returns how many average objects fit into `bytes`, if `count` objects have `of` bytes; at least
/// one.
pub(crate) fn objects_in(bytes: usize, of: usize, count: usize) -> usize {
    let average = (of / count.max(1)).max(1);
    (bytes / average).clamp(1, READ_AT_MOST)
}

/// Maximum keys read from the store at once.
const READ_AT_MOST: usize = 10_000;

/// Returns the key range of a list at a past revision.
pub(crate) fn range(
    kind: &Kind,
    selection: &ObjectSelection,
    revision: u64,
    after: Option<&str>,
    most: usize,
) -> KeyRange {
    KeyRange {
        prefix: format!("{}/{}", prefix(kind), selection.scope),
        after: after.map(|key| store_key(kind, key)),
        limit: Some(most),
        at: Some(revision),
    }
}

/// Decodes the object stored under a key.
pub(crate) fn object(kind: &Kind, key: &str, stored: &StoredValue) -> Result<Object, UnreadableObject> {
    let base = prefix(kind);
    let name = key.strip_prefix(&base).and_then(|key| key.strip_prefix('/')).unwrap_or(key);
    Object::new(kind, name, stored.revision, &stored.value)
}

impl HistoricalPage {
    /// Starts before the first object of `rest`.
    pub(crate) fn new(rest: HistoricalObjects) -> HistoricalPage {
        HistoricalPage { rest, reading: None }
    }

    /// Returns the next objects; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Arc<Object>>>, BodyError> {
        std::future::poll_fn(|cx| self.poll_page(cx)).await
    }

    /// Polls for the next objects, as `next` does; `None` after the last.
    pub(crate) fn poll_page(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Vec<Arc<Object>>>, BodyError>> {
        while self.rest.count > 0 {
            let rest = &self.rest;
            let reading = self.reading.get_or_insert_with(|| {
                let (server, range) = (rest.server.clone(), rest.range());
                Box::pin(async move { server.store.range(range).await })
            });
            let page = ready!(reading.as_mut().poll(cx));
            self.reading = None;
            let objects = self.rest.decode_page(page?)?;
            if !objects.is_empty() {
                return Poll::Ready(Ok(Some(objects)));
            }
        }
        Poll::Ready(Ok(None))
    }
}

impl HistoricalObjects {
    /// Decodes the objects of a page and advances past it.
    fn decode_page(&mut self, page: windlass_store::RangePage) -> Result<Vec<Arc<Object>>, BodyError> {
        let mut objects = Vec::new();
        for (key, stored) in &page.items {
            let object = object(self.kind, key, stored)?;
            self.after = object.key.to_string();
            if self.count > 0 && self.selection.matches(&object) {
                self.count -= 1;
                self.item_bytes = self.item_bytes.saturating_sub(object.stored_item().len());
                objects.push(Arc::new(object));
            }
        }
        if self.count > 0 && !page.more {
            return Err(BodyError::Incomplete);
        }
        Ok(objects)
    }
}
