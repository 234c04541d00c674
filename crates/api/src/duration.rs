//! Durations in Go's notation: `90s`, `1m30s`, `1.5h`, `500ms`.

use std::time::Duration;

/// Reason why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// It contains something other than numbers with units.
    #[error("must be a duration such as 30s, 1m30s or 500ms")]
    Format,
    /// A number has no unit and is not a plain `0`.
    #[error("missing unit: s, m or h")]
    Unit,
    /// It exceeds Go's maximum duration.
    #[error("the duration is too long")]
    TooLong,
}

/// Parses a duration. Rejects negative durations, because no caller can wait for one.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err(DurationError::Format);
    }
    let mut nanos = 0u64;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !is_number_char(c)).ok_or(DurationError::Unit)?;
        let (number, tail) = rest.split_at(end);
        let (unit, tail) = tail.split_at(tail.find(is_number_char).unwrap_or(tail.len()));
        let part = scaled(number, unit_nanos(unit).ok_or(DurationError::Format)?)?;
        nanos = nanos.checked_add(part).filter(|n| *n <= MAX_NANOS).ok_or(DurationError::TooLong)?;
        rest = tail;
    }
    Ok(Duration::from_nanos(nanos))
}

/// Go stores nanoseconds in 63 bits.
const MAX_NANOS: u64 = i64::MAX as u64;

fn is_number_char(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

fn unit_nanos(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        // Micro sign and Greek letter mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// Returns `number` units in whole nanoseconds, truncated.
fn scaled(number: &str, unit: u64) -> Result<u64, DurationError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(DurationError::Format);
    }
    let mut nanos = 0u64;
    for digit in whole.bytes() {
        let tens = nanos.checked_mul(10).and_then(|n| n.checked_add(u64::from(digit - b'0')));
        nanos = tens.ok_or(DurationError::TooLong)?;
    }
    nanos = nanos.checked_mul(unit).ok_or(DurationError::TooLong)?;
    // Digits after the 15th contribute less than a nanosecond for every unit.
    let digits = &fraction[..fraction.len().min(15)];
    let part = digits.bytes().fold(0u128, |n, b| n * 10 + u128::from(b - b'0'));
    let part = part * u128::from(unit) / 10u128.pow(digits.len() as u32);
    nanos.checked_add(part as u64).ok_or(DurationError::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, want) in [
            ("10s", Ok(Duration::from_secs(10))),
            ("9m32s", Ok(Duration::from_secs(572))),
            ("1.5s", Ok(Duration::from_millis(1500))),
            ("1s.5s", Ok(Duration::from_millis(1500))),
            ("1.h", Ok(Duration::from_secs(3600))),
            ("0.1234567890123456789s", Ok(Duration::from_nanos(123_456_789))),
            ("7\u{b5}s", Ok(Duration::from_micros(7))),
            ("0", Ok(Duration::ZERO)),
            ("9223372036854775807ns", Ok(Duration::from_nanos(MAX_NANOS))),
            ("9223372036854775808ns", Err(DurationError::TooLong)),
            ("99999999999999999999s", Err(DurationError::TooLong)),
            ("2562048h", Err(DurationError::TooLong)),
            ("10", Err(DurationError::Unit)),
            ("5s6", Err(DurationError::Unit)),
            ("", Err(DurationError::Format)),
            (".s", Err(DurationError::Format)),
            ("1.2.3s", Err(DurationError::Format)),
            ("x", Err(DurationError::Format)),
            ("5d", Err(DurationError::Format)),
            ("5 s", Err(DurationError::Format)),
            ("-1s", Err(DurationError::Format)),
        ] {
            assert_eq!(parse(text), want, "{text}");
        }
    }
}
