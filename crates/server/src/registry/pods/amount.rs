//! Comparing resource quantities.

use std::cmp::Ordering;

use serde_json::Value;

/// A quantity, counted in billionths, which is as fine as Kubernetes keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Amount(i128);

impl Amount {
    /// The quantity written in `value`; what cannot be read counts as zero (decoding refused it).
    pub fn of(value: &Value) -> Self {
        let read = match value {
            Value::String(text) => parse(text),
            Value::Number(number) => parse(&number.to_string()),
            _ => None,
        };
        Amount(read.unwrap_or_default())
    }

    /// Below, at or above zero.
    pub fn sign(self) -> Ordering {
        self.0.cmp(&0)
    }

    /// Whether it has no fraction.
    pub fn is_whole(self) -> bool {
        self.0 % NANO == 0
    }

    /// Whether it is a positive multiple of `unit`.
    pub fn is_multiple_of(self, unit: Amount) -> bool {
        self.0 >= 0 && unit.0 > 0 && self.0 % unit.0 == 0
    }

    /// The sum, as large as can be counted.
    #[must_use]
    pub fn plus(self, other: Amount) -> Amount {
        Amount(self.0.saturating_add(other.0))
    }

    /// The quantity written in `text`, zero if it cannot be read.
    pub fn of_text(text: &str) -> Self {
        Amount(parse(text).unwrap_or_default())
    }
}

const NANO: i128 = 1_000_000_000;

fn parse(text: &str) -> Option<i128> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // Digits beyond the billionth cannot change an order between sane quantities.
    let fraction = &fraction[..fraction.len().min(9)];
    let mut nanos: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        if !digit.is_ascii_digit() {
            return None;
        }
        nanos = nanos.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
    }
    let missing = u32::try_from(9 - fraction.len()).ok()?;
    nanos = scaled(nanos.saturating_mul(10_i128.pow(missing)), suffix)?;
    Some(if negative { -nanos } else { nanos })
}

fn scaled(nanos: i128, suffix: &str) -> Option<i128> {
    if let Some(power) = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|s| *s == suffix)
    {
        return Some(nanos.saturating_mul(1024_i128.pow(u32::try_from(power).ok()?)));
    }
    let exponent = match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?,
    };
    let power = 10_i128.checked_pow(exponent.unsigned_abs()).unwrap_or(i128::MAX);
    Some(if exponent < 0 { nanos / power } else { nanos.saturating_mul(power) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_compare_by_value() {
        for (small, large) in
            [("100m", "0.2"), ("1023", "1Ki"), ("1e3", "1025"), ("-1", "0"), ("1G", "1Gi")]
        {
            assert!(Amount::of_text(small) < Amount::of_text(large), "{small} < {large}");
        }
        assert_eq!(Amount::of_text("1000m"), Amount::of_text("1"));
        assert_eq!(Amount::of_text("9999999999999999999999999999E"), Amount(i128::MAX));
    }

    #[test]
    fn wholeness_and_multiples() {
        assert!(Amount::of_text("2").is_whole());
        assert!(!Amount::of_text("1500m").is_whole());
        assert!(Amount::of_text("4Mi").is_multiple_of(Amount::of_text("2Mi")));
        assert!(!Amount::of_text("3Mi").is_multiple_of(Amount::of_text("2Mi")));
    }
}
