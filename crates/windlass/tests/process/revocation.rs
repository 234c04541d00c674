//! Runs the documentation page about revocation: OpenSSL and rustls reject the certificate that is revoked.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls_pki_types::{CertificateRevocationListDer, ServerName, UnixTime};
use windlass_pki::{CertificateRevocationList, pem};

use crate::server::{PATIENCE, TestDataDir};
use crate::trust_docs::{code_blocks, paste, programs};

const PAGE: &str = include_str!("../../../../docs/revocation.md");

/// Verifies the certificate of a server with its list, as a rustls client does.
fn verify(place: &Path, name: &str) -> Result<(), rustls::Error> {
    let read = |file: &str| fs::read(place.join(file)).unwrap();
    let mut roots = RootCertStore::empty();
    for anchor in pem::certificates(&read(&format!("{name}/ca.crt"))).unwrap() {
        roots.add(anchor).unwrap();
    }
    let list = CertificateRevocationList::from_pem(&read("crl.pem")).unwrap();
    let lists = [CertificateRevocationListDer::from(list.der().to_vec())];
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
    let verifier = builder.with_crls(lists).enforce_revocation_expiration().build().unwrap();
    let chain = pem::certificates(&read(&format!("{name}/tls.crt"))).unwrap();
    let (leaf, intermediates) = chain.split_first().unwrap();
    let server = ServerName::try_from(format!("{name}.example.com")).unwrap();
    verifier.verify_server_cert(leaf, intermediates, &server, &[], UnixTime::now()).map(drop)
}

#[test]
fn everything_can_be_pasted() {
    let place = TestDataDir::new();
    let server = place.start();
    let path = server.place().path().to_owned();
    fs::write(path.join("signer.yaml"), code_blocks(PAGE, "yaml")[0]).unwrap();
    let kubeconfig = server.place().data().join("admin.kubeconfig");
    let script = format!("export KUBECONFIG={}\n", kubeconfig.display()) + &code_blocks(PAGE, "sh").concat();
    let said = paste(&server, &script, &programs(&path), PATIENCE * 4);
    for words in [" revoked (keyCompromise)", "mail/tls.crt: OK\n", "rejected\n", "nextUpdate=", "Revoked"] {
        assert!(said.contains(words), "{words} in\n{said}");
    }
    assert!(
        said.contains("example.com/web-tls") && said.contains("kubernetes.io/kube-apiserver-client"),
        "{said}"
    );
    let list = CertificateRevocationList::from_pem(&fs::read(path.join("crl.pem")).unwrap()).unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!(list.next_update() - list.this_update(), time::Duration::hours(12));
    verify(&path, "mail").unwrap();
    let error = format!("{:?}", verify(&path, "www").unwrap_err());
    assert!(error.contains("Revoked"), "{error}");
}
