//! Upgrade of a data directory from before Signer objects and the ledger: CAs, published bundles and pending requests
//! survive.

use std::fs;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use serde_json::{Value, json};
use windlass_pki::{AltNames, Certificate, IssuedSubject, PrivateKey, build_csr};
use windlass_testkit::{HttpClient, retry_async};

use crate::controllers::{REQUESTS, server, wait_for_certificate};
use crate::ledger::{certificate_serial, recorded_serials};
use crate::server::{PATIENCE, TestDataDir};
use crate::signing::authority;

const SIGNERS_FILE: &str = include_str!("../../../../examples/custom-signer/signers.yaml");
const BUNDLE: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
const BUNDLE_NAME: &str = "example.com:server-tls:anchors";
const SIGNERS: &str = "/apis/windlass.dev/v1alpha1/signers";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
/// Default roles that did not exist.
const NEW_ROLES: [&str; 3] = ["windlass:crl-viewer", "windlass:certificate-viewer", "windlass:ledger-writer"];

async fn send(http: &HttpClient, method: Method, path: &str, body: Value) -> Value {
    let (code, answer) = http.request(method, path, body).await;
    assert!((200..300).contains(&code), "{path}: {answer}");
    answer
}

/// A bundle as the version before wrote it.
fn bundle(ca: &Certificate) -> Value {
    let fingerprint: String = ca.fingerprint().iter().map(|byte| format!("{byte:02x}")).collect();
    json!({
        "metadata": {
            "name": BUNDLE_NAME,
            "labels": {"app.kubernetes.io/managed-by": "windlass", "example.com/stage": "live"},
            "annotations": {
                "windlass.dev/anchor": fingerprint,
                "windlass.dev/anchors": json!({fingerprint: {"maxDurationSeconds": 2160 * 3600}}).to_string(),
            },
        },
        "spec": {"signerName": "example.com/server-tls", "trustBundle": ca.to_pem()},
    })
}

/// Creates an approved request that no controller has seen.
async fn create_pending_request(http: &HttpClient) {
    let names = AltNames { dns_names: vec!["web.example.com".to_owned()], ..AltNames::default() };
    let subject = IssuedSubject::new("web.example.com", &[]);
    let pem = build_csr(&PrivateKey::generate().unwrap(), &subject, &names).unwrap();
    let request = json!({"metadata": {"name": "pending"}, "spec": {
        "request": STANDARD.encode(pem),
        "signerName": "example.com/server-tls",
        "usages": ["digital signature", "server auth"],
    }});
    let mut request = send(http, Method::POST, REQUESTS, request).await;
    request["status"]["conditions"] = json!([{"type": "Approved", "status": "True", "reason": "Tested"}]);
    send(http, Method::PUT, &format!("{REQUESTS}/pending/approval"), request).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_data_directory_starts_with_its_cas_bundles_and_requests() {
    let place = TestDataDir::new();
    let folder = place.data().join("ca/server-tls");
    fs::create_dir_all(&folder).unwrap();
    let ca = authority("example.com/server-tls", -3600, 900 * 24 * 3600);
    let written = [("ca.crt", ca.certificate().to_pem()), ("ca.key", ca.key().to_pem().unwrap().to_string())];
    for (name, text) in &written {
        fs::write(folder.join(name), text).unwrap();
    }
    // Without controllers, nothing of the new kinds is written.
    let old = server(place, [""; 0]);
    let http = old.http();
    let before = send(&http, Method::POST, BUNDLE, bundle(ca.certificate())).await;
    create_pending_request(&http).await;
    for role in NEW_ROLES {
        send(&http, Method::DELETE, &format!("{ROLES}/{role}"), Value::Null).await;
    }
    let place = old.stop();
    fs::write(place.data().join("signers.yaml"), SIGNERS_FILE).unwrap();

    let up = place.start();
    let http = up.http();
    wait_for_certificate(&http, "pending", PATIENCE).await;
    let request = send(&http, Method::GET, &format!("{REQUESTS}/pending"), Value::Null).await;
    let issued = STANDARD.decode(request["status"]["certificate"].as_str().unwrap()).unwrap();
    fs::write(folder.join("issued.crt"), &issued).unwrap();
    let mut verify = Command::new("openssl");
    verify.args(["verify", "-CAfile", "ca.crt", "issued.crt"]).current_dir(&folder);
    assert!(verify.status().unwrap().success(), "{}", String::from_utf8_lossy(&issued));
    assert_eq!(recorded_serials(&http).await.get(&certificate_serial(&issued)), Some(&1));
    retry_async(PATIENCE, async || {
        let (_, signer) =
            http.request(Method::GET, &format!("{SIGNERS}/server-tls.example.com"), Value::Null).await;
        let conditions = signer["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_true =
            |kind: &str| conditions.iter().any(|each| each["type"] == kind && each["status"] == "True");
        if is_true("Ready") && is_true("Published") { Ok(()) } else { Err(signer.to_string()) }
    })
    .await;
    let after = send(&http, Method::GET, &format!("{BUNDLE}/{BUNDLE_NAME}"), Value::Null).await;
    assert_eq!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    for (name, text) in &written {
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), *text, "{name}");
    }
    for role in NEW_ROLES {
        send(&http, Method::GET, &format!("{ROLES}/{role}"), Value::Null).await;
    }
}
