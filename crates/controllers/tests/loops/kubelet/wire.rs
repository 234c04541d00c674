//! A minimal protobuf encoder that replaces fields in a recorded message.

use time::OffsetDateTime;

/// Returns `message` with the field at the end of `path` set to `text`. Every field number in
/// `path` must exist and be length-delimited.
pub fn replace_field(message: &[u8], path: &[u64], text: &[u8]) -> Vec<u8> {
    let Some((field, rest)) = path.split_first() else { return text.to_vec() };
    let (mut left, mut made, mut found) = (message, Vec::new(), false);
    while !left.is_empty() {
        let before = left;
        let key = varint(&mut left);
        let key_bytes = before.len() - left.len();
        let length = match key & 7 {
            0 => {
                varint(&mut left);
                None
            }
            2 => Some(usize::try_from(varint(&mut left)).unwrap()),
            other => panic!("a field of wire type {other}"),
        };
        let value = left.split_off(..length.unwrap_or_default()).unwrap();
        if key >> 3 == *field {
            let value = replace_field(value, rest, text);
            made.extend_from_slice(&before[..key_bytes]);
            push_varint(&mut made, value.len());
            made.extend_from_slice(&value);
            found = true;
        } else {
            made.extend_from_slice(&before[..before.len() - left.len()]);
        }
    }
    assert!(found, "no field {field}");
    made
}

/// Encodes a time in whole seconds as a protobuf message.
pub fn timestamp(time: OffsetDateTime) -> Vec<u8> {
    let mut made = vec![0x08];
    push_varint(&mut made, time.unix_timestamp().try_into().unwrap());
    made.extend_from_slice(&[0x10, 0]);
    made
}

fn varint(from: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = from.split_off_first().unwrap();
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return number;
        }
    }
    panic!("a number without an end");
}

fn push_varint(to: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        to.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    to.push(u8::try_from(number).unwrap());
}

#[test]
fn lengths_follow_what_is_put_in() {
    let message = b"\x0a\x06\x12\x01a\x18\x96\x01\x12\x00";
    assert_eq!(replace_field(message, &[1, 2], b"a"), message);
    assert_eq!(replace_field(message, &[1, 2], b"xyz"), b"\x0a\x08\x12\x03xyz\x18\x96\x01\x12\x00");
    let long = replace_field(message, &[2], &[7; 300]);
    assert_eq!((long.len(), &long[8..11]), (8 + 3 + 300, &b"\x12\xac\x02"[..]));
}
