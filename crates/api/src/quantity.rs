//! Amounts with a suffix: `500m`, `1Gi`, `1e3`.
//!
//! An amount is a decimal number; its suffix says in which of three families it is written again
//! (`QuantityFormat`). The canonical text has no fraction, the largest suffix that allows that, and at most
//! nine decimal places (what is finer is rounded up, so that a request for something is never one
//! for nothing). A text that Kubernetes leaves as it is although it is not canonical (`1.500`, `+1`)
//! is left here, too.

use std::cmp::Ordering;
use std::fmt;

/// A resource quantity of arbitrary precision, such as `500m` or `1Gi`, with its canonical text.
#[derive(Clone, Debug)]
pub struct Quantity {
    amount: DecimalAmount,
    text: String,
}

/// Reason why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// It contains something other than a number and a suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The suffix does not exist.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    /// Parses a quantity and canonicalizes its text as Kubernetes does.
    pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
        let parts = QuantityParts::split(text)?;
        let (family, exponent) = parse_suffix(parts.suffix).ok_or(QuantityError::Suffix)?;
        let amount = match family {
            QuantityFormat::Binary => binary(&parts, exponent),
            QuantityFormat::Decimal | QuantityFormat::Exponent => {
                let scale = exponent - parts.fraction.len() as i64;
                DecimalAmount::new(parts.negative, format!("{}{}", parts.whole, parts.fraction), scale)
            }
        };
        let text =
            if parts.is_canonical(family, exponent) { text.to_owned() } else { canonical(&amount, family) };
        Ok(Quantity { amount, text })
    }

    /// Returns the text of the quantity.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the quantity in billionths, the finest unit; saturates.
    pub fn nanos(&self) -> i128 {
        self.amount.nanos()
    }

    /// Returns the canonical text without a copy.
    pub fn into_string(self) -> String {
        self.text
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Ordered by amount, regardless of suffix: `1Ki` is more than `1k`.
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.amount.cmp(&other.amount)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuantityFormat {
    /// Binary suffixes, powers of 1024: `Ki`, `Mi`, …
    Binary,
    /// Decimal suffixes, powers of 1000: `m`, none, `k`, `M`, …
    Decimal,
    /// Scientific notation with a decimal exponent: `e3`.
    Exponent,
}

const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// From 10⁻⁹ in steps of 10³.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const FINEST: i64 = -9;

/// Returns the format and the exponent (of 2 or 10) of a suffix.
fn parse_suffix(suffix: &str) -> Option<(QuantityFormat, i64)> {
    if let Some(i) = BINARY.iter().position(|s| *s == suffix) {
        return Some((QuantityFormat::Binary, (i as i64 + 1) * 10));
    }
    if let Some(i) = DECIMAL.iter().position(|s| *s == suffix) {
        return Some((QuantityFormat::Decimal, i as i64 * 3 + FINEST));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((QuantityFormat::Exponent, exponent.into()))
}

/// Parsed parts of the text.
struct QuantityParts<'a> {
    negative: bool,
    /// Digits without leading zeros, but at least one digit.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> QuantityParts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let negative = text.starts_with('-');
        let rest = text.strip_prefix(['-', '+']).unwrap_or(text).trim_start_matches('0');
        let (whole, rest) = digits(rest);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => digits(rest),
            None => ("", rest),
        };
        let letters = suffix.trim_start_matches(['e', 'E', 'i', 'n', 'u', 'm', 'k', 'K', 'M', 'G', 'T', 'P']);
        let (_, end) = digits(letters.strip_prefix(['-', '+']).unwrap_or(letters));
        if !end.is_empty() {
            return Err(QuantityError::Format);
        }
        let whole = if whole.is_empty() { "0" } else { whole };
        Ok(QuantityParts { negative, whole, fraction, suffix })
    }

    /// Returns true if Kubernetes considers the text canonical from its digits alone.
    fn is_canonical(&self, family: QuantityFormat, exponent: i64) -> bool {
        let (whole, fraction) = (self.whole.len() as i64, self.fraction.len() as i64);
        match family {
            QuantityFormat::Binary => {
                let short = fraction == 0 && 14 - whole - exponent * 3 / 10 >= 0;
                short && self.whole.parse::<u64>().is_ok_and(|n| n & 7 != 0)
            }
            QuantityFormat::Decimal | QuantityFormat::Exponent => {
                let scale = exponent - fraction;
                let thousands = if fraction >= 3 {
                    self.fraction.ends_with("000")
                } else {
                    format!("{}{}", self.whole, self.fraction).ends_with("000")
                };
                let short = whole + fraction <= 18 && scale >= FINEST;
                short && scale % 3 == 0 && !thousands && !self.whole.starts_with('0')
            }
        }
    }
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(end)
}

/// Multiplies a number by a power of two: exact to nine decimal places, then rounded up, and capped
/// at 63 bits.
fn binary(parts: &QuantityParts<'_>, exponent: i64) -> DecimalAmount {
    const NANO: u128 = 1_000_000_000;
    /// Digits after these places only cause rounding up.
    const PLACES: usize = 18;
    let most = i64::MAX as u128 * NANO;
    let whole = if parts.whole.len() > 19 { u128::MAX >> 61 } else { number(parts.whole) };
    let whole = (whole << exponent).saturating_mul(NANO);
    let (head, tail) = parts.fraction.split_at(parts.fraction.len().min(PLACES));
    let product = number(head) << exponent;
    let below = 10u128.pow(head.len() as u32);
    let sticky = u128::from(tail.bytes().any(|b| b != b'0'));
    let fraction = (product / below) * NANO + ((product % below) * NANO + sticky).div_ceil(below);
    let nanos = whole.saturating_add(fraction).min(most);
    DecimalAmount::new(parts.negative, nanos.to_string(), FINEST)
}

/// Parses a number of at most 19 digits.
fn number(digits: &str) -> u128 {
    digits.bytes().fold(0, |n, b| n * 10 + u128::from(b - b'0'))
}

fn canonical(amount: &DecimalAmount, family: QuantityFormat) -> String {
    if amount.digits.is_empty() {
        return "0".into();
    }
    let sign = if amount.negative { "-" } else { "" };
    if family == QuantityFormat::Binary
        && let Some((number, suffix)) = amount.in_binary()
    {
        return format!("{sign}{number}{suffix}");
    }
    // Rounds down to an exponent that is a multiple of three.
    let exponent = amount.scale.div_euclid(3) * 3;
    let zeros = "0".repeat((amount.scale - exponent) as usize);
    let suffix = usize::try_from((exponent - FINEST) / 3).ok().and_then(|i| DECIMAL.get(i));
    match (family, suffix) {
        (QuantityFormat::Decimal | QuantityFormat::Binary, Some(suffix)) => {
            format!("{sign}{}{zeros}{suffix}", amount.digits)
        }
        _ if exponent == 0 => format!("{sign}{}{zeros}", amount.digits),
        _ => format!("{sign}{}{zeros}e{exponent}", amount.digits),
    }
}

/// `digits` · 10^`scale`, without leading or trailing zeros; zero has no digits.
#[derive(Clone, Debug)]
struct DecimalAmount {
    negative: bool,
    digits: String,
    scale: i64,
}

impl DecimalAmount {
    /// Rounds up to nine decimal places.
    fn new(negative: bool, digits: String, scale: i64) -> DecimalAmount {
        let mut digits = digits.trim_start_matches('0').to_owned();
        let mut scale = scale;
        if digits.is_empty() {
            return DecimalAmount { negative: false, digits, scale: 0 };
        }
        if scale < FINEST {
            let dropped = usize::try_from(FINEST - scale).unwrap_or(usize::MAX);
            let kept = digits.len().saturating_sub(dropped);
            let up = digits[kept..].bytes().any(|b| b != b'0');
            digits.truncate(kept);
            if up {
                digits = plus_one(&digits);
            }
            scale = FINEST;
        }
        let length = digits.trim_end_matches('0').len();
        scale += (digits.len() - length) as i64;
        digits.truncate(length);
        DecimalAmount { negative, digits, scale }
    }

    fn nanos(&self) -> i128 {
        if self.digits.is_empty() {
            return 0;
        }
        let power = u32::try_from(self.scale - FINEST).ok().and_then(|n| 10i128.checked_pow(n));
        let nanos = self.digits.parse::<i128>().ok().zip(power);
        let nanos = nanos.and_then(|(digits, power)| digits.checked_mul(power));
        let nanos = nanos.unwrap_or(i128::MAX);
        if self.negative { -nanos } else { nanos }
    }

    /// Returns number and binary suffix of a whole amount of at least 1024.
    fn in_binary(&self) -> Option<(u128, &'static str)> {
        if self.scale < 0 {
            return None;
        }
        // At most 2⁶³, by construction.
        let mut number = number(&self.digits) * 10u128.pow(self.scale as u32);
        if number < 1024 {
            return None;
        }
        let mut suffix = "";
        for larger in BINARY {
            if !number.is_multiple_of(1024) {
                break;
            }
            number /= 1024;
            suffix = larger;
        }
        Some((number, suffix))
    }

    fn cmp(&self, other: &DecimalAmount) -> Ordering {
        let sign = |d: &DecimalAmount| match (d.digits.is_empty(), d.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        let magnitude = |d: &DecimalAmount| d.digits.len() as i64 + d.scale;
        match sign(self).cmp(&sign(other)) {
            Ordering::Equal if sign(self) == 0 => Ordering::Equal,
            Ordering::Equal => {
                // With equal magnitude and no trailing zeros, digits compare like text.
                let by_size =
                    magnitude(self).cmp(&magnitude(other)).then_with(|| self.digits.cmp(&other.digits));
                if self.negative { by_size.reverse() } else { by_size }
            }
            unequal => unequal,
        }
    }
}

fn plus_one(digits: &str) -> String {
    let head = digits.trim_end_matches('9');
    let nines = digits.len() - head.len();
    let (head, last) = match head.as_bytes().split_last() {
        Some((last, head)) => (head, last + 1),
        None => (&[][..], b'1'),
    };
    let bytes = head.iter().copied().chain([last]).chain(std::iter::repeat_n(b'0', nines));
    bytes.map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_one_text() {
        for (given, want) in [
            ("0", "0"),
            ("-0", "0"),
            ("0.0Gi", "0"),
            ("0m", "0"),
            ("1", "1"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("-0.5", "-500m"),
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("1025Mi", "1025Mi"),
            ("100Mi", "100Mi"),
            ("1000", "1k"),
            ("16384", "16384"),
            ("100000", "100k"),
            ("1e3", "1e3"),
            ("1E3", "1E3"),
            ("1e4", "10e3"),
            ("1e0", "1e0"),
            ("10e-1", "1"),
            ("1e-3", "1e-3"),
            ("5E", "5E"),
            ("1000E", "1e21"),
            ("0.5Ki", "512"),
            ("1.5Ki", "1536"),
            ("1.5Gi", "1536Mi"),
            ("0.1Mi", "104857600m"),
            ("512Ki", "512Ki"),
            ("8192", "8192"),
            ("8192Ki", "8Mi"),
            ("9Ei", "9223372036854775807"),
            ("99999999999999999999999Gi", "9223372036854775807"),
            ("0.1n", "1n"),
            ("1.0000000001", "1000000001n"),
            ("0.9999999999", "1"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("1e1000000000", "10e999999999"),
            ("1e-2147483648", "1e-9"),
            // Kubernetes keeps these unchanged.
            ("1.500", "1.500"),
            ("+1", "+1"),
            ("001", "001"),
            ("3.000", "3"),
            // Kubernetes accepts these as well.
            (".", "0"),
            ("1.", "1."),
            ("m", "0"),
        ] {
            let got = Quantity::parse(given).map(Quantity::into_string);
            assert_eq!(got.as_deref(), Ok(want), "{given}");
            let again = Quantity::parse(want).map(Quantity::into_string);
            assert_eq!(again.as_deref(), Ok(want), "{want} again");
        }
    }

    #[test]
    fn invalid_quantities_are_rejected() {
        for (given, want) in [
            ("", QuantityError::Format),
            ("abc", QuantityError::Format),
            ("1 Gi", QuantityError::Format),
            ("1é", QuantityError::Format),
            ("1.2.3", QuantityError::Format),
            ("1i", QuantityError::Suffix),
            ("1KiB", QuantityError::Format),
            ("1-3", QuantityError::Suffix),
            ("1e99999999999", QuantityError::Suffix),
        ] {
            assert_eq!(Quantity::parse(given).unwrap_err(), want, "{given}");
        }
    }

    #[test]
    fn amounts_compare_by_value() {
        let order =
            ["-2", "-1", "-1m", "0", "1n", "0.5", "1", "1.5", "999", "1k", "1Ki", "1e4", "1G", "1Gi", "1e50"];
        let order: Vec<Quantity> = order.iter().map(|t| Quantity::parse(t).unwrap()).collect();
        for (i, a) in order.iter().enumerate() {
            for (j, b) in order.iter().enumerate() {
                assert_eq!(a.cmp(b), i.cmp(&j), "{a} {b}");
            }
        }
        assert_eq!(Quantity::parse("1000m"), Quantity::parse("1"));
    }

    #[test]
    fn amounts_are_counted_in_billionths() {
        for (text, want) in [
            ("0", 0),
            ("1n", 1),
            ("-1.5", -1_500_000_000),
            ("1Ki", 1_024_000_000_000),
            ("1e20", 10i128.pow(29)),
            ("1e1000000000", i128::MAX),
            ("-1e30", -i128::MAX),
            ("170141183460469231731687303715884105728n", i128::MAX),
        ] {
            assert_eq!(Quantity::parse(text).unwrap().nanos(), want, "{text}");
        }
    }
}
