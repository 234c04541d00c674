//! Defaults of a pod, as Kubernetes sets them when decoding.

use serde_json::{Value, json};

use super::fields::{entries, flag, int, list_mut, optional_text, part, part_mut, set, text};

/// Sets all defaults of a pod.
pub(super) fn default_pod(pod: &mut Value) {
    drop_init_container_annotations(pod);
    if let Some(status) = pod.get_mut("status") {
        pod_ips(status);
    }
    let Some(spec) = part_mut(pod, "spec") else { return };
    if_empty(spec, "dnsPolicy", "ClusterFirst");
    if_empty(spec, "restartPolicy", "Always");
    if_empty(spec, "schedulerName", "default-scheduler");
    if_absent(spec, "securityContext", json!({}));
    if_absent(spec, "terminationGracePeriodSeconds", json!(30));
    if_absent(spec, "enableServiceLinks", json!(true));
    service_account_alias(spec);

    let host_network = flag(spec, "hostNetwork");
    for volume in list_mut(spec, "volumes") {
        self::volume(volume);
    }
    for field in ["containers", "initContainers"] {
        for container in list_mut(spec, field) {
            self::container(container);
            requests_from_limits(container);
            if host_network {
                host_ports(container);
            }
        }
    }
    for container in list_mut(spec, "ephemeralContainers") {
        self::container(container);
    }
}

/// Drops annotations that predate `initContainers` and would only become stale.
fn drop_init_container_annotations(pod: &mut Value) {
    let Some(annotations) = pod.pointer_mut("/metadata/annotations") else { return };
    for stage in ["beta", "alpha"] {
        for what in ["init-containers", "init-container-statuses"] {
            set(annotations, &format!("pod.{stage}.kubernetes.io/{what}"), None);
        }
    }
}

/// `podIP` is the old name of the first of `podIPs` and wins if they differ.
fn pod_ips(status: &mut Value) {
    let first = status.pointer("/podIPs/0").map(|ip| text(ip, "ip").to_owned());
    let alone = optional_text(status, "podIP").unwrap_or_default().to_owned();
    match first {
        Some(first) if alone.is_empty() => set(status, "podIP", Some(json!(first))),
        first if !alone.is_empty() && first.as_ref() != Some(&alone) => {
            set(status, "podIPs", Some(json!([{ "ip": alone }])));
        }
        _ => {}
    }
}

/// `serviceAccount` is the old name of `serviceAccountName`; responses contain both.
fn service_account_alias(spec: &mut Value) {
    let name = match text(spec, "serviceAccountName") {
        "" => text(spec, "serviceAccount"),
        name => name,
    };
    if name.is_empty() {
        return;
    }
    let name = json!(name);
    set(spec, "serviceAccountName", Some(name.clone()));
    set(spec, "serviceAccount", Some(name));
}

fn container(container: &mut Value) {
    if text(container, "imagePullPolicy").is_empty() {
        let policy = pull_policy(text(container, "image"));
        set(container, "imagePullPolicy", Some(json!(policy)));
    }
    if_empty(container, "terminationMessagePath", "/dev/termination-log");
    if_empty(container, "terminationMessagePolicy", "File");
    if_absent(container, "resources", json!({}));
    for port in list_mut(container, "ports") {
        if_empty(port, "protocol", "TCP");
    }
    for variable in list_mut(container, "env") {
        let Some(source) = variable.get_mut("valueFrom") else { continue };
        field_ref(source);
        if let Some(file) = source.get_mut("fileKeyRef") {
            if_absent(file, "optional", json!(false));
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(name) {
            self::probe(probe);
        }
    }
    for hook in ["postStart", "preStop"] {
        if let Some(handler) = container.pointer_mut(&format!("/lifecycle/{hook}")) {
            http_get(handler);
        }
    }
}

fn probe(probe: &mut Value) {
    for (key, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if int(probe, key).unwrap_or_default() == 0 {
            set(probe, key, Some(json!(value)));
        }
    }
    http_get(probe);
    if let Some(grpc) = probe.get_mut("grpc") {
        if_absent(grpc, "service", json!(""));
    }
}

fn http_get(handler: &mut Value) {
    if let Some(get) = handler.get_mut("httpGet") {
        if_empty(get, "path", "/");
        if_empty(get, "scheme", "HTTP");
    }
}

/// Defaults references to the pod's own fields, in a variable or a downward API file.
fn field_ref(source: &mut Value) {
    if let Some(field) = source.get_mut("fieldRef") {
        if_empty(field, "apiVersion", "v1");
    }
    if let Some(resource) = source.get_mut("resourceFieldRef") {
        if_absent(resource, "divisor", json!("0"));
    }
}

/// A limit without a request implies an equal request.
fn requests_from_limits(container: &mut Value) {
    let Some(resources) = container.get_mut("resources") else { return };
    let limits: Vec<(String, Value)> = entries(resources, "limits")
        .into_iter()
        .map(|(name, amount)| (name.to_owned(), amount.clone()))
        .collect();
    if limits.is_empty() {
        return;
    }
    let Some(requests) = part_mut(resources, "requests") else { return };
    for (name, amount) in limits {
        if_absent(requests, &name, amount);
    }
}

fn host_ports(container: &mut Value) {
    for port in list_mut(container, "ports") {
        if int(port, "hostPort").unwrap_or_default() == 0 {
            let same = port.get("containerPort").cloned();
            set(port, "hostPort", same);
        }
    }
}

fn volume(volume: &mut Value) {
    let sourceless = volume
        .as_object()
        .is_some_and(|fields| fields.iter().all(|(name, value)| name == "name" || value.is_null()));
    if sourceless {
        set(volume, "emptyDir", Some(json!({})));
    }
    for (source, defaults) in volume_defaults() {
        let Some(source) = volume.get_mut(source) else { continue };
        for (field, value) in defaults {
            match value {
                Value::String(words) if !words.is_empty() => if_empty(source, field, &words),
                value => if_absent(source, field, value),
            }
        }
    }
    for file in volume.get_mut("downwardAPI").map_or(&mut [][..], |v| list_mut(v, "items")) {
        field_ref(file);
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in list_mut(projected, "sources") {
            projection(source);
        }
    }
    if let Some(image) = volume.get_mut("image")
        && text(image, "pullPolicy").is_empty()
    {
        let policy = pull_policy(text(image, "reference"));
        set(image, "pullPolicy", Some(json!(policy)));
    }
    if let Some(claim) = volume.pointer_mut("/ephemeral/volumeClaimTemplate/spec") {
        if_absent(claim, "volumeMode", json!("Filesystem"));
    }
}

/// Fields with a fixed default, by volume source.
fn volume_defaults() -> [(&'static str, Vec<(&'static str, Value)>); 9] {
    [
        ("secret", vec![("defaultMode", json!(0o644))]),
        ("configMap", vec![("defaultMode", json!(0o644))]),
        ("downwardAPI", vec![("defaultMode", json!(0o644))]),
        ("projected", vec![("defaultMode", json!(0o644))]),
        ("hostPath", vec![("type", json!(""))]),
        ("iscsi", vec![("iscsiInterface", json!("default"))]),
        (
            "rbd",
            vec![("pool", json!("rbd")), ("user", json!("admin")), ("keyring", json!("/etc/ceph/keyring"))],
        ),
        (
            "azureDisk",
            vec![
                ("cachingMode", json!("ReadWrite")),
                ("fsType", json!("ext4")),
                ("readOnly", json!(false)),
                ("kind", json!("Shared")),
            ],
        ),
        ("scaleIO", vec![("storageMode", json!("ThinProvisioned")), ("fsType", json!("xfs"))]),
    ]
}

fn projection(source: &mut Value) {
    if let Some(token) = source.get_mut("serviceAccountToken") {
        if_absent(token, "expirationSeconds", json!(3600));
    }
    for file in source.get_mut("downwardAPI").map_or(&mut [][..], |v| list_mut(v, "items")) {
        field_ref(file);
    }
}

/// Returns `Always` for an image with the explicit or implied tag `latest`, otherwise
/// `IfNotPresent`.
fn pull_policy(image: &str) -> &'static str {
    if image_tag(image) == Some("latest") { "Always" } else { "IfNotPresent" }
}

/// Returns the tag of an image; `latest` if it has neither tag nor digest. `None` if it is not an
/// image reference.
fn image_tag(image: &str) -> Option<&str> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let last_slash = name.rfind('/').map_or(0, |at| at + 1);
    let (repository, tag) = match name[last_slash..].split_once(':') {
        Some((last, tag)) => (&name[..last_slash + last.len()], Some(tag)),
        None => (name, None),
    };
    let path = match repository.split_once('/') {
        Some((domain, path)) if domain.contains(['.', ':']) || domain == "localhost" => path,
        _ => repository,
    };
    let well_formed = !path.is_empty()
        && path
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-' | b'/'));
    match (well_formed, tag, digest) {
        (false, ..) => None,
        (true, Some(tag), _) => Some(tag),
        (true, None, Some(digest)) => Some(digest),
        (true, None, None) => Some("latest"),
    }
}

fn if_empty(object: &mut Value, key: &str, value: &str) {
    if text(object, key).is_empty() {
        set(object, key, Some(json!(value)));
    }
}

fn if_absent(object: &mut Value, key: &str, value: Value) {
    if part(object, key).is_none() {
        set(object, key, Some(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pull_policy_follows_the_tag() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("example.com:5000/a/nginx", "Always"),
            ("example.com:5000/a/nginx:1", "IfNotPresent"),
            ("nginx@sha256:0123", "IfNotPresent"),
            ("nginx:latest@sha256:0123", "Always"),
            ("", "IfNotPresent"),
            ("Not An Image", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn volumes_and_projections_get_their_modes() {
        let mut got = json!({"spec": {"volumes": [
            {"name": "a"},
            {"name": "b", "projected": {"sources": [
                {"serviceAccountToken": {"path": "t"}},
                {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}}
            ]}},
            {"name": "c", "hostPath": {"path": "/x"}},
            {"name": "d", "configMap": {"name": "m", "defaultMode": 0}},
            {"name": "e", "rbd": {"monitors": ["m"], "image": "i", "pool": "p"}}
        ]}});
        default_pod(&mut got);
        assert_eq!(
            got["spec"]["volumes"],
            json!([
                {"name": "a", "emptyDir": {}},
                {"name": "b", "projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                    {"downwardAPI": {"items": [
                        {"path": "n", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
                    ]}}
                ]}},
                {"name": "c", "hostPath": {"path": "/x", "type": ""}},
                {"name": "d", "configMap": {"name": "m", "defaultMode": 0}},
                {"name": "e", "rbd": {"monitors": ["m"], "image": "i", "pool": "p",
                                      "user": "admin", "keyring": "/etc/ceph/keyring"}}
            ])
        );
    }

    #[test]
    fn containers_get_probes_ports_and_requests() {
        let mut got = json!({"spec": {"hostNetwork": true, "containers": [{
            "name": "c", "image": "i:1",
            "ports": [{"containerPort": 80}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
            "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 5},
            "readinessProbe": {"grpc": {"port": 1}},
            "lifecycle": {"preStop": {"httpGet": {"port": 80}}}
        }]}});
        default_pod(&mut got);
        let container = &got["spec"]["containers"][0];
        assert_eq!(container["ports"], json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]));
        assert_eq!(container["resources"]["requests"], json!({"cpu": "500m", "memory": "1Gi"}));
        assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
        assert_eq!(
            container["livenessProbe"],
            json!({"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1,
                   "periodSeconds": 5, "successThreshold": 1, "failureThreshold": 3})
        );
        assert_eq!(container["readinessProbe"]["grpc"], json!({"port": 1, "service": ""}));
        assert_eq!(
            container["lifecycle"]["preStop"]["httpGet"],
            json!({"path": "/", "port": 80, "scheme": "HTTP"})
        );
        assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    }

    #[test]
    fn two_names_of_one_field_agree() {
        let mut got = json!({
            "spec": {"serviceAccount": "sa"},
            "status": {"podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.1"}]}
        });
        default_pod(&mut got);
        assert_eq!(got["spec"]["serviceAccountName"], "sa");
        assert_eq!(got["status"], json!({"podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}]}));
    }
}
