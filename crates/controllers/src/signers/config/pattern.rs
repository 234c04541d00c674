//! Patterns for the names in requests.
//!
//! `*` matches any name, `*.example.com` one label before a domain, `*@example.com` any mailbox of a domain, and
//! `spiffe://example.com/*` any URI below a path. Everything else matches only itself, and a `*` in another position is an
//! error. `{node}` and other placeholders are replaced by properties of the requester (`template`).

mod display;
mod template;

use std::net::IpAddr;

use windlass_runtime::config::{ConfigField, ConfigResult};

pub use template::{PatternTemplate, RequesterIdentity};

/// A pattern for names that a profile allows in certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamePattern {
    /// Any value matches, written as `*`.
    Anything,
    /// Only this value matches, compared byte by byte.
    Exactly(String),
    /// Only this domain matches, in upper or lower case.
    Domain(String),
    /// Names with one label before this domain match, and the wildcard name `*.domain` itself.
    Below(String),
    /// Addresses with any mailbox of this domain match.
    MailboxOf(String),
    /// Only this mailbox of this domain matches.
    Mailbox(String, String),
    /// Values with this prefix match, written as the prefix and `*`.
    Beginning(String),
    /// Depends on the requester, such as `{node}.example.com`.
    Template(PatternTemplate),
}

/// Field of a request that a pattern is for. It determines notation and comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternKind {
    /// DNS names, which are case-insensitive.
    DnsName,
    /// Common names: DNS names or any other text.
    CommonName,
    /// Organizations: one literal value, or any.
    Word,
    /// E-mail addresses, whose domain is case-insensitive.
    Email,
    /// URIs, which are case-sensitive.
    Uri,
}

impl NamePattern {
    /// Parses a pattern for DNS names.
    pub fn parse_dns_name(field: &ConfigField<'_>) -> ConfigResult<NamePattern> {
        NamePattern::parse_field(field, PatternKind::DnsName)
    }

    /// Parses a pattern for common names.
    pub fn parse_common_name(field: &ConfigField<'_>) -> ConfigResult<NamePattern> {
        NamePattern::parse_field(field, PatternKind::CommonName)
    }

    /// Parses a pattern for organizations.
    pub fn parse_organization(field: &ConfigField<'_>) -> ConfigResult<NamePattern> {
        NamePattern::parse_field(field, PatternKind::Word)
    }

    /// Parses a pattern for e-mail addresses.
    pub fn parse_email(field: &ConfigField<'_>) -> ConfigResult<NamePattern> {
        NamePattern::parse_field(field, PatternKind::Email)
    }

    /// Parses a pattern for URIs.
    pub fn parse_uri(field: &ConfigField<'_>) -> ConfigResult<NamePattern> {
        NamePattern::parse_field(field, PatternKind::Uri)
    }

    fn parse_field(field: &ConfigField<'_>, kind: PatternKind) -> ConfigResult<NamePattern> {
        let text = field.text()?;
        let pattern = match text.contains(['{', '}']) {
            true => PatternTemplate::parse(text, kind).map(NamePattern::Template),
            false => kind.parse(text),
        };
        pattern.map_err(|message| field.error(message))
    }

    /// Whether it matches several names for every requester.
    pub fn is_shared_wildcard(&self) -> bool {
        match self {
            NamePattern::Anything
            | NamePattern::Below(_)
            | NamePattern::MailboxOf(_)
            | NamePattern::Beginning(_) => true,
            NamePattern::Exactly(_)
            | NamePattern::Domain(_)
            | NamePattern::Mailbox(..)
            | NamePattern::Template(_) => false,
        }
    }

    /// Whether a requester may obtain a certificate with this name.
    pub fn allows(&self, name: &str, requester: &RequesterIdentity<'_>) -> bool {
        match self {
            NamePattern::Template(template) => {
                template.fill(requester).is_some_and(|pattern| pattern.matches(name))
            }
            pattern => pattern.matches(name),
        }
    }

    /// Whether every requester may have this name.
    fn matches(&self, name: &str) -> bool {
        match self {
            NamePattern::Template(_) => false,
            NamePattern::Anything => true,
            NamePattern::Exactly(wanted) => name == wanted,
            NamePattern::Domain(wanted) => name.eq_ignore_ascii_case(wanted),
            NamePattern::Below(domain) => name.split_once('.').is_some_and(|(label, rest)| {
                rest.eq_ignore_ascii_case(domain) && (label == "*" || is_label(label))
            }),
            NamePattern::MailboxOf(wanted) => name.rsplit_once('@').is_some_and(|(mailbox, domain)| {
                domain.eq_ignore_ascii_case(wanted) && is_printable(mailbox) && !mailbox.contains('@')
            }),
            NamePattern::Mailbox(wanted, at) => name
                .rsplit_once('@')
                .is_some_and(|(mailbox, domain)| mailbox == wanted && domain.eq_ignore_ascii_case(at)),
            NamePattern::Beginning(beginning) => {
                name.strip_prefix(beginning.as_str()).is_some_and(is_safe_subpath)
            }
        }
    }
}

impl PatternKind {
    /// Parses a pattern without placeholders; the error is a message that begins with the pattern.
    fn parse(self, text: &str) -> Result<NamePattern, String> {
        match self {
            _ if text == "*" => Ok(NamePattern::Anything),
            PatternKind::DnsName => parse_dns_name(text),
            PatternKind::CommonName if text.starts_with("*.") => parse_dns_name(text),
            PatternKind::CommonName if text.contains('*') => Err(format!(
                "{text:?} is not a pattern for common names; use \"*\", \"*.domain\" or an exact name"
            )),
            PatternKind::Word if text.contains('*') => {
                Err(format!("{text:?} is not a pattern; use \"*\" or an exact value"))
            }
            PatternKind::CommonName | PatternKind::Word => Ok(NamePattern::Exactly(text.to_owned())),
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
        return Err(format!(
            "{text:?} is not a pattern for DNS names; use \"*\", \"*.domain\" or a DNS name"
        ));
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
        _ => Err(format!(
            "{text:?} is not a pattern for e-mail addresses; use \"*\", \"*@domain\" or an address"
        )),
    }
}

fn parse_uri(text: &str) -> Result<NamePattern, String> {
    let (rest, any) = text.strip_suffix('*').map_or((text, false), |rest| (rest, true));
    let scheme = rest.split_once(':').filter(|(scheme, _)| is_scheme(scheme));
    let Some((_, after)) = scheme.filter(|_| is_printable(rest) && !rest.contains('*')) else {
        return Err(format!(
            "{text:?} is not a pattern for URIs; use \"*\", a URI, or a URI prefix followed by \"*\""
        ));
    };
    // Text after an incomplete host could turn it into another host.
    let host_ends = after
        .strip_prefix("//")
        .is_none_or(|after| after.split_once('/').is_some_and(|(host, _)| !host.is_empty()));
    match any {
        true if host_ends && rest.ends_with(['/', ':']) => Ok(NamePattern::Beginning(rest.to_owned())),
        true => Err(format!(
            "{text:?} has \"*\" in an unsafe position; put it after a \"/\" behind the host, or after a \":\""
        )),
        false => Ok(NamePattern::Exactly(text.to_owned())),
    }
}

/// Underscores are accepted, because some services have them in their host names.
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
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

/// Whether every reader of a URI agrees that this is below the prefix. Readers differ in what they decode, and how often:
/// so escapes of a dot, a slash or a percent sign are rejected, and so are empty segments and backslashes, which some
/// readers treat as slashes.
fn is_safe_subpath(rest: &str) -> bool {
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    is_printable(rest)
        && !rest.contains('\\')
        && has_plain_escapes(rest)
        && rest.split(['/', '?', '#']).all(|step| step != "." && step != "..")
        && path.split('/').all(|step| !step.is_empty())
}

/// Whether each `%` begins an escape of a character without a meaning in paths.
fn has_plain_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|after| {
        let digits = after.get(..2).filter(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        byte.is_some_and(|byte| !matches!(byte, b'.' | b'/' | b'%' | b'\\') && byte >= b' ')
    })
}

/// A block of IP addresses with the same prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressBlock {
    first: IpAddr,
    bits: u32,
}

impl AddressBlock {
    /// Parses an address, or a block of them such as `10.0.0.0/8`.
    pub fn parse(field: &ConfigField<'_>) -> ConfigResult<AddressBlock> {
        let text = field.text()?;
        let (address, bits) = match text.split_once('/') {
            None => (text, None),
            Some((address, bits)) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                (address, Some(bits.parse::<u32>().unwrap_or(u32::MAX)))
            }
            Some(_) => (text, None),
        };
        let first = address.parse::<IpAddr>().ok();
        let block = first.map(|first| AddressBlock { first, bits: bits.unwrap_or(to_bits(first).1) });
        match block {
            Some(block) if block.first != block.first.to_canonical() => {
                Err(field.invalid("is an IPv4 address in IPv6 notation; write it as IPv4"))
            }
            Some(block) if block.bits > to_bits(block.first).1 => {
                Err(field.invalid("has a prefix that is longer than its address"))
            }
            Some(block) if block.host_bits(block.first).is_some_and(|bits| bits != 0) => {
                Err(field.invalid("has address bits behind its prefix; set them to 0"))
            }
            Some(block) => Ok(block),
            None => Err(field.invalid("is not an address; write 10.0.0.1, or 10.0.0.0/8 for a block")),
        }
    }

    /// Whether an address has the prefix.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let ((wanted, width), (found, other)) = (to_bits(self.first), to_bits(address));
        let beyond = width.saturating_sub(self.bits);
        width == other && wanted.checked_shr(beyond) == found.checked_shr(beyond)
    }

    /// Returns the bits of an address behind the prefix; `None` if the prefix is the whole address.
    fn host_bits(&self, address: IpAddr) -> Option<u128> {
        let (number, width) = to_bits(address);
        number.checked_shl(128_u32.saturating_sub(width).saturating_add(self.bits))
    }
}

/// Converts an address to a number and its width in bits.
fn to_bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (address.to_bits().into(), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

#[cfg(test)]
mod tests;
