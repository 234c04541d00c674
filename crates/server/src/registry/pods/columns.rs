//! Columns of the pod table.

use crate::registry::kind::TableColumn;
use crate::registry::table_cells::{self, column, wide};

/// Columns, with the descriptions that Kubernetes uses.
pub(super) const COLUMNS: [TableColumn; 9] = [
    table_cells::NAME,
    column("Ready", READY),
    column("Status", STATUS),
    column("Restarts", RESTARTS),
    table_cells::AGE,
    wide(column("IP", IP)),
    wide(column("Node", NODE)),
    wide(column("Nominated Node", NOMINATED_NODE)),
    wide(column("Readiness Gates", READINESS_GATES)),
];

const READY: &str = "The aggregate readiness state of this pod for accepting traffic.";
const STATUS: &str = "The aggregate status of the containers in this pod.";
const RESTARTS: &str = "The number of times the containers in this pod have been restarted and when the last \
     container in this pod has restarted.";
const IP: &str = "podIP address allocated to the pod. Routable at least within the cluster. Empty if not yet \
     allocated.";
const NODE: &str = "NodeName indicates in which node this pod is scheduled. If empty, this pod is a candidate for \
     scheduling by the scheduler defined in schedulerName. Once this field is set, the kubelet for \
     this node becomes responsible for the lifecycle of this pod. This field should not be used to \
     express a desire for the pod to be scheduled on a specific node. \
     https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodename";
const NOMINATED_NODE: &str = "nominatedNodeName is set only when this pod preempts other pods on the node, but it cannot be \
     scheduled right away as preemption victims receive their graceful termination periods. This \
     field does not guarantee that the pod will be scheduled on this node. Scheduler may decide to \
     place the pod elsewhere if other nodes become available sooner. Scheduler may also decide to \
     give the resources on this node to a higher priority pod that is created after preemption. As \
     a result, this field may be different than PodSpec.nodeName when the pod is scheduled.";
const READINESS_GATES: &str = "If specified, all readiness gates will be evaluated for pod readiness. A pod is ready when \
     all its containers are ready AND all conditions specified in the readiness gates have status \
     equal to \"True\" More info: \
     https://git.k8s.io/enhancements/keps/sig-network/580-pod-readiness-gates";
