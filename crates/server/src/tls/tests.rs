use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection, SupportedProtocolVersion};
use rustls_pki_types::ServerName;
use time::{Duration, OffsetDateTime};
use windlass_pki::{AltName, CertificateAuthority, KeyPurpose, LeafTemplate, PrivateKey, Validity, issue};
use windlass_testkit::{ca_with_validity, leaf_template};

use super::*;
use crate::chain::authn::client_cert::ClientCas;
use crate::chain::authn::client_cert::tests::version_1;

fn one_day() -> Validity {
    Validity::lasting(OffsetDateTime::now_utc() - Duration::HOUR, Duration::DAY).unwrap()
}

fn certificate(
    ca: &CertificateAuthority,
    key: &PrivateKey,
    purpose: KeyPurpose,
) -> windlass_pki::Certificate {
    let leaf = LeafTemplate {
        alt_names: vec![AltName::Dns("localhost".into())],
        ..leaf_template("jane", &[purpose], one_day(), key)
    };
    windlass_pki::Certificate::from_der(&CertificateDer::from(issue(ca, &leaf).unwrap())).unwrap()
}

/// Returns the certificates that the server sees after a handshake with a client that presents
/// `chain` and signs with `key`.
fn handshake(
    version: &'static SupportedProtocolVersion,
    chain: Vec<CertificateDer<'static>>,
    key: &PrivateKey,
) -> Result<Vec<CertificateDer<'static>>, rustls::Error> {
    let (ca, serving) = (ca_with_validity("ca", one_day()), PrivateKey::generate().unwrap());
    let pem = certificate(&ca, &serving, KeyPurpose::ServerAuth).to_pem();
    let server = tls_config(pem.as_bytes(), serving.to_pem().unwrap().as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let block = windlass_pki::pem::private_key(key.to_pem().unwrap().as_bytes()).unwrap();
    let der = PrivateKeyDer::try_from(block.contents.to_vec()).unwrap();
    let signer = provider.key_provider.load_private_key(der).unwrap();
    // Presents any certificate; the builder's own resolver validates it first.
    let presents = SingleCertAndKey::from(CertifiedKey::new(chain, signer));
    let mut roots = RootCertStore::empty();
    roots.add(ca.certificate().der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(presents));
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server.process_new_packets()?;
        let mut bytes = Vec::new();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut bytes.as_slice()).unwrap();
        client.process_new_packets()?;
    }
    let chain = server.peer_certificates().unwrap_or_default();
    Ok(chain.iter().map(|one| one.clone().into_owned()).collect())
}

#[test]
fn certificates_of_all_versions_come_through_the_handshake() {
    let (ca, key) = (ca_with_validity("ca", one_day()), PrivateKey::generate().unwrap());
    let new = certificate(&ca, &key, KeyPurpose::ClientAuth).der().clone();
    let old = version_1(&new, &ca);
    let cas = ClientCas::new(&[ca.certificate().der().clone()]).unwrap();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for certificate in [&new, &old] {
            let chain = handshake(version, vec![certificate.clone()], &key).unwrap();
            assert_eq!(chain, std::slice::from_ref(certificate));
            let verified = cas.verify(&chain, OffsetDateTime::now_utc()).unwrap();
            assert_eq!(verified.user.unwrap().name, "jane");
            // A stolen certificate without its key.
            let thief = PrivateKey::generate().unwrap();
            let refused = handshake(version, vec![certificate.clone()], &thief).unwrap_err();
            assert!(matches!(refused, rustls::Error::InvalidCertificate(_)), "{refused}");
            assert_eq!(certificate_failure(&refused), Some("client certificate rejected"));
        }
        let garbage = CertificateDer::from(vec![0x30, 0]);
        let refused = handshake(version, vec![garbage], &key).unwrap_err();
        assert_eq!(certificate_failure(&refused), Some("client certificate rejected"));
    }
}
