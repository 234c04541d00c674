//! A bundle of a signer during a rotation: what it contains, who has it, and writing it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_api::ca_rotation::LaggardKind;
use windlass_api::timestamp;
use windlass_pki::limits::MAX_TRUST_BUNDLE_BYTES;

use super::bundle_targets::BundleTargets;
use super::delivery_history::DeliveryHistory;
use super::observation::{BundleObservation, BundleOwner, BundleRole, ConsumerProof};
use super::reports;
use crate::limits::MAX_ANCHORS;
use crate::publisher::anchors::{
    AnchorRecord, CURRENT, ExpectedBundle, NodeReports, RECORDS, TrustAnchor, digest, encode_records,
    records, trust_bundle_text,
};
use crate::signers::config::MANAGED_BY;

/// Annotation with the authorities whose leaves agents renew, as JSON by their ids.
const TAINTED: &str = "windlass.dev/tainted-authorities";

/// A bundle of a signer as it was read.
pub struct SignerBundle {
    /// Which of the signer's bundles it is.
    pub role: BundleRole,
    pub name: String,
    pub signer: String,
    /// Labels that the configuration of the signer gives it.
    pub labels: BTreeMap<String, String>,
    /// The object; `None` if it does not exist.
    pub object: Option<DynamicObject>,
}

/// Content of a bundle that is to be written.
pub struct AnchorChange {
    /// Anchors of the rotation, that of the active authority first. Other anchors of the bundle follow.
    pub anchors: Vec<TrustAnchor>,
    /// Anchors of the rotation that are removed.
    pub removed: Vec<TrustAnchor>,
    /// Fingerprint of the active authority's anchor.
    pub active: String,
    /// Authority whose leaves agents renew, and over which time; `None` if none.
    pub taint: Option<(String, Duration)>,
    /// Longest lifetime that the signer grants.
    pub max_duration: Duration,
}

impl SignerBundle {
    /// Lists the anchors that the bundle has.
    pub fn anchors(&self) -> Vec<TrustAnchor> {
        self.object
            .as_ref()
            .map(|object| TrustAnchor::parse_pem(trust_bundle_text(object)))
            .unwrap_or_default()
    }

    fn owner(&self) -> BundleOwner {
        let (key, value) = MANAGED_BY;
        let is_ours = |object: &DynamicObject| object.labels().get(key).is_some_and(|found| found == value);
        match &self.object {
            Some(object) if !is_ours(object) => BundleOwner::Foreign,
            Some(_) | None => BundleOwner::Windlass,
        }
    }

    /// Returns the fingerprint of the active authority's anchor, if the controllers have written it.
    pub fn active(&self) -> Option<&String> {
        let own = self.object.as_ref().filter(|_| self.owner() == BundleOwner::Windlass)?;
        own.annotations().get(CURRENT)
    }

    fn tainted(&self) -> BTreeSet<String> {
        let annotation = self.object.as_ref().and_then(|object| object.annotations().get(TAINTED));
        let parsed = annotation.and_then(|text| serde_json::from_str::<BTreeMap<String, Value>>(text).ok());
        parsed.unwrap_or_default().into_keys().collect()
    }

    /// Observes the bundle with its consumers.
    pub fn observe(
        &self,
        reports: &NodeReports,
        targets: &BundleTargets,
        history: &mut DeliveryHistory,
    ) -> BundleObservation {
        let anchors = self.anchors();
        let labels = self.object.as_ref().map(|object| object.labels().clone()).unwrap_or_default();
        let digest = digest(&anchors);
        let expected =
            ExpectedBundle { bundle: &self.name, signer: &self.signer, labels: &labels, digest: &digest };
        let volumes = reports::list_consumers(reports, expected);
        let mut consumers =
            volumes.zip(targets.list_consumers(expected)).map(|(some, others)| [some, others].concat());
        if let Some(consumers) = &mut consumers {
            let mut current = reports::list_current(reports, expected);
            let synced = consumers.iter().filter(|each| each.kind == LaggardKind::BundleTarget);
            let synced = synced.filter(|each| each.proof == ConsumerProof::NotObservable);
            current.extend(synced.map(|each| each.name.clone()));
            history.update(&digest, current, consumers);
        }
        BundleObservation {
            name: self.name.clone(),
            owner: self.owner(),
            anchors: anchors.iter().map(TrustAnchor::fingerprint).collect(),
            tainted: self.tainted(),
            consumers,
        }
    }

    /// Writes the bundle if it is still as it was read; returns whether it was. Fails if the anchors do not fit.
    pub async fn write(
        &self,
        api: &Api<DynamicObject>,
        resource: &ApiResource,
        change: &AnchorChange,
        now: OffsetDateTime,
    ) -> anyhow::Result<bool> {
        let written = self.encode(change, now)?;
        tracing::info!(name = self.name, "writing trust bundle for a rotation");
        let result = match &self.object {
            Some(_) => api.patch(&self.name, &PatchParams::default(), &Patch::Merge(written)).await.map(drop),
            None => {
                let mut object = DynamicObject::new(&self.name, resource);
                object.metadata = serde_json::from_value(without_nulls(&written["metadata"]))?;
                object.metadata.name = Some(self.name.clone());
                object.data = json!({"spec": written["spec"]});
                api.create(&PostParams::default(), &object).await.map(drop)
            }
        };
        unless_changed(result)
    }

    /// Makes another authority the active one, if the bundle is still as it was read; returns whether it was.
    pub async fn write_active(&self, api: &Api<DynamicObject>, active: &str) -> anyhow::Result<bool> {
        let version = self.object.as_ref().and_then(|object| object.resource_version());
        let patch = json!({"metadata": {"resourceVersion": version, "annotations": {CURRENT: active}}});
        unless_changed(api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop))
    }

    fn encode(&self, change: &AnchorChange, now: OffsetDateTime) -> anyhow::Result<Value> {
        let mut anchors = change.anchors.clone();
        for anchor in self.anchors() {
            if !anchors.contains(&anchor) && !change.removed.contains(&anchor) {
                anchors.push(anchor);
            }
        }
        let text: String = anchors.iter().map(TrustAnchor::to_pem).collect();
        anyhow::ensure!(
            anchors.len() <= MAX_ANCHORS && text.len() <= MAX_TRUST_BUNDLE_BYTES,
            "ClusterTrustBundle {} has no room for another trust anchor",
            self.name
        );
        let known = self.object.as_ref().and_then(records).unwrap_or_default();
        let record = |anchor: &TrustAnchor| {
            let name = anchor.fingerprint();
            let before = known.get(&name).cloned().unwrap_or_default();
            let is_rotated = change.anchors.contains(anchor);
            let record = AnchorRecord {
                max_duration_seconds: before.max_duration_seconds.max(change.max_duration.as_secs()),
                hold_until: before.hold_until.filter(|_| !is_rotated),
                retain_until: before.retain_until.filter(|_| !is_rotated),
            };
            (name, record)
        };
        let records = encode_records(&anchors.iter().map(record).collect());
        let mut labels: BTreeMap<&str, &str> = BTreeMap::from([MANAGED_BY]);
        labels.extend(self.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        Ok(json!({
            "metadata": {
                "resourceVersion": self.object.as_ref().and_then(|object| object.resource_version()),
                "labels": labels,
                "annotations": {
                    CURRENT: change.active,
                    RECORDS: records,
                    TAINTED: self.encode_taint(change, now),
                },
            },
            "spec": {"signerName": self.signer, "trustBundle": text},
        }))
    }

    /// Keeps the time since which an authority is tainted, because agents spread their renewals from then on.
    fn encode_taint(&self, change: &AnchorChange, now: OffsetDateTime) -> Option<String> {
        let (id, window) = change.taint.as_ref()?;
        let annotation = self.object.as_ref().and_then(|object| object.annotations().get(TAINTED));
        let known = annotation.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let since = known.and_then(|known| known[id]["since"].as_str().map(str::to_owned));
        let since = since.unwrap_or_else(|| timestamp::format(now));
        Some(json!({id: {"since": since, "window": format!("{}s", window.as_secs())}}).to_string())
    }
}

fn unless_changed(result: kube::Result<()>) -> anyhow::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(kube::Error::Api(status))
            if status.is_conflict() || status.is_already_exists() || status.is_not_found() =>
        {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

fn without_nulls(metadata: &Value) -> Value {
    let mut metadata = metadata.clone();
    if let Some(fields) = metadata.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
        if let Some(annotations) = fields.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|_, value| !value.is_null());
        }
    }
    metadata
}
