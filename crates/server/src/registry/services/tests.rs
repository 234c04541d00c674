use super::super::object_fields::tests::{cells, change_refusals, created, refusals};
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
fn rules() {
    let range = "must be between 1 and 65535, inclusive";
    let table: Vec<(Value, Vec<String>)> = vec![
        (json!({"ports": [{"port": 80}]}), vec![]),
        (json!({"clusterIP": "None"}), vec![]),
        (json!({}), vec!["spec.ports: Required value".into()]),
        (json!({"type": "ExternalName", "externalName": "a.example."}), vec![]),
        (json!({"type": "ExternalName"}), vec!["spec.externalName: Required value".into()]),
        (
            json!({"type": "ExternalName", "externalName": "a", "clusterIP": "10.0.0.1"}),
            vec!["spec.clusterIPs: Forbidden: may not be set for ExternalName services".into()],
        ),
        (
            json!({"type": "Odd", "ports": [{"port": 80}]}),
            vec![
                "spec.type: Unsupported value: \"Odd\": supported values: \"ClusterIP\", \
                 \"ExternalName\", \"LoadBalancer\", \"NodePort\""
                    .into(),
            ],
        ),
        (
            json!({"ports": [{"port": 0, "targetPort": 70000, "protocol": "ICMP"}]}),
            vec![
                format!("spec.ports[0].port: Invalid value: 0: {range}"),
                "spec.ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \
                 \"TCP\", \"UDP\""
                    .into(),
                format!("spec.ports[0].targetPort: Invalid value: 70000: {range}"),
            ],
        ),
        (
            json!({"ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "a"}, {"port": 3}]}),
            vec![
                "spec.ports[1].name: Duplicate value: \"a\"".into(),
                "spec.ports[2].name: Required value".into(),
            ],
        ),
        (
            json!({"ports": [{"port": 1, "nodePort": 30000}]}),
            vec!["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'".into()],
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 1, "name": "a", "nodePort": 30000},
                {"port": 2, "name": "b", "nodePort": 30000}]}),
            vec!["spec.ports[1].nodePort: Duplicate value: 30000".into()],
        ),
        (
            json!({"type": "LoadBalancer", "clusterIP": "None", "ports": [{"port": 10250}]}),
            vec![
                "spec.ports[0]: Invalid value: 10250: may not expose port 10250 externally since \
                 it is used by kubelet"
                    .into(),
                "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for \
                 LoadBalancer services"
                    .into(),
            ],
        ),
        (
            json!({"sessionAffinity": "ClientIP", "ports": [{"port": 1}],
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}}),
            vec![
                "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be \
                 greater than 0 and less than 86400"
                    .into(),
            ],
        ),
    ];
    for (spec, expected) in table {
        let object = created(&KIND, json!({ "spec": spec }));
        assert_eq!(refusals(&KIND, &object), expected, "{object}");
    }
}

#[test]
fn an_address_stays() {
    let old = created(&KIND, json!({"spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 1}]}}));
    let mut new = created(&KIND, json!({"spec": {"ports": [{"port": 2}]}}));
    (KIND.prepare_update)(&mut new, &old);
    assert_eq!(new["spec"]["clusterIPs"], json!(["10.0.0.1"]));
    assert_eq!(change_refusals(&KIND, &new, &old), Vec::<String>::new());
    let new = created(&KIND, json!({"spec": {"clusterIP": "10.0.0.2", "ports": [{"port": 1}]}}));
    assert_eq!(
        change_refusals(&KIND, &new, &old),
        ["spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\"]: may not change once set"]
    );
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
