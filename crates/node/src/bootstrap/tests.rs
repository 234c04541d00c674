//! All combinations of credentials, and the files written for them.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use time::Duration;

use super::*;
use crate::key_pair::CertificateKeyPair;
use crate::testing::{START, client_identity};

const SERVER: &str = "https://192.0.2.1:6443";

struct BootstrapFixture {
    dir: TempDir,
    bootstrap: bool,
}

impl BootstrapFixture {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), bootstrap: true }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn store(&self) -> CertStore {
        CertStore::new(&self.path("pki"), "kubelet-client", FileSystem::default())
    }

    fn boot(&self) -> BootstrapCredentials {
        let bootstrap = self.bootstrap.then(|| self.path("bootstrap"));
        BootstrapCredentials::new(
            &self.path("kubeconfig"),
            bootstrap.as_deref(),
            self.store(),
            FileSystem::default(),
        )
    }

    fn write_kubeconfig(&self, name: &str, user: Value) {
        self.write_kubeconfig_with(name, SERVER, user);
    }

    fn write_kubeconfig_with(&self, name: &str, server: &str, user: Value) {
        let contents = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        });
        fs::write(self.path(name), contents.to_string()).unwrap();
    }
}

fn by_data(identity: &CertificateKeyPair) -> Value {
    let pem = STANDARD.encode(identity.to_pem().unwrap().as_bytes());
    json!({"client-certificate-data": pem, "client-key-data": pem})
}

fn token() -> Value {
    json!({"token": "abcdef.0123456789abcdef"})
}

#[test]
fn starts_with_the_best_available_credential() {
    let (good, old) = (client_identity(START), client_identity(START - Duration::days(9)));
    type FixtureSetup<'a> = &'a dyn Fn(&BootstrapFixture);
    let managed = |place: &BootstrapFixture| place.store().save(&good, START).unwrap();
    let expired = |place: &BootstrapFixture| place.store().save(&old, START).unwrap();
    let table: [(&str, FixtureSetup<'_>, InitialCredential); 10] = [
        ("managed", &|place| managed(place), InitialCredential::Managed),
        (
            "managed before all",
            &|p| (managed(p), p.write_kubeconfig("bootstrap", token())).1,
            InitialCredential::Managed,
        ),
        (
            "data",
            &|place| place.write_kubeconfig("kubeconfig", by_data(&good)),
            InitialCredential::Kubeconfig,
        ),
        (
            "files",
            &|place| {
                fs::write(place.path("c.pem"), &*good.to_pem().unwrap()).unwrap();
                // The paths are relative to the kubeconfig.
                place.write_kubeconfig(
                    "kubeconfig",
                    json!({"client-certificate": "c.pem", "client-key": "c.pem"}),
                );
            },
            InitialCredential::Kubeconfig,
        ),
        (
            "data for an expired one",
            &|place| {
                expired(place);
                place.write_kubeconfig("kubeconfig", by_data(&good));
            },
            InitialCredential::Kubeconfig,
        ),
        (
            "expired data",
            &|place| {
                place.write_kubeconfig("kubeconfig", by_data(&old));
                place.write_kubeconfig("bootstrap", token());
            },
            InitialCredential::Bootstrap,
        ),
        (
            "files that are not there",
            &|place| {
                place.write_kubeconfig("kubeconfig", json!({"client-certificate": "x", "client-key": "x"}));
                place.write_kubeconfig("bootstrap", token());
            },
            InitialCredential::Bootstrap,
        ),
        (
            "a broken kubeconfig",
            &|place| {
                fs::write(place.path("kubeconfig"), "{{{").unwrap();
                place.write_kubeconfig("bootstrap", token());
            },
            InitialCredential::Bootstrap,
        ),
        (
            "expired",
            &|place| (expired(place), place.write_kubeconfig("bootstrap", token())).1,
            InitialCredential::Bootstrap,
        ),
        (
            "a token of its own",
            &|place| place.write_kubeconfig("kubeconfig", token()),
            InitialCredential::Bootstrap,
        ),
    ];
    for (what, make, expected) in table {
        let place = BootstrapFixture::new();
        make(&place);
        assert_eq!(place.boot().prepare(START).source.unwrap(), expected, "{what}");
        let held = place.store().load(START).identity.filter(|held| held.is_valid_at(START));
        let wanted = expected != InitialCredential::Bootstrap;
        assert_eq!(held.is_some_and(|h| h.leaf().der() == good.leaf().der()), wanted, "{what}");
    }
}

#[test]
fn missing_credentials_produce_instructions() {
    let place = BootstrapFixture::new();
    place.store().save(&client_identity(START - Duration::days(9)), START).unwrap();
    place.write_kubeconfig("kubeconfig", by_data(&client_identity(START - Duration::days(2))));
    let advice = |place: &BootstrapFixture| match place.boot().prepare(START).source.unwrap() {
        InitialCredential::Nothing(advice) => advice,
        other => panic!("{other:?}"),
    };
    let said = advice(&place);
    for part in [
        "kubelet-client-current.pem expired at 2026-02-21T12:00:00Z",
        "kubeconfig has a certificate that expired at 2026-02-28T12:00:00Z",
        "bootstrap does not exist; put a kubeconfig with a new bootstrap token at ",
        "windlass token create",
    ] {
        assert!(said.contains(part), "{said}");
    }
    // The error must not contain any of the content.
    fs::write(place.path("bootstrap"), "token: s3cr3t: [\n  - {").unwrap();
    let said = advice(&place);
    assert!(said.contains("bootstrap is no kubeconfig") && !said.contains("s3cr3t"), "{said}");
    let without = BootstrapFixture { bootstrap: false, ..place };
    assert!(advice(&without).contains("start with --bootstrap-kubeconfig"));
}

#[tokio::test]
async fn bootstrap_client_uses_best_credential() {
    let place = BootstrapFixture::new();
    assert!(place.boot().bootstrap_client(START).await.is_err());
    assert!(place.boot().cluster().await.unwrap_err().contains("server URL unknown"));
    place.write_kubeconfig("bootstrap", token());
    place.boot().bootstrap_client(START).await.unwrap();
    let config = place.boot().cluster().await.unwrap();
    assert_eq!(config.cluster_url.to_string(), format!("{SERVER}/"));
    assert!(config.auth_info.token.is_none(), "only the way to the server");
    place.write_kubeconfig("bootstrap", json!({}));
    let error = place.boot().bootstrap_client(START).await.err().unwrap();
    assert!(error.contains("has no credential"), "{error}");
    // An expired certificate of the node does not help.
    place.write_kubeconfig("kubeconfig", by_data(&client_identity(START - Duration::days(9))));
    assert!(place.boot().bootstrap_client(START).await.is_err());
    place.write_kubeconfig("kubeconfig", token());
    place.boot().bootstrap_client(START).await.unwrap();
}

#[test]
fn writes_the_kubeconfig_that_kubelet_would() {
    let place = BootstrapFixture::new();
    let cluster = json!({
        "server": SERVER, "certificate-authority": place.path("ca.crt"), "tls-server-name": "api",
    });
    place.write_kubeconfig("bootstrap", token());
    let text = fs::read_to_string(place.path("bootstrap")).unwrap();
    let mut contents: Value = serde_json::from_str(&text).unwrap();
    contents["clusters"][0]["cluster"] = cluster.clone();
    fs::write(place.path("bootstrap"), contents.to_string()).unwrap();
    assert!(place.boot().write_kubeconfig(START).unwrap());
    let path = place.path("kubeconfig");
    let written: Value = serde_saphyr::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let current = place.store().current_path();
    let expected = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "default-context",
        "clusters": [{"name": "default-cluster", "cluster": cluster}],
        "users": [{
            "name": "default-auth",
            "user": {"client-certificate": current, "client-key": current},
        }],
        "contexts": [{"name": "default-context", "context": {
            "cluster": "default-cluster", "user": "default-auth", "namespace": "default",
        }}],
    });
    assert_eq!(written, expected);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!place.boot().write_kubeconfig(START).unwrap(), "once");
}

#[test]
fn leaves_a_kubeconfig_that_is_of_use_and_replaces_one_that_is_not() {
    let place = BootstrapFixture::new();
    place.write_kubeconfig("bootstrap", token());
    let path = place.path("kubeconfig");
    let table = [
        (by_data(&client_identity(START)), false),
        (token(), false),
        (by_data(&client_identity(START - Duration::days(9))), true),
        (json!({"client-certificate": "x", "client-key": "x"}), true),
        (json!({}), true),
    ];
    for (user, expected) in table {
        place.write_kubeconfig("kubeconfig", user);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(place.boot().write_kubeconfig(START).unwrap(), expected);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }
    fs::write(&path, "{{{").unwrap();
    assert!(place.boot().write_kubeconfig(START).unwrap());
    let aside = place.path("kubeconfig.corrupt-2026-03-01-12-00-00");
    assert_eq!(fs::read_to_string(aside).unwrap(), "{{{");
}

#[test]
fn a_node_may_bootstrap_again_with_another_server() {
    let place = BootstrapFixture::new();
    place.write_kubeconfig("bootstrap", token());
    place.boot().write_kubeconfig(START).unwrap();
    let url = |place: &BootstrapFixture| place.boot().server().unwrap().server().unwrap().to_owned();
    place.write_kubeconfig_with("bootstrap", "https://192.0.2.2:6443", token());
    // Not written while its certificate is valid.
    place.store().save(&client_identity(START), START).unwrap();
    assert_eq!(place.boot().prepare(START).source.unwrap(), InitialCredential::Managed);
    assert_eq!(url(&place), SERVER);
    let later = START + Duration::days(9);
    assert_eq!(place.boot().prepare(later).source.unwrap(), InitialCredential::Bootstrap);
    assert_eq!(url(&place), "https://192.0.2.2:6443");
}
