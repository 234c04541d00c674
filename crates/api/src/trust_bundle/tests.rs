//! Validity of Bundles and the wording of errors.

use serde_json::{Value, json};

use super::*;

fn bundle(sources: Value, target: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": "test-bundle"}, "spec": {"sources": sources, "target": target},
    });
    if object["spec"]["target"].is_null() {
        object["spec"].as_object_mut().unwrap().remove("target");
    }
    object
}

fn error_messages(object: &Value) -> Vec<String> {
    validate(object).iter().map(ToString::to_string).collect()
}

fn source_errors(source: Value) -> Vec<String> {
    error_messages(&bundle(json!([source]), json!({"configMap": {"key": "ca-bundle.crt"}})))
}

fn target_errors(target: Value) -> Vec<String> {
    error_messages(&bundle(json!([{"useDefaultCAs": true}]), target))
}

const ORIGIN: &str = "spec.sources[0]: Invalid value: exactly one of the fields in \
                      [configMap secret inLine useDefaultCAs] must be set";

#[test]
fn sources_are_validated_as_in_trust_manager() {
    let by_name = json!({"name": "ca", "key": "ca.crt"});
    let cases: &[(Value, &[&str])] = &[
        (json!({}), &[ORIGIN]),
        (json!({"configMap": by_name}), &[]),
        (json!({"secret": by_name}), &[]),
        (json!({"secret": by_name, "optional": true}), &[]),
        (json!({"inLine": "cert-placeholder"}), &[]),
        (json!({"useDefaultCAs": true}), &[]),
        (json!({"useDefaultCAs": false}), &["spec.sources: Forbidden: must define at least one source"]),
        (json!({"inLine": "x", "useDefaultCAs": true}), &[ORIGIN]),
        (
            json!({"inLine": ""}),
            &["spec.sources[0].inLine: Invalid value: \"\": spec.sources[0].inLine in body should \
               be at least 1 chars long"],
        ),
        (
            json!({"inLine": 1}),
            &[
                "spec.sources[0].inLine: Invalid value: \"integer\": spec.sources[0].inLine in body \
                 must be of type string: \"integer\"",
                "<nil>: Invalid value: null: some validation rules were not checked because the \
                 object was invalid; correct the existing errors to complete validation",
            ],
        ),
        (
            json!({"clusterTrustBundle": {"name": "a"}, "inLine": "x"}),
            &["spec.sources[0]: Invalid value: exactly one of the fields in [configMap secret \
               inLine useDefaultCAs clusterTrustBundle] must be set"],
        ),
    ];
    for (source, want) in cases {
        assert_eq!(source_errors(source.clone()), *want, "{source}");
    }
}

#[test]
fn objects_are_named_or_selected_with_a_key_or_all() {
    for kind in ["configMap", "secret"] {
        let path = format!("spec.sources[0].{kind}");
        let one = format!("{path}: Invalid value: exactly one of the fields in [name selector] must be set");
        let undefined = format!(
            "{path}: Invalid value: \"key: ' ', includeAllKeys: false\": source {kind} key must be \
             defined when includeAllKeys is false"
        );
        let both = format!(
            "{path}: Invalid value: \"key: ca.crt, includeAllKeys: true\": source {kind} key cannot \
             be defined when includeAllKeys is true"
        );
        let selector = format!(
            "{path}.selector.matchLabels: Invalid value: \"@@@@\": name part must consist of \
             alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        );
        let cases = [
            (json!({"key": "ca.crt"}), Some(&one)),
            (json!({"name": "ca", "key": "ca.crt"}), None),
            (json!({"selector": {}, "key": "ca.crt"}), None),
            (json!({"name": "ca", "selector": {}, "key": "ca.crt"}), Some(&one)),
            (json!({"name": "ca"}), Some(&undefined)),
            (json!({"name": "ca", "includeAllKeys": true}), None),
            (json!({"name": "ca", "includeAllKeys": false}), Some(&undefined)),
            (json!({"name": "ca", "key": "ca.crt", "includeAllKeys": true}), Some(&both)),
            (json!({"selector": {"matchLabels": {"@@@@": ""}}, "key": "k"}), Some(&selector)),
        ];
        for (source, want) in cases {
            let want: Vec<String> = want.into_iter().cloned().collect();
            assert_eq!(source_errors(json!({kind: source})), want, "{source}");
        }
    }
}

#[test]
fn webhook_rules_repeat_the_schema() {
    let mut errors = crate::field::FieldErrors::new();
    let object = bundle(
        json!([
            {"configMap": {"key": "k"}},
            {"secret": {"name": "s", "selector": {}, "key": "k"}},
            {"inLine": "x", "useDefaultCAs": false},
        ]),
        Value::Null,
    );
    validate_rules(&object, &mut errors);
    let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            "spec.sources[0].configMap: Invalid value: \"name: ' ', selector: nil\": must validate \
             one and only one schema (oneOf): [name, selector]. Found none valid",
            "spec.sources[1].secret: Invalid value: \"name: s, selector: {}\": must validate one \
             and only one schema (oneOf): [name, selector]. Found both set",
            "spec.sources[2]: Forbidden: must define exactly one source type for each item but \
             found 2 defined types",
        ]
    );
}

#[test]
fn sources_are_counted() {
    let target = json!({"configMap": {"key": "k"}});
    let cases: &[(Value, &[&str])] = &[
        (json!([]), &["spec.sources: Invalid value: 0: spec.sources in body should have at least 1 items"]),
        (
            json!([{"useDefaultCAs": true}, {"useDefaultCAs": true}]),
            &["spec.sources: Forbidden: must request default CAs either once or not at all but got \
               2 requests"],
        ),
        (
            json!([{"useDefaultCAs": false}, {"useDefaultCAs": false}, {"inLine": "x"}]),
            &["spec.sources: Forbidden: must request default CAs either once or not at all but got \
               2 requests"],
        ),
    ];
    for (sources, want) in cases {
        assert_eq!(error_messages(&bundle(sources.clone(), target.clone())), *want, "{sources}");
    }
    let many = error_messages(&bundle(json!(vec![json!({"inLine": "x"}); 101]), target.clone()));
    assert_eq!(many[0], "spec.sources: Too many: 101: must have at most 100 items");
    assert_eq!(error_messages(&json!({"spec": {"target": target}}))[0], "spec.sources: Required value");
    assert_eq!(error_messages(&json!({})), ["spec: Required value"]);
}

#[test]
fn a_bundle_is_not_its_own_source() {
    for kind in ["configMap", "secret"] {
        let same = json!({kind: {"name": "test-bundle", "key": "test"}});
        let object = bundle(json!([{"inLine": "test"}, same]), json!({kind: {"key": "test"}}));
        let want = format!(
            "spec.sources[1].{kind}.test-bundle.test: Forbidden: cannot define the same source as target"
        );
        assert_eq!(error_messages(&object), [want]);
        let object = bundle(json!([{"inLine": "test"}, same]), json!({kind: {"key": "other"}}));
        assert_eq!(error_messages(&object), [""; 0]);
    }
    let named = "example.com:ca:test-bundle";
    let object = bundle(
        json!([{"clusterTrustBundle": {"name": named}}]),
        json!({"clusterTrustBundle": {"signerName": "example.com/ca"}}),
    );
    assert_eq!(
        error_messages(&object),
        [format!(
            "spec.sources[0].clusterTrustBundle.{named}: Forbidden: cannot define the same source as target"
        )]
    );
}

#[test]
fn target_keys_must_be_distinct() {
    let word = "key must be unique across all target output keys";
    let cases: &[(&str, &str, &str, usize)] = &[
        ("s", "", "", 0),
        ("c", "", "", 0),
        ("s", "j", "", 0),
        ("s", "", "p", 0),
        ("s", "j", "p", 0),
        ("s", "c", "", 1),
        ("s", "", "c", 1),
        ("s", "c", "p", 1),
        ("s", "j", "c", 1),
        ("s", "s", "p", 1),
        ("s", "j", "s", 1),
        ("s", "same", "same", 1),
        ("s", "c", "s", 2),
    ];
    for (secret, jks, pkcs12, broken) in cases {
        let mut target = json!({"configMap": {"key": "c"}, "secret": {"key": secret}});
        for (format, key) in [("jks", jks), ("pkcs12", pkcs12)] {
            if !key.is_empty() {
                target["additionalFormats"][format] = json!({"key": key});
            }
        }
        let reported = target_errors(target);
        assert_eq!(reported.len(), *broken, "{secret} {jks} {pkcs12}: {reported:?}");
        assert!(reported.iter().all(|error| error.ends_with(word)), "{reported:?}");
    }
    let both = json!({"jks": {"key": "cacerts"}, "pkcs12": {"key": "cacerts"}});
    assert_eq!(
        target_errors(json!({"configMap": {"key": "c"}, "additionalFormats": both})),
        [format!("spec.target.additionalFormats.pkcs12.key: Invalid value: \"cacerts\": {word}")]
    );
    let reported = target_errors(json!({"configMap": {"key": "a b"}}));
    assert!(reported[0].starts_with("spec.target.configMap.key: Invalid value: \"a b\": "), "{reported:?}");
}

#[test]
fn targets_are_validated_as_in_trust_manager() {
    let selector = json!({"matchLabels": {"@@@@": ""}});
    let cases: &[(Value, &[&str])] = &[
        (Value::Null, &[]),
        (json!({"clusterTrustBundle": {}}), &[]),
        (
            json!({}),
            &["spec.target: Invalid value: at least one of the fields in [configMap secret] must be set"],
        ),
        (
            json!({"configMap": {"key": "c"}, "additionalFormats": {}}),
            &["spec.target.additionalFormats: Invalid value: at least one of the fields in [jks \
               pkcs12] must be set"],
        ),
        (
            json!({"configMap": {"key": "c", "metadata": {"labels": {}}}}),
            &["spec.target.configMap.metadata.labels: Invalid value: 1: \
               spec.target.configMap.metadata.labels in body should have at least 1 properties"],
        ),
        (
            json!({"configMap": {"key": "c"}, "namespaceSelector": selector}),
            &["spec.target.namespaceSelector.matchLabels: Invalid value: \"@@@@\": name part must \
               consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
               alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
               validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"],
        ),
        (
            json!({"clusterTrustBundle": {"signerName": "x"}}),
            &["spec.target.clusterTrustBundle.signerName: Invalid value: \"x\": must be a fully \
               qualified domain and path of the form 'example.com/signer-name'"],
        ),
    ];
    for (target, want) in cases {
        assert_eq!(target_errors(target.clone()), *want, "{target}");
    }
    for kind in ["configMap", "secret"] {
        let reported = target_errors(json!({kind: {}}));
        assert_eq!(reported[0], format!("spec.target.{kind}.key: Required value"));
    }
    let profile = json!({"pkcs12": {"key": "p", "profile": "Modern"}});
    let reported = target_errors(json!({"configMap": {"key": "c"}, "additionalFormats": profile}));
    assert_eq!(
        reported[0],
        "spec.target.additionalFormats.pkcs12.profile: Unsupported value: \"Modern\": supported \
         values: \"LegacyRC2\", \"LegacyDES\", \"Modern2023\""
    );
}

#[test]
fn some_metadata_is_ours() {
    let cases = [
        ("annotations", "trust-manager.io/hash", Some("trust-manager.io/*")),
        ("annotations", "trust.cert-manager.io/hash", Some("trust.cert-manager.io/*")),
        ("labels", "trust-manager.io/bundle", Some("trust-manager.io/*")),
        ("labels", "trust.cert-manager.io/bundle", Some("trust.cert-manager.io/*")),
        ("annotations", "not-trust-manager.io/hash", None),
        ("labels", "not-trust-manager.io/bundle", None),
    ];
    for (field, key, want) in cases {
        let reported = target_errors(json!({"secret": {"key": "c", "metadata": {field: {key: "x"}}}}));
        let want: Vec<String> = want
            .into_iter()
            .map(|prefix| {
                format!(
                    "spec.target.secret.metadata.{field}: Invalid value: \"{key}\": {prefix} \
                     {field} are not allowed"
                )
            })
            .collect();
        assert_eq!(reported, want);
    }
}

#[test]
fn names_fit_into_labels() {
    let mut object = bundle(json!([{"inLine": "x"}]), Value::Null);
    object["metadata"]["name"] = "a".repeat(63).into();
    assert_eq!(error_messages(&object), [""; 0]);
    object["metadata"]["name"] = "a".repeat(64).into();
    let name = "a".repeat(64);
    assert_eq!(
        error_messages(&object),
        [format!("metadata.name: Invalid value: \"{name}\": must be no more than 63 characters")]
    );
}

#[test]
fn trust_bundles_are_named_or_of_a_signer() {
    let one = "exactly one of the fields in [name signerName] must be set";
    let labels = "labelSelector must be set if and only if signerName is; {} selects all";
    let cases: &[(Value, &[&str])] = &[
        (json!({"name": "a"}), &[]),
        (json!({"name": "example.com:ca:a"}), &[]),
        (json!({"signerName": "example.com/ca", "labelSelector": {}}), &[]),
        (json!({}), &[one]),
        (json!({"signerName": "example.com/ca"}), &[labels]),
        (json!({"name": "a", "labelSelector": {}}), &[labels]),
        (json!({"name": "a", "signerName": "example.com/ca", "labelSelector": {}}), &[one]),
    ];
    for (source, want) in cases {
        let want = want.iter();
        let want: Vec<String> =
            want.map(|words| format!("spec.sources[0].clusterTrustBundle: Invalid value: {words}")).collect();
        assert_eq!(source_errors(json!({"clusterTrustBundle": source})), want, "{source}");
    }
}

#[test]
fn passwords_have_values_and_are_not_shown() {
    let formats = json!({"jks": {"key": "j"}, "pkcs12": {"key": "p"}});
    let target = json!({"configMap": {"key": "c"}, "additionalFormats": formats});
    let mut object = bundle(json!([{"inLine": "x"}]), target);
    set_defaults(&mut object);
    let formats = &object["spec"]["target"]["additionalFormats"];
    assert_eq!(formats["jks"]["password"], "changeit");
    assert_eq!(formats["pkcs12"]["password"], "");
    assert!(formats["pkcs12"].get("profile").is_none());
    let read = Bundle::from_value(&object).unwrap();
    let target = read.spec.target.as_ref().unwrap();
    assert_eq!(target.keys("c").collect::<Vec<_>>(), ["c", "j", "p"]);
    assert!(!format!("{read:?}").contains("changeit"));
}

#[test]
fn crd_schema_matches_the_builtin_table() {
    let definition = RESOURCE.definition();
    let version = &definition["spec"]["versions"][0];
    let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let sources = &spec["properties"]["sources"];
    assert_eq!((&sources["minItems"], &sources["maxItems"]), (&json!(1), &json!(100)));
    let rule = &sources["items"]["x-kubernetes-validations"][0];
    assert_eq!(
        rule["message"],
        "exactly one of the fields in [configMap secret inLine useDefaultCAs] must be set"
    );
    let formats = &spec["properties"]["target"]["properties"]["additionalFormats"]["properties"];
    let jks = &formats["jks"];
    assert_eq!(jks["properties"]["password"]["default"], "changeit");
    assert_eq!(jks["required"], json!(["key"]));
    let status = &version["schema"]["openAPIV3Schema"]["properties"]["status"];
    assert_eq!(status["properties"]["conditions"]["x-kubernetes-list-map-keys"], json!(["type"]));
}

#[test]
fn constants_match_the_schema() {
    let definition = RESOURCE.definition().to_string();
    let reserved = RESERVED_NAMES.map(|name| format!("'{name}'")).join(", ");
    assert!(definition.contains(&format!("self.metadata.name in [{reserved}]")), "{definition}");
    assert!(definition.contains(&format!("\"default\":\"{JKS_PASSWORD}\"")), "{definition}");
    assert_eq!(API_VERSION, format!("{GROUP}/{VERSION}"));
}
