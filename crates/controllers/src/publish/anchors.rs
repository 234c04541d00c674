//! What the user's own signers are trusted by, as one trust bundle for each. When a CA is replaced,
//! its bundle has the new anchor and the old one until the last certificate that was issued under
//! it has expired, and the new CA does not sign before nodes have its anchor.
//!
//! - `decide`: what a bundle should hold; `record`: what is recorded in it about its anchors.
//! - `delivery`: which nodes have it.
//! - `gauge`: bundles of others.

mod decide;
mod delivery;
mod gauge;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use futures::future::join_all;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::watch;
use tokio::time::Instant;

use super::alarm::Alarm;
use super::contest::Contest;
use super::syncs::{self, ANCHORS};
use crate::feed;
use crate::metrics::ANCHORS as COUNTERS;
use crate::notices::{Notice, Notices};
use crate::options::Clock;
use crate::pool::{self, Next};
use crate::queue::{Backoff, Queue};
use crate::signers::CustomSigner;
use crate::signers::config::{MANAGED_BY, Publication};
use crate::signers::rollout;

use decide::{Action, Contents, Found, Policy, decide};
use delivery::{Reports, Wanted};

pub use decide::Anchor;
pub use delivery::resource as node_trusts;
pub use gauge::metrics;
pub use record::{Record, Records};

/// The anchor that is current, by its SHA-256.
const CURRENT: &str = "windlass.dev/anchor";
/// What is recorded about the anchors, as JSON.
const RECORDS: &str = "windlass.dev/anchors";
/// Since when the other anchors of a bundle are not current, as versions without records wrote it.
const RETIRED: &str = "windlass.dev/retired-at";
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(60));
/// Bundles that are brought in order at the same time.
const WORKERS: usize = 4;
/// Nodes that are named in the log.
const NAMED: usize = 5;

/// How long things take while a CA is replaced.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long an anchor stays after the last certificate issued under it has expired.
    pub overlap: Duration,
    /// How long a new CA waits at most until its anchor is published and nodes have it.
    pub delivery_timeout: Duration,
}

/// What a bundle records about its anchors; `None` if it records nothing.
pub fn records(bundle: &DynamicObject) -> Option<Records> {
    bundle.annotations().get(RECORDS).and_then(|records| record::parse(records))
}

/// The nodes that do not have a bundle of a signer as it is, although they select it, by these
/// NodeTrusts.
pub fn nodes_lacking(bundle: &DynamicObject, node_trusts: Vec<DynamicObject>) -> Vec<String> {
    let mut reports = Reports::default();
    for report in node_trusts {
        reports.take(Ok(Event::InitApply(report)), |_, _| true);
    }
    reports.take(Ok(Event::InitDone), |_, _| true);
    let signer = bundle.data.pointer("/spec/signerName").and_then(Value::as_str);
    let wanted = Wanted {
        bundle: &bundle.name_any(),
        signer: signer.unwrap_or_default(),
        labels: bundle.labels(),
        digest: &decide::digest(&Anchor::in_text(text(bundle))),
    };
    let lacking = reports.lacking(wanted).unwrap_or_default();
    lacking.into_iter().map(str::to_owned).collect()
}

/// Publishes the anchors of those signers that want it, with the kind in the version that the server
/// has; does not end.
pub async fn run(
    client: Client,
    resource: ApiResource,
    signers: Vec<CustomSigner>,
    pace: Pace,
    clock: Clock,
) {
    let queue = Arc::new(Queue::new(&COUNTERS, BACKOFF));
    let published = signers.into_iter().filter_map(|signer| {
        let publication = signer.custom.publish.clone()?;
        Some((publication.bundle.clone(), (signer, publication)))
    });
    let publisher = Arc::new(Publisher {
        node_trusts: Api::all_with(client.clone(), &delivery::resource()),
        bundles: Api::all_with(client.clone(), &resource),
        notices: Notices::new(client.clone(), "signer-anchors"),
        published: published.collect(),
        pace,
        clock,
        held: watch::Sender::new(BTreeSet::new()),
        reports: Mutex::default(),
        contest: Contest::default(),
        alarm: Alarm::new(),
        resource: resource.clone(),
    });
    let known = |name: &String| publisher.published.contains_key(name);
    let watch = feed::follow(client, &resource, None, &COUNTERS, |event| match event {
        Event::Init => {}
        Event::InitApply(bundle) | Event::Apply(bundle) | Event::Delete(bundle) => {
            Some(bundle.name_any()).filter(known).into_iter().for_each(|name| queue.add(name));
        }
        // Those that are not there are not among the events.
        Event::InitDone => publisher.published.keys().for_each(|name| queue.add(name.clone())),
    });
    let of_cas = join_all(publisher.published.iter().map(|(name, (signer, _))| {
        let (mut changes, queue) = (signer.ca.changes(), queue.clone());
        async move {
            while changes.changed().await.is_ok() {
                queue.add(name.clone());
            }
        }
    }));
    let of_time = publisher.alarm.ring(|name| queue.add(name));
    let of_nodes = publisher.watch_reports(&queue);
    let reconcile = |name: String| publisher.clone().reconcile(name);
    tokio::join!(watch, of_cas, of_time, of_nodes, pool::work(queue.clone(), WORKERS, reconcile));
}

struct Publisher {
    bundles: Api<DynamicObject>,
    node_trusts: Api<DynamicObject>,
    notices: Notices,
    /// By the names of the bundles.
    published: BTreeMap<String, (CustomSigner, Publication)>,
    pace: Pace,
    clock: Clock,
    /// The bundles whose newest anchor is not on all nodes yet.
    held: watch::Sender<BTreeSet<String>>,
    reports: Mutex<Reports>,
    contest: Contest,
    alarm: Alarm<String>,
    resource: ApiResource,
}

impl Publisher {
    async fn reconcile(self: Arc<Self>, name: String) -> anyhow::Result<Next> {
        let began = Instant::now();
        let outcome = self.sync(&name).await;
        ANCHORS.count(syncs::code(&outcome), began.elapsed());
        outcome
    }

    async fn sync(&self, name: &str) -> anyhow::Result<Next> {
        let Some((signer, publication)) = self.published.get(name) else {
            return Ok(Next::Done);
        };
        let object = self.bundles.get_opt(name).await.map_err(anyhow::Error::from)?;
        let found = object.as_ref().map(|object| found(object, &publication.labels));
        // A CA that becomes usable is a change, which brings it here again.
        let Some(ca) = signer.ca.current() else { return Ok(Next::Done) };
        let now = (self.clock)();
        let current = Anchor::of(ca.anchor());
        let policy = Policy {
            now,
            overlap: self.pace.overlap,
            timeout: self.pace.delivery_timeout,
            max_duration: signer.max_duration(),
            signing: signer.rollout.signing(),
            delivered: self.is_delivered(name, signer, object.as_ref()),
        };
        let action = decide(found.as_ref(), current.clone(), &policy);
        self.tell_foreign(signer, object.as_ref(), &action, now).await;
        let records = found.and_then(|found| found.records).unwrap_or_default();
        let (records, again) = match action {
            Action::LeaveAlone => {
                let records = object.as_ref().map(foreign_records).unwrap_or_default();
                signer.rollout.set(rollout::Publication::Known(records), now);
                return Ok(Next::Done);
            }
            Action::Full { anchors, again } => {
                self.tell_full(signer, object.as_ref(), anchors, now).await;
                signer.rollout.set(rollout::Publication::Full(records), now);
                self.look_again(name, again);
                return Ok(Next::Wait("the trust bundle has no room for a new anchor".into()));
            }
            Action::Keep { again } => (records, again),
            Action::Write { contents, again } => {
                if let Some(next) =
                    self.try_write(signer, publication, object.as_ref(), &contents).await?
                {
                    return Ok(next);
                }
                (contents.records, again)
            }
        };
        self.note_hold(name, records.get(&current.fingerprint()), now);
        signer.rollout.set(rollout::Publication::Known(records), now);
        self.look_again(name, again);
        Ok(Next::Done)
    }

    fn look_again(&self, name: &str, again: Option<Duration>) {
        if let Some(again) = again {
            self.alarm.set(name.to_owned(), again);
        }
    }

    /// Writes a bundle, unless it has to be looked at again first.
    async fn try_write(
        &self,
        signer: &CustomSigner,
        publication: &Publication,
        object: Option<&DynamicObject>,
        contents: &Contents,
    ) -> anyhow::Result<Option<Next>> {
        let name = &publication.bundle;
        // A CA that was replaced is nobody's contest: it does not wait for one about the last.
        let written = format!("{name} {}", contents.current());
        if !self.contest.may_write(&written, Instant::now()) {
            return Ok(Some(Next::Wait("somebody else keeps changing it".into())));
        }
        match self.write(signer, publication, object, contents).await {
            Ok(()) => Ok(None),
            Err(kube::Error::Api(status))
                if status.is_conflict() || status.is_already_exists() || status.is_not_found() =>
            {
                Ok(Some(Next::Wait("the bundle was changed meanwhile".into())))
            }
            Err(error) => {
                // It may have to sign without, when it has waited for long enough.
                let _ = signer.rollout.choose((self.clock)());
                Err(anyhow::Error::from(error))
                    .with_context(|| format!("cannot write the trust bundle {name}"))
            }
        }
    }

    async fn write(
        &self,
        signer: &CustomSigner,
        publication: &Publication,
        object: Option<&DynamicObject>,
        contents: &Contents,
    ) -> kube::Result<()> {
        let mut labels: BTreeMap<&str, &str> = BTreeMap::from([MANAGED_BY]);
        labels.extend(publication.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        let records = record::encode(&contents.records);
        let mut written = json!({
            "metadata": {
                "labels": labels,
                "annotations": {CURRENT: contents.current(), RECORDS: records, RETIRED: null},
            },
            "spec": {"signerName": signer.custom.name.as_str(), "trustBundle": contents.text()},
        });
        let (name, anchors) = (&publication.bundle, contents.anchors.len());
        tracing::info!(name, anchors, "writing the trust bundle of a signer");
        match object {
            Some(object) => {
                // As it was seen, or not at all.
                written["metadata"]["resourceVersion"] = object.resource_version().into();
                let parameters = PatchParams::default();
                self.bundles.patch(name, &parameters, &Patch::Merge(written)).await.map(drop)
            }
            None => {
                let mut bundle = DynamicObject::new(name, &self.resource).data(json!({
                    "spec": written["spec"],
                }));
                let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
                bundle.metadata.labels = Some(labels.into_iter().map(own).collect());
                let annotations = [(CURRENT, contents.current()), (RECORDS, records)];
                let annotations = annotations.map(|(key, value)| (key.to_owned(), value));
                bundle.metadata.annotations = Some(annotations.into());
                self.bundles.create(&PostParams::default(), &bundle).await.map(drop)
            }
        }
    }

    /// Whether all nodes that report have the bundle as it is.
    fn is_delivered(
        &self,
        name: &str,
        signer: &CustomSigner,
        object: Option<&DynamicObject>,
    ) -> bool {
        let (Some(object), true) = (object, self.held.borrow().contains(name)) else {
            return false;
        };
        let anchors = Anchor::in_text(text(object));
        // One that was put there since is not what nodes were asked to have.
        let current = signer.ca.current().map(|ca| Anchor::of(ca.anchor()));
        if !current.is_some_and(|current| anchors.contains(&current)) {
            return false;
        }
        let wanted = Wanted {
            bundle: name,
            signer: signer.custom.name.as_str(),
            labels: object.labels(),
            digest: &decide::digest(&anchors),
        };
        self.reports().lacking(wanted).is_some_and(|lacking| {
            let (nodes, named) = (lacking.len(), lacking.iter().take(NAMED).collect::<Vec<_>>());
            tracing::debug!(name, nodes, ?named, "nodes without the new trust anchor");
            lacking.is_empty()
        })
    }

    /// Notes whether the newest CA waits for nodes, so that they are watched.
    fn note_hold(&self, name: &str, newest: Option<&Record>, now: OffsetDateTime) {
        let holds = newest.and_then(|record| record.hold_until).is_some_and(|until| until > now);
        self.held.send_if_modified(|held| match holds {
            true => held.insert(name.to_owned()),
            false => held.remove(name),
        });
    }

    /// Watches what nodes report while a CA waits for them. Does not end.
    async fn watch_reports(&self, queue: &Queue<String>) {
        let mut held = self.held.subscribe();
        loop {
            // It cannot fail: the sender is here.
            let _ = held.wait_for(|held| !held.is_empty()).await;
            let take = |event: Result<Event<DynamicObject>, &watcher::Error>| {
                let matters = |name: &str, signer: &str| self.matters(name, signer);
                self.reports().take(event, matters);
                self.held.borrow().iter().for_each(|name| queue.add(name.clone()));
            };
            let (api, config) = (self.node_trusts.clone(), watcher::Config::default());
            tokio::select! {
                () = feed::follow_selected(api, "nodetrusts", config, &COUNTERS, take) => {}
                _ = held.wait_for(BTreeSet::is_empty) => {}
            }
            *self.reports() = Reports::default();
        }
    }

    /// Whether what is asked for by the name of a bundle, or else by a signer, may be ours.
    fn matters(&self, name: &str, signer: &str) -> bool {
        match name {
            "" => self.published.values().any(|(each, _)| each.custom.name.as_str() == signer),
            name => self.published.contains_key(name),
        }
    }

    fn reports(&self) -> MutexGuard<'_, Reports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn tell_foreign(
        &self,
        signer: &CustomSigner,
        object: Option<&DynamicObject>,
        action: &Action,
        now: OffsetDateTime,
    ) {
        let foreign = *action == Action::LeaveAlone;
        if gauge::is_news(signer.custom.name.as_str(), foreign)
            && foreign
            && let Some(object) = object
        {
            let signer = &signer.custom.name;
            let note = format!(
                "somebody else made this trust bundle; the anchors of {signer} are not published"
            );
            self.warn(object, "ForeignTrustBundle", &note, now).await;
        }
    }

    async fn tell_full(
        &self,
        signer: &CustomSigner,
        object: Option<&DynamicObject>,
        anchors: usize,
        now: OffsetDateTime,
    ) {
        let signer = &signer.custom.name;
        let note = format!(
            "no room for the trust anchor of the new CA of {signer}: with it there would be {anchors}, and certificates issued under the others have not expired; replace the CA less often or grant shorter lifetimes"
        );
        if let Some(object) = object {
            self.warn(object, "TrustBundleFull", &note, now).await;
        }
    }

    async fn warn(
        &self,
        object: &DynamicObject,
        reason: &'static str,
        note: &str,
        now: OffsetDateTime,
    ) {
        let name = object.name_any();
        tracing::warn!(name, "{note}");
        let notice = Notice { action: "Publishing", reason, note };
        self.notices.warn_about(object.object_ref(&self.resource), notice, now).await;
    }
}

fn text(object: &DynamicObject) -> &str {
    object.data.pointer("/spec/trustBundle").and_then(Value::as_str).unwrap_or_default()
}

/// What is there, as far as it matters. The labels are those that it should have besides ours.
fn found(object: &DynamicObject, labels: &BTreeMap<String, String>) -> Found {
    let (key, value) = MANAGED_BY;
    let annotation = |name: &str| object.annotations().get(name);
    let retired = annotation(RETIRED).and_then(|time| OffsetDateTime::parse(time, &Rfc3339).ok());
    Found {
        ours: object.labels().get(key).is_some_and(|found| found == value),
        labelled: labels.iter().all(|(key, value)| object.labels().get(key) == Some(value)),
        text: text(object).to_owned(),
        current: annotation(CURRENT).cloned(),
        records: records(object),
        retired,
    }
}

/// The anchors of a bundle that somebody else maintains: how long they stay there is theirs to say.
fn foreign_records(object: &DynamicObject) -> Records {
    let anchors = Anchor::in_text(text(object));
    anchors.iter().map(|anchor| (anchor.fingerprint(), Record::default())).collect()
}
