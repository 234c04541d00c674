//! Point validation for the curve P-224.
//!
//! Go parses keys on P-224, so certificates with one must parse here too, but the cryptographic
//! library does not support the curve. Nothing here is secret and nothing is signed or verified.

/// A number below the prime, least significant word first.
type Number = [u32; WORDS];

const WORDS: usize = 7;
/// 2²²⁴ − 2⁹⁶ + 1.
const PRIME: Number = [1, 0, 0, 0xffff_ffff, 0xffff_ffff, 0xffff_ffff, 0xffff_ffff];
/// Constant b of the curve equation.
const B: Number = [0x2355_ffb4, 0x270b_3943, 0xd7bf_d8ba, 0x5044_b0b7, 0xf541_3256, 0x0c04_b3ab, 0xb405_0a85];

/// Returns true for an uncompressed point (4, x, y; SEC 1 §2.3.4) with y² = x³ − 3x + b.
pub(crate) fn is_point(encoded: &[u8]) -> bool {
    let Some((4, coordinates)) = encoded.split_first() else { return false };
    let (coordinates, rest) = coordinates.as_chunks::<28>();
    let ([x, y], []) = (coordinates, rest) else { return false };
    let (Some(x), Some(y)) = (number(x), number(y)) else { return false };
    let cube = multiply(&multiply(&x, &x), &x);
    let three_x = add(&add(&x, &x), &x);
    multiply(&y, &y) == add(&subtract(&cube, &three_x), &B)
}

fn number(big_endian: &[u8; 28]) -> Option<Number> {
    let (words, _) = big_endian.as_chunks::<4>();
    let mut number = [0; WORDS];
    for (word, bytes) in number.iter_mut().rev().zip(words) {
        *word = u32::from_be_bytes(*bytes);
    }
    borrow(&number, &PRIME).1.then_some(number)
}

/// Returns the difference modulo 2²²⁴, and whether it underflowed.
fn borrow(left: &Number, right: &Number) -> (Number, bool) {
    let mut difference = [0; WORDS];
    let mut below = false;
    for ((word, left), right) in difference.iter_mut().zip(left).zip(right) {
        let (first, under) = left.overflowing_sub(*right);
        let (second, again) = first.overflowing_sub(u32::from(below));
        (*word, below) = (second, under || again);
    }
    (difference, below)
}

/// Returns the sum modulo 2²²⁴, and whether it overflowed.
fn carry(left: &Number, right: &Number) -> (Number, bool) {
    let mut sum = [0; WORDS];
    let mut beyond = false;
    for ((word, left), right) in sum.iter_mut().zip(left).zip(right) {
        let (first, over) = left.overflowing_add(*right);
        let (second, again) = first.overflowing_add(u32::from(beyond));
        (*word, beyond) = (second, over || again);
    }
    (sum, beyond)
}

fn add(left: &Number, right: &Number) -> Number {
    let (sum, beyond) = carry(left, right);
    let (reduced, below) = borrow(&sum, &PRIME);
    if beyond || !below { reduced } else { sum }
}

fn subtract(left: &Number, right: &Number) -> Number {
    let (difference, below) = borrow(left, right);
    if below { carry(&difference, &PRIME).0 } else { difference }
}

/// Multiplies by double-and-add from the highest bit down: slow but short, and fast enough for a
/// few keys.
fn multiply(left: &Number, right: &Number) -> Number {
    let mut product = [0; WORDS];
    for word in right.iter().rev() {
        for bit in (0..u32::BITS).rev() {
            product = add(&product, &product);
            if word >> bit & 1 == 1 {
                product = add(&product, left);
            }
        }
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generator point (FIPS 186-4 appendix D.1.2.2).
    const GENERATOR: [u8; 57] = [
        4, 0xb7, 0x0e, 0x0c, 0xbd, 0x6b, 0xb4, 0xbf, 0x7f, 0x32, 0x13, 0x90, 0xb9, 0x4a, 0x03, 0xc1, 0xd3,
        0x56, 0xc2, 0x11, 0x22, 0x34, 0x32, 0x80, 0xd6, 0x11, 0x5c, 0x1d, 0x21, 0xbd, 0x37, 0x63, 0x88, 0xb5,
        0xf7, 0x23, 0xfb, 0x4c, 0x22, 0xdf, 0xe6, 0xcd, 0x43, 0x75, 0xa0, 0x5a, 0x07, 0x47, 0x64, 0x44, 0xd5,
        0x81, 0x99, 0x85, 0x00, 0x7e, 0x34,
    ];

    #[test]
    fn knows_the_generator_and_nothing_near_it() {
        assert!(is_point(&GENERATOR));
        for index in 0..GENERATOR.len() {
            let mut near = GENERATOR;
            *near.get_mut(index).unwrap() ^= 1;
            assert!(!is_point(&near), "{index}");
        }
        assert!(!is_point(GENERATOR.split_last().unwrap().1));
        assert!(!is_point(&[&GENERATOR[..], &[0]].concat()));
        assert!(!is_point(&[]));
    }

    #[test]
    fn rejects_coordinates_at_or_above_the_prime() {
        let mut bytes = [0xff; 57];
        bytes[0] = 4;
        assert!(!is_point(&bytes));
    }
}
