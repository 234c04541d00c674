//! Objects of a past state, read from the store as the client reads: they are in no cache, and a list that held all of
//! them would hold a copy of the collection.

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

/// A part of a past state that is known to be there: the state of a revision does not change.
#[derive(Clone)]
pub struct HistoricalObjects {
    /// Where it is read from.
    pub server: Arc<Server>,
    /// The kind of the objects.
    pub kind: &'static Kind,
    /// Scope and selectors that objects must match to be sent.
    pub selection: ObjectSelection,
    /// The revision of the state.
    pub revision: u64,
    /// The key after which the objects stand.
    pub after: String,
    /// How many objects there are.
    pub count: usize,
    /// Their length as items of a list, in the stored version and without opening braces.
    pub item_bytes: usize,
    /// Whether one of them contains a tab.
    pub has_tabs: bool,
}

/// The page of a past state that is read next.
pub(crate) struct HistoricalPage {
    rest: HistoricalObjects,
    reading: Option<PendingRead>,
}

type PendingRead =
    Pin<Box<dyn Future<Output = Result<windlass_store::RangePage, windlass_store::Error>> + Send>>;

impl HistoricalObjects {
    /// The next keys to read: as many as hold [`limits::PAST_BYTES`], if they are of average size.
    fn range(&self) -> KeyRange {
        let most = objects_in(limits::PAST_BYTES, self.item_bytes, self.count);
        range(self.kind, &self.selection, self.revision, Some(&self.after), most)
    }
}

/// How many objects there are in `bytes`, if `count` objects of the kind have `of` bytes; one at least.
pub(crate) fn objects_in(bytes: usize, of: usize, count: usize) -> usize {
    let average = (of / count.max(1)).max(1);
    (bytes / average).clamp(1, READ_AT_MOST)
}

/// How many keys are read from the store at once.
const READ_AT_MOST: usize = 10_000;

/// The keys of a kind that a list of a past state reads.
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

/// The object that a store holds under a key.
pub(crate) fn object(
    kind: &Kind,
    key: &str,
    stored: &StoredValue,
) -> Result<Object, UnreadableObject> {
    let base = prefix(kind);
    let name = key.strip_prefix(&base).and_then(|key| key.strip_prefix('/')).unwrap_or(key);
    Object::new(kind, name, stored.revision, &stored.value)
}

impl HistoricalPage {
    /// Nothing of `rest` is read yet.
    pub(crate) fn new(rest: HistoricalObjects) -> HistoricalPage {
        HistoricalPage { rest, reading: None }
    }

    /// The next objects; `None` after the last.
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
    /// Takes the objects of a page, and goes on after it.
    fn decode_page(
        &mut self,
        page: windlass_store::RangePage,
    ) -> Result<Vec<Arc<Object>>, BodyError> {
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
