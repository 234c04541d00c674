//! Documents that are being sent, so that all who read one at the same time share its bytes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;

use super::RenderedDocument;

/// The documents that a response still holds, by name. Nothing is kept alive here.
#[derive(Default)]
pub(crate) struct SharedDocuments {
    sent: Mutex<HashMap<String, Weak<SentDocument>>>,
}

struct SentDocument {
    body: Bytes,
    etag: String,
}

impl SharedDocuments {
    /// The document `name`, rendered unless somebody is reading it.
    pub(crate) fn get(
        &self,
        name: &str,
        render: impl FnOnce() -> RenderedDocument,
    ) -> RenderedDocument {
        if let Some(sent) = self.lock().get(name).and_then(Weak::upgrade) {
            return share(sent);
        }
        // Outside of the lock: it takes some milliseconds.
        let RenderedDocument { body, etag } = render();
        let mut all = self.lock();
        // Another request may have rendered it meanwhile.
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

/// A document whose bytes keep the shared one alive.
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
    fn readers_share_a_document_and_nobody_keeps_it() {
        let shared = SharedDocuments::default();
        let render =
            || RenderedDocument { body: Bytes::from(b"text".repeat(10)), etag: "\"t\"".to_owned() };
        let first = shared.get("a", render);
        let second = shared.get("a", || panic!("it is there"));
        assert_eq!(first, second);
        assert_eq!(first.body.as_ptr(), second.body.as_ptr());
        drop((first, second));
        assert!(shared.lock()["a"].upgrade().is_none());
        assert_eq!(shared.get("a", render).body.len(), 40);
    }
}
