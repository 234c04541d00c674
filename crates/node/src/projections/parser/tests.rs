use std::path::Path;
use std::time::Duration;

use http::Method;
use windlass_pki::Pkcs12Profile;

use super::super::keystores::{KeystoreFile, KeystoreKind};
use super::super::notification::{Notification, NotificationMethod};
use super::super::secret::{Passphrase, SecretText};
use super::*;
use crate::volume::definition::{ProjectedSource, RevocationListFormat, RevocationListSource};
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

fn parse(text: &str) -> Result<Vec<HostProjection>, ConfigErrors> {
    super::parse(Path::new("p.yaml"), text.as_bytes(), &FileSystem::default())
}

/// The lines of all errors, without the name of the file.
fn errors(text: &str) -> Vec<String> {
    let errors = match parse(text) {
        Ok(found) => panic!("accepted: {found:?}"),
        Err(errors) => errors.to_string(),
    };
    errors.lines().map(|line| line.strip_prefix("p.yaml:").unwrap().to_owned()).collect()
}

fn path(text: &str) -> VolumePath {
    VolumePath::parse(text).unwrap()
}

#[test]
fn a_file_with_everything_is_read() {
    let found = parse(WHOLE).unwrap();
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
    let stores = paths.into_iter().zip(kinds).map(|(at, kind)| KeystoreFile { path: path(at), kind });
    assert_eq!(web.stores, stores.collect::<Vec<_>>());
    let [signal, command, http] = web.notify.as_slice() else { panic!("{web:?}") };
    let how =
        NotificationMethod::Signal { signal: rustix::process::Signal::HUP, pid_file: "/run/web.pid".into() };
    let timeout = Duration::from_millis(500);
    assert_eq!(*signal, Notification { how, timeout, retries: 0 });
    let how = NotificationMethod::Command(["systemctl", "reload", "web"].map(String::from).into());
    let timeout = Duration::from_secs(10);
    assert_eq!(*command, Notification { how, timeout, retries: 5 });
    let NotificationMethod::Http { url, method, headers } = &http.how else { panic!("{http:?}") };
    assert_eq!((url.to_string().as_str(), method), ("http://127.0.0.1:9901/reload?now", &Method::POST));
    assert_eq!(headers["authorization"], "Bearer token-word");
    assert_eq!((anchors.namespace.as_str(), anchors.definition.default_mode), ("default", 0o644));
    assert_eq!(anchors.readers, VolumeReaders::default());
}

#[test]
fn nothing_shows_a_secret() {
    let found = parse(WHOLE).unwrap();
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
    let found = parse(text).unwrap();
    assert_eq!(found[0].definition.default_mode, 0o640);
}

/// Each row replaces a text of the whole file by another; the last column begins the line of an error.
#[test]
fn all_errors_are_reported_with_their_position() {
    let cases = [
        // The document.
        ("windlass.dev/v1", "v1", "1:13: apiVersion: \"v1\" is not supported; use windlass.dev/v1"),
        ("kind: Projections", "kind: 7", "2:7: kind: 7 is not text; put it in quotes"),
        ("kind: Projections", "", "1:1: kind: is missing"),
        (
            "kind: Projections\n",
            "kind: Projections\nmore: 1\n",
            "3:1: more: unknown field; known fields: apiVersion, kind, projections",
        ),
        (
            "kind: Projections\n",
            "kind: Projections\nkind: Projections\n",
            "3:1: kind: is set twice; remove one of them",
        ),
        // A projection.
        (
            "name: web",
            "name: Web",
            "4:9: projections[0].name: \"Web\" is not valid: a lowercase RFC 1123 label",
        ),
        (
            "name: web",
            "nmae: web",
            "4:3: projections[0].nmae: unknown field; known fields: name, directory, namespace, user, group, certificate, projected, revocationLists, keystores, notify",
        ),
        (
            "name: anchors",
            "name: web",
            "45:9: projections[1].name: \"web\" is the name of another projection; use a unique name",
        ),
        (
            "/etc/web/./tls/",
            "etc/web",
            "5:14: projections[0].directory: \"etc/web\" is not an absolute path; begin it with /",
        ),
        (
            "/etc/web/./tls/",
            "/etc/../web",
            "5:14: projections[0].directory: \"/etc/../web\" contains '..'; write the path without it",
        ),
        (
            "/etc/web/./tls/",
            "/",
            "5:14: projections[0].directory: \"/\" is the root directory; use a directory below it",
        ),
        (
            "/etc/anchors",
            "/etc/web/tls/ca",
            "46:14: projections[1].directory: \"/etc/web/tls/ca\" overlaps the directory of projection \"web\"; use separate directories",
        ),
        (
            "/etc/anchors",
            "/etc/web",
            "46:14: projections[1].directory: \"/etc/web\" overlaps the directory of projection \"web\"; use separate directories",
        ),
        (
            "namespace: shop",
            "namespace: a.b",
            "6:14: projections[0].namespace: \"a.b\" is not valid: must not contain dots",
        ),
        ("namespace: shop", "namespace:", "6:12: projections[0].namespace: has no value; it must be text"),
        ("user: 1000", "user: web", "7:9: projections[0].user: must be an integer, not \"web\""),
        ("group: 1001", "group: -1", "8:10: projections[0].group: -1 is out of range; use 0 to 2147483647"),
        // Its certificate.
        (
            "commonName: web",
            "common: web",
            "10:5: projections[0].certificate.common: unknown field; known fields: commonName, dnsNames, ipAddresses, uris",
        ),
        (
            "\"*.web.example.com\"",
            "\"a.*.b\"",
            "11:33: projections[0].certificate.dnsNames[1]: \"a.*.b\" is not valid: a lowercase RFC 1123 subdomain",
        ),
        (
            "192.0.2.7,",
            "192.0.2.700,",
            "12:19: projections[0].certificate.ipAddresses[0]: \"192.0.2.700\" is not an IP address",
        ),
        (
            "spiffe://",
            "//",
            "13:12: projections[0].certificate.uris[0]: \"//example.com/web\" is not a URI with a scheme, such as spiffe://example.com/web",
        ),
        // Its volume, in the words of Kubernetes.
        (
            "defaultMode: 0640",
            "defaultMode: \"0640\"",
            "15:5: projections[0].projected: json: cannot unmarshal string into Go struct field ProjectedVolumeSource.defaultMode of type int32",
        ),
        (
            "defaultMode: 0640",
            "defaultMode: 1777",
            "15:18: projections[0].projected.defaultMode: Invalid value: 1777: must be a number between 0 and 0777 (octal), both inclusive",
        ),
        (
            "{name: everybody, path: ca.pem}",
            "{name: everybody, path: ca.pem, pfad: x}",
            "49:65: projections[1].projected.sources[0].clusterTrustBundle.pfad: unknown field",
        ),
        (
            "{name: everybody, path: ca.pem}",
            "{name: everybody, path: ../ca.pem}",
            "49:51: projections[1].projected.sources[0].clusterTrustBundle.path: Invalid value: \"../ca.pem\": must not contain '..'",
        ),
        (
            "{name: everybody, path: ca.pem}",
            "{name: everybody, path: ca.pem, path: ca.pem}",
            "49:59: projections[1].projected.sources[0].clusterTrustBundle.path: is set twice; remove one of them",
        ),
        (
            "clusterTrustBundle: {name: everybody, path: ca.pem}",
            "serviceAccountToken: {path: t}",
            "49:28: projections[1].projected.sources[0].serviceAccountToken: needs a pod; remove it",
        ),
        (
            "clusterTrustBundle: {name: everybody, path: ca.pem}",
            "downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}",
            "49:20: projections[1].projected.sources[0].downwardAPI: needs a pod; remove it",
        ),
        (
            "    - clusterTrustBundle: {name: everybody, path: ca.pem}",
            "      []",
            "49:7: projections[1].projected.sources: is empty; add a source",
        ),
        // Keystores.
        (
            "path: truststore.p12",
            "path: ca.pem",
            "21:11: projections[0].keystores[0].path: \"ca.pem\" conflicts with another path of the volume; use another path",
        ),
        (
            "path: truststore.p12",
            "path: web.pem/a",
            "21:11: projections[0].keystores[0].path: \"web.pem/a\" conflicts with another path of the volume; use another path",
        ),
        (
            "path: truststore.p12",
            "path: open.p12",
            "26:11: projections[0].keystores[1].path: \"open.p12\" conflicts with another path of the volume; use another path",
        ),
        (
            "path: truststore.p12",
            "path: /a",
            "21:11: projections[0].keystores[0].path: \"/a\" is not a valid path: must be relative path: /a",
        ),
        (
            "keyPath: web.pem",
            "keyPath: missing.pem",
            "35:14: projections[0].keystores[3].keyPath: \"missing.pem\" is not a file of this volume; use the path of a source",
        ),
        (
            "keyPath: web.pem",
            "keyPath: open.p12",
            "35:14: projections[0].keystores[3].keyPath: \"open.p12\" is not a file of this volume; use the path of a source",
        ),
        (
            "keyPath: web.pem",
            "keyPath: web.pem\n    trustAnchorsPath: ca.pem",
            "33:5: projections[0].keystores[3]: has more than one of trustAnchorsPath and keyPath; keep one",
        ),
        (
            "keyPath: web.pem",
            "certificateChainPath: web.pem",
            "33:5: projections[0].keystores[3]: needs one of trustAnchorsPath and keyPath",
        ),
        (
            "format: JKS\n    trustAnchorsPath: ca.pem",
            "format: JKS\n    keyPath: web.pem",
            "31:14: projections[0].keystores[2].keyPath: needs the format PKCS12, which Java 8 and newer can read",
        ),
        (
            "format: JKS",
            "format: BKS",
            "30:13: projections[0].keystores[2].format: \"BKS\" is not supported; use PKCS12 or JKS",
        ),
        (
            "format: JKS",
            "format: JKS\n    profile: LegacyDES",
            "31:14: projections[0].keystores[2].profile: applies only to PKCS12; remove it",
        ),
        (
            "format: JKS",
            "format: JKS\n    alias: a",
            "31:12: projections[0].keystores[2].alias: applies only to key stores; remove it",
        ),
        (
            "profile: LegacyDES",
            "profile: Best",
            "25:14: projections[0].keystores[0].profile: \"Best\" is not supported; use LegacyRC2, LegacyDES or Modern2023",
        ),
        (
            "path: open.p12",
            "path: open.p12\n    profile: LegacyDES",
            "27:14: projections[0].keystores[1].profile: has no effect without a password; add one",
        ),
        (
            "password: secret-word",
            "alias: web",
            "33:5: projections[0].keystores[3]: needs one of password and passwordFile",
        ),
        (
            "password: secret-word",
            "password: \"\"",
            "36:15: projections[0].keystores[3].password: a keystore password must have between 1 and 128 characters",
        ),
        (
            "password: secret-word",
            "password: 1234567",
            "36:15: projections[0].keystores[3].password: is not text; put it in quotes",
        ),
        (
            "password: secret-word",
            "password: secret-word\n    passwordFile: /p",
            "33:5: projections[0].keystores[3]: has more than one of password and passwordFile; keep one",
        ),
        (
            "password: secret-word",
            "passwordFile: p",
            "36:19: projections[0].keystores[3].passwordFile: \"p\" is not an absolute path; begin it with /",
        ),
        (
            "password: secret-word",
            "password: secret-word\n    alias: \"\"",
            "37:12: projections[0].keystores[3].alias: is empty",
        ),
        // Notifications.
        (
            "name: HUP",
            "name: KILL",
            "38:20: projections[0].notify[0].signal.name: \"KILL\" is not supported; use HUP, INT, QUIT, TERM, USR1, USR2 or WINCH",
        ),
        (
            "pidFile: /run/web.pid",
            "pidFile: web.pid",
            "38:34: projections[0].notify[0].signal.pidFile: \"web.pid\" is not an absolute path; begin it with /",
        ),
        (
            "pidFile: /run/web.pid",
            "pid: 7",
            "38:25: projections[0].notify[0].signal.pid: unknown field; known fields: name, pidFile",
        ),
        (
            "timeout: 500ms",
            "timeout: 0s",
            "39:14: projections[0].notify[0].timeout: \"0s\" is out of range; use more than 0s and at most 10m",
        ),
        (
            "timeout: 500ms",
            "timeout: soon",
            "39:14: projections[0].notify[0].timeout: \"soon\" is not a duration; use a number and a unit, such as 24h",
        ),
        (
            "retries: 0",
            "retries: 101",
            "40:14: projections[0].notify[0].retries: 101 is out of range; use 0 to 100",
        ),
        (
            "command: [systemctl, reload, web]",
            "command: []",
            "41:14: projections[0].notify[1].command: has no program; write it as the first item",
        ),
        (
            "command: [systemctl, reload, web]",
            "command: systemctl reload hidden",
            "41:14: projections[0].notify[1].command: must be a list, not text",
        ),
        (
            "command: [systemctl, reload, web]",
            "command: [a, \"hidden\\0\"]",
            "41:18: projections[0].notify[1].command[1]: contains a NUL character; remove it",
        ),
        (
            "command: [systemctl, reload, web]",
            "timeout: 1s",
            "41:5: projections[0].notify[1]: needs one of signal, command and http",
        ),
        (
            "command: [systemctl, reload, web]",
            "command: [a]\n    signal: {name: HUP, pidFile: /p}",
            "41:5: projections[0].notify[1]: has more than one of signal, command and http; keep one",
        ),
        (
            "command: [systemctl, reload, web]",
            "signal: {name: SIGHUP, pidFile: /run/web.pid}",
            "41:5: projections[0].notify[1]: repeats the notification \"signal HUP to the process of /run/web.pid\"; remove one",
        ),
        (
            "http://127",
            "https://127",
            "43:12: projections[0].notify[2].http.url: must be a URL that begins with http://",
        ),
        (
            "http://127",
            "http://me:hidden@127",
            "43:12: projections[0].notify[2].http.url: contains a user; use the header Authorization instead",
        ),
        (
            "{Authorization: Bearer token-word}",
            "{Author ization: x}",
            "44:33: projections[0].notify[2].http.headers[Author ization]: \"Author ization\" is not the name of an HTTP header",
        ),
        (
            "{Authorization: Bearer token-word}",
            "{A: \"x\\ny\"}",
            "44:20: projections[0].notify[2].http.headers[A]: is not the value of an HTTP header; use visible ASCII",
        ),
        (
            "{Authorization: Bearer token-word}",
            "{}\n      method: \"A B\"",
            "45:15: projections[0].notify[2].http.method: \"A B\" is not a supported HTTP method; use one such as POST",
        ),
    ];
    let mut missing = Vec::new();
    for (from, to, expected) in cases {
        assert!(WHOLE.contains(from), "{from} is not in the file");
        let errors = errors(&WHOLE.replacen(from, to, 1));
        if !errors.iter().any(|error| error.starts_with(expected)) {
            missing.push(format!("{expected} is not in {errors:#?}"));
        }
        for secret in ["changeit", "secret-word", "token-word", "1234567", "hidden"] {
            assert!(!errors.concat().contains(secret), "{secret} in {errors:?}");
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn all_errors_are_reported_together() {
    let text = WHOLE
        .replace("name: web", "name: Web")
        .replace("user: 1000", "user: x")
        .replace("format: JKS", "format: BKS")
        .replace("/etc/anchors", "anchors");
    let errors = errors(&text);
    assert_eq!(errors.len(), 4, "{errors:#?}");
}

#[test]
fn non_document_is_reported() {
    for text in ["[]", "a: [", "\u{0}"] {
        assert_eq!(errors(text).len(), 1, "{text:?}");
    }
    assert!(parse("").is_err());
}

#[test]
fn with_an_object_of_unknown_keys_any_path_may_come() {
    let text = WHOLE
        .replace(", items: [{key: a, path: extra/a, mode: 0400}]", "")
        .replace("keyPath: web.pem", "keyPath: tls.key\n    certificateChainPath: tls.crt");
    let found = parse(&text).unwrap();
    let KeystoreKind::Pkcs12Key { key, chain, .. } = &found[0].stores[3].kind else { panic!() };
    assert_eq!((key.as_str(), chain.as_ref().unwrap().as_str()), ("tls.key", "tls.crt"));
}

#[test]
fn passwords_can_be_read_from_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    let text = WHOLE.replace("password: secret-word", &format!("passwordFile: {}", file.display()));
    let passphrase = |text: &str| {
        let found = parse(text).unwrap();
        found[0].stores[3].kind.passphrase().unwrap().clone()
    };
    let none = passphrase(&text);
    assert!(none.password().err().unwrap().ends_with("file not found"));
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
        let found = parse(&text).unwrap();
        assert!(found.iter().all(|projection| !projection.notify.is_empty()));
        shown += found.len();
    }
    assert_eq!(shown, 3);
}

#[test]
fn revocation_lists_are_sources_after_the_others() {
    let text = |lists: &str| {
        format!(
            "apiVersion: windlass.dev/v1\nkind: Projections\nprojections:\n- name: web\n  directory: /etc/web\n{lists}"
        )
    };
    let lists = "  revocationLists:\n  - {signerName: a.b/c, path: crl.pem}\n  \
                 - {signerName: a.b/c, path: crls, format: DER, optional: true}\n";
    let projected = "  projected: {sources: [{clusterTrustBundle: {name: x, path: ca.pem}}]}\n";
    for (what, first) in [(lists.to_owned(), 0), (format!("{projected}{lists}"), 1)] {
        let found = parse(&text(&what)).unwrap();
        let sources = &found[0].definition.sources;
        let added: Vec<_> = sources[first..].iter().map(|(index, source)| (*index, source.clone())).collect();
        let source = |path: &str, format, optional| {
            let path = VolumePath::parse(path).unwrap();
            ProjectedSource::RevocationLists(RevocationListSource {
                signer: "a.b/c".into(),
                optional,
                path,
                format,
            })
        };
        let expected = [
            (first, source("crl.pem", RevocationListFormat::Pem, false)),
            (first + 1, source("crls", RevocationListFormat::Der, true)),
        ];
        assert_eq!(added, expected, "{what}");
    }
    let bad = "  revocationLists:\n  - {signerName: x, path: ../a, format: TXT}\n  \
               - {path: ca.pem}\n  - {signerName: a.b/c, path: ca.pem/x}\n";
    let found = errors(&text(&format!("{projected}{bad}")));
    let expected = [
        "[0].signerName:",
        "[0].path: \"../a\" is not a valid path",
        "[0].format: ",
        "[1].signerName: is missing",
        "[1].path: \"ca.pem\" conflicts with another path",
        "[2].path: \"ca.pem/x\" conflicts with another path",
    ];
    for words in expected {
        assert!(
            found.iter().any(|line| line.contains(&format!("revocationLists{words}"))),
            "{words}: {found:#?}"
        );
    }
    assert_eq!(errors(&text("  revocationLists: []\n")).len(), 1);
}
