//! Takes the steps of a rotation. Each is one write, which the server rejects if its object has changed since it was read.

use anyhow::Context as _;
use kube::api::DynamicObject;
use kube::{Api, ResourceExt as _};
use time::OffsetDateTime;

use super::authorities::{KnownAuthority, RotationAuthorities};
use super::controller::{RotationController, RotationObject};
use super::observation::{AuthorityPosition, AuthorityRole, BundleRole};
use super::phase::RotationAction;
use super::policy::RotationPolicy;
use super::reconcile::SignerSnapshot;
use super::trust_bundle::AnchorChange;
use crate::ca::secret::SlotChange;
use crate::publisher::anchors::TrustAnchor;
use crate::signers::CustomSigner;

/// What a bundle is to contain of a rotation's anchors.
struct BundlePresence {
    role: BundleRole,
    old: bool,
    new: bool,
    taint: Option<AuthorityRole>,
}

impl RotationController {
    /// Takes a step. Returns whether it was taken: not if an object has changed since it was observed.
    pub(super) async fn execute(
        &self,
        signer: &CustomSigner,
        rotation: &RotationObject,
        policy: &RotationPolicy,
        snapshot: &SignerSnapshot,
        action: &RotationAction,
    ) -> anyhow::Result<bool> {
        let name = signer.custom.name.as_str();
        tracing::info!(signer = name, rotation = rotation.object.name_any(), ?action, "step of a rotation");
        let now = (self.clock)();
        match action {
            RotationAction::WriteBundle { bundle, old, new, taint } => {
                let presence = BundlePresence { role: *bundle, old: *old, new: *new, taint: *taint };
                self.write_bundle(signer, policy, snapshot, presence, now).await
            }
            RotationAction::Switch(role) if !signer.ca.is_generated() => {
                let identity = snapshot.identity(*role).context("the authority is not known")?;
                let main = snapshot.bundle(BundleRole::Main).context("the signer has no bundle")?;
                main.write_active(&self.bundle_api(snapshot)?, &identity.anchor).await
            }
            RotationAction::Switch(AuthorityRole::New) => {
                self.change_slots(signer, snapshot, SlotChange::Switch).await
            }
            RotationAction::Switch(AuthorityRole::Old) => {
                self.change_slots(signer, snapshot, SlotChange::SwitchBack).await
            }
            RotationAction::Withdraw => self.change_slots(signer, snapshot, SlotChange::Withdraw).await,
            RotationAction::Discard => self.change_slots(signer, snapshot, SlotChange::DiscardNext).await,
            RotationAction::Prepare => {
                let (secret_ca, secret) = signer
                    .ca
                    .secret()
                    .zip(snapshot.authorities.secret.as_ref())
                    .context("the CA is not in a Secret")?;
                let prepared = secret_ca.prepare_next(secret, &rotation.uid(), &self.context, now).await;
                prepared.map_err(|error| anyhow::anyhow!(error.detail))
            }
        }
    }

    async fn change_slots(
        &self,
        signer: &CustomSigner,
        snapshot: &SignerSnapshot,
        change: SlotChange,
    ) -> anyhow::Result<bool> {
        let (secret_ca, secret) = signer
            .ca
            .secret()
            .zip(snapshot.authorities.secret.as_ref())
            .context("the CA is not in a Secret")?;
        let changed = secret_ca.change_slots(secret, change, &self.context).await;
        changed.map_err(|error| anyhow::anyhow!(error.detail))
    }

    fn bundle_api(&self, snapshot: &SignerSnapshot) -> anyhow::Result<Api<DynamicObject>> {
        let resource = snapshot.bundle_resource.as_ref().context("ClusterTrustBundles are not served")?;
        Ok(Api::all_with(self.client.clone(), resource))
    }

    async fn write_bundle(
        &self,
        signer: &CustomSigner,
        policy: &RotationPolicy,
        snapshot: &SignerSnapshot,
        presence: BundlePresence,
        now: OffsetDateTime,
    ) -> anyhow::Result<bool> {
        let bundle = snapshot.bundle(presence.role).context("the signer has no such bundle")?;
        let resource = snapshot.bundle_resource.as_ref().context("ClusterTrustBundles are not served")?;
        let authorities = &snapshot.authorities;
        let is_switched = matches!(authorities.position, AuthorityPosition::Switched { .. });
        let mut roles = [(AuthorityRole::New, presence.new), (AuthorityRole::Old, presence.old)];
        if !is_switched {
            roles.reverse();
        }
        let (mut anchors, mut removed): (Vec<TrustAnchor>, Vec<TrustAnchor>) = Default::default();
        for (role, is_present) in roles {
            let anchor = authorities.anchor(role).context("a trust anchor is not known any more")?;
            if is_present { anchors.push(anchor) } else { removed.push(anchor) }
        }
        anchors.dedup();
        removed.retain(|anchor| !anchors.contains(anchor));
        let active = if is_switched { AuthorityRole::New } else { AuthorityRole::Old };
        let active = snapshot.identity(active).context("the authority is not known")?.anchor.clone();
        let taint = presence.taint.and_then(|role| snapshot.identity(role));
        let window = policy.effective_renewal_window();
        let change = AnchorChange {
            anchors,
            removed,
            active,
            taint: taint.map(|identity| (identity.id.clone(), window)),
            max_duration: signer.max_duration(),
        };
        bundle.write(&self.bundle_api(snapshot)?, resource, &change, now).await
    }
}

impl RotationAuthorities {
    /// Returns the anchor of an authority. One that nobody has any more is represented by the other.
    fn anchor(&self, role: AuthorityRole) -> Option<TrustAnchor> {
        let of =
            |authority: &Option<KnownAuthority>| authority.as_ref().and_then(|known| known.anchor.clone());
        match role {
            AuthorityRole::Old => of(&self.old).or_else(|| of(&self.new)),
            AuthorityRole::New => of(&self.new),
        }
    }
}
