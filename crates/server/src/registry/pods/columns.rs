//! The columns of the table of pods.

use crate::registry::kind::Column;

/// The columns; the descriptions are those that clients know from Kubernetes.
pub const COLUMNS: [Column; 9] = [
    column("Name", 0, NAME),
    column("Ready", 0, READY),
    column("Status", 0, STATUS),
    column("Restarts", 0, RESTARTS),
    column("Age", 0, CREATED),
    column("IP", 1, IP),
    column("Node", 1, NODE),
    column("Nominated Node", 1, NOMINATED_NODE),
    column("Readiness Gates", 1, READINESS_GATES),
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
const READY: &str = "The aggregate readiness state of this pod for accepting traffic.";
const STATUS: &str = "The aggregate status of the containers in this pod.";
const RESTARTS: &str = "The number of times the containers in this pod have been restarted and when the last \
     container in this pod has restarted.";
const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. \
     It is not guaranteed to be set in happens-before order across separate operations. Clients \
     may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the \
     system. Read-only. Null for lists. More info: \
     https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
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
