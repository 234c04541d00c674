use super::*;

fn map(data: Value) -> Value {
    json!({"metadata": {"name": "m"}, "data": data})
}

#[test]
fn the_creator_owns_what_it_set() {
    let mut live = LiveObject::new("Pod");
    live.update("kubectl", json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "1"}, "creationTimestamp": null},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}], "volumes": [{"name": "v"}]},
    }));
    let owned = json!({
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {
            "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}, "f:resources": {}}},
            "f:volumes": {".": {}, "k:{\"name\":\"v\"}": {".": {}, "f:name": {}}},
        },
    });
    assert_eq!(live.owners(), json!([["kubectl", "Update", owned]]));
    let entry = &live.object.unwrap()["metadata"]["managedFields"][0];
    assert_eq!(entry["apiVersion"], "v1");
    assert_eq!(entry["fieldsType"], "FieldsV1");
    assert_eq!(entry["time"], "2026-01-01T00:00:00Z");
    assert_eq!(entry.get("subresource"), None);
}

#[test]
fn changed_fields_change_owner_and_removed_fields_lose_it() {
    let mut live = LiveObject::new("ConfigMap");
    live.update("one", map(json!({"a": "1", "b": "1", "c": "1"})));
    live.update_as(&writer("two", "2026-01-02T00:00:00Z"), map(json!({"a": "2", "b": "1", "d": "1"})));
    assert_eq!(
        live.owners(),
        json!([
            ["one", "Update", {"f:data": {".": {}, "f:b": {}}}],
            ["two", "Update", {"f:data": {"f:a": {}, "f:d": {}}}],
        ])
    );
    assert_eq!(live.times(), json!([["one", "2026-01-01T00:00:00Z"], ["two", "2026-01-02T00:00:00Z"]]));
    live.update_as(&writer("two", "2026-01-03T00:00:00Z"), map(json!({"d": "1"})));
    assert_eq!(live.times()[1], json!(["two", "2026-01-02T00:00:00Z"]), "it only removed");
    live.update("three", map(json!({})));
    assert_eq!(live.owners(), json!([["one", "Update", {"f:data": {}}]]));
    live.update("three", json!({"metadata": {"name": "m"}}));
    assert_eq!(live.owners(), json!([]));
}

#[test]
fn an_update_that_changes_nothing_changes_nothing() {
    let mut live = LiveObject::new("ConfigMap");
    live.update("one", map(json!({"a": "1"})));
    let before = live.object.clone();
    live.update_as(&writer("two", "2027-01-01T00:00:00Z"), map(json!({"a": "1"})));
    assert_eq!(live.object, before);
    live.update_as(&writer("two", "2027-01-01T00:00:00Z"), before.clone().unwrap());
    assert_eq!(live.object, before);
}

#[test]
fn writers_differ_by_version_and_subresource() {
    let mut live = LiveObject::new("Pod");
    let pod = |phase: &str, name: &str| json!({"metadata": {}, "spec": {"nodeName": name}, "status": {"phase": phase}});
    live.update("k", pod("a", "n"));
    let status = FieldManager { subresource: "status", ..writer("k", "2026-01-02T00:00:00Z") };
    live.update_as(&status, pod("b", "n"));
    let beta = FieldManager { api_version: "v1beta1", ..writer("k", "2026-01-03T00:00:00Z") };
    live.update_as(&beta, pod("b", "m"));
    let entries = live.object.unwrap()["metadata"]["managedFields"].take();
    let shown: Vec<_> = entries
        .as_array()
        .unwrap()
        .iter()
        .map(|e| format!("{} {} {}", e["apiVersion"], e["subresource"], e["fieldsV1"]))
        .collect();
    assert_eq!(
        shown,
        [
            r#""v1" null {"f:status":{}}"#,
            r#""v1" "status" {"f:status":{"f:phase":{}}}"#,
            r#""v1beta1" null {"f:spec":{"f:nodeName":{}}}"#,
        ]
    );
}

#[test]
fn lists_are_owned_by_element() {
    let mut live = LiveObject::new("Pod");
    let pod = |containers: Value, finalizers: Value| json!({"metadata": {"finalizers": finalizers}, "spec": {"containers": containers}});
    let ports = |ports: Value| json!([{"name": "c", "ports": ports}]);
    live.update("one", pod(ports(json!([{"containerPort": 1, "protocol": "TCP"}])), json!(["a"])));
    live.update_as(
        &writer("two", "2026-01-02T00:00:00Z"),
        pod(ports(json!([{"containerPort": 2, "protocol": "UDP"}, {"containerPort": 1}])), json!(["b", "a"])),
    );
    assert_eq!(
        live.owners()[1],
        json!(["two", "Update", {
            "f:metadata": {"f:finalizers": {"v:\"b\"": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:ports":
                {"k:{\"containerPort\":2,\"protocol\":\"UDP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}}}}},
        }])
    );
    let before = live.owners();
    live.update(
        "three",
        pod(ports(json!([{"containerPort": 1}, {"containerPort": 2, "protocol": "UDP"}])), json!(["a", "b"])),
    );
    assert_eq!(live.owners(), before, "another order is no change of owner");
}

#[test]
fn atomic_values_have_one_owner() {
    let mut live = LiveObject::new("Pod");
    let pod = |v: &str| {
        json!({"metadata": {}, "spec": {"containers": null, "nodeSelector": {"a": "1", "b": v},
        "tolerations": [{"key": v}], "selector": {"matchLabels": {"a": v}}}})
    };
    live.update("one", pod("1"));
    live.update("two", pod("2"));
    let all = json!({"f:spec": {"f:nodeSelector": {}, "f:selector": {}, "f:tolerations": {}}});
    assert_eq!(live.owners(), json!([["two", "Update", all]]));
}

#[test]
fn a_client_may_send_its_own_list() {
    let start = || {
        let mut live = LiveObject::new("ConfigMap");
        live.update("one", map(json!({"a": "1"})));
        live
    };
    let sent = |list: Value, data: Value| {
        let mut new = map(data);
        new["metadata"]["managedFields"] = list;
        new
    };
    let entry = |manager: &str| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {}}}, "time": "2020-01-01T02:00:00.5+02:00"})
    };
    for (list, owners) in [
        (json!(null), json!(["one"])),
        (json!([]), json!([])),
        (json!([{}]), json!([])),
        (json!([{}, {}]), json!(["one"])),
        (json!([{"manager": "x"}]), json!(["one"])),
        (
            json!([{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV2"}]),
            json!(["one"]),
        ),
        (
            json!([{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"a": {}}}]),
            json!(["one"]),
        ),
        (json!("x"), json!(["one"])),
        (json!([entry("x")]), json!(["x"])),
    ] {
        let mut live = start();
        live.update("two", sent(list.clone(), json!({"a": "1"})));
        let managers: Value = live.owners().as_array().unwrap().iter().map(|o| o[0].clone()).collect();
        assert_eq!(managers, owners, "{list}");
    }
    let mut live = start();
    live.update("two", sent(json!([entry("x")]), json!({"a": "1"})));
    assert_eq!(live.times(), json!([["x", "2020-01-01T00:00:00Z"]]));
    let mut live = start();
    let status = FieldManager { subresource: "status", ..writer("two", "2026-01-01T00:00:00Z") };
    live.update_as(&status, sent(json!([]), json!({"a": "1"})));
    assert_eq!(live.owners()[0][0], "one", "not through a subresource");
}

#[test]
fn an_object_without_owners_stays_without() {
    let mut live = LiveObject::new("ConfigMap");
    live.object = Some(map(json!({"a": "1"})));
    live.update("two", map(json!({"a": "2"})));
    assert_eq!(live.owners(), json!([]));
}

#[test]
fn reset_fields_are_never_owned() {
    let mut live = LiveObject::new("Pod");
    live.reset = FieldSet::from_paths(&[&["status"]]);
    let pod =
        json!({"metadata": {}, "spec": {"containers": null, "nodeName": "n"}, "status": {"phase": "x"}});
    live.update("one", pod);
    assert_eq!(live.owners(), json!([["one", "Update", {"f:spec": {"f:nodeName": {}}}]]));
}

#[test]
fn many_writers_become_ancient() {
    let mut live = LiveObject::new("ConfigMap");
    let mut data = serde_json::Map::new();
    for i in 0..14 {
        data.insert(format!("k{i:02}"), "1".into());
        let time = format!("2026-01-{:02}T00:00:00Z", i + 1);
        let manager = format!("m{i:02}");
        let mut who = writer(&manager, &time);
        if i == 2 {
            who.api_version = "v0";
        }
        live.update_as(&who, map(Value::Object(data.clone())));
        assert_eq!(live.owners().as_array().unwrap().len(), (i + 1).min(10));
    }
    let owners = live.owners();
    assert_eq!(owners[0], json!(["m02", "Update", {"f:data": {"f:k02": {}}}]));
    let ancient =
        json!({"f:data": {".": {}, "f:k00": {}, "f:k01": {}, "f:k03": {}, "f:k04": {}, "f:k05": {}}});
    assert_eq!(owners[1], json!(["ancient-changes", "Update", ancient]));
    assert_eq!(live.times()[1], json!(["ancient-changes", "2026-01-06T00:00:00Z"]));
}

#[test]
fn a_list_whose_elements_have_no_key_is_one_value() {
    let mut live = LiveObject::new("Pod");
    let pod = |containers: Value| json!({"metadata": {}, "spec": {"containers": containers}});
    live.update("one", pod(json!([{"image": "x"}])));
    live.update("two", pod(json!([{"image": "y"}])));
    assert_eq!(live.owners(), json!([["two", "Update", {"f:spec": {"f:containers": {}}}]]));
}
