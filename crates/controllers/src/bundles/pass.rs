//! One pass over one Bundle: gather, compare, write, tell.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Api;
use kube::api::{DynamicObject, Patch};
use kube::runtime::events::{self, EventType, Recorder};
use time::OffsetDateTime;
use tokio::time::Instant;
use windlass_api::trust_bundle::{
    API_VERSION, Bundle, BundleStatus, HASH_ANNOTATION, KIND, SourceStatus, is_reserved,
};
use windlass_client_error::describe;

use super::apply::apply_body;
use super::encode::{EncodeError, encode};
use super::gather::{Failure, Gathered, Harvest, World, gather};
use super::gauges::{self, Gauge};
use super::interest::{has_sources, has_targets};
use super::plan::{Deed, Plan, Step, plan};
use super::reach::{Place, Reach};
use super::seen::{Seen, View, Watched};
use super::settings::Settings;
use super::status::{Event, Outcome, TargetFailure, Trouble, report, status_body};
use super::target::{Desired, Kind, desire};
use super::write::{WRITES, Writer, applying, is_gone, words};
use crate::options::Clock;
use crate::pool::Next;
use crate::publish::alarm::Alarm;
use crate::publish::contest::Contest;

/// How soon a source that is missing is looked for again; mostly the watch is sooner.
const MISSING: Duration = Duration::from_secs(300);
/// The longest to sleep: clocks are set.
const FAR: time::Duration = time::Duration::DAY;
/// How many bytes of text an event may have.
const LONGEST_NOTE: usize = 1024;

/// Keeps Bundles where they belong.
pub struct Keeper {
    /// What there is.
    pub seen: Seen,
    /// When to look again.
    pub alarm: Alarm<String>,
    /// Writes targets.
    pub writer: Writer,
    /// What was said on the command line.
    pub settings: Arc<Settings>,
    /// The Bundles themselves.
    pub bundles: Api<DynamicObject>,
    /// Writes events.
    pub recorder: Recorder,
    /// Says what time it is.
    pub clock: Clock,
    /// Notices that somebody else writes the same.
    pub contest: Contest,
    /// Whether the server knows more of a status than trust-manager does.
    pub extended: AtomicBool,
}

/// What is written into the targets of each kind.
type Bodies = BTreeMap<Kind, Vec<u8>>;

/// What became of a step.
enum Done {
    /// It was done.
    Yes,
    /// There was nothing to be done any more.
    Nothing,
    /// It could not be done.
    No(Deed, TargetFailure),
}

impl Keeper {
    /// Brings one Bundle in order.
    pub async fn reconcile(self: Arc<Self>, name: String) -> anyhow::Result<Next> {
        let Some(bundle) = self.seen.bundle(&name) else {
            gauges::forget(&name);
            return Ok(Next::Done);
        };
        if bundle.metadata.deletion_timestamp.is_some() {
            return Ok(Next::Done);
        }
        let (view, now) = (self.seen.view(), (self.clock)());
        if is_reserved(&name) {
            return self.relinquish(bundle, &view, now).await;
        }
        let allowed = self.settings.target_namespaces.iter().cloned();
        let reach = Reach::new(bundle.spec.target.as_ref(), allowed);
        let Gathered { sources, result } = self.gather(&bundle, &view, reach.as_ref().ok(), now);
        let harvest = match result {
            Ok(harvest) => harvest,
            Err(failure) => {
                self.alarm.set(name, MISSING);
                return self.say(&bundle, Outcome::Source(&failure), &sources, now).await;
            }
        };
        if has_targets(&bundle, Kind::Secret) && !self.settings.secret_targets {
            let outcome = Outcome::SecretTargetsDisabled(&harvest);
            return self.say(&bundle, outcome, &sources, now).await;
        }
        let reach = match reach {
            Ok(reach) => reach,
            Err(error) => {
                let trouble = Trouble::NamespaceSelector(error.to_string());
                return Ok(self.complain(&bundle, &trouble).await);
            }
        };
        if let Some(trouble) = trouble(&bundle, &view) {
            return Ok(self.complain(&bundle, &trouble).await);
        }
        self.sync(bundle, &view, &reach, &harvest, &sources, now).await
    }

    /// Takes back what was written under a name that Kubernetes keeps, and says why nothing is written
    /// any more. A server with our definition of Bundles does not let such a one be created.
    async fn relinquish(
        self: Arc<Self>,
        bundle: Arc<Bundle>,
        view: &View,
        now: OffsetDateTime,
    ) -> anyhow::Result<Next> {
        let places = view.namespaces.iter().map(|(name, space)| match space.ending {
            true => (name.as_str(), Place::Ending),
            false => (name.as_str(), Place::Outside),
        });
        let places = places.collect::<Vec<_>>();
        let Plan { steps, .. } =
            self.seen.with_targets(|targets| plan(&bundle.metadata, &[], &places, targets));
        let mut failed = None;
        for step in steps {
            if let Done::No(_, failure) = self.carry_out(&bundle, step, &[], &Bodies::new()).await {
                failed = Some(failure.error);
            }
        }
        let next = self.say(&bundle, Outcome::ReservedName, &[], now).await?;
        Ok(failed.map_or(next, Next::Wait))
    }

    fn gather(
        &self,
        bundle: &Bundle,
        view: &View,
        reach: Option<&Reach>,
        now: OffsetDateTime,
    ) -> Gathered {
        if let Some(failure) = self.unreadable(bundle, view) {
            return Gathered { sources: Vec::new(), result: Err(failure) };
        }
        let at = self.settings.trust_namespace.as_str();
        let is_target = view.namespaces.get(at).zip(reach).is_some_and(|(space, reach)| {
            reach.place(at, &space.labels, space.ending) == Place::Inside
        });
        let package = self.settings.package.as_ref().map(|package| package.current());
        let world = World {
            trust_namespace: at,
            is_target,
            config_maps: &view.config_maps,
            secrets: &view.secrets,
            trust_bundles: view.trust_bundles.as_deref(),
            package: package.as_deref(),
            filters: self.settings.filters,
            now,
        };
        gather(bundle, &world)
    }

    /// What cannot be read is not missing.
    fn unreadable(&self, bundle: &Bundle, view: &View) -> Option<Failure> {
        let at = &self.settings.trust_namespace;
        [Kind::ConfigMap, Kind::Secret, Kind::ClusterTrustBundle].into_iter().find_map(|kind| {
            let (watched, place) = match kind {
                Kind::ConfigMap | Kind::Secret => {
                    (Watched::Sources(kind), format!(" in namespace {at}"))
                }
                Kind::ClusterTrustBundle => (Watched::Targets(kind), String::new()),
            };
            let why = view.refused.get(&watched).filter(|_| has_sources(bundle, kind))?;
            Some(Failure::Build(format!("failed to list {kind}s{place}: {why}")))
        })
    }

    async fn sync(
        self: Arc<Self>,
        bundle: Arc<Bundle>,
        view: &View,
        reach: &Reach,
        harvest: &Harvest,
        sources: &[SourceStatus],
        now: OffsetDateTime,
    ) -> anyhow::Result<Next> {
        let desired = Arc::new(desire(&bundle, &harvest.pool));
        let places = view
            .namespaces
            .iter()
            .map(|(name, space)| (name.as_str(), reach.place(name, &space.labels, space.ending)));
        let places = places.collect::<Vec<_>>();
        let Plan { wanted, steps, blocked } = self
            .seen
            .with_targets(|targets| plan(&bundle.metadata, desired.as_slice(), &places, targets));
        let bodies = match self.bodies(&bundle, &desired, &steps, harvest).await? {
            Ok(bodies) => Arc::new(bodies),
            Err(error) => {
                let failure = Failure::Build(error.to_string());
                return self.say(&bundle, Outcome::Source(&failure), sources, now).await;
            }
        };
        let mut done = stream::iter(steps.into_iter().map(|step| {
            let (keeper, bundle) = (self.clone(), bundle.clone());
            let (desired, bodies) = (desired.clone(), bodies.clone());
            async move { keeper.carry_out(&bundle, step, &desired, &bodies).await }
        }))
        .buffer_unordered(WRITES);
        let (mut wrote, mut unwritten, mut failures) = (false, blocked.len(), blocked);
        while let Some(done) = done.next().await {
            match done {
                Done::Yes => wrote = true,
                Done::Nothing => {}
                Done::No(deed, failure) => {
                    unwritten += usize::from(deed.is_write());
                    failures.push(failure);
                }
            }
        }
        drop(done);
        self.measure(&bundle, harvest, (wanted, unwritten), wrote, failures.is_empty());
        self.look_again(&bundle, harvest, now);
        let outcome = match failures.is_empty() {
            true => Outcome::Synced { harvest, reach, wrote },
            false => Outcome::Targets(harvest, &failures),
        };
        self.say(&bundle, outcome, sources, now).await
    }

    /// Writes out what is needed, once for all targets of a kind.
    async fn bodies(
        &self,
        bundle: &Arc<Bundle>,
        desired: &[Desired],
        steps: &[Step],
        harvest: &Harvest,
    ) -> anyhow::Result<Result<Bodies, EncodeError>> {
        let writes = |kind| steps.iter().any(|step| step.kind == kind && step.deed.is_write());
        let needed = desired.iter().filter(|each| writes(each.kind)).collect::<Vec<_>>();
        if needed.is_empty() {
            return Ok(Ok(Bodies::new()));
        }
        // A password costs time.
        let (pool, of) = (harvest.pool.clone(), bundle.clone());
        let encoded = tokio::task::spawn_blocking(move || {
            let target = of.spec.target.as_ref();
            encode(&pool, target.and_then(|target| target.additional_formats.as_ref()))
        });
        let content = match encoded.await? {
            Ok(content) => content,
            Err(error) => return Ok(Err(error)),
        };
        let mut bodies = Bodies::new();
        for each in needed {
            if let Some(version) = self.writer.version(each.kind) {
                let body = apply_body(&bundle.metadata, &version, each, &content);
                bodies.insert(each.kind, serde_json::to_vec(&body)?);
            }
        }
        Ok(Ok(bodies))
    }

    async fn carry_out(
        &self,
        bundle: &Bundle,
        step: Step,
        desired: &[Desired],
        bodies: &Bodies,
    ) -> Done {
        let Step { kind, at, deed } = step;
        let result = match deed {
            Deed::Write | Deed::Create => {
                let (body, written) = match self.may_write(kind, &at.to_string(), desired, bodies) {
                    Ok(allowed) => allowed,
                    Err(why) => return Done::No(deed, failure(kind, at, why.to_owned())),
                };
                let applied = match deed {
                    Deed::Create => self.writer.create(&bundle.metadata, kind, &at, body).await,
                    _ => self.writer.apply(kind, &at, body).await.map(Ok),
                };
                match applied {
                    Ok(Ok(metadata)) => {
                        self.seen.written(kind, &at, &metadata);
                        Ok(())
                    }
                    Ok(Err(why)) => {
                        self.contest.was_refused(&written);
                        return Done::No(deed, failure(kind, at, why));
                    }
                    Err(error) => {
                        self.contest.was_refused(&written);
                        Err(error)
                    }
                }
            }
            Deed::Release => self.writer.release(&bundle.metadata, kind, &at).await,
            Deed::Delete => self.writer.delete(&bundle.metadata, kind, &at).await,
        };
        match result {
            Ok(()) => Done::Yes,
            Err(error) if kind != Kind::ClusterTrustBundle && is_gone(&error) => Done::Nothing,
            Err(error) => {
                let error = match deed {
                    Deed::Write | Deed::Create => words(&error),
                    Deed::Release | Deed::Delete => {
                        format!("failed to remove it: {}", words(&error))
                    }
                };
                Done::No(deed, failure(kind, at, error))
            }
        }
    }

    /// What is to be written, if it may be now, and what the contest knows it by.
    fn may_write<'a>(
        &self,
        kind: Kind,
        at: &str,
        desired: &[Desired],
        bodies: &'a Bodies,
    ) -> Result<(&'a [u8], String), &'static str> {
        let body = bodies.get(&kind).ok_or("the server has no ClusterTrustBundles")?;
        // What is new is nobody's contest.
        let hash = desired.iter().find(|each| each.kind == kind);
        let hash = hash.and_then(|each| each.annotations.get(HASH_ANNOTATION));
        let written = format!("{kind} {at} {}", hash.map_or("", String::as_str));
        match self.contest.may_write(&written, Instant::now()) {
            true => Ok((body, written)),
            false => Err("somebody else keeps changing it"),
        }
    }

    fn measure(
        &self,
        bundle: &Bundle,
        harvest: &Harvest,
        (wanted, unwritten): (usize, usize),
        wrote: bool,
        well: bool,
    ) {
        let name = &bundle.metadata.name;
        let content = (harvest.pool.earliest_expiry(), harvest.pool.len());
        let targets = Some((wanted.saturating_sub(unwritten), unwritten));
        gauges::tell(name, Gauge { content: well.then_some(content), targets });
        if well
            && let Some(since) = self.seen.settled(name)
            && wrote
        {
            gauges::synced(since.elapsed());
        }
    }

    /// Certificates that expire are left out from then on, if that is wanted.
    fn look_again(&self, bundle: &Bundle, harvest: &Harvest, now: OffsetDateTime) {
        if let Some(until) = harvest.pool.good_until() {
            let after = (until - now).clamp(time::Duration::ZERO, FAR);
            self.alarm.set(bundle.metadata.name.clone(), after.unsigned_abs());
        }
    }

    async fn say(
        &self,
        bundle: &Bundle,
        outcome: Outcome<'_>,
        sources: &[SourceStatus],
        now: OffsetDateTime,
    ) -> anyhow::Result<Next> {
        let report = report(bundle, outcome, sources, now);
        if let Some(status) = report.status {
            self.tell(bundle, status).await?;
        }
        let note = report.event.as_ref().map(|event| event.note.clone());
        if let Some(event) = &report.event {
            self.publish(bundle, event).await;
        }
        Ok(match report.retry {
            true => Next::Wait(note.unwrap_or_else(|| "it is as it was".to_owned())),
            false => Next::Done,
        })
    }

    /// Writes the status. A server that has trust-manager's own definition refuses what is not in
    /// it.
    async fn tell(&self, bundle: &Bundle, status: BundleStatus) -> anyhow::Result<()> {
        let name = bundle.metadata.name.as_str();
        let write = async |extended| {
            let body = Patch::Apply(status_body(name, &status, extended));
            self.bundles.patch_status(name, &applying(), &body).await.map(drop)
        };
        let mut written = Ok(());
        if self.extended.load(Relaxed) {
            written = write(true).await;
            if let Err(kube::Error::Api(refused)) = &written
                && refused.message.contains("field not declared in schema")
            {
                tracing::info!("the server has trust-manager's own definition of Bundles");
                self.extended.store(false, Relaxed);
            }
        }
        if !self.extended.load(Relaxed) {
            let before = bundle.status.clone().unwrap_or_default();
            let same = status_body(name, &before, false) == status_body(name, &status, false);
            written = if same { Ok(()) } else { write(false).await };
        }
        match written {
            // It has gone meanwhile.
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
            Ok(()) => {
                let extended = self.extended.load(Relaxed);
                let told =
                    serde_json::from_value(status_body(name, &status, extended)["status"].take())?;
                self.seen.told(bundle, told);
                Ok(())
            }
        }
    }

    async fn complain(&self, bundle: &Bundle, trouble: &Trouble) -> Next {
        let event = trouble.event();
        self.publish(bundle, &event).await;
        Next::Wait(event.note)
    }

    async fn publish(&self, bundle: &Bundle, event: &Event) {
        let name = &bundle.metadata.name;
        let Event { warning, reason, action, note } = event;
        match warning {
            true => tracing::warn!(bundle = name, reason, "{note}"),
            false => tracing::info!(bundle = name, reason, "{note}"),
        }
        let mut end = LONGEST_NOTE.min(note.len());
        while !note.is_char_boundary(end) {
            end -= 1;
        }
        let event = events::Event {
            type_: if *warning { EventType::Warning } else { EventType::Normal },
            reason: reason.clone(),
            note: note.get(..end).map(str::to_owned),
            action: (*action).to_owned(),
            secondary: None,
        };
        let about = ObjectReference {
            api_version: Some(API_VERSION.to_owned()),
            kind: Some(KIND.to_owned()),
            name: Some(name.clone()),
            uid: Some(bundle.metadata.uid.clone()),
            ..ObjectReference::default()
        };
        if let Err(error) = self.recorder.publish(&event, &about).await {
            tracing::debug!(error = describe(&error), bundle = name, "cannot write an event");
        }
    }
}

/// What keeps the targets from being looked at.
fn trouble(bundle: &Bundle, view: &View) -> Option<Trouble> {
    if let Some(why) = view.refused.get(&Watched::Namespaces) {
        return Some(Trouble::NamespaceList(why.clone()));
    }
    [Kind::ConfigMap, Kind::Secret, Kind::ClusterTrustBundle].into_iter().find_map(|kind| {
        let why =
            view.refused.get(&Watched::Targets(kind)).filter(|_| has_targets(bundle, kind))?;
        Some(Trouble::TargetList(kind, why.clone()))
    })
}

fn failure(kind: Kind, at: crate::namespaced::Namespaced, error: String) -> TargetFailure {
    TargetFailure { kind, namespace: at.namespace, name: at.name, error }
}
