//! Comparing and adding resource quantities, which saturates: no amount is too large to judge.

use std::cmp::Ordering;

use serde_json::Value;
use windlass_api::quantity::Quantity;

/// A quantity, counted in billionths, which is as fine as Kubernetes keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Amount(i128);

impl Amount {
    /// The quantity written in `value`; what cannot be read counts as zero (decoding refused it).
    pub fn of(value: &Value) -> Self {
        match value {
            Value::String(text) => Amount::of_text(text),
            Value::Number(number) => Amount::of_text(&number.to_string()),
            _ => Amount::default(),
        }
    }

    /// Below, at or above zero.
    pub fn sign(self) -> Ordering {
        self.0.cmp(&0)
    }

    /// Whether it has no fraction.
    pub fn is_whole(self) -> bool {
        self.0 % NANO == 0
    }

    /// Whether it is a multiple, not a negative one, of `unit`.
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
        Amount(Quantity::parse(text).map(|quantity| quantity.nanos()).unwrap_or_default())
    }
}

const NANO: i128 = 1_000_000_000;

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
