//! Whether what signers issue can be verified with what they publish.

use std::collections::BTreeMap;

use time::OffsetDateTime;
use windlass_api::timestamp;
use windlass_pki::{ForeignCertificate, leads_to_anchor, parse_certificate_blocks};

use super::{Facts, Finding};
use crate::commands::signer::asked::Asked;
use crate::commands::signer::authority::Ca;
use crate::commands::signer::known::Known;
use crate::commands::signer::server::{Seen, Sight};

/// Nodes that are named.
const NAMED: usize = 5;

/// Certificates without a published anchor, and CAs that wait for theirs to arrive.
pub fn findings(facts: &Facts, seen: &Seen, now: OffsetDateTime) -> Vec<Finding> {
    // Who may not see bundles does not know what is published.
    if seen.of_bundles != Sight::Clear {
        return Vec::new();
    }
    let held = facts.known.iter().filter_map(|known| held(known, seen, now));
    held.chain(unanchored(facts, seen, now)).collect()
}

fn held(known: &Known, seen: &Seen, now: OffsetDateTime) -> Option<Finding> {
    let (Some(wanted), Ca::Files(files)) = (&known.bundle, &known.ca) else { return None };
    let bundle = seen.bundles.iter().find(|bundle| bundle.name == *wanted)?;
    let anchor = windlass_pki::fingerprint(&files.anchor);
    let anchor: String = anchor.iter().map(|byte| format!("{byte:02x}")).collect();
    let until = bundle.records.get(&anchor)?.hold_until.filter(|until| *until > now)?;
    let nodes = match bundle.lacking.as_slice() {
        [] => "no node is known to lack it".to_owned(),
        lacking => {
            let named = lacking.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            let more = if lacking.len() > NAMED { ", …" } else { "" };
            format!("nodes without it: {} ({named}{more})", lacking.len())
        }
    };
    let (file, until) = (files.certificate.display(), timestamp::format(until));
    let message = format!(
        "the CA of {file} does not sign yet: it waits until nodes have its trust anchor, at the latest until {until}; {nodes}"
    );
    Some(Finding::error(known.name(), message))
}

/// By signer: certificates that are valid and lead to none of its published anchors. A signer that
/// publishes nothing is trusted in other ways.
fn unanchored(facts: &Facts, seen: &Seen, now: OffsetDateTime) -> Vec<Finding> {
    let mut anchors: BTreeMap<&str, Vec<ForeignCertificate>> = BTreeMap::new();
    for bundle in &seen.bundles {
        let read = bundle.anchors.iter().filter_map(|der| ForeignCertificate::from_der(der).ok());
        anchors.entry(&bundle.signer).or_default().extend(read);
    }
    let mut lost: BTreeMap<&str, Vec<(&Asked, OffsetDateTime)>> = BTreeMap::new();
    for asked in &seen.asked {
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
    lost.into_iter().filter_map(|(signer, lost)| told(signer, &lost)).collect()
}

/// What a signer need not send along, if its files are here.
fn intermediates(facts: &Facts, signer: &str) -> Vec<ForeignCertificate> {
    let known = facts.known.iter().find(|known| known.name() == signer);
    let Some(Ca::Files(files)) = known.map(|known| &known.ca) else { return Vec::new() };
    files.chain.iter().filter_map(|der| ForeignCertificate::from_der(der).ok()).collect()
}

fn told(signer: &str, lost: &[(&Asked, OffsetDateTime)]) -> Option<Finding> {
    let (last, until) = lost.iter().max_by_key(|(asked, until)| (*until, &asked.name))?;
    let (count, name, until) = (lost.len(), &last.name, timestamp::format(*until));
    let message = format!(
        "certificates issued under a CA whose trust anchor is not published: {count}, the last to expire is of {name}, at {until}; renew them, or publish the anchor again"
    );
    Some(Finding::error(signer, message))
}
