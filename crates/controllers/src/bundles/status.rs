//! What is said of a Bundle: its status, and events.

use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_api::field::quote;
use windlass_api::timestamp;
use windlass_api::trust_bundle::{
    API_VERSION, Bundle, BundleCondition, BundleStatus, KIND, SYNCED, SourceStatus,
};

use super::namespace_filter::NamespaceFilter;
use super::sources::{GatheredCertificates, SourceError};
use super::target::TargetKind;

/// What has become of a Bundle.
#[derive(Clone, Copy)]
pub enum SyncOutcome<'a> {
    /// Its sources do not give anything; the targets stay as they are.
    Source(&'a SourceError),
    /// Kubernetes keeps ConfigMaps with its name.
    ReservedName,
    /// It wants Secrets, and those are not written here.
    SecretTargetsDisabled(&'a GatheredCertificates),
    /// Some targets could not be written: at least one.
    Targets(&'a GatheredCertificates, &'a [TargetFailure]),
    /// All is as it should be; and whether anything was written for that.
    Synced {
        /// The certificates that were read from the sources.
        harvest: &'a GatheredCertificates,
        /// The namespaces that were synced, for the success message.
        reach: &'a NamespaceFilter,
        /// Whether any target was written.
        wrote: bool,
    },
}

/// A target that could not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetFailure {
    /// Kind of the target object.
    pub kind: TargetKind,
    /// Where; empty for the cluster.
    pub namespace: String,
    /// Name of the target object, usually that of the Bundle.
    pub name: String,
    /// Error message of the API server or of the ownership check.
    pub error: String,
}

/// What is to be said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusReport {
    /// The status to be written, if it is another.
    pub status: Option<BundleStatus>,
    /// The event, if there is news.
    pub event: Option<BundleEvent>,
    /// Whether to try again soon.
    pub retry: bool,
}

/// An event on a Bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleEvent {
    /// Whether the event has type `Warning` instead of `Normal`.
    pub warning: bool,
    /// Reason of the event, in CamelCase.
    pub reason: String,
    /// Action of the event, in CamelCase.
    pub action: &'static str,
    /// Message for users; truncated when the event is published.
    pub note: String,
}

/// What keeps the targets from being looked at. The status stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncBlocker {
    /// The selector of namespaces is none.
    NamespaceSelector(String),
    /// The namespaces are not known.
    NamespaceList(String),
    /// The targets of a kind are not known.
    TargetList(TargetKind, String),
}

/// How many characters a message may have.
const LONGEST: usize = 32_768;
/// How many namespaces a message names.
const NAMED: usize = 10;

/// Says what has become of a Bundle, and what each source gave.
pub fn report(
    bundle: &Bundle,
    outcome: SyncOutcome<'_>,
    sources: &[SourceStatus],
    now: OffsetDateTime,
) -> StatusReport {
    let old = bundle.status.clone().unwrap_or_default();
    let (reason, message) = reason_and_message(outcome);
    let good = matches!(outcome, SyncOutcome::Synced { .. });
    let mut status = BundleStatus {
        conditions: Vec::new(),
        sources: sources.to_vec(),
        // What the targets hold is what it was, unless they were all written.
        default_ca_version: old.default_ca_version.clone(),
        certificates: old.certificates,
        earliest_expiry: old.earliest_expiry.clone(),
    };
    if let SyncOutcome::Synced { harvest, .. } = outcome {
        status.default_ca_version.clone_from(&harvest.package);
        status.certificates = Some(harvest.certificates.len() as u64);
        status.earliest_expiry = harvest.certificates.earliest_expiry().map(timestamp::format);
    }
    let before = old.conditions.iter().find(|condition| condition.kind == SYNCED);
    status.conditions.push(build_condition(before, good, &reason, &message, bundle, now));
    let ours = BundleStatus { conditions: before.cloned().into_iter().collect(), ..old };
    let news = ours.conditions != status.conditions;
    let wrote = matches!(outcome, SyncOutcome::Synced { wrote: true, .. });
    let action = if good { "Synced" } else { "SyncFailed" };
    let event = BundleEvent { warning: !good, reason, action, note: message };
    StatusReport {
        status: (ours != status).then_some(status),
        event: (news || wrote).then_some(event),
        retry: match outcome {
            SyncOutcome::Source(SourceError::Build(_)) | SyncOutcome::Targets(..) => true,
            SyncOutcome::Source(SourceError::NotFound(_))
            | SyncOutcome::ReservedName
            | SyncOutcome::SecretTargetsDisabled(_)
            | SyncOutcome::Synced { .. } => false,
        },
    }
}

fn reason_and_message(outcome: SyncOutcome<'_>) -> (String, String) {
    let (reason, message) = match outcome {
        SyncOutcome::Source(SourceError::NotFound(error)) => {
            ("SourceNotFound".to_owned(), format!("Bundle source was not found: {error}"))
        }
        SyncOutcome::Source(SourceError::Build(error)) => {
            ("SourceBuildError".to_owned(), format!("Failed to build bundle sources: {error}"))
        }
        SyncOutcome::ReservedName => (
            "ReservedName".to_owned(),
            "Bundle name is reserved: Kubernetes keeps a ConfigMap with this name".to_owned(),
        ),
        SyncOutcome::SecretTargetsDisabled(_) => (
            "SecretTargetsDisabled".to_owned(),
            "Bundle has Secret targets but the feature is disabled".to_owned(),
        ),
        SyncOutcome::Targets(_, failures) => failure_message(failures),
        SyncOutcome::Synced { reach, .. } => ("Synced".to_owned(), reach.success_message()),
    };
    (reason, truncate(message))
}

/// The first failure as trust-manager says it, which stops there, and where else it was so.
fn failure_message(failures: &[TargetFailure]) -> (String, String) {
    let mut failures = failures.iter().collect::<Vec<_>>();
    failures.sort_by(|a, b| (a.kind, &a.namespace).cmp(&(b.kind, &b.namespace)));
    let Some((first, others)) = failures.split_first() else { return Default::default() };
    let TargetFailure { kind, namespace, name, error } = first;
    let place = match kind {
        TargetKind::ConfigMap | TargetKind::Secret => format!("to namespace {}", quote(namespace)),
        TargetKind::ClusterTrustBundle => quote(name),
    };
    let mut message = format!("Failed to sync bundle {kind} {place}: {error}");
    if !others.is_empty() {
        let named = others.iter().take(NAMED).map(|failure| match failure.kind {
            TargetKind::ConfigMap | TargetKind::Secret => {
                format!("{} in namespace {}", failure.kind, quote(&failure.namespace))
            }
            TargetKind::ClusterTrustBundle => format!("{} {}", failure.kind, quote(&failure.name)),
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let dots = if others.len() > NAMED { ", …" } else { "" };
        message.push_str(&format!(" (and {} more: {named}{dots})", others.len()));
    }
    (format!("Sync{kind}TargetFailed"), message)
}

fn build_condition(
    before: Option<&BundleCondition>,
    good: bool,
    reason: &str,
    message: &str,
    bundle: &Bundle,
    now: OffsetDateTime,
) -> BundleCondition {
    let status = if good { "True" } else { "False" };
    let since = before.filter(|before| before.status == status);
    BundleCondition {
        kind: SYNCED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since
            .map_or_else(|| timestamp::format(now), |before| before.last_transition_time.clone()),
        observed_generation: Some(bundle.metadata.generation),
    }
}

fn truncate(mut message: String) -> String {
    if let Some((end, _)) = message.char_indices().nth(LONGEST) {
        message.truncate(end);
    }
    message
}

/// A status as it is applied. On a server whose definition of Bundles is trust-manager's own, the
/// fields beyond it must be left out, or the server refuses it.
pub fn status_body(name: &str, status: &BundleStatus, extended: bool) -> Value {
    let mut status = status.clone();
    if !extended {
        let BundleStatus { conditions, default_ca_version, .. } = status;
        status = BundleStatus { conditions, default_ca_version, ..BundleStatus::default() };
    }
    json!({
        "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "status": status,
    })
}

impl SyncBlocker {
    /// What is said of it.
    pub fn event(&self) -> BundleEvent {
        let (reason, note) = match self {
            Self::NamespaceSelector(error) => (
                "NamespaceSelectorError".to_owned(),
                format!("Failed to build namespace match labels selector: {error}"),
            ),
            Self::NamespaceList(error) => {
                ("NamespaceListError".to_owned(), format!("Failed to list namespaces: {error}"))
            }
            Self::TargetList(kind, error) => {
                let plural = kind.to_string().to_lowercase();
                (format!("{kind}ListError"), format!("Failed to list {plural}s: {error}"))
            }
        };
        BundleEvent { warning: true, reason, action: "SyncFailed", note }
    }
}

#[cfg(test)]
mod tests;
