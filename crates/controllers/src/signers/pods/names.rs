//! Names in pod certificates: the SPIFFE ID of the service account, and DNS names of services.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Service;
use windlass_pki::limits::MAX_DNS_NAME_BYTES;

/// Builds the SPIFFE ID of pods with a service account.
pub fn build_spiffe_id(trust_domain: &str, namespace: &str, account: &str) -> String {
    format!("spiffe://{trust_domain}/ns/{namespace}/sa/{account}")
}

/// Lists the DNS names of the services that select pods with these labels, sorted and without duplicates. Shorter forms
/// are omitted, because they resolve to other services in other namespaces.
pub fn service_names(
    services: &[Service],
    labels: &BTreeMap<String, String>,
    namespace: &str,
    cluster_domain: &str,
) -> Vec<String> {
    let chosen = services.iter().filter(|service| selects(service, labels));
    let names = chosen.filter_map(|service| service.metadata.name.as_deref()).flat_map(|name| {
        [format!("{name}.{namespace}.svc"), format!("{name}.{namespace}.svc.{cluster_domain}")]
    });
    // A name that is not valid in DNS is never resolved, and would make the certificate invalid.
    let names: BTreeSet<String> = names.filter(|name| is_dns_name(name)).collect();
    names.into_iter().collect()
}

/// Whether a service selects pods with these labels.
fn selects(service: &Service, labels: &BTreeMap<String, String>) -> bool {
    let Some(spec) = &service.spec else { return false };
    // An ExternalName service is an alias and ignores its selector.
    if spec.type_.as_deref() == Some("ExternalName") {
        return false;
    }
    // The endpoints of a service without a selector are managed by another controller.
    spec.selector.as_ref().is_some_and(|wanted| {
        !wanted.is_empty() && wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
    })
}

/// Whether a name consists of labels of letters, digits and inner hyphens, within the length limits.
fn is_dns_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= MAX_DNS_NAME_BYTES && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(name: &str, spec: Value) -> Service {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    }

    #[test]
    fn an_id_names_the_account() {
        assert_eq!(build_spiffe_id("example.com", "web", "a.b"), "spiffe://example.com/ns/web/sa/a.b");
    }

    #[test]
    fn services_that_send_to_the_pod_name_it() {
        let labels: BTreeMap<String, String> =
            [("app", "web"), ("tier", "front")].map(|(k, v)| (k.into(), v.into())).into();
        let both = json!({"selector": {"app": "web", "tier": "front"}});
        let table: [(Value, bool); 8] = [
            (json!({"selector": {"app": "web"}}), true),
            (json!({"selector": {"app": "web"}, "clusterIP": "None"}), true),
            (both, true),
            (json!({"selector": {"app": "other"}}), false),
            (json!({"selector": {"app": "web", "more": "x"}}), false),
            (json!({"selector": {}}), false),
            (json!({}), false),
            (json!({"selector": {"app": "web"}, "type": "ExternalName"}), false),
        ];
        for (spec, named) in table {
            let names = service_names(&[service("s", spec.clone())], &labels, "ns", "c.local");
            let expected: &[&str] = if named { &["s.ns.svc", "s.ns.svc.c.local"] } else { &[] };
            assert_eq!(names, expected, "{spec}");
        }
        let no_spec: Service = serde_json::from_value(json!({"metadata": {"name": "s"}})).unwrap();
        assert_eq!(service_names(&[no_spec], &labels, "ns", "c"), [""; 0]);
    }

    #[test]
    fn names_are_sorted_valid_and_there_once() {
        let labels = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        let selecting = |name: &str| service(name, json!({"selector": {"a": "b"}}));
        let long = "x".repeat(64);
        let services = ["web", "api", "web", "-bad", "*", "", &long].map(selecting);
        let names = service_names(&services, &labels, "ns", "local");
        let expected = ["api.ns.svc", "api.ns.svc.local", "web.ns.svc", "web.ns.svc.local"];
        assert_eq!(names, expected);
        // "s.ns.svc." and the domain may have 253 bytes together.
        for (length, fits) in [(244, true), (245, false)] {
            let domain = [61, 61, 61, length - 3 * 61 - 3].map(|length| "d".repeat(length)).join(".");
            let names = service_names(&[selecting("s")], &labels, "ns", &domain);
            assert_eq!((domain.len(), names.len()), (length, if fits { 2 } else { 1 }));
        }
    }
}
