//! GET of a collection: complete or in pages, current or at a revision.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::RequestContext;
use super::get::wait_for;
use crate::cache::WalkAction;
use crate::error::Error;
use crate::limits;
use crate::list_body::{self, HistoricalObjects};
use crate::object::Object;
use crate::request::options::{ListOptions, ResourceVersionMatch};
use crate::request::selection::ObjectSelection;

/// A page of a collection.
pub(crate) struct ObjectList {
    /// Store revision of the page.
    pub revision: u64,
    /// The selected objects, in key order.
    pub objects: Vec<Arc<Object>>,
    /// Further uncached objects, too large to hold in memory together.
    pub rest: Option<HistoricalObjects>,
    /// Continue token of the next page; empty at the end.
    pub continue_: String,
    /// Number of objects that follow, if known.
    pub remaining: Option<usize>,
}

/// Continue token of a list: opaque to clients, in Kubernetes' format.
#[derive(Debug, Serialize, Deserialize)]
struct ContinueToken {
    v: String,
    rv: i64,
    start: String,
}

/// Objects of a past revision in the first read, before their size is known.
const READ_AT_FIRST: usize = 500;
/// Approximate bytes of a past revision read at once: for every page etcd walks over all following
/// keys, so pages must not be short.
const READ_BYTES: usize = 4 * 1024 * 1024;

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// Lists the objects selected by the path and the options.
pub(crate) async fn list(call: &RequestContext<'_>, options: &ListOptions) -> Result<ObjectList, Error> {
    let selection = ObjectSelection::parse(call.kind, &call.path.namespace, options)?;
    let (at, after) = if options.continue_.is_empty() {
        (start_version(call, options.version).await?, None)
    } else {
        let token = read_token(options)?;
        let at = (token.rv > 0).then_some(token.rv as u64);
        // A revision in the future was not returned by this server: continuing from it would invent
        // a state.
        let unseen = || at.is_some_and(|at| call.cache().is_ok_and(|cache| cache.revision() < at));
        if at.is_none() || unseen() {
            call.server.catch_up().await?;
        }
        if unseen() {
            return Err(expired_token(&token.start));
        }
        (at, Some(token.start))
    };
    let page = match list_from_cache(call, &selection, options, at, after.as_deref())? {
        Some(page) => page,
        None => {
            let revision = at.unwrap_or_default(); // only an exact state can be past
            list_from_store(call, &selection, options, revision, after.as_deref()).await?
        }
    };
    Ok(finish(page, &selection))
}

/// Returns the exact revision to list at; `None` for the current one.
async fn start_version(
    call: &RequestContext<'_>,
    version: ResourceVersionMatch,
) -> Result<Option<u64>, Error> {
    match version {
        ResourceVersionMatch::Latest => {
            call.server.catch_up().await?;
            Ok(None)
        }
        ResourceVersionMatch::Any => Ok(None),
        ResourceVersionMatch::NotOlderThan(asked) => {
            wait_for(call, asked).await?;
            Ok(None)
        }
        ResourceVersionMatch::Exact(asked) => {
            wait_for(call, asked).await?;
            Ok(Some(asked))
        }
    }
}

struct ListPage {
    revision: u64,
    objects: Vec<Arc<Object>>,
    rest: Option<HistoricalObjects>,
    /// Key after which to continue the list.
    next: Option<String>,
    remaining: usize,
}

/// Lists from the cache; `None` if the window no longer covers the requested revision.
fn list_from_cache(
    call: &RequestContext<'_>,
    selection: &ObjectSelection,
    options: &ListOptions,
    at: Option<u64>,
    after: Option<&str>,
) -> Result<Option<ListPage>, Error> {
    let cache = call.cache()?;
    let past = at.filter(|at| cache.last() > *at);
    // A compacted revision is expired for everybody.
    if past.is_some_and(|at| at < call.server.store.floor()) {
        return Ok(None);
    }
    let limit = if options.limit == 0 { usize::MAX } else { options.limit };
    let (mut taken, mut remaining, mut more) = (0, 0, false);
    if let Some(name) = selection.pinned_name()
        && at.is_none()
        && !(selection.scope.is_empty() && call.kind.scope == crate::registry::kind::Scope::Namespaced)
    {
        // One lookup instead of a walk: every kubelet and every `kubectl wait` lists this way.
        let (found, revision) = cache.get_at(&format!("{}{name}", selection.scope));
        let objects = found.into_iter().filter(|o| selection.matches(o)).collect();
        return Ok(Some(ListPage { revision, objects, rest: None, next: None, remaining: 0 }));
    }
    let everything = selection.is_everything();
    let keep = |object: &Object| {
        if taken < limit && (everything || selection.matches(object)) {
            (taken, more) = (taken + 1, false);
            return WalkAction::Include;
        }
        // As in Kubernetes, more pages may follow while there are objects, selected or not.
        more = true;
        remaining += 1;
        // Only a list without selectors reports how many follow, so only it must count them.
        if taken == limit && !everything { WalkAction::Stop } else { WalkAction::Skip }
    };
    let snapshot = match past {
        Some(at) => cache.snapshot_at(at, &selection.scope, after, keep),
        None => Some(cache.snapshot(&selection.scope, after, keep)),
    };
    let Some(snapshot) = snapshot else { return Ok(None) };
    // A change may have happened between the first check and the snapshot.
    if at.is_some_and(|at| snapshot.last > at) {
        return Ok(None);
    }
    let last = snapshot.objects.last().map(|o| o.key.to_string());
    Ok(Some(ListPage {
        revision: at.unwrap_or(snapshot.revision),
        next: if more && limit != usize::MAX { last } else { None },
        objects: snapshot.objects,
        rest: None,
        remaining,
    }))
}

/// Lists a past revision from the store. Retains the first objects; the others are only counted and
/// read again later.
async fn list_from_store(
    call: &RequestContext<'_>,
    selection: &ObjectSelection,
    options: &ListOptions,
    revision: u64,
    after: Option<&str>,
) -> Result<ListPage, Error> {
    let limit = if options.limit == 0 { usize::MAX } else { options.limit };
    let mut found = HistoricalRead::default();
    let mut after = after.map(str::to_owned);
    // Without a selector, one more than the page shows whether there are more.
    let all = if selection.is_everything() { limit.saturating_add(1) } else { usize::MAX };
    let mut more = false;
    loop {
        let at_once = found.next_read().min(all.saturating_sub(found.count)).max(1);
        let range = list_body::range(call.kind, selection, revision, after.as_deref(), at_once);
        let page = call.server.store.range(range).await.map_err(|e| stale(call, e, options))?;
        for (key, stored) in &page.items {
            let object =
                list_body::object(call.kind, key, stored).map_err(|e| Error::Internal(e.to_string()))?;
            after = Some(object.key.to_string());
            found.count_read(&object);
            if found.count < limit && !selection.matches(&object) {
                more = true;
                continue;
            }
            if found.count == limit {
                let next = Some(found.last.clone());
                let remaining = if selection.is_everything() {
                    call.cache()?.count_at(&selection.scope, &found.last, revision)
                } else {
                    0
                };
                return Ok(found.page(call, selection, revision, next, remaining));
            }
            more = false;
            found.push_selected(object);
        }
        if !page.more || page.items.is_empty() {
            let is_cut = more && limit != usize::MAX && found.count > 0;
            let next = is_cut.then(|| found.last.clone());
            return Ok(found.page(call, selection, revision, next, 0));
        }
    }
}

/// Progress of reading a past revision.
#[derive(Default)]
struct HistoricalRead {
    /// The first selected objects, up to [`limits::PAST_BYTES`].
    retained: Vec<Arc<Object>>,
    retained_bytes: usize,
    /// Number of selected objects so far.
    count: usize,
    /// Key of the last selected object.
    last: String,
    /// Size and tabs of the objects that are not retained.
    rest_bytes: usize,
    rest_has_tabs: bool,
    /// Number and bytes of all objects examined.
    seen: usize,
    seen_bytes: usize,
}

impl HistoricalRead {
    fn count_read(&mut self, object: &Object) {
        self.seen += 1;
        self.seen_bytes += object.size();
    }

    fn push_selected(&mut self, object: Object) {
        self.count += 1;
        self.last = object.key.to_string();
        // Once one is dropped, all later ones are: they are read again from there on.
        if self.retained_bytes < limits::PAST_BYTES && self.retained.len() + 1 == self.count {
            self.retained_bytes += object.size();
            self.retained.push(Arc::new(object));
        } else {
            self.rest_bytes += object.stored_item().len();
            self.rest_has_tabs |= object.has_tabs();
        }
    }

    /// Returns how many objects to read next.
    fn next_read(&self) -> usize {
        match self.seen {
            0 => READ_AT_FIRST,
            seen => list_body::objects_in(READ_BYTES, self.seen_bytes, seen),
        }
    }

    fn page(
        self,
        call: &RequestContext<'_>,
        selection: &ObjectSelection,
        revision: u64,
        next: Option<String>,
        remaining: usize,
    ) -> ListPage {
        let rest = (self.count > self.retained.len()).then(|| HistoricalObjects {
            server: call.server.clone(),
            kind: call.kind,
            selection: selection.clone(),
            revision,
            after: self.retained.last().map(|object| object.key.to_string()).unwrap_or_default(),
            count: self.count - self.retained.len(),
            item_bytes: self.rest_bytes,
            has_tabs: self.rest_has_tabs,
        });
        ListPage { revision, objects: self.retained, rest, next, remaining }
    }
}

fn stale(call: &RequestContext<'_>, error: windlass_store::Error, options: &ListOptions) -> Error {
    match error {
        windlass_store::Error::Compacted { .. } if options.continue_.is_empty() => {
            Error::Expired("The resourceVersion for the provided list is too old.".into(), String::new())
        }
        windlass_store::Error::Compacted { .. } => {
            expired_token(&read_token(options).map(|t| t.start).unwrap_or_default())
        }
        other => super::store_error::store_error(call.server, other),
    }
}

fn expired_token(start: &str) -> Error {
    let text = "The provided continue parameter is too old to display a consistent list result. \
        You can start a new list without the continue parameter, or use the continue token in \
        this response to retrieve the remainder of the results. Continuing with the provided \
        token results in an inconsistent list - objects that were created, modified, or deleted \
        between the time the first chunk was returned and now may show up in the list.";
    Error::Expired(text.into(), write_token(-1, start))
}

fn finish(page: ListPage, selection: &ObjectSelection) -> ObjectList {
    let continue_ = match &page.next {
        Some(key) => write_token(page.revision as i64, key),
        None => String::new(),
    };
    let counted = page.remaining > 0 && selection.is_everything() && page.next.is_some();
    ObjectList {
        revision: page.revision,
        objects: page.objects,
        rest: page.rest,
        continue_,
        remaining: counted.then_some(page.remaining),
    }
}

fn write_token(revision: i64, start: &str) -> String {
    let token = ContinueToken { v: TOKEN_VERSION.into(), rv: revision, start: start.into() };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
}

fn read_token(options: &ListOptions) -> Result<ContinueToken, Error> {
    let bad =
        |why: &str| Error::BadRequest(format!("invalid continue token: continue key is not valid: {why}"));
    if !matches!(options.version, ResourceVersionMatch::Latest | ResourceVersionMatch::Any) {
        let text = "specifying resource version is not allowed when using continue";
        return Err(Error::BadRequest(text.into()));
    }
    let text = &options.continue_;
    let raw = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad(&illegal_base64(text)))?;
    let token: ContinueToken = serde_json::from_slice(&raw).map_err(|e| bad(&e.to_string()))?;
    if token.v != TOKEN_VERSION {
        return Err(bad(&format!("server does not recognize this encoded version {:?}", token.v)));
    }
    if token.rv == 0 {
        return Err(bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
    }
    // The key is only compared, never looked up; a token must not contain path tricks all the same.
    if token.start.is_empty() || token.start.split('/').any(|p| matches!(p, "" | "." | "..")) {
        return Err(bad("the start key is malformed"));
    }
    Ok(token)
}

/// Returns where Go's decoder would fail: at the first invalid byte, or at the dangling last
/// character.
fn illegal_base64(text: &str) -> String {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let at = text.bytes().position(|b| !legal(b)).unwrap_or(text.len() / 4 * 4);
    format!("illegal base64 data at input byte {at}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        let options = ListOptions { continue_: write_token(7, "ns/n"), ..ListOptions::default() };
        let token = read_token(&options).unwrap();
        assert_eq!((token.rv, token.start.as_str()), (7, "ns/n"));
    }

    #[test]
    fn invalid_tokens_are_refused_with_kubernetes_messages() {
        let good = |start: &str| write_token(7, start);
        for (token, words) in [
            ("bogus".to_owned(), "illegal base64 data at input byte 4"),
            ("a*cd".to_owned(), "illegal base64 data at input byte 1"),
            (URL_SAFE_NO_PAD.encode("{}"), "continue key is not valid"),
            (good("../secrets/x"), "the start key is malformed"),
            (good(""), "the start key is malformed"),
        ] {
            let options = ListOptions { continue_: token, ..ListOptions::default() };
            let error = read_token(&options).unwrap_err().status().message;
            assert!(error.contains(words), "{error}");
        }
    }
}
