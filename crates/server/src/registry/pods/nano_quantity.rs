//! Saturating comparison and addition of resource quantities: no amount is too large to validate.

use std::cmp::Ordering;

use serde_json::Value;
use windlass_api::quantity::Quantity;

/// A quantity in billionths, the finest unit of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct NanoQuantity(i128);

impl NanoQuantity {
    /// Parses the quantity in `value`; an invalid one counts as zero (decoding rejected it).
    pub(super) fn from_value(value: &Value) -> Self {
        match value {
            Value::String(text) => NanoQuantity::from_text(text),
            Value::Number(number) => NanoQuantity::from_text(&number.to_string()),
            _ => NanoQuantity::default(),
        }
    }

    /// Compares the quantity with zero.
    pub(super) fn sign(self) -> Ordering {
        self.0.cmp(&0)
    }

    /// Returns true if it has no fraction.
    pub(super) fn is_whole(self) -> bool {
        self.0 % NANO == 0
    }

    /// Returns true if it is a nonnegative multiple of `unit`.
    pub(super) fn is_multiple_of(self, unit: NanoQuantity) -> bool {
        self.0 >= 0 && unit.0 > 0 && self.0 % unit.0 == 0
    }

    /// Returns the sum of both; saturates.
    #[must_use]
    pub(super) fn plus(self, other: NanoQuantity) -> NanoQuantity {
        NanoQuantity(self.0.saturating_add(other.0))
    }

    /// Parses the quantity in `text`; zero if invalid.
    pub(super) fn from_text(text: &str) -> Self {
        NanoQuantity(Quantity::parse(text).map(|quantity| quantity.nanos()).unwrap_or_default())
    }
}

const NANO: i128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_compare_by_value() {
        for (small, large) in [("100m", "0.2"), ("1023", "1Ki"), ("1e3", "1025"), ("-1", "0"), ("1G", "1Gi")]
        {
            assert!(NanoQuantity::from_text(small) < NanoQuantity::from_text(large), "{small} < {large}");
        }
        assert_eq!(NanoQuantity::from_text("1000m"), NanoQuantity::from_text("1"));
        assert_eq!(NanoQuantity::from_text("9999999999999999999999999999E"), NanoQuantity(i128::MAX));
    }

    #[test]
    fn wholeness_and_multiples() {
        assert!(NanoQuantity::from_text("2").is_whole());
        assert!(!NanoQuantity::from_text("1500m").is_whole());
        assert!(NanoQuantity::from_text("4Mi").is_multiple_of(NanoQuantity::from_text("2Mi")));
        assert!(!NanoQuantity::from_text("3Mi").is_multiple_of(NanoQuantity::from_text("2Mi")));
    }
}
