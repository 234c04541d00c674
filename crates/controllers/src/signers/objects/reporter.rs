//! Writes the status of Signer objects: when conditions or authorities change, and from time to time when only numbers
//! do.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use kube::Api;
use kube::ResourceExt as _;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::time::Instant;
use windlass_pki::Certificate;
use windlass_runtime::client_error::describe;
use windlass_runtime::failure_log::FailureLog;

use super::status::{AuthorityInfo, SignerObservation, SignerState, compute, is_urgent};
use super::{ObjectVerdict, SignerObjects, SignerSources};
use crate::ca::SigningCa;
use crate::csr::is_not_found;
use crate::metrics::MetricFamilies;
use crate::options::Clock;
use crate::publisher::anchors::TrustAnchor;
use crate::signers::CustomSigner;

/// Interval between two computations of all statuses.
const INTERVAL: Duration = Duration::from_secs(1);
/// Interval between two writes of one status if only numbers have changed.
const NUMBERS_INTERVAL: Duration = Duration::from_secs(10);

/// Reports the status of all objects.
pub(super) async fn run(
    api: &Api<DynamicObject>,
    resource: &ApiResource,
    sources: &SignerSources,
    clock: &Clock,
    metrics: &MetricFamilies,
) -> Infallible {
    let mut changes = sources.verdicts();
    let _reset = metrics.signer_objects.reset_on_drop();
    let mut reporter = StatusReporter {
        api,
        resource,
        metrics,
        written: HashMap::new(),
        issued: HashMap::new(),
        failures: FailureLog::default(),
    };
    loop {
        let verdicts = changes.borrow_and_update().clone();
        let objects = sources.objects().borrow().clone().unwrap_or_default();
        let signers = sources.set.subscribe().borrow().clone();
        reporter.written.retain(|name, _| objects.contains_key(name));
        metrics.signer_objects.retain(|name| objects.contains_key(name));
        reporter.observe_issuance(&signers, clock());
        for (name, verdict) in verdicts.iter() {
            reporter.report(&objects, name, verdict, &signers, clock()).await;
        }
        // Changes of CAs and publications have no common signal, and statuses are cheap to compute.
        let _ = tokio::time::timeout(INTERVAL, changes.changed()).await;
    }
}

struct StatusReporter<'a> {
    api: &'a Api<DynamicObject>,
    resource: &'a ApiResource,
    metrics: &'a MetricFamilies,
    /// Last written status of each object, which the watch may not have delivered yet, and when it was written.
    written: HashMap<String, (Value, Instant)>,
    /// Numbers of issued certificates by signer, as last seen.
    issued: HashMap<String, u64>,
    failures: FailureLog,
}

impl StatusReporter<'_> {
    /// Notes which signers have issued certificates since the last time.
    fn observe_issuance(&mut self, signers: &[CustomSigner], now: OffsetDateTime) {
        for signer in signers {
            let name = signer.custom.name.as_str();
            let issued = self.metrics.signers.signer(name).issued.get();
            let before = self.issued.insert(name.to_owned(), issued);
            if issued > before.unwrap_or(0) {
                self.metrics.statistics.record_issued(name, now);
            }
        }
    }

    async fn report(
        &mut self,
        objects: &SignerObjects,
        name: &str,
        verdict: &ObjectVerdict,
        signers: &[CustomSigner],
        now: OffsetDateTime,
    ) {
        let Some(object) = objects.get(name) else { return };
        let delivered = object.data.get("status").cloned().unwrap_or(Value::Null);
        let old = self.written.get(name).map_or(&delivered, |(written, _)| written);
        let signer = match verdict {
            ObjectVerdict::Accepted(signer) => signers.iter().find(|each| each.custom.name == *signer),
            ObjectVerdict::Invalid(_) | ObjectVerdict::Duplicate { .. } => None,
        };
        let observation = SignerObservation {
            generation: object.metadata.generation,
            verdict: verdict.clone(),
            signer: signer.map(|signer| self.observe(signer, now)),
        };
        let status = compute(old, &observation, now);
        self.metrics.signer_objects.set(name, &object.data["spec"], &status);
        let last = self.written.get(name).map(|(_, at)| at.elapsed());
        let is_due =
            last.is_none_or(|last| last >= if is_urgent(old, &status) { INTERVAL } else { NUMBERS_INTERVAL });
        if *old == status || !is_due {
            return;
        }
        let body = json!({
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {"name": name, "uid": object.uid()},
            "status": status,
        });
        match self.api.patch_status(name, &PatchParams::default(), &Patch::Merge(body)).await {
            Ok(_) => drop(self.written.insert(name.to_owned(), (status, Instant::now()))),
            Err(error) if is_not_found(&error) => {}
            Err(error) => {
                let error = describe(&error);
                if self.failures.is_due(&error, Instant::now()) {
                    tracing::warn!(name, error, "cannot write the status of a Signer; retrying");
                }
            }
        }
    }

    fn observe(&self, signer: &CustomSigner, now: OffsetDateTime) -> SignerState {
        let CustomSigner { custom, ca, rollout, .. } = signer;
        let name = custom.name.as_str();
        let info = |ca: &SigningCa| self.authority_info(name, ca.certificate(), ca.anchor());
        let signing = rollout.select_ca(now).map(|ca| info(&ca));
        let anchors = rollout.published_anchors();
        let published = anchors.iter().filter_map(|anchor| anchor.certificate());
        let publication = rollout.publication();
        SignerState {
            ca_error: ca.error(),
            newest: ca.current().map(|ca| info(&ca)),
            signing,
            held: rollout.hold(),
            published: published.map(|anchor| self.authority_info(name, &anchor, &anchor)).collect(),
            bundle: custom.publish.as_ref().map(|publication| publication.bundle.clone()),
            publication,
            lists: self.metrics.statistics.lists(name),
            rotation_states: rollout.authority_states(),
            pending_requests: self.metrics.statistics.pending_requests(name),
            last_issued: self.metrics.statistics.last_issued(name),
        }
    }

    fn authority_info(&self, signer: &str, certificate: &Certificate, anchor: &Certificate) -> AuthorityInfo {
        let id = certificate.authority_id();
        let organizations = certificate.organizations().iter().map(|each| format!("O={each}"));
        let names = certificate.common_name().map(|name| format!("CN={name}"));
        let subject: Vec<String> = names.into_iter().chain(organizations).collect();
        let validity = certificate.validity();
        AuthorityInfo {
            subject: subject.join(","),
            not_before: validity.not_before(),
            not_after: validity.not_after(),
            anchor: TrustAnchor::from_certificate(anchor).fingerprint(),
            statistics: self.metrics.statistics.authority(signer, &id),
            id,
        }
    }
}
