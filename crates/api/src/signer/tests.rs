//! Validity of Signers and the wording of errors.

use serde_json::{Value, json};

use super::*;
use crate::field::FieldErrors;

fn signer() -> Value {
    json!({"metadata": {"name": "web"}, "spec": {
        "signerName": "example.com/web",
        "ca": {"selfSigned": {"keyType": "ECDSAP256", "duration": "48h", "renewBefore": "24h"}},
        "requests": {
            "dnsNames": ["*.example.com"], "usages": ["digital signature", "server auth"],
            "keyTypes": ["ECDSAP256"], "maxDuration": "24h", "duration": "1h",
            "approval": {"automatic": {"users": ["alice"]}},
        },
        "pods": {
            "trustDomain": "example.com", "serviceNames": true, "clusterDomain": "cluster.local",
            "namespaces": ["web"], "serviceAccounts": ["db/backup"], "maxDuration": "1h", "refreshAfter": 0.5,
        },
        "publish": {"name": "roots", "labels": {"purpose": "web"}, "canary": {"labels": {"trial": "web"}}},
        "intermediates": {"signerNames": ["example.com/sub"], "maxDuration": "8760h", "maxPathLength": 0},
        "limits": {"pendingRequests": 1000, "certificatesPerRequesterPerHour": 100},
        "crl": {
            "distributionPoints": ["http://crl.example.com/a.crl", "https://pki.example.com/pki/crl/{authority}.crl"],
            "duration": "24h",
            "configMap": {"name": "web-crl", "namespaceSelector": {"matchLabels": {"crl": "web"}}},
        },
    }})
}

fn errors_of(check: impl Fn(&mut FieldErrors)) -> String {
    let mut errors = FieldErrors::new();
    check(&mut errors);
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Returns the errors of the good signer with one value replaced; `null` removes it.
fn refusal(pointer: &str, value: Value) -> String {
    let mut object = signer();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Value::Null => parent.remove(field),
        value => parent.insert(field.to_owned(), value),
    };
    errors_of(|errors| validate(&object, errors))
}

#[test]
fn good_signers_are_accepted() {
    assert_eq!(errors_of(|errors| validate(&signer(), errors)), "");
    for ca in [
        json!({"selfSigned": {}}),
        json!({"secretName": "web-ca"}),
        json!({"pkcs11": {"uri": "pkcs11:token=ca;object=web?x=y", "certificateSecretName": "web-ca"}}),
        json!({"issuerSignerName": "example.com/root"}),
        json!({"issuerSignerName": "example.com/root", "keyType": "RSA3072", "commonName": "c", "duration": "24h"}),
        json!({"signersFile": {}}),
    ] {
        assert_eq!(refusal("/spec/ca", ca.clone()), "", "{ca}");
    }
    for field in ["requests", "pods", "publish", "intermediates", "limits", "crl"] {
        assert_eq!(refusal(&format!("/spec/{field}"), Value::Null), "", "{field}");
    }
}

const ONE_CA: &str = "spec.ca: Invalid value: exactly one of the fields in [selfSigned secretName pkcs11 \
                      issuerSignerName signersFile] must be set";
const ONLY_INTERMEDIATE: &str =
    "spec.ca: Invalid value: keyType, commonName and duration may only be set with issuerSignerName";

#[test]
fn a_ca_has_one_source_and_no_files() {
    let pkcs11 = |uri: &str| json!({"pkcs11": {"uri": uri, "certificateSecretName": "c"}});
    let cases = [
        (json!({}), ONE_CA),
        (json!({"secretName": "a", "signersFile": {}}), ONE_CA),
        (json!({"secretName": "a", "keyType": "RSA3072"}), ONLY_INTERMEDIATE),
        (
            json!({"secretName": "../a"}),
            "spec.ca.secretName: Invalid value: \"../a\": must be a lowercase RFC 1123 subdomain",
        ),
        (
            json!({"selfSigned": {"keyType": "ECDSAP521"}}),
            "spec.ca.selfSigned.keyType: Unsupported value: \"ECDSAP521\": supported values: \"ECDSAP256\", \
             \"ECDSAP384\", \"RSA3072\", \"RSA4096\", \"ED25519\"",
        ),
        (
            json!({"selfSigned": {"duration": "23h"}}),
            "spec.ca.selfSigned.duration: Invalid value: \"23h\": must be at least 24h",
        ),
        (
            json!({"selfSigned": {"renewBefore": "87600h"}}),
            "spec.ca.selfSigned.renewBefore: Invalid value: \"87600h\": must be shorter than duration",
        ),
        (
            json!({"issuerSignerName": "example.com/web"}),
            "spec.ca.issuerSignerName: Invalid value: \"example.com/web\": may not be the signer itself",
        ),
        (
            pkcs11("file:/x"),
            "spec.ca.pkcs11.uri: Invalid value: \"file:/x\": must be a PKCS#11 URI such as \
             pkcs11:token=ca;object=key",
        ),
        (
            pkcs11("pkcs11:token=a?module-path=/tmp/evil.so"),
            "spec.ca.pkcs11.uri: Forbidden: module-path is set by flags of the controllers",
        ),
        (
            pkcs11("pkcs11:pin-value=1234"),
            "spec.ca.pkcs11.uri: Forbidden: pin-value is set by flags of the controllers",
        ),
        (
            pkcs11("pkcs11:token=a?x=y&pin-source=/etc/shadow"),
            "spec.ca.pkcs11.uri: Forbidden: pin-source is set by flags of the controllers",
        ),
    ];
    for (ca, want) in cases {
        assert_eq!(refusal("/spec/ca", ca.clone()), want, "{ca}");
    }
}

#[test]
fn profiles_have_valid_values() {
    let many = |count: usize| json!(vec!["a"; count]);
    let cases = [
        ("/spec/signerName", Value::Null, "spec.signerName: Required value"),
        (
            "/spec/signerName",
            json!("web"),
            "spec.signerName: Invalid value: \"web\": must be a fully qualified domain and path of the form \
             'example.com/signer-name'",
        ),
        (
            "/spec/signerName",
            json!("x.kubernetes.io/y"),
            "spec.signerName: Invalid value: \"x.kubernetes.io/y\": is reserved for Kubernetes; use a domain \
             other than kubernetes.io",
        ),
        ("/spec/ca", Value::Null, "spec.ca: Required value"),
        (
            "/spec/requests/usages",
            json!(["cert sign"]),
            "spec.requests.usages[0]: Invalid value: \"cert sign\": must be a usage such as \"server auth\"; \
             those of CAs are reserved",
        ),
        (
            "/spec/requests/usages",
            json!([]),
            "spec.requests.usages: Invalid value: 0: spec.requests.usages in body should have at least 1 items",
        ),
        (
            "/spec/requests/keyTypes",
            json!(["DSA"]),
            "spec.requests.keyTypes[0]: Unsupported value: \"DSA\": supported values: \"RSA2048\", \"RSA3072\", \
             \"RSA4096\", \"ECDSAP256\", \"ECDSAP384\", \"ECDSAP521\", \"ED25519\"",
        ),
        (
            "/spec/requests/duration",
            json!("25h"),
            "spec.requests.duration: Invalid value: \"25h\": may not be longer than maxDuration",
        ),
        (
            "/spec/requests/maxDuration",
            json!("24"),
            "spec.requests.maxDuration: Invalid value: \"24\": must be a duration such as 24h, 1h30m or 90s",
        ),
        (
            "/spec/requests/duration",
            json!("9m"),
            "spec.requests.duration: Invalid value: \"9m\": must be at least 10m",
        ),
        (
            "/spec/requests/approval",
            json!({"automatic": {"groups": []}}),
            "spec.requests.approval.automatic: Required value: users or groups must be set",
        ),
        (
            "/spec/requests/approval",
            json!({"automatic": {"users": ["*"]}}),
            "spec.requests.approval.automatic.users[0]: Invalid value: \"*\": must be a full name, not a pattern",
        ),
        (
            "/spec/requests/dnsNames",
            many(1025),
            "spec.requests.dnsNames: Too many: 1025: must have at most 1024 items",
        ),
        (
            "/spec/pods/trustDomain",
            json!("Example"),
            "spec.pods.trustDomain: Invalid value: \"Example\": must be a trust domain of lower-case letters, \
             digits, '.', '-' and '_'",
        ),
        (
            "/spec/pods/serviceNames",
            json!(false),
            "spec.pods.clusterDomain: Forbidden: may only be set with serviceNames",
        ),
        (
            "/spec/pods/serviceAccounts",
            json!(["backup"]),
            "spec.pods.serviceAccounts[0]: Invalid value: \"backup\": must be a service account of the form \
             namespace/name",
        ),
        (
            "/spec/pods/refreshAfter",
            json!(1),
            "spec.pods.refreshAfter: Invalid value: 1: must be greater than 0 and less than 1",
        ),
        (
            "/spec/pods",
            json!({}),
            "spec.pods: Required value: trustDomain or serviceNames must be set, or certificates have no names",
        ),
        (
            "/spec/publish/labels",
            json!({"app.kubernetes.io/managed-by": "me"}),
            "spec.publish.labels[app.kubernetes.io/managed-by]: Forbidden: is set by the controllers",
        ),
        (
            "/spec/publish/canary",
            json!({"labels": {"app.kubernetes.io/managed-by": "me"}}),
            "spec.publish.canary.labels[app.kubernetes.io/managed-by]: Forbidden: is set by the controllers",
        ),
        (
            "/spec/publish/canary",
            json!({"name": "roots"}),
            "spec.publish.canary.name: Invalid value: \"roots\": is the name of the signer's other bundle",
        ),
        (
            "/spec/intermediates/maxPathLength",
            json!(17),
            "spec.intermediates.maxPathLength: Invalid value: 17: must be less than or equal to 16",
        ),
        (
            "/spec/limits/pendingRequests",
            json!(0),
            "spec.limits.pendingRequests: Invalid value: 0: must be greater than or equal to 1",
        ),
        (
            "/spec/crl/distributionPoints",
            json!(["ldap://a"]),
            "spec.crl.distributionPoints[0]: Invalid value: \"ldap://a\": must be an http or https URL without \
             spaces",
        ),
        (
            "/spec/crl/distributionPoints",
            json!(["https://a/{signer}.crl"]),
            "spec.crl.distributionPoints[0]: Invalid value: \"https://a/{signer}.crl\": the only placeholder is \
             {authority}",
        ),
        (
            "/spec/crl/configMap",
            json!({"name": "A"}),
            "spec.crl.configMap.name: Invalid value: \"A\": must be a lowercase RFC 1123 subdomain",
        ),
        (
            "/spec/crl/configMap",
            json!({"name": "a", "namespaceSelector": {"matchLabels": {"-": "a"}}}),
            "spec.crl.configMap.namespaceSelector.matchLabels: Invalid value: \"-\": name part must consist of \
             alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
             'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
        (
            "/spec/crl/duration",
            json!("59s"),
            "spec.crl.duration: Invalid value: \"59s\": must be at least 1m",
        ),
    ];
    for (pointer, value, want) in cases {
        assert_eq!(refusal(pointer, value.clone()), want, "{pointer} {value}");
    }
    let bare = json!({"spec": {"signerName": "a.b/c", "ca": {"selfSigned": {}}}});
    let want = "spec: Invalid value: at least one of the fields in [requests pods intermediates] must be set";
    assert_eq!(errors_of(|errors| validate(&bare, errors)), want);
    let labels: serde_json::Map<_, _> = (0..65).map(|i| (format!("k{i}"), json!("v"))).collect();
    let want = "spec.publish.labels: Too many: 65: must have at most 64 items";
    assert_eq!(refusal("/spec/publish/labels", labels.into()), want);
}

#[test]
fn the_name_of_the_signer_is_immutable() {
    let mut other = signer();
    other["spec"]["signerName"] = json!("example.com/other");
    let found = errors_of(|errors| validate_update(&other, &signer(), errors));
    assert_eq!(found, "spec.signerName: Invalid value: \"example.com/other\": field is immutable");
    assert_eq!(errors_of(|errors| validate_update(&signer(), &signer(), errors)), "");
}

#[test]
fn the_status_is_held_to_the_schema() {
    let condition = json!({"type": "Ready", "status": "True", "reason": "Ready", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let authority = json!({"id": "0a", "state": "Active", "issuedCertificates": 1});
    let mut object = signer();
    object["status"] = json!({"conditions": [condition], "authorities": [authority], "pendingRequests": 0});
    assert_eq!(errors_of(|errors| validate_status(&object, errors)), "");
    for (status, want) in [
        (
            json!({"conditions": [condition, condition]}),
            "status.conditions[1].type: Duplicate value: \"Ready\"",
        ),
        (
            json!({"authorities": [{"id": "0a", "state": "Busy"}]}),
            "status.authorities[0].state: Unsupported value: \"Busy\": supported values: \"Prepared\", \
             \"Active\", \"Retiring\", \"Tainted\"",
        ),
        (
            json!({"authorities": vec![authority.clone(); 33]}),
            "status.authorities: Too many: 33: must have at most 32 items",
        ),
        (
            json!({"pendingRequests": -1}),
            "status.pendingRequests: Invalid value: -1: must be greater than or equal to 0",
        ),
    ] {
        object["status"] = status;
        assert_eq!(errors_of(|errors| validate_status(&object, errors)), want);
    }
}
