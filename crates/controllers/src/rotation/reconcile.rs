//! Reconciles one signer: observes, derives, reports, and takes the next step of its rotation.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;
use time::OffsetDateTime;
use windlass_api::ca_rotation::{
    CaRotationLeaves, CaRotationSpec, CaRotationStatus, HeldReason, RotationPhase,
};
use windlass_api::timestamp;
use windlass_runtime::events::NewEvent;
use windlass_runtime::workers::Requeue;

use super::authorities::{KnownAuthority, RotationAuthorities};
use super::controller::{RotationController, RotationObject};
use super::observation::{
    AuthorityIdentity, AuthorityPosition, AuthorityRole, BundleRole, DependentSigners, LeafObservation,
    RotationObservation,
};
use super::phase::{RotationAction, RotationDecision, RotationHold, derive};
use super::policy::RotationPolicy;
use super::revocation::revoke_outstanding;
use super::status::{self, StatusFacts};
use super::trigger::{self, EndedRotation, TriggerFacts};
use super::trust_bundle::SignerBundle;
use crate::csr::{is_conflict, is_not_found, requeue_changed};
use crate::signers::CustomSigner;
use crate::signers::config::CaConfig;
use crate::signers::rollout::RolloutGovernance;

/// Writes of one rotation before other signers have a turn.
const MAX_STEPS_AT_ONCE: usize = 8;
/// Time for which a rotation is held before an Event warns.
const WARN_AFTER: time::Duration = time::Duration::minutes(5);
/// A limit on lifetimes leaves at least this: pod certificates last an hour or more.
const SHORTEST_LIMIT: time::Duration = time::Duration::minutes(70);

/// A signer as it was read for one step.
pub(super) struct SignerSnapshot {
    bundles: Vec<SignerBundle>,
    pub(super) bundle_resource: Option<ApiResource>,
    pub(super) authorities: RotationAuthorities,
    pub(super) observed: RotationObservation,
}

impl SignerSnapshot {
    pub(super) fn bundle(&self, role: BundleRole) -> Option<&SignerBundle> {
        self.bundles.iter().find(|bundle| bundle.role == role)
    }
}

impl RotationController {
    pub(super) async fn reconcile(self: Arc<Self>, name: String) -> anyhow::Result<Requeue> {
        let Some(rotations) = self.rotations_of(&name) else { return Ok(Requeue::Done) };
        let now = (self.clock)();
        let (ended, open): (Vec<_>, Vec<_>) =
            rotations.into_iter().partition(|each| each.status.is_finished());
        let signer = self.signers.get(&name);
        let Some((first, others)) = open.split_first() else {
            self.set_running(&name, false);
            return match signer {
                Some(signer) => self.watch_over(signer, &ended, now).await,
                None => Ok(Requeue::Done),
            };
        };
        if let Some(signer) = signer {
            signer.rollout.set_governance(RolloutGovernance::Rotating, now);
        }
        self.set_running(&name, true);
        for other in others {
            let generation = other.object.metadata.generation;
            let refused = status::refuse(&other.status, &first.object.name_any(), generation, now);
            self.write_status(other, refused).await?;
        }
        self.advance(signer, &first.object.name_any(), &name).await
    }

    /// Takes steps of a rotation until it has to wait.
    async fn advance(
        &self,
        signer: Option<&CustomSigner>,
        rotation: &str,
        name: &str,
    ) -> anyhow::Result<Requeue> {
        for _ in 0..MAX_STEPS_AT_ONCE {
            // The watch may not have delivered the last write.
            let Some(object) = self.api.get_opt(rotation).await? else { return Ok(Requeue::Done) };
            let Some(rotation) = RotationObject::parse(object) else { return Ok(Requeue::Done) };
            if rotation.status.is_finished() {
                self.remember(&rotation);
                return Ok(Requeue::WithBackoff("the rotation has ended".into()));
            }
            let Some(signer) = signer else { return self.report_unknown_signer(rotation, name).await };
            match self.step(signer, rotation).await? {
                RotationProgress::Again => {}
                RotationProgress::Waits => return Ok(Requeue::Done),
                RotationProgress::Failed(message) => return Ok(Requeue::WithBackoff(message)),
            }
        }
        Ok(Requeue::WithBackoff("the rotation goes on".into()))
    }

    async fn step(
        &self,
        signer: &CustomSigner,
        rotation: RotationObject,
    ) -> anyhow::Result<RotationProgress> {
        let policy = RotationPolicy::from(&rotation.spec);
        let snapshot = self.observe_signer(signer, &rotation).await?;
        let now = (self.clock)();
        let mut decision = derive(&policy, &snapshot.observed, now);
        decision.phase = keep_phase(&decision, &snapshot.observed.position, &rotation.status);
        self.limit_leaves(signer, &policy, &snapshot, now);
        signer.rollout.set_authority_states(authority_states(&policy, &snapshot.observed.position));
        if !self.revoke_if_compromised(signer, &policy, &snapshot).await? {
            decision = without_end(decision);
        }
        let facts = self.status_facts(&rotation, &snapshot);
        let rotation = match self.report(rotation, &decision, facts, now).await? {
            Some(rotation) => rotation,
            None => return Ok(RotationProgress::Failed("the rotation was modified concurrently".into())),
        };
        let warning = warning_time(&rotation.status).filter(|time| *time > now);
        let recheck = [decision.recheck, warning].into_iter().flatten().min();
        self.schedule(signer.custom.name.as_str(), recheck);
        if decision.phase.is_final() {
            return Ok(RotationProgress::Again);
        }
        let Some(action) = &decision.action else { return Ok(RotationProgress::Waits) };
        match self.execute(signer, &rotation, &policy, &snapshot, action).await {
            Ok(true) => Ok(RotationProgress::Again),
            Ok(false) => Ok(RotationProgress::Failed("an object was modified concurrently".into())),
            Err(error) => {
                let message = format!("{error:#}");
                let reason = match action {
                    RotationAction::WriteBundle { .. } => HeldReason::NotPublished,
                    _ => HeldReason::CaUnavailable,
                };
                let hold = Some(RotationHold { reason, message: message.clone() });
                let held = RotationDecision { action: None, hold, ..decision };
                let facts = self.status_facts(&rotation, &snapshot);
                self.report(rotation, &held, facts, now).await?;
                Ok(RotationProgress::Failed(message))
            }
        }
    }

    /// A signer without a rotation: creates one if its CA expires or has changed, and destroys an old key when its time
    /// has come.
    async fn watch_over(
        &self,
        signer: &CustomSigner,
        ended: &[RotationObject],
        now: OffsetDateTime,
    ) -> anyhow::Result<Requeue> {
        signer.rollout.set_governance(RolloutGovernance::Steady, now);
        signer.rollout.set_leaf_limit(None);
        signer.rollout.set_authority_states(BTreeMap::new());
        let name = signer.custom.name.as_str();
        self.schedule(name, self.dispose_keys(signer, ended, now).await?);
        let Some(ca) = signer.ca.current() else { return Ok(Requeue::Done) };
        let (bundles, _) = self.read_bundles(signer).await?;
        let main = bundles.iter().find(|bundle| bundle.role == BundleRole::Main);
        let last = ended.iter().max_by_key(|each| each.status.completion_time.clone());
        let facts = TriggerFacts {
            anchor: KnownAuthority::from_ca(&ca).identity.anchor,
            is_generated: signer.ca.is_generated(),
            is_renewal_due: signer.ca.is_renewal_due(),
            active: main.and_then(SignerBundle::active).cloned(),
            last: last.map(|last| EndedRotation {
                uid: last.uid(),
                phase: last.status.phase,
                new_anchor: last.status.new_authority.as_ref().and_then(|new| new.anchor_fingerprint.clone()),
            }),
        };
        let Some(planned) = trigger::plan(&signer.custom.name, &facts) else { return Ok(Requeue::Done) };
        let spec = CaRotationSpec {
            signer_name: name.to_owned(),
            trigger: Some(planned.trigger),
            ..CaRotationSpec::default()
        };
        let mut object = DynamicObject::new(&planned.name, &self.resource);
        object.data = json!({ "spec": spec });
        match self.api.create(&PostParams::default(), &object).await {
            Ok(_) => {
                tracing::info!(signer = name, rotation = planned.name, trigger = ?planned.trigger, "created a CARotation");
            }
            // Another controller was faster; the watch delivers its rotation.
            Err(error) if is_conflict(&error) => {}
            Err(error) => return Err(error).context("cannot create a CARotation"),
        }
        Ok(Requeue::Done)
    }

    async fn read_bundles(
        &self,
        signer: &CustomSigner,
    ) -> anyhow::Result<(Vec<SignerBundle>, Option<ApiResource>)> {
        let Some(publication) = &signer.custom.publish else { return Ok((Vec::new(), None)) };
        let Some(resource) = self.find_bundle_resource().await? else { return Ok((Vec::new(), None)) };
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let canary = publication.canary.as_ref();
        let canary = canary.map(|canary| (BundleRole::Canary, &canary.bundle, &canary.labels));
        let main = (BundleRole::Main, &publication.bundle, &publication.labels);
        let mut bundles = Vec::new();
        for (role, name, labels) in canary.into_iter().chain([main]) {
            let (signer, labels) = (signer.custom.name.to_string(), labels.clone());
            let object = api.get_opt(name).await?;
            bundles.push(SignerBundle { role, name: name.clone(), signer, labels, object });
        }
        Ok((bundles, Some(resource)))
    }

    async fn observe_signer(
        &self,
        signer: &CustomSigner,
        rotation: &RotationObject,
    ) -> anyhow::Result<SignerSnapshot> {
        let (bundles, bundle_resource) = self.read_bundles(signer).await?;
        let main = bundles.iter().find(|bundle| bundle.role == BundleRole::Main);
        let status = &rotation.status;
        let authorities = match signer.ca.secret().filter(|secret| secret.is_generated()) {
            Some(secret_ca) => match secret_ca.read_slots(&self.context).await {
                Ok((secret, slots)) => {
                    RotationAuthorities::from_slots(secret, &slots, &rotation.uid(), &bundles, status)
                }
                Err(error) => RotationAuthorities::unavailable(error.detail),
            },
            None => RotationAuthorities::from_source(signer, &bundles, main, status),
        };
        let observe = |role: BundleRole| {
            let bundle = bundles.iter().find(|bundle| bundle.role == role)?;
            Some(self.observe_bundle(bundle))
        };
        let since = |wanted: &[RotationPhase]| {
            let step = status.steps.iter().rfind(|step| wanted.contains(&step.phase))?;
            timestamp::parse(&step.start_time).ok()
        };
        let observed = RotationObservation {
            is_generated: signer.ca.is_generated(),
            canary: observe(BundleRole::Canary),
            main: observe(BundleRole::Main),
            leaves: self.count_leaves(signer, &authorities),
            dependents: DependentSigners {
                old: self.list_dependents(signer, authorities.old.as_ref()),
                new: self.list_dependents(signer, authorities.new.as_ref()),
            },
            canary_since: since(&[RotationPhase::PublishingCanary]),
            renewing_since: since(&[RotationPhase::Renewing, RotationPhase::RollingBack]),
            position: authorities.position.clone(),
        };
        Ok(SignerSnapshot { bundles, bundle_resource, authorities, observed })
    }

    /// Lists the signers whose intermediates are below an authority of this one, or were when their leaves were issued.
    fn list_dependents(&self, signer: &CustomSigner, authority: Option<&KnownAuthority>) -> Vec<String> {
        let Some(authority) = authority else { return Vec::new() };
        let anchor = &authority.identity.anchor;
        let is_below = |other: &&CustomSigner| {
            let issuer = match &other.custom.ca {
                CaConfig::Issued { issuer, .. } => issuer,
                _ => return false,
            };
            let current = other.ca.current().map(|ca| KnownAuthority::from_ca(&ca).identity.anchor);
            let published = other.rollout.published_anchors();
            let is_published = published.iter().any(|each| each.fingerprint() == *anchor);
            *issuer == signer.custom.name && (current.as_ref() == Some(anchor) || is_published)
        };
        self.signers.values().filter(is_below).map(|other| other.custom.name.to_string()).collect()
    }

    /// Counts the leaves of the new authority, and those of all others that the signer has had.
    fn count_leaves(
        &self,
        signer: &CustomSigner,
        authorities: &RotationAuthorities,
    ) -> Option<LeafObservation> {
        let new = authorities.new.as_ref().map(|new| new.identity.id.as_str()).unwrap_or_default();
        let totals = self.ledger.known_totals()?;
        let mut leaves = LeafObservation::default();
        for totals in totals.iter().filter(|each| each.signer == signer.custom.name.as_str()) {
            let count = match totals.authority.to_string() == new {
                true => &mut leaves.new,
                false => &mut leaves.old,
            };
            count.issued += totals.issued;
            count.outstanding += totals.outstanding;
            let expiry = totals.latest_expiry.and_then(|time| OffsetDateTime::from_unix_timestamp(time).ok());
            count.latest_expiry = count.latest_expiry.max(expiry.filter(|_| totals.outstanding > 0));
        }
        Some(leaves)
    }

    fn status_facts(&self, rotation: &RotationObject, snapshot: &SignerSnapshot) -> StatusFacts {
        let encode = |authority: &Option<KnownAuthority>| authority.as_ref().map(KnownAuthority::to_status);
        let leaves = snapshot.observed.leaves.map(|LeafObservation { old, new }| CaRotationLeaves {
            outstanding: old.outstanding,
            renewed: new.issued,
            latest_expiry: old.latest_expiry.map(timestamp::format),
        });
        StatusFacts {
            generation: rotation.object.metadata.generation,
            // What was recorded first stays: it is how a provided CA is recognized after the switch.
            old: rotation.status.old_authority.clone().or_else(|| encode(&snapshot.authorities.old)),
            new: encode(&snapshot.authorities.new),
            leaves,
        }
    }

    /// Leaves of an authority with a planned retirement end before it.
    fn limit_leaves(
        &self,
        signer: &CustomSigner,
        policy: &RotationPolicy,
        snapshot: &SignerSnapshot,
        now: OffsetDateTime,
    ) {
        let limit = match (&snapshot.observed.position, policy.retire_not_before) {
            (AuthorityPosition::Prepared { old, .. }, Some(time))
                if !policy.rollback && time - now >= SHORTEST_LIMIT =>
            {
                Some((old.anchor.clone(), time))
            }
            _ => None,
        };
        signer.rollout.set_leaf_limit(limit);
    }

    /// Revokes the leaves of a compromised authority after the switch; returns whether nothing is left to revoke.
    async fn revoke_if_compromised(
        &self,
        signer: &CustomSigner,
        policy: &RotationPolicy,
        snapshot: &SignerSnapshot,
    ) -> anyhow::Result<bool> {
        let AuthorityPosition::Switched { new, .. } = &snapshot.observed.position else { return Ok(true) };
        if !policy.compromised || policy.rollback || policy.paused || snapshot.observed.leaves.is_none() {
            return Ok(true);
        }
        let mut done = self.revoked.lock().await;
        let name = signer.custom.name.as_str();
        let revoked = revoke_outstanding(&self.client, &self.ledger, name, &new.id, &mut done).await;
        revoked.context("cannot revoke the certificates of the old CA")
    }

    /// Writes status, metrics and Events; returns the rotation as written, or `None` if it has changed.
    async fn report(
        &self,
        rotation: RotationObject,
        decision: &RotationDecision,
        facts: StatusFacts,
        now: OffsetDateTime,
    ) -> anyhow::Result<Option<RotationObject>> {
        let before = rotation.status.clone();
        let status = status::compute(&before, decision, facts, now);
        self.metrics.rotations.set(&rotation.spec.signer_name, &status);
        let is_rolled_back = matches!(decision.action, Some(RotationAction::RollBack(_)));
        if !status::is_urgent(&before, &status)
            && !is_rolled_back
            && !self.may_write(&rotation.uid(), &rotation.spec.signer_name)
        {
            return Ok(Some(rotation));
        }
        let Some(rotation) = self.write_status(&rotation, status).await? else { return Ok(None) };
        self.record_events(&rotation, &before, now).await;
        Ok(Some(rotation))
    }

    async fn write_status(
        &self,
        rotation: &RotationObject,
        status: CaRotationStatus,
    ) -> anyhow::Result<Option<RotationObject>> {
        if rotation.status == status {
            return Ok(Some(rotation.clone()));
        }
        let mut object = rotation.object.clone();
        object.data["status"] = serde_json::to_value(&status)?;
        match self.api.replace_status(&object.name_any(), &PostParams::default(), &object).await {
            Ok(object) => {
                let written = RotationObject { object, status, ..rotation.clone() };
                self.remember(&written);
                Ok(Some(written))
            }
            Err(error) if is_conflict(&error) || is_not_found(&error) => Ok(None),
            Err(error) => Err(error).context("cannot write the status of a CARotation"),
        }
    }

    async fn record_events(&self, rotation: &RotationObject, before: &CaRotationStatus, now: OffsetDateTime) {
        let (uid, status) = (rotation.uid(), &rotation.status);
        let message = status.message.as_deref().unwrap_or_default();
        let regarding = || rotation.object.object_ref(&self.resource);
        if status.phase != before.phase
            && let Some(phase) = status.phase
        {
            let event = NewEvent::normal("Rotating", phase.as_str(), message);
            self.events.record(regarding(), event, now).await;
        }
        let Some(held) = status.held() else { return self.clear_warning(&uid) };
        if warning_time(status).is_some_and(|time| time <= now) && self.take_warning(&uid) {
            let event = NewEvent::warning("Rotating", held.reason.as_str(), held.message.as_str());
            self.events.warn(regarding(), event, now).await;
        }
    }

    async fn report_unknown_signer(&self, rotation: RotationObject, name: &str) -> anyhow::Result<Requeue> {
        let now = (self.clock)();
        let observed = RotationObservation {
            position: AuthorityPosition::Unavailable(format!("no custom signer {name} runs")),
            is_generated: false,
            canary: None,
            main: None,
            leaves: None,
            dependents: DependentSigners::default(),
            canary_since: None,
            renewing_since: None,
        };
        let mut decision = derive(&RotationPolicy::from(&rotation.spec), &observed, now);
        decision.phase = keep_phase(&decision, &observed.position, &rotation.status);
        let generation = rotation.object.metadata.generation;
        let facts = StatusFacts { generation, ..StatusFacts::default() };
        match self.report(rotation, &decision, facts, now).await? {
            Some(_) => Ok(Requeue::Done),
            None => Ok(requeue_changed()),
        }
    }
}

enum RotationProgress {
    /// The next step may be possible at once.
    Again,
    /// Something has to change first.
    Waits,
    /// The step failed and is tried again.
    Failed(String),
}

impl SignerSnapshot {
    pub(super) fn identity(&self, role: AuthorityRole) -> Option<&AuthorityIdentity> {
        match (&self.observed.position, role) {
            (
                AuthorityPosition::Prepared { old, .. } | AuthorityPosition::Switched { old, .. },
                AuthorityRole::Old,
            ) => Some(old),
            (
                AuthorityPosition::Prepared { new, .. } | AuthorityPosition::Switched { new, .. },
                AuthorityRole::New,
            ) => Some(new),
            _ => None,
        }
    }
}

/// Returns when an Event warns about the hold of a rotation; `None` if it is not held.
fn warning_time(status: &CaRotationStatus) -> Option<OffsetDateTime> {
    let since = timestamp::parse(&status.held()?.last_transition_time).ok()?;
    Some(since.saturating_add(WARN_AFTER))
}

/// States of the authority that does not sign, for the status of the signer.
fn authority_states(policy: &RotationPolicy, position: &AuthorityPosition) -> BTreeMap<String, &'static str> {
    match position {
        AuthorityPosition::Prepared { new, .. } if !policy.rollback => {
            BTreeMap::from([(new.anchor.clone(), "Prepared")])
        }
        AuthorityPosition::Switched { old, .. } if policy.compromised => {
            BTreeMap::from([(old.anchor.clone(), "Tainted")])
        }
        _ => BTreeMap::new(),
    }
}

/// Without a usable CA nothing is known about the phase, and the rotation has not gone back to its beginning. This is
/// so for a moment whenever controllers start, before they have read the signers.
fn keep_phase(
    decision: &RotationDecision,
    position: &AuthorityPosition,
    status: &CaRotationStatus,
) -> RotationPhase {
    match (position, status.phase) {
        (AuthorityPosition::Unavailable(_), Some(recorded)) => recorded,
        _ => decision.phase,
    }
}

/// Leaves of a compromised authority are revoked before the rotation ends.
fn without_end(decision: RotationDecision) -> RotationDecision {
    match decision.phase {
        RotationPhase::Completed => RotationDecision { phase: RotationPhase::Retiring, ..decision },
        _ => decision,
    }
}
