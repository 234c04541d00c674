//! Canonical spelling of integers, times, quantities and base64.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use serde_json::{Number, Value};
use time::OffsetDateTime;

use crate::field::quote;
use crate::quantity::Quantity;
use crate::schema::ValueShape;
use crate::timestamp;

/// Parses an integer of the shape's size; rejects `1.0` and `1e3`.
pub fn integer(number: &Number, shape: &ValueShape) -> Option<i64> {
    let integer = match number.as_i64() {
        Some(integer) => integer,
        // The only integer that the JSON parser reads as a float.
        None if number.as_f64() == Some(0.0) && number.to_string().starts_with('-') => 0,
        None => return None,
    };
    match shape {
        ValueShape::Int32 => i32::try_from(integer).ok().map(i64::from),
        _ => Some(integer),
    }
}

/// Parses a time in UTC with seconds; the zero time is null.
pub fn time(text: &str) -> Result<Value, String> {
    let time = timestamp::parse(text).map_err(|e| e.to_string())?;
    Ok(if is_zero(time) { Value::Null } else { timestamp::format(time).into() })
}

/// Parses a time in UTC with microseconds; all six digits are required.
pub fn micro_time(text: &str) -> Result<Value, String> {
    const LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
    let time = timestamp::parse(text).map_err(|e| e.to_string())?;
    let fraction = text.split_once(['.', ',']).map_or("", |(_, fraction)| fraction);
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    if digits != 6 {
        let (rest, element) =
            if digits < 6 { (&text[clock_end(text)..], ".000000") } else { (&fraction[6..], "Z07:00") };
        let (text, rest) = (quote(text), quote(rest));
        return Err(format!("parsing time {text} as \"{LAYOUT}\": cannot parse {rest} as \"{element}\""));
    }
    Ok(if is_zero(time) { Value::Null } else { timestamp::format_micro(time).into() })
}

/// Returns the end of the seconds in a valid time.
fn clock_end(text: &str) -> usize {
    let clock = text.find('T').unwrap_or(0);
    text[clock..].find(['.', ',', 'Z', '+', '-']).map_or(text.len(), |i| clock + i)
}

/// Returns true for Go's zero time, which is written as `null`.
fn is_zero(time: OffsetDateTime) -> bool {
    const ZERO: OffsetDateTime = time::macros::datetime!(0001-01-01 0:00 UTC);
    time == ZERO
}

/// Parses a quantity given as a string or number.
pub fn quantity(value: &Value) -> Result<Value, String> {
    let parsed = match value {
        Value::String(text) => Quantity::parse(text.trim()),
        other => Quantity::parse(&other.to_string()),
    };
    parsed.map(|q| q.into_string().into()).map_err(|e| e.to_string())
}

/// Decodes base64 leniently and re-encodes it without line breaks and with zero trailing bits.
pub fn base64(text: String) -> Result<Value, String> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    if STANDARD.decode(&text).is_ok() {
        return Ok(Value::String(text));
    }
    let one_line: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    match LENIENT.decode(&one_line) {
        Ok(bytes) => Ok(STANDARD.encode(bytes).into()),
        Err(error) => Err(format!("illegal base64 data at input byte {}", offset(&error, &text))),
    }
}

fn offset(error: &base64::DecodeError, text: &str) -> usize {
    match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => {
            // Go reports the start of the incomplete group of four.
            text.trim_end_matches('=').len() / 4 * 4
        }
    }
}
