//! Subject alternative names, as Go parses them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::der_reader::{DerReader, tag};
use super::{asn1_string, uri};

/// The subject alternative names that Go knows, in order within each kind. Other kinds are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AltNames {
    /// DNS names: any ASCII, otherwise unchecked.
    pub dns_names: Vec<String>,
    /// E-mail addresses: any ASCII, otherwise unchecked.
    pub email_addresses: Vec<String>,
    /// IP addresses, IPv4 or IPv6, in order of appearance.
    pub ip_addresses: Vec<IpAddr>,
    /// URIs as Go prints them; this form is checked and issued.
    pub uris: Vec<String>,
}

const EMAIL: u8 = tag::context(1);
const DNS: u8 = tag::context(2);
const URI: u8 = tag::context(6);
const IP: u8 = tag::context(7);

impl AltNames {
    /// Returns true if there are no names of any kind.
    pub fn is_empty(&self) -> bool {
        self.dns_names.is_empty()
            && self.email_addresses.is_empty()
            && self.ip_addresses.is_empty()
            && self.uris.is_empty()
    }

    /// Parses the value of the extension.
    pub(crate) fn read(extension: &[u8]) -> Result<Self, &'static str> {
        let mut found = Self::default();
        let names = DerReader::new(extension).sequence();
        let mut names = names.ok_or("invalid subject alternative names")?;
        while !names.is_empty() {
            let name = names.next_element().ok_or("invalid subject alternative name")?;
            let ascii = || asn1_string::decode_ascii(name.value).ok_or("alternative name is not ASCII");
            match name.tag {
                EMAIL => found.email_addresses.push(ascii()?),
                DNS => found.dns_names.push(ascii()?),
                URI => found.uris.push(uri::canonical(&ascii()?)?),
                IP => found.ip_addresses.push(address(name.value)?),
                _ => {}
            }
        }
        Ok(found)
    }
}

fn address(octets: &[u8]) -> Result<IpAddr, &'static str> {
    if let Ok(four) = <[u8; 4]>::try_from(octets) {
        return Ok(IpAddr::V4(Ipv4Addr::from(four)));
    }
    let sixteen = <[u8; 16]>::try_from(octets).map_err(|_| "alternative name is no address")?;
    // Go treats ::ffff:192.0.2.1 and 192.0.2.1 as the same address.
    Ok(IpAddr::V6(Ipv6Addr::from(sixteen)).to_canonical())
}
