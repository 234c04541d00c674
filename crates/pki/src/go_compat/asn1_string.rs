//! ASN.1 string types.

use super::der_reader::tag;

/// Returns true if the tag is a string type that occurs in names.
pub(crate) const fn is_string(kind: u8) -> bool {
    matches!(
        kind,
        tag::T61_STRING
            | tag::PRINTABLE_STRING
            | tag::UTF8_STRING
            | tag::BMP_STRING
            | tag::IA5_STRING
            | tag::NUMERIC_STRING
    )
}

/// Decodes a string, if its type is known and its contents are valid for that type.
pub(crate) fn decode(kind: u8, value: &[u8]) -> Option<String> {
    match kind {
        // T.61 in name, Latin-1 in practice.
        tag::T61_STRING => Some(value.iter().copied().map(char::from).collect()),
        tag::PRINTABLE_STRING => decode_ascii(value).filter(|text| text.bytes().all(is_printable)),
        tag::UTF8_STRING => String::from_utf8(value.to_vec()).ok(),
        tag::IA5_STRING => decode_ascii(value),
        tag::NUMERIC_STRING => {
            decode_ascii(value).filter(|text| text.bytes().all(|b| b.is_ascii_digit() || b == b' '))
        }
        tag::BMP_STRING => decode_bmp_string(value),
        _ => None,
    }
}

/// Decodes ASCII, the contents of an IA5String.
pub(crate) fn decode_ascii(value: &[u8]) -> Option<String> {
    std::str::from_utf8(value).ok().filter(|text| text.is_ascii()).map(str::to_owned)
}

/// Returns true if Go encodes the text as PrintableString by default.
pub(crate) fn is_printable_string(text: &str) -> bool {
    text.bytes().all(|byte| is_printable(byte) && byte != b'*' && byte != b'&')
}

/// Returns true for PrintableString characters and the two others that real certificates use.
const fn is_printable(byte: u8) -> bool {
    matches!(byte,
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'\''..=b')' | b'+'..=b'/'
        | b' ' | b':' | b'=' | b'?' | b'*' | b'&')
}

/// Decodes UCS-2 without surrogates and non-characters; strips a terminator.
fn decode_bmp_string(value: &[u8]) -> Option<String> {
    let (pairs, rest) = value.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let pairs = pairs.strip_suffix(&[[0, 0]]).unwrap_or(pairs);
    let characters = pairs.iter().map(|pair| match u16::from_be_bytes(*pair) {
        0xfffe | 0xffff | 0xfdd0..=0xfdef => None,
        point => char::from_u32(u32::from(point)),
    });
    characters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_the_string_types_in_use() {
        let table: [(u8, &[u8], Option<&str>); 14] = [
            (tag::UTF8_STRING, "ü".as_bytes(), Some("ü")),
            (tag::UTF8_STRING, b"\xff", None),
            (tag::PRINTABLE_STRING, b"A b*&", Some("A b*&")),
            (tag::PRINTABLE_STRING, b"a@b", None),
            (tag::IA5_STRING, b"a@b", Some("a@b")),
            (tag::IA5_STRING, b"\x80", None),
            (tag::T61_STRING, b"\xfc", Some("ü")),
            (tag::NUMERIC_STRING, b"1 2", Some("1 2")),
            (tag::NUMERIC_STRING, b"1a", None),
            (tag::BMP_STRING, b"\0a\0\0", Some("a")),
            (tag::BMP_STRING, b"\0", None),
            (tag::BMP_STRING, b"\xd8\0\xdc\0", None),
            (tag::BMP_STRING, b"\xff\xfe", None),
            (tag::OCTET_STRING, b"a", None),
        ];
        for (kind, value, text) in table {
            assert_eq!(decode(kind, value).as_deref(), text, "{kind:x} {value:x?}");
        }
    }
}
