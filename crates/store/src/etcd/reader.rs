//! Key ranges, read in pages at one revision.

use super::client::CallFailure;
use super::core::EtcdCore;
use super::keys::successor;
use super::wire::{KeyValue, RangeRequest};
use crate::{Error, KeyRange, RangePage, Revision};

/// Initial and maximum number of keys per request. For each response a member walks over all keys
/// that follow, so requests should be few; but none should block it for long.
const CHUNK: (usize, usize) = (1_000, 10_000);
/// Target size of a response, estimated from the previous ones.
const CHUNK_BYTES: usize = 8 << 20;
/// Maximum attempts of a read of the newest state that compactions overtake.
const TRIES: usize = 3;

/// Reads a range; see [`crate::Store::range`].
pub(super) async fn range(core: &EtcdCore, range: &KeyRange) -> Result<RangePage, Error> {
    if range.at.is_some_and(|at| at < core.floor()) {
        return Err(Error::Compacted { floor: core.floor() });
    }
    let mut tries = 0;
    loop {
        match read(core, range).await {
            Ok(page) => return Ok(page),
            Err(CallFailure::Compacted) => {
                tries += 1;
                let error = core.compacted_error().await;
                if range.at.is_some() {
                    return Err(error);
                }
                if tries == TRIES {
                    return Err(core.client.unavailable("history was compacted during the read"));
                }
            }
            Err(CallFailure::Future) => {
                return Err(Error::Future { revision: core.newest_revision().await? });
            }
            Err(failure) => return Err(failure.into_error(&core.client.name)),
        }
    }
}

async fn read(core: &EtcdCore, range: &KeyRange) -> Result<RangePage, CallFailure> {
    let at = range.at.map_or(Some(0), |at| core.keys.etcd_revision(at)).ok_or(CallFailure::Future)?;
    // An empty range has a revision too.
    let (mut key, range_end) =
        core.keys.bounds(range).unwrap_or_else(|| (core.keys.end(), successor(&core.keys.end())));
    let nothing = core.keys.bounds(range).is_none();
    let limit = range.limit.unwrap_or(usize::MAX);
    let mut page = RangePage { revision: 0, items: Vec::new(), more: false };
    let mut revision = at;
    let mut chunk = if range.limit.is_some() { CHUNK.1 } else { CHUNK.0 };
    loop {
        // To etcd, limit 0 means no limit.
        let wanted = (limit - page.items.len().min(limit)).clamp(1, chunk);
        let request = RangeRequest {
            key,
            range_end: range_end.clone(),
            limit: i64::try_from(wanted).unwrap_or(i64::MAX),
            revision,
            keys_only: limit == 0,
            count_only: nothing,
            ..RangeRequest::default()
        };
        let answer = core.client.range(request).await?;
        if page.revision == 0 {
            let newest = core.client.check(answer.header)?;
            revision = if at > 0 { at } else { newest };
            page.revision = core.keys.revision(revision);
        }
        if nothing {
            return Ok(page);
        }
        if limit == 0 {
            page.more = !answer.kvs.is_empty();
            return Ok(page);
        }
        chunk = next_chunk(&answer.kvs);
        let last = answer.kvs.last().map(|kv| successor(&kv.key));
        page.items.extend(answer.kvs.into_iter().filter_map(|kv| to_item(core, kv)));
        page.more = answer.more;
        match last {
            Some(next) if answer.more && page.items.len() < limit => key = next,
            _ => return Ok(page),
        }
    }
}

/// Returns the number of keys to request next.
fn next_chunk(kvs: &[KeyValue]) -> usize {
    let bytes: usize = kvs.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
    let each = bytes / kvs.len().max(1);
    (CHUNK_BYTES / each.max(1)).clamp(1, CHUNK.1)
}

fn to_item(core: &EtcdCore, kv: KeyValue) -> Option<(String, crate::StoredValue)> {
    core.keys.store_key(&kv.key).map(|key| (key, core.keys.stored_value(kv)))
}

/// Compacts history up to a revision; see [`crate::Store::compact`].
pub(super) async fn compact(core: &EtcdCore, upto: Revision) -> Result<(), Error> {
    if upto <= core.floor() {
        return Ok(());
    }
    let revision = core.newest_revision().await?;
    if upto > revision {
        return Err(Error::Future { revision });
    }
    // Changes that the feed has not delivered yet must stay.
    core.wait_for_revision(upto).await?;
    match core.client.compact(core.keys.etcd_revision(upto).unwrap_or(1)).await {
        Ok(()) => {
            core.raise_floor(upto);
            Ok(())
        }
        // Another compaction was faster, and went further.
        Err(CallFailure::Compacted) => match core.compacted_error().await {
            Error::Compacted { .. } => Ok(()),
            error => Err(error),
        },
        Err(failure) => Err(failure.into_error(&core.client.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_answer_is_about_as_large_as_it_may_be() {
        let kvs = |count: usize, bytes: usize| {
            vec![KeyValue { value: vec![0; bytes].into(), ..KeyValue::default() }; count]
        };
        for (count, bytes, next) in
            [(0, 0, CHUNK.1), (9, 100, CHUNK.1), (3, 8 << 10, 1024), (2, 1 << 20, 8), (1, 8 << 20, 1)]
        {
            assert_eq!(next_chunk(&kvs(count, bytes)), next, "{count} of {bytes} bytes");
        }
    }
}
