//! Writes as etcd transactions.

use bytes::Bytes;

use super::client::CallFailure;
use super::core::EtcdCore;
use super::wire::{
    Compare, CompareResult, CompareTarget, CompareTo, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest,
    Request, Response, TxnRequest, TxnResponse,
};
use crate::{CommittedWrite, Error, KeyChange, Revision, WritePrecondition, WriteRequest};

/// Commits a change; see [`crate::Store::commit`].
pub(super) async fn commit(core: &EtcdCore, write: WriteRequest) -> Result<CommittedWrite, Error> {
    if let Some(error) = core.latch.cause() {
        return Err(error);
    }
    if write.key.is_empty() {
        let what = "rejects empty keys".to_owned();
        return Err(Error::Refused { path: core.client.name.clone(), what });
    }
    let delete = matches!(write.change, KeyChange::Delete);
    let fail = |failure: CallFailure| match failure {
        CallFailure::Unknown(error) => unknown_outcome(error),
        failure => failure.into_error(&core.client.name),
    };
    let (before, key) = (core.position(), core.keys.etcd_key(&write.key));
    let answer = match core.client.txn(build_txn(core, write)).await {
        Err(CallFailure::Final(full @ Error::Full { .. })) => {
            return Err(resolve_full(core, key, before, full).await);
        }
        answer => answer.map_err(fail)?,
    };
    let at = core.keys.revision(core.client.check(answer.header).map_err(fail)?);
    match parse_outcome(answer) {
        TxnOutcome::Done(previous) => {
            core.await_feed(at).await.map_err(unknown_outcome)?;
            // A sink that failed on the change has failed the store.
            if let Some(error) = core.latch.cause() {
                return Err(error);
            }
            let previous = previous.map(|kv| core.keys.stored_value(kv));
            let created = previous.as_ref().map_or(at, |old| old.created);
            debug_assert!(!delete || previous.is_some());
            Ok(CommittedWrite { revision: at, created, previous })
        }
        TxnOutcome::Refused(current) => {
            // A rejected caller will read a sink's state, and must find the reason there.
            let current = current.map(|kv| core.keys.revision(kv.mod_revision));
            match current {
                Some(current) => core.await_feed(current).await?,
                None => core.wait_for_revision(at).await?,
            }
            Err(Error::Conflict { current })
        }
        TxnOutcome::Unknown => {
            Err(unknown_outcome(core.client.unavailable("the response does not match the request")))
        }
    }
}

/// Returns the error for a change that was sent and may have been applied.
fn unknown_outcome(error: Error) -> Error {
    match error {
        Error::Unavailable { path, what } => Error::Unknown { path, what },
        error => error,
    }
}

/// Returns the error for a change that etcd reports no space for. Usually it was not applied; but
/// etcd checks twice, and if only the second check finds no space, it applies the change and
/// reports the same error.
async fn resolve_full(core: &EtcdCore, key: Bytes, before: Revision, full: Error) -> Error {
    let look = RangeRequest { key, keys_only: true, ..RangeRequest::default() };
    match core.client.range(look).await {
        Ok(found) if found.kvs.iter().all(|kv| core.keys.revision(kv.mod_revision) <= before) => full,
        _ => unknown_outcome(core.client.unavailable("database space exceeded")),
    }
}

enum TxnOutcome {
    Done(Option<KeyValue>),
    Refused(Option<KeyValue>),
    Unknown,
}

fn parse_outcome(answer: TxnResponse) -> TxnOutcome {
    let response = answer.responses.into_iter().next().and_then(|op| op.response);
    match response {
        Some(Response::Put(put)) => TxnOutcome::Done(put.prev_kv),
        Some(Response::DeleteRange(deleted)) => TxnOutcome::Done(deleted.prev_kvs.into_iter().next()),
        Some(Response::Range(found)) => TxnOutcome::Refused(found.kvs.into_iter().next()),
        None => TxnOutcome::Unknown,
    }
}

/// Builds the transaction: the change if the precondition holds, otherwise a read of the key.
fn build_txn(core: &EtcdCore, write: WriteRequest) -> TxnRequest {
    let key = core.keys.etcd_key(&write.key);
    let look = RangeRequest { key: key.clone(), keys_only: true, ..RangeRequest::default() };
    let look = vec![Request::Range(look).into()];
    let delete = matches!(write.change, KeyChange::Delete);
    let exists = |greater: bool| {
        let result = if greater { CompareResult::Greater } else { CompareResult::Equal };
        (result, CompareTarget::Version, CompareTo::Version(0))
    };
    let condition = match write.expect {
        WritePrecondition::Any if delete => Some(exists(true)),
        WritePrecondition::Any => None,
        WritePrecondition::Absent if delete => {
            return TxnRequest { success: look, ..TxnRequest::default() };
        }
        WritePrecondition::Absent => Some(exists(false)),
        WritePrecondition::Revision(expected) => match core.keys.etcd_revision(expected) {
            Some(at) => Some((CompareResult::Equal, CompareTarget::Mod, CompareTo::ModRevision(at))),
            None => return TxnRequest { success: look, ..TxnRequest::default() },
        },
    };
    let change = match write.change {
        KeyChange::Put(value) => Request::Put(PutRequest { key: key.clone(), value, prev_kv: true }),
        KeyChange::Delete => {
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
    TxnRequest { compare: compare.into_iter().collect(), success: vec![change.into()], failure: look }
}
