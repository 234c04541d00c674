//! A record whose texts are still in the string table of its segment.
//!
//! Most readers need few of the texts of a record, and there are hundreds of thousands of records: copying all texts would
//! take longer than everything else.

use std::net::IpAddr;

use crate::identity::{AuthorityId, KeyHash, ObjectUid, SerialNumber};
use crate::record::{IssuanceRecord, PodReference, RequestKind, RequestReference};
use crate::wire::{DecodeError, StringNumber, StringTable};

/// Prefix of the user name of a node.
const NODE_USER: &str = "system:node:";

/// Returns the node of a user name; `None` if it is not that of a node.
pub fn node_of_user(user: &str) -> Option<&str> {
    user.strip_prefix(NODE_USER)
}

/// The fields of an [`IssuanceRecord`]. The reader of records overwrites it, so that lists are allocated once.
#[derive(Debug, Default)]
pub struct EncodedRecord {
    pub signer: StringNumber,
    pub authority: StringNumber,
    /// `None` until a record is read.
    pub serial: Option<SerialNumber>,
    pub not_before: i64,
    pub not_after: i64,
    pub subject: StringNumber,
    pub dns_names: Vec<StringNumber>,
    pub ip_addresses: Vec<IpAddr>,
    pub email_addresses: Vec<StringNumber>,
    pub uris: Vec<StringNumber>,
    pub omitted_names: u32,
    /// All usages, separated by commas.
    pub usages: StringNumber,
    pub key_hash: KeyHash,
    pub requester: EncodedRequester,
    /// Empty if the request needs no approval.
    pub approver: StringNumber,
    pub request_kind: RequestKind,
    pub namespace: StringNumber,
    pub request_name: StringNumber,
    pub request_uid: EncodedUid,
    /// Empty if unknown.
    pub node: StringNumber,
    pub pod: Option<EncodedPod>,
    pub recorded: i64,
}

/// User that created a request.
#[derive(Clone, Copy, Debug)]
pub enum EncodedRequester {
    User(StringNumber),
    /// The user of the node of the record.
    NodeUser,
}

#[derive(Clone, Copy, Debug)]
pub enum EncodedUid {
    /// A UUID in 16 bytes.
    Uuid([u8; 16]),
    Text(StringNumber),
}

/// Pod that holds a certificate.
#[derive(Clone, Copy, Debug)]
pub struct EncodedPod {
    pub name: StringNumber,
    pub uid: EncodedUid,
    pub service_account: StringNumber,
}

impl Default for EncodedRequester {
    fn default() -> EncodedRequester {
        EncodedRequester::User(StringNumber::default())
    }
}

impl Default for EncodedUid {
    fn default() -> EncodedUid {
        EncodedUid::Text(StringNumber::default())
    }
}

impl EncodedRecord {
    /// Copies all texts from the table of the segment.
    pub fn to_record(&self, table: &StringTable) -> Result<IssuanceRecord, DecodeError> {
        let text = |number: StringNumber| table.text(number).to_owned();
        let texts = |numbers: &[StringNumber]| numbers.iter().map(|number| text(*number)).collect();
        let optional = |number: StringNumber| Some(text(number)).filter(|text| !text.is_empty());
        let uid = |uid: &EncodedUid| match uid {
            EncodedUid::Uuid(bytes) => ObjectUid::Uuid(*bytes),
            EncodedUid::Text(number) => ObjectUid::Text(text(*number)),
        };
        let authority = AuthorityId::from_bytes(table.get(self.authority));
        let usages = table.text(self.usages).split(',').filter(|usage| !usage.is_empty());
        Ok(IssuanceRecord {
            signer: text(self.signer),
            authority: authority.map_err(|_| DecodeError::Invalid("authority id"))?,
            serial: self.serial.ok_or(DecodeError::Invalid("serial number"))?,
            not_before: self.not_before,
            not_after: self.not_after,
            subject: text(self.subject),
            dns_names: texts(&self.dns_names),
            ip_addresses: self.ip_addresses.clone(),
            email_addresses: texts(&self.email_addresses),
            uris: texts(&self.uris),
            omitted_names: self.omitted_names,
            usages: usages.map(str::to_owned).collect(),
            key_hash: self.key_hash,
            requester: match self.requester {
                EncodedRequester::User(name) => text(name),
                EncodedRequester::NodeUser => format!("{NODE_USER}{}", table.text(self.node)),
            },
            approver: optional(self.approver),
            request: RequestReference {
                kind: self.request_kind,
                namespace: text(self.namespace),
                name: text(self.request_name),
                uid: uid(&self.request_uid),
            },
            node: optional(self.node),
            pod: self.pod.as_ref().map(|pod| PodReference {
                name: text(pod.name),
                uid: uid(&pod.uid),
                service_account: text(pod.service_account),
            }),
            recorded: self.recorded,
        })
    }
}
