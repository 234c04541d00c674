//! Every combination of credentials, and what is written.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use time::Duration;

use super::*;
use crate::identity::Identity;
use crate::testing::{START, client_identity};

const SERVER: &str = "https://192.0.2.1:6443";

struct Place {
    dir: TempDir,
    bootstrap: bool,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), bootstrap: true }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn store(&self) -> Store {
        Store::new(&self.path("pki"), "kubelet-client", Files::default())
    }

    fn boot(&self) -> Boot {
        let bootstrap = self.bootstrap.then(|| self.path("bootstrap"));
        Boot::new(&self.path("kubeconfig"), bootstrap.as_deref(), self.store(), Files::default())
    }

    fn put(&self, name: &str, user: Value) {
        self.put_with(name, SERVER, user);
    }

    fn put_with(&self, name: &str, server: &str, user: Value) {
        let contents = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        });
        fs::write(self.path(name), contents.to_string()).unwrap();
    }
}

fn by_data(identity: &Identity) -> Value {
    let pem = STANDARD.encode(identity.to_pem().unwrap().as_bytes());
    json!({"client-certificate-data": pem, "client-key-data": pem})
}

fn token() -> Value {
    json!({"token": "abcdef.0123456789abcdef"})
}

#[test]
fn begins_with_the_best_credential_there_is() {
    let (good, old) = (client_identity(START), client_identity(START - Duration::days(9)));
    type Make<'a> = &'a dyn Fn(&Place);
    let managed = |place: &Place| place.store().save(&good, START).unwrap();
    let expired = |place: &Place| place.store().save(&old, START).unwrap();
    let table: [(&str, Make<'_>, Source); 10] = [
        ("managed", &|place| managed(place), Source::Managed),
        ("managed before all", &|p| (managed(p), p.put("bootstrap", token())).1, Source::Managed),
        ("data", &|place| place.put("kubeconfig", by_data(&good)), Source::Kubeconfig),
        (
            "files",
            &|place| {
                fs::write(place.path("c.pem"), &*good.to_pem().unwrap()).unwrap();
                // Relative to the kubeconfig.
                place.put(
                    "kubeconfig",
                    json!({"client-certificate": "c.pem", "client-key": "c.pem"}),
                );
            },
            Source::Kubeconfig,
        ),
        (
            "data for an expired one",
            &|place| {
                expired(place);
                place.put("kubeconfig", by_data(&good));
            },
            Source::Kubeconfig,
        ),
        (
            "expired data",
            &|place| {
                place.put("kubeconfig", by_data(&old));
                place.put("bootstrap", token());
            },
            Source::Bootstrap,
        ),
        (
            "files that are not there",
            &|place| {
                place.put("kubeconfig", json!({"client-certificate": "x", "client-key": "x"}));
                place.put("bootstrap", token());
            },
            Source::Bootstrap,
        ),
        (
            "a broken kubeconfig",
            &|place| {
                fs::write(place.path("kubeconfig"), "{{{").unwrap();
                place.put("bootstrap", token());
            },
            Source::Bootstrap,
        ),
        (
            "expired",
            &|place| (expired(place), place.put("bootstrap", token())).1,
            Source::Bootstrap,
        ),
        ("a token of its own", &|place| place.put("kubeconfig", token()), Source::Bootstrap),
    ];
    for (what, make, expected) in table {
        let place = Place::new();
        make(&place);
        assert_eq!(place.boot().prepare(START).source.unwrap(), expected, "{what}");
        let held = place.store().load(START).identity.filter(|held| held.is_valid_at(START));
        let wanted = expected != Source::Bootstrap;
        assert_eq!(held.is_some_and(|h| h.leaf().der() == good.leaf().der()), wanted, "{what}");
    }
}

#[test]
fn says_what_to_do_when_there_is_nothing() {
    let place = Place::new();
    place.store().save(&client_identity(START - Duration::days(9)), START).unwrap();
    place.put("kubeconfig", by_data(&client_identity(START - Duration::days(2))));
    let advice = |place: &Place| match place.boot().prepare(START).source.unwrap() {
        Source::Nothing(advice) => advice,
        other => panic!("{other:?}"),
    };
    let said = advice(&place);
    for part in [
        "kubelet-client-current.pem expired at 2026-02-21T12:00:00Z",
        "kubeconfig has a certificate that expired at 2026-02-28T12:00:00Z",
        "bootstrap is not there; put a kubeconfig with a new bootstrap token at ",
        "windlass token create",
    ] {
        assert!(said.contains(part), "{said}");
    }
    // No word of what is in it.
    fs::write(place.path("bootstrap"), "token: s3cr3t: [\n  - {").unwrap();
    let said = advice(&place);
    assert!(said.contains("bootstrap is no kubeconfig") && !said.contains("s3cr3t"), "{said}");
    let without = Place { bootstrap: false, ..place };
    assert!(advice(&without).contains("start with --bootstrap-kubeconfig"));
}

#[tokio::test]
async fn asks_as_whom_it_can() {
    let place = Place::new();
    assert!(place.boot().bootstrap_client(START).await.is_err());
    assert!(place.boot().cluster().await.unwrap_err().contains("where the server is"));
    place.put("bootstrap", token());
    place.boot().bootstrap_client(START).await.unwrap();
    let config = place.boot().cluster().await.unwrap();
    assert_eq!(config.cluster_url.to_string(), format!("{SERVER}/"));
    assert!(config.auth_info.token.is_none(), "only the way to the server");
    place.put("bootstrap", json!({}));
    let error = place.boot().bootstrap_client(START).await.err().unwrap();
    assert!(error.contains("has no credential"), "{error}");
    // An expired certificate of its own does not help.
    place.put("kubeconfig", by_data(&client_identity(START - Duration::days(9))));
    assert!(place.boot().bootstrap_client(START).await.is_err());
    place.put("kubeconfig", token());
    place.boot().bootstrap_client(START).await.unwrap();
}

#[test]
fn writes_the_kubeconfig_that_kubelet_would() {
    let place = Place::new();
    let cluster = json!({
        "server": SERVER, "certificate-authority": place.path("ca.crt"), "tls-server-name": "api",
    });
    place.put("bootstrap", token());
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
    let place = Place::new();
    place.put("bootstrap", token());
    let path = place.path("kubeconfig");
    let table = [
        (by_data(&client_identity(START)), false),
        (token(), false),
        (by_data(&client_identity(START - Duration::days(9))), true),
        (json!({"client-certificate": "x", "client-key": "x"}), true),
        (json!({}), true),
    ];
    for (user, expected) in table {
        place.put("kubeconfig", user);
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
fn a_node_that_begins_anew_may_do_so_elsewhere() {
    let place = Place::new();
    place.put("bootstrap", token());
    place.boot().write_kubeconfig(START).unwrap();
    let url = |place: &Place| place.boot().server().unwrap().server().unwrap().to_owned();
    place.put_with("bootstrap", "https://192.0.2.2:6443", token());
    // Not while its certificate is good.
    place.store().save(&client_identity(START), START).unwrap();
    assert_eq!(place.boot().prepare(START).source.unwrap(), Source::Managed);
    assert_eq!(url(&place), SERVER);
    let later = START + Duration::days(9);
    assert_eq!(place.boot().prepare(later).source.unwrap(), Source::Bootstrap);
    assert_eq!(url(&place), "https://192.0.2.2:6443");
}
