use super::*;

fn bundle(spec: Value, labels: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Bundle", "metadata": {"name": "b"}});
    if !labels.is_null() {
        object["metadata"]["labels"] = labels;
    }
    if !spec.is_null() {
        object["spec"] = spec;
    }
    object
}

fn pod(containers: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"containers": containers}})
}

#[test]
fn two_managers_of_one_bundle() {
    let mut live = LiveObject::new("Bundle");
    let first = bundle(json!({"trustBundle": "1"}), json!({"a": "1"}));
    assert_eq!(live.apply("one", first.clone(), false), Ok(true));
    assert_eq!(live.without_managed_fields(), first);
    assert_eq!(live.apply("one", first, false), Ok(false));

    let second = bundle(json!({"trustBundle": "2"}), Value::Null);
    let refused = live.apply("two", second.clone(), false);
    assert_eq!(conflicts(refused), pairs(&[("\"one\"", ".spec.trustBundle")]));
    assert_eq!(live.apply("two", second, true), Ok(true));
    assert_eq!(
        live.owners(),
        json!([
            ["one", "Apply", {"f:metadata": {"f:labels": {"f:a": {}}}}],
            ["two", "Apply", {"f:spec": {"f:trustBundle": {}}}],
        ])
    );

    assert_eq!(live.apply("one", bundle(Value::Null, Value::Null), false), Ok(true));
    assert_eq!(live.without_managed_fields(), bundle(json!({"trustBundle": "2"}), Value::Null));
    assert_eq!(live.owners(), json!([["two", "Apply", {"f:spec": {"f:trustBundle": {}}}]]));
}

#[test]
fn equal_values_are_shared() {
    let mut live = LiveObject::new("Bundle");
    let same = bundle(json!({"trustBundle": "1"}), json!({"a": "1"}));
    live.apply("one", same.clone(), false).unwrap();
    assert_eq!(live.apply("two", same.clone(), false), Ok(true));
    let set = json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:trustBundle": {}}});
    assert_eq!(live.owners(), json!([["one", "Apply", set], ["two", "Apply", set]]));

    // One owner drops the field: the other keeps it.
    live.apply("one", bundle(Value::Null, json!({"a": "1"})), false).unwrap();
    assert_eq!(live.without_managed_fields(), same);
    assert_eq!(live.owners()[0], json!(["one", "Apply", {"f:metadata": {"f:labels": {"f:a": {}}}}]));
    // The last owner drops it: the field is removed.
    live.apply("two", bundle(Value::Null, json!({"a": "1"})), false).unwrap();
    assert_eq!(live.without_managed_fields(), bundle(Value::Null, json!({"a": "1"})));
}

#[test]
fn a_shared_field_conflicts_with_every_owner() {
    let mut live = LiveObject::new("Bundle");
    live.update("kubectl", bundle(json!({"trustBundle": "1", "signerName": "s"}), Value::Null));
    live.apply("one", bundle(json!({"trustBundle": "1"}), Value::Null), false).unwrap();
    let refused =
        live.apply("two", bundle(json!({"trustBundle": "2", "signerName": "t"}), Value::Null), false);
    let list = match refused {
        Err(ApplyError::Conflicts(found)) => found,
        other => panic!("{other:?}"),
    };
    let (message, causes) = conflict_status_parts(&list);
    assert_eq!(
        message,
        "Apply failed with 3 conflicts: conflicts with \"kubectl\" using v1:\n- .spec.signerName\n- \
         .spec.trustBundle\nconflicts with \"one\":\n- .spec.trustBundle"
    );
    assert_eq!(causes.len(), 3);
    assert_eq!(causes[0].message, "conflict with \"kubectl\" using v1");
    assert_eq!(causes[2].field, ".spec.trustBundle");
    let last = ApplyConflicts { listed: list.listed[2..].to_vec(), total: 1 };
    let (message, _) = conflict_status_parts(&last);
    assert_eq!(message, "Apply failed with 1 conflict: conflict with \"one\": .spec.trustBundle");
}

#[test]
fn very_many_conflicts_are_counted() {
    let map = |value: &str| {
        let data: serde_json::Map<_, _> = (0..10_000).map(|i| (format!("k{i}"), json!(value))).collect();
        json!({"metadata": {"name": "m"}, "data": data})
    };
    let mut live = LiveObject::new("ConfigMap");
    live.apply("one", map("1"), false).unwrap();
    let found = match live.apply("two", map("2"), false) {
        Err(ApplyError::Conflicts(found)) => found,
        other => panic!("{other:?}"),
    };
    let (message, causes) = conflict_status_parts(&found);
    assert!(message.starts_with("Apply failed with 10000 conflicts: conflicts with \"one\":\n- "));
    assert!(message.ends_with("\n… and 9900 more"), "{message}");
    assert_eq!((causes.len(), causes[100].message.as_str()), (101, "… and 9900 more"));
}

#[test]
fn a_conflict_names_the_subresource() {
    let mut live = LiveObject::new("Pod");
    live.update("one", pod(json!([{"name": "c"}])));
    let who = FieldManager { subresource: "status", ..writer("kubelet", "2026-01-01T00:00:00Z") };
    let mut new = pod(json!([{"name": "c"}]));
    new["status"] = json!({"phase": "Running"});
    live.update_as(&who, new);
    let applied = json!({"metadata": {"name": "p"}, "status": {"phase": "Failed"}});
    let found = conflicts(live.apply("two", applied, false));
    assert_eq!(found, pairs(&[("\"kubelet\" with subresource \"status\" using v1", ".status.phase")]));
}

#[test]
fn the_same_name_updating_is_another_manager() {
    let mut live = LiveObject::new("ConfigMap");
    let map = |v: &str| json!({"metadata": {"name": "m"}, "data": {"a": v}});
    live.update("one", map("1"));
    assert_eq!(conflicts(live.apply("one", map("2"), false)), pairs(&[("\"one\" using v1", ".data.a")]));
    live.apply("one", map("2"), true).unwrap();
    assert_eq!(
        live.owners(),
        json!([["one", "Apply", {"f:data": {"f:a": {}}}], ["one", "Update", {"f:data": {}}]])
    );
}

#[test]
fn fields_set_before_the_first_apply_keep_their_owner() {
    let mut live = LiveObject::new("ConfigMap");
    live.object = Some(json!({"metadata": {"name": "m"}, "data": {"a": "1", "b": "1"}}));
    let wanted = json!({"metadata": {"name": "m"}, "data": {"a": "2"}});
    let found = conflicts(live.apply("one", wanted.clone(), false));
    assert_eq!(found, pairs(&[("\"before-first-apply\" using v1", ".data.a")]));
    live.apply("one", wanted, true).unwrap();
    assert_eq!(live.owners()[1], json!(["before-first-apply", "Update", {"f:data": {".": {}, "f:b": {}}}]));
    // Dropping all fields does not remove those of other owners.
    live.apply("one", json!({"metadata": {"name": "m"}}), false).unwrap();
    assert_eq!(live.without_managed_fields()["data"], json!({"b": "1"}));
}

#[test]
fn lists_by_key_with_defaults() {
    let mut live = LiveObject::new("Pod");
    let port = |n: u16| json!({"containerPort": n});
    live.apply("one", pod(json!([{"name": "c", "image": "i", "ports": [port(80)]}])), false).unwrap();
    // The server set the default; the element is the same.
    let mut filled = live.object.clone().unwrap();
    filled["spec"]["containers"][0]["ports"][0]["protocol"] = "TCP".into();
    live.update("server", filled);
    live.apply(
        "two",
        pod(json!([{"name": "c", "ports": [{"containerPort": 80, "protocol": "UDP"}]}])),
        false,
    )
    .unwrap();
    assert_eq!(
        live.without_managed_fields()["spec"]["containers"],
        json!([{"name": "c", "image": "i", "ports": [
            {"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "UDP"}]}])
    );
    // One drops its port: the element goes, with the default that another writer filled in kept out.
    live.apply("one", pod(json!([{"name": "c", "image": "i"}])), false).unwrap();
    let ports = live.without_managed_fields()["spec"]["containers"][0]["ports"].clone();
    assert_eq!(ports.as_array().unwrap().last().unwrap()["protocol"], "UDP");
    // Two drops the container; one still owns it.
    live.apply("two", json!({"metadata": {"name": "p"}}), false).unwrap();
    assert_eq!(live.without_managed_fields()["spec"]["containers"][0]["image"], "i");
    live.apply("one", json!({"metadata": {"name": "p"}}), false).unwrap();
    let left = live.without_managed_fields();
    assert_eq!(left["spec"]["containers"][0].get("image"), None);
}

#[test]
fn an_element_without_an_applier_is_removed() {
    let mut live = LiveObject::new("Pod");
    live.apply("one", pod(json!([{"name": "a"}, {"name": "b"}])), false).unwrap();
    live.apply("two", pod(json!([{"name": "c", "image": "x"}])), false).unwrap();
    live.apply("one", pod(json!([{"name": "a"}])), false).unwrap();
    assert_eq!(
        live.without_managed_fields()["spec"]["containers"],
        json!([{"name": "a"}, {"name": "c", "image": "x"}])
    );
    let error = conflicts(live.apply("one", pod(json!([{"name": "a"}, {"name": "c", "image": "y"}])), false));
    assert_eq!(error, pairs(&[("\"two\"", ".spec.containers[name=\"c\"].image")]));
}

#[test]
fn order_of_elements() {
    let named = |names: &str| -> Value {
        names.chars().map(|c| json!({"name": c.to_string()})).collect::<Vec<_>>().into()
    };
    for (live, applied, result) in [
        ("abc", "abc", "abc"),
        ("abc", "cba", "cba"),
        ("abc", "c", "abc"),
        ("abc", "d", "abcd"),
        ("abc", "ca", "bca"),
        ("abcd", "db", "acdb"),
        ("ac", "abc", "abc"),
        ("", "ab", "ab"),
        ("xay", "bac", "xbayc"),
    ] {
        let mut object = LiveObject::new("Pod");
        object.update("one", pod(named(live)));
        object.apply("two", pod(named(applied)), false).unwrap();
        let got: String = object.without_managed_fields()["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap())
            .collect();
        assert_eq!(got, result, "{live} + {applied}");
    }
}

#[test]
fn sets() {
    let mut live = LiveObject::new("ConfigMap");
    let map = |list: Value| json!({"metadata": {"name": "m", "finalizers": list}});
    live.apply("one", map(json!(["a", "b"])), false).unwrap();
    assert_eq!(live.apply("two", map(json!(["b", "c"])), false), Ok(true));
    assert_eq!(live.without_managed_fields()["metadata"]["finalizers"], json!(["a", "b", "c"]));
    live.apply("one", map(json!([])), false).unwrap();
    assert_eq!(live.without_managed_fields()["metadata"]["finalizers"], json!(["b", "c"]));
    live.apply("two", json!({"metadata": {"name": "m"}}), false).unwrap();
    assert_eq!(live.without_managed_fields(), json!({"metadata": {"name": "m"}}));
    assert_eq!(live.owners(), json!([]));
}

#[test]
fn atomic_values_are_replaced_whole() {
    let mut live = LiveObject::new("Pod");
    let pod = |v: &str| {
        json!({"metadata": {"name": "p"}, "spec": {
        "selector": {"matchLabels": {v: v}}, "nodeSelector": {v: v}, "tolerations": [{"key": v}]}})
    };
    live.apply("one", pod("a"), false).unwrap();
    live.apply("one", pod("b"), false).unwrap();
    assert_eq!(live.without_managed_fields(), pod("b"));
    let found = conflicts(live.apply("two", pod("c"), false));
    let paths: Vec<_> = found.iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(paths, [".spec.nodeSelector", ".spec.selector", ".spec.tolerations"]);
}

#[test]
fn an_applied_object_must_be_mergeable() {
    for (applied, text) in [
        (
            pod(
                json!([{"name": "c", "ports": [{"containerPort": 1}, {"containerPort": 1, "protocol": "TCP"}]}]),
            ),
            ".spec.containers[name=\"c\"].ports: duplicate entries for key [containerPort=1,protocol=\"TCP\"]",
        ),
        (
            json!({"metadata": {"finalizers": ["a", "a"]}}),
            ".metadata.finalizers: duplicate entries for key [=\"a\"]",
        ),
        (
            json!({"metadata": {"finalizers": [null]}}),
            ".metadata.finalizers: element 0: associative list without keys has an element that's an explicit null",
        ),
        (
            pod(json!([{"image": "x"}])),
            ".spec.containers: element 0: associative list with keys has an element that omits key field \"name\" (and doesn't have default value)",
        ),
        (
            pod(json!([null])),
            ".spec.containers: element 0: associative list with keys may not have a null element",
        ),
        (json!({"spec": {"nope": 1}}), ".spec.nope: field not declared in schema"),
        (
            json!({"spec": {"nope": 1, "volumes": {}}, "x": 1}),
            "errors:\n  .spec.nope: field not declared in schema\n  .spec.volumes: expected list, got {}\n  .x: field not declared in schema",
        ),
        (json!({"spec": {"nodeName": 1}}), ".spec.nodeName: expected string, got 1"),
        (
            json!({"spec": {"tolerations": [{"nope": 1}]}}),
            ".spec.tolerations[0].nope: field not declared in schema",
        ),
        (json!([]), "expected map, got []"),
    ] {
        let error = LiveObject::new("Pod").apply("one", applied.clone(), true).unwrap_err();
        assert_eq!(error, ApplyError::Invalid(text.into()), "{applied}");
    }
}

#[test]
fn times_move_only_with_changes() {
    let mut live = LiveObject::new("ConfigMap");
    let map = |v: &str| json!({"metadata": {"name": "m", "creationTimestamp": null}, "data": {"a": v}});
    live.apply_as(&writer("one", "2026-01-01T00:00:00Z"), map("1"), false).unwrap();
    assert_eq!(live.apply_as(&writer("one", "2026-01-02T00:00:00Z"), map("1"), false), Ok(false));
    assert_eq!(live.times(), json!([["one", "2026-01-01T00:00:00Z"]]));
    live.apply_as(&writer("one", "2026-01-03T00:00:00Z"), map("2"), false).unwrap();
    assert_eq!(live.times(), json!([["one", "2026-01-03T00:00:00Z"]]));
}

#[test]
fn an_applier_has_one_entry_at_any_version() {
    let mut live = LiveObject::new("ConfigMap");
    let map = |k: &str| json!({"metadata": {"name": "m"}, "data": {k: "1"}});
    live.apply("one", map("a"), false).unwrap();
    let beta = FieldManager { api_version: "v1beta1", ..writer("one", "2026-01-02T00:00:00Z") };
    live.apply_as(&beta, map("b"), false).unwrap();
    assert_eq!(live.owners(), json!([["one", "Apply", {"f:data": {"f:b": {}}}]]));
    assert_eq!(live.without_managed_fields()["data"], json!({"b": "1"}));
    assert_eq!(live.object.unwrap()["metadata"]["managedFields"][0]["apiVersion"], "v1beta1");
}

#[test]
fn system_fields_stay() {
    let mut live = LiveObject::new("ConfigMap");
    live.object = Some(json!({"metadata": {"name": "m", "uid": "u", "resourceVersion": "7",
        "creationTimestamp": "2020-01-01T00:00:00Z", "labels": {"x": "y"}}, "data": {"a": "1"}}));
    let wanted = json!({"metadata": {"name": "m", "creationTimestamp": null, "labels": {"a": "b"}}});
    live.apply("one", wanted, false).unwrap();
    live.apply("one", json!({"metadata": {"name": "m"}}), false).unwrap();
    let metadata = live.without_managed_fields()["metadata"].clone();
    assert_eq!(
        metadata,
        json!({"name": "m", "uid": "u", "resourceVersion": "7",
        "creationTimestamp": "2020-01-01T00:00:00Z", "labels": {"x": "y"}})
    );
}

#[test]
fn reset_fields_are_never_owned() {
    let mut live = LiveObject::new("Pod");
    live.reset = FieldSet::from_paths(&[&["status"]]);
    let applied = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": {"phase": "x"}});
    live.apply("one", applied, false).unwrap();
    assert_eq!(live.owners(), json!([["one", "Apply", {"f:spec": {"f:nodeName": {}}}]]));
}

#[test]
fn kubectl_takes_over_from_its_client_side() {
    let record = "kubectl.kubernetes.io/last-applied-configuration";
    let map = |a: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": a, "b": "1"}});
    let mut old = map("1");
    old["metadata"]["annotations"] = json!({record: map("1").to_string()});
    let mut live = LiveObject::new("ConfigMap");
    live.update("kubectl-client-side-apply", old.clone());
    assert!(live.apply("other", map("2"), false).is_err());
    live.apply("kubectl", map("2"), false).unwrap();
    assert_eq!(live.without_managed_fields()["data"]["a"], "2");
    assert_eq!(live.without_managed_fields()["metadata"]["annotations"][record], format!("{}\n", map("2")));
    assert_eq!(live.apply("kubectl", map("2"), false), Ok(false));
    // A field changed since kubectl's apply is still a conflict.
    let mut live = LiveObject::new("ConfigMap");
    old["data"]["a"] = "3".into();
    live.update("someone", old);
    assert_eq!(
        conflicts(live.apply("kubectl", map("2"), false)),
        pairs(&[("\"someone\" using v1", ".data.a")])
    );
}
