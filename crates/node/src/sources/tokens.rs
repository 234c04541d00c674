//! Service account tokens, bound to their pods and renewed in time.

mod lifetime;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use zeroize::Zeroizing;

use super::{AbortOnDrop, ChangeSender, SourceChange};
use crate::clock::Clock;
use crate::node_certificates::RandomSource;
use crate::volume::id::{SourceId, VolumeOwner};
use crate::volume::plan::CredentialState;
use windlass_runtime::backoff::Backoff;
use windlass_runtime::client_error::describe;

use lifetime::{RefreshDeadline, TokenClaims, TokenValidity};

/// Subject, audience and lifetime of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSpec {
    /// Name of the service account, in the pod's namespace.
    pub service_account: String,
    /// Audience of the token; `None` means the API server.
    pub audience: Option<String>,
    /// Requested lifetime of the token, in seconds.
    pub expiration_seconds: i64,
}

/// Reason while the token has not been requested yet.
pub const NOT_YET: &str = "failed to fetch token: not yet requested";
/// Reason why host projections have no tokens.
pub const NO_POD: &str = "a serviceAccountToken needs a pod";

/// Backoff after failures. The first may occur because the server does not know the pod yet.
const PAUSE: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(60));
/// Time limit of a token request.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of concurrent token requests.
const AT_A_TIME: usize = 8;
/// Rejections by the server before they are reported, as for objects.
const LENIENT: u32 = 2;

/// Requests and renews the tokens of volumes.
pub struct TokenManager {
    client: Client,
    clock: Clock,
    random: RandomSource,
    wakes: ChangeSender,
    kept: Mutex<BTreeMap<SourceId, ManagedToken>>,
    request_slots: Arc<Semaphore>,
}

struct ManagedToken {
    wanted: TokenSpec,
    slot: Arc<TokenSlot>,
    _task: Option<AbortOnDrop>,
}

/// Each task has its own slot, so that one that ends cannot disturb its successor.
struct TokenSlot(Mutex<CredentialState<Zeroizing<String>>>);

impl TokenManager {
    /// Creates a manager without tokens; `ensure` adds and refreshes them.
    pub fn new(client: Client, clock: Clock, random: RandomSource, wakes: ChangeSender) -> Arc<Self> {
        let request_slots = Arc::new(Semaphore::new(AT_A_TIME));
        Arc::new(Self { client, clock, random, wakes, kept: Mutex::default(), request_slots })
    }

    /// Ensures that such a token is requested and renewed. `found` is the token that an earlier
    /// process left on disk; it is used as long as it is valid.
    pub fn ensure(&self, id: &SourceId, wanted: TokenSpec, found: Option<Zeroizing<String>>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (old, standing) = match kept.get(id) {
            Some(before) if before.wanted == wanted => return,
            Some(before) => (before.still_serves(&wanted), TokenValidity::Useless),
            None => self.validate_found(found, &wanted),
        };
        kept.insert(id.clone(), self.start_refresher(id, wanted, old, standing));
    }

    /// Drops the tokens of an owner and stops renewing them.
    pub fn forget(&self, owner: &VolumeOwner) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|id, _| id.volume.owner != *owner);
    }

    /// Returns the current token, or why none is available.
    pub fn get(&self, id: &SourceId) -> CredentialState<Zeroizing<String>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(id).map_or_else(|| CredentialState::Unavailable(NOT_YET.into()), |kept| kept.slot.get())
    }

    /// Checks whether a token found on disk can be used, and for how long.
    fn validate_found(
        &self,
        found: Option<Zeroizing<String>>,
        wanted: &TokenSpec,
    ) -> (Option<Zeroizing<String>>, TokenValidity) {
        let found = found.and_then(|token| Some((TokenClaims::read(&token)?, token)));
        match found.filter(|(claims, _)| claims.are_for(wanted)) {
            Some((claims, token)) => {
                let lasts = wanted.expiration_seconds;
                (Some(token), claims.validity(lasts, (self.clock)(), (self.random)()))
            }
            None => (None, TokenValidity::Useless),
        }
    }

    fn start_refresher(
        &self,
        id: &SourceId,
        wanted: TokenSpec,
        old: Option<Zeroizing<String>>,
        standing: TokenValidity,
    ) -> ManagedToken {
        let VolumeOwner::Pod { namespace, name, uid } = &id.volume.owner else {
            let slot = Arc::new(TokenSlot::new(CredentialState::Unavailable(NO_POD.into())));
            return ManagedToken { wanted, slot, _task: None };
        };
        let first =
            old.map_or_else(|| CredentialState::Unavailable(NOT_YET.into()), CredentialState::Available);
        let slot = Arc::new(TokenSlot::new(first));
        let keeper = TokenRefresher {
            api: Api::namespaced(self.client.clone(), namespace),
            request: request(&wanted, name, uid),
            service_account: wanted.service_account.clone(),
            id: id.clone(),
            slot: slot.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            wakes: self.wakes.clone(),
            request_slots: self.request_slots.clone(),
        };
        ManagedToken { wanted, slot, _task: Some(AbortOnDrop::spawn(keeper.run(standing))) }
    }
}

impl ManagedToken {
    /// Returns the token if the new spec differs only in lifetime.
    fn still_serves(&self, wanted: &TokenSpec) -> Option<Zeroizing<String>> {
        let lasts = self.wanted.expiration_seconds;
        let same = self.wanted == TokenSpec { expiration_seconds: lasts, ..wanted.clone() };
        match self.slot.get() {
            CredentialState::Available(token) if same => Some(token),
            CredentialState::Available(_) | CredentialState::Unavailable(_) => None,
        }
    }
}

impl TokenSlot {
    fn new(first: CredentialState<Zeroizing<String>>) -> Self {
        Self(Mutex::new(first))
    }

    fn get(&self) -> CredentialState<Zeroizing<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, token: Zeroizing<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = CredentialState::Available(token);
    }

    /// Records why there is no token, unless there is one: an old token is better than none, even
    /// if it expired. Returns whether the reason is new.
    fn explain(&self, why: &str) -> bool {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            CredentialState::Unavailable(before) if before != why => {
                why.clone_into(before);
                true
            }
            CredentialState::Unavailable(_) | CredentialState::Available(_) => false,
        }
    }
}

fn request(wanted: &TokenSpec, pod: &str, uid: &str) -> TokenRequest {
    TokenRequest {
        spec: Some(TokenRequestSpec {
            // `None` means the API server itself.
            audiences: wanted.audience.clone().map(|audience| vec![audience]),
            expiration_seconds: Some(wanted.expiration_seconds),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: Some(pod.into()),
                uid: Some(uid.into()),
            }),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    }
}

struct TokenRefresher {
    api: Api<ServiceAccount>,
    request: TokenRequest,
    service_account: String,
    id: SourceId,
    slot: Arc<TokenSlot>,
    clock: Clock,
    random: RandomSource,
    wakes: ChangeSender,
    request_slots: Arc<Semaphore>,
}

/// Why a token request failed.
struct TokenRequestError {
    why: String,
    /// Whether the server may not know the pod yet.
    early: bool,
}

impl TokenRefresher {
    async fn run(self, standing: TokenValidity) {
        match standing {
            TokenValidity::Useless => {}
            TokenValidity::Old => sleep(lifetime::JITTER.mul_f64((self.random)().clamp(0.0, 1.0))).await,
            TokenValidity::Good(due) => self.wait_until(due).await,
        }
        let mut failures = 0;
        loop {
            match self.request_token().await {
                Ok((token, lasts)) => {
                    failures = 0;
                    self.slot.set(token);
                    self.wake();
                    self.wait_until(RefreshDeadline::for_new_token(lasts, (self.clock)(), (self.random)()))
                        .await;
                }
                Err(refusal) => {
                    let reported = !refusal.early || failures >= LENIENT;
                    let volume = &self.id.volume;
                    tracing::debug!(%volume, error = refusal.why, "cannot obtain a token");
                    if reported && self.slot.explain(&refusal.why) {
                        self.wake();
                    }
                    sleep(PAUSE.delay(failures, (self.random)())).await;
                    failures += 1;
                }
            }
        }
    }

    /// Waits until the deadline, also if the wall clock jumps.
    async fn wait_until(&self, due: RefreshDeadline) {
        while let Some(left) = due.left((self.clock)()) {
            sleep(left.min(lifetime::LOOK)).await;
        }
    }

    fn wake(&self) {
        // The receiver is only gone at shutdown.
        let _ = self.wakes.send(SourceChange::Volume(self.id.volume.clone()));
    }

    async fn request_token(&self) -> Result<(Zeroizing<String>, Duration), TokenRequestError> {
        let _turn = self.request_slots.acquire().await;
        let params = PostParams::default();
        let asked = self.api.create_token_request(&self.service_account, &params, &self.request);
        let refused =
            |why: &str, early| TokenRequestError { why: format!("failed to fetch token: {why}"), early };
        let TokenRequest { spec, status, .. } = match timeout(PATIENCE, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(kube::Error::Api(status))) => {
                return Err(refused(&status.message, status.code == 403 || status.code == 404));
            }
            Ok(Err(error)) => return Err(refused(&describe(&error), false)),
            Err(_) => return Err(refused("the server does not answer", false)),
        };
        let token = status.and_then(|status| status.token).filter(|token| !token.is_empty());
        let Some(token) = token else {
            return Err(refused("the server's answer has no token", false));
        };
        // The server may have shortened the lifetime.
        let asked = self.request.spec.as_ref();
        let lasts = |spec: &TokenRequestSpec| spec.expiration_seconds;
        let seconds = spec.as_ref().and_then(lasts).or_else(|| asked.and_then(lasts));
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default();
        Ok((Zeroizing::new(token), Duration::from_secs(seconds)))
    }
}
