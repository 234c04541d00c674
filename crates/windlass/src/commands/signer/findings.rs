//! Findings about signers: a pure function of the collected inputs, so that table tests cover every
//! case. `trust` checks the published anchors.

mod trust;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use time::OffsetDateTime;
use windlass_api::age::human_duration;
use windlass_api::timestamp;

use super::certificate_requests::{RequestApi as Api, RequestState, SignerRequest};
use super::custom::duration;
use super::local_signers::LocalSigner;
use super::server::{ListOutcome, ServerSnapshot, SnapshotError};
use super::signer_ca::{CaFiles, SignerCa};
use super::signer_objects;
use crate::expiry::{CertificateLifetime, CertificateRole, ExpiryUrgency};

/// A CA that expires within this period is reported, regardless of its lifetime.
const SOON: time::Duration = time::Duration::days(30);
/// Signers respond at once, so a request that waits longer than this is stuck.
const TO_SIGN: time::Duration = time::Duration::minutes(1);
/// Approval is a manual step, so requests may wait an hour before a warning.
const TO_APPROVE: time::Duration = time::Duration::hours(1);

/// Everything `windlass signer check` has collected from files and the server.
pub struct CheckInputs {
    /// Why the signers file is invalid, if it is. Its signers are then missing among the known
    /// ones.
    pub bad_file: Option<String>,
    pub known: Vec<LocalSigner>,
    /// Certificates of the data directory that are not signing CAs.
    pub own: Vec<CertificateLifetime>,
    pub server: Result<ServerSnapshot, SnapshotError>,
}

/// A present or expected problem, or a note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SignerFinding {
    pub severity: FindingSeverity,
    /// The affected signer; `None` if the finding concerns none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
    pub message: String,
}

/// Severity of a finding; only errors make the command fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingSeverity {
    /// Something does not work now.
    Error,
    /// Something will fail later, or deviates from the expected state.
    Warning,
    /// Useful information without a problem.
    Note,
}

impl FindingSeverity {
    /// Lower-case name, as printed and as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

impl SignerFinding {
    fn new(severity: FindingSeverity, signer: Option<&str>, message: impl Into<String>) -> Self {
        Self { severity, signer: signer.map(str::to_owned), message: message.into() }
    }

    pub(super) fn error(signer: &str, message: impl Into<String>) -> Self {
        Self::new(FindingSeverity::Error, Some(signer), message)
    }

    pub(super) fn warning(signer: &str, message: impl Into<String>) -> Self {
        Self::new(FindingSeverity::Warning, Some(signer), message)
    }
}

/// Evaluates the inputs; errors come first.
pub fn findings(facts: &CheckInputs, now: OffsetDateTime) -> Vec<SignerFinding> {
    let mut found = Vec::new();
    found.extend(
        facts.bad_file.as_ref().map(|why| SignerFinding::new(FindingSeverity::Error, None, why.clone())),
    );
    for known in &facts.known {
        found.extend(check_ca(known, now));
        found.extend(check_wildcards(known));
    }
    for (urgency, text) in facts.own.iter().filter_map(|lifetime| lifetime.report(now)) {
        let severity = match urgency {
            ExpiryUrgency::Over => FindingSeverity::Error,
            ExpiryUrgency::Soon => FindingSeverity::Warning,
        };
        found.push(SignerFinding::new(severity, None, text));
    }
    match &facts.server {
        Ok(seen) => {
            found.extend(check_list_access(facts, seen));
            found.extend(signer_objects::findings(seen));
            for known in &facts.known {
                found.extend(check_bundle(known, seen));
            }
            found.extend(trust::findings(facts, seen, now));
            found.extend(check_requests(facts, seen, now));
        }
        Err(SnapshotError::NotRequested) => {}
        Err(SnapshotError::NoServer(why)) => {
            let message = format!("no server checked: {why}");
            found.push(SignerFinding::new(FindingSeverity::Warning, None, message));
        }
        Err(SnapshotError::Unreachable(why)) => {
            found.push(SignerFinding::new(FindingSeverity::Error, None, why.clone()));
        }
    }
    found.sort_by_key(|finding| finding.severity);
    found
}

fn check_wildcards(known: &LocalSigner) -> Option<SignerFinding> {
    if known.shared_wildcards.is_empty() {
        return None;
    }
    let message = format!(
        "several requesters share {}: each can obtain the others' names; tie names to the requester, for example {{node}}.example.com",
        known.shared_wildcards.join(", ")
    );
    Some(SignerFinding::warning(known.name(), message))
}

fn check_ca(known: &LocalSigner, now: OffsetDateTime) -> Vec<SignerFinding> {
    match &known.ca {
        SignerCa::Elsewhere => Vec::new(),
        SignerCa::ToBeMade(directory) => {
            let message = format!("the CA in {} will be created at start", directory.display());
            vec![SignerFinding::new(FindingSeverity::Note, Some(known.name()), message)]
        }
        SignerCa::Unusable(why) => vec![SignerFinding::error(known.name(), why.clone())],
        SignerCa::Files(files) => check_ca_files(known, files, now),
    }
}

fn check_ca_files(known: &LocalSigner, files: &CaFiles, now: OffsetDateTime) -> Vec<SignerFinding> {
    let (begins, ends) = files.valid;
    let (name, file) = (known.name(), files.certificate.display());
    let mut found = Vec::new();
    if begins > now {
        let begins = timestamp::format(begins);
        found.push(SignerFinding::error(name, format!("{file} is not valid before {begins}")));
    }
    let left = ends - now;
    let until = timestamp::format(ends);
    if left.is_negative() {
        found.push(SignerFinding::error(name, format!("{file} expired at {until}")));
    } else {
        if left < SOON.max(CertificateRole::Authority.warning_period(ends - begins)) {
            let left = human_duration(left.whole_seconds());
            found.push(SignerFinding::warning(name, format!("{file} expires in {left}, at {until}")));
        }
        let left = Duration::try_from(left).unwrap_or_default();
        for (field, max_duration) in
            known.max_durations.iter().filter(|(_, max_duration)| *max_duration > left)
        {
            let max_duration = duration(*max_duration);
            let message = format!("{field} is {max_duration}, but {file} expires earlier, at {until}");
            found.push(SignerFinding::warning(name, message));
        }
    }
    if files.mode & 0o077 != 0 {
        let (key, mode) = (files.key.display(), files.mode);
        let message = format!("{key} is accessible to other users (mode {mode:04o})");
        found.push(SignerFinding::warning(name, message));
    }
    found
}

fn check_bundle(known: &LocalSigner, seen: &ServerSnapshot) -> Option<SignerFinding> {
    let (Some(wanted), SignerCa::Files(files), true) =
        (&known.bundle, &known.ca, seen.bundle_access == ListOutcome::Complete)
    else {
        return None;
    };
    let Some(bundle) = seen.bundles.iter().find(|bundle| bundle.name == *wanted) else {
        let message = format!("trust bundle {wanted} does not exist on the server");
        return Some(SignerFinding::error(known.name(), message));
    };
    if bundle.anchors.contains(&files.anchor) {
        return None;
    }
    let by = if bundle.ours { "" } else { "; it has another owner" };
    let file = files.certificate.display();
    let message = format!("trust bundle {wanted} does not contain the CA of {file}{by}");
    Some(SignerFinding::error(known.name(), message))
}

/// Reports kinds that the user may not list, because their state is unknown. A kind that the server
/// does not serve matters only to signers that use it.
fn check_list_access(facts: &CheckInputs, seen: &ServerSnapshot) -> Vec<SignerFinding> {
    let mut found = Vec::new();
    for (sight, why) in seen.unavailable_kinds() {
        let severity = match sight {
            ListOutcome::Complete | ListOutcome::NotServed => FindingSeverity::Note,
            ListOutcome::Forbidden(_) => FindingSeverity::Error,
        };
        found.push(SignerFinding::new(severity, None, why));
    }
    for known in &facts.known {
        if known.document.pod_requests.is_some() && seen.pod_request_access == ListOutcome::NotServed {
            let message = "signs PodCertificateRequests, which the server does not serve";
            found.push(SignerFinding::warning(known.name(), message));
        }
        if known.bundle.is_some() && seen.bundle_access == ListOutcome::NotServed {
            let message = "cannot publish the CA: the server does not serve ClusterTrustBundles";
            found.push(SignerFinding::warning(known.name(), message));
        }
    }
    found
}

/// Reports requests that wait too long, by signer, kind and state.
fn check_requests(facts: &CheckInputs, seen: &ServerSnapshot, now: OffsetDateTime) -> Vec<SignerFinding> {
    let mut waiting: BTreeMap<(&str, bool, bool), Vec<&SignerRequest>> = BTreeMap::new();
    for asked in &seen.requests {
        let patience = match asked.state {
            RequestState::ToSign => TO_SIGN,
            RequestState::ToApprove => TO_APPROVE,
            RequestState::Denied | RequestState::Failed | RequestState::Issued => continue,
        };
        let waits = asked.since.is_some_and(|since| now - since > patience);
        // If no approver will ever decide, report the request without delay.
        if waits || asked.state == RequestState::ToApprove && reason(facts, seen, asked).is_some() {
            let key = (asked.signer.as_str(), asked.api == Api::Pod, asked.state == RequestState::ToSign);
            waiting.entry(key).or_default().push(asked);
        }
    }
    let findings = waiting.into_values().filter_map(|all| check_pending(facts, seen, &all, now));
    findings.collect()
}

fn check_pending(
    facts: &CheckInputs,
    seen: &ServerSnapshot,
    all: &[&SignerRequest],
    now: OffsetDateTime,
) -> Option<SignerFinding> {
    let oldest = all.iter().min_by_key(|asked| (asked.since, &asked.name))?;
    let kind = match oldest.api {
        Api::Request => "CertificateSigningRequests",
        Api::Pod => "PodCertificateRequests",
    };
    let age = oldest.since.map_or(0, |since| (now - since).whole_seconds());
    let (count, name, age) = (all.len(), &oldest.name, human_duration(age));
    let (severity, waits) = match oldest.state {
        RequestState::ToSign if oldest.api == Api::Request => {
            (FindingSeverity::Error, "approved but not signed")
        }
        RequestState::ToSign => (FindingSeverity::Error, "not signed"),
        _ => (FindingSeverity::Warning, "waiting for approval"),
    };
    let mut message = format!("{kind} {waits}: {count}, oldest {name} for {age}");
    if let Some(why) = &oldest.why {
        message.push_str(&format!(" ({why})"));
    }
    if let Some(reason) = reason(facts, seen, oldest) {
        message.push_str(&format!("; {reason}"));
    }
    Some(SignerFinding::new(severity, Some(&oldest.signer), message))
}

/// Returns why no controller here will process a request, if so.
fn reason(facts: &CheckInputs, seen: &ServerSnapshot, asked: &SignerRequest) -> Option<&'static str> {
    let Some(known) = facts.known.iter().find(|known| known.name() == asked.signer) else {
        let answers = seen.requests.iter().any(|other| {
            other.signer == asked.signer && other.api == asked.api && other.state == RequestState::Issued
        });
        // The signer may be defined in the invalid file, or processed elsewhere.
        let nobody = facts.bad_file.is_none() && !answers;
        return nobody.then_some("unknown signer");
    };
    let signs = match asked.api {
        Api::Request => known.document.requests.is_some(),
        Api::Pod => known.document.pod_requests.is_some(),
    };
    (!signs).then_some("the signer does not sign this kind")
}

#[cfg(test)]
mod tests;
