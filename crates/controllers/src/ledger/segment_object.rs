//! LedgerSegments as objects of the API.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use serde::Deserialize as _;
use time::OffsetDateTime;
use windlass_api::ledger_segment::LedgerSegmentSpec;
use windlass_api::timestamp;
use windlass_ledger::{SegmentBuilder, SegmentHeader, StoredSegment};

use super::LedgerError;

/// Returns the API of LedgerSegments.
pub fn api(client: Client, resource: &ApiResource) -> Api<DynamicObject> {
    Api::all_with(client, resource)
}

/// Builds the object of a segment. `version` is the resource version of the object that it replaces, if there is one;
/// `latest_expiry` is in seconds since 1970.
pub fn build(
    segment: &SegmentBuilder,
    resource: &ApiResource,
    version: Option<&str>,
    latest_expiry: i64,
) -> Result<DynamicObject, LedgerError> {
    let latest_expiry = OffsetDateTime::from_unix_timestamp(latest_expiry)
        .map_err(|_| LedgerError::new("the latest expiry is not in the calendar"))?;
    let header = segment.header();
    let spec = LedgerSegmentSpec {
        chain: header.chain.name().to_owned(),
        sequence: header.sequence,
        previous_hash: header.previous_hash.to_string(),
        entries: STANDARD.encode(segment.data()),
        entry_count: segment.entry_count(),
        latest_expiry: timestamp::format(latest_expiry),
    };
    let spec = serde_json::to_value(spec).map_err(|error| LedgerError::new(error.to_string()))?;
    let mut object = DynamicObject::new(&header.name(), resource).data(serde_json::json!({ "spec": spec }));
    object.metadata.resource_version = version.map(str::to_owned);
    Ok(object)
}

/// Parses an object. Its name must be that of its chain and sequence number.
pub fn parse(object: &DynamicObject) -> Result<StoredSegment, LedgerError> {
    let name = object.name_any();
    let spec = object.data.get("spec").unwrap_or(&serde_json::Value::Null);
    let spec = LedgerSegmentSpec::deserialize(spec)
        .map_err(|error| LedgerError::new(format!("segment {name} is invalid: {error}")))?;
    parse_segment(&name, &spec).map_err(LedgerError::new)
}

/// Parses the spec of the LedgerSegment with this name, which must be that of its chain and sequence number. The error
/// names the segment.
pub fn parse_segment(name: &str, spec: &LedgerSegmentSpec) -> Result<StoredSegment, String> {
    let invalid = |reason: &dyn std::fmt::Display| format!("segment {name} is invalid: {reason}");
    let header = SegmentHeader {
        chain: spec.chain.parse().map_err(|error| invalid(&error))?,
        sequence: spec.sequence,
        previous_hash: spec.previous_hash.parse().map_err(|error| invalid(&error))?,
    };
    if header.name() != name {
        return Err(invalid(&format!("its name should be {}", header.name())));
    }
    let data = STANDARD.decode(&spec.entries).map_err(|_| invalid(&"the entries are not base64"))?;
    let latest = timestamp::parse(&spec.latest_expiry).map_err(|error| invalid(&error))?;
    Ok(StoredSegment {
        header,
        data,
        entry_count: spec.entry_count.into(),
        latest_expiry: latest.unix_timestamp(),
    })
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use windlass_ledger::{LedgerChain, LedgerEntry, SegmentHash};

    use super::*;

    #[test]
    fn a_segment_survives_its_object() {
        let mut segment = SegmentBuilder::new(SegmentHeader::first(LedgerChain::Medium));
        segment.append(&mut LedgerEntry::Pruned { through: 0, hash: SegmentHash::NONE }).unwrap();
        let latest = datetime!(2026-11-18 7:00 UTC).unix_timestamp();
        let object = build(&segment, &super::super::resource(), Some("7"), latest).unwrap();
        assert_eq!(object.metadata.resource_version.as_deref(), Some("7"));
        let spec = &object.data["spec"];
        assert_eq!(
            (&spec["chain"], &spec["sequence"], &spec["entryCount"]),
            (&"medium".into(), &1.into(), &1.into())
        );
        assert_eq!(spec["latestExpiry"], "2026-11-18T07:00:00Z");
        let stored = parse(&object).unwrap();
        assert_eq!((stored.header, stored.data.as_slice()), (*segment.header(), segment.data()));
        let mut renamed = object.clone();
        renamed.metadata.name = Some("medium-0000000002".into());
        let error = parse(&renamed).unwrap_err().to_string();
        assert!(error.ends_with("its name should be medium-0000000001"), "{error}");
        let empty = DynamicObject::new("x", &super::super::resource());
        assert!(parse(&empty).is_err());
    }
}
