//! Strings by number: each is stored once, without an allocation of its own.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, Hasher, RandomState};

/// Finds numbers by the hash of what they stand for. Keys are 32 bits wide, because there are hundreds of thousands;
/// the caller compares, and the next key is tried if another value has the same.
#[derive(Clone, Debug, Default)]
pub struct HashIndex {
    numbers: HashMap<u32, u32, BuildHasherDefault<KeySpreader>>,
    state: RandomState,
}

/// Hasher of keys that are hashes with a random seed already: it only moves their bits to where the map looks first.
#[derive(Clone, Copy, Debug, Default)]
struct KeySpreader(u64);

impl Hasher for KeySpreader {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, key: u32) {
        self.0 = (self.0 ^ u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl HashIndex {
    fn hash(&self, bytes: &[u8]) -> u32 {
        let mut hasher = self.state.build_hasher();
        hasher.write(bytes);
        let [a, b, c, d, ..] = hasher.finish().to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// Finds the number of a value that `is_same` recognizes.
    pub fn find(&self, bytes: &[u8], is_same: impl Fn(u32) -> bool) -> Option<u32> {
        let mut key = self.hash(bytes);
        while let Some(number) = self.numbers.get(&key) {
            if is_same(*number) {
                return Some(*number);
            }
            key = key.wrapping_add(1);
        }
        None
    }

    /// Adds the number of a value that is not there yet.
    pub fn insert(&mut self, bytes: &[u8], number: u32) {
        let mut key = self.hash(bytes);
        while self.numbers.contains_key(&key) {
            key = key.wrapping_add(1);
        }
        self.numbers.insert(key, number);
    }

    pub fn shrink_to_fit(&mut self) {
        self.numbers.shrink_to_fit();
    }

    /// Returns the size in bytes, with a control byte per slot and at most seven of eight slots in use.
    pub fn memory_size(&self) -> usize {
        self.numbers.capacity() * 8 / 7 * (size_of::<(u32, u32)>() + 1)
    }
}

/// Byte strings in one buffer.
#[derive(Clone, Debug, Default)]
pub struct Interner {
    bytes: Vec<u8>,
    /// Offset at which each string ends.
    ends: Vec<u32>,
    index: HashIndex,
}

impl Interner {
    /// Returns the number of a string, which is added if it is new.
    pub fn intern(&mut self, string: &[u8]) -> u32 {
        if let Some(number) = self.find(string) {
            return number;
        }
        let number = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(string);
        self.ends.push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
        self.index.insert(string, number);
        number
    }

    /// Returns the number of a string if it is known.
    pub fn find(&self, string: &[u8]) -> Option<u32> {
        self.index.find(string, |number| self.get(number) == string)
    }

    /// Returns the string of a number; empty if it is unknown.
    pub fn get(&self, number: u32) -> &[u8] {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let end = |at: usize| self.ends.get(at).and_then(|end| usize::try_from(*end).ok());
        let start = at.checked_sub(1).map_or(Some(0), end).unwrap_or_default();
        end(at).and_then(|end| self.bytes.get(start..end)).unwrap_or_default()
    }

    /// Returns a string that was text when it was added.
    pub fn text(&self, number: u32) -> &str {
        std::str::from_utf8(self.get(number)).unwrap_or_default()
    }

    pub fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.index.shrink_to_fit();
    }

    pub fn memory_size(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * 4 + self.index.memory_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_stored_once() {
        let mut strings = Interner::default();
        let numbers = ["a", "", "bc", "a", "bc", ""].map(|string| strings.intern(string.as_bytes()));
        assert_eq!(numbers, [0, 1, 2, 0, 2, 1]);
        assert_eq!([0, 1, 2, 3, u32::MAX].map(|number| strings.text(number)), ["a", "", "bc", "", ""]);
        assert_eq!((strings.find(b"bc"), strings.find(b"b")), (Some(2), None));
    }
}
