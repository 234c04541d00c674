//! Documents in transit: concurrent readers of a document share its bytes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;

use super::RenderedDocument;

/// Documents that a response still holds, by name. Holds only weak references.
#[derive(Default)]
pub(crate) struct SharedDocuments {
    sent: Mutex<HashMap<String, Weak<SentDocument>>>,
}

struct SentDocument {
    body: Bytes,
    etag: String,
}

impl SharedDocuments {
    /// Returns the document `name`; renders it unless a response still holds it.
    pub(crate) fn get(&self, name: &str, render: impl FnOnce() -> RenderedDocument) -> RenderedDocument {
        if let Some(sent) = self.lock().get(name).and_then(Weak::upgrade) {
            return share(sent);
        }
        // Rendered outside the lock, because it takes some milliseconds.
        let RenderedDocument { body, etag } = render();
        let mut all = self.lock();
        // Another request may have rendered it in the meantime.
        let sent = all.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
            let sent = Arc::new(SentDocument { body, etag });
            all.insert(name.to_owned(), Arc::downgrade(&sent));
            sent
        });
        drop(all);
        share(sent)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Weak<SentDocument>>> {
        self.sent.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Returns a document whose bytes keep the shared one alive.
fn share(sent: Arc<SentDocument>) -> RenderedDocument {
    struct DocumentReader(Arc<SentDocument>);
    impl AsRef<[u8]> for DocumentReader {
        fn as_ref(&self) -> &[u8] {
            &self.0.body
        }
    }
    let etag = sent.etag.clone();
    RenderedDocument { body: Bytes::from_owner(DocumentReader(sent)), etag }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_a_document_that_is_dropped_afterwards() {
        let shared = SharedDocuments::default();
        let render = || RenderedDocument { body: Bytes::from(b"text".repeat(10)), etag: "\"t\"".to_owned() };
        let first = shared.get("a", render);
        let second = shared.get("a", || panic!("it is there"));
        assert_eq!(first, second);
        assert_eq!(first.body.as_ptr(), second.body.as_ptr());
        drop((first, second));
        assert!(shared.lock()["a"].upgrade().is_none());
        assert_eq!(shared.get("a", render).body.len(), 40);
    }
}
