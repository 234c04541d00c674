use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::sample_schema::{schema, type_id};
use super::*;

fn run(target: Value, patch: Value) -> Result<Value, PatchError> {
    strategic(schema(), type_id("Pod"), &target, patch)
}

/// Patches `spec` and returns the new `spec`.
fn spec(target: Value, patch: Value) -> Value {
    run(json!({"spec": target}), json!({"spec": patch})).unwrap()["spec"].take()
}

#[test]
fn objects_and_scalars() {
    for (target, patch, result) in [
        (json!({"nodeName": "a"}), json!({}), json!({"nodeName": "a"})),
        (json!({"nodeName": "a"}), json!({"nodeName": "b"}), json!({"nodeName": "b"})),
        (json!({"nodeName": "a"}), json!({"nodeName": null, "volumes": null}), json!({})),
        (
            json!({"nodeSelector": {"a": "1"}}),
            json!({"nodeSelector": {"a": null, "b": "2"}}),
            json!({"nodeSelector": {"b": "2"}}),
        ),
        (
            json!({"nodeSelector": {"a": "1"}}),
            json!({"nodeSelector": {"$patch": "replace", "b": "2"}}),
            json!({"nodeSelector": {"b": "2"}}),
        ),
        (
            json!({"nodeSelector": {"a": "1"}}),
            json!({"nodeSelector": {"$patch": "delete"}}),
            json!({"nodeSelector": {}}),
        ),
        (
            json!({"tolerations": [{"key": "a"}]}),
            json!({"tolerations": [{"key": "b", "value": null}]}),
            json!({"tolerations": [{"key": "b"}]}),
        ),
        // Not in the schema: merged as plain JSON.
        (
            json!({"more": {"a": 1, "l": [1]}}),
            json!({"more": {"b": 2, "l": [2]}}),
            json!({"more": {"a": 1, "b": 2, "l": [2]}}),
        ),
        // New to the object, with directives inside.
        (
            json!({}),
            json!({"strategy": {"$retainKeys": ["kind"], "kind": "x", "rolling": null}}),
            json!({"strategy": {"kind": "x"}}),
        ),
        (
            json!({}),
            json!({"containers": [{"$patch": "replace"}, {"name": "a", "$setElementOrder/env": []},
                {"name": "b", "$patch": "delete"}]}),
            json!({"containers": [{"name": "a"}]}),
        ),
    ] {
        assert_eq!(spec(target, patch.clone()), result, "{patch}");
    }
}

#[test]
fn lists_by_key() {
    let pod = || json!({"containers": [{"name": "a", "image": "1", "args": ["x", "y"]}, {"name": "b"}]});
    for (patch, result) in [
        (
            json!({"containers": [{"name": "a", "image": "2"}]}),
            json!([{"name": "a", "image": "2", "args": ["x", "y"]}, {"name": "b"}]),
        ),
        (
            json!({"containers": [{"name": "a", "args": ["z"]}]}),
            json!([{"name": "a", "image": "1", "args": ["z"]}, {"name": "b"}]),
        ),
        (
            json!({"containers": [{"name": "c"}]}),
            json!([{"name": "c"}, {"name": "a", "image": "1", "args": ["x", "y"]}, {"name": "b"}]),
        ),
        (json!({"containers": [{"name": "a", "$patch": "delete"}]}), json!([{"name": "b"}])),
        (json!({"containers": [{"$patch": "replace"}, {"name": "z"}]}), json!([{"name": "z"}])),
        (json!({"containers": [{"$patch": "replace"}]}), json!([])),
        (
            json!({"containers": [{"name": "a", "$patch": "replace", "image": "9"}, {"name": "b", "image": "3"}]}),
            json!([{"name": "b", "image": "3"}]),
        ),
        (
            json!({"containers": [{"name": "b"}, {"name": "a"}]}),
            json!([{"name": "b"}, {"name": "a", "image": "1", "args": ["x", "y"]}]),
        ),
    ] {
        assert_eq!(spec(pod(), patch.clone())["containers"], result, "{patch}");
    }
}

#[test]
fn set_element_order() {
    let named = |names: &str| -> Value {
        names.chars().map(|c| json!({"name": c.to_string()})).collect::<Vec<_>>().into()
    };
    for (live, patch, order, result) in [
        ("abc", "", "cab", "cab"),
        ("abc", "", "ca", "bca"),
        ("abcd", "", "db", "acdb"),
        ("abc", "d", "dabc", "dabc"),
        ("abc", "d", "adbc", "adbc"),
        ("axb", "c", "bca", "xbca"),
        ("xab", "c", "bca", "xbca"),
        ("abx", "c", "cab", "cabx"),
        ("", "ab", "ab", "ab"),
    ] {
        let patch = json!({"$setElementOrder/env": named(order), "env": named(patch), "name": "c"});
        let target = json!({"containers": [{"name": "c", "env": named(live)}]});
        let made = spec(target, json!({"containers": [patch.clone()]}));
        assert_eq!(made["containers"][0]["env"], named(result), "{live} with {patch}");
    }
    let order = json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]});
    assert_eq!(spec(json!({}), order.clone()), json!({}));
    assert_eq!(spec(json!({"containers": named("ab")}), order)["containers"], named("ba"));
}

#[test]
fn lists_of_scalars() {
    for (live, patch, result) in [
        (json!(["a", "b"]), json!({"finalizers": ["c"]}), json!(["c", "a", "b"])),
        (json!(["a", "b"]), json!({"finalizers": ["b"]}), json!(["a", "b"])),
        (json!(["a", "b"]), json!({"finalizers": []}), json!(["a", "b"])),
        (json!(["a", "b"]), json!({"finalizers": null}), Value::Null),
        (json!(["a", "b"]), json!({"$deleteFromPrimitiveList/finalizers": ["a", "z"]}), json!(["b"])),
        (
            json!(["a", "b"]),
            json!({"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"],
                "$setElementOrder/finalizers": ["b", "c"]}),
            json!(["b", "c"]),
        ),
        (json!(["a", "b"]), json!({"$setElementOrder/finalizers": ["b", "a"]}), json!(["b", "a"])),
    ] {
        let made = run(json!({"metadata": {"finalizers": live}}), json!({"metadata": patch.clone()}));
        assert_eq!(
            made.unwrap()["metadata"].get("finalizers").cloned().unwrap_or_default(),
            result,
            "{patch}"
        );
    }
    let absent = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}});
    assert_eq!(run(json!({"metadata": {}}), absent).unwrap(), json!({"metadata": {}}));
}

#[test]
fn retain_keys_clears_the_rest() {
    let target = || {
        json!({"strategy": {"kind": "Rolling", "rolling": {"max": 1}},
        "volumes": [{"name": "v", "secret": {"name": "s"}}]})
    };
    let patch = json!({"strategy": {"$retainKeys": ["kind"], "kind": "Recreate"},
        "volumes": [{"$retainKeys": ["name", "configMap"], "name": "v", "configMap": {"name": "c"}}]});
    let result = json!({"strategy": {"kind": "Recreate"},
        "volumes": [{"name": "v", "configMap": {"name": "c"}}]});
    assert_eq!(spec(target(), patch), result);
}

#[test]
fn ports_with_one_number_merge_into_the_first() {
    let target = json!({"containers": [{"name": "a", "ports": [
        {"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]}]});
    let patch = json!({"containers": [{"name": "a", "ports": [{"containerPort": 53, "name": "dns"}]}]});
    assert_eq!(
        spec(target, patch)["containers"][0]["ports"],
        json!([{"containerPort": 53, "protocol": "TCP", "name": "dns"},
            {"containerPort": 53, "protocol": "UDP"}])
    );
}

#[test]
fn contradictions_are_reported() {
    let target = json!({"metadata": {"finalizers": ["a"]},
        "spec": {"containers": [{"name": "a"}], "strategy": {"kind": "x"}}});
    for (patch, text) in [
        (
            json!({"spec": {"containers": [{"image": "x"}]}}),
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            json!({"spec": {"containers": [{"$patch": "delete"}]}}),
            "map: map[$patch:delete] does not contain declared merge key: name",
        ),
        (
            json!({"spec": {"containers": [{"$patch": "merge", "name": "a"}]}}),
            "merging lists cannot yet be specified in the patch",
        ),
        (json!({"spec": {"$patch": "explode"}}), "unknown patch type: explode in map: map[$patch:explode]"),
        (json!({"spec": {"containers": ["x"]}}), "list element types are not identical: [[map[name:a]] [x]]"),
        (
            json!({"spec": {"strategy": {"$retainKeys": ["kind"], "rolling": {}}}}),
            "invalid patch format of retainKeys",
        ),
        (json!({"spec": {"strategy": {"$retainKeys": 1}}}), "invalid patch format of retainKeys"),
        (json!({"metadata": {"$deleteFromPrimitiveList": ["a"]}}), "invalid patch format of primitive list"),
        (json!({"metadata": {"$setElementOrder": ["a"]}}), "invalid patch format of setElementOrder list"),
        (
            json!({"metadata": {"$setElementOrder/finalizers": "a"}}),
            "expected a []interface {}, but received a string",
        ),
        (
            json!({"metadata": {"$setElementOrder/finalizers": ["a", "b"], "finalizers": ["b", "a"]}}),
            "The order in patch list:\n[b a]\n doesn't match $setElementOrder list:\n[a b]\n",
        ),
        (json!({"metadata": {"finalizers": [["a"]]}}), "lists of lists are not supported"),
    ] {
        assert_eq!(run(target.clone(), patch.clone()).unwrap_err().to_string(), text, "{patch}");
    }
    assert!(matches!(run(json!({}), json!([])), Err(PatchError::Malformed(_))));
}

#[test]
fn long_lists_are_not_quadratic() {
    let names = |n: usize| -> Vec<Value> { (0..n).map(|i| json!({"name": i.to_string()})).collect() };
    let started = std::time::Instant::now();
    let made = spec(json!({"containers": names(50_000)}), json!({"containers": names(50_000)}));
    assert_eq!(made["containers"].as_array().unwrap().len(), 50_000);
    assert!(started.elapsed().as_secs() < 20);
}

fn any_pod() -> impl Strategy<Value = Value> {
    let env = prop::collection::btree_map("[a-c]", "[x-z]?", 0..3)
        .prop_map(|m| m.into_iter().map(|(k, v)| json!({"name": k, "value": v})).collect::<Vec<_>>());
    let containers = prop::collection::btree_map("[a-c]", env, 0..3)
        .prop_map(|m| m.into_iter().map(|(k, v)| json!({"name": k, "env": v})).collect::<Vec<_>>());
    let finalizers = prop::collection::btree_set("[a-d]", 0..3);
    (containers, finalizers).prop_map(|(containers, finalizers)| {
        json!({"metadata": {"finalizers": finalizers}, "spec": {"containers": containers}})
    })
}

proptest! {
    #[test]
    fn an_empty_patch_is_the_identity(pod in any_pod()) {
        prop_assert_eq!(run(pod.clone(), json!({})).unwrap(), pod);
    }

    #[test]
    fn merging_is_idempotent(pod in any_pod(), patch in any_pod()) {
        let once = run(pod, patch.clone()).unwrap();
        prop_assert_eq!(run(once.clone(), patch).unwrap(), once);
    }

    #[test]
    fn an_object_patches_itself_to_itself(pod in any_pod()) {
        prop_assert_eq!(run(pod.clone(), pod.clone()).unwrap(), pod);
    }
}
