//! Distinguished names that identify a subject.
//!
//! A subject may have many organizations: Kubernetes treats each as a group. All are kept, in
//! order.

use der::asn1::{Any, AnyRef, ObjectIdentifier, PrintableStringRef, SetOfVec, Utf8StringRef};
use der::{Encode, Tag, Tagged};
use x509_cert::attr::AttributeTypeAndValue;

use crate::Error;
use crate::der_syntax::elements;
use crate::limits::{MAX_ATTRIBUTE_BYTES, MAX_NAME_ATTRIBUTES};

/// The subject of a certificate, as DER.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject(Vec<u8>);

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
/// User ID attribute below the arc of the Cloud Native Computing Foundation: one string.
const USER_ID: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.57683.2");
const WHAT: &str = "distinguished name";

impl Subject {
    /// Creates a subject with a common name and any number of organizations.
    pub fn new(common_name: &str, organizations: &[&str]) -> Result<Self, Error> {
        Self::with_user_ids(common_name, organizations, &[])
    }

    /// Like [`Self::new`], with user IDs. More than one is valid DER, but identifies no user.
    pub fn with_user_ids(
        common_name: &str,
        organizations: &[&str],
        user_ids: &[&str],
    ) -> Result<Self, Error> {
        let organizations = organizations.iter().map(|&value| (ORGANIZATION, value));
        let mut attributes = organizations.collect::<Vec<_>>();
        attributes.extend(user_ids.iter().map(|&value| (USER_ID, value)));
        if !common_name.is_empty() {
            attributes.push((COMMON_NAME, common_name));
        }
        if attributes.len() > MAX_NAME_ATTRIBUTES {
            return Err(Error::TooLarge { what: WHAT, limit: MAX_NAME_ATTRIBUTES });
        }
        let name = attributes
            .into_iter()
            .map(|(oid, value)| {
                let attribute = AttributeTypeAndValue { oid, value: directory_string(value)? };
                SetOfVec::try_from(vec![attribute]).map_err(Error::encoding)
            })
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(Self(name.to_der().map_err(Error::encoding)?))
    }

    /// DER of the RFC 5280 `Name`.
    pub fn as_der(&self) -> &[u8] {
        &self.0
    }

    /// Returns true if the subject is empty, so that alternative names are required.
    pub(crate) fn is_empty(&self) -> bool {
        // An empty SEQUENCE is its tag and a zero length.
        self.0.len() <= 2
    }
}

fn directory_string(value: &str) -> Result<Any, Error> {
    let invalid = |reason| Error::InvalidName { what: "subject attribute", reason };
    if value.is_empty() {
        return Err(invalid("it is empty"));
    }
    if value.len() > MAX_ATTRIBUTE_BYTES {
        return Err(invalid("it is too long"));
    }
    if value.chars().any(char::is_control) {
        return Err(invalid("it has control characters"));
    }
    // PrintableString where possible, as Go and OpenSSL do, so that names compare equal.
    let encoded = match PrintableStringRef::new(value) {
        Ok(printable) => Any::encode_from(&printable),
        Err(_) => Utf8StringRef::new(value).and_then(|utf8| Any::encode_from(&utf8)),
    };
    encoded.map_err(|_| invalid("it cannot be encoded"))
}

/// The identity that a name states.
#[derive(Debug, Default)]
pub(crate) struct SubjectIdentity {
    pub common_name: Option<String>,
    pub organizations: Vec<String>,
    pub user_ids: Vec<String>,
}

/// Parses an identity from a `Name`. The last of several common names counts, as in Go.
///
/// Walks the DER: decoding a SET into a structure sorts it in quadratic time.
pub(crate) fn parse_name(name: AnyRef<'_>) -> Result<SubjectIdentity, Error> {
    let malformed = |reason: &str| Error::Malformed { what: WHAT, reason: reason.to_owned() };
    if name.tag() != Tag::Sequence {
        return Err(malformed("not a sequence"));
    }
    let mut identity = SubjectIdentity::default();
    let mut count = 0_usize;
    for relative in elements(name.value(), WHAT) {
        let relative = relative?;
        if relative.tag() != Tag::Set {
            return Err(malformed("not a set"));
        }
        for attribute in elements(relative.value(), WHAT) {
            count = count.saturating_add(1);
            if count > MAX_NAME_ATTRIBUTES {
                return Err(Error::TooLarge { what: WHAT, limit: MAX_NAME_ATTRIBUTES });
            }
            let attribute = attribute?;
            if attribute.tag() != Tag::Sequence {
                return Err(malformed("attribute is not a sequence"));
            }
            let mut parts = elements(attribute.value(), WHAT);
            let (Some(oid), Some(value), None) = (parts.next(), parts.next(), parts.next()) else {
                return Err(malformed("attribute is not a type and a value"));
            };
            let (oid, value) = (oid?, value?);
            match ObjectIdentifier::try_from(oid).map_err(Error::malformed(WHAT))? {
                COMMON_NAME => identity.common_name = Some(text(value)?),
                ORGANIZATION => identity.organizations.push(text(value)?),
                USER_ID => identity.user_ids.push(text(value)?),
                _ => {}
            }
        }
    }
    Ok(identity)
}

/// Returns the text of an attribute that determines identity. Undecodable text is an error, never a
/// different or empty name.
fn text(value: AnyRef<'_>) -> Result<String, Error> {
    let malformed = |reason: &str| Error::Malformed { what: WHAT, reason: reason.to_owned() };
    let bytes = value.value();
    if bytes.len() > MAX_ATTRIBUTE_BYTES {
        return Err(Error::TooLarge { what: "attribute of a name", limit: MAX_ATTRIBUTE_BYTES });
    }
    let text = match value.tag() {
        Tag::Utf8String => String::from_utf8(bytes.to_vec()).ok(),
        Tag::PrintableString | Tag::Ia5String | Tag::NumericString | Tag::VisibleString => {
            String::from_utf8(bytes.to_vec()).ok().filter(|text| text.is_ascii())
        }
        // T.61 in name, Latin-1 in practice.
        Tag::TeletexString => Some(bytes.iter().copied().map(char::from).collect()),
        Tag::BmpString => big_endian_utf16(bytes),
        _ => return Err(malformed("attribute is not a string")),
    };
    let text = text.ok_or_else(|| malformed("attribute is not a valid string"))?;
    if text.contains('\0') {
        return Err(malformed("attribute has a NUL"));
    }
    Ok(text)
}

fn big_endian_utf16(bytes: &[u8]) -> Option<String> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let units = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect::<Vec<_>>();
    if rest.is_empty() { String::from_utf16(&units).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use der::Decode;

    use super::*;

    fn identity(der: &[u8]) -> Result<SubjectIdentity, Error> {
        parse_name(AnyRef::from_der(der).map_err(Error::malformed(WHAT))?)
    }

    #[test]
    fn keeps_every_organization_in_order() {
        let groups = ["system:nodes", "team:beta", "team:alpha", "team:beta", "équipe"];
        let subject = Subject::new("system:node:a", &groups).unwrap();
        let identity = identity(subject.as_der()).unwrap();
        assert_eq!(identity.common_name.as_deref(), Some("system:node:a"));
        assert_eq!(identity.organizations, groups);
    }

    #[test]
    fn keeps_every_user_id() {
        for ids in [&[][..], &["42"], &["42", "43"]] {
            let subject = Subject::with_user_ids("jane", &[], ids).unwrap();
            assert_eq!(identity(subject.as_der()).unwrap().user_ids, ids);
        }
    }

    #[test]
    fn refuses_what_cannot_be_a_name() {
        let long = "x".repeat(MAX_ATTRIBUTE_BYTES + 1);
        for bad in ["a\0b", "a\nb", &long] {
            assert!(Subject::new(bad, &[]).is_err(), "{bad:?}");
            assert!(Subject::new("cn", &[bad]).is_err(), "{bad:?}");
        }
        assert!(Subject::new("cn", &[""]).is_err());
        assert!(Subject::new("", &[]).unwrap().is_empty());
    }

    #[test]
    fn reads_the_string_types_in_use() {
        // SEQUENCE { SET { SEQUENCE { 2.5.4.3, <tag> <value> } } }
        let name = |tag: u8, value: &[u8]| {
            let mut attribute = vec![0x06, 3, 0x55, 4, 3, tag, u8::try_from(value.len()).unwrap()];
            attribute.extend_from_slice(value);
            for outer in [0x30, 0x31, 0x30] {
                let length = u8::try_from(attribute.len()).unwrap();
                attribute.splice(0..0, [outer, length]);
            }
            identity(&attribute).map(|identity| identity.common_name.unwrap())
        };
        assert_eq!(name(0x0c, "ü".as_bytes()).unwrap(), "ü");
        assert_eq!(name(0x13, b"ab").unwrap(), "ab");
        assert_eq!(name(0x14, b"\xfc").unwrap(), "ü");
        assert_eq!(name(0x1e, &[0, 0xfc]).unwrap(), "ü");
        for (tag, value) in [
            (0x0c, &b"\xff"[..]),
            (0x13, b"\xfc"),
            (0x1e, b"\0"),
            (0x0c, b"root\0.example"),
            (0x02, b"\x05"),
            (0x1e, b"\xd8\0"),
        ] {
            assert!(name(tag, value).is_err(), "{tag:x} {value:?}");
        }
    }
}
