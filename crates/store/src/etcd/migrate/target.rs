//! A store on etcd created by an import. The meta key marks the import until it finishes.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::super::client::CallFailure;
use super::super::keys::successor;
use super::super::meta_key::{self, MetaKeyValue, RevisionOffset};
use super::super::wire::{DeleteRangeRequest, RangeRequest, Request, TxnRequest};
use super::batch::ImportBatch;
use super::{BlockingClient, EtcdOptions, PAGE};
use crate::migrate::{ImportPlan, ImportStart, MigrationSource, MigrationTarget};
use crate::{Error, RangePage, Revision};

/// Number of concurrent batches in flight.
const FLYING: usize = 8;

/// A store that is being imported.
pub(crate) struct EtcdTarget {
    link: BlockingClient,
    /// The meta key value that every change expects.
    meta: MetaKeyValue,
    existing: ExistingObjects,
    batch: ImportBatch,
    in_flight: JoinSet<Result<(), Error>>,
    /// The cluster's revision when everything was written.
    settled: i64,
}

/// Objects of an earlier import, read in pages ahead of the current writes.
#[derive(Default)]
struct ExistingObjects {
    items: VecDeque<(String, Bytes)>,
    last: Option<String>,
    more: bool,
}

impl EtcdTarget {
    /// Starts in a store without objects, or resumes an import.
    pub(crate) fn begin(options: &EtcdOptions, plan: &ImportPlan) -> Result<ImportStart<Self>, Error> {
        let mut link = BlockingClient::new(options)?;
        let (_, found) = link.get_meta_key()?;
        let importing = |base| MetaKeyValue::Importing { digest: plan.digest.clone(), base };
        let read = MetaKeyValue::parse(found.as_ref());
        let (base, more) = match &read {
            Some(MetaKeyValue::Serving(_)) if link.count()? > 0 => {
                return Ok(ImportStart::Occupied);
            }
            Some(MetaKeyValue::Serving(count)) => (count.base, false),
            Some(MetaKeyValue::Importing { digest, base }) if *digest == plan.digest => (*base, true),
            Some(MetaKeyValue::Importing { digest, .. }) => {
                let what = format!(
                    "holds a part of another import, with digest {digest}; finish that one with \
                     its file, or undo it with `windlass store import --undo`"
                );
                return Err(link.refused_error(what));
            }
            None => return Err(link.refused_error(meta_key::STRANGE)),
        };
        // The same objects may have been exported again, at a later revision.
        let base = plan.above.max(base);
        let mark = importing(base);
        if !link.replace(found.as_ref(), &mark)? {
            return Err(link.refused_error("is being used by another process"));
        }
        if let Some(MetaKeyValue::Serving(count)) = read
            && link.count()? > 0
        {
            // A server has written in between. It has noticed the meta key, and stops.
            link.replace(link.get_meta_key()?.1.as_ref(), &MetaKeyValue::Serving(count))?;
            return Err(link.refused_error("is being used by a server"));
        }
        link.keys.offset.base = base;
        let there = ExistingObjects { more, ..ExistingObjects::default() };
        let (batch, flying) = (ImportBatch::default(), JoinSet::new());
        Ok(ImportStart::Ready(Self {
            link,
            meta: mark,
            existing: there,
            batch,
            in_flight: flying,
            settled: 0,
        }))
    }

    /// Removes the data that an import wrote.
    pub(crate) fn undo(options: &EtcdOptions) -> Result<(), Error> {
        let mut link = BlockingClient::new(options)?;
        let (_, found) = link.get_meta_key()?;
        let mark = MetaKeyValue::parse(found.as_ref());
        let Some(mark @ MetaKeyValue::Importing { base, .. }) = mark else {
            return Err(link.refused_error("has no unfinished import"));
        };
        link.keys.offset.base = base;
        loop {
            let request = RangeRequest { limit: PAGE, keys_only: true, ..link.full_range(None) };
            let first = request.key.clone();
            let fail = |failure| link.call_error(failure);
            let answer = link.wait(link.client.range(request)).map_err(fail)?;
            let Some(last) = answer.kvs.last() else { break };
            let range_end = successor(&last.key);
            let delete = DeleteRangeRequest { key: first, range_end, prev_kv: false };
            let request = TxnRequest {
                compare: vec![meta_key::value_equals(&link.keys, mark.encode())],
                success: vec![Request::DeleteRange(delete).into()],
                failure: Vec::new(),
            };
            if !link.wait(link.client.txn(request)).map_err(fail)?.succeeded {
                return Err(link.refused_error("was changed by another process"));
            }
        }
        link.release(&mark, base).map(drop)
    }

    /// Returns true if an object already exists; rejects objects that the file does not contain.
    fn already_imported(&mut self, key: &str, value: &Bytes) -> Result<bool, Error> {
        let (found_key, found) = loop {
            match self.existing.items.front() {
                Some(front) => break front,
                None if self.existing.more => self.read_next_page()?,
                None => return Ok(false),
            }
        };
        if found_key.as_str() < key {
            let what = format!("holds {found_key}, which the file does not");
            return Err(self.link.refused_error(what));
        }
        if found_key != key {
            return Ok(false);
        }
        if found != value {
            let what = format!("holds {key} with a value that differs from the file");
            return Err(self.link.refused_error(what));
        }
        self.existing.items.pop_front();
        Ok(true)
    }

    /// Reads the next page. None of it was written by this import, which has not got past the
    /// previous pages.
    fn read_next_page(&mut self) -> Result<(), Error> {
        let page = self.link.page(0, self.existing.last.as_deref());
        let page = page.map_err(|failure| self.link.call_error(failure))?;
        self.existing.more = page.more;
        if let Some((key, _)) = page.items.last() {
            self.existing.last = Some(key.clone());
        }
        let items = page.items.into_iter().map(|(key, stored)| (key, stored.value));
        self.existing.items.extend(items);
        Ok(())
    }

    fn send_batch(&mut self) -> Result<(), Error> {
        self.wait_for_batches(FLYING - 1)?;
        let batch = std::mem::take(&mut self.batch);
        let Some(runtime) = &self.link.runtime else { return Err(Error::Closed) };
        let condition = meta_key::value_equals(&self.link.keys, self.meta.encode());
        let sending = batch.send(std::sync::Arc::clone(&self.link.client), condition);
        self.in_flight.spawn_on(sending, runtime.handle());
        Ok(())
    }

    /// Waits until at most `most` batches are in flight.
    fn wait_for_batches(&mut self, most: usize) -> Result<(), Error> {
        while self.in_flight.len() > most {
            let Some(runtime) = &self.link.runtime else { return Err(Error::Closed) };
            if let Some(landed) = runtime.block_on(self.in_flight.join_next()) {
                landed.unwrap_or(Err(Error::Closed))?;
            }
        }
        Ok(())
    }
}

impl BlockingClient {
    /// Finishes the import so that the store may be opened; returns its revision, which is its
    /// floor.
    fn release(&self, mark: &MetaKeyValue, base: Revision) -> Result<Revision, Error> {
        let (newest, found) = self.get_meta_key()?;
        let floor = self.keys.revision(newest);
        let counting = MetaKeyValue::Serving(RevisionOffset { base, floor });
        let ours = MetaKeyValue::parse(found.as_ref()).as_ref() == Some(mark);
        if ours && self.replace(found.as_ref(), &counting)? {
            Ok(floor)
        } else {
            Err(self.refused_error("was changed by another process"))
        }
    }
}

impl MigrationSource for EtcdTarget {
    fn origin(&self) -> (&'static str, String) {
        ("etcd", String::new())
    }

    fn revision(&self) -> Revision {
        self.link.keys.revision(self.settled)
    }

    fn count(&self) -> u64 {
        0
    }

    fn page(&mut self, at: Revision, after: Option<&str>) -> Result<RangePage, Error> {
        let number = self.link.keys.etcd_revision(at).unwrap_or_default();
        self.link.page(number, after).map_err(|failure: CallFailure| self.link.call_error(failure))
    }
}

impl MigrationTarget for EtcdTarget {
    fn put(&mut self, key: String, value: Bytes) -> Result<bool, Error> {
        if self.already_imported(&key, &value)? {
            return Ok(true);
        }
        let key = self.link.keys.etcd_key(&key);
        if !self.batch.has_room(&key, &value) {
            self.send_batch()?;
        }
        self.batch.push(key, value);
        Ok(false)
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.send_batch()?;
        self.wait_for_batches(0)?;
        self.settled = self.link.get_meta_key()?.0;
        Ok(())
    }

    fn publish(self: Box<Self>) -> Result<Revision, Error> {
        self.link.release(&self.meta, self.link.keys.offset.base)
    }
}
