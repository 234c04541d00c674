//! Records about the anchors of a bundle, in an annotation of the bundle itself: they survive the process, and the next
//! leader continues with them.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::{Duration, OffsetDateTime};
use windlass_api::timestamp;

/// Records by the SHA-256 of the anchor, in hexadecimal digits.
pub type AnchorRecords = BTreeMap<String, AnchorRecord>;

/// Record about one anchor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AnchorRecord {
    /// Longest lifetime that the signer has granted under this anchor.
    pub max_duration_seconds: u64,
    /// Time until which its CA does not sign, unless nodes have the anchor before. `None` if it signs.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment")]
    pub hold_until: Option<OffsetDateTime>,
    /// Time at which it is removed from the bundle; `None` for the anchor of the newest CA.
    #[serde(skip_serializing_if = "Option::is_none", with = "moment")]
    pub retain_until: Option<OffsetDateTime>,
}

/// Parses the annotation; `None` if it does not parse.
pub fn parse(annotation: &str) -> Option<AnchorRecords> {
    serde_json::from_str(annotation).ok()
}

/// Encodes the records as JSON for the bundle's annotation.
pub fn encode(records: &AnchorRecords) -> String {
    serde_json::to_string(records).unwrap_or_default()
}

/// Rounds a time up to whole seconds, as it is written.
pub fn round_up(time: OffsetDateTime) -> OffsetDateTime {
    let whole = time.replace_nanosecond(0).unwrap_or(time);
    if whole == time { time } else { whole.saturating_add(Duration::SECOND) }
}

mod moment {
    use super::*;

    pub fn serialize<S: Serializer>(time: &Option<OffsetDateTime>, to: S) -> Result<S::Ok, S::Error> {
        time.map(timestamp::format).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<OffsetDateTime>, D::Error> {
        let text: Option<String> = Option::deserialize(from)?;
        text.map(|text| timestamp::parse(&text).map_err(serde::de::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn records_are_read_as_they_are_written() {
        let record = AnchorRecord {
            max_duration_seconds: 172_800,
            hold_until: Some(datetime!(2026-11-15 12:05 UTC)),
            retain_until: None,
        };
        let records = AnchorRecords::from([("ab".to_owned(), record)]);
        let text = r#"{"ab":{"maxDurationSeconds":172800,"holdUntil":"2026-11-15T12:05:00Z"}}"#;
        assert_eq!(encode(&records), text);
        assert_eq!(parse(text), Some(records));
        assert_eq!(parse(r#"{"ab":{"retainUntil":"soon"}}"#), None);
        assert_eq!(
            parse(r#"{"ab":{}}"#),
            Some(AnchorRecords::from([("ab".into(), AnchorRecord::default())]))
        );
    }

    #[test]
    fn times_are_rounded_up() {
        let whole = datetime!(2026-11-15 12:00 UTC);
        assert_eq!(round_up(whole), whole);
        assert_eq!(round_up(whole + Duration::NANOSECOND), whole + Duration::SECOND);
    }
}
