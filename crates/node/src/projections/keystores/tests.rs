use std::path::Path;

use windlass_pki::{AltNames, PrivateKey, parse_certificate_blocks};

use super::super::parser;
use super::*;
use crate::testing::{CertificateFixture, START};
use windlass_runtime::durable::FileSystem;

const FILE: &str = r#"apiVersion: windlass.dev/v1
kind: Projections
projections:
- name: web
  directory: /etc/web
  projected:
    sources:
    - clusterTrustBundle: {name: roots, path: ca.pem, optional: true}
    - podCertificate: {signerName: example.com/web, keyType: ECDSAP256, credentialBundlePath: web.pem}
    - podCertificate: {signerName: example.com/web, keyType: ECDSAP256, keyPath: tls.key, certificateChainPath: tls.crt}
    - secret: {name: extra, optional: true, items: [{key: ca, path: extra.pem}]}
  keystores:
  - {path: stores/trust.p12, format: PKCS12, trustAnchorsPath: ca.pem, password: changeit}
  - {path: stores/open.p12, format: PKCS12, trustAnchorsPath: ca.pem}
  - {path: stores/trust.jks, format: JKS, trustAnchorsPath: ca.pem, password: changeit}
  - {path: stores/key.p12, format: PKCS12, keyPath: web.pem, password: changeit, profile: LegacyRC2}
  - {path: stores/pair.p12, format: PKCS12, keyPath: tls.key, certificateChainPath: tls.crt, alias: pair, password: changeit}
  - {path: stores/extra.jks, format: JKS, trustAnchorsPath: extra.pem, password: changeit}
"#;

struct KeystoreInputs {
    anchors: String,
    key: Zeroizing<String>,
    chain: String,
    mode: u32,
}

fn path(text: &str) -> VolumePath {
    VolumePath::parse(text).unwrap()
}

fn projection(text: &str) -> HostProjection {
    parser::parse(Path::new("p.yaml"), text.as_bytes(), &FileSystem::default()).unwrap().remove(0)
}

fn inputs() -> KeystoreInputs {
    let key = PrivateKey::generate().unwrap();
    let chain = CertificateFixture { names: AltNames::default(), ..CertificateFixture::client(START) };
    let chain = chain.pem(key.public_key());
    let anchors = crate::testing::client_identity(START);
    let anchors = anchors.chain().map(|one| one.der().to_vec()).collect::<Vec<_>>();
    let anchors = pem::encode_certificates(anchors.iter().map(Vec::as_slice));
    KeystoreInputs { anchors, key: key.to_pem().unwrap(), chain, mode: 0o644 }
}

impl KeystoreInputs {
    fn payload(&self) -> VolumePayload {
        let mut payload = VolumePayload::new(Some(7));
        let bundle = format!("{}{}", *self.key, self.chain);
        for (at, text) in [
            ("ca.pem", self.anchors.as_str()),
            ("web.pem", &bundle),
            ("tls.key", &self.key),
            ("tls.crt", &self.chain),
        ] {
            let file = PayloadFile { owner: Some(9), ..PayloadFile::new(text.as_bytes(), self.mode) };
            payload.add(path(at), file).unwrap();
        }
        payload
    }
}

/// Returns whether `file` contains these bytes.
fn holds(file: &PayloadFile, wanted: &[u8]) -> bool {
    file.bytes.windows(wanted.len()).any(|found| found == wanted)
}

#[test]
fn stores_are_made_of_the_files_and_always_the_same() {
    let (projection, inputs) = (projection(FILE), inputs());
    let finished = projection.finish(inputs.payload()).unwrap();
    assert_eq!(finished.group(), Some(7));
    assert!(finished == projection.finish(inputs.payload()).unwrap());

    let anchors = parse_certificate_blocks(inputs.anchors.as_bytes()).unwrap();
    let chain = parse_certificate_blocks(inputs.chain.as_bytes()).unwrap();
    let key = PrivateKey::from_pem(inputs.key.as_bytes()).unwrap();
    let password = windlass_pki::KeystorePassword::new("changeit").unwrap();
    let sealed = KeystoreProtection::Sealed { password: &password, profile: Pkcs12Profile::Modern2023 };
    let trust = TrustStore::new(&anchors);
    let store =
        |alias, profile| KeyStore::new(alias, &key, &chain).unwrap().to_pkcs12(&password, profile).unwrap();
    for (at, bytes, mode) in [
        ("stores/trust.p12", trust.to_pkcs12(&sealed).unwrap(), 0o644),
        ("stores/open.p12", trust.to_pkcs12(&KeystoreProtection::Open).unwrap(), 0o644),
        ("stores/trust.jks", trust.to_jks(&password).unwrap(), 0o644),
        ("stores/key.p12", store("web", Pkcs12Profile::LegacyRc2), 0o640),
        ("stores/pair.p12", store("pair", Pkcs12Profile::Modern2023), 0o640),
    ] {
        let file = finished.get(&path(at)).unwrap();
        assert!(*file.bytes == bytes, "{at}");
        assert_eq!((file.mode, file.owner), (mode, Some(9)), "{at}");
    }
    // Neither of these is encrypted, so their content is visible.
    for at in ["stores/open.p12", "stores/trust.jks"] {
        assert!(holds(finished.get(&path(at)).unwrap(), anchors[0].der()), "{at}");
    }
    // The secret is optional, and so is the keystore built from it.
    assert!(finished.get(&path("stores/extra.jks")).is_none());
    assert_eq!(finished.files().len(), 9);
}

#[test]
fn keys_are_not_for_others_to_read() {
    let (projection, inputs) = (projection(FILE), inputs());
    let finished = projection.finish(inputs.payload()).unwrap();
    let mode = |at| finished.get(&path(at)).unwrap().mode;
    assert_eq!([mode("web.pem"), mode("tls.key")], [0o640; 2]);
    assert_eq!([mode("ca.pem"), mode("tls.crt")], [0o644; 2]);
    let finished = projection.finish(KeystoreInputs { mode: 0o600, ..inputs }.payload()).unwrap();
    assert!(finished.files().all(|(_, file)| file.mode == 0o600), "{finished:?}");
}

#[test]
fn without_anchors_there_is_a_store_without_any() {
    let inputs = KeystoreInputs { anchors: String::new(), ..inputs() };
    let finished = projection(FILE).finish(inputs.payload()).unwrap();
    let password = windlass_pki::KeystorePassword::new("changeit").unwrap();
    let empty = TrustStore::new([]).to_jks(&password).unwrap();
    assert!(*finished.get(&path("stores/trust.jks")).unwrap().bytes == empty);
}

#[test]
fn build_errors_are_reported() {
    let good = inputs();
    let other = PrivateKey::generate().unwrap().to_pem().unwrap();
    let KeystoreInputs { anchors, key, chain, .. } = &good;
    let case = |anchors: &str, key: &str, chain: &str| KeystoreInputs {
        anchors: anchors.to_owned(),
        key: Zeroizing::new(key.to_owned()),
        chain: chain.to_owned(),
        mode: 0o644,
    };
    let cases = [
        (case("no pem", key, chain), "stores/trust.p12: ca.pem: no certificate found"),
        (case(anchors, "", chain), "stores/key.p12: web.pem: no private key found"),
        (
            case(anchors, &format!("{}{}", **key, *other), chain),
            "stores/pair.p12: tls.key: more than one private key",
        ),
        (
            case(anchors, &other, chain),
            "stores/key.p12: the private key does not belong to the first certificate",
        ),
        (case(anchors, key, ""), "stores/pair.p12: tls.crt: no certificate found"),
    ];
    for (inputs, told) in cases {
        let BlockedReason(reasons) = projection(FILE).finish(inputs.payload()).unwrap_err();
        assert!(reasons.iter().any(|why| why == told), "{told} is not in {reasons:#?}");
        assert!(!reasons.concat().contains("BEGIN PRIVATE"), "{reasons:?}");
    }
    let text = FILE.replacen("password: changeit", "passwordFile: /nowhere/at/all", 1);
    let BlockedReason(reasons) = projection(&text).finish(good.payload()).unwrap_err();
    assert_eq!(reasons, ["stores/trust.p12: /nowhere/at/all: file not found"]);
    let BlockedReason(reasons) = projection(FILE).finish(VolumePayload::new(None)).unwrap_err();
    assert!(reasons.contains(&"stores/trust.p12: ca.pem is not in the volume".to_owned()));
    assert_eq!(reasons.len(), 5, "{reasons:#?}");
}

#[test]
fn path_conflicts_are_reported() {
    let text =
        FILE.replace(", items: [{key: ca, path: extra.pem}]", "").replace("stores/open.p12", "late.p12");
    let mut payload = inputs().payload();
    payload.add(path("late.p12"), PayloadFile::new("x", 0o644)).unwrap();
    let BlockedReason(reasons) = projection(&text).finish(payload).unwrap_err();
    assert_eq!(reasons, ["conflicting duplicate paths: late.p12"]);
}
