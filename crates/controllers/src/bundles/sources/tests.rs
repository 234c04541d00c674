//! Tests of sources, from trust-manager's own tests, and of our differences.

use serde_json::{Value, json};

use super::*;
use crate::bundles::fixtures::{self, ED25519, P256, RSA};

#[derive(Default)]
struct TrustNamespaceFixture {
    config_maps: BTreeMap<String, Arc<SourceObject>>,
    secrets: BTreeMap<String, Arc<SourceObject>>,
    trust_bundles: BTreeMap<String, Arc<SourceTrustBundle>>,
    package: Option<CaPackage>,
    filters: CertificateFilter,
    is_target: bool,
}

impl TrustNamespaceFixture {
    fn config_map(mut self, object: Value) -> Self {
        let object: ConfigMap = serde_json::from_value(object).unwrap();
        let name = object.metadata.name.clone().unwrap();
        self.config_maps.insert(name, Arc::new(SourceObject::from_config_map(object)));
        self
    }

    fn secret(mut self, name: &str, kind: &str, data: &[(&str, &str)]) -> Self {
        let data = data
            .iter()
            .map(|(key, text)| ((*key).to_owned(), k8s_openapi::ByteString(text.as_bytes().to_vec())));
        let mut object: Secret = serde_json::from_value(
            json!({"metadata": {"name": name, "labels": {"trust": "yes"}}, "type": kind}),
        )
        .unwrap();
        object.data = Some(data.collect());
        self.secrets.insert(name.to_owned(), Arc::new(SourceObject::from_secret(object)));
        self
    }

    fn trust_bundle(mut self, name: &str, signer: &str, controller: &str, text: &str) -> Self {
        let controller = Some(controller.to_owned()).filter(|uid| !uid.is_empty());
        let labels = BTreeMap::from([("trust".to_owned(), "yes".to_owned())]);
        let (signer, text) = (signer.to_owned(), text.to_owned());
        let held = SourceTrustBundle { labels, controller, signer, text };
        self.trust_bundles.insert(name.to_owned(), Arc::new(held));
        self
    }

    fn gather(&self, bundle: &Bundle) -> GatherResult {
        gather(
            bundle,
            &SourceInputs {
                trust_namespace: "trust",
                is_target: self.is_target,
                config_maps: &self.config_maps,
                secrets: &self.secrets,
                trust_bundles: Some(&self.trust_bundles),
                package: self.package.as_ref(),
                filters: self.filters,
                now: fixtures::now(),
            },
        )
    }

    /// Summarizes the result: the certificates, or `?` for missing and `!` for invalid sources.
    fn summarize_sources(&self, sources: Value) -> String {
        let target = json!({"configMap": {"key": "target"}});
        summarize(&self.gather(&fixtures::bundle(sources, target)))
    }
}

fn summarize(gathered: &GatherResult) -> String {
    match &gathered.result {
        Ok(harvest) => {
            let text = harvest.certificates.pem();
            let known = [("p", P256), ("e", ED25519), ("r", RSA)];
            let known = known.iter().filter(|(_, root)| text.contains(root.trim_end()));
            known.map(|(name, _)| *name).collect()
        }
        Err(SourceError::NotFound(words)) => format!("? {words}"),
        Err(SourceError::Build(words)) => format!("! {words}"),
    }
}

/// Builds a ConfigMap with the label that source selectors match.
fn config_map(name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name, "labels": {"trust": "yes"}}, "data": data})
}

fn by_label(kind: &str, key: &str) -> Value {
    let mut source = json!({"selector": {"matchLabels": {"trust": "yes"}}});
    match key {
        "*" => source["includeAllKeys"] = true.into(),
        key => source["key"] = key.into(),
    }
    json!([{kind: source}])
}

const NOTHING: &str = "? couldn't find any valid certificates in bundle";

#[test]
fn text_and_package_are_taken() {
    let none = TrustNamespaceFixture::default();
    let package = CaPackage::from_store("testpkg", "123", ED25519.as_bytes()).unwrap();
    let some = TrustNamespaceFixture { package: Some(package.clone()), ..TrustNamespaceFixture::default() };
    let key = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----";
    assert_eq!(none.summarize_sources(json!([])), NOTHING);
    assert_eq!(none.summarize_sources(json!([{"inLine": P256}])), "p");
    assert_eq!(none.summarize_sources(json!([{"inLine": P256}, {"inLine": RSA}])), "pr");
    assert_eq!(none.summarize_sources(json!([{"inLine": "A"}])), NOTHING);
    assert_eq!(
        none.summarize_sources(json!([{"inLine": format!("{P256}{key}")}])),
        "! inline source contains invalid PEM data: invalid PEM block in bundle: only CERTIFICATE \
         blocks are permitted but found 'EC PRIVATE KEY'"
    );
    let missing = "? no default package was specified when trust-manager was started; default CAs \
                   not available";
    assert_eq!(none.summarize_sources(json!([{"useDefaultCAs": true}])), missing);
    assert_eq!(none.summarize_sources(json!([{"useDefaultCAs": false}, {"inLine": P256}])), "p");
    assert_eq!(some.summarize_sources(json!([{"useDefaultCAs": true}, {"inLine": P256}])), "pe");
    let target = json!({"configMap": {"key": "target"}});
    let used = fixtures::bundle(json!([{"useDefaultCAs": true}]), target.clone());
    assert_eq!(some.gather(&used).result.unwrap().package, Some(package.id()));
    let unused = fixtures::bundle(json!([{"inLine": P256}]), target);
    assert_eq!(some.gather(&unused).result.unwrap().package, None);
}

#[test]
fn config_maps_are_read() {
    let binary: Value = json!({
        "metadata": {"name": "binary"},
        "data": {"both": P256},
        "binaryData": {
            "only": k8s_openapi::ByteString(RSA.as_bytes().to_vec()),
            "both": k8s_openapi::ByteString(RSA.as_bytes().to_vec()),
        },
    });
    let objects = TrustNamespaceFixture::default()
        .config_map(config_map("one", json!({"key": P256})))
        .config_map(config_map("two", json!({"key": ED25519, "other": RSA})))
        .config_map(
            json!({"metadata": {"name": "bad"}, "data": {"a": "x", "b": P256.replacen("MII", "MIA", 1)}}),
        )
        .config_map(binary);
    let named = |name: &str, key: &str| match key {
        "*" => json!([{"configMap": {"name": name, "includeAllKeys": true}}]),
        key => json!([{"configMap": {"name": name, "key": key}}]),
    };
    assert_eq!(objects.summarize_sources(named("one", "key")), "p");
    assert_eq!(objects.summarize_sources(named("two", "*")), "er");
    assert_eq!(objects.summarize_sources(named("binary", "only")), "r");
    assert_eq!(objects.summarize_sources(named("binary", "both")), "p");
    assert_eq!(objects.summarize_sources(named("binary", "*")), "pr");
    assert_eq!(
        objects.summarize_sources(named("none", "key")),
        "? failed to get ConfigMap trust/none: configmaps \"none\" not found"
    );
    assert_eq!(
        objects.summarize_sources(named("one", "other")),
        "? no data found in ConfigMap trust/one at key \"other\""
    );
    let bad = objects.summarize_sources(named("bad", "*"));
    assert!(
        bad.starts_with("! invalid PEM data in ConfigMap trust/bad at key \"b\": invalid PEM block"),
        "{bad}"
    );
    assert_eq!(objects.summarize_sources(by_label("configMap", "key")), "pe");
    assert_eq!(objects.summarize_sources(by_label("configMap", "*")), "per");
    assert_eq!(
        objects.summarize_sources(by_label("configMap", "other")),
        "? no data found in ConfigMap trust/one at key \"other\""
    );
    // The validating webhook rejects such a source.
    assert_eq!(objects.summarize_sources(json!([{"configMap": {"name": "one"}}])), NOTHING);
    let unknown = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
    assert_eq!(
        objects.summarize_sources(json!([{"configMap": {"selector": unknown, "key": "key"}}])),
        "! failed to parse label selector as Selector for ConfigMap in namespace trust: \"Near\" is \
         not a valid label selector operator"
    );
}

#[test]
fn secrets_are_read_but_not_all_of_those_with_keys() {
    let objects = TrustNamespaceFixture::default()
        .secret("opaque", "Opaque", &[("key", P256), ("other", RSA)])
        .secret("tls", "kubernetes.io/tls", &[("key", ED25519), ("tls.key", "secret")]);
    let named = |name: &str| json!([{"secret": {"name": name, "includeAllKeys": true}}]);
    assert_eq!(objects.summarize_sources(named("opaque")), "pr");
    assert_eq!(
        objects.summarize_sources(named("tls")),
        "! includeAllKeys is not supported for TLS Secrets such as trust/tls"
    );
    assert_eq!(objects.summarize_sources(by_label("secret", "key")), "pe");
    assert_eq!(
        objects.summarize_sources(by_label("secret", "*")),
        "! includeAllKeys is not supported for TLS Secrets such as trust/tls"
    );
    assert_eq!(
        objects.summarize_sources(json!([{"secret": {"name": "none", "key": "key"}}])),
        "? failed to get Secret trust/none: secrets \"none\" not found"
    );
    assert_eq!(
        objects.summarize_sources(json!([{"secret": {"name": "opaque", "key": "none"}}])),
        "? no data found in Secret trust/opaque at key \"none\""
    );
}

#[test]
fn all_sources_are_merged_and_validated() {
    let objects = TrustNamespaceFixture::default()
        .config_map(config_map("one", json!({"key": P256})))
        .secret("two", "Opaque", &[("key", ED25519)]);
    let good = json!([
        {"configMap": {"name": "one", "key": "key"}},
        {"secret": {"name": "two", "key": "key"}},
        {"inLine": format!("{RSA}{P256}")},
    ]);
    assert_eq!(objects.summarize_sources(good), "per");
    let bad = json!([
        {"inLine": P256},
        {"secret": {"name": "none", "key": "key"}},
        {"inLine": P256.replacen("-----\n", "-----\na: b\n\n", 1)},
        {"configMap": {"selector": {"matchLabels": {"no": "where"}}, "key": "key"}},
    ]);
    let gathered = objects.gather(&fixtures::bundle(bad, json!({"configMap": {"key": "k"}})));
    // The first error is reported.
    let first = "failed to get Secret trust/none: secrets \"none\" not found";
    assert_eq!(summarize(&gathered), format!("? {first}"));
    let sources = gathered.sources.iter().map(|source| {
        (source.source.as_str(), source.objects, source.certificates, source.problem.as_deref())
    });
    assert_eq!(
        sources.collect::<Vec<_>>(),
        [
            ("inLine", 0, 1, None),
            ("secret none at key key", 0, 0, Some(first)),
            (
                "inLine",
                0,
                0,
                Some(
                    "inline source contains invalid PEM data: invalid PEM block in bundle; blocks \
                     are not permitted to have PEM headers"
                )
            ),
            (
                "configMap (no=where) at key key",
                0,
                0,
                Some("label selector no=where for ConfigMap didn't match any resources")
            ),
        ]
    );
}

#[test]
fn an_optional_source_may_be_missing_but_not_bad() {
    let objects = TrustNamespaceFixture::default().config_map(config_map("one", json!({"key": "x"})));
    for missing in [
        json!({"configMap": {"name": "none", "key": "key"}, "optional": true}),
        json!({"configMap": {"name": "one", "key": "none"}, "optional": true}),
        json!({"useDefaultCAs": true, "optional": true}),
        json!({"clusterTrustBundle": {"name": "none"}, "optional": true}),
    ] {
        let bundle = fixtures::bundle(json!([missing, {"inLine": P256}]), json!({"secret": {"key": "k"}}));
        let gathered = objects.gather(&bundle);
        assert_eq!(summarize(&gathered), "p", "{missing}");
        assert!(gathered.sources[0].problem.is_some(), "{missing}");
    }
    let only = json!([{"configMap": {"name": "none", "key": "key"}, "optional": true}]);
    assert_eq!(objects.summarize_sources(only), NOTHING);
    let bad = P256.replacen("-----\n", "-----\na: b\n\n", 1);
    let bad = objects.summarize_sources(json!([{"inLine": P256}, {"inLine": bad, "optional": true}]));
    assert!(bad.starts_with("! inline source"), "{bad}");
}

#[test]
fn filters_hold_for_all_sources() {
    let (expired, leaf) = (fixtures::expired_ca(), fixtures::leaf_certificate());
    let filters = CertificateFilter { expired: true, non_authorities: true };
    let objects = TrustNamespaceFixture { filters, ..TrustNamespaceFixture::default() };
    assert_eq!(objects.summarize_sources(json!([{"inLine": expired}, {"inLine": leaf}])), NOTHING);
    let bundle = json!([{"inLine": format!("{expired}{leaf}{P256}")}]);
    let gathered = objects.gather(&fixtures::bundle(bundle, Value::Null));
    assert_eq!((summarize(&gathered).as_str(), gathered.sources[0].certificates), ("p", 1));
}

#[test]
fn targets_of_a_bundle_are_not_its_sources() {
    let managed = |keys: &[&str]| {
        let fields: serde_json::Map<_, _> = keys.iter().map(|key| (format!("f:{key}"), json!({}))).collect();
        json!([{"manager": "trust-manager", "operation": "Apply", "fieldsV1": {"f:data": fields}}])
    };
    let target = |uid: &str, keys: &[&str], data: Value| {
        let mut object = config_map("bundle", data);
        object["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "a", "kind": "Bundle", "name": "bundle", "uid": uid, "controller": true},
        ]);
        object["metadata"]["managedFields"] = managed(keys);
        object
    };
    let source = config_map("source", json!({"key": P256}));
    let with = |object: Value, is_target| {
        TrustNamespaceFixture { is_target, ..TrustNamespaceFixture::default() }
            .config_map(source.clone())
            .config_map(object)
    };
    let by_name = json!([
        {"configMap": {"name": "source", "key": "key"}},
        {"configMap": {"name": "bundle", "includeAllKeys": true}},
    ]);
    // Selected with all keys: the user's key in the target is read, ours is not.
    let data = json!({"target": RSA, "users": ED25519});
    let objects = with(target("123", &["target"], data.clone()), true);
    assert_eq!(objects.summarize_sources(by_label("configMap", "*")), "pe");
    assert_eq!(objects.summarize_sources(by_name.clone()), "pe");
    // A key that was written before the target key was renamed.
    let objects = with(target("123", &["old"], json!({"old": RSA, "users": ED25519})), true);
    assert_eq!(objects.summarize_sources(by_label("configMap", "*")), "pe");
    // Selected with a key that is ours, or that the target lacks.
    let objects = with(target("123", &["target", "key"], json!({"key": RSA})), true);
    assert_eq!(objects.summarize_sources(by_label("configMap", "key")), "p");
    let objects = with(target("123", &["target"], json!({"target": RSA})), true);
    assert_eq!(objects.summarize_sources(by_label("configMap", "key")), "p");
    // Excluded even before it is written; included if it is never a target.
    let objects = with(config_map("bundle", json!({"target": RSA})), true);
    assert_eq!(objects.summarize_sources(by_label("configMap", "*")), "p");
    let objects = with(config_map("bundle", json!({"target": RSA})), false);
    assert_eq!(objects.summarize_sources(by_label("configMap", "*")), "pr");
    // The target of another Bundle is a normal source.
    let mut other = target("456", &["target"], json!({"target": RSA}));
    other["metadata"]["name"] = "other".into();
    assert_eq!(with(other, true).summarize_sources(by_label("configMap", "*")), "pr");
}

#[test]
fn trust_bundles_are_read() {
    let objects = TrustNamespaceFixture::default()
        .trust_bundle("plain", "", "", P256)
        .trust_bundle("example.com:ca:one", "example.com/ca", "", ED25519)
        .trust_bundle("example.com:ca:two", "example.com/ca", "", RSA)
        .trust_bundle("example.com:ca:bundle", "example.com/ca", "123", P256);
    let signer = |labels: Value| json!([{"clusterTrustBundle": {"signerName": "example.com/ca", "labelSelector": labels}}]);
    assert_eq!(objects.summarize_sources(json!([{"clusterTrustBundle": {"name": "plain"}}])), "p");
    assert_eq!(objects.summarize_sources(signer(json!({}))), "er");
    assert_eq!(objects.summarize_sources(signer(json!({"matchLabels": {"trust": "yes"}}))), "er");
    assert_eq!(objects.summarize_sources(signer(json!({"matchLabels": {"trust": "no"}}))), NOTHING);
    assert_eq!(objects.summarize_sources(signer(Value::Null)), NOTHING);
    assert_eq!(
        objects.summarize_sources(json!([{"clusterTrustBundle": {"name": "none"}}])),
        "? failed to get ClusterTrustBundle none: clustertrustbundles.certificates.k8s.io \"none\" not found"
    );
    let bundle = fixtures::bundle(json!([{"clusterTrustBundle": {"name": "plain"}}]), Value::Null);
    let none = TrustNamespaceFixture::default();
    let world = SourceInputs {
        trust_namespace: "trust",
        is_target: false,
        config_maps: &none.config_maps,
        secrets: &none.secrets,
        trust_bundles: None,
        package: None,
        filters: CertificateFilter::default(),
        now: fixtures::now(),
    };
    assert_eq!(summarize(&gather(&bundle, &world)), "? the server does not serve ClusterTrustBundles");
}
