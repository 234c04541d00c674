//! Messages whose JSON form is not an object.

use prost::encoding::{self, DecodeContext};
use serde_json::Value;
use time::OffsetDateTime;

use super::{ProtobufFault, delimited, each_field, text};
use crate::limits::MAX_DEPTH;
use crate::timestamp;

/// Go's zero time, 0001-01-01T00:00:00Z, in Unix seconds.
const ZERO_TIME: i64 = -62_135_596_800;

/// `Time`: a time in seconds. Nanoseconds are dropped, as in Kubernetes, because the JSON form has
/// none; the zero time, which Go encodes as an empty message, is `null`.
pub(super) fn time(bytes: &[u8]) -> Result<Value, ProtobufFault> {
    let (seconds, _) = seconds_and_nanos(bytes)?;
    if bytes.is_empty() || seconds == ZERO_TIME {
        return Ok(Value::Null);
    }
    Ok(Value::String(timestamp::format(calendar(seconds, 0)?)))
}

/// `MicroTime`: a time with microseconds.
pub(super) fn micro_time(bytes: &[u8]) -> Result<Value, ProtobufFault> {
    let (seconds, nanos) = seconds_and_nanos(bytes)?;
    if bytes.is_empty() || (seconds, nanos) == (ZERO_TIME, 0) {
        return Ok(Value::Null);
    }
    Ok(Value::String(timestamp::format_micro(calendar(seconds, nanos)?)))
}

fn seconds_and_nanos(bytes: &[u8]) -> Result<(i64, i32), ProtobufFault> {
    let (mut seconds, mut nanos) = (0, 0);
    each_field(bytes, |tag, wire, rest| {
        let context = DecodeContext::default();
        match tag {
            1 => encoding::int64::merge(wire, &mut seconds, rest, context)?,
            2 => encoding::int32::merge(wire, &mut nanos, rest, context)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok((seconds, nanos))
}

/// Converts to a time, if RFC 3339 can represent it.
fn calendar(seconds: i64, nanos: i32) -> Result<OffsetDateTime, ProtobufFault> {
    let nanos = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    match OffsetDateTime::from_unix_timestamp_nanos(nanos) {
        Ok(time) if (0..=9999).contains(&time.year()) => Ok(time),
        _ => Err(ProtobufFault::new("the year is not within 0 and 9999")),
    }
}

/// `Quantity`: its text, in field 1 of the message.
pub(super) fn quantity(bytes: &[u8]) -> Result<Value, ProtobufFault> {
    let mut written = String::new();
    each_field(bytes, |tag, wire, rest| {
        if tag == 1 {
            written = text(wire, rest)?;
        }
        Ok(tag == 1)
    })?;
    // An unset quantity has empty text.
    Ok(Value::String(if written.is_empty() { "0".to_owned() } else { written }))
}

/// `IntOrString`: a type tag followed by both values.
pub(super) fn int_or_string(bytes: &[u8]) -> Result<Value, ProtobufFault> {
    let (mut which, mut number, mut written) = (0_i64, 0_i32, String::new());
    each_field(bytes, |tag, wire, rest| {
        let context = DecodeContext::default();
        match tag {
            1 => encoding::int64::merge(wire, &mut which, rest, context)?,
            2 => encoding::int32::merge(wire, &mut number, rest, context)?,
            3 => written = text(wire, rest)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    match which {
        0 => Ok(Value::Number(number.into())),
        1 => Ok(Value::String(written)),
        _ => Err(ProtobufFault::new("neither a number nor a string")),
    }
}

/// `RawExtension` and `FieldsV1`: JSON in field 1, inserted into a container at nesting level
/// `depth`.
pub(super) fn json(bytes: &[u8], depth: usize) -> Result<Value, ProtobufFault> {
    let mut raw: &[u8] = &[];
    each_field(bytes, |tag, wire, rest| {
        if tag == 1 {
            raw = delimited(wire, rest)?;
        }
        Ok(tag == 1)
    })?;
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    let value = crate::decode::json::parse_any(raw).map_err(ProtobufFault::new)?.value;
    if depth + crate::decode::depth(&value) > MAX_DEPTH {
        return Err(ProtobufFault::new("exceeded max depth"));
    }
    Ok(value)
}
