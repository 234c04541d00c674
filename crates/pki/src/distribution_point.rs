//! CRL distribution points: where relying parties find the CRL of a certificate's issuer.

use std::fmt;

use crate::Error;
use crate::der_syntax::encode_tlv;
use crate::limits::MAX_URI_BYTES;

/// URL of a CRL for the `cRLDistributionPoints` extension (RFC 5280 §4.2.1.13).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DistributionPoint(String);

const SEQUENCE: u8 = 0x30;
/// `[0]`, which is both `distributionPoint` and `fullName`.
const CONSTRUCTED_0: u8 = 0xa0;
const URI: u8 = 0x86;

impl DistributionPoint {
    /// Parses an absolute `http` or `https` URL in ASCII. Other schemes are rejected, because hardly
    /// any client fetches them.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let invalid = |reason| Error::InvalidName { what: "CRL distribution point", reason };
        if url.len() > MAX_URI_BYTES {
            return Err(invalid("it is longer than 2048 characters"));
        }
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid("it has spaces, control characters or characters beyond ASCII"));
        }
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let rest = rest.ok_or_else(|| invalid("it does not start with http:// or https://"))?;
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if host.is_empty() || host.starts_with(':') {
            return Err(invalid("it has no host"));
        }
        if host.contains('@') {
            return Err(invalid("it contains credentials"));
        }
        Ok(Self(url.to_owned()))
    }

    /// Returns the URL as it was parsed.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DistributionPoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Encodes the value of the extension as Go does, with one distribution point per URL.
pub(crate) fn to_der(points: &[DistributionPoint]) -> Vec<u8> {
    let points = points.iter().map(|point| {
        let full_name = encode_tlv(CONSTRUCTED_0, &encode_tlv(URI, point.0.as_bytes()));
        encode_tlv(SEQUENCE, &encode_tlv(CONSTRUCTED_0, &full_name))
    });
    encode_tlv(SEQUENCE, &points.collect::<Vec<_>>().concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_urls_that_clients_fetch() {
        for good in
            ["http://pki.example.com/web.crl", "https://10.0.0.1:6443/pki/crl/ab.crl", "http://[::1]/"]
        {
            assert_eq!(DistributionPoint::parse(good).unwrap().as_str(), good);
        }
        let long = format!("http://a/{}", "a".repeat(MAX_URI_BYTES));
        for bad in [
            "",
            "http://",
            "http:///a.crl",
            "http://:80/a.crl",
            "ldap://example.com/cn=ca",
            "/pki/a.crl",
            "http://user:secret@example.com/a.crl",
            "http://example.com/a b.crl",
            "http://bücher.example/a.crl",
            "http://example.com/a\n",
            &long,
        ] {
            assert!(DistributionPoint::parse(bad).is_err(), "{bad}");
        }
    }
}
