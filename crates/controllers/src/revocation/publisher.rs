//! Signs the lists of held authorities and writes them.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt as _};
use time::OffsetDateTime;
use windlass_ledger::{AuthorityId, RevocationReason};
use windlass_pki::{CertificateRevocationList, CrlTemplate, RevokedCertificate};
use windlass_runtime::backoff::Backoff;
use windlass_runtime::watch::{ObjectMetadata, watch_metadata};
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::{Requeue, run_workers};

use super::authorities::{self, HeldAuthorities, HeldAuthority};
use super::cache::RevocationCache;
use super::decision::{ListDecision, ListDraft, ListTimes, RevokedEntry, decide};
use super::ledger_plan::{is_final, is_hold};
use super::schedule::ListSchedule;
use super::{RevocationContext, list_object};
use crate::csr::{is_conflict, requeue_changed};
use crate::metrics::CRLS;
use crate::signers::ListState;

/// Interval between two checks of which lists are due, and of which CAs are held.
const TICK: Duration = Duration::from_secs(1);
/// Time until the list of a CA that may not sign lists is checked again; its certificate is another CA's by then.
const NOT_PERMITTED_CHECK: time::Duration = time::Duration::HOUR;
/// Lists that are signed concurrently.
const WORKERS: usize = 4;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(60));

/// Signs lists and writes them as objects.
pub struct ListPublisher {
    client: Client,
    cache: Arc<RevocationCache>,
    context: RevocationContext,
    queue: Arc<WorkQueue<String>>,
    state: Mutex<PublisherState>,
}

#[derive(Default)]
struct PublisherState {
    held: HeldAuthorities,
    schedules: HashMap<String, ListSchedule>,
    /// Resource versions of the lists as they were last written.
    written: HashMap<String, String>,
}

impl ListPublisher {
    pub fn new(client: Client, cache: Arc<RevocationCache>, context: RevocationContext) -> ListPublisher {
        let queue = Arc::new(WorkQueue::new(context.metrics.queue(CRLS), BACKOFF));
        ListPublisher { client, cache, context, queue, state: Mutex::default() }
    }

    /// Publishes lists until the future is dropped.
    pub async fn run(self: Arc<Self>, resource: ApiResource) -> Infallible {
        let _reset = ListReset(self.clone());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let metrics = self.queue.metrics();
        let watch = watch_metadata(self.client.clone(), &resource, None, metrics, |event| {
            self.observe_list(event);
        });
        let reconcile = |id: String| self.clone().reconcile(api.clone(), resource.clone(), id);
        let workers = run_workers(self.queue.clone(), WORKERS, reconcile);
        tokio::join!(watch, self.run_schedule(), workers).0
    }

    /// Returns whether an authority belongs to a signer, as far as its key is held.
    pub fn is_used_by(&self, authority: &AuthorityId, signer: &str) -> bool {
        let custom = self.context.custom.subscribe().borrow().clone();
        let before = self.lock().held.clone();
        let now = (self.context.clock)();
        // The signers may have changed since the last tick.
        let held = authorities::collect(&self.context.built_in, &custom, &before, now);
        held.get(&authority.to_string()).is_some_and(|held| held.signers.contains(signer))
    }

    /// Notes that revocations of these authorities changed.
    pub fn note_changes<'a>(&self, authorities: impl IntoIterator<Item = &'a AuthorityId>) {
        let ids: BTreeSet<String> = authorities.into_iter().map(ToString::to_string).collect();
        ids.iter().for_each(|id| self.note_change(id));
    }

    /// Notes that all lists may have to change.
    pub fn note_all(&self) {
        let ids: Vec<String> = self.lock().schedules.keys().cloned().collect();
        ids.iter().for_each(|id| self.note_change(id));
    }

    fn note_change(&self, id: &str) {
        let now = (self.context.clock)();
        let is_due = self.lock().schedules.get_mut(id).is_some_and(|schedule| schedule.note_change(now));
        if is_due {
            self.queue.add(id.to_owned());
        }
    }

    /// A list that somebody else changed or deleted is signed again.
    fn observe_list(&self, event: Event<ObjectMetadata>) {
        let (Event::Apply(found) | Event::InitApply(found) | Event::Delete(found)) = &event else { return };
        let (name, version) = (found.name_any(), found.resource_version());
        let is_own = !matches!(event, Event::Delete(_)) && self.lock().written.get(&name) == version.as_ref();
        if !is_own {
            self.note_change(&name);
        }
    }

    async fn run_schedule(&self) -> Infallible {
        loop {
            self.refresh((self.context.clock)());
            tokio::time::sleep(TICK).await;
        }
    }

    /// Updates the held CAs and queues the lists that are due.
    fn refresh(&self, now: OffsetDateTime) {
        let custom = self.context.custom.subscribe().borrow().clone();
        let mut state = self.lock();
        let held = authorities::collect(&self.context.built_in, &custom, &state.held, now);
        let before = std::mem::replace(&mut state.held, held);
        for (id, authority) in before {
            if !state.held.contains_key(&id) {
                self.context.metrics.crl.remove_authority(&authority.signer, &id);
                self.context.metrics.statistics.remove_list(&id);
                state.schedules.remove(&id);
            }
        }
        let ids: Vec<String> = state.held.keys().cloned().collect();
        for id in ids {
            let is_due = match state.schedules.get_mut(&id) {
                Some(schedule) => schedule.take_due(now),
                None => {
                    state.schedules.insert(id.clone(), ListSchedule::queued());
                    true
                }
            };
            if is_due {
                self.queue.add(id);
            }
        }
    }

    async fn reconcile(
        self: Arc<Self>,
        api: Api<DynamicObject>,
        resource: ApiResource,
        id: String,
    ) -> anyhow::Result<Requeue> {
        let Some((authority, begun)) = self.begin(&id) else { return Ok(Requeue::Done) };
        if !self.cache.is_synced() || self.context.ledger.is_loaded() == Some(false) {
            return Ok(Requeue::WithBackoff("revocations or the ledger were not read yet".into()));
        }
        if let Err(error) = authority.ca.certificate().check_crl_signer() {
            self.report_not_permitted(&id, &authority, begun, &error.to_string());
            return Ok(Requeue::Done);
        }
        match self.publish(&api, &resource, &id, &authority, begun).await {
            Ok(requeue) => Ok(requeue),
            Err(error) => {
                self.context.metrics.crl.count_failure(&authority.signer, &id);
                let message = format!("cannot publish the revocation list of {id}: {error:#}");
                self.report(&id, &authority, ListState::failed("SigningFailed", message));
                Err(error)
            }
        }
    }

    fn begin(&self, id: &str) -> Option<(HeldAuthority, u64)> {
        let state = self.lock();
        Some((state.held.get(id)?.clone(), state.schedules.get(id)?.begin()))
    }

    async fn publish(
        &self,
        api: &Api<DynamicObject>,
        resource: &ApiResource,
        id: &str,
        authority: &HeldAuthority,
        begun: u64,
    ) -> anyhow::Result<Requeue> {
        let found = api.get_opt(id).await?;
        let published = found.as_ref().map(|found| list_object::read(found, authority.ca.certificate()));
        let revoked = self.revoked_entries(authority);
        let now = (self.context.clock)();
        match decide(published.as_ref(), revoked, authority.duration, now) {
            ListDecision::Keep(times) => {
                if let Some(list) = published.and_then(|published| published.list) {
                    self.report_list(id, authority, &list);
                }
                self.settle(id, begun, times, found.and_then(|found| found.resource_version()));
            }
            ListDecision::Sign(draft) => {
                let list = sign(authority, &draft).await?;
                let object = list_object::build(found, resource, id, &authority.signer, &list);
                let written = match object.resource_version() {
                    Some(_) => api.replace(id, &PostParams::default(), &object).await,
                    None => api.create(&PostParams::default(), &object).await,
                };
                let written = match written {
                    Err(error) if is_conflict(&error) => return Ok(requeue_changed()),
                    written => written?,
                };
                self.report_list(id, authority, &list);
                self.report_omitted(id, authority, draft.omitted);
                let times = ListTimes::of_draft(&draft, authority.duration);
                self.settle(id, begun, times, written.resource_version());
            }
        }
        Ok(Requeue::Done)
    }

    /// Lists the revoked certificates of an authority: those with an object of one of its signers, and those whose final
    /// revocation is in the ledger although the object was deleted.
    fn revoked_entries(&self, authority: &HeldAuthority) -> Vec<RevokedEntry> {
        let objects = self.cache.of_authority(&authority.id);
        let own = objects.into_iter().filter(|(_, object)| authority.signers.contains(&object.signer));
        let mut entries: HashMap<_, _> = own
            .map(|(serial, object)| (serial, (object.reason, object.revoked_at, object.not_after)))
            .collect();
        let recorded =
            self.context.ledger.revocations(|id, info| *id == authority.id && is_final(info.reason));
        for (_, serial, info) in recorded {
            let is_weaker = entries.get(&serial).is_none_or(|(reason, ..)| is_hold(*reason));
            if is_weaker {
                entries.insert(serial, (info.reason, info.time, info.not_after));
            }
        }
        let convert = |(serial, (reason, revoked_at, not_after)): (windlass_ledger::SerialNumber, _)| {
            revoked_entry(serial.as_bytes(), reason, revoked_at, not_after)
        };
        entries.into_iter().filter_map(convert).collect()
    }

    fn settle(&self, id: &str, begun: u64, times: ListTimes, version: Option<String>) {
        let mut state = self.lock();
        if let Some(schedule) = state.schedules.get_mut(id) {
            schedule.settle(begun, times.check_at, times.signable_at);
        }
        if let Some(version) = version {
            state.written.insert(id.to_owned(), version);
        }
    }

    fn report(&self, id: &str, authority: &HeldAuthority, list: ListState) {
        self.context.metrics.statistics.set_list(&authority.signers, id, list);
    }

    fn report_list(&self, id: &str, authority: &HeldAuthority, list: &CertificateRevocationList) {
        self.context.metrics.crl.set_list(&authority.signer, id, list.next_update(), list.len());
        self.report(id, authority, ListState::Published);
    }

    fn report_omitted(&self, id: &str, authority: &HeldAuthority, omitted: usize) {
        let signer = authority.signer.as_str();
        let is_news = self.context.metrics.crl.set_omitted(signer, id, omitted);
        if omitted > 0 {
            let message = format!(
                "the revocation list of {id} has no room for {omitted} certificates; those that expire first are missing"
            );
            if is_news {
                tracing::error!(signer, authority = id, omitted, "revocation list is full");
            }
            self.report(id, authority, ListState::failed("ListFull", message));
        }
    }

    /// CAs that others made often lack the usage. Nothing changes that but another certificate.
    fn report_not_permitted(&self, id: &str, authority: &HeldAuthority, begun: u64, error: &str) {
        let signer = authority.signer.as_str();
        tracing::warn!(signer, authority = id, error, "CA cannot sign revocation lists; it has none");
        let message = format!("{id} has no revocation list: {error}");
        self.report(id, authority, ListState::failed("CRLSignNotPermitted", message));
        let check_at = (self.context.clock)() + NOT_PERMITTED_CHECK;
        self.settle(id, begun, ListTimes { check_at, signable_at: check_at }, None);
    }

    fn lock(&self) -> MutexGuard<'_, PublisherState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the values of a process that does not lead any more from metrics and status.
struct ListReset(Arc<ListPublisher>);

impl Drop for ListReset {
    fn drop(&mut self) {
        let ListPublisher { context, .. } = &*self.0;
        context.metrics.crl.reset();
        context.metrics.statistics.clear_lists();
        self.0.lock().schedules.clear();
    }
}

/// Signs a list on a thread of its own: a long list takes a while, and so does a key in a token.
async fn sign(authority: &HeldAuthority, draft: &ListDraft) -> anyhow::Result<CertificateRevocationList> {
    let (ca, draft) = (authority.ca.clone(), draft.clone());
    let signing = tokio::task::spawn_blocking(move || {
        ca.authority().sign_crl(&CrlTemplate {
            number: draft.number,
            this_update: draft.this_update,
            next_update: draft.next_update,
            revoked: &draft.revoked,
        })
    });
    signing.await.context("signing panicked")?.context("cannot sign")
}

fn revoked_entry(
    serial: &[u8],
    reason: RevocationReason,
    revoked_at: i64,
    not_after: i64,
) -> Option<RevokedEntry> {
    Some(RevokedEntry {
        certificate: RevokedCertificate {
            serial: serial.to_vec(),
            revoked_at: OffsetDateTime::from_unix_timestamp(revoked_at).ok()?,
            reason: windlass_pki::RevocationReason::from_name(reason.name())?,
        },
        not_after: OffsetDateTime::from_unix_timestamp(not_after).ok()?,
    })
}
