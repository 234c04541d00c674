//! Signers, one a line.

use std::collections::BTreeMap;

use serde::Serialize;
use time::OffsetDateTime;
use windlass_api::age::human_duration;

use super::asked::{Tally, tallies};
use super::authority::{Ca, Facts};
use super::known::Known;
use super::server::{Bundle, Seen};
use super::terms::Kind;
use crate::cli::Format;
use crate::commands::print::{plain, table, word, words};

/// A signer and all there is to say in a line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub name: String,
    pub kind: Kind,
    pub ca: CaCell,
    /// What was asked of it; none if nobody could be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Tally>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_requests: Option<Tally>,
    pub bundles: Vec<String>,
    pub policy: String,
}

/// What is known of a CA, for a line.
#[derive(Debug, Serialize)]
#[serde(tag = "from", rename_all = "camelCase")]
pub enum CaCell {
    /// Nothing.
    Unknown,
    /// It is made when the signer starts.
    ToBeMade { directory: String },
    /// It cannot be used.
    Unusable { why: String },
    /// From its files.
    File { file: String, certificate: Facts },
    /// From what the server has for it.
    Bundles { certificates: Vec<Facts> },
}

/// All signers: those that are known, and those that only the server has heard of.
pub fn rows(known: &[Known], seen: Option<&Seen>) -> Vec<Row> {
    let (asked, bundles) =
        seen.map_or_else(Default::default, |seen| (seen.asked.as_slice(), seen.bundles.as_slice()));
    let mut counts: BTreeMap<&str, (Tally, Tally)> = tallies(asked);
    for bundle in bundles {
        counts.entry(&bundle.signer).or_default();
    }
    let mut rows = Vec::new();
    for each in known {
        let published = of(bundles, each.name());
        let (requests, pods) = counts.remove(each.name()).unwrap_or_default();
        rows.push(Row {
            name: each.name().to_owned(),
            kind: each.kind(),
            ca: cell(&each.ca, &published),
            requests: seen.map(|_| requests),
            pod_requests: seen.map(|_| pods),
            bundles: names(&published),
            policy: each.document.brief(),
        });
    }
    for (name, (requests, pods)) in counts {
        let published = of(bundles, name);
        rows.push(Row {
            name: name.to_owned(),
            kind: Kind::Unknown,
            ca: cell(&Ca::Elsewhere, &published),
            requests: Some(requests),
            pod_requests: Some(pods),
            bundles: names(&published),
            policy: "unknown here".into(),
        });
    }
    rows
}

fn of<'a>(bundles: &'a [Bundle], signer: &str) -> Vec<&'a Bundle> {
    bundles.iter().filter(|bundle| bundle.signer == signer).collect()
}

fn names(bundles: &[&Bundle]) -> Vec<String> {
    bundles.iter().map(|bundle| bundle.name.clone()).collect()
}

fn cell(ca: &Ca, published: &[&Bundle]) -> CaCell {
    match ca {
        Ca::ToBeMade(directory) => CaCell::ToBeMade { directory: directory.display().to_string() },
        Ca::Unusable(why) => CaCell::Unusable { why: why.clone() },
        Ca::Files(files) => CaCell::File {
            file: files.certificate.display().to_string(),
            certificate: files.facts.clone(),
        },
        Ca::Elsewhere => {
            let certificates = published.iter().flat_map(|bundle| bundle.facts.clone());
            match certificates.collect::<Vec<_>>() {
                certificates if certificates.is_empty() => CaCell::Unknown,
                certificates => CaCell::Bundles { certificates },
            }
        }
    }
}

impl CaCell {
    fn certificates(&self) -> &[Facts] {
        match self {
            Self::Unknown | Self::ToBeMade { .. } | Self::Unusable { .. } => &[],
            Self::File { certificate, .. } => std::slice::from_ref(certificate),
            Self::Bundles { certificates } => certificates,
        }
    }

    /// When it ends; of several, the first that does.
    fn expiry(&self, now: OffsetDateTime) -> String {
        match self {
            Self::Unknown => "<unknown>".into(),
            Self::ToBeMade { .. } => "<to be made>".into(),
            Self::Unusable { .. } => "<unusable>".into(),
            Self::File { .. } | Self::Bundles { .. } => {
                let ends = self.certificates().iter().map(|facts| facts.not_after).min();
                let left = ends.map_or(0, |ends| (ends - now).whole_seconds());
                if left < 0 { "expired".into() } else { human_duration(left) }
            }
        }
    }

    fn each(&self, what: impl Fn(&Facts) -> String) -> String {
        match self.certificates() {
            [] => "<unknown>".into(),
            all => all.iter().map(what).collect::<Vec<_>>().join(","),
        }
    }
}

/// The rows as text.
pub fn text(rows: &[Row], format: Option<Format>, now: OffsetDateTime) -> String {
    if format == Some(Format::Name) {
        return rows.iter().map(|row| word(&row.name) + "\n").collect();
    }
    let wide = format == Some(Format::Wide);
    let mut head =
        vec!["NAME", "KIND", "CA-EXPIRES", "TO-APPROVE", "TO-SIGN", "REFUSED", "ISSUED", "BUNDLES"];
    if wide {
        head.extend(["CA-KEY", "CA-SERIAL", "CA-SHA256", "POLICY"]);
    }
    let mut lines = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    lines.extend(rows.iter().map(|row| line(row, wide, now)));
    table(&lines)
}

fn line(row: &Row, wide: bool, now: OffsetDateTime) -> Vec<String> {
    let mut line = vec![word(&row.name), row.kind.name().to_owned(), row.ca.expiry(now)];
    line.extend(match (&row.requests, &row.pod_requests) {
        (Some(requests), Some(pods)) => {
            let all = requests.with(pods);
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
        _ => ["-"; 4].map(str::to_owned),
    });
    let none = row.bundles.is_empty();
    line.push(if none { "<none>".into() } else { words(&row.bundles) });
    if wide {
        line.push(row.ca.each(|facts| facts.key.clone()));
        line.push(row.ca.each(|facts| facts.serial.clone()));
        line.push(row.ca.each(|facts| {
            // Enough to tell two apart; all of it is in the documents.
            let all = facts.fingerprint.as_deref().unwrap_or("<unknown>");
            all.get(..16).unwrap_or(all).to_owned()
        }));
        line.push(plain(&row.policy));
    }
    line
}

#[cfg(test)]
mod tests;
