//! Who has the bundles of a signer: counts for the status, and those that a rotation waits for.

use time::OffsetDateTime;
use windlass_api::ca_rotation::{CaRotationConsumers, LaggardKind, LaggardReason};

use super::observation::{BundleConsumer, BundleObservation, ConsumerProof, RotationObservation};
use super::policy::RotationPolicy;

/// A consumer that a rotation waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaggingConsumer {
    pub kind: LaggardKind,
    /// Name of the consumer, which also accepts it.
    pub name: String,
    /// Node of the consumer; empty if it is a Bundle or a signer.
    pub node: String,
    /// Number of volumes that the name stands for.
    pub volumes: u32,
    pub reason: LaggardReason,
    /// Since when, as far as the consumer reports it.
    pub since: Option<OffsetDateTime>,
    /// What it has instead and what to do.
    pub message: String,
}

/// Counts the consumers of all bundles.
pub fn count(policy: &RotationPolicy, observed: &RotationObservation) -> CaRotationConsumers {
    let mut counts = CaRotationConsumers::default();
    for consumer in observed.bundles().flat_map(|(_, bundle)| bundle.consumers.iter().flatten()) {
        let volumes = consumer.volumes;
        counts.total += volumes;
        if policy.excluded_nodes.contains(&consumer.node) {
            counts.excluded += volumes;
            continue;
        }
        if !matches!(consumer.proof, ConsumerProof::Stale(_) | ConsumerProof::NotReported) {
            counts.written += volumes;
        }
        match consumer.proof {
            ConsumerProof::Stale(_) | ConsumerProof::NotReported => {}
            ConsumerProof::NotRead { .. } if is_accepted(policy, consumer) => counts.accepted += volumes,
            ConsumerProof::NotRead { .. } => counts.not_read += volumes,
            ConsumerProof::NotObservable => counts.not_observable += volumes,
            ConsumerProof::Read => counts.read += volumes,
        }
    }
    counts
}

/// Lists the consumers of a bundle whose files lack its present content; `None` if that is not known.
pub fn stale(
    policy: &RotationPolicy,
    bundle: &BundleObservation,
    reason: LaggardReason,
) -> Option<Vec<LaggingConsumer>> {
    let waited_for = waited_for(policy, bundle)?;
    let lagging = waited_for.filter_map(|consumer| match &consumer.proof {
        ConsumerProof::Stale(message) => Some(lagging(consumer, reason, None, message.clone())),
        ConsumerProof::NotReported => {
            let message = "the agent of the node has not reported, so its consumers are not known; restore it, or exclude \
                           the node if it is gone for good";
            Some(lagging(consumer, LaggardReason::NotReporting, None, message.to_owned()))
        }
        ConsumerProof::NotRead { .. } | ConsumerProof::NotObservable | ConsumerProof::Read => None,
    });
    Some(lagging.collect())
}

/// Lists the consumers of a bundle whose files cannot be updated, and may therefore have a leaf that the ledger counts as
/// superseded; `None` if that is not known.
pub fn blocked(policy: &RotationPolicy, bundle: &BundleObservation) -> Option<Vec<LaggingConsumer>> {
    let waited_for = waited_for(policy, bundle)?.filter(|consumer| !consumer.blocked.is_empty());
    let lagging = waited_for.map(|consumer| {
        let message = format!("the volume is blocked: {}", consumer.blocked);
        lagging(consumer, LaggardReason::NotWritten, None, message)
    });
    Some(lagging.collect())
}

/// Lists the consumers of a bundle that have not read it and are not accepted; `None` if that is not known.
pub fn unread(policy: &RotationPolicy, bundle: &BundleObservation) -> Option<Vec<LaggingConsumer>> {
    let waited_for = waited_for(policy, bundle)?;
    let lagging = waited_for.filter_map(|consumer| match consumer.proof {
        ConsumerProof::NotRead { since } if !is_accepted(policy, consumer) => {
            let message = format!(
                "the application has not opened the file since {} was written; restart it, or accept the \
                 consumer if it reads the file before each use",
                bundle.name
            );
            Some(lagging(consumer, LaggardReason::NotRead, since, message))
        }
        _ => None,
    });
    Some(lagging.collect())
}

/// Lists the consumers of a bundle that have failed; none if they are not known.
pub fn failed(policy: &RotationPolicy, bundle: &BundleObservation) -> Vec<LaggingConsumer> {
    let failed = waited_for(policy, bundle).into_iter().flatten().filter_map(|consumer| {
        let message = consumer.failure.clone()?;
        Some(lagging(consumer, LaggardReason::NotWritten, None, message))
    });
    failed.collect()
}

/// Describes a signer whose leaves depend on an anchor that is to be removed.
pub fn dependent_signer(name: &str) -> LaggingConsumer {
    LaggingConsumer {
        kind: LaggardKind::Signer,
        name: format!("signer/{name}"),
        node: String::new(),
        volumes: 0,
        reason: LaggardReason::StillPresent,
        since: None,
        message: "leaves of its intermediate depend on the trust anchor; its own rotation replaces the intermediate"
            .to_owned(),
    }
}

fn waited_for<'a>(
    policy: &RotationPolicy,
    bundle: &'a BundleObservation,
) -> Option<impl Iterator<Item = &'a BundleConsumer>> {
    let consumers = bundle.consumers.as_ref()?;
    Some(consumers.iter().filter(|consumer| !policy.excluded_nodes.contains(&consumer.node)))
}

fn is_accepted(policy: &RotationPolicy, consumer: &BundleConsumer) -> bool {
    policy.accepted_consumers.contains(&consumer.name)
}

fn lagging(
    consumer: &BundleConsumer,
    reason: LaggardReason,
    since: Option<OffsetDateTime>,
    message: String,
) -> LaggingConsumer {
    LaggingConsumer {
        kind: consumer.kind,
        name: consumer.name.clone(),
        node: consumer.node.clone(),
        volumes: consumer.volumes,
        reason,
        since,
        message,
    }
}
