//! CARotation as a controller reads it, and its status. Durations and times are in their wire format.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{DEFAULT_KEY_RETENTION, DEFAULT_RENEWAL_WINDOW, DEFAULT_SOAK_TIME};
use crate::conditions::ObjectCondition;
use crate::duration;

/// What to rotate and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaRotationSpec {
    /// Signer whose CA is replaced; immutable.
    pub signer_name: String,
    /// Why the rotation was started; [`RotationTrigger::Manual`] if absent; immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<RotationTrigger>,
    /// Whether the old CA is not to be trusted; false if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compromised: Option<bool>,
    /// Whether consumers that have not read the changed file hold the rotation; true if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_read: Option<bool>,
    /// Trial of the new authority; only for signers that publish a canary bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<CaRotationCanary>,
    /// Time over which agents spread renewals; [`DEFAULT_RENEWAL_WINDOW`] if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewal_window: Option<String>,
    /// When the old authority is retired; as soon as it is safe if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retirement: Option<CaRotationRetirement>,
    /// Whether the rotation takes no further step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Whether to return to the old authority; cannot be unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback: Option<bool>,
    /// Nodes that are gone for good and are not waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded_nodes: Vec<String>,
    /// Consumers that are not waited for to read, by [`CaRotationLaggard::name`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted_consumers: Vec<String>,
}

impl CaRotationSpec {
    /// Whether consumers that have not read the file hold the rotation.
    pub fn requires_read(&self) -> bool {
        self.require_read.unwrap_or(true) && !self.is_compromised()
    }

    /// Whether the old CA is not to be trusted.
    pub fn is_compromised(&self) -> bool {
        self.compromised.unwrap_or(false)
    }

    /// Time over which agents spread the renewal of certificates.
    pub fn renewal_window(&self) -> Duration {
        read_duration(self.renewal_window.as_deref(), DEFAULT_RENEWAL_WINDOW)
    }

    /// How long the canary must run without a failure.
    pub fn soak_time(&self) -> Duration {
        let canary = self.canary.as_ref();
        read_duration(canary.and_then(|canary| canary.soak_time.as_deref()), DEFAULT_SOAK_TIME)
    }

    /// How long the old key is kept after the rotation has ended.
    pub fn key_retention(&self) -> Duration {
        let retirement = self.retirement.as_ref();
        let text = retirement.and_then(|retirement| retirement.key_retention.as_deref());
        read_duration(text, DEFAULT_KEY_RETENTION)
    }
}

/// Trial of the new authority before all requesters get certificates of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaRotationCanary {
    /// How long the trial runs without a failure; [`DEFAULT_SOAK_TIME`] if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soak_time: Option<String>,
    /// Number of failures that are tolerated; 0 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<u32>,
}

/// When the old authority is retired, and when its key is destroyed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaRotationRetirement {
    /// Earliest time at which the old trust anchor is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// Whether it is removed although unexpired certificates depend on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept_outstanding_leaves: Option<bool>,
    /// How long after the end the old key is destroyed; [`DEFAULT_KEY_RETENTION`] if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_retention: Option<String>,
}

/// Why a rotation was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RotationTrigger {
    /// A user created the object.
    #[default]
    Manual,
    /// The CA certificate expires soon.
    Expiry,
    /// The Secret, files or token of the signer contain another CA.
    SourceChanged,
}

/// Progress of a rotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaRotationStatus {
    /// The generation that the status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Absent until the controllers have seen the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<RotationPhase>,
    /// [`super::HELD`] and [`super::COMPLETE`]; at most one of each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ObjectCondition>,
    /// When the controllers started the rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// When it ended; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<String>,
    /// The authority that is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_authority: Option<CaRotationAuthority>,
    /// The authority that replaces it; absent until it has been prepared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_authority: Option<CaRotationAuthority>,
    /// Consumers of the signer's trust anchors; absent until they have been counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumers: Option<CaRotationConsumers>,
    /// Certificates of both authorities; absent while the ledger is not available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaves: Option<CaRotationLeaves>,
    /// Consumers that the rotation waits for; at most [`super::MAX_LAGGARDS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub laggards: Vec<CaRotationLaggard>,
    /// Number of laggards that are not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_laggards: Option<u32>,
    /// When the last certificate of the old authority expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earliest_retirement_time: Option<String>,
    /// Phases so far, oldest first; at most [`super::MAX_STEPS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<CaRotationStep>,
    /// Progress in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl CaRotationStatus {
    /// The condition of a type, if the controllers have reported it.
    pub fn condition(&self, kind: &str) -> Option<&ObjectCondition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    /// The condition [`super::HELD`] if the rotation waits.
    pub fn held(&self) -> Option<&ObjectCondition> {
        self.condition(super::HELD).filter(|condition| condition.status == "True")
    }

    /// Whether the rotation has ended, successfully or not.
    pub fn is_finished(&self) -> bool {
        self.phase.is_some_and(RotationPhase::is_final)
    }
}

/// Phase of a rotation, in the order in which a rotation without rollback goes through them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RotationPhase {
    /// The new authority is created or loaded.
    Preparing,
    /// Its trust anchor is added to the canary bundle.
    PublishingCanary,
    /// Its trust anchor is added to all bundles of the signer.
    Publishing,
    /// Consumers get the new trust anchor.
    WaitingForTrust,
    /// The new authority starts to sign.
    Switching,
    /// Certificates of the old authority are renewed.
    Renewing,
    /// The old trust anchor is removed.
    Retiring,
    /// The old authority signs again, and the new trust anchor is removed.
    RollingBack,
    /// The old authority was replaced.
    Completed,
    /// The old authority is in use as before.
    RolledBack,
    /// The rotation could not run; the signer is unchanged.
    Failed,
}

impl RotationPhase {
    /// Phases of a rotation that is not rolled back, in their order.
    pub const FORWARD: [RotationPhase; 8] = [
        RotationPhase::Preparing,
        RotationPhase::PublishingCanary,
        RotationPhase::Publishing,
        RotationPhase::WaitingForTrust,
        RotationPhase::Switching,
        RotationPhase::Renewing,
        RotationPhase::Retiring,
        RotationPhase::Completed,
    ];

    /// The name in objects.
    pub fn as_str(self) -> &'static str {
        match self {
            RotationPhase::Preparing => "Preparing",
            RotationPhase::PublishingCanary => "PublishingCanary",
            RotationPhase::Publishing => "Publishing",
            RotationPhase::WaitingForTrust => "WaitingForTrust",
            RotationPhase::Switching => "Switching",
            RotationPhase::Renewing => "Renewing",
            RotationPhase::Retiring => "Retiring",
            RotationPhase::RollingBack => "RollingBack",
            RotationPhase::Completed => "Completed",
            RotationPhase::RolledBack => "RolledBack",
            RotationPhase::Failed => "Failed",
        }
    }

    /// Whether a rotation in this phase has ended.
    pub fn is_final(self) -> bool {
        matches!(self, RotationPhase::Completed | RotationPhase::RolledBack | RotationPhase::Failed)
    }
}

impl fmt::Display for RotationPhase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// Why a rotation waits: the reason of the condition [`super::HELD`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeldReason {
    /// Files of consumers lack the new trust anchor, or still contain the old one.
    ConsumersLagging,
    /// Consumers have not opened the file since it was written.
    ConsumersNotRead,
    /// Certificates of the old authority are still valid.
    LeavesOutstanding,
    /// The new authority cannot be created or loaded.
    CaUnavailable,
    /// Trust anchors cannot be published.
    NotPublished,
    /// `spec.paused` is set.
    Paused,
    /// The canary runs until its soak time is over.
    CanarySoaking,
    /// The ledger cannot be read, so that outstanding certificates are unknown.
    LedgerUnavailable,
    /// The reports of nodes cannot be read, so that the content of files is unknown.
    ReportsUnavailable,
}

impl HeldReason {
    /// All reasons, in the order of the documentation.
    pub const ALL: [HeldReason; 9] = [
        HeldReason::ConsumersLagging,
        HeldReason::ConsumersNotRead,
        HeldReason::LeavesOutstanding,
        HeldReason::CaUnavailable,
        HeldReason::NotPublished,
        HeldReason::Paused,
        HeldReason::CanarySoaking,
        HeldReason::LedgerUnavailable,
        HeldReason::ReportsUnavailable,
    ];

    /// The reason as the condition states it.
    pub fn as_str(self) -> &'static str {
        match self {
            HeldReason::ConsumersLagging => "ConsumersLagging",
            HeldReason::ConsumersNotRead => "ConsumersNotRead",
            HeldReason::LeavesOutstanding => "LeavesOutstanding",
            HeldReason::CaUnavailable => "CaUnavailable",
            HeldReason::NotPublished => "NotPublished",
            HeldReason::Paused => "Paused",
            HeldReason::CanarySoaking => "CanarySoaking",
            HeldReason::LedgerUnavailable => "LedgerUnavailable",
            HeldReason::ReportsUnavailable => "ReportsUnavailable",
        }
    }

    /// The reason that a condition states; `None` if a newer version states one that is not known.
    pub fn parse(text: &str) -> Option<HeldReason> {
        HeldReason::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

/// A CA key that takes part in a rotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaRotationAuthority {
    /// Subject key identifier of the CA certificate, in lower-case hexadecimal.
    pub id: String,
    /// Subject of the CA certificate, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// End of the validity of the CA certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_after: Option<String>,
    /// SHA-256 fingerprint of its trust anchor, in lower-case hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor_fingerprint: Option<String>,
}

/// Number of consumers by what is proven about their files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CaRotationConsumers {
    /// All consumers of the signer's trust anchors.
    pub total: u32,
    /// Those whose files contain the expected trust anchors.
    pub written: u32,
    /// Those that have opened the file since it was written.
    pub read: u32,
    /// Those that have not opened it since.
    pub not_read: u32,
    /// Those whose reads cannot be observed.
    pub not_observable: u32,
    /// Those that `spec.acceptedConsumers` lists.
    pub accepted: u32,
    /// Those on nodes that `spec.excludedNodes` lists.
    pub excluded: u32,
}

/// Certificates of the old and the new authority in the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaRotationLeaves {
    /// Unexpired, not superseded certificates of the old authority.
    #[serde(default)]
    pub outstanding: u64,
    /// Certificates that the new authority has issued.
    #[serde(default)]
    pub renewed: u64,
    /// When the last outstanding certificate expires; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_expiry: Option<String>,
}

/// A consumer that the rotation waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaRotationLaggard {
    /// What the consumer is.
    pub kind: LaggardKind,
    /// `node/NODE/VOLUME` with the volume as in NodeTrust, or `bundle/NAME`.
    pub name: String,
    /// Since when it is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// What it lacks.
    pub reason: LaggardReason,
    /// What it has instead, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What a consumer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LaggardKind {
    /// A volume of a pod or of the host.
    Node,
    /// The targets of a Bundle.
    BundleTarget,
    /// A signer whose intermediate is issued by the rotated one.
    Signer,
}

/// Why a consumer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LaggardReason {
    /// Its file lacks an expected trust anchor.
    NotWritten,
    /// It has not opened the file since it was written.
    NotRead,
    /// Its file still contains the old trust anchor.
    StillPresent,
    /// Its node does not report.
    NotReporting,
}

impl LaggardReason {
    /// The name in objects.
    pub fn as_str(self) -> &'static str {
        match self {
            LaggardReason::NotWritten => "NotWritten",
            LaggardReason::NotRead => "NotRead",
            LaggardReason::StillPresent => "StillPresent",
            LaggardReason::NotReporting => "NotReporting",
        }
    }
}

/// A phase of a rotation, and who was waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaRotationStep {
    /// The phase that this step records.
    pub phase: RotationPhase,
    /// When the phase began.
    pub start_time: String,
    /// When it ended; absent while it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<String>,
    /// Names of the last laggards; at most [`super::MAX_WAITED_FOR`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waited_for: Vec<String>,
    /// What was done in the phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The server has checked the syntax; a duration that cannot be read counts as absent.
fn read_duration(text: Option<&str>, default: Duration) -> Duration {
    text.and_then(|text| duration::parse(text).ok()).unwrap_or(default)
}
