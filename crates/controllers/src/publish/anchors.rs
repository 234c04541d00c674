//! What the user's own signers are trusted by, as one trust bundle for each. When a CA is replaced,
//! its bundle has the new anchor and the old one for a while, so that nobody who still meets
//! certificates of the old CA is left without it.

mod decide;
mod gauge;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::join_all;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
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

use decide::{Action, Anchor, Contents, Found, decide};

pub use gauge::metrics;

/// The anchor that is current, by its SHA-256.
const CURRENT: &str = "windlass.dev/anchor";
/// Since when the other anchors of a bundle are not.
const RETIRED: &str = "windlass.dev/retired-at";
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(60));
/// Bundles that are brought in order at the same time.
const WORKERS: usize = 4;

/// Publishes the anchors of those signers that want it, with the kind in the version that the server
/// has; does not end.
pub async fn run(
    client: Client,
    resource: ApiResource,
    signers: Vec<CustomSigner>,
    overlap: Duration,
    clock: Clock,
) {
    let queue = Arc::new(Queue::new(&COUNTERS, BACKOFF));
    let published = signers.into_iter().filter_map(|signer| {
        let publication = signer.custom.publish.clone()?;
        Some((publication.bundle.clone(), (signer, publication)))
    });
    let publisher = Arc::new(Publisher {
        bundles: Api::all_with(client.clone(), &resource),
        notices: Notices::new(client.clone(), "signer-anchors"),
        published: published.collect(),
        overlap,
        clock,
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
    let reconcile = |name: String| publisher.clone().reconcile(name);
    tokio::join!(watch, of_cas, of_time, pool::work(queue.clone(), WORKERS, reconcile));
}

struct Publisher {
    bundles: Api<DynamicObject>,
    notices: Notices,
    /// By the names of the bundles.
    published: BTreeMap<String, (CustomSigner, Publication)>,
    overlap: Duration,
    clock: Clock,
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
        let action = decide(found.as_ref(), current, now, self.overlap);
        let foreign = action == Action::LeaveAlone;
        if gauge::is_news(signer.custom.name.as_str(), foreign)
            && foreign
            && let Some(object) = &object
        {
            self.warn(signer, object, now).await;
        }
        let (contents, again) = match action {
            Action::LeaveAlone => return Ok(Next::Done),
            Action::Keep { again } => (None, again),
            Action::Write { contents, again } => (Some(contents), again),
        };
        if let Some(contents) = contents {
            // A CA that was replaced is nobody's contest: it does not wait for one about the last.
            let written = format!("{name} {}", contents.current());
            if !self.contest.may_write(&written, Instant::now()) {
                return Ok(Next::Wait("somebody else keeps changing it".into()));
            }
            match self.write(signer, publication, object.as_ref(), &contents).await {
                Ok(()) => {}
                Err(kube::Error::Api(status))
                    if status.is_conflict()
                        || status.is_already_exists()
                        || status.is_not_found() =>
                {
                    return Ok(Next::Wait("the bundle was changed meanwhile".into()));
                }
                Err(error) => {
                    return Err(anyhow::Error::from(error))
                        .with_context(|| format!("cannot write the trust bundle {name}"));
                }
            }
        }
        if let Some(again) = again {
            self.alarm.set(name.to_owned(), again);
        }
        Ok(Next::Done)
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
        let retired = contents.retired.and_then(|time| time.format(&Rfc3339).ok());
        let mut written = json!({
            "metadata": {
                "labels": labels,
                "annotations": {CURRENT: contents.current(), RETIRED: retired},
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
                let current = (CURRENT.to_owned(), contents.current());
                bundle.metadata.annotations = Some(BTreeMap::from([current]));
                self.bundles.create(&PostParams::default(), &bundle).await.map(drop)
            }
        }
    }

    async fn warn(&self, signer: &CustomSigner, object: &DynamicObject, now: OffsetDateTime) {
        let name = object.name_any();
        let note = format!(
            "somebody else made this trust bundle; the anchors of {} are not published",
            signer.custom.name
        );
        tracing::warn!(name, "{note}");
        let notice = Notice { action: "Publishing", reason: "ForeignTrustBundle", note: &note };
        self.notices.warn_about(object.object_ref(&self.resource), notice, now).await;
    }
}

/// What there is, as far as it matters. The labels are those that it should have besides ours.
fn found(object: &DynamicObject, labels: &BTreeMap<String, String>) -> Found {
    let text = object.data.pointer("/spec/trustBundle").and_then(Value::as_str);
    let (key, value) = MANAGED_BY;
    let annotation = |name: &str| object.annotations().get(name);
    let retired = annotation(RETIRED).and_then(|time| OffsetDateTime::parse(time, &Rfc3339).ok());
    Found {
        ours: object.labels().get(key).is_some_and(|found| found == value),
        labelled: labels.iter().all(|(key, value)| object.labels().get(key) == Some(value)),
        text: text.unwrap_or_default().to_owned(),
        current: annotation(CURRENT).cloned(),
        retired,
    }
}
