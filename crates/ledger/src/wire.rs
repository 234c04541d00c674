//! Integers, bytes and strings of the segment encoding.
//!
//! Strings form a table per segment. A string that is already in it is written as its number. A new one may share a
//! prefix and a suffix with earlier ones, as names of pods and nodes do.

use crate::limits::MAX_STRING_BYTES;

/// Shortest shared prefix or suffix that is worth a reference.
const MIN_SHARED: usize = 4;
/// Number of recent strings that are searched for a shared prefix or suffix, which bounds the time of an append.
const SEARCHED: usize = 512;

/// What introduces a string: these, or its number in the table plus 2.
const LITERAL: u64 = 0;
const SHARED: u64 = 1;

/// Reason for which a segment cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The version of the encoding is newer than this program, or the data is no segment.
    #[error("unknown version {0} of the segment encoding")]
    UnknownVersion(u8),
    /// The data ends within an entry.
    #[error("the segment ends within an entry")]
    Truncated,
    /// A value is not what the encoding allows.
    #[error("invalid {0} in the segment")]
    Invalid(&'static str),
    /// A limit of the encoding is exceeded.
    #[error("too many or too large {0} in the segment")]
    TooLarge(&'static str),
}

/// Number of a string in the table of its segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StringNumber(u32);

/// Strings of a segment in order of their first use, in one buffer: a segment has hundreds, and most readers need few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StringTable {
    bytes: Vec<u8>,
    places: Vec<StringPlace>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StringPlace {
    start: usize,
    end: usize,
    /// Whether the string is UTF-8, which is checked once.
    is_text: bool,
}

/// Appends values to a buffer.
pub struct WireWriter<'a> {
    out: &'a mut Vec<u8>,
    table: &'a mut StringTable,
}

impl<'a> WireWriter<'a> {
    pub fn new(out: &'a mut Vec<u8>, table: &'a mut StringTable) -> WireWriter<'a> {
        WireWriter { out, table }
    }

    pub fn byte(&mut self, byte: u8) {
        self.out.push(byte);
    }

    /// Writes seven bits per byte, least significant first.
    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.out.push(u8::try_from(number & 0x7f).unwrap_or_default() | 0x80);
            number >>= 7;
        }
        self.out.push(u8::try_from(number).unwrap_or_default());
    }

    pub fn length(&mut self, length: usize) {
        self.number(u64::try_from(length).unwrap_or(u64::MAX));
    }

    /// Writes a number near zero, positive or negative, in few bytes.
    pub fn signed(&mut self, number: i64) {
        self.number(((number << 1) ^ (number >> 63)).cast_unsigned());
    }

    pub fn fixed(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.fixed(bytes);
    }

    /// Writes a string by its number in the table, and adds it to the table if it is new.
    pub fn string(&mut self, bytes: &[u8]) -> StringNumber {
        let known = self.table.strings().position(|known| *known == *bytes);
        if let Some(index) = known {
            self.length(index + 2);
            return StringNumber(u32::try_from(index).unwrap_or(u32::MAX));
        }
        let prefix = self.table.longest_shared(bytes, common_prefix);
        let rest = bytes.get(prefix.map_or(0, |(_, length)| length)..).unwrap_or_default();
        let suffix = self.table.longest_shared(rest, common_suffix);
        if prefix.is_none() && suffix.is_none() {
            self.number(LITERAL);
            self.bytes(bytes);
        } else {
            self.number(SHARED);
            let (source, start) = prefix.unwrap_or_default();
            let (other, end) = suffix.unwrap_or_default();
            for number in [start, end] {
                self.length(number);
            }
            for (length, distance) in [(start, source), (end, other)] {
                if length > 0 {
                    self.length(distance);
                }
            }
            self.bytes(rest.get(..rest.len() - end).unwrap_or_default());
        }
        self.table.push(bytes)
    }

    pub fn text(&mut self, text: &str) -> StringNumber {
        self.string(text.as_bytes())
    }

    pub fn table(&self) -> &StringTable {
        self.table
    }

    /// Writes an absent text as an empty one.
    pub fn optional_text(&mut self, text: Option<&str>) {
        self.text(text.unwrap_or_default());
    }
}

impl StringTable {
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Removes the strings that were added since the table had this length.
    pub fn truncate(&mut self, length: usize) {
        self.places.truncate(length);
        self.bytes.truncate(self.places.last().map_or(0, |last| last.end));
    }

    /// Adds a string, whether it is there already or not.
    pub fn push(&mut self, string: &[u8]) -> StringNumber {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(string);
        self.finish_string(start)
    }

    /// Adds the string that was written to the end of the buffer from `start` on.
    fn finish_string(&mut self, start: usize) -> StringNumber {
        let number = StringNumber(u32::try_from(self.places.len()).unwrap_or(u32::MAX));
        let string = self.bytes.get(start..).unwrap_or_default();
        let is_text = std::str::from_utf8(string).is_ok();
        self.places.push(StringPlace { start, end: self.bytes.len(), is_text });
        number
    }

    /// Returns a string; empty if the table has no such number, so numbers of other tables are harmless.
    pub fn get(&self, number: StringNumber) -> &[u8] {
        self.place(number).map_or(&[], |place| self.at(place))
    }

    /// Returns a string that was read as text.
    pub fn text(&self, number: StringNumber) -> &str {
        std::str::from_utf8(self.get(number)).unwrap_or_default()
    }

    fn place(&self, number: StringNumber) -> Option<&StringPlace> {
        usize::try_from(number.0).ok().and_then(|index| self.places.get(index))
    }

    fn at(&self, place: &StringPlace) -> &[u8] {
        self.bytes.get(place.start..place.end).unwrap_or_default()
    }

    fn strings(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.places.iter().map(|place| self.at(place))
    }

    /// Finds the latest string with the longest shared part; returns its distance from the end and the shared length.
    fn longest_shared(&self, bytes: &[u8], shared: fn(&[u8], &[u8]) -> usize) -> Option<(usize, usize)> {
        let recent = self.strings().rev().take(SEARCHED).enumerate();
        let mut best = None;
        for (distance, known) in recent {
            let length = shared(known, bytes);
            if length >= MIN_SHARED && best.is_none_or(|(_, longest)| length > longest) {
                best = Some((distance, length));
            }
        }
        best
    }

    fn at_distance(&self, distance: usize) -> Result<StringPlace, DecodeError> {
        let found = self.places.len().checked_sub(distance + 1).and_then(|index| self.places.get(index));
        found.copied().ok_or(DecodeError::Invalid("string reference"))
    }
}

fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

fn common_suffix(left: &[u8], right: &[u8]) -> usize {
    left.iter().rev().zip(right.iter().rev()).take_while(|(left, right)| left == right).count()
}

/// Reads values from a segment. Every read checks what is left, so no input makes it panic.
pub struct WireReader<'a> {
    rest: &'a [u8],
    table: StringTable,
}

impl<'a> WireReader<'a> {
    pub fn new(data: &'a [u8]) -> WireReader<'a> {
        WireReader { rest: data, table: StringTable::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the number of bytes that are not read yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub fn into_table(self) -> StringTable {
        self.table
    }

    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    pub fn number(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit, and the last byte of a longer number is not zero.
            if (shift == 63 && bits > 1) || (shift > 0 && byte == 0) {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(DecodeError::Invalid("number"))
    }

    /// Reads a length of at most `limit`; `what` names the limit.
    pub fn length(&mut self, limit: usize, what: &'static str) -> Result<usize, DecodeError> {
        let length = self.number()?;
        usize::try_from(length).ok().filter(|length| *length <= limit).ok_or(DecodeError::TooLarge(what))
    }

    pub fn signed(&mut self) -> Result<i64, DecodeError> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    pub fn bytes(&mut self, limit: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let length = self.length(limit, what)?;
        let (first, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(first)
    }

    pub fn table(&self) -> &StringTable {
        &self.table
    }

    pub fn string(&mut self) -> Result<StringNumber, DecodeError> {
        match self.number()? {
            LITERAL => {
                let bytes = self.bytes(MAX_STRING_BYTES, "string")?;
                Ok(self.table.push(bytes))
            }
            SHARED => self.shared_string(),
            number => {
                let number = u32::try_from(number - 2).map(StringNumber);
                let known = number.ok().filter(|number| self.table.place(*number).is_some());
                known.ok_or(DecodeError::Invalid("string reference"))
            }
        }
    }

    fn shared_string(&mut self) -> Result<StringNumber, DecodeError> {
        let start = self.length(MAX_STRING_BYTES, "string")?;
        let end = self.length(MAX_STRING_BYTES, "string")?;
        let mut distance = |length: usize| match length {
            0 => Ok(None),
            _ => self.length(usize::from(u16::MAX), "string reference").map(Some),
        };
        let (source, other) = (distance(start)?, distance(end)?);
        let middle = self.bytes(MAX_STRING_BYTES, "string")?;
        if start + middle.len() + end > MAX_STRING_BYTES {
            return Err(DecodeError::TooLarge("string"));
        }
        let invalid = || DecodeError::Invalid("string reference");
        let prefix = match source {
            Some(distance) => {
                let place = self.table.at_distance(distance)?;
                Some(place.start..place.start + start).filter(|range| range.end <= place.end)
            }
            None => Some(0..0),
        };
        let suffix = match other {
            Some(distance) => {
                let place = self.table.at_distance(distance)?;
                let from = place.end.checked_sub(end).filter(|from| *from >= place.start);
                from.map(|from| from..place.end)
            }
            None => Some(0..0),
        };
        let (prefix, suffix) = (prefix.ok_or_else(invalid)?, suffix.ok_or_else(invalid)?);
        // Both ranges are within strings of the table, and so within its buffer.
        let begin = self.table.bytes.len();
        self.table.bytes.extend_from_within(prefix);
        self.table.bytes.extend_from_slice(middle);
        self.table.bytes.extend_from_within(suffix);
        Ok(self.table.finish_string(begin))
    }

    /// Reads a string that must be UTF-8.
    pub fn text(&mut self) -> Result<StringNumber, DecodeError> {
        let number = self.string()?;
        let is_text = self.table.place(number).is_some_and(|place| place.is_text);
        if is_text { Ok(number) } else { Err(DecodeError::Invalid("UTF-8")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_encoding() {
        let mut table = StringTable::default();
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            WireWriter::new(&mut out, &mut table).number(number);
            let mut reader = WireReader::new(&out);
            assert_eq!(reader.number(), Ok(number));
            assert!(reader.is_empty());
        }
        for number in [0, -1, 1, -300, i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            WireWriter::new(&mut out, &mut table).signed(number);
            assert_eq!(WireReader::new(&out).signed(), Ok(number));
        }
        for invalid in [&[0x80, 0][..], &[0xff; 10], &[0x80; 11]] {
            assert!(WireReader::new(invalid).number().is_err(), "{invalid:?}");
        }
    }

    #[test]
    fn strings_share_parts_with_earlier_ones() {
        let strings = [
            "",
            "web.default.svc.cluster.local",
            "web.default.svc.cluster.local",
            "db.default.svc.cluster.local",
            "web-7d4b9c6f8d-abcde",
            "web-7d4b9c6f8d-fghij",
            "web-7d4b9c6f8d-fghij.default.svc.cluster.local",
            "",
        ];
        let (mut out, mut table) = (Vec::new(), StringTable::default());
        let mut writer = WireWriter::new(&mut out, &mut table);
        for string in strings {
            writer.text(string);
        }
        let total: usize = strings.iter().map(|string| string.len()).sum();
        assert!(out.len() < total / 2, "{} of {total} bytes", out.len());
        let mut reader = WireReader::new(&out);
        for string in strings {
            let number = reader.text().unwrap();
            assert_eq!(reader.table().text(number), string);
        }
        assert!(reader.is_empty());
        assert_eq!(reader.into_table(), table);
    }
}
