//! Readiness of Signer objects as a metric, read when it is scraped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use serde_json::Value;
use windlass_runtime::metrics::MetricsRegistry;

/// Labels of an object: several objects may name the same signer, of which one counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabels {
    signer: String,
    name: String,
}

/// Whether each Signer object is ready. Clones share the values.
#[derive(Clone, Debug)]
pub struct SignerObjectMetrics {
    /// Signer name and readiness by the name of the object.
    ready: Arc<Mutex<BTreeMap<String, (String, bool)>>>,
}

impl SignerObjectMetrics {
    pub(crate) fn register(registry: &MetricsRegistry) -> SignerObjectMetrics {
        let metrics = SignerObjectMetrics { ready: Arc::default() };
        let ready = metrics.ready.clone();
        registry.register_scraped_gauge(
            "windlass_signer_ready",
            "Whether the condition Ready of the Signer object is True",
            move || {
                let ready = ready.lock().unwrap_or_else(PoisonError::into_inner);
                let sample = |(name, (signer, is_ready)): (&String, &(String, bool))| {
                    let labels = ObjectLabels { signer: signer.clone(), name: name.clone() };
                    (labels, i64::from(*is_ready))
                };
                ready.iter().map(sample).collect()
            },
        );
        metrics
    }

    /// Exposes the readiness of an object with this spec and status.
    pub(super) fn set(&self, name: &str, spec: &Value, status: &Value) {
        let signer = spec["signerName"].as_str().unwrap_or_default().to_owned();
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let is_ready = conditions.into_iter().any(|each| each["type"] == "Ready" && each["status"] == "True");
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.insert(name.to_owned(), (signer, is_ready));
    }

    /// Removes the objects that do not exist any more.
    pub(super) fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).retain(|name, _| exists(name));
    }

    /// Removes all values when the guard is dropped: only the leader knows them.
    pub(super) fn reset_on_drop(&self) -> impl Drop + use<> {
        ResetReadiness(self.clone())
    }
}

struct ResetReadiness(SignerObjectMetrics);

impl Drop for ResetReadiness {
    fn drop(&mut self) {
        self.0.retain(|_| false);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_ready_if_its_condition_says_so() {
        let registry = MetricsRegistry::new();
        let metrics = SignerObjectMetrics::register(&registry);
        let guard = metrics.reset_on_drop();
        let spec = json!({"signerName": "example.com/web"});
        for (name, kind, status) in [
            ("a", "Ready", "True"),
            ("b", "Ready", "False"),
            ("c", "Published", "True"),
            ("d", "Ready", "True"),
        ] {
            metrics.set(name, &spec, &json!({"conditions": [{"type": kind, "status": status}]}));
        }
        metrics.retain(|name| name != "d");
        let samples = |registry: &MetricsRegistry| {
            let text = registry.encode();
            let lines = text.lines().filter(|line| line.starts_with("windlass_signer_ready{"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let expected = [("a", 1), ("b", 0), ("c", 0)].map(|(name, value)| {
            format!("windlass_signer_ready{{signer=\"example.com/web\",name=\"{name}\"}} {value}")
        });
        assert_eq!(samples(&registry), expected);
        drop(guard);
        assert!(samples(&registry).is_empty());
    }
}
