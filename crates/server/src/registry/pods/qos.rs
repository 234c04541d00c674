//! QoS class of a pod, derived from its resources.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fields::{entries, list, part, spec};
use super::nano_quantity::NanoQuantity;

/// Returns the QoS class of a pod: `Guaranteed`, `Burstable` or `BestEffort`.
pub(super) fn class(pod: &Value) -> &'static str {
    let spec = spec(pod);
    let mut total = ResourceTotals::default();
    match part(spec, "resources") {
        // Pod-level resources count instead of the containers'.
        Some(resources) => total.add(resources),
        None => {
            for container in list(spec, "containers").iter().chain(list(spec, "initContainers")) {
                total.add(part(container, "resources").unwrap_or(&Value::Null));
            }
        }
    }
    if total.requests.is_empty() && total.limits.is_empty() {
        "BestEffort"
    } else if !total.some_unlimited && total.requests == total.limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

#[derive(Default)]
struct ResourceTotals {
    requests: BTreeMap<String, NanoQuantity>,
    limits: BTreeMap<String, NanoQuantity>,
    /// Whether any container lacks a limit on cpu or memory.
    some_unlimited: bool,
}

impl ResourceTotals {
    fn add(&mut self, resources: &Value) {
        for (name, amount) in computed(resources, "requests") {
            let sum = self.requests.entry(name).or_default();
            *sum = sum.plus(amount);
        }
        let limits = computed(resources, "limits");
        self.some_unlimited |= limits.len() < 2;
        for (name, amount) in limits {
            let sum = self.limits.entry(name).or_default();
            *sum = sum.plus(amount);
        }
    }
}

/// Returns the positive amounts of cpu and memory.
fn computed(resources: &Value, field: &str) -> Vec<(String, NanoQuantity)> {
    entries(resources, field)
        .into_iter()
        .filter(|(name, _)| matches!(*name, "cpu" | "memory"))
        .map(|(name, value)| (name.to_owned(), NanoQuantity::from_value(value)))
        .filter(|(_, amount)| *amount > NanoQuantity::default())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn classes_follow_from_resources() {
        let both =
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1Gi"}});
        for (containers, expected) in [
            (json!([{}]), "BestEffort"),
            (json!([{"resources": {"requests": {"cpu": "0"}}}]), "BestEffort"),
            (json!([{"resources": {"requests": {"example.com/x": "1"}}}]), "BestEffort"),
            (json!([{"resources": {"requests": {"cpu": "1"}}}]), "Burstable"),
            (json!([{"resources": both}]), "Guaranteed"),
            (json!([{"resources": both}, {}]), "Burstable"),
            (
                json!([{"resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}}]),
                "Burstable",
            ),
        ] {
            let pod = json!({"spec": {"containers": containers}});
            assert_eq!(class(&pod), expected, "{pod}");
        }
    }
}
