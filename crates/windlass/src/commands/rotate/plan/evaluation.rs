//! The plan of a rotation, derived from the state of the server.

use kube::ResourceExt as _;
use serde::Serialize;
use time::OffsetDateTime;
use windlass_api::ca_rotation::{DEFAULT_RENEWAL_WINDOW, HeldReason};
use windlass_api::signer::{AuthorityState, READY, SignerAuthority, SignerStatus};
use windlass_ledger::{AuthorityId, CertificateFilter, CertificateIndex, CertificateView};

use super::super::rotations::is_running;
use super::consumers::{ConsumerSurvey, PlannedNode};
use super::snapshot::RotationSnapshot;
use crate::commands::cert::view::{format_time, holder};
use crate::commands::trust::delivery::TrustState;

/// What a rotation would do, and what would hold it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RotationPlan {
    pub signer_name: String,
    /// The authority that would be replaced; absent if the signer has none yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_authority: Option<SignerAuthority>,
    /// Nodes with volumes that select the signer's bundles.
    pub nodes: Vec<PlannedNode>,
    /// Bundles with a source that selects the signer's bundles.
    pub bundles: Vec<String>,
    /// Certificates that depend on the old authority; absent if the ledger cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaves: Option<PlannedLeaves>,
    /// When the old authority could be retired, as RFC 3339; absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_end: Option<String>,
    /// What would hold the rotation as things are.
    pub holds: Vec<PlannedHold>,
    /// What else the user should know.
    pub notes: Vec<String>,
}

/// Certificates of the old authority that may be in use.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedLeaves {
    pub outstanding: usize,
    /// Those that our agents renew when they are told to.
    pub renewed_by_agents: usize,
    /// When the last outstanding one expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_expiry: Option<String>,
    /// Those whose holders cannot be told to renew, by expiry, latest first.
    pub not_renewable: Vec<PlannedLeaf>,
}

/// A certificate whose holder cannot be told to renew it.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedLeaf {
    pub holder: String,
    pub serial_number: String,
    pub not_after: String,
    /// Why its holder cannot be told.
    pub message: &'static str,
}

/// Something that would hold the rotation.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedHold {
    /// Reason of the condition Held.
    pub reason: &'static str,
    /// What it is about: a consumer, a node or a kind.
    pub name: String,
    pub message: String,
}

impl PlannedHold {
    pub fn new(reason: HeldReason, name: String, message: String) -> Self {
        Self { reason: reason.as_str(), name, message }
    }
}

pub fn evaluate(snapshot: &RotationSnapshot, now: OffsetDateTime) -> RotationPlan {
    let signer_name = snapshot.signer.spec.signer_name.clone();
    let status = snapshot.signer.status.as_ref();
    let (mut holds, mut notes) = (Vec::new(), Vec::new());
    check_signer(snapshot, &mut holds, &mut notes);
    let (mut nodes, mut bundles) = (Vec::new(), Vec::new());
    match &snapshot.trust {
        Err(error) => {
            let name = "nodetrusts".to_owned();
            holds.push(PlannedHold::new(HeldReason::ReportsUnavailable, name, error.clone()));
        }
        Ok(trust) => {
            let survey = ConsumerSurvey { signer: &signer_name, trust };
            nodes = survey.nodes(&mut holds);
            bundles = survey.bundles(snapshot.bundles.as_deref().unwrap_or_default());
            let agentless = survey.agentless();
            if !agentless.is_empty() {
                let count = agentless.len();
                notes.push(format!("nodes without a Windlass agent: {count}; their consumers are not known"));
            }
        }
    }
    if let Err(error) = &snapshot.bundles {
        notes.push(format!("Bundles cannot be listed, so their targets are not known: {error}"));
    }
    let old_authority = status.and_then(active_authority).cloned();
    let leaves = leaves(snapshot, old_authority.as_ref(), now.unix_timestamp(), &mut holds);
    let expected_end = leaves.as_ref().map(|leaves| expected_end(leaves, now));
    RotationPlan { signer_name, old_authority, nodes, bundles, leaves, expected_end, holds, notes }
}

/// Adds what the signer itself would hold a rotation for.
fn check_signer(snapshot: &RotationSnapshot, holds: &mut Vec<PlannedHold>, notes: &mut Vec<String>) {
    let signer = &snapshot.signer;
    let conditions = signer.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.kind == READY);
    let name = format!("signer/{}", signer.name_any());
    match ready {
        Some(ready) if ready.status == "True" => {}
        Some(ready) => {
            let message = format!("the signer is not ready: {}: {}", ready.reason, ready.message);
            holds.push(PlannedHold::new(HeldReason::CaUnavailable, name, message));
        }
        None => {
            let message = "no controller has reported on the signer".to_owned();
            holds.push(PlannedHold::new(HeldReason::CaUnavailable, name, message));
        }
    }
    if signer.spec.publish.is_none() {
        notes.push("the signer does not publish its trust anchors, so delivery cannot be proven".to_owned());
    }
    let mut of_signer =
        snapshot.rotations.iter().filter(|rotation| rotation.spec.signer_name == signer.spec.signer_name);
    if let Some(running) = of_signer.find(|rotation| is_running(rotation)) {
        notes.push(format!("rotation {} is running; another one cannot start", running.name_any()));
    }
}

fn active_authority(status: &SignerStatus) -> Option<&SignerAuthority> {
    status.authorities.iter().find(|authority| authority.state == AuthorityState::Active)
}

fn leaves(
    snapshot: &RotationSnapshot,
    authority: Option<&SignerAuthority>,
    now: i64,
    holds: &mut Vec<PlannedHold>,
) -> Option<PlannedLeaves> {
    let contents = match &snapshot.ledger {
        Ok(contents) => contents,
        Err(error) => {
            let name = "ledgersegments".to_owned();
            holds.push(PlannedHold::new(HeldReason::LedgerUnavailable, name, error.clone()));
            return None;
        }
    };
    let filter = CertificateFilter {
        signer: Some(snapshot.signer.spec.signer_name.clone()),
        authority: authority.and_then(|authority| authority.id.parse::<AuthorityId>().ok()),
        outstanding: true,
        ..CertificateFilter::default()
    };
    let leaves = PlannedLeaves::from_index(&contents.index, &filter, snapshot.trust.as_ref().ok(), now);
    if let Some(last) = leaves.not_renewable.first() {
        let count = leaves.not_renewable.len();
        let message = format!(
            "{count} of {} cannot be told to renew; the last expires {}",
            leaves.outstanding, last.not_after
        );
        holds.push(PlannedHold::new(HeldReason::LeavesOutstanding, last.holder.clone(), message));
    }
    Some(leaves)
}

impl PlannedLeaves {
    fn from_index(
        index: &CertificateIndex,
        filter: &CertificateFilter,
        trust: Option<&TrustState>,
        now: i64,
    ) -> Self {
        let mut leaves = PlannedLeaves::default();
        let mut latest = None;
        let mut rest: Vec<(i64, PlannedLeaf)> = Vec::new();
        for view in index.select(filter, now) {
            leaves.outstanding += 1;
            latest = latest.max(Some(view.not_after()));
            match obstacle(&view, trust) {
                None => leaves.renewed_by_agents += 1,
                Some(message) => rest.push((view.not_after(), PlannedLeaf::new(&view, message))),
            }
        }
        rest.sort_by(|(a, first), (b, second)| {
            b.cmp(a).then_with(|| first.serial_number.cmp(&second.serial_number))
        });
        leaves.not_renewable = rest.into_iter().map(|(_, leaf)| leaf).collect();
        leaves.latest_expiry = latest.map(format_time);
        leaves
    }
}

impl PlannedLeaf {
    fn new(view: &CertificateView<'_>, message: &'static str) -> Self {
        let (holder, serial_number) = (holder(view), view.serial().to_string());
        Self { holder, serial_number, not_after: format_time(view.not_after()), message }
    }
}

/// Returns why the holder of a certificate cannot be told to renew it.
fn obstacle(view: &CertificateView<'_>, trust: Option<&TrustState>) -> Option<&'static str> {
    let holder = view.holder();
    if holder.node.is_empty() {
        return Some("held in files; nobody can be told");
    }
    let node = trust.and_then(|trust| trust.nodes.get(holder.node));
    match node {
        Some(node) if node.ours => None,
        Some(_) => Some("renewed by a kubelet in its own time"),
        None => Some("its node does not exist"),
    }
}

/// When the old authority could be retired: delivery takes seconds, agents renew within the window, and
/// other certificates are waited for.
fn expected_end(leaves: &PlannedLeaves, now: OffsetDateTime) -> String {
    let renewed = match leaves.renewed_by_agents {
        0 => now,
        _ => now + DEFAULT_RENEWAL_WINDOW,
    };
    let last = leaves.not_renewable.first();
    let last = last.and_then(|leaf| windlass_api::timestamp::parse(&leaf.not_after).ok());
    windlass_api::timestamp::format(last.map_or(renewed, |last| last.max(renewed)))
}

#[cfg(test)]
mod tests;
