//! Columns of the node table.

use crate::registry::kind::TableColumn;
use crate::registry::table_cells::{self, column, wide};

/// Columns, with the descriptions that Kubernetes uses.
pub(super) const COLUMNS: [TableColumn; 10] = [
    table_cells::NAME,
    column("Status", STATUS),
    column("Roles", ROLES),
    table_cells::AGE,
    column("Version", VERSION),
    wide(column("Internal-IP", ADDRESSES)),
    wide(column("External-IP", ADDRESSES)),
    wide(column("OS-Image", OS_IMAGE)),
    wide(column("Kernel-Version", KERNEL_VERSION)),
    wide(column("Container-Runtime", CONTAINER_RUNTIME)),
];

const STATUS: &str = "The status of the node";
const ROLES: &str = "The roles of the node";
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
