//! Tokens of service accounts, bound to their pods and renewed in time.

mod life;
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

use super::{Task, Wake, Wakes};
use crate::clock::Clock;
use crate::manager::{Backoff, Random};
use crate::request::explain;
use crate::volume::id::{Owner, SourceId};
use crate::volume::plan::Obtained;

use life::{Claims, Due, Standing};

/// What a token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whose it is, in the namespace of the pod.
    pub service_account: String,
    /// For whom; none is the server.
    pub audience: Option<String>,
    /// How long it is to last.
    pub expiration_seconds: i64,
}

/// Why there is no token when nobody has answered yet.
pub const NOT_YET: &str = "failed to fetch token: not yet requested";
/// Why there are no tokens for the machine.
pub const NO_POD: &str = "a serviceAccountToken needs a pod";

/// How long to pause after a failure. The first may be that the server does not know yet of the pod.
const PAUSE: Backoff = Backoff { first: Duration::from_millis(200), most: Duration::from_secs(60) };
/// How long the server may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many tokens are asked for at a time.
const AT_A_TIME: usize = 8;
/// How often the server may say no before it is told to others, as with objects.
const LENIENT: u32 = 2;

/// The tokens that are wanted.
pub struct Tokens {
    client: Client,
    clock: Clock,
    random: Random,
    wakes: Wakes,
    kept: Mutex<BTreeMap<SourceId, Kept>>,
    asking: Arc<Semaphore>,
}

/// One of them.
struct Kept {
    wanted: Wanted,
    slot: Arc<Slot>,
    _task: Option<Task>,
}

/// Each task has one of its own, so that one that ends cannot disturb the next.
struct Slot(Mutex<Obtained<Zeroizing<String>>>);

impl Tokens {
    /// None are wanted yet.
    pub fn new(client: Client, clock: Clock, random: Random, wakes: Wakes) -> Arc<Self> {
        let asking = Arc::new(Semaphore::new(AT_A_TIME));
        Arc::new(Self { client, clock, random, wakes, kept: Mutex::default(), asking })
    }

    /// From now on there is to be such a token, unless it is wanted already. `found` is what is on the
    /// disk since an earlier life of the process: it is used for as long as it is good.
    pub fn want(&self, id: &SourceId, wanted: Wanted, found: Option<Zeroizing<String>>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (old, standing) = match kept.get(id) {
            Some(before) if before.wanted == wanted => return,
            Some(before) => (before.still_serves(&wanted), Standing::Useless),
            None => self.judge(found, &wanted),
        };
        kept.insert(id.clone(), self.keep(id, wanted, old, standing));
    }

    /// The tokens of a pod are wanted no more.
    pub fn forget(&self, owner: &Owner) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|id, _| id.volume.owner != *owner);
    }

    /// The token.
    pub fn get(&self, id: &SourceId) -> Obtained<Zeroizing<String>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(id).map_or_else(|| Obtained::Not(NOT_YET.into()), |kept| kept.slot.get())
    }

    /// What of a token from the disk is of use, and of how much.
    fn judge(
        &self,
        found: Option<Zeroizing<String>>,
        wanted: &Wanted,
    ) -> (Option<Zeroizing<String>>, Standing) {
        let found = found.and_then(|token| Some((Claims::read(&token)?, token)));
        match found.filter(|(claims, _)| claims.are_for(wanted)) {
            Some((claims, token)) => {
                let lasts = wanted.expiration_seconds;
                (Some(token), claims.standing(lasts, (self.clock)(), (self.random)()))
            }
            None => (None, Standing::Useless),
        }
    }

    fn keep(
        &self,
        id: &SourceId,
        wanted: Wanted,
        old: Option<Zeroizing<String>>,
        standing: Standing,
    ) -> Kept {
        let Owner::Pod { namespace, name, uid } = &id.volume.owner else {
            let slot = Arc::new(Slot::new(Obtained::Not(NO_POD.into())));
            return Kept { wanted, slot, _task: None };
        };
        let first = old.map_or_else(|| Obtained::Not(NOT_YET.into()), Obtained::Is);
        let slot = Arc::new(Slot::new(first));
        let keeper = Keeper {
            api: Api::namespaced(self.client.clone(), namespace),
            request: request(&wanted, name, uid),
            service_account: wanted.service_account.clone(),
            id: id.clone(),
            slot: slot.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            wakes: self.wakes.clone(),
            asking: self.asking.clone(),
        };
        Kept { wanted, slot, _task: Some(Task::spawn(keeper.run(standing))) }
    }
}

impl Kept {
    /// The token, if it is for the same and should only last longer or shorter.
    fn still_serves(&self, wanted: &Wanted) -> Option<Zeroizing<String>> {
        let lasts = self.wanted.expiration_seconds;
        let same = self.wanted == Wanted { expiration_seconds: lasts, ..wanted.clone() };
        match self.slot.get() {
            Obtained::Is(token) if same => Some(token),
            Obtained::Is(_) | Obtained::Not(_) => None,
        }
    }
}

impl Slot {
    fn new(first: Obtained<Zeroizing<String>>) -> Self {
        Self(Mutex::new(first))
    }

    fn get(&self) -> Obtained<Zeroizing<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, token: Zeroizing<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Obtained::Is(token);
    }

    /// Says why there is none, if there is none: an old one is better than none, also when it has
    /// expired. Whether that is something new.
    fn explain(&self, why: &str) -> bool {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Obtained::Not(before) if before != why => {
                why.clone_into(before);
                true
            }
            Obtained::Not(_) | Obtained::Is(_) => false,
        }
    }
}

fn request(wanted: &Wanted, pod: &str, uid: &str) -> TokenRequest {
    TokenRequest {
        spec: Some(TokenRequestSpec {
            // None stands for the server itself.
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

/// Keeps one token good.
struct Keeper {
    api: Api<ServiceAccount>,
    request: TokenRequest,
    service_account: String,
    id: SourceId,
    slot: Arc<Slot>,
    clock: Clock,
    random: Random,
    wakes: Wakes,
    asking: Arc<Semaphore>,
}

/// Why there is no token.
struct Refusal {
    why: String,
    /// It may be that the server does not know of the pod yet.
    early: bool,
}

impl Keeper {
    async fn run(self, standing: Standing) {
        match standing {
            Standing::Useless => {}
            Standing::Old => sleep(life::JITTER.mul_f64((self.random)().clamp(0.0, 1.0))).await,
            Standing::Good(due) => self.until(due).await,
        }
        let mut failures = 0;
        loop {
            match self.ask().await {
                Ok((token, lasts)) => {
                    failures = 0;
                    self.slot.set(token);
                    self.wake();
                    self.until(Due::of_new(lasts, (self.clock)(), (self.random)())).await;
                }
                Err(refusal) => {
                    let told = !refusal.early || failures >= LENIENT;
                    let volume = &self.id.volume;
                    tracing::debug!(%volume, why = refusal.why, "cannot obtain a token");
                    if told && self.slot.explain(&refusal.why) {
                        self.wake();
                    }
                    sleep(PAUSE.after(failures, (self.random)())).await;
                    failures += 1;
                }
            }
        }
    }

    /// Waits until then, also when the clock jumps.
    async fn until(&self, due: Due) {
        while let Some(left) = due.left((self.clock)()) {
            sleep(left.min(life::LOOK)).await;
        }
    }

    fn wake(&self) {
        // Nobody is there to be woken only when everything ends.
        let _ = self.wakes.send(Wake::Volume(self.id.volume.clone()));
    }

    /// A new token, and how long it lasts.
    async fn ask(&self) -> Result<(Zeroizing<String>, Duration), Refusal> {
        let _turn = self.asking.acquire().await;
        let params = PostParams::default();
        let asked = self.api.create_token_request(&self.service_account, &params, &self.request);
        let refused =
            |why: &str, early| Refusal { why: format!("failed to fetch token: {why}"), early };
        let TokenRequest { spec, status, .. } = match timeout(PATIENCE, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(kube::Error::Api(status))) => {
                return Err(refused(&status.message, status.code == 403 || status.code == 404));
            }
            Ok(Err(error)) => return Err(refused(&explain(&error), false)),
            Err(_) => return Err(refused("the server does not answer", false)),
        };
        let token = status.and_then(|status| status.token).filter(|token| !token.is_empty());
        let Some(token) = token else {
            return Err(refused("the server's answer has no token", false));
        };
        // The server may have made it shorter.
        let asked = self.request.spec.as_ref();
        let lasts = |spec: &TokenRequestSpec| spec.expiration_seconds;
        let seconds = spec.as_ref().and_then(lasts).or_else(|| asked.and_then(lasts));
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default();
        Ok((Zeroizing::new(token), Duration::from_secs(seconds)))
    }
}
