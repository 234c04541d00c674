//! Subject alternative names as Go encodes them: grouped by kind, and URIs as it prints them.

use std::net::IpAddr;

use crate::der_syntax::encode_tlv;
use crate::{AltNames, Error, go_compat};

const SEQUENCE: u8 = 0x30;
const EMAIL: u8 = 0x81;
const DNS: u8 = 0x82;
const URI: u8 = 0x86;
const IP: u8 = 0x87;

/// Returns the names in the form written to the certificate. Names of a parsed request already have
/// it.
pub(crate) fn canonical(names: &AltNames) -> Result<AltNames, Error> {
    let ascii = |names: &[String], what| {
        let all = names.iter().all(|name| name.is_ascii());
        all.then_some(()).ok_or(Error::InvalidName { what, reason: "it is not ASCII" })
    };
    ascii(&names.dns_names, "DNS name")?;
    ascii(&names.email_addresses, "e-mail address")?;
    ascii(&names.uris, "URI")?;
    let uris = names.uris.iter().map(|uri| {
        go_compat::canonical_uri(uri).map_err(|reason| Error::InvalidName { what: "URI", reason })
    });
    Ok(AltNames {
        uris: uris.collect::<Result<_, _>>()?,
        ip_addresses: names.ip_addresses.iter().map(IpAddr::to_canonical).collect(),
        ..names.clone()
    })
}

/// Encodes the value of the extension.
pub(crate) fn to_der(names: &AltNames) -> Vec<u8> {
    let texts = |tag, texts: &[String]| {
        texts.iter().map(|text| encode_tlv(tag, text.as_bytes())).collect::<Vec<_>>().concat()
    };
    let addresses = names.ip_addresses.iter().map(|address| match address {
        IpAddr::V4(address) => encode_tlv(IP, &address.octets()),
        IpAddr::V6(address) => encode_tlv(IP, &address.octets()),
    });
    let kinds = [
        texts(DNS, &names.dns_names),
        texts(EMAIL, &names.email_addresses),
        addresses.collect::<Vec<_>>().concat(),
        texts(URI, &names.uris),
    ];
    encode_tlv(SEQUENCE, &kinds.concat())
}
