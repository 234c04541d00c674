//! Generation of CAs that are kept in Secrets, and when they are renewed.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::ByteString;
use time::OffsetDateTime;
use windlass_api::signer_name::SignerName;
use windlass_pki::{
    Certificate, CertificateAuthority, IntermediateTemplate, PrivateKey, Serial, SystemRandom, Validity,
};
use zeroize::Zeroizing;

use super::{CERTIFICATE, CaContext, KEY, SecretCa, SecretCaKind, expires_within};
use crate::ca::self_signed::{self, SelfSignedCaSpec};
use crate::ca::{CaError, SigningCa};
use crate::signers::config::{CaRecipe, IntermediatePolicy};

/// An intermediate is renewed only if the new one lasts longer than the present one by this.
const WORTHWHILE: time::Duration = time::Duration::minutes(1);

/// Certificate chain and key of a new CA, as PEM.
pub(super) struct GeneratedCa {
    chain: String,
    key: Zeroizing<String>,
}

impl GeneratedCa {
    fn new(authority: &CertificateAuthority, issuers: &[&Certificate]) -> anyhow::Result<GeneratedCa> {
        let chain = std::iter::once(authority.certificate()).chain(issuers.iter().copied());
        Ok(GeneratedCa { chain: chain.map(Certificate::to_pem).collect(), key: authority.key().to_pem()? })
    }

    /// Returns the entries of the Secret.
    pub(super) fn data(&self) -> BTreeMap<String, ByteString> {
        let entry = |name: &str, text: &str| (name.to_owned(), ByteString(text.as_bytes().to_vec()));
        [entry(CERTIFICATE, &self.chain), entry(KEY, &self.key)].into()
    }
}

/// CA of the issuing signer, and what it allows.
struct IssuingCa {
    ca: Arc<SigningCa>,
    policy: IntermediatePolicy,
}

impl SecretCa {
    /// Generates a CA, if it is not provided by somebody else.
    pub(super) async fn generate(
        &self,
        context: &CaContext,
        now: OffsetDateTime,
    ) -> Result<GeneratedCa, CaError> {
        let generation = match &self.kind {
            SecretCaKind::Provided | SecretCaKind::Token { .. } => {
                return Err(self.problem("it does not exist".to_owned()));
            }
            SecretCaKind::SelfSigned { recipe, .. } => {
                let recipe = recipe.clone();
                tokio::task::spawn_blocking(move || generate_self_signed(&recipe, now))
            }
            SecretCaKind::Issued { issuer, recipe } => {
                let issuing = self.issuing_ca(issuer, context, now).map_err(|error| self.problem(error))?;
                let recipe = recipe.clone();
                tokio::task::spawn_blocking(move || issue_intermediate(&recipe, &issuing, now))
            }
        };
        let generated = generation.await.context("generation panicked").and_then(|generated| generated);
        generated.map_err(|error| self.problem(format!("it cannot be generated: {error:#}")))
    }

    /// Whether a CA in the Secret is to be replaced by a new one.
    pub(super) fn is_due(&self, ca: &SigningCa, context: &CaContext, now: OffsetDateTime) -> bool {
        match &self.kind {
            SecretCaKind::Provided | SecretCaKind::Token { .. } => false,
            SecretCaKind::SelfSigned { renew_before, .. } => expires_within(ca, *renew_before, now),
            SecretCaKind::Issued { issuer, .. } => match self.issuing_ca(issuer, context, now) {
                Ok(issuing) => is_intermediate_due(ca, &issuing.ca, now),
                Err(_) => expires_within(ca, third_of_lifetime(ca), now),
            },
        }
    }

    /// Whether a new CA would have another trust anchor than the present one.
    pub(super) fn changes_anchor(&self, ca: &SigningCa, context: &CaContext, now: OffsetDateTime) -> bool {
        match &self.kind {
            SecretCaKind::Issued { issuer, .. } => {
                let issuing = self.issuing_ca(issuer, context, now);
                issuing.is_ok_and(|issuing| issuing.ca.anchor().der() != ca.anchor().der())
            }
            SecretCaKind::SelfSigned { .. } | SecretCaKind::Provided | SecretCaKind::Token { .. } => true,
        }
    }

    fn issuing_ca(
        &self,
        issuer: &SignerName,
        context: &CaContext,
        now: OffsetDateTime,
    ) -> Result<IssuingCa, String> {
        let signers = context.signers.borrow().clone();
        let found = signers.iter().find(|each| each.custom.name == *issuer);
        let found = found.ok_or_else(|| format!("the issuing signer {issuer} does not exist"))?;
        let allowed = |policy: &&IntermediatePolicy| policy.signer_names.contains(&self.signer);
        let policy = found.custom.intermediates.as_ref().filter(allowed).cloned().ok_or_else(|| {
            format!("the signer {issuer} does not issue an intermediate for {}", self.signer)
        })?;
        let ca = found
            .rollout
            .select_ca(now)
            .map_err(|hold| format!("the signer {issuer} cannot issue it: {}", hold.message))?;
        Ok(IssuingCa { ca, policy })
    }
}

/// Whether an intermediate is replaced: it has used two thirds of its lifetime, or its issuer has a new CA. Near the end
/// of the issuer's CA a new intermediate would not last longer, so it is not replaced again and again.
fn is_intermediate_due(ca: &SigningCa, issuer: &SigningCa, now: OffsetDateTime) -> bool {
    let is_of_issuer = ca.issuers.iter().any(|each| each.der() == issuer.certificate().der());
    let lasts_longer = issuer.validity().not_after() > ca.validity().not_after() + WORTHWHILE;
    !is_of_issuer || (lasts_longer && expires_within(ca, third_of_lifetime(ca), now))
}

fn third_of_lifetime(ca: &SigningCa) -> std::time::Duration {
    let validity = ca.certificate().validity();
    let lifetime = validity.not_after() - validity.not_before();
    std::time::Duration::try_from(lifetime).unwrap_or_default() / 3
}

fn generate_self_signed(recipe: &CaRecipe, now: OffsetDateTime) -> anyhow::Result<GeneratedCa> {
    let spec = SelfSignedCaSpec { key: recipe.key, subject: &recipe.subject, lifetime: recipe.duration };
    GeneratedCa::new(&self_signed::generate_authority(spec, now)?, &[])
}

fn issue_intermediate(
    recipe: &CaRecipe,
    issuing: &IssuingCa,
    now: OffsetDateTime,
) -> anyhow::Result<GeneratedCa> {
    let IssuingCa { ca, policy } = issuing;
    let lifetime = recipe.duration.min(policy.max_duration);
    let lifetime = time::Duration::try_from(lifetime).unwrap_or(time::Duration::MAX);
    let until = now.saturating_add(lifetime).min(ca.validity().not_after());
    let validity = Validity::new(now - self_signed::BACKDATE, until)?;
    let (key, serial) = (PrivateKey::generate_type(recipe.key)?, Serial::random(&SystemRandom::new())?);
    let template = IntermediateTemplate {
        subject: &recipe.subject,
        validity,
        serial,
        max_path_length: Some(policy.max_path_length),
        crl_distribution_points: &[],
    };
    let authority = ca.authority().issue_intermediate(&template, key)?;
    GeneratedCa::new(&authority, &ca.full_chain().collect::<Vec<_>>())
}
