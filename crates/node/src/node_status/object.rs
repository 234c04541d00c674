//! The Node object and its lease, without I/O.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use crate::template::CertificateTemplate;

/// Duration of the lease in seconds, the same as kubelet's.
pub const LEASE_SECONDS: i32 = 40;
/// Taint that keeps pods away from a node without a kubelet.
pub const TAINT: &str = "windlass.dev/no-kubelet";
/// Substring of the versions that this agent reports.
const OURS: &str = "windlass";
const READY: &str = "Ready";

/// Information about the host, reported in the Node.
#[derive(Clone, Debug, PartialEq)]
pub struct HostInfo {
    /// Name of the Node object and of its lease.
    pub name: String,
    /// Addresses reported in the Node's status, as `InternalIP`.
    pub addresses: Vec<IpAddr>,
    /// Port that the node serves on, if it does.
    pub port: Option<u16>,
    /// System information, as in `status.nodeInfo`.
    pub system: NodeSystemInfo,
}

impl HostInfo {
    /// Returns the Node object to create.
    pub fn node(&self) -> Node {
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(self.labels()),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: Some(vec![Taint {
                    key: TAINT.into(),
                    effect: "NoSchedule".into(),
                    ..Taint::default()
                }]),
                ..NodeSpec::default()
            }),
            status: None,
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let labels = [
            ("kubernetes.io/hostname", &self.name),
            ("kubernetes.io/os", &self.system.operating_system),
            ("kubernetes.io/arch", &self.system.architecture),
        ];
        labels.map(|(key, value)| (key.to_owned(), value.clone())).into()
    }

    /// Returns the patch of an existing Node's labels; `None` if they are right.
    pub fn label_patch(&self, found: &Node) -> Option<Value> {
        let held = found.metadata.labels.clone().unwrap_or_default();
        let wrong = |key: &String, value: &String| held.get(key) != Some(value);
        let mut labels = self.labels();
        labels.retain(|key, value| wrong(key, value));
        (!labels.is_empty()).then(|| json!({ "metadata": { "labels": labels } }))
    }

    /// Returns the patch of an existing Node's status. It applies only if no other writer has changed
    /// the Node meanwhile, because lists are replaced as a whole.
    pub fn status_patch(&self, found: &Node, now: OffsetDateTime) -> Value {
        let status = found.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.clone()).unwrap_or_default();
        let before = conditions.iter().find(|condition| condition.type_ == READY).cloned();
        // Conditions set for the absence of a kubelet do not apply while this agent reports.
        let others = |one: &NodeCondition| {
            one.type_ != READY && one.reason.as_deref() != Some("NodeStatusNeverUpdated")
        };
        let mut conditions = conditions.into_iter().filter(others).collect::<Vec<_>>();
        conditions.push(ready(before, now));
        let endpoints = self
            .port
            .map(|port| NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: port.into() }) });
        let mut status = Map::new();
        status.insert("addresses".into(), json!(self.node_addresses()));
        status.insert("conditions".into(), json!(conditions));
        status.insert("nodeInfo".into(), json!(self.system));
        status.insert("daemonEndpoints".into(), json!(endpoints));
        let version = &found.metadata.resource_version;
        json!({ "metadata": { "resourceVersion": version }, "status": status })
    }

    fn node_addresses(&self) -> Vec<NodeAddress> {
        let address = |type_: &str, address: String| NodeAddress { type_: type_.into(), address };
        let mut all: Vec<_> = self.addresses.iter().map(|ip| address("InternalIP", ip.to_string())).collect();
        all.push(address("Hostname", self.name.clone()));
        all
    }

    /// Returns the lease with a new heartbeat.
    pub fn lease(&self, found: Option<Lease>, uid: Option<&str>, now: OffsetDateTime) -> Lease {
        let mut lease = found.unwrap_or_default();
        lease.metadata.name = Some(self.name.clone());
        // The lease is deleted with its Node, unless other owners are set.
        if let Some(uid) = uid {
            let others = lease.metadata.owner_references.take().unwrap_or_default();
            let mut owners = others.into_iter().filter(|one| one.kind != "Node").collect::<Vec<_>>();
            owners.push(OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: self.name.clone(),
                uid: uid.to_owned(),
                ..OwnerReference::default()
            });
            lease.metadata.owner_references = Some(owners);
        }
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.name.clone()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: timestamp(now).map(MicroTime),
            ..lease.spec.unwrap_or_default()
        });
        lease
    }
}

fn ready(before: Option<NodeCondition>, now: OffsetDateTime) -> NodeCondition {
    let now = timestamp(now).map(Time);
    let still = before.filter(|before| before.status == "True");
    NodeCondition {
        type_: READY.into(),
        status: "True".into(),
        reason: Some("WindlassNodeReady".into()),
        message: Some("the node agent has a certificate and reports".into()),
        last_heartbeat_time: now.clone(),
        last_transition_time: still.and_then(|before| before.last_transition_time).or(now),
    }
}

/// Returns whether a Node's Ready condition is True.
pub fn is_ready(found: &Node) -> bool {
    let conditions = found.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|one| one.type_ == READY);
    ready.is_some_and(|ready| ready.status == "True")
}

/// Returns whether a kubelet reports for this Node.
pub fn is_reported_by_kubelet(found: &Node) -> bool {
    let info = found.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.is_some_and(|info| !info.kubelet_version.is_empty() && !info.kubelet_version.contains(OURS))
}

/// Returns whether a Windlass agent reports for this Node. A Node whose status was never written
/// has no reporter yet.
pub fn is_reported_by_windlass(found: &Node) -> bool {
    let info = found.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.is_some_and(|info| info.kubelet_version.contains(OURS))
}

/// Returns the required content of a serving certificate, from the addresses of the Node on the
/// server. Invalid IP addresses are not used as names either.
pub fn serving_template(found: &Node) -> Option<CertificateTemplate> {
    let addresses = found.status.as_ref().and_then(|status| status.addresses.as_deref());
    let (mut dns, mut ips) = (Vec::new(), Vec::new());
    for NodeAddress { type_, address } in addresses.unwrap_or_default() {
        match (type_.as_str(), address.parse::<IpAddr>()) {
            ("Hostname" | "InternalIP" | "ExternalIP", Ok(ip)) => ips.push(ip),
            ("Hostname" | "InternalDNS" | "ExternalDNS", _) => dns.push(address.clone()),
            _ => {}
        }
    }
    CertificateTemplate::serving(found.metadata.name.as_deref()?, dns, ips)
}

/// Converts a time to Kubernetes' format.
pub fn timestamp(time: OffsetDateTime) -> Option<Timestamp> {
    Timestamp::from_nanosecond(time.unix_timestamp_nanos()).ok()
}

/// Returns the system information of this host. Unknown fields are empty.
pub fn system() -> NodeSystemInfo {
    let read = |path: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim().chars().filter(|c| !c.is_control()).take(256).collect::<String>()
    };
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    NodeSystemInfo {
        machine_id: read("/etc/machine-id"),
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        kernel_version: read("/proc/sys/kernel/osrelease"),
        os_image: pretty_name(&release),
        kubelet_version: format!("v{}+{OURS}", env!("CARGO_PKG_VERSION")),
        operating_system: "linux".into(),
        architecture: architecture(std::env::consts::ARCH).into(),
        ..NodeSystemInfo::default()
    }
}

fn pretty_name(release: &str) -> String {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("Linux").trim_matches(['"', '\'']).to_owned()
}

/// Returns Go's name of an architecture.
fn architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::START;
    use time::Duration;

    fn host() -> HostInfo {
        HostInfo {
            name: "n1".into(),
            addresses: vec!["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()],
            port: Some(10250),
            system: NodeSystemInfo {
                operating_system: "linux".into(),
                architecture: "amd64".into(),
                kubelet_version: "v0.1.0+windlass".into(),
                ..NodeSystemInfo::default()
            },
        }
    }

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_new_node_has_labels_and_keeps_pods_away() {
        let made = serde_json::to_value(host().node()).unwrap();
        assert_eq!(
            made["metadata"]["labels"],
            json!({
                "kubernetes.io/hostname": "n1",
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            })
        );
        assert_eq!(made["spec"]["taints"], json!([{"key": TAINT, "effect": "NoSchedule"}]));
        assert_eq!(host().label_patch(&host().node()), None);
    }

    #[test]
    fn only_labels_that_are_wrong_are_changed() {
        let found = node(json!({"metadata": {"labels": {
            "kubernetes.io/hostname": "n1", "kubernetes.io/os": "plan9", "rack": "7",
        }}}));
        let wanted = json!({"metadata": {"labels": {
            "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        }}});
        assert_eq!(host().label_patch(&found), Some(wanted));
    }

    #[test]
    fn others_conditions_stay_and_ours_remembers_since_when() {
        let since = "2026-02-01T00:00:00Z";
        for (before, wanted) in [
            (json!([]), "2026-03-01T12:00:00Z"),
            (json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]), since),
            (
                json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": since}]),
                "2026-03-01T12:00:00Z",
            ),
        ] {
            let mut conditions = vec![
                json!({"type": "NetworkUnavailable", "status": "False"}),
                json!({"type": "PIDPressure", "status": "Unknown",
                       "reason": "NodeStatusNeverUpdated"}),
            ];
            conditions.extend(before.as_array().unwrap().iter().cloned());
            let found = node(json!({
                "metadata": {"resourceVersion": "7"}, "status": {"conditions": conditions},
            }));
            let patch = host().status_patch(&found, START);
            assert_eq!(patch["metadata"]["resourceVersion"], "7");
            let conditions = patch["status"]["conditions"].as_array().unwrap();
            assert_eq!(conditions.len(), 2, "{patch}");
            assert_eq!(conditions[0]["type"], "NetworkUnavailable");
            assert_eq!(conditions[1]["status"], "True");
            assert_eq!(conditions[1]["lastTransitionTime"], wanted);
            assert_eq!(conditions[1]["lastHeartbeatTime"], "2026-03-01T12:00:00Z");
            assert_eq!(
                patch["status"]["addresses"],
                json!([
                    {"type": "InternalIP", "address": "192.0.2.7"},
                    {"type": "InternalIP", "address": "2001:db8::7"},
                    {"type": "Hostname", "address": "n1"},
                ])
            );
            assert_eq!(patch["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250);
        }
    }

    #[test]
    fn a_kubelets_node_is_not_ours() {
        for (version, anothers) in [("", false), ("v0.1.0+windlass", false), ("v1.36.4", true)] {
            let mut info = host().system;
            info.kubelet_version = version.into();
            let found = node(json!({"metadata": {}, "status": {"nodeInfo": info}}));
            assert_eq!(is_reported_by_kubelet(&found), anothers, "{version}");
            assert_eq!(is_reported_by_windlass(&found), version.contains("windlass"), "{version}");
        }
        assert!(!is_reported_by_kubelet(&node(json!({"metadata": {}}))));
    }

    #[test]
    fn a_lease_belongs_to_its_node() {
        let first = host().lease(None, Some("u1"), START);
        let spec = first.spec.clone().unwrap();
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some("n1"), Some(40)));
        let later = host().lease(Some(first), Some("u2"), START + Duration::seconds(10));
        let owners = later.metadata.owner_references.clone().unwrap();
        assert_eq!(owners.len(), 1);
        assert_eq!((owners[0].uid.as_str(), owners[0].kind.as_str()), ("u2", "Node"));
        let time = serde_json::to_value(&later).unwrap()["spec"]["renewTime"].clone();
        assert_eq!(time, "2026-03-01T12:00:10.000000Z");
    }

    #[test]
    fn names_are_derived_from_addresses() {
        let with =
            |addresses: Value| node(json!({"metadata": {"name": "n1"}, "status": {"addresses": addresses}}));
        let template = serving_template(&with(json!([
            {"type": "Hostname", "address": "n1"},
            {"type": "Hostname", "address": "192.0.2.9"},
            {"type": "InternalIP", "address": "192.0.2.7"},
            {"type": "ExternalIP", "address": "nonsense"},
            {"type": "InternalDNS", "address": "n1.example"},
            {"type": "ExternalDNS", "address": ""},
            {"type": "Odd", "address": "odd.example"},
        ])));
        let names = template.unwrap().names;
        assert_eq!(names.dns_names, ["n1", "n1.example"]);
        let ips = names.ip_addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>();
        assert_eq!(ips, ["192.0.2.7", "192.0.2.9"]);
        assert_eq!(serving_template(&with(json!([]))), None);
        assert_eq!(serving_template(&with(json!([{"type": "Odd", "address": "x"}]))), None);
    }

    #[test]
    fn machines_are_called_as_go_calls_them() {
        assert_eq!((architecture("x86_64"), architecture("riscv64")), ("amd64", "riscv64"));
        assert_eq!(pretty_name("ID=x\nPRETTY_NAME=\"Some Linux 1\"\n"), "Some Linux 1");
        assert_eq!(pretty_name(""), "Linux");
    }
}
