//! One change as one transaction.

use bytes::Bytes;

use super::client::Failure;
use super::core::Core;
use super::wire::{
    Compare, CompareResult, CompareTarget, CompareTo, DeleteRangeRequest, KeyValue, PutRequest,
    RangeRequest, Request, Response, TxnRequest, TxnResponse,
};
use crate::{Change, Committed, Error, Expect, Revision, Write};

/// Makes a change; see [`crate::Store::commit`].
pub(super) async fn commit(core: &Core, write: Write) -> Result<Committed, Error> {
    if let Some(error) = core.fuse.blown() {
        return Err(error);
    }
    if write.key.is_empty() {
        let what = "takes no empty key".to_owned();
        return Err(Error::Refused { path: core.client.name.clone(), what });
    }
    let delete = matches!(write.change, Change::Delete);
    let fail = |failure: Failure| match failure {
        Failure::Open(error) => unknown(error),
        failure => failure.into_error(&core.client.name),
    };
    let (before, key) = (core.position(), core.keys.full(&write.key));
    let answer = match core.client.txn(request(core, write)).await {
        Err(Failure::Final(full @ Error::Full { .. })) => {
            return Err(refused_as_full(core, key, before, full).await);
        }
        answer => answer.map_err(fail)?,
    };
    let at = core.keys.revision(core.client.check(answer.header).map_err(fail)?);
    match outcome(answer) {
        Outcome::Done(previous) => {
            core.await_feed(at).await.map_err(unknown)?;
            // A sink that could not take the change has failed the store.
            if let Some(error) = core.fuse.blown() {
                return Err(error);
            }
            let previous = previous.map(|kv| core.keys.stored(kv));
            let created = previous.as_ref().map_or(at, |old| old.created);
            debug_assert!(!delete || previous.is_some());
            Ok(Committed { revision: at, created, previous })
        }
        Outcome::Refused(current) => {
            // Who was refused will look at what a sink keeps, and must find the reason there.
            let current = current.map(|kv| core.keys.revision(kv.mod_revision));
            match current {
                Some(current) => core.await_feed(current).await?,
                None => core.reach(at).await?,
            }
            Err(Error::Conflict { current })
        }
        Outcome::Unknown => {
            Err(unknown(core.client.unavailable("an answer that does not fit the request")))
        }
    }
}

/// The error for a change that was sent and may have been made.
fn unknown(error: Error) -> Error {
    match error {
        Error::Unavailable { path, what } => Error::Unknown { path, what },
        error => error,
    }
}

/// The error for a change that etcd says it has no space for. Mostly it was not made; but etcd looks
/// twice, and if only the second look finds no space, it makes the change and says the same.
async fn refused_as_full(core: &Core, key: Bytes, before: Revision, full: Error) -> Error {
    let look = RangeRequest { key, keys_only: true, ..RangeRequest::default() };
    match core.client.range(look).await {
        Ok(found) if found.kvs.iter().all(|kv| core.keys.revision(kv.mod_revision) <= before) => {
            full
        }
        _ => unknown(core.client.unavailable("database space exceeded")),
    }
}

enum Outcome {
    Done(Option<KeyValue>),
    Refused(Option<KeyValue>),
    Unknown,
}

fn outcome(answer: TxnResponse) -> Outcome {
    let response = answer.responses.into_iter().next().and_then(|op| op.response);
    match response {
        Some(Response::Put(put)) => Outcome::Done(put.prev_kv),
        Some(Response::DeleteRange(deleted)) => Outcome::Done(deleted.prev_kvs.into_iter().next()),
        Some(Response::Range(found)) => Outcome::Refused(found.kvs.into_iter().next()),
        None => Outcome::Unknown,
    }
}

/// The transaction: the change if the expectation holds, else a look at the key.
fn request(core: &Core, write: Write) -> TxnRequest {
    let key = core.keys.full(&write.key);
    let look = RangeRequest { key: key.clone(), keys_only: true, ..RangeRequest::default() };
    let look = vec![Request::Range(look).into()];
    let delete = matches!(write.change, Change::Delete);
    let exists = |greater: bool| {
        let result = if greater { CompareResult::Greater } else { CompareResult::Equal };
        (result, CompareTarget::Version, CompareTo::Version(0))
    };
    let condition = match write.expect {
        Expect::Any if delete => Some(exists(true)),
        Expect::Any => None,
        Expect::Absent if delete => return TxnRequest { success: look, ..TxnRequest::default() },
        Expect::Absent => Some(exists(false)),
        Expect::Revision(expected) => match core.keys.number(expected) {
            Some(at) => {
                Some((CompareResult::Equal, CompareTarget::Mod, CompareTo::ModRevision(at)))
            }
            None => return TxnRequest { success: look, ..TxnRequest::default() },
        },
    };
    let change = match write.change {
        Change::Put(value) => Request::Put(PutRequest { key: key.clone(), value, prev_kv: true }),
        Change::Delete => {
            let key = key.clone();
            Request::DeleteRange(DeleteRangeRequest { key, prev_kv: true, ..Default::default() })
        }
    };
    let compare = condition.map(|(result, target, to)| Compare {
        result: result.into(),
        target: target.into(),
        key,
        to: Some(to),
    });
    TxnRequest {
        compare: compare.into_iter().collect(),
        success: vec![change.into()],
        failure: look,
    }
}
