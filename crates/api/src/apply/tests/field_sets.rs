use super::*;

fn decoded(fields: Value) -> FieldSet {
    FieldSet::decode(&fields).unwrap()
}

#[test]
fn operations_on_sets() {
    let a = || decoded(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}, "f:e": {}}, "f:z": {}}));
    let b = || decoded(json!({"f:a": {}, "f:c": {"f:d": {}}, "f:y": {}}));
    let mut union = a();
    union.union(&b());
    let expected = json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}, "f:e": {}}, "f:y": {}, "f:z": {}});
    assert_eq!(union.encode(), expected);
    let mut union = b();
    union.union(&a());
    assert_eq!(union.encode(), expected);
    assert_eq!(a().intersection(&b()).encode(), json!({"f:a": {}, "f:c": {"f:d": {}}}));
    let mut rest = a();
    rest.difference(&b());
    assert_eq!(rest.encode(), json!({"f:a": {"f:b": {}}, "f:c": {"f:e": {}}, "f:z": {}}));
    let mut rest = a();
    rest.recursive_difference(&b());
    assert_eq!(rest.encode(), json!({"f:c": {"f:e": {}}, "f:z": {}}));
    let mut rest = b();
    rest.difference(&a());
    assert_eq!(rest.encode(), json!({"f:y": {}}));
    let mut rest = decoded(json!({"f:a": {".": {}, "f:b": {}}}));
    rest.difference(&decoded(json!({"f:a": {"f:b": {}}})));
    assert_eq!(rest.encode(), json!({"f:a": {}}));
    let leaves = json!({"f:a": {"f:b": {}}, "f:c": {"f:d": {}, "f:e": {}}, "f:z": {}});
    assert_eq!(a().leaves().encode(), leaves);
    assert_eq!(FieldSet::from_paths(&[&["c", "d"], &["c", "e"], &["a"], &["a", "b"], &["z"]]), a());
}

#[test]
fn decoding_makes_one_spelling_and_refuses_nonsense() {
    let loose = json!({".": {}, "k:{\"protocol\": \"TCP\", \"containerPort\": 1 }": {".": {}}, "v: \"a\"": {}, "i:01": {}});
    let strict = json!({"k:{\"containerPort\":1,\"protocol\":\"TCP\"}": {}, "v:\"a\"": {}, "i:1": {}});
    assert_eq!(decoded(loose).encode(), strict);
    for wrong in [
        json!(null),
        json!([]),
        json!({"x": {}}),
        json!({"f:a": 1}),
        json!({"k:x": {}}),
        json!({"k:1": {}}),
        json!({"i:x": {}}),
        json!({"é": {}}),
    ] {
        assert!(FieldSet::decode(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn paths_are_for_people() {
    let set = decoded(json!({
        "f:spec": {"f:containers": {
            "k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {}}}
        }},
        "f:metadata": {"f:finalizers": {"v:\"a\"": {}}},
        "f:top": {},
        "f:list": {"i:0": {}},
    }));
    assert_eq!(
        set.paths(usize::MAX),
        [
            ".top",
            ".list[0]",
            ".metadata.finalizers[=\"a\"]",
            ".spec.containers[name=\"c\"]",
            ".spec.containers[name=\"c\"].image",
            ".spec.containers[name=\"c\"].ports[containerPort=80,protocol=\"TCP\"]",
        ]
    );
}

#[test]
fn the_fields_of_an_object() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "uid": "u", "labels": {"a": "1"}, "annotations": {},
            "finalizers": ["x", "y"], "ownerReferences": [{"uid": "1", "name": "o"}],
            "managedFields": [{}], "creationTimestamp": null},
        "spec": {
            "containers": [{"name": "c", "image": "i", "args": ["a"], "resources": {},
                "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]}],
            "selector": {"matchLabels": {"a": "b"}}, "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "k"}], "nodeName": null, "volumes": []
        },
    });
    assert_eq!(
        field_set(schema(), type_id("Pod"), &pod).encode(),
        json!({
            "f:metadata": {"f:annotations": {}, "f:labels": {"f:a": {}},
                "f:finalizers": {"v:\"x\"": {}, "v:\"y\"": {}},
                "f:ownerReferences": {"k:{\"uid\":\"1\"}": {}}},
            "f:spec": {
                "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}, "f:args": {},
                    "f:resources": {},
                    "f:ports": {
                        "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}},
                        "k:{\"containerPort\":80,\"protocol\":\"UDP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}},
                    }}},
                "f:selector": {}, "f:nodeSelector": {}, "f:tolerations": {}, "f:nodeName": {},
            },
        })
    );
}
