use super::*;
use crate::field::FieldErrors;
use crate::names::{dns1123_subdomain_rule, path_segment_rule};
use serde_json::json;

fn error_messages(metadata: Value, namespaced: bool) -> Vec<String> {
    let mut errors = FieldErrors::new();
    validate_object_meta(&metadata, namespaced, path_segment_rule, &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

fn update_error_messages(new: Value, old: Value) -> Vec<String> {
    let mut errors = FieldErrors::new();
    validate_object_meta_update(&new, &old, &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn the_parts_can_be_read() {
    let object = json!({"metadata": {
        "name": "n", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 3,
        "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["x/y"],
        "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30,
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "o", "uid": "1", "controller": true},
        ],
    }});
    let meta = ObjectMetaView::from_object(&object);
    assert_eq!((meta.name(), meta.namespace(), meta.uid()), ("n", "ns", "u"));
    assert_eq!((meta.resource_version(), meta.generation()), ("7", 3));
    assert_eq!((meta.label("a"), meta.label("z")), (Some("b"), None));
    assert_eq!(meta.labels().collect::<Vec<_>>(), [("a", "b")]);
    assert_eq!(meta.annotations().collect::<Vec<_>>(), [("c", "d")]);
    assert!(meta.is_deleting() && meta.has_finalizer("x/y"));
    assert_eq!(meta.controller().map(|o| o.name), Some("o"));
    for empty in [json!(null), json!({"metadata": []}), json!({"metadata": {"name": 1}})] {
        let meta = ObjectMetaView::from_object(&empty);
        assert_eq!((meta.name(), meta.is_deleting(), meta.labels().count()), ("", false, 0));
    }
}

#[test]
fn names_and_namespaces_are_required_or_forbidden() {
    let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    let cases: &[(Value, bool, &[&str])] = &[
        (json!({"name": "a"}), false, &[]),
        (json!({"name": "a", "namespace": "b"}), true, &[]),
        (Value::Null, false, &["metadata.name: Required value: name or generateName is required"]),
        (json!({"name": "a"}), true, &["metadata.namespace: Required value"]),
        (
            json!({"name": "a", "namespace": "b"}),
            false,
            &["metadata.namespace: Forbidden: not allowed on this type"],
        ),
        (
            json!({"name": "a", "namespace": "NS_a"}),
            true,
            &[&format!("metadata.namespace: Invalid value: \"NS_a\": {label}")],
        ),
        (
            json!({"generateName": "a/", "name": "a/b", "generation": -1}),
            false,
            &[
                "metadata.generateName: Invalid value: \"a/\": may not contain '/'",
                "metadata.name: Invalid value: \"a/b\": may not contain '/'",
                "metadata.generation: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
    ];
    for (metadata, namespaced, want) in cases {
        assert_eq!(error_messages(metadata.clone(), *namespaced), *want, "{metadata}");
    }
    let mut errors = FieldErrors::new();
    validate_object_meta(
        &json!({"generateName": "a-", "name": "a-b"}),
        false,
        dns1123_subdomain_rule,
        &mut errors,
    );
    assert!(errors.is_empty());
}

#[test]
fn labels_and_annotations_are_checked() {
    let bad = json!({"name": "a",
        "labels": {"good": "x", "-": "-"},
        "annotations": {"UPPER/case": "any thing", "a b": ""},
    });
    let words = error_messages(bad, false);
    assert_eq!(words.len(), 3);
    assert!(words[0].starts_with("metadata.labels: Invalid value: \"-\": name part must consist"));
    assert!(words[1].starts_with("metadata.labels: Invalid value: \"-\": a valid label must be"));
    assert!(words[2].starts_with("metadata.annotations: Invalid value: \"a b\": name part must"));

    let full = |extra: usize| json!({"name": "a", "annotations": {"k": "v".repeat(262_143 + extra)}});
    assert_eq!(error_messages(full(0), false), [""; 0]);
    assert_eq!(
        error_messages(full(1), false),
        ["metadata.annotations: Too long: may not be more than 262144 bytes"]
    );
}

#[test]
fn owners_are_named_in_full_and_one_controls() {
    let owners = json!({"name": "a", "ownerReferences": [
        {"apiVersion": "a/b/c"},
        {"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "1"},
        {"apiVersion": "apps/v1", "kind": "A", "name": "a", "uid": "1", "controller": true},
        {"apiVersion": "v1", "kind": "B", "name": "b", "uid": "2", "controller": true,
         "blockOwnerDeletion": false},
    ]});
    let at = "metadata.ownerReferences";
    assert_eq!(
        error_messages(owners, false),
        [
            format!("{at}[0].apiVersion: Invalid value: \"a/b/c\": must be <group>/<version> or <version>"),
            format!("{at}[0].kind: Required value: must not be empty"),
            format!("{at}[0].name: Required value: must not be empty"),
            format!("{at}[0].uid: Required value: must not be empty"),
            format!(
                "{at}[1]: Invalid value: {{\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"e\",\"uid\":\"1\"}}: /v1, Kind=Event is disallowed from being an owner"
            ),
            format!(
                "{at}: Invalid value: [{{\"apiVersion\":\"a/b/c\",\"kind\":\"\",\"name\":\"\",\"uid\":\"\"}},{{\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"e\",\"uid\":\"1\"}},{{\"apiVersion\":\"apps/v1\",\"kind\":\"A\",\"name\":\"a\",\"uid\":\"1\",\"controller\":true}},{{\"apiVersion\":\"v1\",\"kind\":\"B\",\"name\":\"b\",\"uid\":\"2\",\"controller\":true,\"blockOwnerDeletion\":false}}]: Only one reference can have Controller set to true. Found \"true\" in references for A/a and B/b"
            ),
        ]
    );
}

#[test]
fn finalizers_and_managers_are_checked() {
    let both = json!({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]});
    assert_eq!(
        error_messages(both, false),
        [
            "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set"
        ]
    );
    let mut errors = FieldErrors::new();
    validate_finalizer_names(&json!({"finalizers": ["kubernetes", "a.b/c", "mine"]}), &mut errors);
    let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            "metadata.finalizers[2]: Invalid value: \"mine\": name is neither a standard finalizer name nor is it fully qualified"
        ]
    );
    let managed = json!({"name": "a", "managedFields": [
        {"operation": "Apply", "fieldsType": "FieldsV1", "manager": "é e\u{301}"},
        {"operation": "Delete", "fieldsType": "V2", "manager": "a\n\u{200b}",
         "subresource": "s".repeat(257)},
        {"operation": "Update", "manager": "m".repeat(129)},
    ]});
    let at = "metadata.managedFields[1]";
    assert_eq!(
        error_messages(managed, false),
        [
            format!("{at}.operation: Invalid value: \"Delete\": must be `Apply` or `Update`"),
            format!("{at}.fieldsType: Invalid value: \"V2\": must be `FieldsV1`"),
            format!(
                "{at}.manager: Invalid value: {}: invalid character U+000A (at position 1)",
                crate::field::quote("a\n\u{200b}")
            ),
            format!(
                "{at}.manager: Invalid value: {}: invalid character U+200B (at position 2)",
                crate::field::quote("a\n\u{200b}")
            ),
            format!("{at}.subresource: Too long: may not be more than 256 bytes"),
            "metadata.managedFields[2].manager: Too long: may not be more than 128 bytes".to_owned(),
        ]
    );
}

#[test]
fn an_update_changes_no_identity() {
    let old = json!({"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1",
        "generation": 2, "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-02T00:00:00Z", "deletionGracePeriodSeconds": 30,
        "finalizers": ["a/b"]});
    let mut same = old.clone();
    same["finalizers"] = json!([]);
    assert_eq!(update_error_messages(same, old.clone()), [""; 0]);
    let new = json!({"name": "b", "namespace": "m", "uid": "v", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:01Z", "deletionGracePeriodSeconds": 0,
        "finalizers": ["z/z", "a/b", "c/d"]});
    assert_eq!(
        update_error_messages(new, old),
        [
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"c/d\", \"z/z\"}",
            "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
            "metadata.generation: Invalid value: 1: must not be decremented",
            "metadata.name: Invalid value: \"b\": field is immutable",
            "metadata.namespace: Invalid value: \"m\": field is immutable",
            "metadata.uid: Invalid value: \"v\": field is immutable",
            "metadata.creationTimestamp: Invalid value: \"2026-01-01T00:00:01Z\": field is immutable",
            "metadata.deletionTimestamp: Invalid value: null: field is immutable",
            "metadata.deletionGracePeriodSeconds: Invalid value: 0: field is immutable",
        ]
    );
}
