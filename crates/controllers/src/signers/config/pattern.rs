//! Patterns for the names in requests.
//!
//! They are few, and none matches more than it seems to: `*` is any name; `*.example.com` is one
//! label before a domain; `*@example.com` any mailbox of a domain; `spiffe://example.com/*` any URI
//! below a path. Everything else is the name itself, and a `*` elsewhere is an error. In any of them
//! `{node}` and others stand for the requester (`template`).

mod shown;
mod template;

use std::net::IpAddr;

use super::document::{ConfigError, Field};

pub use template::{Requester, Template};

/// Names that are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Any.
    Anything,
    /// This one.
    Exactly(String),
    /// This one, however its letters are written.
    Domain(String),
    /// One label before this domain, or the domain's wildcard name itself.
    Below(String),
    /// Any mailbox of this domain.
    MailboxOf(String),
    /// This mailbox of this domain.
    Mailbox(String, String),
    /// What begins so.
    Beginning(String),
    /// What it says of the requester, such as `{node}.example.com`.
    Tied(Template),
}

/// What a pattern is for, which says how it is written and how it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// DNS names.
    DnsName,
    /// Common names: DNS names, or anything else.
    CommonName,
    /// Organizations: one, or any.
    Word,
    /// E-mail addresses.
    Email,
    /// URIs.
    Uri,
}

impl Pattern {
    /// Reads a pattern for DNS names.
    pub fn dns_name(field: &Field<'_>) -> Result<Pattern, ConfigError> {
        Pattern::read(field, Kind::DnsName)
    }

    /// Reads a pattern for common names, which are DNS names or anything else.
    pub fn common_name(field: &Field<'_>) -> Result<Pattern, ConfigError> {
        Pattern::read(field, Kind::CommonName)
    }

    /// Reads a pattern for words: one of them or any.
    pub fn word(field: &Field<'_>) -> Result<Pattern, ConfigError> {
        Pattern::read(field, Kind::Word)
    }

    /// Reads a pattern for e-mail addresses.
    pub fn email(field: &Field<'_>) -> Result<Pattern, ConfigError> {
        Pattern::read(field, Kind::Email)
    }

    /// Reads a pattern for URIs.
    pub fn uri(field: &Field<'_>) -> Result<Pattern, ConfigError> {
        Pattern::read(field, Kind::Uri)
    }

    fn read(field: &Field<'_>, kind: Kind) -> Result<Pattern, ConfigError> {
        let text = field.text()?;
        let pattern = match text.contains(['{', '}']) {
            true => Template::parse(text, kind).map(Pattern::Tied),
            false => kind.parse(text),
        };
        pattern.map_err(|words| field.error(words))
    }

    /// Whether it allows names that it does not spell out, whoever the requester is.
    pub fn is_shared_wildcard(&self) -> bool {
        match self {
            Pattern::Anything
            | Pattern::Below(_)
            | Pattern::MailboxOf(_)
            | Pattern::Beginning(_) => true,
            Pattern::Exactly(_) | Pattern::Domain(_) | Pattern::Mailbox(..) | Pattern::Tied(_) => {
                false
            }
        }
    }

    /// Whether a requester may have a name.
    pub fn allows(&self, name: &str, requester: &Requester<'_>) -> bool {
        match self {
            Pattern::Tied(template) => {
                template.fill(requester).is_some_and(|pattern| pattern.matches(name))
            }
            pattern => pattern.matches(name),
        }
    }

    /// Whether a name is allowed, to whichever requester.
    fn matches(&self, name: &str) -> bool {
        match self {
            Pattern::Tied(_) => false,
            Pattern::Anything => true,
            Pattern::Exactly(wanted) => name == wanted,
            Pattern::Domain(wanted) => name.eq_ignore_ascii_case(wanted),
            Pattern::Below(domain) => name.split_once('.').is_some_and(|(label, rest)| {
                rest.eq_ignore_ascii_case(domain) && (label == "*" || is_label(label))
            }),
            Pattern::MailboxOf(wanted) => name.rsplit_once('@').is_some_and(|(mailbox, domain)| {
                domain.eq_ignore_ascii_case(wanted) && is_printed(mailbox) && !mailbox.contains('@')
            }),
            Pattern::Mailbox(wanted, at) => {
                name.rsplit_once('@').is_some_and(|(mailbox, domain)| {
                    mailbox == wanted && domain.eq_ignore_ascii_case(at)
                })
            }
            Pattern::Beginning(beginning) => {
                name.strip_prefix(beginning.as_str()).is_some_and(stays_below)
            }
        }
    }
}

impl Kind {
    /// A pattern without placeholders, or what is wrong with it.
    fn parse(self, text: &str) -> Result<Pattern, String> {
        match self {
            _ if text == "*" => Ok(Pattern::Anything),
            Kind::DnsName => parse_dns_name(text),
            Kind::CommonName if text.starts_with("*.") => parse_dns_name(text),
            Kind::CommonName | Kind::Word if text.contains('*') => {
                Err(format!("{text:?} has a \"*\" where it is no pattern"))
            }
            Kind::CommonName | Kind::Word => Ok(Pattern::Exactly(text.to_owned())),
            Kind::Email => parse_email(text),
            Kind::Uri => parse_uri(text),
        }
    }
}

fn parse_dns_name(text: &str) -> Result<Pattern, String> {
    let (rest, pattern): (_, fn(String) -> Pattern) = match text.strip_prefix("*.") {
        Some(rest) => (rest, Pattern::Below),
        None => (text, Pattern::Domain),
    };
    if !is_domain(rest) {
        return Err(format!("{text:?} is not a DNS name, such a name after \"*.\", or \"*\""));
    }
    Ok(pattern(rest.to_owned()))
}

fn parse_email(text: &str) -> Result<Pattern, String> {
    match text.rsplit_once('@') {
        Some(("*", domain)) if is_domain(domain) => Ok(Pattern::MailboxOf(domain.to_owned())),
        Some((mailbox, domain))
            if is_domain(domain) && is_printed(mailbox) && !mailbox.contains(['*', '@']) =>
        {
            Ok(Pattern::Mailbox(mailbox.to_owned(), domain.to_owned()))
        }
        _ => Err(format!("{text:?} is not an e-mail address, \"*@\" and a domain, or \"*\"")),
    }
}

fn parse_uri(text: &str) -> Result<Pattern, String> {
    let (rest, any) = text.strip_suffix('*').map_or((text, false), |rest| (rest, true));
    let scheme = rest.split_once(':').filter(|(scheme, _)| is_scheme(scheme));
    let Some((_, after)) = scheme.filter(|_| is_printed(rest) && !rest.contains('*')) else {
        return Err(format!("{text:?} is not a URI, the beginning of one and \"*\", or \"*\""));
    };
    // What comes after an unfinished host could make it another host.
    let host_ends = after
        .strip_prefix("//")
        .is_none_or(|after| after.split_once('/').is_some_and(|(host, _)| !host.is_empty()));
    match any {
        true if host_ends && rest.ends_with(['/', ':']) => Ok(Pattern::Beginning(rest.to_owned())),
        true => Err(format!(
            "in {text:?} the \"*\" must stand for all that is below a path: after a \"/\" that follows the host, or after a \":\""
        )),
        false => Ok(Pattern::Exactly(text.to_owned())),
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

fn is_printed(text: &str) -> bool {
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
fn stays_below(rest: &str) -> bool {
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    is_printed(rest)
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
    pub fn read(field: &Field<'_>) -> Result<AddressBlock, ConfigError> {
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
        let (_, width) = number(first);
        let bits = bits.unwrap_or(width);
        if bits > width {
            return Err(bad());
        }
        let block = AddressBlock { first, bits };
        match block.shared(first) {
            Some(0) | None => Ok(block),
            Some(_) => Err(field.error(format!("{text:?} has bits beyond its prefix"))),
        }
    }

    /// Whether an address is in it.
    pub fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let ((wanted, width), (found, other)) = (number(self.first), number(address));
        let beyond = width.saturating_sub(self.bits);
        width == other && wanted.checked_shr(beyond) == found.checked_shr(beyond)
    }

    /// What an address has beyond the bits that all share; nothing if they are as many as it has.
    fn shared(&self, address: IpAddr) -> Option<u128> {
        let (number, width) = number(address);
        number.checked_shl(128_u32.saturating_sub(width).saturating_add(self.bits))
    }
}

/// An address as a number, and how many bits it has.
fn number(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (address.to_bits().into(), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

#[cfg(test)]
mod tests;
