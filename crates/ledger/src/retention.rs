//! Which segments may be deleted: those whose certificates have all expired long enough ago.

/// Seconds after the expiry of its last certificate for which a segment is kept: one week.
pub const RETENTION: i64 = 7 * 24 * 60 * 60;

/// What decides how long a segment is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentExpiry {
    /// Sequence number in the chain.
    pub sequence: u64,
    /// Latest expiry of its certificates, in seconds since 1970.
    pub latest_expiry: i64,
}

/// Returns the last segment that may be deleted at `now`, with all before it; `None` if none may.
///
/// Only the beginning of a chain is deleted, so that the rest stays verifiable, and a record goes before the entries
/// that refer to it. The newest segment stays, because it continues the chain. `segments` are ordered by sequence number.
pub fn prunable_through(segments: &[SegmentExpiry], now: i64) -> Option<u64> {
    let (_, older) = segments.split_last()?;
    let is_over = |segment: &&SegmentExpiry| segment.latest_expiry.saturating_add(RETENTION) < now;
    older.iter().take_while(is_over).last().map(|segment| segment.sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_of_a_chain_is_pruned() {
        let week = RETENTION;
        type RetentionRow<'a> = (&'a [(u64, i64)], i64, Option<u64>);
        let table: [RetentionRow<'_>; 7] = [
            (&[], 0, None),
            (&[(1, 0)], 10 * week, None),
            (&[(1, 0), (2, 0)], week, None),
            (&[(1, 0), (2, 0)], week + 1, Some(1)),
            (&[(4, 0), (5, 5), (6, 0)], week + 1, Some(4)),
            (&[(4, 5), (5, 0), (6, 0)], week + 1, None),
            (&[(4, 0), (5, i64::MAX), (6, 0)], i64::MAX, Some(4)),
        ];
        for (segments, now, expected) in table {
            let expiry = |(sequence, latest_expiry): &(u64, i64)| SegmentExpiry {
                sequence: *sequence,
                latest_expiry: *latest_expiry,
            };
            let segments: Vec<SegmentExpiry> = segments.iter().map(expiry).collect();
            assert_eq!(prunable_through(&segments, now), expected, "{segments:?}");
        }
    }
}
