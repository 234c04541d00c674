//! Checks whether issued certificates can be verified with the published anchors.

use std::collections::BTreeMap;

use time::OffsetDateTime;
use windlass_api::timestamp;
use windlass_pki::{ForeignCertificate, leads_to_anchor, parse_certificate_blocks};

use super::{CheckInputs, SignerFinding};
use crate::commands::signer::certificate_requests::SignerRequest;
use crate::commands::signer::local_signers::LocalSigner;
use crate::commands::signer::server::{ListOutcome, ServerSnapshot};
use crate::commands::signer::signer_ca::SignerCa;

/// Maximum number of nodes named in a finding.
const NAMED: usize = 5;

/// Reports certificates without a published anchor, and CAs whose anchors are not delivered yet.
pub fn findings(facts: &CheckInputs, seen: &ServerSnapshot, now: OffsetDateTime) -> Vec<SignerFinding> {
    // Without permission to list bundles, the published anchors are unknown.
    if seen.bundle_access != ListOutcome::Complete {
        return Vec::new();
    }
    let held = facts.known.iter().filter_map(|known| check_delivery_hold(known, seen, now));
    held.chain(check_unpublished_anchors(facts, seen, now)).collect()
}

fn check_delivery_hold(
    known: &LocalSigner,
    seen: &ServerSnapshot,
    now: OffsetDateTime,
) -> Option<SignerFinding> {
    let (Some(wanted), SignerCa::Files(files)) = (&known.bundle, &known.ca) else { return None };
    let bundle = seen.bundles.iter().find(|bundle| bundle.name == *wanted)?;
    let anchor = windlass_pki::fingerprint(&files.anchor);
    let anchor: String = anchor.iter().map(|byte| format!("{byte:02x}")).collect();
    let until = bundle.records.get(&anchor)?.hold_until.filter(|until| *until > now)?;
    let nodes = match bundle.lacking.as_slice() {
        [] => "no reporting node lacks it".to_owned(),
        lacking => {
            let named = lacking.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            let more = if lacking.len() > NAMED { ", …" } else { "" };
            format!("nodes without it: {} ({named}{more})", lacking.len())
        }
    };
    let (file, until) = (files.certificate.display(), timestamp::format(until));
    let message = format!(
        "the CA of {file} does not sign yet; waiting for delivery of its trust anchor until {until}; {nodes}"
    );
    Some(SignerFinding::error(known.name(), message))
}

/// Reports valid certificates, by signer, that chain to none of its published anchors. Signers that
/// publish nothing are skipped: they distribute trust in other ways.
fn check_unpublished_anchors(
    facts: &CheckInputs,
    seen: &ServerSnapshot,
    now: OffsetDateTime,
) -> Vec<SignerFinding> {
    let mut anchors: BTreeMap<&str, Vec<ForeignCertificate>> = BTreeMap::new();
    for bundle in &seen.bundles {
        let read = bundle.anchors.iter().filter_map(|der| ForeignCertificate::from_der(der).ok());
        anchors.entry(&bundle.signer).or_default().extend(read);
    }
    let mut lost: BTreeMap<&str, Vec<(&SignerRequest, OffsetDateTime)>> = BTreeMap::new();
    for asked in &seen.requests {
        let Some(anchors) = anchors.get(asked.signer.as_str()).filter(|all| !all.is_empty()) else {
            continue;
        };
        let chain = asked.chain.as_ref().map(|text| parse_certificate_blocks(text.as_bytes()));
        let Some(Ok(mut chain)) = chain else { continue };
        let Some(until) = chain.first().map(ForeignCertificate::not_after) else { continue };
        chain.extend(intermediates(facts, &asked.signer));
        if until > now && !leads_to_anchor(&chain, anchors) {
            lost.entry(&asked.signer).or_default().push((asked, until));
        }
    }
    lost.into_iter().filter_map(|(signer, lost)| lost_anchor_finding(signer, &lost)).collect()
}

/// Returns the intermediates of a signer, if its files are here; the signer may omit them from
/// issued chains.
fn intermediates(facts: &CheckInputs, signer: &str) -> Vec<ForeignCertificate> {
    let known = facts.known.iter().find(|known| known.name() == signer);
    let Some(SignerCa::Files(files)) = known.map(|known| &known.ca) else { return Vec::new() };
    files.chain.iter().filter_map(|der| ForeignCertificate::from_der(der).ok()).collect()
}

fn lost_anchor_finding(signer: &str, lost: &[(&SignerRequest, OffsetDateTime)]) -> Option<SignerFinding> {
    let (last, until) = lost.iter().max_by_key(|(asked, until)| (*until, &asked.name))?;
    let (count, name, until) = (lost.len(), &last.name, timestamp::format(*until));
    let message = format!(
        "certificates issued under a CA whose trust anchor is not published: {count}, the last one ({name}) expires at {until}; renew them, or publish the anchor again"
    );
    Some(SignerFinding::error(signer, message))
}
