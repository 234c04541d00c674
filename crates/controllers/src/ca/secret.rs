//! A CA in a Secret of type `kubernetes.io/tls` in the signer namespace: provided by somebody else, or generated and
//! renewed here.
//!
//! A generated CA is created once and never overwritten while it is valid, whatever its Secret contains: of several
//! controllers that start together, one creates the Secret and the others use it. A renewed CA has a new key. A rotation
//! prepares it in another slot of the Secret (`slots`); where there are no rotations, it replaces the present one.

mod generation;
mod slots;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt as _};
use time::OffsetDateTime;
use tokio::sync::watch;
use windlass_api::signer_name::SignerName;
use windlass_pki::{CertificateAuthority, ExternalKey};
use windlass_runtime::backoff::Backoff;
use windlass_runtime::client_error::describe;
use windlass_runtime::watch::{ObjectWatch, WatchError};

use super::{CaError, CaSource, SigningCa, VALIDITY_CHECK};
use crate::csr::{is_conflict, is_not_found};
use crate::pkcs11::{TokenKey, TokenModule, TokenUri};
use crate::signers::SignerList;
use crate::signers::config::{CaRecipe, MANAGED_BY};
use crate::signers::rollout::RolloutGovernance;

use generation::GeneratedCa;

pub(crate) use slots::{CaSlots, SlotChange};

/// Annotation of a Secret with the name of the only signer that may use it. Required on every Secret with a CA.
pub const SIGNER_ANNOTATION: &str = "windlass.dev/signer-name";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// Key of the issuer's certificate, as cert-manager writes it.
const ISSUER: &str = "ca.crt";
/// Delay before a CA that could not be generated or read is tried again.
const RETRY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));

/// The Secret of a CA, and who writes it.
#[derive(Clone, Debug)]
pub struct SecretCa {
    /// Namespace of the Secret: that of `--signer-namespace`.
    pub namespace: String,
    /// Name of the Secret, which the Signer gives or which is derived from its name.
    pub name: String,
    /// Signer that uses the CA.
    pub signer: SignerName,
    /// Who writes the Secret, and with which contents.
    pub kind: SecretCaKind,
}

/// Who writes the Secret of a CA.
#[derive(Clone, Debug)]
pub enum SecretCaKind {
    /// Somebody else, such as an administrator or cert-manager.
    Provided,
    /// The controllers, with a self-signed CA.
    SelfSigned {
        /// Key type, subject and lifetime of a generated CA.
        recipe: CaRecipe,
        /// Remaining lifetime at which it is renewed.
        renew_before: Duration,
    },
    /// The controllers, with an intermediate CA of another signer.
    Issued {
        /// Signer that issues the CA certificate.
        issuer: SignerName,
        /// Key type, subject and lifetime of a generated CA.
        recipe: CaRecipe,
    },
    /// Somebody else, with the certificate only: the key is in a PKCS#11 token.
    Token {
        /// URI of the private key, without module and PIN.
        uri: TokenUri,
        /// Library that reaches the token.
        module: Arc<TokenModule>,
    },
}

/// How a CA that is due is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RenewalMethod {
    /// A rotation prepares a new one.
    Rotate,
    /// The new one replaces it at once.
    Replace,
    /// It is not known yet, or a rotation runs.
    Wait,
}

/// What sources need besides files.
#[derive(Clone)]
pub struct CaContext {
    /// Client with access to Secrets in the signer namespace.
    pub client: Client,
    /// Signers that may issue intermediates.
    pub signers: watch::Receiver<SignerList>,
}

/// Watches the Secret of a source, and generates and renews its CA.
pub(super) async fn run(source: &CaSource, secret: &SecretCa, context: CaContext) -> Infallible {
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &secret.namespace);
    let selector = format!("metadata.name={}", secret.name);
    let mut watch = ObjectWatch::with_fields(api, Some(&selector));
    let mut known = KnownSecret::default();
    let mut failures = 0;
    loop {
        let pause = match &known.listed {
            None => VALIDITY_CHECK,
            Some(found) => match secret.reconcile(source, found.as_deref(), &context).await {
                Ok(()) => {
                    failures = 0;
                    VALIDITY_CHECK
                }
                Err(problem) => {
                    source.reject(problem);
                    failures += 1;
                    RETRY.delay(failures - 1, rand::random())
                }
            },
        };
        tokio::select! {
            event = watch.next() => if let Err(error) = known.observe(event) {
                source.reject(secret.unreadable(&error.message));
            },
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// The Secret as the watch last saw it.
#[derive(Default)]
struct KnownSecret {
    /// `None` until the first list has ended; then the Secret, if it exists.
    listed: Option<Option<Arc<Secret>>>,
    listing: Option<Arc<Secret>>,
}

impl KnownSecret {
    /// Takes an event. Returns the error if the Secret was never read.
    fn observe(&mut self, event: Result<Event<Secret>, WatchError>) -> Result<(), WatchError> {
        match event {
            Ok(Event::Init) => self.listing = None,
            Ok(Event::InitApply(secret)) => self.listing = Some(Arc::new(secret)),
            Ok(Event::InitDone) => self.listed = Some(self.listing.take()),
            Ok(Event::Apply(secret)) => self.listed = Some(Some(Arc::new(secret))),
            Ok(Event::Delete(_)) => self.listed = Some(None),
            Err(error) if self.listed.is_none() => return Err(error),
            Err(_) => {}
        }
        Ok(())
    }
}

impl SecretCa {
    /// Names the Secret for the log.
    pub(super) fn location(&self) -> String {
        format!("Secret {}/{}", self.namespace, self.name)
    }

    async fn reconcile(
        &self,
        source: &CaSource,
        found: Option<&Secret>,
        context: &CaContext,
    ) -> Result<(), CaError> {
        let now = (source.clock)();
        let Some(secret) = found else {
            let generated = self.generate(context, now).await?;
            return self.create(&generated, context).await;
        };
        let ca = self.parse(secret)?;
        let renewal = self.is_due(&ca, context, now).then(|| self.renewal_method(&ca, context, now));
        source.set_renewal_due(renewal == Some(RenewalMethod::Rotate));
        if renewal == Some(RenewalMethod::Replace) {
            match self.generate(context, now).await {
                Ok(generated) => self.replace(secret, &generated, context).await?,
                // The present CA is used as long as it is valid.
                Err(problem) => {
                    tracing::warn!(signer = %self.signer, error = problem.detail, "cannot renew the CA; retrying");
                }
            }
        }
        ca.check_time(now).map_err(|error| CaError {
            detail: format!("{} {error:#}", self.location()),
            cause: format!("it {error:#}"),
        })?;
        // Before the accepted CA, whose notification makes others look at both.
        source.set_previous(self.parse_previous(secret));
        source.accept(ca);
        Ok(())
    }

    /// Whether the controllers generate the CA.
    pub(crate) fn is_generated(&self) -> bool {
        matches!(self.kind, SecretCaKind::SelfSigned { .. } | SecretCaKind::Issued { .. })
    }

    /// Decides how a CA that is due is renewed. Consumers need no new anchor for another intermediate below the same root.
    fn renewal_method(&self, ca: &SigningCa, context: &CaContext, now: OffsetDateTime) -> RenewalMethod {
        let signers = context.signers.borrow().clone();
        let Some(signer) = signers.iter().find(|each| each.custom.name == self.signer) else {
            return RenewalMethod::Wait;
        };
        match signer.rollout.governance() {
            RolloutGovernance::Timed => RenewalMethod::Replace,
            RolloutGovernance::Undecided => RenewalMethod::Wait,
            RolloutGovernance::Steady | RolloutGovernance::Rotating
                if signer.custom.publish.is_some() && self.changes_anchor(ca, context, now) =>
            {
                RenewalMethod::Rotate
            }
            RolloutGovernance::Steady => RenewalMethod::Replace,
            RolloutGovernance::Rotating => RenewalMethod::Wait,
        }
    }

    /// Parses the CA in a Secret, without a check of the time.
    fn parse(&self, secret: &Secret) -> Result<SigningCa, CaError> {
        // Without it, whoever may write one Signer could sign with the CA of any other in the namespace.
        match secret.annotations().get(SIGNER_ANNOTATION) {
            Some(owner) if owner == self.signer.as_str() => {}
            Some(owner) => return Err(self.problem(format!("it belongs to the signer {owner}"))),
            None => {
                let cause = format!("it lacks the annotation {SIGNER_ANNOTATION}={}", self.signer.as_str());
                return Err(self.problem(cause));
            }
        }
        let chain = self.entry(secret, CERTIFICATE)?;
        let local_key = match self.kind {
            SecretCaKind::Token { .. } => &[],
            _ => self.entry(secret, KEY)?,
        };
        let parse = |chain: &[u8]| {
            let parsed = match &self.kind {
                SecretCaKind::Token { uri, module } => CertificateAuthority::from_chain(chain, |public| {
                    let key = TokenKey::new(module.clone(), uri.clone(), public.clone())?;
                    let key: Arc<dyn ExternalKey> = Arc::new(key);
                    Ok(key.into())
                }),
                _ => CertificateAuthority::from_chain_pem(chain, local_key),
            };
            parsed.map(|(authority, issuers)| SigningCa { authority, issuers })
        };
        let ca = parse(chain).map_err(|error| self.problem(error.to_string()))?;
        let is_complete = ca.full_chain().last().is_some_and(|last| last.is_self_signed());
        let Some(ByteString(issuer)) = secret.data.as_ref().and_then(|data| data.get(ISSUER)) else {
            return Ok(ca);
        };
        if is_complete {
            return Ok(ca);
        }
        // Only a certificate that continues the chain is part of it.
        Ok(parse(&[chain, b"\n", issuer].concat()).unwrap_or(ca))
    }

    fn entry<'a>(&self, secret: &'a Secret, name: &str) -> Result<&'a [u8], CaError> {
        let entry = secret.data.as_ref().and_then(|data| data.get(name));
        entry
            .map(|ByteString(bytes)| bytes.as_slice())
            .ok_or_else(|| self.problem(format!("it has no {name}")))
    }

    async fn create(&self, generated: &GeneratedCa, context: &CaContext) -> Result<(), CaError> {
        let api: Api<Secret> = Api::namespaced(context.client.clone(), &self.namespace);
        let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                labels: Some([own(MANAGED_BY)].into()),
                annotations: Some([own((SIGNER_ANNOTATION, self.signer.as_str()))].into()),
                ..ObjectMeta::default()
            },
            type_: Some("kubernetes.io/tls".to_owned()),
            data: Some(generated.data()),
            ..Secret::default()
        };
        let mut created = api.create(&PostParams::default(), &secret).await;
        if created.as_ref().is_err_and(is_not_found) {
            self.create_namespace(context).await?;
            created = api.create(&PostParams::default(), &secret).await;
        }
        match created {
            Ok(_) => {
                let secret = self.location();
                tracing::info!(signer = %self.signer, secret, "generated a CA");
                Ok(())
            }
            // Another controller was faster; the watch delivers its CA.
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => Err(self.unwritable(&error)),
        }
    }

    async fn create_namespace(&self, context: &CaContext) -> Result<(), CaError> {
        let metadata = ObjectMeta { name: Some(self.namespace.clone()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        match Api::all(context.client.clone()).create(&PostParams::default(), &namespace).await {
            Ok(_) => Ok(()),
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => Err(self.unwritable(&error)),
        }
    }

    async fn replace(
        &self,
        secret: &Secret,
        generated: &GeneratedCa,
        context: &CaContext,
    ) -> Result<(), CaError> {
        let api: Api<Secret> = Api::namespaced(context.client.clone(), &self.namespace);
        // The server rejects it if the Secret has changed since it was read.
        let mut renewed = secret.clone();
        renewed.data.get_or_insert_default().extend(generated.data());
        match api.replace(&self.name, &PostParams::default(), &renewed).await {
            Ok(_) => {
                let secret = self.location();
                tracing::info!(signer = %self.signer, secret, "renewed the CA with a new key");
                Ok(())
            }
            Err(error) if is_conflict(&error) || is_not_found(&error) => Ok(()),
            Err(error) => Err(self.unwritable(&error)),
        }
    }

    fn problem(&self, cause: String) -> CaError {
        CaError { detail: format!("{}: {cause}", self.location()), cause }
    }

    fn unreadable(&self, error: &str) -> CaError {
        let detail = format!("cannot read {}: {error}", self.location());
        CaError { detail, cause: "its Secret cannot be read".to_owned() }
    }

    fn unwritable(&self, error: &kube::Error) -> CaError {
        let detail = format!("cannot write {}: {}", self.location(), describe(error));
        CaError { detail, cause: "its Secret cannot be written".to_owned() }
    }
}

/// Whether a CA has less than this time left.
fn expires_within(ca: &SigningCa, remaining: Duration, now: OffsetDateTime) -> bool {
    let remaining = time::Duration::try_from(remaining).unwrap_or(time::Duration::MAX);
    ca.validity().not_after().saturating_sub(remaining) <= now
}
