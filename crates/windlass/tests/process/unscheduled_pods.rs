//! Unscheduled pods, as kubectl shows them.

use serde_json::json;
use windlass_testkit::wait_for;

use crate::kubectl::Kubectl;

fn create_pod(admin: &Kubectl, name: &str) {
    let containers = json!([{"name": "c", "image": "i"}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                     "spec": {"containers": containers}});
    admin.ok_with(&pod.to_string(), &["create", "-f", "-"]);
}

#[test]
fn a_pending_pod_says_that_no_scheduler_runs() {
    let admin = Kubectl::new();
    wait_for("no service account", || {
        admin.ok(&["get", "serviceaccounts", "-o", "name"]).contains("/default")
    });
    // While a scheduler holds its lease, the pod is left to it.
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
        "spec": {"holderIdentity": "s"}});
    admin.ok_with(&lease.to_string(), &["create", "-f", "-"]);
    create_pod(&admin, "a");
    let examined = "windlass_controller_reconciles_total{name=\"unscheduled_pod\",result=\"done\"} 1";
    wait_for("the pod is not examined", || {
        admin.ok(&["get", "--raw", "/metrics"]).lines().any(|line| line == examined)
    });
    assert!(!admin.ok(&["describe", "pod", "a"]).contains("NotScheduled"));

    admin.ok(&["delete", "lease", "kube-scheduler", "-n", "kube-system"]);
    create_pod(&admin, "b");
    wait_for("it is not explained", || {
        let said = admin.ok(&["describe", "pod", "b"]);
        said.contains("NotScheduled") && said.contains("no scheduler is running")
    });
}
