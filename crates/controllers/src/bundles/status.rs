//! Status and events of a Bundle.

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

/// Outcome of a reconciliation.
#[derive(Clone, Copy)]
pub enum SyncOutcome<'a> {
    /// The sources are missing or invalid; the targets stay unchanged.
    Source(&'a SourceError),
    /// Kubernetes reserves the name for its own ConfigMaps.
    ReservedName,
    /// The Bundle has Secret targets, which are disabled.
    SecretTargetsDisabled(&'a GatheredCertificates),
    /// At least one target could not be written.
    Targets(&'a GatheredCertificates, &'a [TargetFailure]),
    /// All targets are up to date.
    Synced {
        /// The certificates that were read from the sources.
        harvest: &'a GatheredCertificates,
        /// The namespaces that were synced, for the success message.
        namespace_filter: &'a NamespaceFilter,
        /// Whether any target was written in this pass.
        wrote: bool,
    },
}

/// A target that could not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetFailure {
    /// Kind of the target object that failed.
    pub kind: TargetKind,
    /// Namespace; empty for cluster-scoped targets.
    pub namespace: String,
    /// Name of the target object, usually that of the Bundle.
    pub name: String,
    /// Error message of the API server or of the ownership check.
    pub error: String,
}

/// Status and event to write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusReport {
    /// New status; `None` if it is unchanged.
    pub status: Option<BundleStatus>,
    /// Event; `None` if nothing changed.
    pub event: Option<BundleEvent>,
    /// Whether the Bundle is requeued with backoff.
    pub retry: bool,
}

/// Event to publish on a Bundle.
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

/// Reason for which the targets cannot be compared. The status stays unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncBlocker {
    /// The namespace selector is invalid.
    NamespaceSelector(String),
    /// Namespaces cannot be listed.
    NamespaceList(String),
    /// Targets of a kind cannot be listed.
    TargetList(TargetKind, String),
}

/// Largest number of characters of a message.
const MAX_MESSAGE_CHARS: usize = 32_768;
/// Largest number of targets that a message names.
const NAMED: usize = 10;

/// Computes status and event from the outcome and the status of each source.
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
        // The content of the targets is unchanged unless all were written.
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
        SyncOutcome::Synced { namespace_filter, .. } => {
            ("Synced".to_owned(), namespace_filter.success_message())
        }
    };
    (reason, truncate(message))
}

/// Formats the first failure as trust-manager does, which stops there, and the locations of the others.
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
    if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
        message.truncate(end);
    }
    message
}

/// Builds the body of a status. Servers with the CRD of trust-manager reject the fields beyond it, so `extended` must
/// be false for them.
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
    /// Returns the event that reports the reason.
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
