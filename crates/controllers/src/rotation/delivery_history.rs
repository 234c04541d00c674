//! Consumers that have had the present content of a bundle: losing it again is a failure, lagging is not.

use std::collections::BTreeSet;

use super::observation::{BundleConsumer, ConsumerProof};

/// Who has had the present content of a bundle. It is kept in memory: after a restart, a consumer that has lost the
/// content before holds the rotation instead.
#[derive(Debug, Default)]
pub struct DeliveryHistory {
    digest: String,
    delivered: BTreeSet<String>,
}

impl DeliveryHistory {
    /// Marks consumers that have had the content with this digest and have it no more as failed. `current` has the names
    /// of those that have it now.
    pub fn update(&mut self, digest: &str, current: BTreeSet<String>, consumers: &mut [BundleConsumer]) {
        if self.digest != digest {
            *self = DeliveryHistory { digest: digest.to_owned(), delivered: BTreeSet::new() };
        }
        let is_stale = |each: &&mut BundleConsumer| matches!(each.proof, ConsumerProof::Stale(_));
        let mut stale = BTreeSet::new();
        for consumer in consumers.iter_mut().filter(is_stale) {
            if consumer.failure.is_none() && self.delivered.contains(&consumer.name) {
                consumer.failure = Some("it has lost the trust anchors that it had".to_owned());
            }
            stale.insert(consumer.name.clone());
        }
        // A volume may have several files with the bundle, all of which count.
        self.delivered.extend(current.into_iter().filter(|name| !stale.contains(name)));
    }
}

#[cfg(test)]
mod tests {
    use windlass_api::ca_rotation::LaggardKind;

    use super::*;

    #[test]
    fn only_who_had_the_content_can_lose_it() {
        let mut history = DeliveryHistory::default();
        let mut has_failed = |digest: &str, is_current: bool| {
            let proof = if is_current { ConsumerProof::Read } else { ConsumerProof::Stale(String::new()) };
            let name = "node/n1/v".to_owned();
            let current = is_current.then(|| name.clone()).into_iter().collect();
            let (kind, node) = (LaggardKind::Node, "n1".to_owned());
            let mut consumers = [BundleConsumer {
                kind,
                name,
                node,
                volumes: 1,
                proof,
                failure: None,
                blocked: String::new(),
            }];
            history.update(digest, current, &mut consumers);
            consumers[0].failure.is_some()
        };
        assert!(!has_failed("a", true));
        assert!(!has_failed("b", false), "it has not had the content yet");
        assert!(!has_failed("b", true));
        assert!(has_failed("b", false));
        assert!(!has_failed("a", false), "the bundle has changed");
    }
}
