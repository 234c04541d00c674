//! What is wrong with signers: a function of what was gathered, so that everything can be tried in a
//! table. `trust`: what is wrong with the anchors that they publish.

mod trust;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use time::OffsetDateTime;
use windlass_api::age::human_duration;
use windlass_api::timestamp;

use super::asked::{Asked, Kind as Api, State};
use super::authority::{Ca, Files};
use super::custom::duration;
use super::known::Known;
use super::server::{Seen, Sight, Trouble};
use crate::expiry::{Lifetime, Role, Urgency};

/// A CA that ends sooner is reported, however short its life.
const SOON: time::Duration = time::Duration::days(30);
/// Signers answer at once; what waits for longer is stuck.
const TO_SIGN: time::Duration = time::Duration::minutes(1);
/// People take their time.
const TO_APPROVE: time::Duration = time::Duration::hours(1);

/// All that was gathered.
pub struct Facts {
    /// Why the user's file cannot be used, if so. Then its signers are not among the known ones.
    pub bad_file: Option<String>,
    pub known: Vec<Known>,
    /// Certificates of the data directory that are nobody's signing CA.
    pub own: Vec<Lifetime>,
    pub server: Result<Seen, Trouble>,
}

/// Something that is wrong, or may become so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// The signer, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
    pub message: String,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something does not work.
    Error,
    /// Something will not work, or is not as it should be.
    Warning,
    /// All is well, and this is good to know.
    Note,
}

impl Severity {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

impl Finding {
    fn new(severity: Severity, signer: Option<&str>, message: impl Into<String>) -> Self {
        Self { severity, signer: signer.map(str::to_owned), message: message.into() }
    }

    fn error(signer: &str, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, Some(signer), message)
    }

    fn warning(signer: &str, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, Some(signer), message)
    }
}

/// What is wrong: the errors first.
pub fn findings(facts: &Facts, now: OffsetDateTime) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(
        facts.bad_file.as_ref().map(|why| Finding::new(Severity::Error, None, why.clone())),
    );
    for known in &facts.known {
        found.extend(of_ca(known, now));
        found.extend(of_wildcards(known));
    }
    for (urgency, text) in facts.own.iter().filter_map(|lifetime| lifetime.report(now)) {
        let severity = match urgency {
            Urgency::Over => Severity::Error,
            Urgency::Soon => Severity::Warning,
        };
        found.push(Finding::new(severity, None, text));
    }
    match &facts.server {
        Ok(seen) => {
            found.extend(of_sight(facts, seen));
            for known in &facts.known {
                found.extend(of_bundle(known, seen));
            }
            found.extend(trust::findings(facts, seen, now));
            found.extend(of_requests(facts, seen, now));
        }
        Err(Trouble::NotAsked) => {}
        Err(Trouble::NoServer(why)) => {
            let message = format!("no server was looked at: {why}");
            found.push(Finding::new(Severity::Warning, None, message));
        }
        Err(Trouble::Unreachable(why)) => {
            found.push(Finding::new(Severity::Error, None, why.clone()));
        }
    }
    found.sort_by_key(|finding| finding.severity);
    found
}

fn of_wildcards(known: &Known) -> Option<Finding> {
    if known.shared_wildcards.is_empty() {
        return None;
    }
    let message = format!(
        "several requesters share {}: each can obtain the others' names; tie names to the requester, for example {{node}}.example.com",
        known.shared_wildcards.join(", ")
    );
    Some(Finding::warning(known.name(), message))
}

fn of_ca(known: &Known, now: OffsetDateTime) -> Vec<Finding> {
    match &known.ca {
        Ca::Elsewhere => Vec::new(),
        Ca::ToBeMade(directory) => {
            let message = format!("its CA in {} will be made at start", directory.display());
            vec![Finding::new(Severity::Note, Some(known.name()), message)]
        }
        Ca::Unusable(why) => vec![Finding::error(known.name(), why.clone())],
        Ca::Files(files) => of_files(known, files, now),
    }
}

fn of_files(known: &Known, files: &Files, now: OffsetDateTime) -> Vec<Finding> {
    let (begins, ends) = files.valid;
    let (name, file) = (known.name(), files.certificate.display());
    let mut found = Vec::new();
    if begins > now {
        let begins = timestamp::format(begins);
        found.push(Finding::error(name, format!("{file} is not valid before {begins}")));
    }
    let left = ends - now;
    let until = timestamp::format(ends);
    if left.is_negative() {
        found.push(Finding::error(name, format!("{file} expired at {until}")));
    } else {
        if left < SOON.max(Role::Authority.warning_period(ends - begins)) {
            let left = human_duration(left.whole_seconds());
            found.push(Finding::warning(name, format!("{file} expires in {left}, at {until}")));
        }
        let left = Duration::try_from(left).unwrap_or_default();
        for (field, longest) in known.longest.iter().filter(|(_, longest)| *longest > left) {
            let longest = duration(*longest);
            let message = format!("{field} is {longest}, but {file} ends sooner, at {until}");
            found.push(Finding::warning(name, message));
        }
    }
    if files.mode & 0o077 != 0 {
        let (key, mode) = (files.key.display(), files.mode);
        let message = format!("{key} is open to others than its owner: its mode is {mode:04o}");
        found.push(Finding::warning(name, message));
    }
    found
}

fn of_bundle(known: &Known, seen: &Seen) -> Option<Finding> {
    let (Some(wanted), Ca::Files(files), true) =
        (&known.bundle, &known.ca, seen.of_bundles == Sight::Clear)
    else {
        return None;
    };
    let Some(bundle) = seen.bundles.iter().find(|bundle| bundle.name == *wanted) else {
        let message = format!("its trust bundle {wanted} is not on the server");
        return Some(Finding::error(known.name(), message));
    };
    if bundle.anchors.contains(&files.anchor) {
        return None;
    }
    let by = if bundle.ours { "" } else { "; somebody else made it" };
    let file = files.certificate.display();
    let message = format!("the trust bundle {wanted} does not have the CA of {file}{by}");
    Some(Finding::error(known.name(), message))
}

/// Who may not look does not know whether all is well. What a server does not have matters only to
/// signers that use it.
fn of_sight(facts: &Facts, seen: &Seen) -> Vec<Finding> {
    let mut found = Vec::new();
    for (sight, why) in seen.left_out() {
        let severity = match sight {
            Sight::Clear | Sight::Absent => Severity::Note,
            Sight::Refused(_) => Severity::Error,
        };
        found.push(Finding::new(severity, None, why));
    }
    for known in &facts.known {
        if known.document.pod_requests.is_some() && seen.of_pods == Sight::Absent {
            let message = "it signs PodCertificateRequests, which the server does not have";
            found.push(Finding::warning(known.name(), message));
        }
        if known.bundle.is_some() && seen.of_bundles == Sight::Absent {
            let message = "its CA cannot be published: the server has no ClusterTrustBundles";
            found.push(Finding::warning(known.name(), message));
        }
    }
    found
}

/// Requests that wait for too long, by signer, kind and what they wait for.
fn of_requests(facts: &Facts, seen: &Seen, now: OffsetDateTime) -> Vec<Finding> {
    let mut waiting: BTreeMap<(&str, bool, bool), Vec<&Asked>> = BTreeMap::new();
    for asked in &seen.asked {
        let patience = match asked.state {
            State::ToSign => TO_SIGN,
            State::ToApprove => TO_APPROVE,
            State::Denied | State::Failed | State::Issued => continue,
        };
        let waits = asked.since.is_some_and(|since| now - since > patience);
        // Nobody will ever answer: there is no reason to be patient before it is said.
        if waits || asked.state == State::ToApprove && reason(facts, seen, asked).is_some() {
            let key = (asked.signer.as_str(), asked.api == Api::Pod, asked.state == State::ToSign);
            waiting.entry(key).or_default().push(asked);
        }
    }
    let told = waiting.into_values().filter_map(|all| of_waiting(facts, seen, &all, now));
    told.collect()
}

fn of_waiting(facts: &Facts, seen: &Seen, all: &[&Asked], now: OffsetDateTime) -> Option<Finding> {
    let oldest = all.iter().min_by_key(|asked| (asked.since, &asked.name))?;
    let kind = match oldest.api {
        Api::Request => "CertificateSigningRequests",
        Api::Pod => "PodCertificateRequests",
    };
    let age = oldest.since.map_or(0, |since| (now - since).whole_seconds());
    let (count, name, age) = (all.len(), &oldest.name, human_duration(age));
    let (severity, waits) = match oldest.state {
        State::ToSign if oldest.api == Api::Request => (Severity::Error, "approved but not signed"),
        State::ToSign => (Severity::Error, "not signed"),
        _ => (Severity::Warning, "waiting for approval"),
    };
    let mut message = format!("{kind} {waits}: {count}, the oldest is {name}, for {age}");
    if let Some(why) = &oldest.why {
        message.push_str(&format!(" ({why})"));
    }
    if let Some(reason) = reason(facts, seen, oldest) {
        message.push_str(&format!("; {reason}"));
    }
    Some(Finding::new(severity, Some(&oldest.signer), message))
}

/// Why nobody here will answer a request, if so.
fn reason(facts: &Facts, seen: &Seen, asked: &Asked) -> Option<&'static str> {
    let Some(known) = facts.known.iter().find(|known| known.name() == asked.signer) else {
        let answers = seen.asked.iter().any(|other| {
            other.signer == asked.signer && other.api == asked.api && other.state == State::Issued
        });
        // It may well be one of the file, and somebody else may answer.
        let nobody = facts.bad_file.is_none() && !answers;
        return nobody.then_some("no signer of this name is known here");
    };
    let signs = match asked.api {
        Api::Request => known.document.requests.is_some(),
        Api::Pod => known.document.pod_requests.is_some(),
    };
    (!signs).then_some("the signer signs no such requests")
}

#[cfg(test)]
mod tests;
