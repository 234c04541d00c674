//! The columns of the table of nodes.

use crate::registry::kind::Column;

/// The columns; the descriptions are those that clients know from Kubernetes.
pub const COLUMNS: [Column; 10] = [
    column("Name", 0, NAME),
    column("Status", 0, STATUS),
    column("Roles", 0, ROLES),
    column("Age", 0, CREATED),
    column("Version", 0, VERSION),
    column("Internal-IP", 1, ADDRESSES),
    column("External-IP", 1, ADDRESSES),
    column("OS-Image", 1, OS_IMAGE),
    column("Kernel-Version", 1, KERNEL_VERSION),
    column("Container-Runtime", 1, CONTAINER_RUNTIME),
];

const fn column(name: &'static str, priority: i32, description: &'static str) -> Column {
    let format = match priority {
        0 if matches!(name.as_bytes(), b"Name") => "name",
        _ => "",
    };
    Column { name, kind: "string", format, description, priority }
}

const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some \
     resources may allow a client to request the generation of an appropriate name automatically. \
     Name is primarily intended for creation idempotence and configuration definition. Cannot be \
     updated. More info: \
     https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const STATUS: &str = "The status of the node";
const ROLES: &str = "The roles of the node";
const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. \
     It is not guaranteed to be set in happens-before order across separate operations. Clients \
     may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the \
     system. Read-only. Null for lists. More info: \
     https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const VERSION: &str = "Kubelet Version reported by the node.";
const ADDRESSES: &str = "List of addresses reachable to the node. Queried from cloud provider, if available. More \
     info: https://kubernetes.io/docs/reference/node/node-status/#addresses Note: This field is \
     declared as mergeable, but the merge key is not sufficiently unique, which can cause data \
     corruption when it is merged. Callers should instead use a full-replacement patch. See \
     https://pr.k8s.io/79391 for an example. Consumers should assume that addresses can change \
     during the lifetime of a Node. However, there are some exceptions where this may not be \
     possible, such as Pods that inherit a Node's address in its own status or consumers of the \
     downward API (status.hostIP).";
const OS_IMAGE: &str =
    "OS Image reported by the node from /etc/os-release (e.g. Debian GNU/Linux 7 (wheezy)).";
const KERNEL_VERSION: &str =
    "Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64).";
const CONTAINER_RUNTIME: &str = "ContainerRuntime Version reported by the node through runtime remote API (e.g. \
     containerd://1.4.2).";
