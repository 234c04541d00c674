use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use time::macros::datetime;

use super::*;

const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);
const FILES: [&str; 13] = [
    "admin.kubeconfig",
    "pki/admin.crt",
    "pki/admin.key",
    "pki/ca.crt",
    "pki/ca.key",
    "pki/client-ca.crt",
    "pki/client-ca.key",
    "pki/kubelet-serving-ca.crt",
    "pki/kubelet-serving-ca.key",
    "pki/sa.key",
    "pki/sa.pub",
    "pki/server.crt",
    "pki/server.key",
];

fn site() -> ServerSite {
    let listen = "127.0.0.1:6443".parse().unwrap();
    ServerSite {
        listen,
        hostname: Some("Laptop".into()),
        names: Vec::new(),
        external_url: None,
        write_kubeconfig: true,
        makes_kubelet_serving_ca: true,
    }
}

fn start(root: &Path, site: &ServerSite, now: OffsetDateTime) -> Result<DataDir> {
    prepare(DataDirLayout::new(root), site.clone(), now)
}

/// Returns the names of the files that a start has written.
fn written_files(root: &Path, site: &ServerSite, now: OffsetDateTime) -> Vec<String> {
    let prepared = start(root, site, now).unwrap();
    let mut names = prepared
        .written
        .iter()
        .map(|path| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned())
        .collect::<Vec<_>>();
    names.sort();
    names
}

fn contents(root: &Path) -> BTreeMap<String, Vec<u8>> {
    FILES.iter().map(|&name| (name.to_owned(), fs::read(root.join(name)).unwrap())).collect()
}

#[test]
fn creates_every_file_once() {
    let directory = tempfile::tempdir().unwrap();
    let root = &directory.path().join("not/yet/there");
    assert_eq!(written_files(root, &site(), NOW), FILES);
    let first = contents(root);
    assert_eq!(written_files(root, &site(), NOW + Duration::days(220)), [""; 0]);
    assert_eq!(contents(root), first);

    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(root), 0o700);
    assert_eq!(mode(&root.join("pki")), 0o700);
    for name in FILES {
        let public = name.ends_with(".crt") || name.ends_with(".pub");
        assert_eq!(mode(&root.join(name)), if public { 0o644 } else { 0o600 }, "{name}");
    }
    let leftovers = fs::read_dir(root.join("pki")).unwrap().count();
    assert_eq!(leftovers, FILES.len() - 1);
}

#[test]
fn certificates_say_what_they_should() {
    let directory = tempfile::tempdir().unwrap();
    let listen = "192.0.2.7:6443".parse().unwrap();
    let prepared = start(directory.path(), &ServerSite { listen, ..site() }, NOW).unwrap();
    let names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "laptop",
    ];
    let addresses = ["127.0.0.1", "::1", "10.96.0.1", "192.0.2.7"];
    let names = names.iter().map(|name| AltName::Dns((*name).to_owned()));
    let addresses = addresses.iter().map(|address| AltName::Ip(address.parse().unwrap()));
    let file = |name: &str| fs::read(prepared.layout.pki_file(name)).unwrap();
    let ca = CertificateAuthority::from_pem(&file("ca.crt"), &file("ca.key")).unwrap();
    let client_ca = CertificateAuthority::from_pem(&file("client-ca.crt"), &file("client-ca.key")).unwrap();
    let serving = &Certificate::from_pem(&file("server.crt")).unwrap();
    assert_eq!(serving.alt_names(), names.chain(addresses).collect::<Vec<_>>());
    assert!(serving.allows(&KeyPurpose::ServerAuth) && !serving.allows(&KeyPurpose::ClientAuth));
    let admin = &Certificate::from_pem(&file("admin.crt")).unwrap();
    assert_eq!(admin.common_name(), Some("kubernetes-admin"));
    assert_eq!(admin.organizations(), ["system:masters"]);
    assert!(admin.allows(&KeyPurpose::ClientAuth) && !admin.allows(&KeyPurpose::ServerAuth));
    assert!(ca.has_issued(serving) && !client_ca.has_issued(serving));
    assert!(client_ca.has_issued(admin) && !ca.has_issued(admin));
    assert_eq!(prepared.url, "https://192.0.2.7:6443");

    let pki = |name: &str| prepared.layout.pki_file(name);
    for (ca, certificate) in [("ca.crt", "server.crt"), ("client-ca.crt", "admin.crt")] {
        let at = NOW.unix_timestamp().to_string();
        let verified = Command::new("openssl")
            .args(["verify", "-x509_strict", "-attime", &at, "-CAfile"])
            .args([pki(ca), pki(certificate)])
            .output()
            .unwrap();
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    }
}

/// The directory of a release without the CA of kubelet serving certificates.
#[test]
fn an_older_directory_gets_a_ca_for_kubelets_and_keeps_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let new = ["pki/kubelet-serving-ca.crt", "pki/kubelet-serving-ca.key"];
    written_files(root, &site(), NOW);
    let before = contents(root);
    new.iter().for_each(|file| fs::remove_file(root.join(file)).unwrap());
    // Not created if the other servers on the same store have one.
    let joins = ServerSite { makes_kubelet_serving_ca: false, ..site() };
    assert_eq!(written_files(root, &joins, NOW), [""; 0]);
    assert_eq!(written_files(root, &site(), NOW), new);
    assert_eq!(written_files(root, &joins, NOW), [""; 0]);
    let after = contents(root);
    for name in FILES {
        assert_eq!(before.get(name) == after.get(name), !new.contains(&name), "{name}");
    }
    let ca = |name: &str| Certificate::from_pem(&fs::read(root.join(name)).unwrap()).unwrap();
    let kubelets = ca("pki/kubelet-serving-ca.crt");
    for other in ["pki/ca.crt", "pki/client-ca.crt"] {
        assert!(kubelets.public_key() != ca(other).public_key(), "{other}");
    }
}

/// Only its signers depend on it: the server starts regardless.
#[test]
fn an_invalid_kubelet_ca_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    written_files(root, &site(), NOW);
    let files = ["pki/kubelet-serving-ca.crt", "pki/kubelet-serving-ca.key"].map(|f| root.join(f));
    let good = files.each_ref().map(|file| fs::read(file).unwrap());
    let [certificate, key] = &files;
    for (path, damage) in [
        (certificate, Some("half a c")),
        (certificate, Some("")),
        (key, Some("")),
        (key, Some("half a k")),
        (key, None),
    ] {
        match damage {
            Some(damage) => fs::write(path, damage).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        assert_eq!(written_files(root, &site(), NOW), [""; 0], "{damage:?}");
        assert_eq!(fs::read_to_string(path).ok().as_deref(), damage);
        files.iter().zip(&good).for_each(|(file, good)| fs::write(file, good).unwrap());
    }
    // One expired certificate next to valid ones.
    let old = tempfile::tempdir().unwrap();
    written_files(old.path(), &site(), NOW - AUTHORITY_LIFETIME - Duration::DAY);
    for file in &files {
        let name = file.strip_prefix(root).unwrap();
        fs::copy(old.path().join(name), file).unwrap();
    }
    assert_eq!(written_files(root, &site(), NOW), [""; 0]);
}

#[test]
fn the_kubeconfig_has_everything_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let prepared = start(directory.path(), &site(), NOW).unwrap();
    let text = fs::read_to_string(prepared.layout.kubeconfig()).unwrap();
    let config: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    let decode = |pointer: &str| {
        use base64::Engine;
        let value = config.pointer(pointer).and_then(|value| value.as_str()).unwrap();
        let bytes = base64::engine::general_purpose::STANDARD.decode(value).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let file = |name: &str| fs::read_to_string(prepared.layout.pki_file(name)).unwrap();
    assert_eq!(decode("/clusters/0/cluster/certificate-authority-data"), file("ca.crt"));
    assert_eq!(decode("/users/0/user/client-certificate-data"), file("admin.crt"));
    assert_eq!(decode("/users/0/user/client-key-data"), file("admin.key"));
    let string = |pointer: &str| config.pointer(pointer).and_then(|value| value.as_str()).unwrap();
    assert_eq!(string("/clusters/0/cluster/server"), "https://127.0.0.1:6443");
    assert_eq!(string("/current-context"), string("/contexts/0/name"));
}

#[test]
fn completes_a_directory_that_a_crash_left_half_made() {
    let directory = tempfile::tempdir().unwrap();
    let complete = directory.path().join("complete");
    let prepared = start(&complete, &site(), NOW).unwrap();
    let order = prepared.written.clone();
    drop(prepared);
    // A crash leaves the first `survivors` files, in the order of writing.
    for survivors in 0..order.len() {
        let root = directory.path().join(survivors.to_string());
        fs::create_dir_all(root.join("pki")).unwrap();
        fs::write(root.join("pki/.ca.key.new"), "half a k").unwrap();
        for path in order.iter().take(survivors) {
            fs::copy(path, root.join(path.strip_prefix(&complete).unwrap())).unwrap();
        }
        let prepared = start(&root, &site(), NOW).unwrap();
        assert_eq!(prepared.written.len(), order.len() - survivors, "{survivors}");
        drop(prepared);
        assert_eq!(written_files(&root, &site(), NOW), [""; 0], "{survivors}");
    }
}

#[test]
fn reissues_certificates_that_no_longer_match() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    written_files(root, &site(), NOW);
    let before = contents(root);

    let moved = ServerSite { listen: "192.0.2.7:6443".parse().unwrap(), ..site() };
    assert_eq!(written_files(root, &moved, NOW), ["admin.kubeconfig", "pki/server.crt"]);
    let other_port = ServerSite { listen: "192.0.2.7:7443".parse().unwrap(), ..site() };
    assert_eq!(written_files(root, &other_port, NOW), ["admin.kubeconfig"]);
    let renamed = ServerSite { hostname: Some("server".into()), ..other_port.clone() };
    assert_eq!(written_files(root, &renamed, NOW), ["pki/server.crt"]);
    let late = NOW + Duration::days(244);
    let renewed = ["admin.kubeconfig", "pki/admin.crt", "pki/server.crt"];
    assert_eq!(written_files(root, &renamed, late), renewed);
    assert_eq!(written_files(root, &renamed, late), [""; 0]);

    let after = contents(root);
    for name in FILES.iter().filter(|name| name.ends_with(".key") || name.contains("ca.")) {
        assert_eq!(before.get(*name), after.get(*name), "{name}");
    }
}

/// Returns the names of the files that a renewal at run time has written.
fn renewed(data: &DataDir, now: OffsetDateTime) -> Vec<String> {
    let root = data.layout.root();
    let renewal = data.renewal();
    let due = renewal.is_due(now);
    let mut names = renewal.renew(now).unwrap();
    names.sort();
    assert_eq!(due, !names.is_empty(), "{now}");
    let name = |path: PathBuf| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
    names.into_iter().map(name).collect()
}

#[test]
fn a_server_that_runs_for_years_renews_what_it_has() {
    const RENEWED: [&str; 3] = ["admin.kubeconfig", "pki/admin.crt", "pki/server.crt"];
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let data = start(root, &site(), NOW).unwrap();
    let first = contents(root);
    let certificate =
        |name: &str| Certificate::from_pem(&fs::read(data.layout.pki_file(name)).unwrap()).unwrap();
    let mut count = 0;
    for day in (0..3650).step_by(5) {
        let now = NOW + Duration::days(day);
        let written = renewed(&data, now);
        count += usize::from(!written.is_empty());
        // Jitter can spread them over two days.
        assert!(written.iter().all(|name| RENEWED.contains(&name.as_str())), "{written:?}");
        for (name, authority) in [("server.crt", "ca.crt"), ("admin.crt", "client-ca.crt")] {
            let (leaf, ends) = (certificate(name), certificate(authority).validity().not_after());
            let left = leaf.validity().not_after() - now;
            // Renewed long before expiry, until the CA itself expires.
            assert!(leaf.validity().contains(now), "{name} on day {day}");
            assert!(left >= Duration::days(120) || leaf.validity().not_after() == ends, "{left}");
        }
        let text = fs::read_to_string(data.layout.kubeconfig()).unwrap();
        let pem = fs::read(data.layout.pki_file("admin.crt")).unwrap();
        let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem);
        assert!(text.contains(&encoded), "day {day}");
    }
    assert!((10..40).contains(&count), "renewed on {count} days");
    let last = contents(root);
    for (name, bytes) in &first {
        assert_eq!(last.get(name) == Some(bytes), !RENEWED.contains(&name.as_str()), "{name}");
    }
    // If the CA has expired, an error is reported and nothing is written.
    let late = NOW + Duration::days(3651);
    let error = data.renewal().renew(late).unwrap_err().to_string();
    assert!(error.contains("ca.crt is valid from "), "{error}");
    assert_eq!(contents(root), last);
}

#[test]
fn a_renewal_survives_a_crash_at_every_step() {
    let directory = tempfile::tempdir().unwrap();
    let before = directory.path().join("before");
    drop(start(&before, &site(), NOW).unwrap());
    let late = NOW + Duration::days(250);
    let after = directory.path().join("after");
    let copy = |from: &Path, to: &Path| {
        fs::create_dir_all(to.join("pki")).unwrap();
        for file in FILES {
            fs::copy(from.join(file), to.join(file)).unwrap();
        }
    };
    copy(&before, &after);
    let data = start(&after, &site(), NOW).unwrap();
    let order = data.renewal().renew(late).unwrap();
    assert_eq!(order.len(), 3);
    // A crash leaves the first `survivors` files new, and possibly the temporary file of the next
    // one.
    for survivors in 0..order.len() {
        let root = directory.path().join(survivors.to_string());
        copy(&before, &root);
        for path in order.iter().take(survivors) {
            fs::copy(path, root.join(path.strip_prefix(&after).unwrap())).unwrap();
        }
        fs::write(root.join("pki/.server.crt.new"), "half").unwrap();
        let restarted = start(&root, &site(), late).unwrap();
        assert_eq!(restarted.written.len(), order.len() - survivors, "{survivors}");
        assert_eq!(renewed(&restarted, late), [""; 0], "{survivors}");
    }
}

/// If files are replaced while the server runs, missing ones are not created.
#[test]
fn a_renewal_makes_nothing_that_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let data = start(directory.path(), &site(), NOW).unwrap();
    let late = NOW + Duration::days(250);
    assert!(data.renewal().is_due(late));
    for name in ["ca.crt", "client-ca.crt"] {
        fs::remove_file(data.layout.pki_file(name)).unwrap();
    }
    assert!(!data.renewal().is_due(late));
}

#[test]
fn a_balancer_is_named_in_certificate_and_kubeconfig() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    written_files(root, &site(), NOW);
    let names = vec![AltName::Dns("lb.example".into()), AltName::Ip("192.0.2.9".parse().unwrap())];
    let known = ServerSite { names: names.clone(), ..site() };
    assert_eq!(written_files(root, &known, NOW), ["pki/server.crt"]);
    let reached = ServerSite { external_url: Some("https://lb.example:443".into()), ..known };
    assert_eq!(written_files(root, &reached, NOW), ["admin.kubeconfig"]);
    let prepared = start(root, &reached, NOW).unwrap();
    assert_eq!(prepared.url, "https://lb.example:443");
    let text = fs::read_to_string(prepared.layout.kubeconfig()).unwrap();
    assert!(text.contains("server: https://lb.example:443\n"), "{text}");
    let serving = fs::read(prepared.layout.pki_file("server.crt")).unwrap();
    let serving = Certificate::from_pem(&serving).unwrap();
    assert!(names.iter().all(|name| serving.alt_names().contains(name)));
    drop(prepared);
    assert_eq!(written_files(root, &site(), NOW), ["admin.kubeconfig", "pki/server.crt"]);
}

#[test]
fn follows_a_new_authority() {
    let directory = tempfile::tempdir().unwrap();
    let (root, other) = (directory.path().join("one"), directory.path().join("two"));
    written_files(&root, &site(), NOW);
    written_files(&other, &site(), NOW);
    for name in ["pki/ca.crt", "pki/ca.key"] {
        fs::copy(other.join(name), root.join(name)).unwrap();
    }
    assert_eq!(written_files(&root, &site(), NOW), ["admin.kubeconfig", "pki/server.crt"]);
}

#[test]
fn writes_no_kubeconfig_that_would_not_work() {
    let directory = tempfile::tempdir().unwrap();
    let foreign = ServerSite { write_kubeconfig: false, ..site() };
    assert!(!written_files(directory.path(), &foreign, NOW).contains(&"admin.kubeconfig".to_owned()));
    assert_eq!(written_files(directory.path(), &site(), NOW), ["admin.kubeconfig"]);
}

#[test]
fn keeps_what_people_changed_in_the_kubeconfig() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    written_files(root, &site(), NOW);
    let path = root.join("admin.kubeconfig");
    let text = fs::read_to_string(&path).unwrap();
    let changed = text.replace("    user: kuber", "    namespace: mine\n    user: kuber");
    assert_ne!(text, changed);
    fs::write(&path, &changed).unwrap();
    assert_eq!(written_files(root, &site(), NOW), [""; 0]);
    fs::write(&path, "").unwrap();
    assert_eq!(written_files(root, &site(), NOW), ["admin.kubeconfig"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn refuses_pairs_that_do_not_match_and_touches_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (good, other) = (directory.path().join("good"), directory.path().join("other"));
    written_files(&good, &site(), NOW);
    written_files(&other, &site(), NOW);
    // (file, new contents, files that the error must name)
    let swap = |name: &str| fs::read(other.join(name)).unwrap();
    let table = [
        ("pki/ca.key", Some(swap("pki/ca.key")), &["ca.crt", "ca.key"][..]),
        ("pki/ca.crt", Some(swap("pki/ca.crt")), &["ca.crt", "ca.key"]),
        ("pki/ca.crt", Some(swap("pki/server.crt")), &["ca.crt", "ca.key"]),
        ("pki/ca.crt", Some(b"garbage".to_vec()), &["ca.crt"]),
        ("pki/ca.key", Some(Vec::new()), &["ca.key"]),
        ("pki/ca.key", None, &["ca.crt", "ca.key"]),
        ("pki/client-ca.key", Some(swap("pki/client-ca.key")), &["client-ca.crt", "client-ca.key"]),
        ("pki/server.key", Some(swap("pki/server.key")), &["server.crt", "server.key"]),
        ("pki/server.key", None, &["server.crt", "server.key"]),
        ("pki/admin.crt", Some(swap("pki/admin.crt")), &["admin.crt", "admin.key"]),
        ("pki/sa.key", Some(swap("pki/sa.key")), &["sa.key", "sa.pub"]),
        ("pki/sa.key", None, &["sa.key", "sa.pub"]),
        ("pki/sa.pub", Some(b"garbage".to_vec()), &["sa.key", "sa.pub"]),
    ];
    for (index, (name, becomes, named)) in table.into_iter().enumerate() {
        let root = directory.path().join(index.to_string());
        fs::create_dir_all(root.join("pki")).unwrap();
        for file in FILES {
            fs::copy(good.join(file), root.join(file)).unwrap();
        }
        match becomes {
            Some(bytes) => fs::write(root.join(name), bytes).unwrap(),
            None => fs::remove_file(root.join(name)).unwrap(),
        }
        let state = || FILES.iter().map(|file| fs::read(root.join(file)).ok()).collect::<Vec<_>>();
        let before = state();
        let error = format!("{:#}", start(&root, &site(), NOW).unwrap_err());
        for file in named {
            assert!(error.contains(&format!("/{file}")), "{index} {name}: {error}");
        }
        assert!(before == state(), "{index} {name}: files were changed");
    }
}

#[test]
fn an_expired_authority_is_named() {
    let directory = tempfile::tempdir().unwrap();
    written_files(directory.path(), &site(), NOW);
    for now in [NOW + Duration::days(3651), NOW - Duration::days(1)] {
        let error = format!("{:#}", start(directory.path(), &site(), now).unwrap_err());
        assert!(error.contains("/ca.crt is valid from "), "{error}");
    }
}

#[test]
fn only_one_process_gets_the_lock() {
    let directory = tempfile::tempdir().unwrap();
    let first = start(directory.path(), &site(), NOW).unwrap();
    let error = start(directory.path(), &site(), NOW).unwrap_err().to_string();
    let holder = format!("another windlass (process {})", std::process::id());
    assert!(error.starts_with(&holder), "{error}");
    drop(first);
    start(directory.path(), &site(), NOW).unwrap();
}

#[test]
fn survives_any_damage_to_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    written_files(root, &site(), NOW);
    let good = contents(root);
    for (name, bytes) in &good {
        for damage in [&b""[..], b"\0\xff", b"-----BEGIN CERTIFICATE-----\n"] {
            fs::write(root.join(name), damage).unwrap();
            let _ = start(root, &site(), NOW);
        }
        for (name, bytes) in &good {
            fs::write(root.join(name), bytes).unwrap();
        }
        let half = bytes.get(..bytes.len() / 2).unwrap();
        fs::write(root.join(name), half).unwrap();
        let _ = start(root, &site(), NOW);
        for (name, bytes) in &good {
            fs::write(root.join(name), bytes).unwrap();
        }
    }
    assert_eq!(written_files(root, &site(), NOW), [""; 0]);
}

#[test]
fn kubeconfigs_contain_a_reachable_address() {
    for (listen, expected) in [
        ("0.0.0.0:6443", "https://127.0.0.1:6443"),
        ("[::]:6443", "https://[::1]:6443"),
        ("[2001:db8::1]:443", "https://[2001:db8::1]:443"),
        ("192.0.2.7:8443", "https://192.0.2.7:8443"),
    ] {
        assert_eq!(local_url(listen.parse().unwrap()), expected);
    }
}

#[test]
fn only_host_names_are_certified() {
    let long = "a".repeat(64);
    for (name, valid) in [
        ("laptop", true),
        ("node-1.example.com", true),
        ("", false),
        ("my laptop", false),
        ("a..b", false),
        ("-a", false),
        ("ünicode", false),
        ("under_score", false),
        (&long, false),
    ] {
        assert_eq!(is_host_name(name), valid, "{name:?}");
    }
}

#[test]
fn makes_credentials_that_end_no_later_than_their_authority() {
    let directory = tempfile::tempdir().unwrap();
    let layout = DataDirLayout::new(directory.path());
    let user = |expires| NewUser {
        name: "al\"ice",
        groups: &[],
        expires,
        server: None,
        certificate_authority: None,
    };
    let early = create_user_credential(&layout, &user(NOW + Duration::days(1)), NOW);
    assert!(early.err().unwrap().to_string().contains("start windlass up"));
    drop(start(directory.path(), &site(), NOW).unwrap());

    let groups = ["dev".to_owned(), "system:nodes".to_owned()];
    let asked = NewUser { groups: &groups, ..user(NOW + Duration::days(30)) };
    let made = create_user_credential(&layout, &asked, NOW).unwrap();
    assert_eq!(made.until, NOW + Duration::days(30));
    assert!(made.kubeconfig.contains("server: https://127.0.0.1:6443\n"));
    let field = "client-certificate-data: ";
    let line = made.kubeconfig.lines().find_map(|l| l.trim().strip_prefix(field)).unwrap();
    let pem = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, line).unwrap();
    let certificate = Certificate::from_pem(&pem).unwrap();
    assert_eq!(certificate.common_name(), Some("al\"ice"));
    assert_eq!(certificate.organizations(), groups);
    assert_eq!(certificate.purposes(), Some(&[KeyPurpose::ClientAuth][..]));

    let made = create_user_credential(&layout, &user(NOW + Duration::days(36_500)), NOW).unwrap();
    assert!(made.until <= NOW + AUTHORITY_LIFETIME);
    assert!(create_user_credential(&layout, &user(NOW), NOW).is_err());
}

#[test]
fn an_existing_kubeconfig_is_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("alice.kubeconfig");
    write_new(&path, Zeroizing::new("one".into())).unwrap();
    assert!(write_new(&path, Zeroizing::new("two".into())).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"one");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}
