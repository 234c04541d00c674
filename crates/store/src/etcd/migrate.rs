//! etcd stores as source of an export and target of an import.

mod batch;
mod target;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::client::{CallFailure, EtcdClient};
use super::keys::KeySpace;
use super::meta_key::{self, MetaKeyValue};
use super::wire::{KeyValue, RangeRequest};
use super::{EtcdOptions, runtime};
use crate::fatal_latch::FatalLatch;
use crate::migrate::MigrationSource;
use crate::{Error, KeyRange, RangePage, Revision};
pub(crate) use target::EtcdTarget;

/// Number of objects per read.
const PAGE: i64 = 500;
/// Timeouts of an attempt and of a call: batches are large, and no caller waits for a single one.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(60));

/// A blocking connection to a store, used from one thread outside any runtime.
struct BlockingClient {
    runtime: Option<Runtime>,
    client: Arc<EtcdClient>,
    keys: KeySpace,
}

impl BlockingClient {
    fn new(options: &EtcdOptions) -> Result<Self, Error> {
        let (runtime, name) = runtime(options)?;
        let opening = EtcdClient::open(options, name.clone(), FatalLatch::new(name));
        let mut client = runtime.block_on(opening)?;
        let keys = KeySpace::with_prefix(&options.prefix);
        // Fail soon if no member answers; afterwards use the long timeout.
        let answered = runtime.block_on(client.get_meta_key(&keys));
        answered.map_err(|failure| failure.into_error(&client.name))?;
        (client.attempt, client.patience) = PATIENCE;
        Ok(Self { runtime: Some(runtime), client: Arc::new(client), keys })
    }

    fn wait<T>(&self, call: impl Future<Output = Result<T, CallFailure>>) -> Result<T, CallFailure> {
        match &self.runtime {
            Some(runtime) => runtime.block_on(call),
            None => Err(CallFailure::Final(Error::Closed)),
        }
    }

    fn get_meta_key(&self) -> Result<(i64, Option<KeyValue>), Error> {
        self.wait(self.client.get_meta_key(&self.keys)).map_err(|failure| self.call_error(failure))
    }

    /// Replaces the meta key if it is the one that was read.
    fn replace(&self, read: Option<&KeyValue>, mark: &MetaKeyValue) -> Result<bool, Error> {
        let request = meta_key::replace_request(&self.keys, read, mark);
        let answer = self.wait(self.client.txn(request)).map_err(|failure| self.call_error(failure))?;
        Ok(answer.succeeded)
    }

    /// Returns the current number of objects.
    fn count(&self) -> Result<u64, Error> {
        let request = RangeRequest { count_only: true, ..self.full_range(None) };
        let answer = self.wait(self.client.range(request)).map_err(|failure| self.call_error(failure))?;
        Ok(u64::try_from(answer.count).unwrap_or_default())
    }

    /// Returns the first objects after a key, at an etcd revision.
    fn page(&self, number: i64, after: Option<&str>) -> Result<RangePage, CallFailure> {
        let request = RangeRequest { limit: PAGE, revision: number, ..self.full_range(after) };
        let answer = self.wait(self.client.range(request))?;
        let items = answer.kvs.into_iter();
        let items = items.filter_map(|kv| Some((self.keys.store_key(&kv.key)?, self.keys.stored_value(kv))));
        let revision = self.keys.revision(number);
        Ok(RangePage { revision, items: items.collect(), more: answer.more })
    }

    fn full_range(&self, after: Option<&str>) -> RangeRequest {
        let range = KeyRange { after: after.map(ToOwned::to_owned), ..KeyRange::default() };
        let bounds = self.keys.bounds(&range);
        let (key, range_end) = bounds.unwrap_or_else(|| (self.keys.end(), self.keys.end()));
        RangeRequest { key, range_end, ..RangeRequest::default() }
    }

    fn call_error(&self, failure: CallFailure) -> Error {
        failure.into_error(&self.client.name)
    }

    fn refused_error(&self, what: impl Into<String>) -> Error {
        Error::Refused { path: self.client.name.clone(), what: what.into() }
    }
}

impl Drop for BlockingClient {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A store that is exported.
pub(crate) struct EtcdSource {
    link: BlockingClient,
    prefix: String,
    newest: i64,
    count: u64,
}

impl EtcdSource {
    pub(crate) fn open(options: &EtcdOptions) -> Result<Self, Error> {
        let mut link = BlockingClient::new(options)?;
        let (newest, found) = link.get_meta_key()?;
        link.keys.offset = meta_key::serving_offset(&link.client, found.as_ref())?;
        let count = link.count()?;
        Ok(Self { link, prefix: options.prefix.clone(), newest, count })
    }
}

impl MigrationSource for EtcdSource {
    fn origin(&self) -> (&'static str, String) {
        ("etcd", format!("{:x}{}", self.link.client.cluster(), self.prefix))
    }

    fn revision(&self) -> Revision {
        self.link.keys.revision(self.newest)
    }

    fn count(&self) -> u64 {
        self.count
    }

    fn page(&mut self, at: Revision, after: Option<&str>) -> Result<RangePage, Error> {
        let floor = self.link.keys.offset.floor;
        let number = self.link.keys.etcd_revision(at).filter(|_| at >= floor);
        let Some(number) = number else { return Err(Error::Compacted { floor }) };
        self.link.page(number, after).map_err(|failure| match failure {
            CallFailure::Compacted => Error::Compacted { floor: at + 1 },
            CallFailure::Future => Error::Future { revision: self.revision() },
            failure => self.link.call_error(failure),
        })
    }
}
