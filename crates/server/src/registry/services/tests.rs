use super::super::object_fields::tests::{cells, change_refusals, created};
use super::*;

#[test]
fn defaults_are_filled_in() {
    let object = json!({"spec": {"ports": [{"port": 80}, {"port": 81, "targetPort": "web"}]}});
    assert_eq!(
        created(&KIND, object),
        json!({
            "spec": {
                "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "ports": [
                    {"port": 80, "protocol": "TCP", "targetPort": 80},
                    {"port": 81, "protocol": "TCP", "targetPort": "web"}
                ]
            },
            "status": {"loadBalancer": {}}
        })
    );
    let object = json!({"spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP"}});
    let spec = &created(&KIND, object)["spec"];
    assert_eq!(spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"], 10800);
    assert_eq!(spec["externalTrafficPolicy"], "Cluster");
    assert_eq!(spec["allocateLoadBalancerNodePorts"], true);
    let object = json!({"spec": {"clusterIP": "None"}});
    assert_eq!(created(&KIND, object)["spec"]["clusterIPs"], json!(["None"]));
}

#[test]
fn a_change_of_type_drops_what_the_old_type_had() {
    let old = created(
        &KIND,
        json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1",
            "ports": [{"port": 1, "nodePort": 30000}]}}),
    );
    let mut new = old.clone();
    new["spec"]["type"] = json!("ClusterIP");
    (KIND.prepare_update)(&mut new, &old);
    assert_eq!(change_refusals(&KIND, &new, &old), Vec::<String>::new());
    assert_eq!(new["spec"]["clusterIP"], "10.0.0.1");
    assert_eq!(new["spec"]["ports"][0].get("nodePort"), None);
    let mut new = old.clone();
    new["spec"]["type"] = json!("ExternalName");
    new["spec"]["externalName"] = json!("a.example");
    (KIND.prepare_update)(&mut new, &old);
    assert_eq!(change_refusals(&KIND, &new, &old), Vec::<String>::new());
    assert_eq!(new["spec"].get("clusterIPs"), None);
}

#[test]
fn rows() {
    let object = json!({
        "metadata": {"name": "s", "creationTimestamp": "1970-01-01T00:00:00Z"},
        "spec": {
            "type": "LoadBalancer", "clusterIPs": ["10.0.0.1"], "externalIPs": ["1.1.1.1"],
            "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"},
                      {"port": 53, "protocol": "UDP"}],
            "selector": {"b": "2", "a": "1"}
        },
        "status": {"loadBalancer": {"ingress": [{"hostname": "h"}, {"ip": "2.2.2.2"}]}}
    });
    assert_eq!(
        cells(&KIND, &object),
        json!([
            "s",
            "LoadBalancer",
            "10.0.0.1",
            "2.2.2.2,h,1.1.1.1",
            "80:30080/TCP,53/UDP",
            "120m",
            "a=1,b=2"
        ])
    );
    let object = json!({"metadata": {"name": "s"}, "spec": {"type": "ClusterIP"}});
    assert_eq!(
        cells(&KIND, &object),
        json!(["s", "ClusterIP", "<none>", "<none>", "<none>", "<unknown>", "<none>"])
    );
}
