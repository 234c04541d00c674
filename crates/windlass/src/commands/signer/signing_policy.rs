//! Description of a signer: the six properties that Kubernetes requires signers to document, and
//! its approver. Structured, so that text and JSON agree.

use serde::Serialize;

/// Origin of the definition of a signer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SignerKind {
    /// One of the signers that Kubernetes defines.
    BuiltIn,
    /// Defined in `signers.yaml` or by a Signer object.
    Custom,
    /// Named in requests on the server, but defined neither here nor by a Signer object.
    Unknown,
}

impl SignerKind {
    /// Name as printed and as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::Custom => "custom",
            Self::Unknown => "unknown",
        }
    }
}

/// Description of a signer, with the fields that Kubernetes requires signers to document.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerDescription {
    pub name: String,
    pub kind: SignerKind,
    /// How relying parties get the trust anchors.
    pub trust_distribution: Vec<String>,
    /// Policy for CertificateSigningRequests; `None` if it signs none.
    pub requests: Option<SigningPolicy>,
    /// Policy for PodCertificateRequests; `None` if it signs none.
    pub pod_requests: Option<SigningPolicy>,
    /// Whether issued certificates may be CAs.
    #[serde(rename = "caBit")]
    pub ca_bit: &'static str,
}

/// What a signer accepts in requests of one API, in readable phrases.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SigningPolicy {
    pub permitted_subjects: Vec<String>,
    pub permitted_extensions: Vec<String>,
    pub permitted_usages: Vec<String>,
    pub lifetime: Vec<String>,
    pub keys: Vec<String>,
    pub approval: Vec<String>,
}

/// Text for signers that never issue CA certificates.
pub const NO_CA: &str = "never: basic constraints are critical with CA:FALSE";
/// Counterpart of [`NO_CA`] for a signer that signs nothing.
pub const NOTHING_SIGNED: &str = "not applicable: signs nothing";

/// Keys that the built-in signers accept.
pub const ANY_KEY: &str = "RSA of 1024 to 8192 bits, ECDSA on P-256, P-384 and P-521, Ed25519";
/// Keys that custom signers accept by default.
pub const STRONG_KEY: &str = "RSA of 2048 to 8192 bits, ECDSA on P-256, P-384 and P-521, Ed25519";

impl SignerDescription {
    /// Summarizes what the signer signs in a few words.
    pub fn summary(&self) -> String {
        let requests = self.requests.as_ref().map(|terms| {
            let (subjects, usages) = (terms.permitted_subjects.join(", "), terms.usages());
            format!("subjects: {subjects}; usages: {usages}")
        });
        let pods = self.pod_requests.as_ref().map(|terms| {
            let names = terms.permitted_extensions.first().map_or("", String::as_str);
            format!("for pods: {names}; usages: {}", terms.usages())
        });
        let parts = requests.into_iter().chain(pods).collect::<Vec<_>>();
        if parts.is_empty() { "signs nothing".into() } else { parts.join(" | ") }
    }
}

impl SigningPolicy {
    fn usages(&self) -> &str {
        self.permitted_usages.first().map_or("", String::as_str)
    }
}

/// Formats the description for people, one labelled field per line.
pub fn text(document: &SignerDescription) -> String {
    let mut text = String::new();
    field(&mut text, "", "Signer", std::slice::from_ref(&document.name));
    field(&mut text, "", "Kind", &[document.kind.name().to_owned()]);
    field(&mut text, "", "Trust distribution", &document.trust_distribution);
    for (heading, terms) in [
        ("CertificateSigningRequests", &document.requests),
        ("PodCertificateRequests", &document.pod_requests),
    ] {
        match terms {
            None => field(&mut text, "", heading, &["not signed".to_owned()]),
            Some(terms) => {
                text.push_str(&format!("{heading}:\n"));
                for (label, lines) in [
                    ("Permitted subjects", &terms.permitted_subjects),
                    ("Permitted extensions", &terms.permitted_extensions),
                    ("Permitted usages", &terms.permitted_usages),
                    ("Lifetime", &terms.lifetime),
                    ("Keys", &terms.keys),
                    ("Approval", &terms.approval),
                ] {
                    field(&mut text, "  ", label, lines);
                }
            }
        }
    }
    field(&mut text, "", "CA bit", &[document.ca_bit.to_owned()]);
    text
}

/// Appends a label, followed by its lines with a common indent.
pub fn field(text: &mut String, indent: &str, label: &str, lines: &[String]) {
    const WIDTH: usize = 30;
    let mut label = format!("{indent}{label}:");
    for line in lines {
        let line = crate::commands::print::plain(line);
        text.push_str(&format!("{label:<WIDTH$}{line}\n"));
        label.clear();
    }
}
