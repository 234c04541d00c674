//! Subject alternative names of certificates.

use std::net::IpAddr;

use der::asn1::{AnyRef, Ia5String};
use der::{Decode, Tag, Tagged};
use x509_cert::ext::pkix::name::GeneralName;

use crate::Error;
use crate::der_syntax::elements;
use crate::limits::{MAX_ALT_NAMES, MAX_DNS_NAME_BYTES, MAX_URI_BYTES};

/// One subject alternative name of a certificate (RFC 5280 §4.2.1.6).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum AltName {
    /// A DNS name; the first label may be a wildcard.
    Dns(String),
    /// An IPv4 or IPv6 address, encoded as 4 or 16 bytes.
    Ip(IpAddr),
    /// A URI, for example a SPIFFE ID.
    Uri(String),
}

impl AltName {
    /// Encodes the name as a `GeneralName` for a certificate.
    pub(crate) fn encoded(&self) -> Result<GeneralName, Error> {
        match self {
            Self::Dns(name) => {
                Ok(GeneralName::DnsName(encode_ia5_string(name, "DNS name", MAX_DNS_NAME_BYTES)?))
            }
            Self::Uri(uri) => {
                Ok(GeneralName::UniformResourceIdentifier(encode_ia5_string(uri, "URI", MAX_URI_BYTES)?))
            }
            Self::Ip(address) => Ok(GeneralName::from(*address)),
        }
    }
}

/// Accepts ASCII without spaces and control characters. An embedded NUL has fooled verifiers
/// before.
fn encode_ia5_string(text: &str, what: &'static str, limit: usize) -> Result<Ia5String, Error> {
    let invalid = |reason| Error::InvalidName { what, reason };
    if text.is_empty() {
        return Err(invalid("it is empty"));
    }
    if text.len() > limit {
        return Err(invalid("it is too long"));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid("it has characters other than visible ASCII"));
    }
    Ia5String::new(text).map_err(|_| invalid("it is not ASCII"))
}

/// Parses DNS names, IP addresses and URIs from the extension's value; ignores other kinds.
///
/// Walks the DER instead of decoding it into structures, because an attacker could make a directory
/// name expensive to decode.
pub(crate) fn parse_extension(extension: &[u8]) -> Result<Vec<AltName>, Error> {
    const WHAT: &str = "subject alternative name";
    let malformed = |reason: &str| Error::Malformed { what: WHAT, reason: reason.to_owned() };
    let names = AnyRef::from_der(extension).map_err(Error::malformed(WHAT))?;
    if names.tag() != Tag::Sequence {
        return Err(malformed("not a sequence"));
    }
    let mut found = Vec::new();
    for (index, name) in elements(names.value(), WHAT).enumerate() {
        if index == MAX_ALT_NAMES {
            return Err(Error::TooLarge { what: "subject alternative names", limit: MAX_ALT_NAMES });
        }
        let name = name?;
        let Tag::ContextSpecific { number, .. } = name.tag() else {
            return Err(malformed("not a general name"));
        };
        let text = || match std::str::from_utf8(name.value()) {
            Ok(text) if text.is_ascii() => Ok(text.to_owned()),
            _ => Err(malformed("not ASCII")),
        };
        match number.value() {
            2 => found.push(AltName::Dns(text()?)),
            6 => found.push(AltName::Uri(text()?)),
            7 => found.push(AltName::Ip(address(name.value()).ok_or_else(|| malformed("not an address"))?)),
            _ => {}
        }
    }
    Ok(found)
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(octets) {
        return Some(IpAddr::from(four));
    }
    <[u8; 16]>::try_from(octets).ok().map(IpAddr::from)
}
