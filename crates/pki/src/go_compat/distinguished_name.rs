//! Distinguished names, as Go's `pkix.Name` represents them.

use super::der_reader::{self, BitString, DerElement, DerReader, tag};
use super::oid::Oid;
use super::{asn1_string, time};

/// A distinguished name: its attributes in order, regardless of RDN grouping.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DistinguishedName {
    attributes: Vec<NameAttribute>,
}

/// One attribute of a distinguished name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameAttribute {
    oid: Vec<u8>,
    value: Option<String>,
}

const COMMON_NAME: u8 = 3;
const ORGANIZATION: u8 = 10;

impl DistinguishedName {
    /// Returns the common name, which is the user name of a client. The last one counts if there
    /// are several; empty if there is none.
    pub fn common_name(&self) -> &str {
        self.values(COMMON_NAME).last().unwrap_or_default()
    }

    /// Returns the organizations in order, which are the groups of a client.
    pub fn organizations(&self) -> Vec<&str> {
        self.values(ORGANIZATION).collect()
    }

    /// Returns all attributes in order of appearance, repeated types included.
    pub fn attributes(&self) -> &[NameAttribute] {
        &self.attributes
    }

    /// Returns the text values of the attribute `2.5.4.number`, in order.
    pub(crate) fn values(&self, number: u8) -> impl Iterator<Item = &str> {
        let wanted = move |attribute: &&NameAttribute| Oid(&attribute.oid).name_attribute() == Some(number);
        self.attributes.iter().filter(wanted).filter_map(NameAttribute::value)
    }

    /// Parses the subject of a request.
    pub(crate) fn from_request(name: &[u8]) -> Result<Self, &'static str> {
        let mut attributes = Vec::new();
        let mut sets = DerReader::new(name);
        let sequence = sets.next_wide_element().filter(|name| name.tag == tag::SEQUENCE);
        let mut sets = DerReader::new(sequence.ok_or(INVALID)?.value);
        while !sets.is_empty() {
            let mut set = sets.nested(tag::SET).ok_or(INVALID)?;
            while !set.is_empty() {
                let mut attribute = set.sequence().ok_or(INVALID)?;
                let oid = attribute.oid().ok_or(INVALID_TYPE)?;
                let value = attribute.next_wide_element().ok_or(INVALID_VALUE)?;
                let value = request_value(value).ok_or(INVALID_VALUE)?;
                attributes.push(NameAttribute { oid: oid.0.to_vec(), value });
            }
        }
        Ok(Self { attributes })
    }

    pub(crate) fn from_certificate(name: &[u8]) -> Result<Self, &'static str> {
        let mut attributes = Vec::new();
        visit_attributes(name, |oid, value| {
            attributes.push(NameAttribute { oid: oid.0.to_vec(), value: Some(value) });
        })?;
        Ok(Self { attributes })
    }
}

impl NameAttribute {
    /// Attribute type in dotted decimal notation.
    pub fn oid(&self) -> String {
        Oid(&self.oid).to_string()
    }

    /// Returns the value if it is text.
    pub fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }
}

const INVALID: &str = "invalid distinguished name";
const INVALID_TYPE: &str = "invalid attribute type in a distinguished name";
const INVALID_VALUE: &str = "invalid attribute value in a distinguished name";

/// Checks the syntax of a certificate's name without keeping it.
pub(crate) fn check(name: &[u8]) -> Result<(), &'static str> {
    visit_attributes(name, |_, _| ())
}

/// Parses a name of a certificate, whose values must be text.
fn visit_attributes(name: &[u8], mut each: impl FnMut(Oid<'_>, String)) -> Result<(), &'static str> {
    let mut sets = DerReader::new(name).sequence().ok_or(INVALID)?;
    while !sets.is_empty() {
        let mut set = sets.nested(tag::SET).ok_or(INVALID)?;
        while !set.is_empty() {
            let mut attribute = set.sequence().ok_or(INVALID)?;
            let oid = attribute.oid().ok_or(INVALID_TYPE)?;
            let value = attribute.next_element().ok_or(INVALID_VALUE)?;
            each(oid, asn1_string::decode(value.tag, value.value).ok_or(INVALID_VALUE)?);
        }
    }
    Ok(())
}

/// Parses a value in a request, which may have any type; if Go knows the type, it must be
/// well-formed. The outer `None` means malformed input.
fn request_value(element: DerElement<'_>) -> Option<Option<String>> {
    let value = element.value;
    let well_formed = match element.tag {
        kind if asn1_string::is_string(kind) => return asn1_string::decode(kind, value).map(Some),
        tag::BOOLEAN => der_reader::boolean(value).is_some(),
        tag::INTEGER => der_reader::int64(value).is_some(),
        tag::BIT_STRING => BitString::from_contents(value).is_some(),
        tag::OID => Oid::from_contents(value).is_some(),
        tag::UTC_TIME => time::parse_utc_time(value).is_some(),
        tag::GENERALIZED_TIME => time::is_generalized_in_request(value),
        _ => true,
    };
    well_formed.then_some(None)
}
