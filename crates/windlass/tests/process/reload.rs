//! Certificates, CAs and tokens are reloaded when their files change; invalid ones are not used.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use hyper::Method;
use kube::config::{KubeConfigOptions, Kubeconfig};
use notify::{RecursiveMode, Watcher as _};
use serde_json::Value;
use windlass_pki::{AltName, CertificateAuthority, KeyPurpose, LeafTemplate, PrivateKey, issue, pem};
use windlass_testkit::{leaf_template, retry_async};

use crate::server::{PATIENCE, TestServer};

/// Polls until the result is `wanted`; each attempt is a separate request.
async fn wait_until_equal<F: Future<Output = T>, T: PartialEq + std::fmt::Debug>(
    wanted: T,
    try_it: impl Fn() -> F,
) {
    retry_async(PATIENCE, async || {
        let got = try_it().await;
        if got == wanted { Ok(()) } else { Err(format!("still {got:?}, not {wanted:?}")) }
    })
    .await;
}

/// Replaces a file with an atomic rename.
fn replace(path: &PathBuf, contents: &str) {
    let temporary = path.with_extension("new");
    fs::write(&temporary, contents).unwrap();
    fs::rename(temporary, path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_file_is_reloaded() {
    let server = TestServer::start();
    let file = server.place().path().join("tokens.csv");
    let before = fs::read_to_string(&file).unwrap();
    let newcomer = server.http_as("newcomer-token");
    let status = || async { newcomer.request(Method::GET, "/api/v1/namespaces", Value::Null).await.0 };
    assert_eq!(status().await, 401);
    replace(&file, &format!("{before}newcomer-token,newcomer,u,\"system:masters\"\n"));
    wait_until_equal(200, status).await;
    // An invalid file is reported, and the previous contents stay in use.
    replace(&file, "newcomer-token");
    let log = || async { server.place().log().contains("still using the previous contents") };
    wait_until_equal(true, log).await;
    assert_eq!(status().await, 200);
    replace(&file, &before);
    wait_until_equal(401, status).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_authorities_are_reloaded() {
    let server = TestServer::start();
    let file = server.place().data().join("pki/client-ca.crt");
    let ours = fs::read_to_string(&file).unwrap();
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
    // One connection: the new CAs apply to it, too.
    let client = kube::Client::try_from(config.await.unwrap()).unwrap();
    let answers = || async { client.list_core_api_versions().await.is_ok() };
    assert!(answers().await);
    replace(&file, &fs::read_to_string(server.place().data().join("pki/ca.crt")).unwrap());
    wait_until_equal(false, answers).await;
    replace(&file, &ours);
    wait_until_equal(true, answers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_serving_certificate_is_reloaded() {
    let server = TestServer::start();
    let pki = server.place().data().join("pki");
    let http = server.http();
    let served = || async {
        let stream = http.connect_tls().await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    let first = served().await;
    let (certificate, key) = issue_server_certificate(&pki);
    replace(&pki.join("server.key"), &key.to_pem().unwrap());
    replace(&pki.join("server.crt"), &pem::encode_certificates([certificate.as_slice()]));
    wait_until_equal(certificate.clone(), served).await;
    assert_ne!(first, certificate);
    // A certificate that does not match the key is not used.
    replace(&pki.join("server.crt"), &pem::encode_certificates([first.as_slice()]));
    wait_until_equal(true, || async { server.place().log().contains("still using the previous contents") })
        .await;
    assert_eq!(served().await, certificate);
}

/// Reading a file is an event of its directory, which must not cause another read.
#[tokio::test(flavor = "multi_thread")]
async fn unchanged_files_are_not_read_again() {
    const OBSERVATION: Duration = Duration::from_secs(3);
    let server = TestServer::start();
    let pki = server.place().data().join("pki");
    let reads = Arc::new(AtomicUsize::new(0));
    let count = reads.clone();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let event = event.unwrap();
        let opened = matches!(event.kind, notify::EventKind::Access(notify::event::AccessKind::Open(_)));
        // No other part of the server reads the key.
        if opened && event.paths.iter().any(|path| path.ends_with("server.key")) {
            count.fetch_add(1, SeqCst);
        }
    })
    .unwrap();
    watcher.watch(&pki, RecursiveMode::NonRecursive).unwrap();
    fs::read(pki.join("server.key")).unwrap();
    wait_until_equal(true, || async { reads.load(SeqCst) > 0 }).await;
    let before = reads.load(SeqCst);
    tokio::time::sleep(OBSERVATION).await;
    let reads = reads.load(SeqCst) - before;
    // Young files are read once more: a later write could have the same timestamp.
    assert!(reads <= 2, "{reads} reads in {OBSERVATION:?}");
}

/// Issues another serving certificate from the server's CA.
fn issue_server_certificate(pki: &std::path::Path) -> (Vec<u8>, PrivateKey) {
    let read = |name: &str| fs::read(pki.join(name)).unwrap();
    let ca = CertificateAuthority::from_pem(&read("ca.crt"), &read("ca.key")).unwrap();
    let key = PrivateKey::generate().unwrap();
    let leaf = LeafTemplate {
        alt_names: vec![AltName::Ip("127.0.0.1".parse().unwrap())],
        ..leaf_template("another", &[KeyPurpose::ServerAuth], ca.certificate().validity(), &key)
    };
    (issue(&ca, &leaf).unwrap(), key)
}
