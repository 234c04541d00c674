//! A store on etcd that an import makes. While it does, the mark says so.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::super::client::Failure;
use super::super::keys::successor;
use super::super::mark::{self, Count, Mark};
use super::super::wire::{DeleteRangeRequest, RangeRequest, Request, TxnRequest};
use super::batch::Batch;
use super::{EtcdOptions, Link, PAGE};
use crate::moving::{Plan, Source, Start, Target};
use crate::{Error, Page, Revision};

/// How many batches are on their way at once.
const FLYING: usize = 8;

/// A store that is being made.
pub(crate) struct Filling {
    link: Link,
    /// The mark, as every change expects to find it.
    mark: Mark,
    there: There,
    batch: Batch,
    flying: JoinSet<Result<(), Error>>,
    /// Where the cluster was when everything was put.
    settled: i64,
}

/// What an earlier import has put, read in pages ahead of what is put now.
#[derive(Default)]
struct There {
    items: VecDeque<(String, Bytes)>,
    last: Option<String>,
    more: bool,
}

impl Filling {
    /// Begins in a store without objects, or goes on.
    pub(crate) fn begin(options: &EtcdOptions, plan: &Plan) -> Result<Start<Self>, Error> {
        let mut link = Link::new(options)?;
        let (_, found) = link.mark()?;
        let importing = |base| Mark::Importing { digest: plan.digest.clone(), base };
        let read = Mark::read(found.as_ref());
        let (base, more) = match &read {
            Some(Mark::Counting(_)) if link.count()? > 0 => return Ok(Start::Occupied),
            Some(Mark::Counting(count)) => (count.base, false),
            Some(Mark::Importing { digest, base }) if *digest == plan.digest => (*base, true),
            Some(Mark::Importing { digest, .. }) => {
                let what = format!(
                    "holds a part of another import, with digest {digest}; finish that one with \
                     its file, or take it back with `windlass store import --undo`"
                );
                return Err(link.refused(what));
            }
            None => return Err(link.refused(mark::STRANGE)),
        };
        // The same objects may have been exported again, at a later revision.
        let base = plan.above.max(base);
        let mark = importing(base);
        if !link.replace(found.as_ref(), &mark)? {
            return Err(link.refused("is being used by another process"));
        }
        if let Some(Mark::Counting(count)) = read
            && link.count()? > 0
        {
            // A server has written in between. It has noticed the mark, and stops.
            link.replace(link.mark()?.1.as_ref(), &Mark::Counting(count))?;
            return Err(link.refused("is being used by a server"));
        }
        link.keys.count.base = base;
        let there = There { more, ..There::default() };
        let (batch, flying) = (Batch::default(), JoinSet::new());
        Ok(Start::Ready(Self { link, mark, there, batch, flying, settled: 0 }))
    }

    /// Removes what an import has put.
    pub(crate) fn undo(options: &EtcdOptions) -> Result<(), Error> {
        let mut link = Link::new(options)?;
        let (_, found) = link.mark()?;
        let mark = Mark::read(found.as_ref());
        let Some(mark @ Mark::Importing { base, .. }) = mark else {
            return Err(link.refused("holds no import that was not finished"));
        };
        link.keys.count.base = base;
        loop {
            let request = RangeRequest { limit: PAGE, keys_only: true, ..link.all(None) };
            let first = request.key.clone();
            let fail = |failure| link.error(failure);
            let answer = link.wait(link.client.range(request)).map_err(fail)?;
            let Some(last) = answer.kvs.last() else { break };
            let range_end = successor(&last.key);
            let delete = DeleteRangeRequest { key: first, range_end, prev_kv: false };
            let request = TxnRequest {
                compare: vec![mark::holds(&link.keys, mark.value())],
                success: vec![Request::DeleteRange(delete).into()],
                failure: Vec::new(),
            };
            if !link.wait(link.client.txn(request)).map_err(fail)?.succeeded {
                return Err(link.refused("was changed by another process"));
            }
        }
        link.release(&mark, base).map(drop)
    }

    /// Whether an object is there already; refuses what the file does not have.
    fn is_there(&mut self, key: &str, value: &Bytes) -> Result<bool, Error> {
        let (found_key, found) = loop {
            match self.there.items.front() {
                Some(front) => break front,
                None if self.there.more => self.read_on()?,
                None => return Ok(false),
            }
        };
        if found_key.as_str() < key {
            let what = format!("holds {found_key}, which the file does not");
            return Err(self.link.refused(what));
        }
        if found_key != key {
            return Ok(false);
        }
        if found != value {
            let what = format!("holds {key} with another value than the file");
            return Err(self.link.refused(what));
        }
        self.there.items.pop_front();
        Ok(true)
    }

    /// Reads what comes after what was read. Nothing of it was put by this import, which has not
    /// come further than what was read.
    fn read_on(&mut self) -> Result<(), Error> {
        let page = self.link.page(0, self.there.last.as_deref());
        let page = page.map_err(|failure| self.link.error(failure))?;
        self.there.more = page.more;
        if let Some((key, _)) = page.items.last() {
            self.there.last = Some(key.clone());
        }
        let items = page.items.into_iter().map(|(key, stored)| (key, stored.value));
        self.there.items.extend(items);
        Ok(())
    }

    fn launch(&mut self) -> Result<(), Error> {
        self.land(FLYING - 1)?;
        let batch = std::mem::take(&mut self.batch);
        let Some(runtime) = &self.link.runtime else { return Err(Error::Closed) };
        let condition = mark::holds(&self.link.keys, self.mark.value());
        let sending = batch.send(std::sync::Arc::clone(&self.link.client), condition);
        self.flying.spawn_on(sending, runtime.handle());
        Ok(())
    }

    /// Waits until no more than some batches are on their way.
    fn land(&mut self, most: usize) -> Result<(), Error> {
        while self.flying.len() > most {
            let Some(runtime) = &self.link.runtime else { return Err(Error::Closed) };
            if let Some(landed) = runtime.block_on(self.flying.join_next()) {
                landed.unwrap_or(Err(Error::Closed))?;
            }
        }
        Ok(())
    }
}

impl Link {
    /// Makes the store one that may be opened; returns its revision, which is its floor.
    fn release(&self, mark: &Mark, base: Revision) -> Result<Revision, Error> {
        let (newest, found) = self.mark()?;
        let floor = self.keys.revision(newest);
        let counting = Mark::Counting(Count { base, floor });
        let ours = Mark::read(found.as_ref()).as_ref() == Some(mark);
        if ours && self.replace(found.as_ref(), &counting)? {
            Ok(floor)
        } else {
            Err(self.refused("was changed by another process"))
        }
    }
}

impl Source for Filling {
    fn origin(&self) -> (&'static str, String) {
        ("etcd", String::new())
    }

    fn revision(&self) -> Revision {
        self.link.keys.revision(self.settled)
    }

    fn count(&self) -> u64 {
        0
    }

    fn page(&mut self, at: Revision, after: Option<&str>) -> Result<Page, Error> {
        let number = self.link.keys.number(at).unwrap_or_default();
        self.link.page(number, after).map_err(|failure: Failure| self.link.error(failure))
    }
}

impl Target for Filling {
    fn put(&mut self, key: String, value: Bytes) -> Result<bool, Error> {
        if self.is_there(&key, &value)? {
            return Ok(true);
        }
        let key = self.link.keys.full(&key);
        if !self.batch.has_room(&key, &value) {
            self.launch()?;
        }
        self.batch.push(key, value);
        Ok(false)
    }

    fn settle(&mut self) -> Result<(), Error> {
        self.launch()?;
        self.land(0)?;
        self.settled = self.link.mark()?.0;
        Ok(())
    }

    fn publish(self: Box<Self>) -> Result<Revision, Error> {
        self.link.release(&self.mark, self.link.keys.count.base)
    }
}
