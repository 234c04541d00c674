//! Object identifiers of any length.

use std::fmt;

/// The contents of an OBJECT IDENTIFIER. Equal bytes mean equal identifiers, because the encoding
/// of each arc is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Oid<'a>(pub &'a [u8]);

impl<'a> Oid<'a> {
    /// Every arc must be minimally encoded and fit into 31 bits.
    pub(crate) fn from_contents(bytes: &'a [u8]) -> Option<Self> {
        let ends = !bytes.is_empty() && bytes.last()? & 0x80 == 0;
        (ends && arcs(bytes).all(|number| arc(number).is_some())).then_some(Self(bytes))
    }

    /// Returns the last arc of an identifier below `2.5.29`, the certificate extensions.
    pub(crate) fn certificate_extension(&self) -> Option<u8> {
        match self.0 {
            [0x55, 0x1d, number @ 0..=0x7f] => Some(*number),
            _ => None,
        }
    }

    /// Returns the last arc of an identifier below `2.5.4`, the name attributes.
    pub(crate) fn name_attribute(&self) -> Option<u8> {
        match self.0 {
            [0x55, 0x04, number @ 0..=0x7f] => Some(*number),
            _ => None,
        }
    }
}

/// Returns true if every arc is minimally encoded, however large it is.
pub(crate) fn is_well_formed(bytes: &[u8]) -> bool {
    bytes.last().is_some_and(|last| last & 0x80 == 0)
        && arcs(bytes).all(|number| number.first() != Some(&0x80))
}

fn arcs(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| byte & 0x80 == 0)
}

/// Decodes one arc in base 128.
pub(crate) fn arc(octets: &[u8]) -> Option<u32> {
    if octets.first() == Some(&0x80) || octets.len() > 5 {
        return None;
    }
    let number = octets.iter().fold(0_u64, |sum, byte| sum << 7 | u64::from(byte & 0x7f));
    u32::try_from(number).ok().filter(|number| *number <= 0x7fff_ffff)
}

impl fmt::Display for Oid<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = arcs(self.0).filter_map(arc);
        let first = numbers.next().unwrap_or_default();
        let root = (first / 40).min(2);
        write!(formatter, "{root}.{}", first.saturating_sub(root.saturating_mul(40)))?;
        numbers.try_for_each(|number| write!(formatter, ".{number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_fits_and_writes_it_with_dots() {
        let table: [(&[u8], Option<&str>); 8] = [
            (&[0x55, 0x1d, 0x11], Some("2.5.29.17")),
            (&[0x2a, 0x86, 0x48, 0xce, 0x3d], Some("1.2.840.10045")),
            (&[0x88, 0x37], Some("2.999")),
            (&[0x2a, 0x87, 0xff, 0xff, 0xff, 0x7f], Some("1.2.2147483647")),
            (&[0x2a, 0x88, 0x80, 0x80, 0x80, 0x00], None),
            (&[0x2a, 0x80, 0x01], None),
            (&[0x2a, 0x81], None),
            (&[], None),
        ];
        for (bytes, dotted) in table {
            let read = Oid::from_contents(bytes).map(|oid| oid.to_string());
            assert_eq!(read.as_deref(), dotted, "{bytes:x?}");
        }
    }
}
