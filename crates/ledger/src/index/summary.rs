//! What the index keeps of a segment.
//!
//! Decoding is most of the work and needs no index, so a reader of many segments summarizes them on several threads and
//! adds the summaries on one.

use std::io::Write as _;
use std::net::IpAddr;

use super::RecordState;
use crate::codec::EncodedEntry;
use crate::decoder::EntryDecoder;
use crate::encoded_record::{EncodedRecord, EncodedRequester, EncodedUid};
use crate::identity::{KeyHash, ObjectUid, SerialNumber, sha256};
use crate::record::{EntryPosition, IssuanceRecord, LedgerEntry, RevocationRecord};
use crate::segment::SegmentHeader;
use crate::wire::{DecodeError, StringNumber, StringTable};

/// A decoded segment without the parts of records that the index does not keep.
#[derive(Debug)]
pub struct SegmentSummary {
    pub(super) header: SegmentHeader,
    strings: StringTable,
    /// Joined alternative names of records.
    names: StringTable,
    pub(super) entries: Vec<SummaryEntry>,
}

/// An entry as far as the index needs it.
#[derive(Debug)]
pub(super) enum SummaryEntry {
    Record(RecordSummary),
    State(EntryPosition, RecordState),
    Revoked(Box<RevocationRecord>),
    Pruned,
}

/// A record as far as the index needs it; texts are in the tables of the segment.
#[derive(Debug)]
pub(super) struct RecordSummary {
    serial: SerialNumber,
    key: u64,
    times: RecordTimes,
    identity: [u8; 16],
    signer: StringNumber,
    authority: StringNumber,
    subject: StringNumber,
    names: StringNumber,
    node: StringNumber,
    namespace: StringNumber,
    pod: Option<(StringNumber, StringNumber)>,
}

/// Times of a record in seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordTimes {
    pub recorded: i64,
    pub not_before: i64,
    pub not_after: i64,
}

/// What the index adds for a record. What is unknown or does not apply is empty.
pub(super) struct RecordParts<'a> {
    pub serial: SerialNumber,
    /// Beginning of the hash of the key.
    pub key: u64,
    pub times: RecordTimes,
    pub identity: [u8; 16],
    pub signer: &'a [u8],
    pub authority: &'a [u8],
    pub subject: &'a [u8],
    /// All alternative names, as [`join_names`] joins them.
    pub names: &'a [u8],
    pub node: &'a [u8],
    pub namespace: &'a [u8],
    pub pod: &'a [u8],
    pub service_account: &'a [u8],
}

impl SegmentSummary {
    /// Decodes a segment. Linear in its size, with few allocations.
    pub fn decode(header: &SegmentHeader, data: &[u8]) -> Result<SegmentSummary, DecodeError> {
        let mut decoder = EntryDecoder::new(header, data)?;
        let (mut names, mut entries) = (StringTable::default(), Vec::new());
        let mut buffers = SummaryBuffers::default();
        while let Some(entry) = decoder.next_entry()? {
            entries.push(match entry {
                EncodedEntry::Issuance => {
                    let record = buffers.summarize(decoder.record(), decoder.table(), &mut names);
                    SummaryEntry::Record(record.ok_or(DecodeError::Invalid("serial number"))?)
                }
                EncodedEntry::Other(LedgerEntry::Issued(of)) => SummaryEntry::State(of, RecordState::Issued),
                EncodedEntry::Other(LedgerEntry::Abandoned(of)) => {
                    SummaryEntry::State(of, RecordState::Abandoned)
                }
                EncodedEntry::Other(LedgerEntry::Revoked(record)) => SummaryEntry::Revoked(record),
                EncodedEntry::Other(LedgerEntry::Pruned { .. } | LedgerEntry::Issuance(_)) => {
                    SummaryEntry::Pruned
                }
            });
        }
        let (_, strings) = decoder.into_parts();
        Ok(SegmentSummary { header: *header, strings, names, entries })
    }

    /// Returns chain, sequence number and predecessor of the segment.
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// Looks up the texts of a record of this segment.
    pub(super) fn parts<'a>(&'a self, record: &RecordSummary) -> RecordParts<'a> {
        let text = |number| self.strings.get(number);
        let (pod, service_account) = record.pod.map_or((&[][..], &[][..]), |(a, b)| (text(a), text(b)));
        RecordParts {
            serial: record.serial,
            key: record.key,
            times: record.times,
            identity: record.identity,
            signer: text(record.signer),
            authority: text(record.authority),
            subject: text(record.subject),
            names: self.names.get(record.names),
            node: text(record.node),
            namespace: text(record.namespace),
            pod,
            service_account,
        }
    }
}

/// Buffers that are used again for every record.
#[derive(Default)]
struct SummaryBuffers {
    names: Vec<u8>,
    identity: Vec<u8>,
}

impl SummaryBuffers {
    fn summarize(
        &mut self,
        record: &EncodedRecord,
        table: &StringTable,
        names: &mut StringTable,
    ) -> Option<RecordSummary> {
        let text = |number: &StringNumber| table.get(*number);
        self.names.clear();
        let (dns, uris) = (record.dns_names.iter().map(text), record.uris.iter().map(text));
        join_names(&mut self.names, dns, &record.ip_addresses, uris, record.email_addresses.iter().map(text));
        let signer = table.get(record.signer);
        let (namespace, node) = (table.get(record.namespace), table.get(record.node));
        let holder = match (&record.pod, node) {
            (Some(pod), _) => match &pod.uid {
                EncodedUid::Uuid(uid) => HolderKey::PodUuid { namespace, uid },
                EncodedUid::Text(uid) => HolderKey::pod(namespace, table.get(*uid), table.get(pod.name)),
            },
            (None, node) => {
                let requester: [&[u8]; 2] = match record.requester {
                    EncodedRequester::User(name) => [table.get(name), &[]],
                    EncodedRequester::NodeUser => [NODE_USER, node],
                };
                HolderKey::without_pod(node, requester, table.get(record.subject), &self.names)
            }
        };
        Some(RecordSummary {
            serial: record.serial?,
            key: key_prefix(&record.key_hash),
            times: RecordTimes {
                recorded: record.recorded,
                not_before: record.not_before,
                not_after: record.not_after,
            },
            identity: holder.identity(signer, &mut self.identity),
            signer: record.signer,
            authority: record.authority,
            subject: record.subject,
            names: names.push(&self.names),
            node: record.node,
            namespace: record.namespace,
            pod: record.pod.map(|pod| (pod.name, pod.service_account)),
        })
    }
}

impl<'a> RecordParts<'a> {
    /// Summarizes a record whose names are joined already.
    pub fn new(record: &'a IssuanceRecord, names: &'a [u8]) -> RecordParts<'a> {
        let (namespace, pod) = (record.request.namespace.as_bytes(), record.pod.as_ref());
        let node = record.node.as_deref().unwrap_or_default().as_bytes();
        let holder = match (pod, node) {
            (Some(pod), _) => match &pod.uid {
                ObjectUid::Uuid(uid) => HolderKey::PodUuid { namespace, uid },
                ObjectUid::Text(uid) => HolderKey::pod(namespace, uid.as_bytes(), pod.name.as_bytes()),
            },
            (None, node) => {
                let (requester, subject) = (record.requester.as_bytes(), record.subject.as_bytes());
                HolderKey::without_pod(node, [requester, &[]], subject, names)
            }
        };
        let IssuanceRecord { serial, recorded, not_before, not_after, .. } = *record;
        RecordParts {
            serial,
            key: key_prefix(&record.key_hash),
            times: RecordTimes { recorded, not_before, not_after },
            identity: holder.identity(record.signer.as_bytes(), &mut Vec::new()),
            signer: record.signer.as_bytes(),
            authority: record.authority.as_bytes(),
            subject: record.subject.as_bytes(),
            names,
            node,
            namespace,
            pod: pod.map_or(&[], |pod| pod.name.as_bytes()),
            service_account: pod.map_or(&[], |pod| pod.service_account.as_bytes()),
        }
    }
}

/// Joins all alternative names of a record, each with its type.
pub(super) fn join_record_names(record: &IssuanceRecord) -> Vec<u8> {
    let mut joined = Vec::new();
    let dns = record.dns_names.iter().map(String::as_bytes);
    let uris = record.uris.iter().map(String::as_bytes);
    let emails = record.email_addresses.iter().map(String::as_bytes);
    join_names(&mut joined, dns, &record.ip_addresses, uris, emails);
    joined
}

/// Separates alternative names; none contains it, because certificates have no control characters in names.
pub(super) const SEPARATOR: u8 = b'\n';

fn join_names<'a>(
    joined: &mut Vec<u8>,
    dns: impl Iterator<Item = &'a [u8]>,
    addresses: &[IpAddr],
    uris: impl Iterator<Item = &'a [u8]>,
    emails: impl Iterator<Item = &'a [u8]>,
) {
    let add = |joined: &mut Vec<u8>, kind: &str, name: &[u8]| {
        if !joined.is_empty() {
            joined.push(SEPARATOR);
        }
        joined.extend_from_slice(kind.as_bytes());
        joined.extend_from_slice(name);
    };
    dns.for_each(|name| add(joined, "DNS:", name));
    for address in addresses {
        add(joined, "IP:", &[]);
        // Writing to memory does not fail.
        let _ = write!(joined, "{address}");
    }
    uris.for_each(|uri| add(joined, "URI:", uri));
    emails.for_each(|email| add(joined, "email:", email));
}

/// Beginning of the user names of nodes.
const NODE_USER: &[u8] = b"system:node:";

/// Who holds a certificate: a pod by its UID, a node by its name if the certificate is its own, and otherwise the requester
/// and all names in the certificate. A node also requests for services on its host, which have names of their own and are
/// renewed one by one.
enum HolderKey<'a> {
    PodUuid {
        namespace: &'a [u8],
        uid: &'a [u8; 16],
    },
    Pod {
        namespace: &'a [u8],
        uid: &'a [u8],
    },
    Node(&'a [u8]),
    Names {
        /// Parts of the user name, to be joined.
        requester: [&'a [u8]; 2],
        subject: &'a [u8],
        names: &'a [u8],
    },
}

impl<'a> HolderKey<'a> {
    /// A pod with its name instead of a UID that is unknown.
    fn pod(namespace: &'a [u8], uid: &'a [u8], name: &'a [u8]) -> HolderKey<'a> {
        HolderKey::Pod { namespace, uid: if uid.is_empty() { name } else { uid } }
    }

    /// A node, if it is the subject, or somebody with these names.
    fn without_pod(
        node: &'a [u8],
        requester: [&'a [u8]; 2],
        subject: &'a [u8],
        names: &'a [u8],
    ) -> HolderKey<'a> {
        let common_name = subject.strip_prefix(b"CN=").and_then(|name| name.strip_prefix(NODE_USER));
        let rest = common_name.and_then(|name| name.strip_prefix(node)).filter(|_| !node.is_empty());
        match rest {
            Some([] | [b',', ..]) => HolderKey::Node(node),
            _ => HolderKey::Names { requester, subject, names },
        }
    }

    /// Identifies the holder of certificates of a signer.
    fn identity(&self, signer: &[u8], buffer: &mut Vec<u8>) -> [u8; 16] {
        buffer.clear();
        buffer.extend_from_slice(signer);
        let mut add = |parts: &[&[u8]]| {
            for part in parts {
                buffer.push(0);
                buffer.extend_from_slice(part);
            }
        };
        match self {
            HolderKey::PodUuid { namespace, uid } => add(&[b"pod uuid", namespace, uid.as_slice()]),
            HolderKey::Pod { namespace, uid } => add(&[b"pod", namespace, uid]),
            HolderKey::Node(name) => add(&[b"node", name]),
            HolderKey::Names { requester: [first, second], subject, names } => {
                add(&[b"names", first]);
                buffer.extend_from_slice(second);
                for part in [subject, names] {
                    buffer.push(0);
                    buffer.extend_from_slice(part);
                }
            }
        }
        let [first, _] = *sha256(buffer).as_chunks().0 else { return [0; 16] };
        first
    }
}

fn key_prefix(hash: &KeyHash) -> u64 {
    hash.0.first_chunk().map_or(0, |first| u64::from_le_bytes(*first))
}
