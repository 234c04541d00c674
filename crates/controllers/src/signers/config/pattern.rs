//! Patterns for the names in requests.
//!
//! They are few, and none matches more than it seems to: `*` is any name; `*.example.com` is one
//! label before a domain; `*@example.com` any mailbox of a domain; `spiffe://example.com/*` any URI
//! below a path. Everything else is the name itself, and a `*` elsewhere is an error. In any of them
//! `{node}` and others stand for the requester (`template`).

mod display;
mod template;

use std::net::IpAddr;

use super::document::{ConfigError, ConfigField};

pub use template::{PatternTemplate, RequesterIdentity};

/// A pattern for names that a profile allows in certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamePattern {
    /// Any value matches, written as `*`.
    Anything,
    /// Only this value matches, compared byte by byte.
    Exactly(String),
    /// This one, however its letters are written.
    Domain(String),
    /// One label before this domain, or the domain's wildcard name itself.
    Below(String),
    /// Any mailbox of this domain.
    MailboxOf(String),
    /// This mailbox of this domain.
    Mailbox(String, String),
    /// Values with this prefix match, written as the prefix and `*`.
    Beginning(String),
    /// What it says of the requester, such as `{node}.example.com`.
    Tied(PatternTemplate),
}

/// What a pattern is for, which says how it is written and how it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternKind {
    /// DNS names, compared without regard to case.
    DnsName,
    /// Common names: DNS names, or anything else.
    CommonName,
    /// Organizations: one literal value, or any.
    Word,
    /// E-mail addresses, of which the domain ignores case.
    Email,
    /// URIs, which are compared byte by byte.
    Uri,
}

impl NamePattern {
    /// Reads a pattern for DNS names.
    pub fn parse_dns_name_field(field: &ConfigField<'_>) -> Result<NamePattern, ConfigError> {
        NamePattern::parse_field(field, PatternKind::DnsName)
    }

    /// Reads a pattern for common names, which are DNS names or anything else.
    pub fn parse_common_name_field(field: &ConfigField<'_>) -> Result<NamePattern, ConfigError> {
        NamePattern::parse_field(field, PatternKind::CommonName)
    }

    /// Reads a pattern for words: one of them or any.
    pub fn parse_organization_field(field: &ConfigField<'_>) -> Result<NamePattern, ConfigError> {
        NamePattern::parse_field(field, PatternKind::Word)
    }

    /// Reads a pattern for e-mail addresses.
    pub fn parse_email_field(field: &ConfigField<'_>) -> Result<NamePattern, ConfigError> {
        NamePattern::parse_field(field, PatternKind::Email)
    }

    /// Reads a pattern for URIs.
    pub fn parse_uri_field(field: &ConfigField<'_>) -> Result<NamePattern, ConfigError> {
        NamePattern::parse_field(field, PatternKind::Uri)
    }

    fn parse_field(field: &ConfigField<'_>, kind: PatternKind) -> Result<NamePattern, ConfigError> {
        let text = field.text()?;
        let pattern = match text.contains(['{', '}']) {
            true => PatternTemplate::parse(text, kind).map(NamePattern::Tied),
            false => kind.parse(text),
        };
        pattern.map_err(|words| field.error(words))
    }

    /// Whether it allows names that it does not spell out, whoever the requester is.
    pub fn is_shared_wildcard(&self) -> bool {
        match self {
            NamePattern::Anything
            | NamePattern::Below(_)
            | NamePattern::MailboxOf(_)
            | NamePattern::Beginning(_) => true,
            NamePattern::Exactly(_)
            | NamePattern::Domain(_)
            | NamePattern::Mailbox(..)
            | NamePattern::Tied(_) => false,
        }
    }

    /// Whether a requester may have a name.
    pub fn allows(&self, name: &str, requester: &RequesterIdentity<'_>) -> bool {
        match self {
            NamePattern::Tied(template) => {
                template.fill(requester).is_some_and(|pattern| pattern.matches(name))
            }
            pattern => pattern.matches(name),
        }
    }

    /// Whether a name is allowed, to whichever requester.
    fn matches(&self, name: &str) -> bool {
        match self {
            NamePattern::Tied(_) => false,
            NamePattern::Anything => true,
            NamePattern::Exactly(wanted) => name == wanted,
            NamePattern::Domain(wanted) => name.eq_ignore_ascii_case(wanted),
            NamePattern::Below(domain) => name.split_once('.').is_some_and(|(label, rest)| {
                rest.eq_ignore_ascii_case(domain) && (label == "*" || is_label(label))
            }),
            NamePattern::MailboxOf(wanted) => {
                name.rsplit_once('@').is_some_and(|(mailbox, domain)| {
                    domain.eq_ignore_ascii_case(wanted)
                        && is_printable(mailbox)
                        && !mailbox.contains('@')
                })
            }
            NamePattern::Mailbox(wanted, at) => {
                name.rsplit_once('@').is_some_and(|(mailbox, domain)| {
                    mailbox == wanted && domain.eq_ignore_ascii_case(at)
                })
            }
            NamePattern::Beginning(beginning) => {
                name.strip_prefix(beginning.as_str()).is_some_and(is_safe_subpath)
            }
        }
    }
}

impl PatternKind {
    /// A pattern without placeholders, or what is wrong with it.
    fn parse(self, text: &str) -> Result<NamePattern, String> {
        match self {
            _ if text == "*" => Ok(NamePattern::Anything),
            PatternKind::DnsName => parse_dns_name(text),
            PatternKind::CommonName if text.starts_with("*.") => parse_dns_name(text),
            PatternKind::CommonName | PatternKind::Word if text.contains('*') => {
                Err(format!("{text:?} has a \"*\" where it is no pattern"))
            }
            PatternKind::CommonName | PatternKind::Word => {
                Ok(NamePattern::Exactly(text.to_owned()))
            }
            PatternKind::Email => parse_email(text),
            PatternKind::Uri => parse_uri(text),
        }
    }
}

fn parse_dns_name(text: &str) -> Result<NamePattern, String> {
    let (rest, pattern): (_, fn(String) -> NamePattern) = match text.strip_prefix("*.") {
        Some(rest) => (rest, NamePattern::Below),
        None => (text, NamePattern::Domain),
    };
    if !is_domain(rest) {
        return Err(format!("{text:?} is not a DNS name, such a name after \"*.\", or \"*\""));
    }
    Ok(pattern(rest.to_owned()))
}

fn parse_email(text: &str) -> Result<NamePattern, String> {
    match text.rsplit_once('@') {
        Some(("*", domain)) if is_domain(domain) => Ok(NamePattern::MailboxOf(domain.to_owned())),
        Some((mailbox, domain))
            if is_domain(domain) && is_printable(mailbox) && !mailbox.contains(['*', '@']) =>
        {
            Ok(NamePattern::Mailbox(mailbox.to_owned(), domain.to_owned()))
        }
        _ => Err(format!("{text:?} is not an e-mail address, \"*@\" and a domain, or \"*\"")),
    }
}

fn parse_uri(text: &str) -> Result<NamePattern, String> {
    let (rest, any) = text.strip_suffix('*').map_or((text, false), |rest| (rest, true));
    let scheme = rest.split_once(':').filter(|(scheme, _)| is_scheme(scheme));
    let Some((_, after)) = scheme.filter(|_| is_printable(rest) && !rest.contains('*')) else {
        return Err(format!("{text:?} is not a URI, the beginning of one and \"*\", or \"*\""));
    };
    // What comes after an unfinished host could make it another host.
    let host_ends = after
        .strip_prefix("//")
        .is_none_or(|after| after.split_once('/').is_some_and(|(host, _)| !host.is_empty()));
    match any {
        true if host_ends && rest.ends_with(['/', ':']) => {
            Ok(NamePattern::Beginning(rest.to_owned()))
        }
        true => Err(format!(
            "in {text:?} the \"*\" must stand for all that is below a path: after a \"/\" that follows the host, or after a \":\""
        )),
        false => Ok(NamePattern::Exactly(text.to_owned())),
    }
}

/// A host may have underscores in its name, as services of some have.
fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn is_domain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

fn is_printable(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_scheme(scheme: &str) -> bool {
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

/// Whether every reader finds this below where the path begins. Readers differ in what they decode,
/// and how often: so nothing may be written in a way that could become a dot, a slash or another
/// escape, no step may be empty, and backslashes, which some take for slashes, are refused.
fn is_safe_subpath(rest: &str) -> bool {
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    is_printable(rest)
        && !rest.contains('\\')
        && has_plain_escapes(rest)
        && rest.split(['/', '?', '#']).all(|step| step != "." && step != "..")
        && path.split('/').all(|step| !step.is_empty())
}

/// Whether each `%` begins an escape of something that has no meaning in a path.
fn has_plain_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|after| {
        let digits = after.get(..2).filter(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        byte.is_some_and(|byte| !matches!(byte, b'.' | b'/' | b'%' | b'\\') && byte >= b' ')
    })
}

/// Addresses that are allowed: those that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressBlock {
    first: IpAddr,
    bits: u32,
}

impl AddressBlock {
    /// Reads an address, or a block of them such as `10.0.0.0/8`.
    pub fn parse_field(field: &ConfigField<'_>) -> Result<AddressBlock, ConfigError> {
        let text = field.text()?;
        let bad =
            || field.error(format!("{text:?} is not an address or a block such as 10.0.0.0/8"));
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                (address, Some(bits.parse::<u32>().map_err(|_| bad())?))
            }
            Some(_) => return Err(bad()),
        };
        let first: IpAddr = address.parse().map_err(|_| bad())?;
        if first != first.to_canonical() {
            return Err(field.error(format!("{text:?} must be written as an IPv4 address")));
        }
        let (_, width) = to_bits(first);
        let bits = bits.unwrap_or(width);
        if bits > width {
            return Err(bad());
        }
        let block = AddressBlock { first, bits };
        match block.host_bits(first) {
            Some(0) | None => Ok(block),
            Some(_) => Err(field.error(format!("{text:?} has bits beyond its prefix"))),
        }
    }

    /// Whether an address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let ((wanted, width), (found, other)) = (to_bits(self.first), to_bits(address));
        let beyond = width.saturating_sub(self.bits);
        width == other && wanted.checked_shr(beyond) == found.checked_shr(beyond)
    }

    /// What an address has beyond the bits that all share; nothing if they are as many as it has.
    fn host_bits(&self, address: IpAddr) -> Option<u128> {
        let (number, width) = to_bits(address);
        number.checked_shl(128_u32.saturating_sub(width).saturating_add(self.bits))
    }
}

/// An address as a number, and how many bits it has.
fn to_bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (address.to_bits().into(), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

#[cfg(test)]
mod tests;
