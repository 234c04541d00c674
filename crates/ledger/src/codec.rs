//! Encoding of one entry.

use std::net::IpAddr;

use crate::identity::{AuthorityId, KeyHash, ObjectUid, SegmentHash, SerialNumber};
use crate::limits::{MAX_NAMES, MAX_SERIAL_BYTES};
use crate::record::{
    EntryPosition, IssuanceRecord, LedgerEntry, PodReference, RequestKind, RequestReference,
    RevocationReason, RevocationRecord,
};
use crate::wire::{DecodeError, WireReader, WireWriter};

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
/// All bits above; others are not allowed.
const ALL_FLAGS: u64 = (1 << 7) - 1;

/// What the encoding of an entry depends on besides the string table.
#[derive(Clone, Copy, Debug)]
pub struct EntryContext {
    /// Sequence number of the segment.
    pub sequence: u64,
    /// Time of the last record in the segment; times are written as differences.
    pub last_time: i64,
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

pub fn read_entry(
    reader: &mut WireReader<'_>,
    context: &mut EntryContext,
) -> Result<LedgerEntry, DecodeError> {
    Ok(match reader.byte()? {
        ISSUANCE => LedgerEntry::Issuance(Box::new(read_record(reader, context)?)),
        ISSUED => LedgerEntry::Issued(read_position(reader, context)?),
        ABANDONED => LedgerEntry::Abandoned(read_position(reader, context)?),
        REVOKED => LedgerEntry::Revoked(Box::new(read_revocation(reader, context)?)),
        PRUNED => LedgerEntry::Pruned { through: reader.number()?, hash: SegmentHash(reader.fixed()?) },
        _ => return Err(DecodeError::Invalid("kind of entry")),
    })
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
    writer.number(flags(record));
    writer.text(&record.signer);
    writer.string(record.authority.as_bytes());
    writer.bytes(record.serial.as_bytes());
    write_time(writer, context, record.recorded);
    writer.signed(record.recorded.wrapping_sub(record.not_before));
    writer.signed(record.not_after.wrapping_sub(record.not_before));
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
    writer.text(&record.usages.join(","));
    writer.fixed(&record.key_hash.0);
    writer.text(&record.requester);
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

fn flags(record: &IssuanceRecord) -> u64 {
    let is_uuid = |uid: &ObjectUid| matches!(uid, ObjectUid::Uuid(_));
    [
        (HAS_POD, record.pod.is_some()),
        (OF_POD_REQUEST, record.request.kind == RequestKind::PodCertificateRequest),
        (REQUEST_UUID, is_uuid(&record.request.uid)),
        (POD_UUID, record.pod.as_ref().is_some_and(|pod| is_uuid(&pod.uid))),
        (HAS_ADDRESSES, !record.ip_addresses.is_empty()),
        (HAS_EMAILS, !record.email_addresses.is_empty()),
        (HAS_OMITTED, record.omitted_names > 0),
    ]
    .into_iter()
    .filter(|(_, is_set)| *is_set)
    .fold(0, |flags, (flag, _)| flags | flag)
}

fn read_record(
    reader: &mut WireReader<'_>,
    context: &mut EntryContext,
) -> Result<IssuanceRecord, DecodeError> {
    let flags = reader.number()?;
    if flags & !ALL_FLAGS != 0 {
        return Err(DecodeError::Invalid("flags of a record"));
    }
    let has = |flag| flags & flag != 0;
    let signer = reader.text()?;
    let authority = read_authority(reader)?;
    let serial = read_serial(reader)?;
    let recorded = read_time(reader, context)?;
    let not_before = recorded.wrapping_sub(reader.signed()?);
    let not_after = not_before.wrapping_add(reader.signed()?);
    let subject = reader.text()?;
    let dns_names = read_names(reader)?;
    let uris = read_names(reader)?;
    let email_addresses = if has(HAS_EMAILS) { read_names(reader)? } else { Vec::new() };
    let ip_addresses = if has(HAS_ADDRESSES) { read_addresses(reader)? } else { Vec::new() };
    let omitted = if has(HAS_OMITTED) { reader.number()? } else { 0 };
    let omitted_names = u32::try_from(omitted).map_err(|_| DecodeError::TooLarge("names"))?;
    let usages = reader.text()?;
    let usages = usages.split(',').filter(|usage| !usage.is_empty()).map(str::to_owned).collect();
    let key_hash = KeyHash(reader.fixed()?);
    let requester = reader.text()?;
    let approver = reader.optional_text()?;
    let kind = if has(OF_POD_REQUEST) {
        RequestKind::PodCertificateRequest
    } else {
        RequestKind::CertificateSigningRequest
    };
    let (namespace, name) = (reader.text()?, reader.text()?);
    let uid = read_uid(reader, has(REQUEST_UUID))?;
    let request = RequestReference { kind, namespace, name, uid };
    let node = reader.optional_text()?;
    let pod = if has(HAS_POD) { Some(read_pod(reader, has(POD_UUID))?) } else { None };
    Ok(IssuanceRecord {
        signer,
        authority,
        serial,
        not_before,
        not_after,
        subject,
        dns_names,
        ip_addresses,
        email_addresses,
        uris,
        omitted_names,
        usages,
        key_hash,
        requester,
        approver,
        request,
        node,
        pod,
        recorded,
    })
}

fn read_pod(reader: &mut WireReader<'_>, is_uuid: bool) -> Result<PodReference, DecodeError> {
    let name = reader.text()?;
    let uid = read_uid(reader, is_uuid)?;
    Ok(PodReference { name, uid, service_account: reader.text()? })
}

fn read_revocation(
    reader: &mut WireReader<'_>,
    context: &mut EntryContext,
) -> Result<RevocationRecord, DecodeError> {
    let authority = read_authority(reader)?;
    let serial = read_serial(reader)?;
    let reason = RevocationReason::from_number(reader.byte()?);
    let reason = reason.ok_or(DecodeError::Invalid("revocation reason"))?;
    let requester = reader.text()?;
    let time = read_time(reader, context)?;
    let not_after = time.wrapping_add(reader.signed()?);
    Ok(RevocationRecord { authority, serial, reason, requester, time, not_after })
}

fn read_authority(reader: &mut WireReader<'_>) -> Result<AuthorityId, DecodeError> {
    AuthorityId::from_bytes(&reader.string()?).map_err(|_| DecodeError::Invalid("authority id"))
}

fn read_serial(reader: &mut WireReader<'_>) -> Result<SerialNumber, DecodeError> {
    let bytes = reader.bytes(MAX_SERIAL_BYTES, "serial number")?;
    SerialNumber::from_bytes(bytes).map_err(|_| DecodeError::Invalid("serial number"))
}

fn write_names(writer: &mut WireWriter<'_>, names: &[String]) {
    writer.length(names.len());
    names.iter().for_each(|name| writer.text(name));
}

fn read_names(reader: &mut WireReader<'_>) -> Result<Vec<String>, DecodeError> {
    let count = reader.length(MAX_NAMES, "names")?;
    (0..count).map(|_| reader.text()).collect()
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

fn read_addresses(reader: &mut WireReader<'_>) -> Result<Vec<IpAddr>, DecodeError> {
    let count = reader.length(MAX_NAMES, "names")?;
    let read = |_| {
        let bytes = reader.bytes(16, "IP address")?;
        let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
        v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
            .map_err(|_| DecodeError::Invalid("IP address"))
    };
    (0..count).map(read).collect()
}

fn write_uid(writer: &mut WireWriter<'_>, uid: &ObjectUid) {
    match uid {
        ObjectUid::Uuid(bytes) => writer.fixed(bytes),
        ObjectUid::Text(text) => writer.text(text),
    }
}

fn read_uid(reader: &mut WireReader<'_>, is_uuid: bool) -> Result<ObjectUid, DecodeError> {
    if is_uuid { reader.fixed().map(ObjectUid::Uuid) } else { reader.text().map(ObjectUid::Text) }
}
