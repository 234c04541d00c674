use std::path::Path;
use std::time::Duration;

use http::Method;
use windlass_pki::Pkcs12Profile;

use super::super::keystores::{KeystoreFile, KeystoreKind};
use super::super::notification::{Notification, NotificationMethod};
use super::super::secret::{Passphrase, SecretText};
use super::*;
use crate::volume::path::VolumePath;

const WHOLE: &str = r#"apiVersion: windlass.dev/v1
kind: Projections
projections:
- name: web
  directory: /etc/web/./tls/
  namespace: shop
  user: 1000
  group: 1001
  certificate:
    commonName: web.example.com
    dnsNames: [web.example.com, "*.web.example.com"]
    ipAddresses: [192.0.2.7, "2001:db8::7"]
    uris: ["spiffe://example.com/web"]
  projected:
    defaultMode: 0640
    sources:
    - clusterTrustBundle: {signerName: example.com/web, labelSelector: {}, path: ca.pem}
    - podCertificate: {signerName: example.com/web, keyType: ECDSAP256, credentialBundlePath: web.pem}
    - secret: {name: extra, optional: true, items: [{key: a, path: extra/a, mode: 0400}]}
  keystores:
  - path: truststore.p12
    format: PKCS12
    trustAnchorsPath: ca.pem
    password: changeit
    profile: LegacyDES
  - path: open.p12
    format: PKCS12
    trustAnchorsPath: ca.pem
  - path: truststore.jks
    format: JKS
    trustAnchorsPath: ca.pem
    password: changeit
  - path: keystore.p12
    format: PKCS12
    keyPath: web.pem
    password: secret-word
  notify:
  - signal: {name: HUP, pidFile: /run/web.pid}
    timeout: 500ms
    retries: 0
  - command: [systemctl, reload, web]
  - http:
      url: "http://127.0.0.1:9901/reload?now"
      headers: {Authorization: Bearer token-word}
- name: anchors
  directory: /etc/anchors
  projected:
    sources:
    - clusterTrustBundle: {name: everybody, path: ca.pem}
"#;

fn problems(text: &str) -> Vec<String> {
    match parse(text.as_bytes(), &FileSystem::default()) {
        Ok(found) => panic!("taken: {found:?}"),
        Err(problems) => problems,
    }
}

fn path(text: &str) -> VolumePath {
    VolumePath::parse(text).unwrap()
}

#[test]
fn a_file_with_everything_is_read() {
    let found = parse(WHOLE.as_bytes(), &FileSystem::default()).unwrap();
    let [web, anchors] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((web.name.as_str(), web.namespace.as_str()), ("web", "shop"));
    assert_eq!(web.directory.as_os_str(), "/etc/web/tls");
    assert_eq!(web.readers, VolumeReaders { user: Some(1000), group: Some(1001) });
    assert_eq!(web.definition.default_mode, 0o640);
    assert_eq!(web.definition.sources.len(), 3);
    let Some((_, ProjectedSource::Secret(extra))) = web.definition.sources.last() else { panic!() };
    assert_eq!(extra.items[0].mode, Some(0o400));
    assert_eq!(web.common_name.as_deref(), Some("web.example.com"));
    assert_eq!(web.names.dns_names, ["web.example.com", "*.web.example.com"]);
    assert_eq!(web.names.ip_addresses.len(), 2);
    assert_eq!(web.names.uris, ["spiffe://example.com/web"]);
    let given = |text: &str| Passphrase::Given(SecretText::new(text.to_owned()));
    let trust = || path("ca.pem");
    let kinds = [
        KeystoreKind::Pkcs12Trust {
            trust: trust(),
            seal: Some((given("changeit"), Pkcs12Profile::LegacyDes)),
        },
        KeystoreKind::Pkcs12Trust { trust: trust(), seal: None },
        KeystoreKind::JksTrust { trust: trust(), password: given("changeit") },
        KeystoreKind::Pkcs12Key {
            key: path("web.pem"),
            chain: None,
            alias: "web".into(),
            password: given("secret-word"),
            profile: Pkcs12Profile::Modern2023,
        },
    ];
    let paths = ["truststore.p12", "open.p12", "truststore.jks", "keystore.p12"];
    let stores =
        paths.into_iter().zip(kinds).map(|(at, kind)| KeystoreFile { path: path(at), kind });
    assert_eq!(web.stores, stores.collect::<Vec<_>>());
    let [signal, command, http] = web.notify.as_slice() else { panic!("{web:?}") };
    let how = NotificationMethod::Signal {
        signal: rustix::process::Signal::HUP,
        pid_file: "/run/web.pid".into(),
    };
    let timeout = Duration::from_millis(500);
    assert_eq!(*signal, Notification { how, timeout, retries: 0 });
    let how = NotificationMethod::Command(["systemctl", "reload", "web"].map(String::from).into());
    let timeout = Duration::from_secs(10);
    assert_eq!(*command, Notification { how, timeout, retries: 5 });
    let NotificationMethod::Http { url, method, headers } = &http.how else { panic!("{http:?}") };
    assert_eq!(
        (url.to_string().as_str(), method),
        ("http://127.0.0.1:9901/reload?now", &Method::POST)
    );
    assert_eq!(headers["authorization"], "Bearer token-word");
    assert_eq!((anchors.namespace.as_str(), anchors.definition.default_mode), ("default", 0o644));
    assert_eq!(anchors.readers, VolumeReaders::default());
}

#[test]
fn nothing_shows_a_secret() {
    let found = parse(WHOLE.as_bytes(), &FileSystem::default()).unwrap();
    let mut shown = format!("{found:?}");
    shown.extend(found[0].notify.iter().map(|one| one.how.to_string()));
    for secret in ["changeit", "secret-word", "token-word"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
    assert!(shown.contains("POST http://127.0.0.1:9901/reload") && shown.contains("keystore.p12"));
}

#[test]
fn json_is_read_as_well_and_modes_are_decimal_in_it() {
    let text = r#"{"apiVersion": "windlass.dev/v1", "kind": "Projections", "projections": [
        {"name": "a", "directory": "/a", "projected": {"defaultMode": 416, "sources": [
            {"configMap": {"name": "m"}}]}}]}"#;
    let found = parse(text.as_bytes(), &FileSystem::default()).unwrap();
    assert_eq!(found[0].definition.default_mode, 0o640);
}

/// What is said of the file when `from` stands in it as `to`.
#[test]
fn whatever_is_wrong_is_told_with_its_place() {
    let cases = [
        // The document.
        (
            "windlass.dev/v1",
            "v1",
            r#"apiVersion: Unsupported value: "v1": supported values: "windlass.dev/v1""#,
        ),
        (
            "kind: Projections",
            "kind: 7",
            r#"kind: Invalid value: "number": must be of type string"#,
        ),
        ("kind: Projections", "", "kind: Required value"),
        ("kind: Projections\n", "kind: Projections\nmore: 1\n", "more: Forbidden: unknown field"),
        (
            "kind: Projections\n",
            "kind: Projections\nkind: Projections\n",
            "kind: Forbidden: is given twice",
        ),
        // A projection.
        (
            "name: web",
            "name: Web",
            "projections[0].name: Invalid value: \"Web\": a lowercase RFC 1123 label",
        ),
        ("name: web", "nmae: web", "projections[0].nmae: Forbidden: unknown field"),
        ("name: anchors", "name: web", r#"projections[1].name: Duplicate value: "web""#),
        (
            "/etc/web/./tls/",
            "etc/web",
            r#"projections[0].directory: Invalid value: "etc/web": must be an absolute path"#,
        ),
        (
            "/etc/web/./tls/",
            "/etc/../web",
            r#"projections[0].directory: Invalid value: "/etc/../web": must not contain '..'"#,
        ),
        (
            "/etc/web/./tls/",
            "/",
            r#"projections[0].directory: Invalid value: "/": must not be the root"#,
        ),
        (
            "/etc/anchors",
            "/etc/web/tls/ca",
            r#"projections[1].directory: Invalid value: "/etc/web/tls/ca": is the directory of projections[0], or one is in the other"#,
        ),
        (
            "/etc/anchors",
            "/etc/web",
            r#"projections[1].directory: Invalid value: "/etc/web": is the directory of projections[0], or one is in the other"#,
        ),
        (
            "namespace: shop",
            "namespace: a.b",
            r#"projections[0].namespace: Invalid value: "a.b": must not contain dots"#,
        ),
        (
            "user: 1000",
            "user: web",
            r#"projections[0].user: Invalid value: "string": must be of type integer"#,
        ),
        (
            "group: 1001",
            "group: -1",
            "projections[0].group: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ),
        // Its certificate.
        (
            "commonName: web",
            "common: web",
            "projections[0].certificate.common: Forbidden: unknown field",
        ),
        (
            "\"*.web.example.com\"",
            "\"a.*.b\"",
            "projections[0].certificate.dnsNames[1]: Invalid value: \"a.*.b\": a lowercase RFC 1123 subdomain",
        ),
        (
            "192.0.2.7,",
            "192.0.2.700,",
            r#"projections[0].certificate.ipAddresses[0]: Invalid value: "192.0.2.700": must be an IP address"#,
        ),
        (
            "spiffe://",
            "//",
            r#"projections[0].certificate.uris[0]: Invalid value: "//example.com/web": must be a URI with a scheme"#,
        ),
        // Its volume.
        (
            "defaultMode: 0640",
            "defaultMode: \"0640\"",
            "projections[0].projected: json: cannot unmarshal string into Go struct field ProjectedVolumeSource.defaultMode of type int32",
        ),
        (
            "defaultMode: 0640",
            "defaultMode: 1777",
            "projections[0].projected.defaultMode: Invalid value: 1777: must be a number between 0 and 0777 (octal), both inclusive",
        ),
        (
            "{name: everybody, path: ca.pem}",
            "{name: everybody, path: ca.pem, pfad: x}",
            "projections[1].projected.sources[0].clusterTrustBundle.pfad: Forbidden: unknown field",
        ),
        (
            "{name: everybody, path: ca.pem}",
            "{name: everybody, path: ../ca.pem}",
            "projections[1].projected.sources[0].clusterTrustBundle.path: Invalid value: \"../ca.pem\": must not contain '..'",
        ),
        (
            "clusterTrustBundle: {name: everybody, path: ca.pem}",
            "serviceAccountToken: {path: t}",
            "projections[1].projected.sources[0].serviceAccountToken: Forbidden: needs a pod",
        ),
        (
            "clusterTrustBundle: {name: everybody, path: ca.pem}",
            "downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}",
            "projections[1].projected.sources[0].downwardAPI: Forbidden: needs a pod",
        ),
        (
            "    - clusterTrustBundle: {name: everybody, path: ca.pem}",
            "      []",
            "projections[1].projected.sources: Required value",
        ),
        // Stores.
        (
            "path: truststore.p12",
            "path: ca.pem",
            r#"projections[0].keystores[0].path: Invalid value: "ca.pem": conflicting duplicate paths: ca.pem"#,
        ),
        (
            "path: truststore.p12",
            "path: web.pem/a",
            r#"projections[0].keystores[0].path: Invalid value: "web.pem/a": conflicting duplicate paths: web.pem/a"#,
        ),
        (
            "path: truststore.p12",
            "path: open.p12",
            r#"projections[0].keystores[1].path: Invalid value: "open.p12": conflicting duplicate paths: open.p12"#,
        ),
        (
            "path: truststore.p12",
            "path: /a",
            r#"projections[0].keystores[0].path: Invalid value: "/a": invalid path: must be relative path: /a"#,
        ),
        (
            "keyPath: web.pem",
            "keyPath: missing.pem",
            r#"projections[0].keystores[3].keyPath: Not found: "missing.pem": no source of this volume has this path"#,
        ),
        (
            "keyPath: web.pem",
            "keyPath: open.p12",
            r#"projections[0].keystores[3].keyPath: Not found: "open.p12": no source of this volume has this path"#,
        ),
        (
            "keyPath: web.pem",
            "keyPath: web.pem\n    trustAnchorsPath: ca.pem",
            "projections[0].keystores[3]: Forbidden: only one of trustAnchorsPath and keyPath may be used",
        ),
        (
            "keyPath: web.pem",
            "certificateChainPath: web.pem",
            "projections[0].keystores[3]: Required value: one of trustAnchorsPath and keyPath is required",
        ),
        (
            "format: JKS\n    trustAnchorsPath: ca.pem",
            "format: JKS\n    keyPath: web.pem",
            "projections[0].keystores[2].keyPath: Forbidden: a key store is PKCS12, which every Java since 8 reads",
        ),
        (
            "format: JKS",
            "format: BKS",
            r#"projections[0].keystores[2].format: Unsupported value: "BKS": supported values: "PKCS12", "JKS""#,
        ),
        (
            "format: JKS",
            "format: JKS\n    profile: LegacyDES",
            "projections[0].keystores[2].profile: Forbidden: is for PKCS12",
        ),
        (
            "format: JKS",
            "format: JKS\n    alias: a",
            "projections[0].keystores[2].alias: Forbidden: applies to key stores only",
        ),
        (
            "profile: LegacyDES",
            "profile: Best",
            r#"projections[0].keystores[0].profile: Unsupported value: "Best": supported values: "LegacyRC2", "LegacyDES", "Modern2023""#,
        ),
        (
            "path: open.p12",
            "path: open.p12\n    profile: LegacyDES",
            "projections[0].keystores[1].profile: Forbidden: nothing is protected without a password",
        ),
        (
            "password: secret-word",
            "alias: web",
            "projections[0].keystores[3]: Required value: one of password and passwordFile is required",
        ),
        (
            "password: secret-word",
            "password: \"\"",
            r#"projections[0].keystores[3].password: Invalid value: "<value omitted>": a keystore password must have between 1 and 128 characters"#,
        ),
        (
            "password: secret-word",
            "password: 1234567",
            r#"projections[0].keystores[3].password: Invalid value: "number": must be of type string"#,
        ),
        (
            "password: secret-word",
            "password: secret-word\n    passwordFile: /p",
            "projections[0].keystores[3]: Forbidden: only one of password and passwordFile may be used",
        ),
        (
            "password: secret-word",
            "passwordFile: p",
            r#"projections[0].keystores[3].passwordFile: Invalid value: "p": must be an absolute path"#,
        ),
        (
            "password: secret-word",
            "password: secret-word\n    alias: \"\"",
            r#"projections[0].keystores[3].alias: Invalid value: "": must have between 1 and 4096 characters"#,
        ),
        // Notifications.
        (
            "name: HUP",
            "name: KILL",
            r#"projections[0].notify[0].signal.name: Unsupported value: "KILL": supported values: "HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "WINCH""#,
        ),
        (
            "pidFile: /run/web.pid",
            "pidFile: web.pid",
            r#"projections[0].notify[0].signal.pidFile: Invalid value: "web.pid": must be an absolute path"#,
        ),
        (
            "pidFile: /run/web.pid",
            "pid: 7",
            "projections[0].notify[0].signal.pid: Forbidden: unknown field",
        ),
        (
            "timeout: 500ms",
            "timeout: 0s",
            r#"projections[0].notify[0].timeout: Invalid value: "0s": must be more than 0 and at most 10m"#,
        ),
        (
            "timeout: 500ms",
            "timeout: soon",
            r#"projections[0].notify[0].timeout: Invalid value: "soon": must be a duration such as 30s, 1m30s or 500ms"#,
        ),
        (
            "retries: 0",
            "retries: 101",
            "projections[0].notify[0].retries: Invalid value: 101: must be between 0 and 100, inclusive",
        ),
        (
            "command: [systemctl, reload, web]",
            "command: []",
            "projections[0].notify[1].command[0]: Required value: the program",
        ),
        (
            "command: [systemctl, reload, web]",
            "command: systemctl reload web",
            r#"projections[0].notify[1].command: Invalid value: "string": must be of type array"#,
        ),
        (
            "command: [systemctl, reload, web]",
            "timeout: 1s",
            "projections[0].notify[1]: Required value: one of signal, command and http is required",
        ),
        (
            "command: [systemctl, reload, web]",
            "command: [a]\n    signal: {name: HUP, pidFile: /p}",
            "projections[0].notify[1]: Forbidden: only one of signal, command and http may be used",
        ),
        (
            "command: [systemctl, reload, web]",
            "signal: {name: SIGHUP, pidFile: /run/web.pid}",
            r#"projections[0].notify[1]: Duplicate value: "signal HUP to the process of /run/web.pid""#,
        ),
        (
            "http://127",
            "https://127",
            r#"projections[0].notify[2].http.url: Invalid value: "https://127.0.0.1:9901/reload?now": must be a URL that begins with http://"#,
        ),
        (
            "http://127",
            "http://me:hidden@127",
            r#"projections[0].notify[2].http.url: Invalid value: "<value omitted>": must not contain a user; use the header Authorization"#,
        ),
        (
            "{Authorization: Bearer token-word}",
            "{Author ization: x}",
            r#"projections[0].notify[2].http.headers[Author ization]: Invalid value: "Author ization": must be the name of a header"#,
        ),
        (
            "{Authorization: Bearer token-word}",
            "{A: \"x\\ny\"}",
            r#"projections[0].notify[2].http.headers[A]: Invalid value: "<value omitted>": must be the value of a header"#,
        ),
        (
            "{Authorization: Bearer token-word}",
            "{}\n      method: \"A B\"",
            r#"projections[0].notify[2].http.method: Invalid value: "A B": must be a method of HTTP"#,
        ),
    ];
    for (from, to, told) in cases {
        assert!(WHOLE.contains(from), "{from} is not in the file");
        let problems = problems(&WHOLE.replacen(from, to, 1));
        let is_told = problems.iter().any(|problem| problem.starts_with(told));
        assert!(is_told, "{to}: {told} is not in {problems:#?}");
        for secret in ["changeit", "secret-word", "token-word", "1234567", "hidden"] {
            assert!(!problems.concat().contains(secret), "{secret} in {problems:?}");
        }
    }
}

#[test]
fn all_that_is_wrong_is_told_together() {
    let text = WHOLE
        .replace("name: web", "name: Web")
        .replace("user: 1000", "user: x")
        .replace("format: JKS", "format: BKS")
        .replace("/etc/anchors", "anchors");
    let problems = problems(&text);
    assert_eq!(problems.len(), 4, "{problems:#?}");
}

#[test]
fn non_document_is_reported() {
    for text in ["", "[]", "a: [", "\u{0}"] {
        assert_eq!(problems(text).len(), 1, "{text:?}");
    }
}

#[test]
fn with_an_object_of_unknown_keys_any_path_may_come() {
    let text = WHOLE
        .replace(", items: [{key: a, path: extra/a, mode: 0400}]", "")
        .replace("keyPath: web.pem", "keyPath: tls.key\n    certificateChainPath: tls.crt");
    let found = parse(text.as_bytes(), &FileSystem::default()).unwrap();
    let KeystoreKind::Pkcs12Key { key, chain, .. } = &found[0].stores[3].kind else { panic!() };
    assert_eq!((key.as_str(), chain.as_ref().unwrap().as_str()), ("tls.key", "tls.crt"));
}

#[test]
fn passwords_come_from_files_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    let text = WHOLE.replace("password: secret-word", &format!("passwordFile: {}", file.display()));
    let passphrase = |text: &str| {
        let found = parse(text.as_bytes(), &FileSystem::default()).unwrap();
        found[0].stores[3].kind.passphrase().unwrap().clone()
    };
    let none = passphrase(&text);
    assert!(none.password().err().unwrap().ends_with("there is no such file"));
    for contents in ["secret-word", "secret-word\n", "secret-word\r\n"] {
        std::fs::write(&file, contents).unwrap();
        let found = Ok(SecretText::new("secret-word".into()));
        assert_eq!(passphrase(&text), Passphrase::File { path: file.clone(), found });
    }
    for (contents, words) in [(&b"\n"[..], "between 1 and 128"), (b"\xff", "is not UTF-8")] {
        std::fs::write(&file, contents).unwrap();
        let error = passphrase(&text).password().err().unwrap();
        assert!(error.contains(words) && error.contains("password"), "{error}");
    }
    assert_eq!(none.file(), Some(Path::new(&file)));
}

#[test]
fn documented_example_is_accepted() {
    let page = include_str!("../../../../../docs/host-projections.md");
    let begin = "apiVersion: windlass.dev/v1\nkind: Projections\n";
    let mut shown = 0;
    for (at, _) in page.match_indices(begin) {
        let text = page[at..].lines().take_while(|line| *line != "END" && *line != "```");
        let text = text.collect::<Vec<_>>().join("\n").replace("$PWD", "/home/me");
        let found = parse(text.as_bytes(), &FileSystem::default()).unwrap();
        assert!(found.iter().all(|projection| !projection.notify.is_empty()));
        shown += found.len();
    }
    assert_eq!(shown, 3);
}
