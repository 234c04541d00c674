//! Chains: sequences of segments, one for each class of lifetimes.

use std::fmt;
use std::str::FromStr;

const DAY: i64 = 24 * 60 * 60;

/// A chain of segments. Certificates are recorded by lifetime, so that segments with short-lived ones are deleted soon
/// and not kept by a long-lived one among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LedgerChain {
    /// Lifetimes of at most two days, such as those of pods.
    Short,
    /// Lifetimes of at most 60 days.
    Medium,
    /// All other lifetimes, and revocations of certificates that are in no chain.
    Long,
}

/// Text that is not the name of a chain or segment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid chain {0:?}; it must be one of: short, medium, long")]
pub struct UnknownChain(String);

impl LedgerChain {
    /// All chains, by ascending lifetime.
    pub const ALL: [LedgerChain; 3] = [LedgerChain::Short, LedgerChain::Medium, LedgerChain::Long];

    /// Returns the chain that records certificates with this validity.
    pub fn for_validity(not_before: i64, not_after: i64) -> LedgerChain {
        match not_after.saturating_sub(not_before) {
            lifetime if lifetime <= 2 * DAY => LedgerChain::Short,
            lifetime if lifetime <= 60 * DAY => LedgerChain::Medium,
            _ => LedgerChain::Long,
        }
    }

    /// Returns the name in objects, metrics and commands.
    pub const fn name(self) -> &'static str {
        match self {
            LedgerChain::Short => "short",
            LedgerChain::Medium => "medium",
            LedgerChain::Long => "long",
        }
    }

    /// Returns the name of the object with this sequence number. Names sort as the numbers do.
    pub fn segment_name(self, sequence: u64) -> String {
        format!("{self}-{sequence:010}")
    }

    /// Parses the name of an object into chain and sequence number.
    pub fn parse_segment_name(name: &str) -> Option<(LedgerChain, u64)> {
        let (chain, digits) = name.split_once('-')?;
        let (chain, sequence) = (chain.parse::<LedgerChain>().ok()?, digits.parse().ok()?);
        (chain.segment_name(sequence) == name).then_some((chain, sequence))
    }
}

impl fmt::Display for LedgerChain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for LedgerChain {
    type Err = UnknownChain;

    fn from_str(text: &str) -> Result<LedgerChain, UnknownChain> {
        let found = LedgerChain::ALL.into_iter().find(|chain| chain.name() == text);
        found.ok_or_else(|| UnknownChain(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_has_one_chain() {
        let table = [
            (0, 0, "short"),
            (0, 2 * DAY, "short"),
            (0, 2 * DAY + 1, "medium"),
            (0, 60 * DAY, "medium"),
            (0, 60 * DAY + 1, "long"),
            (i64::MIN, i64::MAX, "long"),
            (1, 0, "short"),
        ];
        for (not_before, not_after, name) in table {
            assert_eq!(LedgerChain::for_validity(not_before, not_after).name(), name, "{not_after}");
        }
    }

    #[test]
    fn names_of_segments_have_one_form() {
        assert_eq!(LedgerChain::Short.segment_name(17), "short-0000000017");
        let parsed = LedgerChain::parse_segment_name;
        assert_eq!(parsed("long-0000000001"), Some((LedgerChain::Long, 1)));
        assert_eq!(parsed("long-10000000000"), Some((LedgerChain::Long, 10_000_000_000)));
        for invalid in ["long-1", "long-+000000001", "short", "other-0000000001", "short-", ""] {
            assert_eq!(parsed(invalid), None, "{invalid}");
        }
    }
}
