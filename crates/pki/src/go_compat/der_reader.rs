//! A DER reader that accepts what Go accepts.
//!
//! The `der` crate is stricter: it rejects unknown tags and long object identifiers. Go parses type
//! and length and inspects values only where it needs them. Acceptance of a certificate must not
//! depend on that difference, so this reader works as Go's does.

use super::oid::Oid;

/// Identifier octets of the ASN.1 types in use (X.690 §8.1.2).
pub(crate) mod tag {
    pub(crate) const BOOLEAN: u8 = 0x01;
    pub(crate) const INTEGER: u8 = 0x02;
    pub(crate) const BIT_STRING: u8 = 0x03;
    pub(crate) const OCTET_STRING: u8 = 0x04;
    pub(crate) const NULL: u8 = 0x05;
    pub(crate) const OID: u8 = 0x06;
    pub(crate) const UTF8_STRING: u8 = 0x0c;
    pub(crate) const NUMERIC_STRING: u8 = 0x12;
    pub(crate) const PRINTABLE_STRING: u8 = 0x13;
    pub(crate) const T61_STRING: u8 = 0x14;
    pub(crate) const IA5_STRING: u8 = 0x16;
    pub(crate) const UTC_TIME: u8 = 0x17;
    pub(crate) const GENERALIZED_TIME: u8 = 0x18;
    pub(crate) const BMP_STRING: u8 = 0x1e;
    pub(crate) const SEQUENCE: u8 = 0x30;
    pub(crate) const SET: u8 = 0x31;

    /// Returns the identifier octet of a primitive context-specific tag, `[number]`.
    pub(crate) const fn context(number: u8) -> u8 {
        0x80 | number
    }

    /// Returns the identifier octet of a constructed context-specific tag, `[number]`.
    pub(crate) const fn constructed(number: u8) -> u8 {
        0xa0 | number
    }
}

/// The unread rest of an element's contents.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DerReader<'a> {
    rest: &'a [u8],
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct DerElement<'a> {
    /// Identifier octet: class, constructed bit and tag number.
    pub tag: u8,
    /// Contents octets, without identifier and length.
    pub value: &'a [u8],
    /// The complete encoding: identifier, length and contents.
    pub whole: &'a [u8],
}

/// A BIT STRING whose padding bits are zero.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BitString<'a> {
    bytes: &'a [u8],
    padding: u8,
}

/// Identifier and length octets of an element.
struct DerHeader {
    tag: u8,
    octets: usize,
    length: usize,
}

/// Low five bits of an identifier octet that mean that the tag number follows in further octets.
const HIGH_TAG: u8 = 0x1f;

impl<'a> DerReader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn peek(&self, tag: u8) -> bool {
        self.rest.first() == Some(&tag)
    }

    /// Reads the next element of any type. Tag numbers above 30 do not occur in X.509 and are
    /// rejected.
    pub(crate) fn next_element(&mut self) -> Option<DerElement<'a>> {
        if self.rest.first()? & HIGH_TAG == HIGH_TAG {
            return None;
        }
        self.next_wide_element()
    }

    /// Reads the next element, also with a tag number above 30: Go parses requests with another
    /// decoder, which supports those.
    pub(crate) fn next_wide_element(&mut self) -> Option<DerElement<'a>> {
        let header = header(self.rest)?;
        let (whole, rest) = self.rest.split_at_checked(header.octets.checked_add(header.length)?)?;
        self.rest = rest;
        Some(DerElement { tag: header.tag, value: whole.get(header.octets..)?, whole })
    }

    /// Enters an explicit tag without checking its length against its contents, as Go does.
    pub(crate) fn enter(&mut self, tag: u8) -> Option<()> {
        let header = header(self.rest).filter(|header| header.tag == tag && header.length > 0)?;
        self.rest = self.rest.get(header.octets..)?;
        Some(())
    }

    /// Reads the next element, which must have this tag.
    pub(crate) fn element(&mut self, tag: u8) -> Option<DerElement<'a>> {
        self.next_element().filter(|element| element.tag == tag)
    }

    /// Returns the contents of the next element, which must have this tag.
    pub(crate) fn value(&mut self, tag: u8) -> Option<&'a [u8]> {
        Some(self.element(tag)?.value)
    }

    /// Returns a reader for the contents of the next element, which must have this tag.
    pub(crate) fn nested(&mut self, tag: u8) -> Option<Self> {
        self.value(tag).map(Self::new)
    }

    pub(crate) fn sequence(&mut self) -> Option<Self> {
        self.nested(tag::SEQUENCE)
    }

    /// Returns the contents of the next element if it has this tag. The outer `None` means
    /// malformed input.
    pub(crate) fn optional(&mut self, tag: u8) -> Option<Option<&'a [u8]>> {
        if self.peek(tag) { self.value(tag).map(Some) } else { Some(None) }
    }

    pub(crate) fn oid(&mut self) -> Option<Oid<'a>> {
        Oid::from_contents(self.value(tag::OID)?)
    }

    pub(crate) fn boolean(&mut self) -> Option<bool> {
        boolean(self.value(tag::BOOLEAN)?)
    }

    /// Returns the two's complement of an INTEGER in minimal encoding.
    pub(crate) fn integer(&mut self) -> Option<&'a [u8]> {
        self.value(tag::INTEGER).filter(|value| is_minimal(value))
    }

    pub(crate) fn int64(&mut self) -> Option<i64> {
        int64(self.value(tag::INTEGER)?)
    }

    pub(crate) fn bit_string(&mut self) -> Option<BitString<'a>> {
        BitString::from_contents(self.value(tag::BIT_STRING)?)
    }
}

/// Parses identifier and length; the length must be definite and minimal.
fn header(bytes: &[u8]) -> Option<DerHeader> {
    let (&tag, rest) = bytes.split_first()?;
    let rest = if tag & HIGH_TAG == HIGH_TAG { high_tag(rest)? } else { rest };
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // Four octets are enough for 4 GiB.
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = digits.iter().fold(0_usize, |sum, &digit| sum << 8 | usize::from(digit));
            if length < 0x80 || digits.first() == Some(&0) {
                return None;
            }
            (length, rest)
        }
        _ => return None,
    };
    Some(DerHeader { tag, octets: bytes.len().checked_sub(rest.len())?, length })
}

/// Skips the octets of a tag number above 30.
fn high_tag(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0)?.checked_add(1)?;
    let (number, rest) = bytes.split_at_checked(end)?;
    (super::oid::arc(number)? >= u32::from(HIGH_TAG)).then_some(rest)
}

/// Returns true if an INTEGER's contents are present and minimally encoded.
pub(crate) fn is_minimal(value: &[u8]) -> bool {
    match value {
        [] => false,
        [0, second, ..] => second & 0x80 != 0,
        [0xff, second, ..] => second & 0x80 == 0,
        _ => true,
    }
}

/// Returns the value of an INTEGER if it fits in 64 bits.
pub(crate) fn int64(value: &[u8]) -> Option<i64> {
    if !is_minimal(value) || value.len() > 8 {
        return None;
    }
    let sign = if value.first()? & 0x80 == 0 { 0 } else { -1 };
    Some(value.iter().fold(sign, |sum, &byte| sum << 8 | i64::from(byte)))
}

pub(crate) fn boolean(value: &[u8]) -> Option<bool> {
    match value {
        [0] => Some(false),
        [0xff] => Some(true),
        _ => None,
    }
}

impl<'a> BitString<'a> {
    pub(crate) fn from_contents(value: &'a [u8]) -> Option<Self> {
        let (&padding, bytes) = value.split_first()?;
        let clean = match bytes.last() {
            Some(last) => padding <= 7 && last & ((1 << padding) - 1) == 0,
            None => padding == 0,
        };
        clean.then_some(Self { bytes, padding })
    }

    /// Returns the bits as a number, with the padding moved to the front. Keys and signatures have
    /// no padding.
    pub(crate) fn right_aligned(&self) -> Vec<u8> {
        if self.padding == 0 {
            return self.bytes.to_vec();
        }
        let mut carry = 0_u16;
        let aligned = self.bytes.iter().map(|&byte| {
            let pair = carry << 8 | u16::from(byte);
            carry = u16::from(byte);
            (pair >> self.padding).to_le_bytes()[0]
        });
        aligned.collect()
    }
}
