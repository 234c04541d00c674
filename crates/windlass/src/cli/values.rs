//! Parsers of flag values.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use windlass_api::duration::DurationError;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;
use windlass_api::signer_name::SignerName;
use windlass_pki::{CertificateUsages, KeyType};

/// Parses one of the key types that are generated.
pub fn key_type() -> impl TypedValueParser<Value = KeyType> {
    let names = KeyType::GENERATED.iter().map(|each| each.flag_name());
    PossibleValuesParser::new(names)
        .try_map(|name| KeyType::from_flag_name(&name).ok_or_else(|| format!("unknown key type {name:?}")))
}

/// A feature and whether it is on, from `Name=true`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureGate {
    /// The feature's name, as Kubernetes calls it.
    pub name: String,
    /// `true` for the values that Go's `strconv.ParseBool` reads as true.
    pub enabled: bool,
}

impl FromStr for FeatureGate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').ok_or("must be NAME=true or NAME=false")?;
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err("a feature name consists of letters and digits");
        }
        let enabled = match value {
            "true" | "True" | "TRUE" | "t" | "T" | "1" => true,
            "false" | "False" | "FALSE" | "f" | "F" | "0" => false,
            _ => return Err("must be NAME=true or NAME=false"),
        };
        Ok(Self { name: name.to_owned(), enabled })
    }
}

/// Reads a duration as Go writes it, without fractions: `90s`, `1m30s`, `500ms`, and a plain `0`.
pub fn duration(text: &str) -> Result<Duration, DurationError> {
    if text.contains('.') {
        return Err(DurationError::Format);
    }
    windlass_api::duration::parse(text)
}

/// Reads the name of an object, which is a DNS subdomain.
pub fn object_name(text: &str) -> Result<String, &'static str> {
    node_name(text)
}

/// Reads an address that only this machine reaches.
pub fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address = listen_address(text)?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("must be a loopback address, for example 127.0.0.1".into())
    }
}

/// Reads an address to listen on, or resolves a host name. Of several addresses the lowest is taken, IPv4 before
/// IPv6: the order in which resolvers answer may change from one start to the next.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    const FORM: &str = "must be ADDRESS:PORT or NAME:PORT";
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').ok_or(FORM)?;
    let port: u16 = port.parse().map_err(|_| FORM)?;
    if !crate::datadir::is_host_name(&host.to_ascii_lowercase()) {
        return Err(FORM.into());
    }
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|error| format!("cannot resolve {host}: {error}"))?;
    let lowest = found.min_by_key(|address| (address.is_ipv6(), address.ip()));
    lowest.ok_or_else(|| format!("{host} has no address"))
}

/// Reads the name of a request for a certificate.
pub fn csr_name(text: &str) -> Result<String, String> {
    let kinds = ["certificatesigningrequest", "certificatesigningrequests", "csr"];
    reference(text, &kinds, "certificates.k8s.io")
}

/// Reads the name of a Bundle.
pub fn bundle_name(text: &str) -> Result<String, String> {
    reference(text, &["bundle", "bundles"], "trust.cert-manager.io")
}

/// Reads the name of a ClusterTrustBundle.
pub fn trust_bundle_name(text: &str) -> Result<String, String> {
    reference(text, &["clustertrustbundle", "clustertrustbundles"], "certificates.k8s.io")
}

/// Reads `NAME`, or `KIND/NAME` and `KIND.GROUP/NAME` as `-o name` and kubectl print them.
pub fn reference(text: &str, kinds: &[&str], group: &str) -> Result<String, String> {
    let Some((resource, name)) = text.split_once('/') else {
        return Ok(text.to_owned());
    };
    let resource = resource.to_lowercase();
    let (kind, rest) = resource.split_once('.').unwrap_or((&resource, group));
    // kubectl also takes KIND.VERSION.GROUP.
    let in_group = rest == group || rest.split_once('.').is_some_and(|(_, rest)| rest == group);
    if kinds.contains(&kind) && in_group && !name.is_empty() && !name.contains('/') {
        Ok(name.to_owned())
    } else {
        let kind = kinds.first().copied().unwrap_or_default();
        Err(format!("must be NAME or {kind}/NAME"))
    }
}

/// Reads the name of a node, which is a DNS subdomain as every object's of its kind.
pub fn node_name(text: &str) -> Result<String, &'static str> {
    if names::dns1123_subdomain(text).is_empty() {
        Ok(text.to_owned())
    } else {
        Err("must be a DNS name: lower-case letters, digits, '-' and '.'")
    }
}

/// Time at which a credential expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiryTime {
    /// Relative to the time at which the command runs.
    After(Duration),
    /// An absolute time; a date means midnight UTC.
    At(OffsetDateTime),
}

impl ExpiryTime {
    /// The moment that it means.
    pub fn from(self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        match self {
            ExpiryTime::After(lasts) => now.checked_add(lasts.try_into().ok()?),
            ExpiryTime::At(time) => Some(time),
        }
    }
}

/// Reads `90d`, `1d12h`, `12h30m`, a date, or a time as in RFC 3339.
pub fn expiry(text: &str) -> Result<ExpiryTime, &'static str> {
    const WRONG: &str = "must be a duration such as 90d, 12h or 1d12h, or a date such as 2027-01-31";
    if text.contains('T') {
        let time = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| WRONG)?;
        return Ok(ExpiryTime::At(time));
    }
    if text.contains('-') {
        let format = time::macros::format_description!("[year]-[month]-[day]");
        let date = time::Date::parse(text, &format).map_err(|_| WRONG)?;
        return Ok(ExpiryTime::At(date.midnight().assume_utc()));
    }
    let (days, rest) = match text.split_once('d') {
        Some((days, rest)) => (days.parse::<u32>().map_err(|_| WRONG)?, rest),
        None => (0, text),
    };
    let rest = match rest {
        "" if days > 0 => Duration::ZERO,
        rest => duration(rest).map_err(|_| WRONG)?,
    };
    let lasts = Duration::from_secs(u64::from(days) * 24 * 60 * 60) + rest;
    if lasts.is_zero() { Err("must be greater than 0") } else { Ok(ExpiryTime::After(lasts)) }
}

/// Reads the name of a user or group, which a certificate must be able to hold.
pub fn user_name(text: &str) -> Result<String, &'static str> {
    if text.is_empty() || text.trim() != text {
        Err("must not be empty, start or end with a space")
    } else if text.chars().any(char::is_control) {
        Err("must not contain control characters")
    } else {
        Ok(text.to_owned())
    }
}

/// Admission plugins, named as in kube-apiserver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum AdmissionPlugin {
    /// Rejects new objects in namespaces that are missing or terminating. Cannot be disabled.
    NamespaceLifecycle,
    /// Restricts nodes to objects of their own and of their pods.
    NodeRestriction,
    /// Sets the service account of pods and mounts its token.
    ServiceAccount,
}

/// Reads the issuer of tokens: clients take it for a URL if it has a colon.
pub fn issuer(text: &str) -> Result<String, &'static str> {
    if text.is_empty() {
        Err("must not be empty")
    } else if text.contains(':') && text.parse::<http::Uri>().is_err() {
        Err("must be a URL, or a name without a colon")
    } else {
        Ok(text.to_owned())
    }
}

/// Reads the name of a signer.
pub fn signer_name(text: &str) -> Result<String, String> {
    let mut errors = FieldErrors::new();
    match SignerName::parse(&FieldPath::new("signer"), text, &mut errors) {
        Some(_) => Ok(text.to_owned()),
        None => Err("must have the form DOMAIN/NAME, for example example.com/web".into()),
    }
}

/// Reads a usage, by the name that requests have for it.
pub fn usage(text: &str) -> Result<String, String> {
    let name = text.trim();
    match CertificateUsages::from_names(&[name]) {
        Ok(_) => Ok(name.to_owned()),
        Err(_) => {
            Err("must be a key usage such as 'digital signature', 'server auth' or 'client auth'".into())
        }
    }
}

/// Reads a duration that may have days: `12h`, `7d`, `1d12h`.
pub fn period(text: &str) -> Result<Duration, &'static str> {
    match expiry(text) {
        Ok(ExpiryTime::After(lasts)) => Ok(lasts),
        Ok(ExpiryTime::At(_)) | Err(_) => Err("must be a duration such as 12h, 7d or 1d12h"),
    }
}

/// Reads how long a certificate is to last: `24h`, `90d`, `1d12h`. Kubernetes wants ten minutes at
/// least, and counts seconds in 31 bits.
pub fn lifetime(text: &str) -> Result<Duration, &'static str> {
    match expiry(text) {
        Ok(ExpiryTime::After(lasts)) if lasts < Duration::from_secs(600) => Err("must be at least 10m"),
        Ok(ExpiryTime::After(lasts)) if i32::try_from(lasts.as_secs()).is_ok() => Ok(lasts),
        Ok(ExpiryTime::After(_)) => Err("must be at most 24855d"),
        Ok(ExpiryTime::At(_)) | Err(_) => Err("must be a duration such as 24h, 90d or 1d12h"),
    }
}
