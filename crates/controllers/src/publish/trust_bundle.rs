//! A trust bundle with what clients verify the API server with. One that is replaced stays for a
//! while beside the new one, so that nobody who still meets the old CA is left without it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::Instant;

use super::alarm::Alarm;
use super::contest::Contest;
use super::source::SIGNER;
use super::syncs::{self, TRUST_BUNDLE};
use super::{Bundle, RootCa};
use crate::feed;
use crate::metrics::TRUST_BUNDLE as COUNTERS;
use crate::options::Clock;
use crate::pool::{self, Next};
use crate::queue::{Backoff, Queue};
use crate::signers::config::MANAGED_BY;

/// Since when a bundle of ours is not the current one.
const RETIRED: &str = "windlass.dev/retired-at";
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(60));
/// The only key: there is one current bundle.
const ALL: &str = "clustertrustbundles";

/// Runs the loop with the kind in the version that the server has; does not end.
pub async fn run(
    client: Client,
    resource: ApiResource,
    ca: Arc<RootCa>,
    overlap: Duration,
    clock: Clock,
) {
    let queue = Arc::new(Queue::new(&COUNTERS, BACKOFF));
    let selector = format!("spec.signerName={SIGNER}");
    let watch = feed::follow(client.clone(), &resource, Some(&selector), &COUNTERS, |event| {
        if !matches!(event, Event::Init) {
            queue.add(ALL);
        }
    });
    let mut changes = ca.changes();
    let of_ca = async {
        while changes.changed().await.is_ok() {
            queue.add(ALL);
        }
        std::future::pending::<()>().await;
    };
    let publisher = Arc::new(Publisher {
        bundles: Api::all_with(client, &resource),
        resource: resource.clone(),
        ca,
        overlap,
        clock,
        contest: Contest::default(),
        foreign: Mutex::default(),
        alarm: Alarm::new(),
    });
    let of_time = publisher.alarm.ring(|key| queue.add(key));
    let reconcile = |_| publisher.clone().reconcile();
    // One worker: there is one key.
    tokio::join!(watch, of_ca, of_time, pool::work(queue.clone(), 1, reconcile));
}

/// A bundle of the signer, as far as it matters.
#[derive(Clone, Debug)]
struct Found {
    name: String,
    uid: Option<String>,
    version: Option<String>,
    text: String,
    ours: bool,
    retired: Option<OffsetDateTime>,
}

/// A step towards the one bundle that there should be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    /// Make the current one.
    Create,
    /// Give the current one its text.
    Correct(String),
    /// One that was replaced is the current one again.
    Revive(String),
    /// Write down since when it is not the current one.
    Retire(String),
    /// Delete it as it was seen: its uid and version.
    Delete(String, Option<String>, Option<String>),
}

/// What to do about all bundles of the signer.
#[derive(Debug, Default, PartialEq)]
struct Decision {
    /// In this order; who cannot do one does not go on to the next.
    changes: Vec<Change>,
    /// Bundles of somebody else.
    foreign: BTreeSet<String>,
    /// When to look again.
    again: Option<Duration>,
}

fn decide(found: &[Found], wanted: &Bundle, now: OffsetDateTime, overlap: Duration) -> Decision {
    let mut decision = Decision::default();
    match found.iter().find(|found| found.name == wanted.name) {
        None => decision.changes.push(Change::Create),
        // The name is made from the text: whoever made it, it is meant to be this one.
        Some(found) if found.text != wanted.text => {
            decision.changes.push(Change::Correct(found.name.clone()));
        }
        Some(found) if found.retired.is_some() => {
            decision.changes.push(Change::Revive(found.name.clone()));
        }
        Some(_) => {}
    }
    for found in found.iter().filter(|found| found.name != wanted.name) {
        if !found.ours {
            decision.foreign.insert(found.name.clone());
            continue;
        }
        let Found { name, uid, version, .. } = found.clone();
        // A time to come was written by a clock that was wrong.
        let age = found.retired.and_then(|since| Duration::try_from(now - since).ok());
        match age {
            Some(age) if age >= overlap => {
                decision.changes.push(Change::Delete(name, uid, version));
            }
            Some(age) => {
                let left = overlap - age;
                decision.again = Some(decision.again.map_or(left, |again| again.min(left)));
            }
            None => decision.changes.push(Change::Retire(name)),
        }
    }
    decision
}

struct Publisher {
    bundles: Api<DynamicObject>,
    resource: ApiResource,
    ca: Arc<RootCa>,
    overlap: Duration,
    clock: Clock,
    contest: Contest,
    /// The bundles of others that were told of.
    foreign: Mutex<BTreeSet<String>>,
    alarm: Alarm<&'static str>,
}

impl Publisher {
    async fn reconcile(self: Arc<Self>) -> anyhow::Result<Next> {
        let began = Instant::now();
        let outcome = self.sync().await;
        TRUST_BUNDLE.count(syncs::code(&outcome), began.elapsed());
        outcome
    }

    async fn sync(&self) -> anyhow::Result<Next> {
        let published = self.ca.current();
        let Some(wanted) = &published.bundle else {
            tracing::warn!("no certificate of the root CAs may be in a trust bundle");
            return Ok(Next::Done);
        };
        let selector = ListParams::default().fields(&format!("spec.signerName={SIGNER}"));
        let found = self.bundles.list(&selector).await.map_err(anyhow::Error::from)?;
        let found: Vec<Found> = found.items.iter().map(Found::of).collect();
        let now = (self.clock)();
        let Decision { changes, foreign, again } = decide(&found, wanted, now, self.overlap);
        self.tell(foreign);
        for change in changes {
            if let Change::Create | Change::Correct(_) = change
                && !self.contest.may_write(&wanted.name, Instant::now())
            {
                return Ok(Next::Wait("somebody else keeps changing it".into()));
            }
            match self.make(&change, wanted, now).await {
                Ok(()) => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(kube::Error::Api(status))
                    if status.is_conflict() || status.is_already_exists() =>
                {
                    return Ok(Next::Wait("a bundle was changed meanwhile".into()));
                }
                Err(error) => {
                    return Err(anyhow::Error::from(error))
                        .with_context(|| format!("cannot do this: {change:?}"));
                }
            }
        }
        if let Some(again) = again {
            self.alarm.set(ALL, again);
        }
        Ok(Next::Done)
    }

    async fn make(
        &self,
        change: &Change,
        wanted: &Bundle,
        now: OffsetDateTime,
    ) -> kube::Result<()> {
        let patch = match change {
            Change::Create => {
                let bundle = self.bundle(wanted);
                return self.bundles.create(&PostParams::default(), &bundle).await.map(drop);
            }
            Change::Delete(name, uid, version) => {
                let preconditions = kube::api::Preconditions {
                    uid: uid.clone(),
                    resource_version: version.clone(),
                };
                let parameters =
                    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                tracing::info!(name, "the trust bundle was replaced long enough ago; deleting it");
                return self.bundles.delete(name, &parameters).await.map(drop);
            }
            Change::Correct(name) => (name, json!({"spec": {"trustBundle": wanted.text}})),
            Change::Revive(name) => (name, retired(Value::Null)),
            Change::Retire(name) => (name, retired(now.format(&Rfc3339).ok().into())),
        };
        let (name, patch) = patch;
        self.bundles.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    fn bundle(&self, wanted: &Bundle) -> DynamicObject {
        let (label, value) = MANAGED_BY;
        let mut bundle = DynamicObject::new(&wanted.name, &self.resource);
        bundle.labels_mut().insert(label.into(), value.into());
        bundle.data(json!({"spec": {"signerName": SIGNER, "trustBundle": wanted.text}}))
    }

    /// Tells of bundles of others, when there are others than before.
    fn tell(&self, foreign: BTreeSet<String>) {
        let mut told = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        if *told != foreign {
            if !foreign.is_empty() {
                tracing::warn!(
                    bundles = ?foreign,
                    "somebody else made trust bundles of {SIGNER}; they are left alone"
                );
            }
            *told = foreign;
        }
    }
}

fn retired(value: Value) -> Value {
    json!({"metadata": {"annotations": {RETIRED: value}}})
}

impl Found {
    fn of(object: &DynamicObject) -> Found {
        let (label, value) = MANAGED_BY;
        let text = object.data.pointer("/spec/trustBundle").and_then(Value::as_str);
        let retired = object.annotations().get(RETIRED);
        Found {
            name: object.name_any(),
            uid: object.uid(),
            version: object.resource_version(),
            text: text.unwrap_or_default().to_owned(),
            ours: object.labels().get(label).is_some_and(|found| found == value),
            retired: retired.and_then(|time| OffsetDateTime::parse(time, &Rfc3339).ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: OffsetDateTime = time::macros::datetime!(2026-11-15 12:00 UTC);
    const HOUR: Duration = Duration::from_secs(3600);

    fn found(name: &str, text: &str, ours: bool, retired: Option<i64>) -> Found {
        Found {
            name: name.into(),
            uid: Some("u".into()),
            version: Some("7".into()),
            text: text.into(),
            ours,
            retired: retired.map(|minutes| NOW - time::Duration::minutes(minutes)),
        }
    }

    #[test]
    fn old_bundles_stay_beside_the_new_one_for_a_while() {
        let wanted = Bundle { name: "new".into(), text: "text".into() };
        let (new, old) = (|| found("new", "text", true, None), |r| found("old", "o", true, r));
        let other = || found("other", "o", false, Some(600));
        let retire = || Change::Retire("old".into());
        let delete = || Change::Delete("old".into(), Some("u".into()), Some("7".into()));
        type Row = (Vec<Found>, Vec<Change>, Option<u64>);
        let table: Vec<Row> = vec![
            (vec![], vec![Change::Create], None),
            (vec![new()], vec![], None),
            (vec![old(None)], vec![Change::Create, retire()], None),
            (vec![new(), old(None)], vec![retire()], None),
            (vec![new(), old(Some(0))], vec![], Some(60)),
            (vec![new(), old(Some(59))], vec![], Some(1)),
            (vec![new(), old(Some(60))], vec![delete()], None),
            // A current one that is missing comes first.
            (vec![old(Some(60))], vec![Change::Create, delete()], None),
            // The clock was set back.
            (vec![new(), old(Some(-5))], vec![retire()], None),
            (vec![new(), other()], vec![], None),
            (vec![found("new", "text", true, Some(5))], vec![Change::Revive("new".into())], None),
            (vec![found("new", "bad", false, None)], vec![Change::Correct("new".into())], None),
        ];
        for (found, changes, minutes) in table {
            let decision = decide(&found, &wanted, NOW, HOUR);
            assert_eq!(decision.changes, changes, "{found:?}");
            let again = minutes.map(|minutes| Duration::from_secs(60 * minutes));
            assert_eq!(decision.again, again, "{found:?}");
            let foreign = found.iter().filter(|found| !found.ours && found.name != "new");
            assert_eq!(decision.foreign, foreign.map(|found| found.name.clone()).collect());
        }
        let decision = decide(&[new(), old(Some(1)), old(Some(30))], &wanted, NOW, HOUR);
        assert_eq!(decision.again, Some(HOUR / 2));
    }
}
