//! Subjects as Go encodes them: the attributes it knows, in its order, regardless of the request's
//! order.

use crate::DistinguishedName;
use crate::der_syntax::encode_tlv;
use crate::go_compat::is_printable_string;

/// The subject of a requested certificate, as DER.
///
/// Several values of one attribute form one set, which is sorted by encoded bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedSubject {
    der: Vec<u8>,
    has_control_characters: bool,
}

const COMMON_NAME: u8 = 3;
const SERIAL_NUMBER: u8 = 5;
const ORGANIZATION: u8 = 10;
/// Country, province, locality, street, postal code, organization, unit: the last arcs of their
/// OIDs below `2.5.4`.
const REPEATABLE: [u8; 7] = [6, 8, 7, 9, 17, ORGANIZATION, 11];
/// Go keeps only the last value of these.
const SINGLE: [u8; 2] = [COMMON_NAME, SERIAL_NUMBER];

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;

impl IssuedSubject {
    /// Returns the requested subject without the attributes that Go does not know.
    pub fn from_name(name: &DistinguishedName) -> Self {
        let repeatable = REPEATABLE.map(|number| (number, name.values(number).collect::<Vec<_>>()));
        let single = SINGLE.map(|number| {
            let last = name.values(number).last().filter(|value| !value.is_empty());
            (number, last.into_iter().collect::<Vec<_>>())
        });
        Self::from_attributes(repeatable.iter().chain(&single))
    }

    /// Creates a subject with any number of organizations, and a common name unless that is empty.
    pub fn new(common_name: &str, organizations: &[&str]) -> Self {
        let common_name = Some(common_name).filter(|name| !name.is_empty());
        let attributes =
            [(ORGANIZATION, organizations.to_vec()), (COMMON_NAME, common_name.into_iter().collect())];
        Self::from_attributes(attributes.iter())
    }

    /// DER of the RFC 5280 `Name`.
    pub fn as_der(&self) -> &[u8] {
        &self.der
    }

    /// Returns true if the subject is empty, so that alternative names are required.
    pub fn is_empty(&self) -> bool {
        // An empty SEQUENCE is its tag and a zero length.
        self.der.len() <= 2
    }

    /// Returns true if a value contains control characters.
    pub(super) fn has_control_characters(&self) -> bool {
        self.has_control_characters
    }

    fn from_attributes<'a>(attributes: impl Iterator<Item = &'a (u8, Vec<&'a str>)>) -> Self {
        let mut has_control_characters = false;
        let sets = attributes.filter(|(_, values)| !values.is_empty()).map(|(number, values)| {
            has_control_characters |= values.iter().any(|value| value.chars().any(char::is_control));
            let mut encoded = values.iter().map(|value| attribute(*number, value)).collect::<Vec<_>>();
            // DER requires sets sorted by their bytes.
            encoded.sort();
            encode_tlv(SET, &encoded.concat())
        });
        let der = encode_tlv(SEQUENCE, &sets.collect::<Vec<_>>().concat());
        Self { der, has_control_characters }
    }
}

fn attribute(number: u8, value: &str) -> Vec<u8> {
    let kind = if is_printable_string(value) { PRINTABLE_STRING } else { UTF8_STRING };
    let oid = encode_tlv(OBJECT_IDENTIFIER, &[0x55, 0x04, number]);
    encode_tlv(SEQUENCE, &[oid, encode_tlv(kind, value.as_bytes())].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(subject: &IssuedSubject) -> String {
        subject.as_der().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn chooses_the_string_type_as_go_does() {
        for printable in ["a", "A z09'()+,-./:=?", "system:node:n1", " "] {
            let der = hex(&IssuedSubject::new(printable, &[]));
            assert!(der.contains("060355040313"), "{printable}: {der}");
        }
        for other in ["a*", "a&b", "a@b", "a_b", "a\0b", "ä", "a\"", "a#", "a;b", "a<", "~"] {
            let der = hex(&IssuedSubject::new(other, &[]));
            assert!(der.contains("06035504030c"), "{other}: {der}");
        }
    }

    #[test]
    fn sorts_the_values_of_one_attribute_by_their_bytes() {
        let subject = IssuedSubject::new("", &["bb", "ä", "c", "a", "aa"]);
        // Shorter values sort first, because their length byte does, and UTF8String sorts before
        // PrintableString.
        let expected = concat!(
            "30373135",
            "3008060355040a130161",
            "3008060355040a130163",
            "3009060355040a0c02c3a4",
            "3009060355040a13026161",
            "3009060355040a13026262",
        );
        assert_eq!(hex(&subject), expected);
    }

    #[test]
    fn keeps_empty_organizations_but_no_empty_common_name() {
        assert!(IssuedSubject::new("", &[]).is_empty());
        let subject = IssuedSubject::new("", &[""]);
        assert_eq!(hex(&subject), "300b31093007060355040a1300");
        assert!(!subject.is_empty());
    }
}
