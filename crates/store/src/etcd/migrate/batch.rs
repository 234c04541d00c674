//! Several objects of an import in one transaction, which may be sent more than once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::super::client::{CallFailure, EtcdClient};
use super::super::wire::{
    Compare, CompareResult, CompareTarget, CompareTo, PutRequest, RangeRequest, Request, TxnRequest,
};
use crate::Error;

/// By default etcd accepts at most 128 operations and 1.5 MiB per transaction.
const OBJECTS: usize = 100;
const BYTES: usize = 512 << 10;
/// Delay before a batch is retried.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct ImportBatch {
    items: Vec<(Bytes, Bytes)>,
    bytes: usize,
}

impl ImportBatch {
    pub(super) fn has_room(&self, key: &Bytes, value: &Bytes) -> bool {
        let bytes = self.bytes + key.len() + value.len();
        self.items.is_empty() || (self.items.len() < OBJECTS && bytes <= BYTES)
    }

    pub(super) fn push(&mut self, key: Bytes, value: Bytes) {
        self.bytes += key.len() + value.len();
        self.items.push((key, value));
    }

    /// Returns when all objects are in etcd. They are written only where no object exists, and
    /// while the condition holds.
    pub(super) async fn send(mut self, client: Arc<EtcdClient>, condition: Compare) -> Result<(), Error> {
        let begun = Instant::now();
        while !self.items.is_empty() {
            match client.txn(self.request(&condition)).await {
                Ok(answer) if answer.succeeded => break,
                Ok(_) => {
                    let before = self.items.len();
                    self.drop_existing(&client).await?;
                    if self.items.len() == before {
                        let what = "was undone or finished by another process".to_owned();
                        return Err(Error::Refused { path: client.name.clone(), what });
                    }
                }
                // It may or may not have been applied; the next response shows it.
                Err(CallFailure::Unknown(_)) if begun.elapsed() < client.patience => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(failure) => return Err(self.explain(failure.into_error(&client.name))),
            }
        }
        Ok(())
    }

    fn request(&self, condition: &Compare) -> TxnRequest {
        let mut compare = vec![condition.clone()];
        compare.extend(self.items.iter().map(|(key, _)| Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Version.into(),
            key: key.clone(),
            to: Some(CompareTo::Version(0)),
        }));
        let put = |(key, value): &(Bytes, Bytes)| {
            let (key, value) = (key.clone(), value.clone());
            Request::Put(PutRequest { key, value, prev_kv: false }).into()
        };
        let success = self.items.iter().map(put).collect();
        TxnRequest { compare, success, failure: Vec::new() }
    }

    async fn drop_existing(&mut self, client: &EtcdClient) -> Result<(), Error> {
        let mut missing = Vec::new();
        for (key, value) in self.items.drain(..) {
            let request = RangeRequest { key: key.clone(), ..RangeRequest::default() };
            let answer = client.range(request).await;
            let answer = answer.map_err(|failure| failure.into_error(&client.name))?;
            match answer.kvs.first() {
                None => missing.push((key, value)),
                Some(found) if found.value == value => {}
                Some(_) => {
                    let key = key.escape_ascii();
                    let what = format!("holds {key} with a value that differs from the file");
                    return Err(Error::Refused { path: client.name.clone(), what });
                }
            }
        }
        self.items = missing;
        Ok(())
    }

    /// Only an object that is alone in its batch can be too large; then the error names it.
    fn explain(&self, error: Error) -> Error {
        match (error, self.items.as_slice()) {
            (Error::Refused { path, what }, [(key, _)]) => {
                Error::Refused { path, what: format!("{what} ({})", key.escape_ascii()) }
            }
            (error, _) => error,
        }
    }
}
