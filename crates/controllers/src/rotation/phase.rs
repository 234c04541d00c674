//! Derives phase and next step of a rotation from what is observed: a pure function.
//!
//! A rotation has a target, the authority that is active at its end, and a source, the other one. Forward, the target is
//! the new authority; a rollback has the same steps with the old one as its target. Until the target is active, its anchor
//! is published and waited for; from then on, leaves of the source are renewed and its anchor is removed. There is one
//! step at a time, and it is derived again after each.

#[cfg(test)]
mod tests;

use time::OffsetDateTime;
use windlass_api::ca_rotation::{CaRotationConsumers, HeldReason, LaggardReason, RotationPhase};
use windlass_api::timestamp;

use super::consumers::{self, LaggingConsumer};
use super::observation::{
    AuthorityIdentity, AuthorityPosition, AuthorityRole, BundleObservation, BundleOwner, BundleRole,
    LeafCount, NewAuthoritySource, RotationObservation,
};
use super::policy::RotationPolicy;

/// Reason and message of a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotationHold {
    /// Reason of the condition `Held`.
    pub reason: HeldReason,
    /// One sentence that says what is waited for and what to do.
    pub message: String,
}

/// A write that brings a rotation forward. Each is guarded by the version of the object that was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RotationAction {
    Prepare,
    /// Write a bundle with these anchors of the rotation. Other anchors stay.
    WriteBundle {
        bundle: BundleRole,
        /// Whether it has the anchor of the old authority.
        old: bool,
        /// Whether it has the anchor of the new authority.
        new: bool,
        /// Authority whose leaves agents renew; `None` if none.
        taint: Option<AuthorityRole>,
    },
    Switch(AuthorityRole),
    /// Mark the new authority as withdrawn, before its anchor is removed: a switch that was decided before, by another
    /// controller or before a crash, fails then.
    Withdraw,
    /// Remove the new authority, which is not used.
    Discard,
    /// Set `spec.rollback` of the rotation, for this reason. It is stored, because what has failed may recover.
    RollBack(String),
}

/// Phase of a rotation, what to do next, and what it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotationDecision {
    /// Phase that follows from what is observed, for the status.
    pub phase: RotationPhase,
    /// Next write; `None` if nothing is to be done now.
    pub action: Option<RotationAction>,
    /// Why nothing is done; `None` if something is, or the rotation has ended.
    pub hold: Option<RotationHold>,
    /// Consumers that lack what they should have, whether or not the rotation waits for them now.
    pub laggards: Vec<LaggingConsumer>,
    pub consumers: CaRotationConsumers,
    /// When to derive again although nothing has changed.
    pub recheck: Option<OffsetDateTime>,
    /// Whether a rollback was requested after the old anchor was removed, and is therefore ignored.
    pub is_rollback_refused: bool,
}

/// Derives the phase of a rotation that has not ended.
pub fn derive(
    policy: &RotationPolicy,
    observed: &RotationObservation,
    now: OffsetDateTime,
) -> RotationDecision {
    let mut decision = match &observed.position {
        AuthorityPosition::Unavailable(cause) => {
            let message = format!("the signer has no usable CA: {cause}");
            Outcome::held(RotationPhase::Preparing, HeldReason::CaUnavailable, message)
        }
        // Nothing was introduced, or it is gone.
        AuthorityPosition::Unprepared(_) if policy.rollback => Outcome::end(RotationPhase::RolledBack),
        AuthorityPosition::Unprepared(NewAuthoritySource::Generated) => {
            Outcome::act(RotationPhase::Preparing, RotationAction::Prepare)
        }
        AuthorityPosition::Unprepared(NewAuthoritySource::Provided(how)) => {
            Outcome::held(RotationPhase::Preparing, HeldReason::CaUnavailable, how.clone())
        }
        AuthorityPosition::Prepared { is_withdrawn: false, .. }
            if policy.rollback && observed.is_generated =>
        {
            Outcome::act(RotationPhase::RollingBack, RotationAction::Withdraw)
        }
        AuthorityPosition::Prepared { old, new, .. } => {
            let back = policy.rollback;
            Course { policy, observed, now, old, new, active: AuthorityRole::Old, back }.derive()
        }
        AuthorityPosition::Switched { old, new, is_reversible } => {
            let mut bundles = observed.bundles();
            // Once it was removed anywhere, a consumer may have loaded the rest.
            let has_old = bundles.all(|(_, each)| each.owner == BundleOwner::Foreign || each.has(old));
            let back = policy.rollback && *is_reversible && has_old;
            let course = Course { policy, observed, now, old, new, active: AuthorityRole::New, back };
            let mut decision = course.derive();
            decision.is_rollback_refused = policy.rollback && !back;
            decision
        }
    };
    add_stale_consumers(&mut decision, policy, observed);
    decision.consumers = consumers::count(policy, observed);
    if policy.paused && !decision.phase.is_final() {
        decision.action = None;
        let message = "the rotation is paused; it continues when spec.paused is false".to_owned();
        decision.hold = Some(RotationHold { reason: HeldReason::Paused, message });
    }
    decision
}

/// Consumers without the present anchors are reported in every phase, whether or not they are waited for.
fn add_stale_consumers(
    decision: &mut RotationDecision,
    policy: &RotationPolicy,
    observed: &RotationObservation,
) {
    let reason = LaggardReason::NotWritten;
    let stale = observed.bundles().filter_map(|(_, bundle)| consumers::stale(policy, bundle, reason));
    for laggard in stale.flatten() {
        if !decision.laggards.iter().any(|each| each.name == laggard.name) {
            decision.laggards.push(laggard);
        }
    }
}

struct Outcome;

impl Outcome {
    fn end(phase: RotationPhase) -> RotationDecision {
        RotationDecision {
            phase,
            action: None,
            hold: None,
            laggards: Vec::new(),
            consumers: CaRotationConsumers::default(),
            recheck: None,
            is_rollback_refused: false,
        }
    }

    fn act(phase: RotationPhase, action: RotationAction) -> RotationDecision {
        RotationDecision { action: Some(action), ..Outcome::end(phase) }
    }

    fn held(phase: RotationPhase, reason: HeldReason, message: String) -> RotationDecision {
        RotationDecision { hold: Some(RotationHold { reason, message }), ..Outcome::end(phase) }
    }
}

/// A rotation with both authorities, in one direction.
struct Course<'a> {
    policy: &'a RotationPolicy,
    observed: &'a RotationObservation,
    now: OffsetDateTime,
    old: &'a AuthorityIdentity,
    new: &'a AuthorityIdentity,
    active: AuthorityRole,
    back: bool,
}

/// Whether the anchor of the source may be removed.
enum RetirementState {
    Allowed,
    /// It is not removed now, for this reason. If leaves depend on it, it is restored where it was removed.
    Waits {
        reason: HeldReason,
        message: String,
        restore: bool,
        until: Option<OffsetDateTime>,
    },
}

impl<'a> Course<'a> {
    fn derive(&self) -> RotationDecision {
        match self.active == self.target() {
            false => self.introduce(),
            true => self.retire(),
        }
    }

    fn target(&self) -> AuthorityRole {
        if self.back { AuthorityRole::Old } else { AuthorityRole::New }
    }

    fn identity(&self, role: AuthorityRole) -> &'a AuthorityIdentity {
        match role {
            AuthorityRole::Old => self.old,
            AuthorityRole::New => self.new,
        }
    }

    fn target_identity(&self) -> &'a AuthorityIdentity {
        self.identity(self.target())
    }

    fn source_identity(&self) -> &'a AuthorityIdentity {
        self.identity(self.target().other())
    }

    /// A new intermediate below the same root has the same anchor.
    fn is_same_anchor(&self) -> bool {
        self.old.anchor == self.new.anchor
    }

    fn phase(&self, forward: RotationPhase) -> RotationPhase {
        if self.back { RotationPhase::RollingBack } else { forward }
    }

    fn write(&self, bundle: BundleRole, source: bool, taint: bool) -> RotationAction {
        let (old, new) = match self.target() {
            AuthorityRole::New => (source, true),
            AuthorityRole::Old => (true, source),
        };
        RotationAction::WriteBundle { bundle, old, new, taint: taint.then(|| self.target().other()) }
    }

    /// Publishes the anchor of the target, waits for consumers, and switches.
    fn introduce(&self) -> RotationDecision {
        let main = self.observed.main.as_ref();
        if let Some(decision) = self.keep_active() {
            return decision;
        }
        if let Some(canary) = &self.observed.canary {
            let phase = self.phase(RotationPhase::PublishingCanary);
            if let Some(decision) = self.publish_union(phase, BundleRole::Canary, canary) {
                return decision;
            }
            // A main bundle with the anchor has followed the canary already.
            let is_behind = main.is_some_and(|main| !main.has(self.target_identity()));
            if let Some(decision) = is_behind.then(|| self.check_canary(phase, canary)).flatten() {
                return decision;
            }
        }
        if let Some(main) = main
            && let Some(decision) =
                self.publish_union(self.phase(RotationPhase::Publishing), BundleRole::Main, main)
        {
            return decision;
        }
        let phase = self.phase(RotationPhase::WaitingForTrust);
        if let Some(decision) =
            self.wait_for_trust(phase, self.observed.bundles().map(|(_, bundle)| bundle), 0)
        {
            return decision;
        }
        Outcome::act(self.phase(RotationPhase::Switching), RotationAction::Switch(self.target()))
    }

    /// Restores the anchor of the active authority where somebody removed it: valid leaves depend on it.
    fn keep_active(&self) -> Option<RotationDecision> {
        let mut own = self.observed.bundles().filter(|(_, bundle)| bundle.owner == BundleOwner::Windlass);
        let (role, bundle) = own.find(|(_, bundle)| !bundle.has(self.source_identity()))?;
        let has_target = bundle.has(self.target_identity());
        let (old, new) = match self.target() {
            AuthorityRole::New => (true, has_target),
            AuthorityRole::Old => (has_target, true),
        };
        let forward = match role {
            BundleRole::Canary => RotationPhase::PublishingCanary,
            BundleRole::Main => RotationPhase::Publishing,
        };
        let action = RotationAction::WriteBundle { bundle: role, old, new, taint: None };
        Some(Outcome::act(self.phase(forward), action))
    }

    /// Both anchors belong into every bundle as long as the source is active.
    fn publish_union(
        &self,
        phase: RotationPhase,
        role: BundleRole,
        bundle: &BundleObservation,
    ) -> Option<RotationDecision> {
        let has_target = bundle.has(self.target_identity());
        match bundle.owner {
            BundleOwner::Foreign if !has_target => {
                Some(Outcome::held(phase, HeldReason::NotPublished, foreign_message(bundle)))
            }
            BundleOwner::Foreign => None,
            // An anchor that somebody removed by hand is restored: valid leaves depend on it.
            BundleOwner::Windlass => {
                let is_right = has_target && bundle.has(self.source_identity()) && bundle.tainted.is_empty();
                (!is_right).then(|| Outcome::act(phase, self.write(role, true, false)))
            }
        }
    }

    fn check_canary(&self, phase: RotationPhase, canary: &BundleObservation) -> Option<RotationDecision> {
        let tolerated = self.policy.max_canary_failures;
        if let Some(decision) = self.check_failures(phase, canary) {
            return Some(decision);
        }
        if let Some(decision) = self.wait_for_trust(phase, std::iter::once(canary), tolerated) {
            return Some(decision);
        }
        if self.back || self.policy.compromised {
            return None;
        }
        let soak = time::Duration::try_from(self.policy.soak_time).unwrap_or(time::Duration::MAX);
        let until = self.observed.canary_since.unwrap_or(self.now).saturating_add(soak);
        (self.now < until).then(|| {
            let message = format!("the canary bundle soaks until {}", timestamp::format(until));
            let held = Outcome::held(phase, HeldReason::CanarySoaking, message);
            RotationDecision { recheck: Some(until), ..held }
        })
    }

    /// Rolls back if too many consumers of the canary have failed. Nothing besides the canary bundle has changed then. A
    /// compromised authority is not returned to.
    fn check_failures(&self, phase: RotationPhase, canary: &BundleObservation) -> Option<RotationDecision> {
        let failed = consumers::failed(self.policy, canary);
        let count: u64 = failed.iter().map(|each| u64::from(each.volumes)).sum();
        let first = failed.first()?;
        let is_tolerated = usize::try_from(count).is_ok_and(|count| count <= self.policy.max_canary_failures);
        if is_tolerated || self.back || self.policy.compromised {
            return None;
        }
        let reason = format!(
            "the canary has failed, and the rotation is rolled back: {count} of its consumers, the first is {}: {}",
            first.name, first.message
        );
        let decision = Outcome::act(phase, RotationAction::RollBack(reason));
        Some(RotationDecision { laggards: failed, ..decision })
    }

    /// Waits until consumers have bundles, and have read them where that is required. A rollback does not wait for reads:
    /// consumers had the old anchor all the time.
    fn wait_for_trust<'b>(
        &self,
        phase: RotationPhase,
        bundles: impl Iterator<Item = &'b BundleObservation> + Clone,
        tolerated: usize,
    ) -> Option<RotationDecision> {
        let reason = LaggardReason::NotWritten;
        let stale: Option<Vec<Vec<LaggingConsumer>>> =
            bundles.clone().map(|bundle| consumers::stale(self.policy, bundle, reason)).collect();
        let Some(stale) = stale else { return Some(reports_unavailable(phase)) };
        let stale = stale.concat();
        if stale.len() > tolerated {
            return Some(lagging_decision(phase, HeldReason::ConsumersLagging, stale));
        }
        if self.back || self.policy.compromised || !self.policy.require_read {
            return None;
        }
        let unread = bundles.filter_map(|bundle| consumers::unread(self.policy, bundle));
        let unread: Vec<LaggingConsumer> = unread.flatten().collect();
        let is_held = unread.len() > tolerated;
        is_held.then(|| lagging_decision(phase, HeldReason::ConsumersNotRead, unread))
    }

    /// Renews the leaves of the source and removes its anchor.
    fn retire(&self) -> RotationDecision {
        let renewing = self.phase(RotationPhase::Renewing);
        let retirement = self.retirement();
        let restores = matches!(retirement, RetirementState::Waits { restore: true, .. });
        let has_begun = self.has_retirement_begun();
        for (role, bundle) in self.observed.bundles() {
            if let Some(decision) = self.keep_target(renewing, role, bundle, restores) {
                return decision;
            }
        }
        match retirement {
            RetirementState::Waits { reason, message, until, restore } => {
                let window_end = self.renewal_end().filter(|_| restore);
                let held = match window_end {
                    // Agents renew as planned.
                    Some(_) => Outcome::end(renewing),
                    None => Outcome::held(renewing, reason, message),
                };
                RotationDecision { recheck: window_end.or(until), ..held }
            }
            RetirementState::Allowed if self.is_same_anchor() => self.finish(),
            RetirementState::Allowed => {
                let phase = if has_begun { self.phase(RotationPhase::Retiring) } else { renewing };
                self.remove_source(phase)
            }
        }
    }

    /// Restores what a bundle lacks after the switch: the target's anchor, the taint, and the source's anchor if leaves
    /// depend on it.
    fn keep_target(
        &self,
        phase: RotationPhase,
        role: BundleRole,
        bundle: &BundleObservation,
        restores: bool,
    ) -> Option<RotationDecision> {
        let (source, has_source) = (self.source_identity(), bundle.has(self.source_identity()));
        let has_target = bundle.has(self.target_identity());
        if bundle.owner == BundleOwner::Foreign {
            let held = || Outcome::held(phase, HeldReason::NotPublished, foreign_message(bundle));
            return (!has_target).then(held);
        }
        let keeps_source = has_source || restores;
        let taints = keeps_source && self.old.id != self.new.id;
        let is_tainted = bundle.tainted.contains(&source.id);
        let is_right = has_target && has_source == keeps_source && (is_tainted || !taints);
        (!is_right).then(|| Outcome::act(phase, self.write(role, keeps_source, taints || is_tainted)))
    }

    /// Whether the source's anchor was removed from a bundle already.
    fn has_retirement_begun(&self) -> bool {
        let mut own = self.observed.bundles().filter(|(_, bundle)| bundle.owner == BundleOwner::Windlass);
        own.any(|(_, bundle)| !bundle.has(self.source_identity()))
    }

    fn retirement(&self) -> RetirementState {
        let early = self.policy.retire_not_before.filter(|time| *time > self.now && !self.back);
        let is_waived = self.is_waived();
        if is_waived && early.is_none() {
            return RetirementState::Allowed;
        }
        let Some(leaves) = self.observed.leaves else {
            return RetirementState::Waits {
                reason: HeldReason::LedgerUnavailable,
                message: "the ledger was not read, so it is not known which leaves are in use; see the log of the controllers"
                    .to_owned(),
                restore: false,
                until: None,
            };
        };
        let LeafCount { outstanding, latest_expiry, .. } = leaves.of(self.target().other());
        if outstanding > 0 && !is_waived {
            let until = latest_expiry.map(timestamp::format).unwrap_or_default();
            return RetirementState::Waits {
                reason: HeldReason::LeavesOutstanding,
                message: format!(
                    "{outstanding} leaves of the {} authority are in use; the last one expires at {until}",
                    self.source_name()
                ),
                restore: !self.is_same_anchor(),
                until: latest_expiry,
            };
        }
        match early {
            Some(time) => RetirementState::Waits {
                reason: HeldReason::LeavesOutstanding,
                message: format!("spec.retirement.notBefore is {}", timestamp::format(time)),
                restore: false,
                until: Some(time),
            },
            None => RetirementState::Allowed,
        }
    }

    /// Whether leaves of the source may break. Only the old authority can be compromised.
    fn is_waived(&self) -> bool {
        self.policy.accept_outstanding_leaves || (self.policy.compromised && !self.back)
    }

    /// Returns when agents should have renewed their leaves; `None` if that time has passed.
    fn renewal_end(&self) -> Option<OffsetDateTime> {
        let window = self.policy.effective_renewal_window();
        let window = time::Duration::try_from(window).unwrap_or(time::Duration::MAX);
        let since = self.observed.renewing_since.unwrap_or(self.now);
        Some(since.saturating_add(window)).filter(|end| *end > self.now)
    }

    fn source_name(&self) -> &'static str {
        match self.target().other() {
            AuthorityRole::Old => "old",
            AuthorityRole::New => "new",
        }
    }

    /// Removes the source's anchor from one bundle after the other, and waits for the proof of its absence.
    fn remove_source(&self, phase: RotationPhase) -> RotationDecision {
        let retiring = self.phase(RotationPhase::Retiring);
        for (role, bundle) in self.observed.bundles() {
            if bundle.has(self.source_identity()) && bundle.owner == BundleOwner::Windlass {
                let dependents = self.observed.dependents.of(self.target().other());
                if !dependents.is_empty() && !self.policy.accept_outstanding_leaves {
                    let lagging = dependents.iter().map(|name| consumers::dependent_signer(name)).collect();
                    return lagging_decision(phase, HeldReason::ConsumersLagging, lagging);
                }
                if let Some(decision) = self.wait_for_updates(phase, bundle) {
                    return decision;
                }
                let is_needed = self
                    .observed
                    .leaves
                    .is_none_or(|leaves| leaves.of(self.target().other()).outstanding > 0);
                return Outcome::act(
                    retiring,
                    self.write(role, false, is_needed && self.old.id != self.new.id),
                );
            }
            match consumers::stale(self.policy, bundle, LaggardReason::StillPresent) {
                None => return reports_unavailable(retiring),
                Some(stale) if !stale.is_empty() => {
                    return lagging_decision(retiring, HeldReason::ConsumersLagging, stale);
                }
                Some(_) => {}
            }
        }
        self.finish()
    }

    /// Waits for consumers that lack the union, and may lack the target's anchor, and for those that cannot store a renewed
    /// leaf, unless leaves of the source may break.
    fn wait_for_updates(&self, phase: RotationPhase, bundle: &BundleObservation) -> Option<RotationDecision> {
        let stale = consumers::stale(self.policy, bundle, LaggardReason::NotWritten);
        // In a rollback, they had the target's anchor from the beginning.
        let stale = stale.map(|stale| if self.back { Vec::new() } else { stale });
        let source = self.target().other();
        let has_signed = self.observed.leaves.is_none_or(|leaves| leaves.of(source).issued > 0);
        let blocked = match self.is_waived() || !has_signed {
            true => Some(Vec::new()),
            false => consumers::blocked(self.policy, bundle),
        };
        let (Some(mut lagging), Some(blocked)) = (stale, blocked) else {
            return Some(reports_unavailable(phase));
        };
        for consumer in blocked {
            if !lagging.iter().any(|each| each.name == consumer.name) {
                lagging.push(consumer);
            }
        }
        (!lagging.is_empty()).then(|| lagging_decision(phase, HeldReason::ConsumersLagging, lagging))
    }

    fn finish(&self) -> RotationDecision {
        match self.back {
            false => Outcome::end(RotationPhase::Completed),
            true if self.observed.is_generated => {
                Outcome::act(RotationPhase::RollingBack, RotationAction::Discard)
            }
            true => Outcome::end(RotationPhase::RolledBack),
        }
    }
}

fn lagging_decision(
    phase: RotationPhase,
    reason: HeldReason,
    laggards: Vec<LaggingConsumer>,
) -> RotationDecision {
    let first = laggards.first().map(|laggard| laggard.name.as_str()).unwrap_or_default();
    let (one, several) = match reason {
        HeldReason::ConsumersNotRead => (
            "has not read the trust anchors since they changed",
            "have not read the trust anchors since they changed",
        ),
        _ => ("does not have the present trust anchors", "do not have the present trust anchors"),
    };
    let message = match laggards.len() {
        1 => format!("{first} {one}"),
        count => format!("{count} consumers {several}; the first is {first}"),
    };
    RotationDecision { laggards, ..Outcome::held(phase, reason, message) }
}

fn reports_unavailable(phase: RotationPhase) -> RotationDecision {
    let message = "the NodeTrusts or Bundles were not listed, so it is not known who has the trust anchors; check the \
                   permissions of the controllers";
    Outcome::held(phase, HeldReason::ReportsUnavailable, message.to_owned())
}

fn foreign_message(bundle: &BundleObservation) -> String {
    format!(
        "another manager owns ClusterTrustBundle {}; add the trust anchor there, or delete the bundle",
        bundle.name
    )
}
