//! Extensions of a certificate; those that Go knows must be well-formed.

use std::collections::HashSet;
use std::net::IpAddr;

use super::alt_names::AltNames;
use super::der_reader::{DerReader, int64, tag};
use super::oid::{self, Oid};
use super::{asn1_string, domain_name};

/// The extensions that callers evaluate.
#[derive(Debug, Clone, Default)]
pub(crate) struct ForeignExtensions {
    /// The CA flag of the basic constraints; `None` without that extension.
    pub is_authority: Option<bool>,
    pub alt_names: AltNames,
    pub crl_distribution_points: Vec<String>,
    /// The key identifier of the authority key identifier.
    pub authority_key: Option<Vec<u8>>,
}

const AUTHORITY_INFO_ACCESS: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x01];

impl ForeignExtensions {
    /// Parses the elements of `Extensions` (RFC 5280 §4.1).
    pub(crate) fn read(mut list: DerReader<'_>) -> Result<Self, &'static str> {
        let mut found = Self::default();
        let mut seen = HashSet::new();
        while !list.is_empty() {
            let extension = list.sequence().ok_or("malformed extension")?;
            let extension = RawExtension::read(extension)?;
            if !seen.insert(extension.oid) {
                return Err("duplicate extension");
            }
            found.apply_extension(&extension)?;
        }
        Ok(found)
    }

    fn apply_extension(&mut self, extension: &RawExtension<'_>) -> Result<(), &'static str> {
        let value = extension.value;
        match extension.oid.certificate_extension() {
            Some(14) => {
                extension.not_critical("subject key identifier is marked critical")?;
                let identifier = DerReader::new(value).value(tag::OCTET_STRING);
                identifier.ok_or("invalid subject key identifier")?;
            }
            Some(15) => {
                DerReader::new(value).bit_string().ok_or("invalid key usage")?;
            }
            Some(17) => self.alt_names = AltNames::read(value)?,
            Some(19) => {
                let authority = basic_constraints(value).ok_or("invalid basic constraints")?;
                self.is_authority = Some(authority);
            }
            Some(30) => name_constraints(value)?,
            Some(31) => {
                let points = distribution_points(value).ok_or("invalid CRL distribution points")?;
                self.crl_distribution_points = points;
            }
            Some(32) => policies(value).ok_or("invalid certificate policies")?,
            Some(33) => policy_mappings(value).ok_or("invalid policy mappings")?,
            Some(35) => {
                extension.not_critical("authority key identifier is marked critical")?;
                let identifier = authority_key(value).ok_or("invalid authority key identifier")?;
                self.authority_key = identifier.map(<[u8]>::to_vec);
            }
            Some(36) => policy_constraints(value).ok_or("invalid policy constraints")?,
            Some(37) => extended_usages(value).ok_or("invalid extended key usages")?,
            Some(54) => {
                DerReader::new(value).int64().ok_or("invalid inhibit any policy")?;
            }
            Some(_) => {}
            None if extension.oid.0 == AUTHORITY_INFO_ACCESS => {
                extension.not_critical("authority info access is marked critical")?;
                info_access(value).ok_or("invalid authority info access")?;
            }
            None => {}
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RawExtension<'a> {
    pub oid: Oid<'a>,
    pub critical: bool,
    pub value: &'a [u8],
}

impl<'a> RawExtension<'a> {
    /// Parses the contents of one `Extension`.
    pub(crate) fn read(mut contents: DerReader<'a>) -> Result<Self, &'static str> {
        let oid = contents.oid().ok_or("malformed identifier of an extension")?;
        let critical = if contents.peek(tag::BOOLEAN) { contents.boolean() } else { Some(false) };
        let critical = critical.ok_or("malformed criticality of an extension")?;
        let value = contents.value(tag::OCTET_STRING).ok_or("malformed value of an extension")?;
        Ok(Self { oid, critical, value })
    }

    fn not_critical(&self, reason: &'static str) -> Result<(), &'static str> {
        if self.critical { Err(reason) } else { Ok(()) }
    }
}

/// Returns the CA flag of the basic constraints.
fn basic_constraints(value: &[u8]) -> Option<bool> {
    let mut constraints = DerReader::new(value).sequence()?;
    let authority = if constraints.peek(tag::BOOLEAN) { constraints.boolean()? } else { false };
    if constraints.peek(tag::INTEGER) {
        constraints.int64().filter(|length| *length >= 0)?;
    }
    Some(authority)
}

fn authority_key(value: &[u8]) -> Option<Option<&[u8]>> {
    DerReader::new(value).sequence()?.optional(tag::context(0))
}

fn extended_usages(value: &[u8]) -> Option<()> {
    let mut usages = DerReader::new(value).sequence()?;
    while !usages.is_empty() {
        usages.oid()?;
    }
    Some(())
}

fn policies(value: &[u8]) -> Option<()> {
    let mut policies = DerReader::new(value).sequence()?;
    let mut seen = HashSet::new();
    while !policies.is_empty() {
        let policy = policies.sequence()?.value(tag::OID)?;
        if !seen.insert(policy) || !oid::is_well_formed(policy) {
            return None;
        }
    }
    Some(())
}

fn policy_mappings(value: &[u8]) -> Option<()> {
    let mut mappings = DerReader::new(value).sequence()?;
    while !mappings.is_empty() {
        let mut mapping = mappings.sequence()?;
        mapping.value(tag::OID)?;
        mapping.value(tag::OID)?;
    }
    Some(())
}

fn policy_constraints(value: &[u8]) -> Option<()> {
    let mut constraints = DerReader::new(value).sequence()?;
    for number in 0..2 {
        if let Some(skip) = constraints.optional(tag::context(number))? {
            int64(skip)?;
        }
    }
    Some(())
}

/// Returns the URLs. Go accepts any bytes in them; those beyond UTF-8 are shown as U+FFFD.
fn distribution_points(value: &[u8]) -> Option<Vec<String>> {
    let mut points = DerReader::new(value).sequence()?;
    let mut urls = Vec::new();
    while !points.is_empty() {
        let Some(name) = points.sequence()?.optional(tag::constructed(0))? else { continue };
        let mut names = DerReader::new(name).nested(tag::constructed(0))?;
        while names.peek(tag::context(6)) {
            urls.push(String::from_utf8_lossy(names.value(tag::context(6))?).into_owned());
        }
    }
    Some(urls)
}

fn info_access(value: &[u8]) -> Option<()> {
    let mut accesses = DerReader::new(value).sequence()?;
    while !accesses.is_empty() {
        let mut access = accesses.sequence()?;
        access.oid()?;
        access.optional(tag::context(6))?;
    }
    Some(())
}

const CONSTRAINTS: &str = "invalid name constraints";

fn name_constraints(value: &[u8]) -> Result<(), &'static str> {
    let mut outer = DerReader::new(value);
    let mut constraints = outer.sequence().filter(|_| outer.is_empty()).ok_or(CONSTRAINTS)?;
    let permitted = constraints.optional(tag::constructed(0)).ok_or(CONSTRAINTS)?;
    let excluded = constraints.optional(tag::constructed(1)).ok_or(CONSTRAINTS)?;
    let lists = [permitted, excluded].map(Option::unwrap_or_default);
    // One of the lists may be present but empty.
    if !constraints.is_empty() || lists.iter().all(|list| list.is_empty()) {
        return Err(CONSTRAINTS);
    }
    for list in lists {
        let mut subtrees = DerReader::new(list);
        while !subtrees.is_empty() {
            let base = subtrees.sequence().and_then(|mut subtree| subtree.next_element());
            let base = base.ok_or(CONSTRAINTS)?;
            if !is_constraint(base.tag, base.value) {
                return Err("invalid value of a name constraint");
            }
        }
    }
    Ok(())
}

fn is_constraint(kind: u8, value: &[u8]) -> bool {
    const EMAIL: u8 = tag::context(1);
    const DNS: u8 = tag::context(2);
    const URI: u8 = tag::context(6);
    const IP: u8 = tag::context(7);
    match kind {
        DNS => value.is_ascii() && domain_name::is_valid(value, true),
        EMAIL if value.contains(&b'@') => value.is_ascii() && domain_name::is_mailbox(value),
        EMAIL => value.is_ascii() && domain_name::is_valid(value, true),
        URI => asn1_string::decode_ascii(value)
            .is_some_and(|name| name.parse::<IpAddr>().is_err() && domain_name::is_valid(value, true)),
        IP => is_network(value),
        _ => true,
    }
}

/// Returns true for an address with a mask of ones followed by zeros.
fn is_network(value: &[u8]) -> bool {
    let (address, mask) = value.split_at(value.len() / 2);
    let ones = match (address.len(), mask.len()) {
        (4, 4) | (16, 16) => mask.iter().skip_while(|byte| **byte == 0xff),
        _ => return false,
    };
    let mut tail = ones.copied();
    let edge = tail.next().unwrap_or_default();
    edge.leading_ones().saturating_add(edge.trailing_zeros()) == u8::BITS && tail.all(|byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_networks() {
        for good in [&[10, 0, 0, 0, 255, 0, 0, 0][..], &[0; 8], &[255; 8], &[0; 32]] {
            assert!(is_network(good), "{good:?}");
        }
        for bad in [&[10, 0, 0, 0, 255, 0, 255, 0][..], &[0, 0, 0, 0, 0xfd, 0, 0, 0], &[]] {
            assert!(!is_network(bad), "{bad:?}");
        }
    }
}
