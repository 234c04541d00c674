//! Encoding of one entry.

use std::net::IpAddr;

use crate::encoded_record::{EncodedPod, EncodedRecord, EncodedRequester, EncodedUid, node_of_user};
use crate::identity::{AuthorityId, KeyHash, ObjectUid, SegmentHash, SerialNumber};
use crate::limits::{MAX_AUTHORITY_BYTES, MAX_NAMES, MAX_SERIAL_BYTES};
use crate::record::{
    EntryPosition, IssuanceRecord, LedgerEntry, RequestKind, RevocationReason, RevocationRecord,
};
use crate::wire::{DecodeError, StringNumber, WireReader, WireWriter};

/// Versions of the encoding, the first byte of every segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EncodingVersion {
    /// Every record has its signer, authority, usages, lifetime and requester. No longer begun, but read and appended to.
    Separate = 1,
    /// Records refer to profiles, and nodes that request certificates are written once.
    Profiles = 2,
}

impl EncodingVersion {
    /// Version of segments that are begun now.
    pub const NEWEST: EncodingVersion = EncodingVersion::Profiles;

    pub fn from_byte(byte: u8) -> Result<EncodingVersion, DecodeError> {
        match byte {
            1 => Ok(EncodingVersion::Separate),
            2 => Ok(EncodingVersion::Profiles),
            other => Err(DecodeError::UnknownVersion(other)),
        }
    }

    pub const fn byte(self) -> u8 {
        self as u8
    }
}

const ISSUANCE: u8 = 1;
const ISSUED: u8 = 2;
const ABANDONED: u8 = 3;
const REVOKED: u8 = 4;
const PRUNED: u8 = 5;

/// Bits that say which parts a record has.
const HAS_POD: u64 = 1;
const OF_POD_REQUEST: u64 = 1 << 1;
const REQUEST_UUID: u64 = 1 << 2;
const POD_UUID: u64 = 1 << 3;
const HAS_ADDRESSES: u64 = 1 << 4;
const HAS_EMAILS: u64 = 1 << 5;
const HAS_OMITTED: u64 = 1 << 6;
/// Bits above; others are not allowed in the first version.
const SEPARATE_FLAGS: u64 = (1 << 7) - 1;
/// The requester is the user of the node that holds the certificate or runs the pod. Not in the first version.
const OF_NODE_USER: u64 = 1 << 7;

/// Introduces a profile that no earlier record has; other numbers are that of the profile plus 1.
const NEW_PROFILE: u64 = 0;

/// What the encoding of an entry depends on besides the string table.
#[derive(Clone, Debug)]
pub struct EntryContext {
    version: EncodingVersion,
    /// Sequence number of the segment.
    sequence: u64,
    /// Time of the last record in the segment; times are written as differences.
    last_time: i64,
    /// Profiles in order of their first use.
    profiles: Vec<RecordProfile>,
}

/// What the certificates of a signer have in common.
#[derive(Clone, Copy, Debug)]
struct RecordProfile {
    signer: StringNumber,
    authority: StringNumber,
    usages: StringNumber,
    /// Seconds from the beginning of the validity to the time of the record.
    backdating: i64,
    lifetime: i64,
}

/// State of a context that an append returns to if the segment has no room for its entry.
#[derive(Clone, Copy, Debug)]
pub struct ContextMark {
    last_time: i64,
    profiles: usize,
}

impl EntryContext {
    pub fn new(version: EncodingVersion, sequence: u64) -> EntryContext {
        EntryContext { version, sequence, last_time: 0, profiles: Vec::new() }
    }

    pub fn mark(&self) -> ContextMark {
        ContextMark { last_time: self.last_time, profiles: self.profiles.len() }
    }

    pub fn reset(&mut self, mark: ContextMark) {
        self.last_time = mark.last_time;
        self.profiles.truncate(mark.profiles);
    }
}

/// An entry whose texts are numbers of strings.
#[derive(Debug)]
pub enum EncodedEntry {
    /// The record is the one that was passed to the reader.
    Issuance,
    /// Any other entry, which has hardly any text.
    Other(LedgerEntry),
}

pub fn write_entry(writer: &mut WireWriter<'_>, context: &mut EntryContext, entry: &LedgerEntry) {
    match entry {
        LedgerEntry::Issuance(record) => {
            writer.byte(ISSUANCE);
            write_record(writer, context, record);
        }
        LedgerEntry::Issued(position) => write_position(writer, context, ISSUED, *position),
        LedgerEntry::Abandoned(position) => write_position(writer, context, ABANDONED, *position),
        LedgerEntry::Revoked(record) => {
            writer.byte(REVOKED);
            writer.string(record.authority.as_bytes());
            writer.bytes(record.serial.as_bytes());
            writer.byte(record.reason.number());
            writer.text(&record.requester);
            write_time(writer, context, record.time);
            writer.signed(record.not_after.wrapping_sub(record.time));
        }
        LedgerEntry::Pruned { through, hash } => {
            writer.byte(PRUNED);
            writer.number(*through);
            writer.fixed(&hash.0);
        }
    }
}

/// Reads an entry. If it is an issuance, overwrites `record`.
pub fn read_entry(
    reader: &mut WireReader<'_>,
    context: &mut EntryContext,
    record: &mut EncodedRecord,
) -> Result<EncodedEntry, DecodeError> {
    Ok(EncodedEntry::Other(match reader.byte()? {
        ISSUANCE => {
            read_record(reader, context, record)?;
            return Ok(EncodedEntry::Issuance);
        }
        ISSUED => LedgerEntry::Issued(read_position(reader, context)?),
        ABANDONED => LedgerEntry::Abandoned(read_position(reader, context)?),
        REVOKED => LedgerEntry::Revoked(Box::new(read_revocation(reader, context)?)),
        PRUNED => LedgerEntry::Pruned { through: reader.number()?, hash: SegmentHash(reader.fixed()?) },
        _ => return Err(DecodeError::Invalid("kind of entry")),
    }))
}

fn write_position(writer: &mut WireWriter<'_>, context: &EntryContext, kind: u8, position: EntryPosition) {
    writer.byte(kind);
    writer.number(context.sequence.saturating_sub(position.sequence));
    writer.number(u64::from(position.index));
}

fn read_position(reader: &mut WireReader<'_>, context: &EntryContext) -> Result<EntryPosition, DecodeError> {
    let invalid = || DecodeError::Invalid("position");
    let sequence = context.sequence.checked_sub(reader.number()?).ok_or_else(invalid)?;
    let index = u32::try_from(reader.number()?).map_err(|_| invalid())?;
    Ok(EntryPosition { sequence, index })
}

fn write_time(writer: &mut WireWriter<'_>, context: &mut EntryContext, time: i64) {
    writer.signed(time.wrapping_sub(context.last_time));
    context.last_time = time;
}

fn read_time(reader: &mut WireReader<'_>, context: &mut EntryContext) -> Result<i64, DecodeError> {
    context.last_time = context.last_time.wrapping_add(reader.signed()?);
    Ok(context.last_time)
}

fn write_record(writer: &mut WireWriter<'_>, context: &mut EntryContext, record: &IssuanceRecord) {
    let flags = flags(context.version, record);
    let has_profile = context.version >= EncodingVersion::Profiles;
    if has_profile {
        writer.byte(u8::try_from(flags).unwrap_or_default());
        write_profile(writer, context, record);
    } else {
        writer.number(flags);
        writer.text(&record.signer);
        writer.string(record.authority.as_bytes());
    }
    writer.bytes(record.serial.as_bytes());
    write_time(writer, context, record.recorded);
    if !has_profile {
        writer.signed(backdating(record));
        writer.signed(lifetime(record));
    }
    writer.text(&record.subject);
    write_names(writer, &record.dns_names);
    write_names(writer, &record.uris);
    if !record.email_addresses.is_empty() {
        write_names(writer, &record.email_addresses);
    }
    if !record.ip_addresses.is_empty() {
        write_addresses(writer, &record.ip_addresses);
    }
    if record.omitted_names > 0 {
        writer.number(u64::from(record.omitted_names));
    }
    if !has_profile {
        writer.text(&record.usages.join(","));
    }
    writer.fixed(&record.key_hash.0);
    if flags & OF_NODE_USER == 0 {
        writer.text(&record.requester);
    }
    writer.optional_text(record.approver.as_deref());
    writer.text(&record.request.namespace);
    writer.text(&record.request.name);
    write_uid(writer, &record.request.uid);
    writer.optional_text(record.node.as_deref());
    if let Some(pod) = &record.pod {
        writer.text(&pod.name);
        write_uid(writer, &pod.uid);
        writer.text(&pod.service_account);
    }
}

fn flags(version: EncodingVersion, record: &IssuanceRecord) -> u64 {
    let is_uuid = |uid: &ObjectUid| matches!(uid, ObjectUid::Uuid(_));
    let node = node_of_user(&record.requester).filter(|node| !node.is_empty());
    let is_node_user = node.is_some() && node == record.node.as_deref();
    [
        (HAS_POD, record.pod.is_some()),
        (OF_POD_REQUEST, record.request.kind == RequestKind::PodCertificateRequest),
        (REQUEST_UUID, is_uuid(&record.request.uid)),
        (POD_UUID, record.pod.as_ref().is_some_and(|pod| is_uuid(&pod.uid))),
        (HAS_ADDRESSES, !record.ip_addresses.is_empty()),
        (HAS_EMAILS, !record.email_addresses.is_empty()),
        (HAS_OMITTED, record.omitted_names > 0),
        (OF_NODE_USER, is_node_user && version >= EncodingVersion::Profiles),
    ]
    .into_iter()
    .filter(|(_, is_set)| *is_set)
    .fold(0, |flags, (flag, _)| flags | flag)
}

fn backdating(record: &IssuanceRecord) -> i64 {
    record.recorded.wrapping_sub(record.not_before)
}

fn lifetime(record: &IssuanceRecord) -> i64 {
    record.not_after.wrapping_sub(record.not_before)
}

fn write_profile(writer: &mut WireWriter<'_>, context: &mut EntryContext, record: &IssuanceRecord) {
    let (backdating, lifetime) = (backdating(record), lifetime(record));
    let usages = record.usages.join(",");
    let table = writer.table();
    let known = context.profiles.iter().position(|profile| {
        (profile.backdating, profile.lifetime) == (backdating, lifetime)
            && table.get(profile.signer) == record.signer.as_bytes()
            && table.get(profile.authority) == record.authority.as_bytes()
            && table.get(profile.usages) == usages.as_bytes()
    });
    if let Some(number) = known {
        writer.length(number + 1);
        return;
    }
    writer.number(NEW_PROFILE);
    let signer = writer.text(&record.signer);
    let authority = writer.string(record.authority.as_bytes());
    let usages = writer.text(&usages);
    writer.signed(backdating);
    writer.signed(lifetime);
    context.profiles.push(RecordProfile { signer, authority, usages, backdating, lifetime });
}

fn read_profile(
    reader: &mut WireReader<'_>,
    context: &mut EntryContext,
) -> Result<RecordProfile, DecodeError> {
    match reader.number()? {
        NEW_PROFILE => {
            let profile = RecordProfile {
                signer: reader.text()?,
                authority: read_authority(reader)?,
                usages: reader.text()?,
                backdating: reader.signed()?,
                lifetime: reader.signed()?,
            };
            context.profiles.push(profile);
            Ok(profile)
        }
        number => {
            let known = usize::try_from(number - 1).ok().and_then(|index| context.profiles.get(index));
            known.copied().ok_or(DecodeError::Invalid("profile"))
        }
    }
}

fn read_record(
    reader: &mut WireReader<'_>,
    context: &mut EntryContext,
    record: &mut EncodedRecord,
) -> Result<(), DecodeError> {
    let has_profile = context.version >= EncodingVersion::Profiles;
    let flags = if has_profile { u64::from(reader.byte()?) } else { reader.number()? };
    if !has_profile && flags & !SEPARATE_FLAGS != 0 {
        return Err(DecodeError::Invalid("flags of a record"));
    }
    let has = |flag| flags & flag != 0;
    if has_profile {
        let profile = read_profile(reader, context)?;
        (record.signer, record.authority, record.usages) =
            (profile.signer, profile.authority, profile.usages);
        record.serial = Some(read_serial(reader)?);
        record.recorded = read_time(reader, context)?;
        record.not_before = record.recorded.wrapping_sub(profile.backdating);
        record.not_after = record.not_before.wrapping_add(profile.lifetime);
    } else {
        record.signer = reader.text()?;
        record.authority = read_authority(reader)?;
        record.serial = Some(read_serial(reader)?);
        record.recorded = read_time(reader, context)?;
        record.not_before = record.recorded.wrapping_sub(reader.signed()?);
        record.not_after = record.not_before.wrapping_add(reader.signed()?);
    }
    record.subject = reader.text()?;
    read_alternative_names(reader, flags, record)?;
    if !has_profile {
        record.usages = reader.text()?;
    }
    record.key_hash = KeyHash(reader.fixed()?);
    record.requester =
        if has(OF_NODE_USER) { EncodedRequester::NodeUser } else { EncodedRequester::User(reader.text()?) };
    record.approver = reader.text()?;
    record.request_kind = match has(OF_POD_REQUEST) {
        true => RequestKind::PodCertificateRequest,
        false => RequestKind::CertificateSigningRequest,
    };
    (record.namespace, record.request_name) = (reader.text()?, reader.text()?);
    record.request_uid = read_uid(reader, has(REQUEST_UUID))?;
    record.node = reader.text()?;
    if has(OF_NODE_USER) && reader.table().get(record.node).is_empty() {
        return Err(DecodeError::Invalid("requester"));
    }
    record.pod = if has(HAS_POD) { Some(read_pod(reader, has(POD_UUID))?) } else { None };
    Ok(())
}

fn read_alternative_names(
    reader: &mut WireReader<'_>,
    flags: u64,
    record: &mut EncodedRecord,
) -> Result<(), DecodeError> {
    let has = |flag| flags & flag != 0;
    read_names(reader, &mut record.dns_names)?;
    read_names(reader, &mut record.uris)?;
    record.email_addresses.clear();
    if has(HAS_EMAILS) {
        read_names(reader, &mut record.email_addresses)?;
    }
    record.ip_addresses.clear();
    if has(HAS_ADDRESSES) {
        read_addresses(reader, &mut record.ip_addresses)?;
    }
    let omitted = if has(HAS_OMITTED) { reader.number()? } else { 0 };
    record.omitted_names = u32::try_from(omitted).map_err(|_| DecodeError::TooLarge("names"))?;
    Ok(())
}

fn read_pod(reader: &mut WireReader<'_>, is_uuid: bool) -> Result<EncodedPod, DecodeError> {
    let name = reader.text()?;
    let uid = read_uid(reader, is_uuid)?;
    Ok(EncodedPod { name, uid, service_account: reader.text()? })
}

fn read_revocation(
    reader: &mut WireReader<'_>,
    context: &mut EntryContext,
) -> Result<RevocationRecord, DecodeError> {
    let authority = read_authority(reader)?;
    let authority = AuthorityId::from_bytes(reader.table().get(authority));
    let authority = authority.map_err(|_| DecodeError::Invalid("authority id"))?;
    let serial = read_serial(reader)?;
    let reason = RevocationReason::from_number(reader.byte()?);
    let reason = reason.ok_or(DecodeError::Invalid("revocation reason"))?;
    let requester = reader.text()?;
    let requester = reader.table().text(requester).to_owned();
    let time = read_time(reader, context)?;
    let not_after = time.wrapping_add(reader.signed()?);
    Ok(RevocationRecord { authority, serial, reason, requester, time, not_after })
}

/// Reads an authority id and checks its length.
fn read_authority(reader: &mut WireReader<'_>) -> Result<StringNumber, DecodeError> {
    let number = reader.string()?;
    let is_valid = (1..=MAX_AUTHORITY_BYTES).contains(&reader.table().get(number).len());
    if is_valid { Ok(number) } else { Err(DecodeError::Invalid("authority id")) }
}

fn read_serial(reader: &mut WireReader<'_>) -> Result<SerialNumber, DecodeError> {
    let bytes = reader.bytes(MAX_SERIAL_BYTES, "serial number")?;
    SerialNumber::from_bytes(bytes).map_err(|_| DecodeError::Invalid("serial number"))
}

fn write_names(writer: &mut WireWriter<'_>, names: &[String]) {
    writer.length(names.len());
    for name in names {
        writer.text(name);
    }
}

fn read_names(reader: &mut WireReader<'_>, names: &mut Vec<StringNumber>) -> Result<(), DecodeError> {
    names.clear();
    for _ in 0..reader.length(MAX_NAMES, "names")? {
        names.push(reader.text()?);
    }
    Ok(())
}

fn write_addresses(writer: &mut WireWriter<'_>, addresses: &[IpAddr]) {
    writer.length(addresses.len());
    for address in addresses {
        match address {
            IpAddr::V4(address) => writer.bytes(&address.octets()),
            IpAddr::V6(address) => writer.bytes(&address.octets()),
        }
    }
}

fn read_addresses(reader: &mut WireReader<'_>, addresses: &mut Vec<IpAddr>) -> Result<(), DecodeError> {
    for _ in 0..reader.length(MAX_NAMES, "names")? {
        let bytes = reader.bytes(16, "IP address")?;
        let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
        let address = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
        addresses.push(address.map_err(|_| DecodeError::Invalid("IP address"))?);
    }
    Ok(())
}

fn write_uid(writer: &mut WireWriter<'_>, uid: &ObjectUid) {
    match uid {
        ObjectUid::Uuid(bytes) => writer.fixed(bytes),
        ObjectUid::Text(text) => {
            writer.text(text);
        }
    }
}

fn read_uid(reader: &mut WireReader<'_>, is_uuid: bool) -> Result<EncodedUid, DecodeError> {
    if is_uuid { reader.fixed().map(EncodedUid::Uuid) } else { reader.text().map(EncodedUid::Text) }
}
