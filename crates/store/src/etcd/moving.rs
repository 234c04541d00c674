//! A store on etcd that is read for an export, or made by an import.

mod batch;
mod filling;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::client::{Client, Failure};
use super::keys::Keys;
use super::mark::{self, Mark};
use super::wire::{KeyValue, RangeRequest};
use super::{EtcdOptions, runtime};
use crate::embedded::Fuse;
use crate::moving::Source;
use crate::{Error, Page, Range, Revision};
pub(crate) use filling::Filling;

/// How many objects are read at once.
const PAGE: i64 = 500;
/// Batches are large, and nobody waits for a single one.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));

/// A connection to a store that is used from one thread, which must not be one of a runtime.
struct Link {
    runtime: Option<Runtime>,
    client: Arc<Client>,
    keys: Keys,
}

impl Link {
    fn new(options: &EtcdOptions) -> Result<Self, Error> {
        let (runtime, name) = runtime(options)?;
        let opening = Client::open(options, name.clone(), Fuse::new(name));
        let mut client = runtime.block_on(opening)?;
        let keys = Keys::below(&options.prefix);
        // That nobody answers is said soon. Who has answered once is waited for.
        let answered = runtime.block_on(client.mark(&keys));
        answered.map_err(|failure| failure.into_error(&client.name))?;
        (client.attempt, client.patience) = PATIENCE;
        Ok(Self { runtime: Some(runtime), client: Arc::new(client), keys })
    }

    fn wait<T>(&self, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        match &self.runtime {
            Some(runtime) => runtime.block_on(call),
            None => Err(Failure::Final(Error::Closed)),
        }
    }

    fn mark(&self) -> Result<(i64, Option<KeyValue>), Error> {
        self.wait(self.client.mark(&self.keys)).map_err(|failure| self.error(failure))
    }

    /// Changes the mark if it is the one that was read.
    fn replace(&self, read: Option<&KeyValue>, mark: &Mark) -> Result<bool, Error> {
        let request = mark::replace(&self.keys, read, mark);
        let answer = self.wait(self.client.txn(request)).map_err(|failure| self.error(failure))?;
        Ok(answer.succeeded)
    }

    /// How many objects there are now.
    fn count(&self) -> Result<u64, Error> {
        let request = RangeRequest { count_only: true, ..self.all(None) };
        let answer =
            self.wait(self.client.range(request)).map_err(|failure| self.error(failure))?;
        Ok(u64::try_from(answer.count).unwrap_or_default())
    }

    /// The first objects after a key, by etcd's number of a revision.
    fn page(&self, number: i64, after: Option<&str>) -> Result<Page, Failure> {
        let request = RangeRequest { limit: PAGE, revision: number, ..self.all(after) };
        let answer = self.wait(self.client.range(request))?;
        let items = answer.kvs.into_iter();
        let items = items.filter_map(|kv| Some((self.keys.short(&kv.key)?, self.keys.stored(kv))));
        let revision = self.keys.revision(number);
        Ok(Page { revision, items: items.collect(), more: answer.more })
    }

    fn all(&self, after: Option<&str>) -> RangeRequest {
        let range = Range { after: after.map(ToOwned::to_owned), ..Range::default() };
        let bounds = self.keys.bounds(&range);
        let (key, range_end) = bounds.unwrap_or_else(|| (self.keys.end(), self.keys.end()));
        RangeRequest { key, range_end, ..RangeRequest::default() }
    }

    fn error(&self, failure: Failure) -> Error {
        failure.into_error(&self.client.name)
    }

    fn refused(&self, what: impl Into<String>) -> Error {
        Error::Refused { path: self.client.name.clone(), what: what.into() }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A store that is read.
pub(crate) struct Reading {
    link: Link,
    prefix: String,
    newest: i64,
    count: u64,
}

impl Reading {
    pub(crate) fn open(options: &EtcdOptions) -> Result<Self, Error> {
        let mut link = Link::new(options)?;
        let (newest, found) = link.mark()?;
        link.keys.count = mark::counting(&link.client, found.as_ref())?;
        let count = link.count()?;
        Ok(Self { link, prefix: options.prefix.clone(), newest, count })
    }
}

impl Source for Reading {
    fn origin(&self) -> (&'static str, String) {
        ("etcd", format!("{:x}{}", self.link.client.cluster(), self.prefix))
    }

    fn revision(&self) -> Revision {
        self.link.keys.revision(self.newest)
    }

    fn count(&self) -> u64 {
        self.count
    }

    fn page(&mut self, at: Revision, after: Option<&str>) -> Result<Page, Error> {
        let floor = self.link.keys.count.floor;
        let number = self.link.keys.number(at).filter(|_| at >= floor);
        let Some(number) = number else { return Err(Error::Compacted { floor }) };
        self.link.page(number, after).map_err(|failure| match failure {
            Failure::Compacted => Error::Compacted { floor: at + 1 },
            Failure::Future => Error::Future { revision: self.revision() },
            failure => self.link.error(failure),
        })
    }
}
