//! Status of a Signer object, computed from what is known about the signer. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use time::{Duration, OffsetDateTime};
use windlass_api::conditions::ObjectCondition;
use windlass_api::timestamp;

use super::ObjectVerdict;
use crate::signers::rollout::{PublicationState, RolloutHold};
use crate::signers::{AuthorityStatistics, ListState};

/// Limit of the API on the number of authorities.
const MAX_AUTHORITIES: usize = 32;
/// Largest number of characters of a message.
const MAX_MESSAGE: usize = 4096;
/// Remaining lifetime at which a CA expires soon, unless its lifetime is short.
const EXPIRES_SOON: Duration = Duration::days(30);

/// What is known about an object and its signer.
#[derive(Clone, Debug)]
pub(super) struct SignerObservation {
    /// Generation of the object that the verdict is about.
    pub(super) generation: Option<i64>,
    pub(super) verdict: ObjectVerdict,
    /// State of the signer; `None` if the object defines none, or it does not run yet.
    pub(super) signer: Option<SignerState>,
}

/// State of a signer that runs.
#[derive(Clone, Debug)]
pub(super) struct SignerState {
    /// Why the present CA certificate and key are rejected.
    pub(super) ca_error: Option<String>,
    /// The newest CA that was accepted.
    pub(super) newest: Option<AuthorityInfo>,
    /// The CA that signs, or why none does.
    pub(super) signing: Result<AuthorityInfo, RolloutHold>,
    /// Why the newest CA does not sign although another one does.
    pub(super) held: Option<RolloutHold>,
    /// CAs whose anchors are still published.
    pub(super) published: Vec<AuthorityInfo>,
    /// Name of the ClusterTrustBundle; `None` if anchors are not published.
    pub(super) bundle: Option<String>,
    pub(super) publication: PublicationState,
    /// State of the revocation lists of its authorities.
    pub(super) lists: Vec<ListState>,
    /// States of authorities that do not sign, by the fingerprints of their anchors, while a rotation runs.
    pub(super) rotation_states: BTreeMap<String, &'static str>,
    pub(super) pending_requests: usize,
    pub(super) last_issued: Option<OffsetDateTime>,
}

/// Facts about the certificate of one authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AuthorityInfo {
    /// Subject key identifier in hexadecimal digits.
    pub(super) id: String,
    pub(super) subject: String,
    pub(super) not_before: OffsetDateTime,
    pub(super) not_after: OffsetDateTime,
    /// SHA-256 of its trust anchor, in hexadecimal digits.
    pub(super) anchor: String,
    /// Numbers from the ledger, if it knows the authority.
    pub(super) statistics: Option<AuthorityStatistics>,
}

/// Status, reason and message of a condition.
type ConditionState = (&'static str, &'static str, String);

/// Computes the status. `old` is the present one, whose transition times are kept.
pub(super) fn compute(old: &Value, observation: &SignerObservation, now: OffsetDateTime) -> Value {
    let mut status = Map::new();
    if let Some(generation) = observation.generation {
        status.insert("observedGeneration".to_owned(), generation.into());
    }
    let conditions = [
        ("Ready", ready(observation, now)),
        ("CAExpiring", expiring(observation, now)),
        ("CRLPublished", crl_published(observation)),
        ("Published", published(observation)),
    ];
    let known = old.get("conditions").cloned().unwrap_or_default();
    let known: Vec<ObjectCondition> = serde_json::from_value(known).unwrap_or_default();
    let (generation, time) = (observation.generation, timestamp::format(now));
    let conditions =
        conditions.map(|(kind, state)| encode_condition(&known, kind, &state, generation, &time));
    status.insert("conditions".to_owned(), conditions.to_vec().into());
    let pending = observation.signer.as_ref().map_or(0, |signer| signer.pending_requests);
    status.insert("pendingRequests".to_owned(), pending.into());
    let last_issued = observation.signer.as_ref().and_then(|signer| signer.last_issued);
    match (last_issued.map(timestamp::format), old.get("lastIssuedTime")) {
        (Some(time), _) => drop(status.insert("lastIssuedTime".to_owned(), time.into())),
        (None, Some(time)) => drop(status.insert("lastIssuedTime".to_owned(), time.clone())),
        (None, None) => {}
    }
    let authorities = observation.signer.as_ref().map(authorities).unwrap_or_default();
    if !authorities.is_empty() {
        status.insert("authorities".to_owned(), authorities.into());
    }
    Value::Object(status)
}

/// Whether two statuses differ in more than numbers that change with every certificate.
pub(super) fn is_urgent(old: &Value, new: &Value) -> bool {
    let states = |status: &Value| {
        let authorities = status.get("authorities").and_then(Value::as_array).cloned().unwrap_or_default();
        let key =
            |each: &Value| (each["id"].to_string(), each["state"].to_string(), each["notAfter"].to_string());
        authorities.iter().map(key).collect::<Vec<_>>()
    };
    old.get("conditions") != new.get("conditions")
        || old.get("observedGeneration") != new.get("observedGeneration")
        || states(old) != states(new)
}

fn ready(observation: &SignerObservation, now: OffsetDateTime) -> ConditionState {
    let signer = match (&observation.verdict, &observation.signer) {
        (ObjectVerdict::Invalid(errors), _) => return ("False", "InvalidSpec", errors.clone()),
        (ObjectVerdict::Duplicate { signer, owner }, _) => {
            let message = format!("the Signer {owner} defines {signer}; delete one of them");
            return ("False", "DuplicateSignerName", message);
        }
        (ObjectVerdict::Accepted(_), None) => return ("Unknown", "Starting", "the signer starts".to_owned()),
        (ObjectVerdict::Accepted(_), Some(signer)) => signer,
    };
    match (&signer.signing, &signer.ca_error, &signer.held) {
        (Err(RolloutHold { reason, message }), error, _) => {
            ("False", reason, error.clone().unwrap_or_else(|| message.clone()))
        }
        (Ok(ca), _, _) if ca.not_after <= now => {
            ("False", "CAExpired", format!("the CA expired at {}", timestamp::format(ca.not_after)))
        }
        (Ok(_), Some(error), _) => {
            ("True", "PreviousCA", format!("still signing with the previous CA: {error}"))
        }
        (Ok(_), None, Some(hold)) => {
            ("True", "PreviousCA", format!("still signing with the previous CA: {}", hold.message))
        }
        (Ok(ca), None, None) => ("True", "Ready", format!("signing with {}", ca.subject)),
    }
}

fn expiring(observation: &SignerObservation, now: OffsetDateTime) -> ConditionState {
    let signer = observation.signer.as_ref();
    let Some(ca) = signer.and_then(|signer| signer.signing.as_ref().ok().or(signer.newest.as_ref())) else {
        return ("Unknown", "NoCA", "the signer has no CA".to_owned());
    };
    let until = timestamp::format(ca.not_after);
    let threshold = EXPIRES_SOON.min((ca.not_after - ca.not_before) / 3);
    match ca.not_after - now {
        left if left <= Duration::ZERO => ("True", "Expired", format!("the CA expired at {until}")),
        left if left < threshold => ("True", "ExpiresSoon", format!("the CA expires at {until}")),
        _ => ("False", "Valid", format!("the CA is valid until {until}")),
    }
}

fn published(observation: &SignerObservation) -> ConditionState {
    let Some(signer) = &observation.signer else {
        return ("Unknown", "Starting", "the signer does not run".to_owned());
    };
    let Some(bundle) = &signer.bundle else {
        return ("False", "NotConfigured", "spec.publish is not set".to_owned());
    };
    let Some(newest) = &signer.newest else {
        return ("False", "NoCA", "the signer has no CA".to_owned());
    };
    match &signer.publication {
        PublicationState::None => ("False", "NotServed", "the server has no ClusterTrustBundles".to_owned()),
        PublicationState::Unknown => {
            ("Unknown", "Starting", format!("ClusterTrustBundle {bundle} was not read yet"))
        }
        PublicationState::Known(records) if records.contains_key(&newest.anchor) => {
            ("True", "Published", format!("the trust anchor is in ClusterTrustBundle {bundle}"))
        }
        PublicationState::Full(_) => (
            "False",
            "TrustBundleFull",
            format!("ClusterTrustBundle {bundle} has no room for another anchor"),
        ),
        PublicationState::Known(_) => {
            ("False", "NotPublished", format!("the trust anchor is not in ClusterTrustBundle {bundle}"))
        }
    }
}

fn crl_published(observation: &SignerObservation) -> ConditionState {
    let lists = observation.signer.as_ref().map(|signer| signer.lists.as_slice()).unwrap_or_default();
    let failed = lists.iter().find_map(|list| match list {
        ListState::Published => None,
        ListState::Failed { reason, message } => Some((*reason, message)),
    });
    match failed {
        Some((reason, message)) => ("False", reason, message.clone()),
        None if lists.is_empty() => {
            ("Unknown", "NotPublished", "no revocation list was signed yet".to_owned())
        }
        None => ("True", "Published", "the revocation list of every CA key is current".to_owned()),
    }
}

fn encode_condition(
    known: &[ObjectCondition],
    kind: &str,
    (status, reason, message): &ConditionState,
    generation: Option<i64>,
    now: &str,
) -> Value {
    let message: String = message.chars().take(MAX_MESSAGE).collect();
    let state = (*status, *reason, message.as_str());
    serde_json::to_value(ObjectCondition::following(known, kind, state, generation, now)).unwrap_or_default()
}

/// Lists the newest CA first, then the one that signs, then those whose anchors are still published, newest first.
fn authorities(signer: &SignerState) -> Vec<Value> {
    let signing = signer.signing.as_ref().ok();
    let mut listed = BTreeSet::new();
    let mut retiring: Vec<&AuthorityInfo> = signer.published.iter().collect();
    retiring.sort_by_key(|authority| std::cmp::Reverse(authority.not_before));
    // An anchor above the CA is not one of the signer's own keys.
    let above: Vec<&str> = signer.newest.iter().chain(signing).map(|each| each.anchor.as_str()).collect();
    retiring.retain(|authority| !above.contains(&authority.anchor.as_str()));
    let newest = signer.newest.iter().map(|authority| match signing {
        Some(signing) if signing.id == authority.id => (authority, "Active"),
        _ => (authority, "Prepared"),
    });
    let active = signing.into_iter().map(|authority| (authority, "Active"));
    let state = |authority: &AuthorityInfo| signer.rotation_states.get(&authority.anchor).copied();
    let retiring = retiring.into_iter().map(|authority| (authority, state(authority).unwrap_or("Retiring")));
    let all =
        newest.chain(active).chain(retiring).filter(|(authority, _)| listed.insert(authority.id.clone()));
    all.take(MAX_AUTHORITIES).map(|(authority, state)| encode_authority(authority, state)).collect()
}

fn encode_authority(authority: &AuthorityInfo, state: &str) -> Value {
    let mut encoded = json!({
        "id": authority.id,
        "subject": authority.subject,
        "notBefore": timestamp::format(authority.not_before),
        "notAfter": timestamp::format(authority.not_after),
        "state": state,
    });
    if let Some(AuthorityStatistics { issued, unexpired, latest_expiry }) = authority.statistics {
        encoded["issuedCertificates"] = issued.into();
        encoded["unexpiredCertificates"] = unexpired.into();
        if let Some(expiry) = latest_expiry {
            encoded["latestExpiry"] = timestamp::format(expiry).into();
        }
    }
    encoded
}
