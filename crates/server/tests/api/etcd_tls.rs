//! Connections to an etcd that requires client certificates, with real files.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use tempfile::TempDir;
use time::{Duration, OffsetDateTime};
use windlass_pki::{
    AltName, CertificateAuthority, KeyPurpose, LeafTemplate, PrivateKey, Validity, issue, pem,
};
use windlass_store::{
    Error, EtcdOptions, EtcdStore, EtcdTlsFiles, KeyChange, Store, WritePrecondition, WriteRequest,
};
use windlass_testkit::etcd::{EtcdCluster, MemberAddress};
use windlass_testkit::{ca_with_validity, leaf_template};

/// A CA and a directory for its certificates.
struct TlsFiles {
    authority: CertificateAuthority,
    dir: TempDir,
}

impl TlsFiles {
    fn new(name: &str) -> TlsFiles {
        let files =
            TlsFiles { authority: ca_with_validity(name, validity()), dir: tempfile::tempdir().unwrap() };
        let certificate = files.authority.certificate().der().to_vec();
        fs::write(files.path("ca.crt"), pem::encode_certificates([&certificate[..]])).unwrap();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes a certificate and its key.
    fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = key();
        let leaf = LeafTemplate {
            alt_names: vec![AltName::Dns("localhost".into()), AltName::Ip("127.0.0.1".parse().unwrap())],
            // A member is also its own client, through its JSON gateway.
            ..leaf_template(name, &[KeyPurpose::ServerAuth, KeyPurpose::ClientAuth], validity(), &key)
        };
        let certificate = issue(&self.authority, &leaf).unwrap();
        let (cert, secret) = (self.path(&format!("{name}.crt")), self.path(&format!("{name}.key")));
        fs::write(&cert, pem::encode_certificates([&certificate[..]])).unwrap();
        fs::write(&secret, key.to_pem().unwrap().as_bytes()).unwrap();
        (cert, secret)
    }
}

fn key() -> PrivateKey {
    PrivateKey::generate().unwrap()
}

fn validity() -> Validity {
    let now = OffsetDateTime::now_utc();
    Validity::new(now - Duration::days(1), now + Duration::days(1)).unwrap()
}

/// Returns the flags of an etcd that trusts the clients of one CA.
fn flags(files: &TlsFiles, clients: &TlsFiles) -> Vec<String> {
    files.issue("member");
    vec![
        format!("--cert-file={}", files.text("member.crt")),
        format!("--key-file={}", files.text("member.key")),
        format!("--trusted-ca-file={}", clients.text("ca.crt")),
        "--client-cert-auth".to_owned(),
    ]
}

fn open(url: &str, tls: EtcdTlsFiles, patience: u64) -> Result<EtcdStore, Error> {
    let mut options = EtcdOptions::new([url]);
    options.attempt = std::time::Duration::from_secs(10);
    options.patience = std::time::Duration::from_secs(patience);
    options.tls = Some(tls);
    EtcdStore::open(options)
}

fn put(value: &'static str) -> WriteRequest {
    WriteRequest { key: "k".into(), expect: WritePrecondition::Any, change: KeyChange::Put(value.into()) }
}

/// Commits, retrying until it succeeds.
async fn commit_at_last(store: &EtcdStore, write: WriteRequest) {
    let begun = Instant::now();
    while let Err(error) = store.commit(write.clone()).await {
        assert!(begun.elapsed().as_secs() < 30, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_clients_with_valid_certificates_connect() {
    let (files, strange) = (TlsFiles::new("one"), TlsFiles::new("other"));
    let place = MemberAddress::on_loopback("https").unwrap();
    let (address, named) = (place.client.clone(), place.client.replace("127.0.0.1", "localhost"));
    let flags = flags(&files, &files);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let _cluster = EtcdCluster::start_at(vec![place], &flags).unwrap();
    let ca = Some(files.path("ca.crt"));
    for url in [&address, &named] {
        let tls = EtcdTlsFiles { ca: ca.clone(), identity: Some(files.issue("client")) };
        let store = open(url, tls, 30).unwrap();
        store.commit(put("1")).await.unwrap();
    }
    let another = strange.issue("client");
    for (what, tls, said) in [
        (
            "a member of another authority",
            EtcdTlsFiles { ca: Some(strange.path("ca.crt")), identity: Some(files.issue("client")) },
            "invalid peer certificate: UnknownIssuer",
        ),
        ("no certificate", EtcdTlsFiles { ca: ca.clone(), identity: None }, "and none is configured"),
        (
            "a certificate of another authority",
            EtcdTlsFiles { ca: ca.clone(), identity: Some(another.clone()) },
            "may reject the client certificate",
        ),
        (
            "a key that is another's",
            EtcdTlsFiles { ca: ca.clone(), identity: Some((files.path("client.crt"), another.1)) },
            "cannot use the certificates",
        ),
        (
            "a file that is not there",
            EtcdTlsFiles { ca: Some(files.path("none.crt")), identity: None },
            "none.crt: No such file",
        ),
    ] {
        let error = open(&address, tls, 1).err().unwrap_or_else(|| panic!("{what}")).to_string();
        assert!(error.contains(said), "{what}: {error}");
        assert!(!error.contains("PRIVATE"), "{error}");
    }
}

/// Certificates are reloaded for every connection; while the files are invalid, the last valid ones
/// are used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_certificates_are_used_from_the_next_connection_on() {
    let (old, new) = (TlsFiles::new("one"), TlsFiles::new("other"));
    let place = MemberAddress::on_loopback("https").unwrap();
    let url = place.client.clone();
    let with_old = flags(&old, &old);
    let with_old: Vec<_> = with_old.iter().map(String::as_str).collect();
    let mut cluster = EtcdCluster::start_at(vec![place], &with_old).unwrap();
    let (cert, key) = old.issue("client");
    let tls = EtcdTlsFiles { ca: Some(old.path("ca.crt")), identity: Some((cert.clone(), key.clone())) };
    let store = open(&url, tls, 30).unwrap();
    store.commit(put("1")).await.unwrap();
    // Half of a pair has been replaced.
    let fresh = new.issue("client");
    fs::copy(&fresh.0, &cert).unwrap();
    cluster.members_mut()[0].kill().unwrap();
    cluster.members_mut()[0].restart(&with_old).unwrap();
    commit_at_last(&store, put("2")).await;
    // CA, member and client are all new.
    fs::copy(&fresh.1, &key).unwrap();
    fs::copy(new.path("ca.crt"), old.path("ca.crt")).unwrap();
    let with_new = flags(&new, &new);
    let with_new: Vec<_> = with_new.iter().map(String::as_str).collect();
    cluster.members_mut()[0].kill().unwrap();
    cluster.members_mut()[0].restart(&with_new).unwrap();
    commit_at_last(&store, put("3")).await;
    assert_eq!(store.get("k").await.unwrap().unwrap().value, "3");
}
