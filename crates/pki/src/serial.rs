//! Random serial numbers, neither counted nor derived from the key.

use std::fmt;

use aws_lc_rs::rand::SecureRandom;

use crate::Error;

/// A certificate's serial number: 126 random bits in 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Serial([u8; 16]);

impl Serial {
    /// Generates a random serial number; fails only if `random` does.
    pub fn random(random: &dyn SecureRandom) -> Result<Self, Error> {
        let mut bytes = [0; 16];
        random.fill(&mut bytes).map_err(|_| Error::Crypto("drawing a serial number"))?;
        Ok(Self::from_bytes(bytes))
    }

    /// Creates a serial number from bytes. Clears the top bit, because serial numbers are positive,
    /// and sets the next, so that the number is never zero and always 16 bytes long.
    pub const fn from_bytes(mut bytes: [u8; 16]) -> Self {
        let [first, ..] = &mut bytes;
        *first = (*first & 0x7f) | 0x40;
        Self(bytes)
    }

    /// Returns the number as 16 big-endian bytes; the top bit is clear.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_positive_and_has_sixteen_bytes() {
        for bytes in [[0; 16], [0xff; 16], [0x80; 16]] {
            let first = Serial::from_bytes(bytes).0.first().copied().unwrap();
            assert!((0x40..0x80).contains(&first), "{first:x}");
        }
    }

    #[test]
    fn is_random_each_time() {
        let random = aws_lc_rs::rand::SystemRandom::new();
        assert_ne!(Serial::random(&random).unwrap(), Serial::random(&random).unwrap());
    }
}
