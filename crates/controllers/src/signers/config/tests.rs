use std::collections::BTreeSet;

use windlass_pki::{ExtendedUsage, KeyType, KeyUsageSet, Subject};

use super::ca::DAY;
use super::pods::AllowedPods;
use super::*;

fn parse(text: &str) -> Result<SignersConfig, String> {
    SignersConfig::parse(Path::new("/etc/windlass/signers.yaml"), text).map_err(|error| error.to_string())
}

const WHOLE: &str = r#"apiVersion: windlass.dev/v1
kind: Signers
signers:
- name: example.com/server-tls
  ca:
    files:
      certificate: tls.crt
      key: /secrets/tls.key
  requests:
    commonNames: ["*.example.com"]
    organizations: []
    dnsNames: ["*.example.com", "example.com"]
    ipAddresses: [10.0.0.0/8, "::1"]
    emailAddresses: ["*@example.com"]
    uris: ["spiffe://example.com/*"]
    usages: [digital signature, key encipherment, server auth]
    requiredUsages: [server auth]
    keyTypes: [ECDSAP256, RSA2048]
    maxDuration: 2160h
    duration: 24h
    includeChain: false
    approval:
      automatic:
        users: ["system:serviceaccount:web:frontend"]
        groups: ["system:serviceaccounts:web"]
  publish:
    name: roots
    labels: {purpose: server-tls, empty: ""}
- name: example.com/pods
  ca:
    selfSigned:
      directory: ca/pods
      keyType: ED25519
      commonName: "Pods' CA"
      duration: 48h
  pods:
    trustDomain: example.com
    serviceNames: true
    clusterDomain: cluster.example
    namespaces: [web]
    serviceAccounts: [db/backup]
    usages: [digital signature, client auth]
    keyTypes: [ED25519]
    maxDuration: 2h
    refreshAfter: 0.5
"#;

#[test]
fn a_file_with_everything_is_read() {
    let SignersConfig { signers, .. } = parse(WHOLE).unwrap();
    let [tls, pods] = signers.as_slice() else { panic!("{signers:?}") };
    assert_eq!(tls.name.as_str(), "example.com/server-tls");
    let files =
        CaConfig::Files { certificate: "/etc/windlass/tls.crt".into(), key: "/secrets/tls.key".into() };
    assert_eq!(tls.ca, files);
    let requests = tls.requests.as_ref().unwrap();
    assert_eq!(requests.common_names, [NamePattern::Below("example.com".into())]);
    assert_eq!(requests.organizations, []);
    assert_eq!(requests.ip_addresses.len(), 2);
    assert_eq!(requests.uris, [NamePattern::Beginning("spiffe://example.com/".into())]);
    assert_eq!(requests.usages.extended, BTreeSet::from([ExtendedUsage::ServerAuth]));
    assert_eq!(requests.required_usages, ["server auth"]);
    assert_eq!(requests.key_types, Some(vec![KeyType::EcdsaP256, KeyType::Rsa2048]));
    assert_eq!((requests.max_duration, requests.duration), (90 * DAY, DAY));
    assert!(!requests.include_chain);
    let ApprovalMode::Automatic(who) = &requests.approval else { panic!("manual") };
    assert!(who.contains("system:serviceaccount:web:frontend", &[]));
    assert!(who.contains("x", &["system:serviceaccounts:web".into()]));
    assert!(!who.contains("x", &["system:serviceaccount:web:frontend".into()]));
    let publish = tls.publish.as_ref().unwrap();
    assert_eq!(publish.bundle, "example.com:server-tls:roots");
    assert_eq!(publish.labels.get("purpose").unwrap(), "server-tls");
    assert_eq!(publish.canary, None);
    assert!(tls.pods.is_none());

    let subject = Subject::new("Pods' CA", &[]).unwrap();
    let made = CaConfig::SelfSigned {
        directory: "/etc/windlass/ca/pods".into(),
        key: KeyType::Ed25519,
        subject,
        duration: 2 * DAY,
    };
    assert_eq!(pods.ca, made);
    assert!(pods.publish.is_none() && pods.requests.is_none());
    let profile = pods.pods.as_ref().unwrap();
    assert_eq!(profile.trust_domain.as_deref(), Some("example.com"));
    assert_eq!(profile.service_names.as_deref(), Some("cluster.example"));
    assert!(profile.allowed.contains("web", "any") && profile.allowed.contains("db", "backup"));
    assert!(!profile.allowed.contains("db", "other") && !profile.allowed.contains("other", "backup"));
    assert!(profile.allows_key(KeyType::Ed25519) && !profile.allows_key(KeyType::Rsa3072));
    let usages = profile.usages(KeyType::Ed25519);
    assert_eq!(usages.extended, BTreeSet::from([ExtendedUsage::ClientAuth]));
    assert_eq!((profile.max_duration, profile.refresh_after), (DAY / 12, 0.5));
}

#[test]
fn omitted_fields_have_defaults() {
    let text = "{apiVersion: windlass.dev/v1, kind: Signers, signers: [\
        {name: example.com/a, ca: {selfSigned: {directory: ca}}, pods: {serviceNames: true}, \
         publish: {}, requests: {usages: [client auth], maxDuration: 10m}}]}";
    let SignersConfig { signers, .. } = parse(text).unwrap();
    let [signer] = signers.as_slice() else { panic!("{signers:?}") };
    let subject = Subject::new("example.com/a", &[]).unwrap();
    let made = CaConfig::SelfSigned {
        directory: "/etc/windlass/ca".into(),
        key: KeyType::EcdsaP256,
        subject,
        duration: 3650 * DAY,
    };
    assert_eq!(signer.ca, made);
    let requests = signer.requests.as_ref().unwrap();
    assert!(requests.common_names.is_empty() && requests.dns_names.is_empty());
    assert_eq!(requests.key_types, None);
    assert_eq!(requests.duration, requests.max_duration);
    assert!(requests.include_chain && requests.approval == ApprovalMode::Manual);
    let pods = signer.pods.as_ref().unwrap();
    let domain = Some("cluster.local".to_owned());
    assert_eq!((&pods.trust_domain, &pods.service_names), (&None, &domain));
    assert_eq!(pods.allowed, AllowedPods::Everyone);
    assert_eq!(pods.key_types.len(), 6);
    assert_eq!((pods.max_duration, pods.refresh_after), (DAY, 0.66));
    let both = BTreeSet::from([ExtendedUsage::ServerAuth, ExtendedUsage::ClientAuth]);
    for (key, enciphers) in [(KeyType::Rsa4096, true), (KeyType::EcdsaP384, false)] {
        let usages = pods.usages(key);
        assert_eq!(usages.extended, both);
        assert!(usages.key.contains(KeyUsageSet::DIGITAL_SIGNATURE));
        assert_eq!(usages.key.contains(KeyUsageSet::KEY_ENCIPHERMENT), enciphers);
    }
    assert_eq!(signer.publish.as_ref().unwrap().bundle, "example.com:a:anchors");
    assert!(parse("{apiVersion: windlass.dev/v1, kind: Signers, signers: []}").is_ok());
}

/// Each row replaces a text of the whole file by another; the last column begins the only error.
const BAD: &[(&str, &str, &str)] = &[
    (
        "windlass.dev/v1",
        "windlass.dev/v2",
        ":1:13: apiVersion: \"windlass.dev/v2\" is not supported; use windlass.dev/v1",
    ),
    ("kind: Signers", "kind: Signer", ":2:7: kind: \"Signer\" is not supported; use Signers"),
    ("kind: Signers\n", "", ":1:1: kind: is missing"),
    (
        "kind: Signers\n",
        "kind: Signers\nmore: 1\n",
        ":3:1: more: unknown field; known fields: apiVersion, kind, signers",
    ),
    (
        "maxDuration: 2160h",
        "maxDuration: \"24\"",
        ":19:18: signers[0].requests.maxDuration: \"24\" is not a duration; use a number and a unit, such as 24h",
    ),
    (
        "maxDuration: 2160h",
        "maxDuration: 24",
        ":19:18: signers[0].requests.maxDuration: 24 is not a duration; use a number and a unit, such as 24h",
    ),
    (
        "maxDuration: 2160h",
        "maxDuration: 9m59s",
        ":19:18: signers[0].requests.maxDuration: \"9m59s\" is too short; use at least 10m",
    ),
    ("    maxDuration: 2160h\n", "", ":10:5: signers[0].requests.maxDuration: is missing"),
    (
        "duration: 24h",
        "duration: 2161h",
        ":20:15: signers[0].requests.duration: \"2161h\" is longer than maxDuration; shorten it",
    ),
    (
        "duration: 24h",
        "duration: 1m",
        ":20:15: signers[0].requests.duration: \"1m\" is too short; use at least 10m",
    ),
    (
        "includeChain: false",
        "includeChain: no",
        ":21:19: signers[0].requests.includeChain: must be true or false, not \"no\"",
    ),
    (
        "includeChain: false",
        "includeChains: false",
        ":21:5: signers[0].requests.includeChains: unknown field; known fields: commonNames, organizations, dnsNames, ipAddresses, emailAddresses, uris, usages, requiredUsages, keyTypes, maxDuration, duration, includeChain, approval",
    ),
    (
        "includeChain: false",
        "includeChain:",
        ":21:17: signers[0].requests.includeChain: has no value; it must be true or false",
    ),
    (
        "organizations: []",
        "organizations: [42]",
        ":11:21: signers[0].requests.organizations[0]: 42 is not text; put it in quotes",
    ),
    (
        "organizations: []",
        "organizations: x",
        ":11:20: signers[0].requests.organizations: must be a list, not \"x\"",
    ),
    (
        "organizations: []",
        "organizations: ['a*']",
        ":11:21: signers[0].requests.organizations[0]: \"a*\" is not a pattern; use \"*\" or an exact value",
    ),
    (
        "\"example.com\"]",
        "\"a.*.com\"]",
        ":12:33: signers[0].requests.dnsNames[1]: \"a.*.com\" is not a pattern for DNS names; use \"*\", \"*.domain\" or a DNS name",
    ),
    (
        "10.0.0.0/8",
        "10.0.0.1/8",
        ":13:19: signers[0].requests.ipAddresses[0]: \"10.0.0.1/8\" has address bits behind its prefix; set them to 0",
    ),
    (
        "*@example.com",
        "example.com",
        ":14:22: signers[0].requests.emailAddresses[0]: \"example.com\" is not a pattern for e-mail addresses; use \"*\", \"*@domain\" or an address",
    ),
    (
        "spiffe://example.com/*",
        "spiffe://*",
        ":15:12: signers[0].requests.uris[0]: \"spiffe://*\" has \"*\" in an unsafe position; put it after a \"/\" behind the host, or after a \":\"",
    ),
    (
        "key encipherment,",
        "server,",
        ":16:33: signers[0].requests.usages[1]: \"server\" is not a usage; use a name such as \"server auth\"",
    ),
    (
        "key encipherment,",
        "cert sign,",
        ":16:33: signers[0].requests.usages[1]: \"cert sign\" is reserved for CAs; remove it",
    ),
    (
        "key encipherment,",
        "crl sign,",
        ":16:33: signers[0].requests.usages[1]: \"crl sign\" is reserved for CAs; remove it",
    ),
    (
        "usages: [digital signature, key encipherment, server auth]",
        "usages: []",
        ":16:13: signers[0].requests.usages: is empty: every request would be rejected; add an item or remove it",
    ),
    (
        "requiredUsages: [server auth]",
        "requiredUsages: [client auth]",
        ":17:22: signers[0].requests.requiredUsages[0]: \"client auth\" is not one of the usages; add it to usages",
    ),
    (
        "RSA2048]",
        "DSA]",
        ":18:27: signers[0].requests.keyTypes[1]: \"DSA\" is not supported; use RSA2048, RSA3072, RSA4096, ECDSAP256, ECDSAP384, ECDSAP521 or ED25519",
    ),
    (
        "[ECDSAP256, RSA2048]",
        "[]",
        ":18:15: signers[0].requests.keyTypes: is empty: no key would be allowed; add an item or remove it",
    ),
    ("approval:\n", "approval: auto\n", ""),
    (
        "        users: [\"system:serviceaccount:web:frontend\"]\n        groups: [\"system:serviceaccounts:web\"]\n",
        "        users: []\n",
        ":24:9: signers[0].requests.approval.automatic: must list at least one user or group",
    ),
    (
        "system:serviceaccount:web:frontend",
        "system:serviceaccount:web:*",
        ":24:17: signers[0].requests.approval.automatic.users[0]: \"system:serviceaccount:web:*\" is a pattern; list requesters by their full names",
    ),
    (
        "name: example.com/pods",
        "name: example.com/server-tls",
        ":29:9: signers[1].name: \"example.com/server-tls\" is the name of another signer; use a unique name",
    ),
    (
        "name: example.com/pods",
        "name: kubernetes.io/kubelet-serving",
        ":29:9: signers[1].name: \"kubernetes.io/kubelet-serving\" is reserved for Kubernetes; use a domain other than kubernetes.io",
    ),
    (
        "name: example.com/pods",
        "name: x.kubernetes.io/y",
        ":29:9: signers[1].name: \"x.kubernetes.io/y\" is reserved for Kubernetes; use a domain other than kubernetes.io",
    ),
    (
        "name: example.com/pods",
        "name: pods",
        ":29:9: signers[1].name: Invalid value: \"pods\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
    ),
    ("- name: example.com/pods\n  ca:", "- ca:", ":29:3: signers[1].name: is missing"),
    (
        "    selfSigned:\n",
        "    files: {certificate: a, key: b}\n    selfSigned:\n",
        ":31:5: signers[1].ca: has more than one of files, selfSigned, secretName, pkcs11 and issuerSignerName; keep one",
    ),
    ("      key: /secrets/tls.key\n", "", ":7:7: signers[0].ca.files.key: is missing"),
    ("tls.crt", "\"\"", ":7:20: signers[0].ca.files.certificate: is empty"),
    (
        "keyType: ED25519",
        "keyType: ECDSAP521",
        ":33:16: signers[1].ca.selfSigned.keyType: \"ECDSAP521\" is not supported; use ECDSAP256, ECDSAP384, RSA3072, RSA4096 or ED25519",
    ),
    (
        "duration: 48h",
        "duration: 1h",
        ":35:17: signers[1].ca.selfSigned.duration: \"1h\" is too short; use at least 24h",
    ),
    ("name: roots", "name: Roots", ""),
    (
        "purpose: server-tls",
        "app.kubernetes.io/managed-by: me",
        ":28:44: signers[0].publish.labels[app.kubernetes.io/managed-by]: is set by Windlass; remove it",
    ),
    ("purpose: server-tls", "purpose: a b", ""),
    (
        "trustDomain: example.com",
        "trustDomain: Example.com",
        ":37:18: signers[1].pods.trustDomain: \"Example.com\" is not a trust domain; use at most 255 lower-case letters, digits, '.', '-' and '_'",
    ),
    (
        "serviceNames: true",
        "serviceNames: false",
        ":39:20: signers[1].pods.clusterDomain: has no effect without serviceNames: true; add that",
    ),
    ("namespaces: [web]", "namespaces: [Web]", ""),
    (
        "[db/backup]",
        "[backup]",
        ":41:23: signers[1].pods.serviceAccounts[0]: \"backup\" is not a service account; write namespace/name",
    ),
    (
        "keyTypes: [ED25519]",
        "keyTypes: [RSA2048]",
        ":43:16: signers[1].pods.keyTypes[0]: \"RSA2048\" is not supported; use RSA3072, RSA4096, ECDSAP256, ECDSAP384, ECDSAP521 or ED25519",
    ),
    (
        "maxDuration: 2h",
        "maxDuration: 59m",
        ":44:18: signers[1].pods.maxDuration: \"59m\" is too short; use at least 1h",
    ),
    (
        "refreshAfter: 0.5",
        "refreshAfter: 1",
        ":45:19: signers[1].pods.refreshAfter: 1 is not a number between 0 and 1, such as 0.66",
    ),
    ("refreshAfter: 0.5", "refreshAfter: NaN", ""),
    (
        "includeChain: false",
        "includeChain: false\n    includeChain: true",
        ":22:5: signers[0].requests.includeChain: is set twice; remove one of them",
    ),
    ("includeChain: false", "includeChain: [", ""),
    (
        "organizations: []",
        "organizations: [*]",
        ":11:21: while scanning an anchor or alias, did not find expected alphabetic or numeric character; put text that begins with \"*\" in quotes",
    ),
];

#[test]
fn errors_are_reported_with_their_position() {
    let mut wrong = Vec::new();
    for (old, new, wanted) in BAD {
        assert!(WHOLE.contains(old), "{old}");
        let error = parse(&WHOLE.replacen(old, new, 1)).expect_err(new);
        let place = error.strip_prefix("/etc/windlass/signers.yaml").expect(&error);
        let line = place.split(':').nth(1).and_then(|line| line.parse::<u32>().ok());
        if line.is_none() || !place.starts_with(wanted) || error.lines().count() > 1 {
            wrong.push(error);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn all_errors_of_a_file_are_reported() {
    let text = WHOLE
        .replace("maxDuration: 2160h", "maxDuration: 24")
        .replace("[ECDSAP256, RSA2048]", "[DSA, RSA2048, DSS]")
        .replace("name: example.com/pods", "name: pods")
        .replace("refreshAfter: 0.5", "refreshAfter: 5\n    refresh: 1");
    let errors = parse(&text).unwrap_err();
    let places = errors.lines().map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(" "));
    let expected = [
        ":18:16 signers[0].requests.keyTypes[0]",
        ":18:30 signers[0].requests.keyTypes[2]",
        ":19:18 signers[0].requests.maxDuration",
        ":29:9 signers[1].name",
        ":45:19 signers[1].pods.refreshAfter",
        ":46:5 signers[1].pods.refresh",
    ];
    let expected = expected.map(|place| format!("/etc/windlass/signers.yaml{place}"));
    assert_eq!(places.collect::<Vec<_>>(), expected);
}

#[test]
fn signers_that_could_do_nothing_or_harm_are_refused() {
    let table = [
        (
            "{name: a.b/c, ca: {selfSigned: {directory: d}}}",
            "signs nothing; add requests, pods or intermediates",
        ),
        (
            "{name: a.b/c, ca: {}, pods: {}}",
            "needs one of files, selfSigned, secretName, pkcs11 and issuerSignerName",
        ),
        ("{name: a.b/c, ca: {selfSigned: {directory: d}}, pods:}", "has no value"),
        (
            "{name: a.b/c, ca: {selfSigned: {directory: d}}, pods: {serviceNames: false}}",
            "signers[0].pods: issues certificates without names; add trustDomain or serviceNames",
        ),
        (
            "{name: a.b/c, ca: {selfSigned: {directory: d}}, pods: {trustDomain: c}}, \
             {name: a.b/d, ca: {selfSigned: {directory: d}}, pods: {trustDomain: d}}",
            "signers[1].ca.selfSigned.directory: \"d\" is the CA directory of another signer; use another directory",
        ),
    ];
    for (signer, words) in table {
        let text = format!("{{apiVersion: windlass.dev/v1, kind: Signers, signers: [{signer}]}}");
        let error = parse(&text).expect_err(signer);
        assert!(error.contains(words), "{error}");
    }
    for text in ["", "[]", "x", "a: b: c", "--- {}\n--- {}\n"] {
        assert!(parse(text).is_err(), "{text}");
    }
    let missing = SignersConfig::load(Path::new("/nowhere/signers.yaml")).unwrap_err().to_string();
    assert!(missing.starts_with("/nowhere/signers.yaml: cannot be read: "), "{missing}");
}

/// A whole `spec` of an object, as the API returns it.
fn object() -> Value {
    json!({
        "signerName": "example.com/web",
        "ca": {"selfSigned": {"keyType": "RSA3072", "duration": "72h", "renewBefore": "30h"}},
        "requests": {"dnsNames": ["*.example.com"], "usages": ["server auth"], "maxDuration": "24h"},
        "publish": {},
        "intermediates": {"signerNames": ["example.com/team"], "maxDuration": "48h", "maxPathLength": 1},
        "limits": {"pendingRequests": 1000, "certificatesPerRequesterPerHour": 100},
        "crl": {
            "distributionPoints": ["http://crl.example.com/web.crl", "https://[::1]:6443/pki/crl/{authority}.crl"],
            "duration": "12h",
            "configMap": {"name": "web-crl", "namespaceSelector": {"matchLabels": {"crl": "web"}}},
        },
    })
}

fn ca(ca: Value) -> Result<CaConfig, String> {
    let mut spec = object();
    spec["ca"] = ca;
    SignerConfig::parse_object(&spec).map(|signer| signer.ca).map_err(|errors| errors.messages().join("\n"))
}

#[test]
fn an_object_is_read_as_an_entry_of_the_file() {
    let signer = SignerConfig::parse_object(&object()).unwrap();
    let CaConfig::SelfSignedSecret { recipe, renew_before } = &signer.ca else { panic!("{:?}", signer.ca) };
    assert_eq!((recipe.key, recipe.duration, *renew_before), (KeyType::Rsa3072, 3 * DAY, 30 * (DAY / 24)));
    assert_eq!(recipe.subject, Subject::new("example.com/web", &[]).unwrap());
    let below = signer.intermediates.as_ref().unwrap();
    assert_eq!(below.signer_names.iter().map(SignerName::as_str).collect::<Vec<_>>(), ["example.com/team"]);
    assert_eq!((below.max_duration, below.max_path_length), (2 * DAY, 1));
    let limits =
        SignerLimits { pending_requests: Some(1000), certificates_per_requester_per_hour: Some(100) };
    assert_eq!(signer.limits, limits);
    let crl = signer.crl.unwrap();
    assert_eq!(crl.duration, DAY / 2);
    let points = resolve_points(&crl.distribution_points, "0a0b");
    let urls: Vec<&str> = points.iter().map(|point| point.as_str()).collect();
    assert_eq!(urls, ["http://crl.example.com/web.crl", "https://[::1]:6443/pki/crl/0a0b.crl"]);
    assert_eq!(signer.requests.unwrap().distribution_points, crl.distribution_points);
    let map = crl.config_map.unwrap();
    let selects = |value: &'static str| map.namespaces.matches(|key| (key == "crl").then_some(value));
    assert_eq!((map.name.as_str(), selects("web"), selects("other")), ("web-crl", true, false));
    let Ok(CaConfig::Issued { issuer, recipe }) = ca(json!({"issuerSignerName": "a.b/root"})) else {
        panic!()
    };
    assert_eq!((issuer.as_str(), recipe.duration), ("a.b/root", 365 * DAY));
    assert_eq!(ca(json!({"secretName": "web-ca"})), Ok(CaConfig::Secret { name: "web-ca".into() }));
    assert_eq!(ca(json!({"signersFile": {}})), Ok(CaConfig::SignersFile));
    let uri = "pkcs11:token=t;object=ca";
    let certificate_secret = "web-cert".to_owned();
    let given = json!({"pkcs11": {"uri": uri, "certificateSecretName": certificate_secret}});
    assert_eq!(ca(given), Ok(CaConfig::Pkcs11 { uri: uri.parse().unwrap(), certificate_secret }));
}

#[test]
fn errors_of_an_object_carry_their_field() {
    let errors = |change: fn(&mut Value)| {
        let mut spec = object();
        change(&mut spec);
        SignerConfig::parse_object(&spec).expect_err("invalid").messages().join("\n")
    };
    let error = errors(|spec| spec["requests"]["dnsNames"][0] = json!("a.*.com"));
    assert!(error.starts_with("spec.requests.dnsNames[0]: \"a.*.com\" is not a pattern"), "{error}");
    let error = errors(|spec| spec["name"] = json!("a.b/c"));
    assert!(error.starts_with("spec.name: unknown field; known fields: signerName, ca, "), "{error}");
    let error = errors(|spec| spec["signerName"] = json!("kubernetes.io/x"));
    assert!(error.starts_with("spec.signerName: \"kubernetes.io/x\" is reserved"), "{error}");
    let error = errors(|spec| spec["limits"]["pendingRequests"] = json!(0));
    assert_eq!(error, "spec.limits.pendingRequests: 0 is out of range; use 1 to 2147483647");
    let error = errors(|spec| spec["crl"]["distributionPoints"][0] = json!("ldap://x"));
    assert!(error.starts_with("spec.crl.distributionPoints[0]: \"ldap://x\" is not a URL"), "{error}");
    let error = errors(|spec| spec["crl"]["distributionPoints"][1] = json!("http://a/{serial}"));
    assert!(error.ends_with("has an unknown placeholder; the only one is {authority}"), "{error}");
    let error = errors(|spec| spec["crl"]["configMap"] = json!({"namespaceSelector": {}}));
    assert!(error.starts_with("spec.crl.configMap"), "{error}");
    let error =
        errors(|spec| spec["crl"]["configMap"]["namespaceSelector"] = json!({"matchLabels": {"-": "a"}}));
    assert!(error.starts_with("spec.crl.configMap.namespaceSelector"), "{error}");
    let table = [
        (json!({"files": {"certificate": "/etc/x", "key": "/etc/y"}}), "spec.ca.files: unknown field"),
        (json!({"selfSigned": {"directory": "/etc"}}), "spec.ca.selfSigned.directory: unknown field"),
        (
            json!({"selfSigned": {}, "secretName": "x"}),
            "spec.ca: has more than one of selfSigned, secretName",
        ),
        (
            json!({"selfSigned": {"duration": "48h", "renewBefore": "48h"}}),
            "spec.ca.selfSigned.renewBefore: ",
        ),
        (json!({"secretName": "x", "keyType": "ED25519"}), "spec.ca.keyType: has no effect without"),
        (
            json!({"issuerSignerName": "example.com/web"}),
            "spec.ca.issuerSignerName: \"example.com/web\" is the",
        ),
        (json!({"secretName": "../x"}), "spec.ca.secretName: "),
        (
            json!({"pkcs11": {"uri": "pkcs11:object=a?pin-value=1", "certificateSecretName": "c"}}),
            "spec.ca.pkcs11.uri: PKCS#11 URI: \"pin-value\" is not allowed",
        ),
        (
            json!({"pkcs11": {"uri": "file:x", "certificateSecretName": "c"}}),
            "spec.ca.pkcs11.uri: PKCS#11 URI does not start",
        ),
    ];
    for (given, wanted) in table {
        let error = ca(given).expect_err(wanted);
        assert!(error.lines().any(|line| line.starts_with(wanted)), "{error}");
    }
}

/// The object of every entry is valid and means the same, apart from CAs in files.
#[test]
fn entries_of_the_file_become_objects() {
    let SignersConfig { signers, specs } = parse(WHOLE).unwrap();
    for (signer, spec) in signers.iter().zip(&specs) {
        let read = SignerConfig::parse_object(spec).unwrap();
        assert_eq!(read.ca, CaConfig::SignersFile);
        assert_eq!(SignerConfig { ca: signer.ca.clone(), ..read }, *signer);
    }
    let text = "{apiVersion: windlass.dev/v1, kind: Signers, signers: [\
        {name: a.b/c, ca: {selfSigned: {}}, pods: {trustDomain: a}, limits: {pendingRequests: 1}}]}";
    let SignersConfig { signers, specs } = parse(text).unwrap();
    assert_eq!(SignerConfig::parse_object(&specs[0]).unwrap(), signers[0]);
}

#[test]
fn a_canary_bundle_has_another_name() {
    let publish = |publish: &str| {
        let text = format!(
            "{{apiVersion: windlass.dev/v1, kind: Signers, signers: [{{name: a.b/c, ca: {{selfSigned: {{}}}}, \
             publish: {publish}, requests: {{usages: [client auth], maxDuration: 10m}}}}]}}"
        );
        SignersConfig::parse(Path::new("f"), &text).map(|config| config.signers[0].publish.clone().unwrap())
    };
    let canary = publish("{canary: {labels: {trial: web}}}").unwrap().canary.unwrap();
    assert_eq!(canary.bundle, "a.b:c:canary");
    assert_eq!(canary.labels["trial"], "web");
    let error = publish("{name: x, canary: {name: x}}").unwrap_err();
    assert!(error.messages()[0].contains("has the same name for both bundles"), "{error}");
}
