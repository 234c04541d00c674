//! List of signers, one per line.

use std::collections::BTreeMap;

use serde::Serialize;
use time::OffsetDateTime;
use windlass_api::age::human_duration;

use super::certificate_requests::{RequestCounts, tallies};
use super::local_signers::LocalSigner;
use super::server::{ListOutcome, ServerSnapshot, SignerBundle};
use super::signer_ca::{CaCertificateInfo, SignerCa};
use super::signing_policy::SignerKind;
use crate::cli::OutputFormat;
use crate::commands::print::{plain, table, word, words};

/// A signer with the columns of its line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerRow {
    pub name: String,
    pub kind: SignerKind,
    pub ca: CaCell,
    /// Counts of its CertificateSigningRequests; `None` if they could not be listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_requests: Option<RequestCounts>,
    /// Whether counts are shown: false without a server or permission to list.
    #[serde(skip)]
    pub counted: bool,
    /// Names of its trust bundles; `None` if they could not be listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundles: Option<Vec<String>>,
    pub policy: String,
}

/// CA of a signer, as listed.
#[derive(Debug, Serialize)]
#[serde(tag = "from", rename_all = "camelCase")]
pub enum CaCell {
    /// Neither files nor published bundles show the CA.
    Unknown,
    /// Windlass creates the CA when the signer starts.
    ToBeMade { directory: String },
    /// The CA files exist but were rejected.
    Unusable { why: String },
    /// Read from the CA's certificate file.
    File { file: String, certificate: CaCertificateInfo },
    /// Taken from the trust bundles on the server.
    Bundles { certificates: Vec<CaCertificateInfo> },
}

/// Lists all signers: the local ones, and those that occur only on the server.
pub fn rows(known: &[LocalSigner], seen: Option<&ServerSnapshot>) -> Vec<SignerRow> {
    let nothing = ServerSnapshot::default();
    let sights = seen.unwrap_or(&nothing);
    let mut counts: BTreeMap<&str, (RequestCounts, RequestCounts)> = tallies(&sights.requests);
    for bundle in &sights.bundles {
        counts.entry(&bundle.signer).or_default();
    }
    let clear = |sight: &ListOutcome| seen.is_some() && *sight == ListOutcome::Complete;
    let refused = |sight: &ListOutcome| matches!(sight, ListOutcome::Forbidden(_));
    let counted = seen.is_some() && !refused(&sights.csr_access) && !refused(&sights.pod_request_access);
    let row = |name: &str, kind, ca: &SignerCa, (requests, pods): (RequestCounts, RequestCounts), policy| {
        let published = bundles_for_signer(&sights.bundles, name);
        SignerRow {
            name: name.to_owned(),
            kind,
            ca: cell(ca, &published),
            requests: clear(&sights.csr_access).then_some(requests),
            pod_requests: clear(&sights.pod_request_access).then_some(pods),
            counted,
            bundles: clear(&sights.bundle_access).then(|| names(&published)),
            policy,
        }
    };
    let mut rows = Vec::new();
    for each in known {
        let counts = counts.remove(each.name()).unwrap_or_default();
        rows.push(row(each.name(), each.kind(), &each.ca, counts, each.document.summary()));
    }
    for (name, counts) in counts {
        rows.push(row(name, SignerKind::Unknown, &SignerCa::Elsewhere, counts, "unknown".into()));
    }
    rows
}

fn bundles_for_signer<'a>(bundles: &'a [SignerBundle], signer: &str) -> Vec<&'a SignerBundle> {
    bundles.iter().filter(|bundle| bundle.signer == signer).collect()
}

fn names(bundles: &[&SignerBundle]) -> Vec<String> {
    bundles.iter().map(|bundle| bundle.name.clone()).collect()
}

fn cell(ca: &SignerCa, published: &[&SignerBundle]) -> CaCell {
    match ca {
        SignerCa::ToBeMade(directory) => CaCell::ToBeMade { directory: directory.display().to_string() },
        SignerCa::Unusable(why) => CaCell::Unusable { why: why.clone() },
        SignerCa::Files(files) => {
            CaCell::File { file: files.certificate.display().to_string(), certificate: files.facts.clone() }
        }
        SignerCa::Elsewhere => {
            let certificates = published.iter().flat_map(|bundle| bundle.facts.clone());
            match certificates.collect::<Vec<_>>() {
                certificates if certificates.is_empty() => CaCell::Unknown,
                certificates => CaCell::Bundles { certificates },
            }
        }
    }
}

impl CaCell {
    fn certificates(&self) -> &[CaCertificateInfo] {
        match self {
            Self::Unknown | Self::ToBeMade { .. } | Self::Unusable { .. } => &[],
            Self::File { certificate, .. } => std::slice::from_ref(certificate),
            Self::Bundles { certificates } => certificates,
        }
    }

    /// Formats the expiry; of several certificates, the earliest.
    fn expiry(&self, now: OffsetDateTime) -> String {
        match self {
            Self::Unknown => "<unknown>".into(),
            Self::ToBeMade { .. } => "<to be created>".into(),
            Self::Unusable { .. } => "<unusable>".into(),
            Self::File { .. } | Self::Bundles { .. } => {
                let ends = self.certificates().iter().map(|facts| facts.not_after).min();
                let left = ends.map_or(0, |ends| (ends - now).whole_seconds());
                if left < 0 { "expired".into() } else { human_duration(left) }
            }
        }
    }

    fn join_certificates(&self, what: impl Fn(&CaCertificateInfo) -> String) -> String {
        match self.certificates() {
            [] => "<unknown>".into(),
            all => all.iter().map(what).collect::<Vec<_>>().join(","),
        }
    }
}

/// Formats the rows as a table, or as names only.
pub fn text(rows: &[SignerRow], format: Option<OutputFormat>, now: OffsetDateTime) -> String {
    if format == Some(OutputFormat::Name) {
        return rows.iter().map(|row| word(&row.name) + "\n").collect();
    }
    let wide = format == Some(OutputFormat::Wide);
    let mut head =
        vec!["NAME", "KIND", "CA-EXPIRES", "TO-APPROVE", "TO-SIGN", "REFUSED", "ISSUED", "BUNDLES"];
    if wide {
        head.extend(["CA-KEY", "CA-SERIAL", "CA-SHA256", "POLICY"]);
    }
    let mut lines = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    lines.extend(rows.iter().map(|row| line(row, wide, now)));
    table(&lines)
}

fn line(row: &SignerRow, wide: bool, now: OffsetDateTime) -> Vec<String> {
    let mut line = vec![word(&row.name), row.kind.name().to_owned(), row.ca.expiry(now)];
    line.extend(if row.counted { counts(row, now) } else { ["-"; 4].map(str::to_owned) });
    line.push(match row.bundles.as_deref() {
        None => "-".into(),
        Some([]) => "<none>".into(),
        Some(names) => words(names),
    });
    if wide {
        line.push(row.ca.join_certificates(|facts| facts.key.clone()));
        line.push(row.ca.join_certificates(|facts| facts.serial.clone()));
        line.push(row.ca.join_certificates(|facts| {
            // Enough digits to distinguish two CAs; the structured output has all.
            let all = facts.fingerprint.as_deref().unwrap_or("<unknown>");
            all.get(..16).unwrap_or(all).to_owned()
        }));
        line.push(plain(&row.policy));
    }
    line
}

/// Formats the counts of both kinds; a kind that the server does not serve counts as none.
fn counts(row: &SignerRow, now: OffsetDateTime) -> [String; 4] {
    let both = [&row.requests, &row.pod_requests].into_iter().flatten();
    let all = both.fold(RequestCounts::default(), |all, each| all.merge(each));
    let waits = all.oldest_awaiting_signature.map(|since| {
        let age = human_duration((now - since).whole_seconds());
        format!("{} ({age})", all.awaiting_signature)
    });
    [
        all.awaiting_approval.to_string(),
        waits.unwrap_or_else(|| all.awaiting_signature.to_string()),
        (all.denied + all.failed).to_string(),
        all.issued.to_string(),
    ]
}

#[cfg(test)]
mod tests;
