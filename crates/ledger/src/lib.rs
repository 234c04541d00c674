//! The ledger of issued certificates: an append-only log in which every certificate is recorded before it is signed.
//!
//! This crate defines what is recorded, how segments are encoded and chained, how a chain is verified, and an index that
//! answers which certificates are outstanding and who holds them. It does no I/O, reads no clock and knows no Kubernetes
//! type: controllers store segments as LedgerSegment objects, and commands read them.
//!
//! # Format
//!
//! There are three [chains](LedgerChain), by lifetime of the certificates. A chain is a sequence of segments numbered from
//! 1, each of which contains the [hash](SegmentHeader::hash) of its predecessor. Only the newest is appended to.
//!
//! A segment is one byte for the version of the encoding and then [entries](LedgerEntry). Integers are written in groups of
//! seven bits, least significant first (signed ones in zigzag form), times as differences, UUIDs in 16 bytes. Strings form a
//! table: one that occurred before is written as its number, and a new one may refer to a prefix and a suffix of earlier
//! ones. There is no compression above that: hashes, serial numbers and UIDs, of which a record mostly consists, are random.
//! An append never changes bytes that are already there, so the earlier content of a segment is a prefix of the later one.
//!
//! Signer, authority, usages, lifetime and backdating of a record form a profile, which is written once per segment and
//! then as its number. The requester is omitted if it is the user of the node that the record names. Segments of version 1
//! lack both: they are decoded, and the newest is continued in version 1 until it is full. New segments have version 2.
//!
//! | entry | contains |
//! |---|---|
//! | 1, [`Issuance`](LedgerEntry::Issuance) | an [`IssuanceRecord`], written before the certificate is signed |
//! | 2, [`Issued`](LedgerEntry::Issued) | position of a record whose certificate was written to its request |
//! | 3, [`Abandoned`](LedgerEntry::Abandoned) | position of a record whose certificate was not |
//! | 4, [`Revoked`](LedgerEntry::Revoked) | a [`RevocationRecord`] |
//! | 5, [`Pruned`](LedgerEntry::Pruned) | last segment that is about to be deleted, and its hash |
//!
//! # Guarantees
//!
//! - Decoding is linear in the size of a segment, bounded by [`limits`], and no input makes it panic.
//! - [`verify_chain`] finds segments that are missing, modified, reordered or duplicate, unless they are at the end: whoever
//!   can write all objects can remove the newest segments. To detect that, note the hash of the newest segment elsewhere;
//!   [`SegmentHeader::find_head`] finds it again after further appends.
//! - Deleting old segments is announced by a `Pruned` entry, so it is told apart from a gap.
//! - [`CertificateIndex`] gives the same result for any order of segments, and for entries and
//!   [summaries](SegmentSummary), which contain no more than the index keeps and are decoded several times as fast.
//!
//! # Supersession
//!
//! A certificate is superseded when the same signer issued a newer one with another key to the same holder. The holder is
//! the pod (by UID) if a pod requested it, the node if it is the subject, and otherwise the requester together with all
//! names in the certificate.
//!
//! ```
//! use windlass_ledger::{LedgerChain, LedgerEntry, SegmentBuilder, SegmentHeader, StoredSegment, verify_chain};
//!
//! let mut segment = SegmentBuilder::new(SegmentHeader::first(LedgerChain::Short));
//! let hash = windlass_ledger::SegmentHash::NONE;
//! segment.append(&mut LedgerEntry::Pruned { through: 0, hash }).unwrap();
//! let stored = StoredSegment {
//!     header: *segment.header(),
//!     data: segment.data().to_vec(),
//!     entry_count: 1,
//!     latest_expiry: 0,
//! };
//! assert!(verify_chain(LedgerChain::Short, &[stored]).is_intact());
//! ```
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod limits;

mod chain;
mod codec;
mod decoder;
mod earlier_head;
mod encoded_record;
mod identity;
mod index;
mod record;
mod retention;
mod segment;
mod verification;
mod wire;

#[cfg(test)]
mod samples;

pub use chain::{LedgerChain, UnknownChain};
pub use identity::{AuthorityId, IdentityError, KeyHash, ObjectUid, SegmentHash, SerialNumber};
pub use index::{
    AuthorityTotals, CertificateFilter, CertificateHolder, CertificateIndex, CertificateState,
    CertificateView, RevocationInfo, SegmentSummary,
};
pub use record::{
    EntryPosition, IssuanceRecord, LedgerEntry, PodReference, RequestKind, RequestReference,
    RevocationReason, RevocationRecord,
};
pub use retention::{RETENTION, SegmentExpiry, prunable_through};
pub use segment::{SegmentBuilder, SegmentFull, SegmentHeader, decode_entries};
pub use verification::{ChainProblem, ChainReport, ChainVerifier, StoredSegment, verify_chain};
pub use wire::DecodeError;
