//! Status report of a Bundle.

use serde::Serialize;
use time::{Duration, OffsetDateTime};
use windlass_api::timestamp;
use windlass_api::trust_bundle::{BundleCondition, SYNCED, SourceStatus};
use windlass_controllers::bundles::certificate_set::{CertificateFilter, CertificateSet};
use windlass_controllers::bundles::namespace_filter::{NamespaceFilter, NamespaceMatch};
use windlass_controllers::bundles::target::{
    DesiredTarget, DriftReason, ObservedTarget, TargetAction, TargetIntent, TargetKind, decide,
    desired_targets,
};
use windlass_pki::ForeignCertificate;

use super::snapshot::BundleSnapshot;
use crate::commands::csr::view;

/// Status of a Bundle, as `-o json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleStatusReport {
    pub name: String,
    /// The Synced condition that the controllers set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synced: Option<BundleCondition>,
    /// Version of the default CA package in the Bundle.
    #[serde(rename = "defaultCAVersion", skip_serializing_if = "Option::is_none")]
    pub default_ca_version: Option<String>,
    /// One entry per source, copied from the Bundle's status.
    pub sources: Vec<SourceStatus>,
    /// Certificates that the targets contain.
    pub certificates: Vec<BundleCertificate>,
    /// Number of targets that should exist.
    pub targets: usize,
    /// Number of targets that match the Bundle.
    pub up_to_date: usize,
    /// Targets that are missing or differ from the Bundle.
    pub outdated: Vec<TargetProblem>,
    /// Problems that do not belong to a single target.
    pub problems: Vec<String>,
    /// Remarks that do not indicate a problem.
    pub notes: Vec<String>,
}

/// A certificate found in the targets of the Bundle.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct BundleCertificate {
    /// SHA-256 of the DER encoding, in hexadecimal.
    pub fingerprint: String,
    pub subject: String,
    /// Start of the validity period.
    pub not_before: String,
    /// End of the validity period.
    pub not_after: String,
    /// Whether it is a CA certificate.
    pub authority: bool,
}

/// A target that is missing or differs from the Bundle.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TargetProblem {
    /// Kind of the target: ConfigMap, Secret or ClusterTrustBundle.
    pub kind: String,
    /// Namespace of the target; empty for cluster-scoped targets.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
    pub problem: String,
}

/// Certificates that expire within this period are reported.
const SOON: Duration = Duration::days(30);

impl BundleStatusReport {
    /// Evaluates a snapshot at the given time.
    pub fn from_snapshot(seen: &BundleSnapshot, now: OffsetDateTime) -> BundleStatusReport {
        let (bundle, status) = (&seen.bundle, seen.bundle.status.clone().unwrap_or_default());
        let mut pool = CertificateSet::new(CertificateFilter::default(), now);
        let read = seen.content.as_ref().map(|text| pool.add(text.as_bytes()));
        let mut verdict = BundleStatusReport {
            name: bundle.metadata.name.clone(),
            synced: status.conditions.into_iter().find(|condition| condition.kind == SYNCED),
            default_ca_version: status.default_ca_version,
            sources: status.sources,
            certificates: pool.certificates().map(|(hash, found)| fact(hash, found)).collect(),
            targets: 0,
            up_to_date: 0,
            outdated: Vec::new(),
            problems: Vec::new(),
            notes: Vec::new(),
        };
        if let Some(Err(error)) = read {
            verdict.problems.push(format!("a target contains something else than certificates: {error}"));
        }
        verdict.check_status(bundle.metadata.generation);
        verdict.check_expiry(&pool, now);
        match NamespaceFilter::new(bundle.spec.target.as_ref(), []) {
            Ok(namespace_filter) => verdict.check_targets(seen, &pool, &namespace_filter),
            Err(error) => verdict.problems.push(format!("spec.target.namespaceSelector: {error}")),
        }
        for (kind, why) in &seen.unseen {
            verdict.notes.push(format!("{kind}s not checked: {why}"));
        }
        verdict
    }

    /// True if there are neither target problems nor others; otherwise the command exits with 1.
    pub fn is_healthy(&self) -> bool {
        self.outdated.is_empty() && self.problems.is_empty()
    }

    fn check_status(&mut self, generation: i64) {
        match &self.synced {
            None => {
                let words =
                    "no controller has reconciled the Bundle; check that one is running and is the leader";
                self.problems.push(words.to_owned());
            }
            Some(synced) => {
                if synced.observed_generation.is_some_and(|seen| seen < generation) {
                    let words = "the controller has not reconciled the latest generation";
                    self.problems.push(words.to_owned());
                }
                if synced.status != "True" {
                    self.problems.push(format!("{}: {}", synced.reason, synced.message));
                }
            }
        }
        let sources = self.sources.iter();
        let remarks = sources.filter_map(|each| Some((&each.source, each.problem.as_ref()?)));
        self.notes.extend(remarks.map(|(source, problem)| format!("{source}: {problem}")));
    }

    fn check_expiry(&mut self, pool: &CertificateSet, now: OffsetDateTime) {
        let ends = || pool.certificates().map(|(_, certificate)| certificate.not_after());
        let expired = ends().filter(|end| *end < now).count();
        let soon = ends().filter(|end| *end >= now && *end - now < SOON).count();
        for (count, words) in [(expired, "expired"), (soon, "expiring soon")] {
            if count > 0 {
                self.notes.push(format!("certificates {words}: {count}"));
            }
        }
    }

    fn check_targets(
        &mut self,
        seen: &BundleSnapshot,
        pool: &CertificateSet,
        namespace_filter: &NamespaceFilter,
    ) {
        let desired = desired_targets(&seen.bundle, pool);
        // Controllers may be restricted to certain namespaces, which only their condition message
        // reveals.
        let said = self.synced.as_ref().map_or("", |synced| synced.message.as_str());
        let some_only = said.contains("allowed namespaces");
        if some_only {
            let words =
                "the controller is limited to some namespaces; targets missing in others are not reported";
            self.notes.push(words.to_owned());
        }
        let mut wanted = Vec::new();
        for each in &desired {
            if seen.unseen.iter().any(|(kind, _)| *kind == each.kind) {
                continue;
            }
            if each.kind == TargetKind::ClusterTrustBundle {
                wanted.push((each, ""));
                continue;
            }
            for (name, metadata) in &seen.namespaces {
                let labels = metadata.labels.clone().unwrap_or_default();
                let place =
                    namespace_filter.match_namespace(name, &labels, metadata.deletion_timestamp.is_some());
                let there = seen.targets.contains_key(&(each.kind, name.clone(), each.name.clone()));
                if place == NamespaceMatch::Inside && (there || !some_only) {
                    wanted.push((each, name.as_str()));
                }
            }
        }
        self.targets = wanted.len();
        for (each, namespace) in &wanted {
            self.check_target(seen, each, namespace);
        }
        self.up_to_date = self.targets - self.outdated.len();
        self.check_leftovers(seen, &wanted);
    }

    fn check_target(&mut self, seen: &BundleSnapshot, desired: &DesiredTarget, namespace: &str) {
        let (kind, name) = (desired.kind, &desired.name);
        let found = seen.targets.get(&(kind, namespace.to_owned(), name.clone()));
        let found = found.map(|metadata| ObservedTarget::from_metadata(kind, metadata));
        let action = match found {
            None => TargetAction::Write(DriftReason::Missing),
            Some(_) => decide(&seen.bundle.metadata, TargetIntent::Wanted(desired), kind, found.as_ref()),
        };
        let problem = match action {
            TargetAction::Leave | TargetAction::Release | TargetAction::Delete => return,
            TargetAction::Blocked(why) => why,
            TargetAction::Write(why) => words(why).to_owned(),
        };
        self.add(kind, namespace, name, problem);
    }

    /// Reports targets that should no longer exist.
    fn check_leftovers(&mut self, seen: &BundleSnapshot, wanted: &[(&DesiredTarget, &str)]) {
        for ((kind, namespace, name), metadata) in &seen.targets {
            let is_wanted = wanted.iter().any(|(each, place)| {
                each.kind == *kind && each.name == *name && *place == namespace.as_str()
            });
            let ending =
                seen.namespaces.get(namespace).is_none_or(|space| space.deletion_timestamp.is_some());
            let found = ObservedTarget::from_metadata(*kind, metadata);
            let ours = found.belongs_to(&seen.bundle.metadata);
            if !is_wanted && ours && !(ending && *kind != TargetKind::ClusterTrustBundle) {
                self.add(*kind, namespace, name, "no longer a target; to be deleted".to_owned());
            }
        }
    }

    fn add(&mut self, kind: TargetKind, namespace: &str, name: &str, problem: String) {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.outdated.push(TargetProblem { kind: kind.to_string(), namespace, name, problem });
    }
}

fn words(why: DriftReason) -> &'static str {
    match why {
        DriftReason::Missing => "missing, or without the target label",
        DriftReason::Owner => "owner reference missing",
        DriftReason::Label => "has the label of another Bundle",
        DriftReason::Content => "content outdated",
        DriftReason::Metadata => "labels or annotations changed",
        DriftReason::Keys => "keys changed",
    }
}

fn fact(hash: &[u8; 32], certificate: &ForeignCertificate) -> BundleCertificate {
    BundleCertificate {
        fingerprint: hash.iter().map(|octet| format!("{octet:02x}")).collect(),
        subject: view::name(certificate.subject()),
        not_before: timestamp::format(certificate.not_before()),
        not_after: timestamp::format(certificate.not_after()),
        authority: certificate.is_authority(),
    }
}

#[cfg(test)]
mod tests;
