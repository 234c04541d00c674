use std::fs;

use time::OffsetDateTime;

use super::*;
use crate::datadir::{self, ServerSite};

pub fn data(directory: &Path) -> DataDir {
    let site = ServerSite {
        listen: "127.0.0.1:6443".parse().unwrap(),
        hostname: None,
        names: vec![AltName::Dns("lb.example".into())],
        external_url: None,
        write_kubeconfig: true,
        makes_kubelet_serving_ca: true,
    };
    datadir::prepare(DataDirLayout::new(directory), site, OffsetDateTime::now_utc()).unwrap()
}

fn certificate(data: &DataDir, name: &str) -> Certificate {
    Certificate::from_pem(&fs::read(data.layout.pki_file(name)).unwrap()).unwrap()
}

/// No signer uses the CA with which clients verify the server, and no serving certificate is issued
/// by the CA with which the server verifies clients.
#[test]
fn only_the_server_itself_has_a_certificate_of_the_serving_ca() {
    let directory = tempfile::tempdir().unwrap();
    let data = data(directory.path());
    let [serving, clients, kubelets] =
        ["ca.crt", "client-ca.crt", "kubelet-serving-ca.crt"].map(|name| certificate(&data, name));
    let signers = built_in_signers(&data.layout, None, &system_clock());
    assert_eq!(signers.len(), KubernetesSigner::ALL.len(), "all of them sign");
    for BuiltInSigner { signer, ca } in &signers {
        let ca = ca.current().unwrap();
        assert!(ca.certificate().public_key() != serving.public_key(), "{signer:?}");
        let wanted = match signer {
            KubernetesSigner::Client | KubernetesSigner::KubeletClient => &clients,
            KubernetesSigner::KubeletServing | KubernetesSigner::LegacyUnknown => &kubelets,
        };
        assert_eq!(ca.certificate().der(), wanted.der(), "{signer:?}");
    }
    // With a CA that differs from the recorded one, these two signers sign nothing.
    let other = plane_fingerprint_of_nobody();
    for BuiltInSigner { signer, ca } in built_in_signers(&data.layout, Some(other), &system_clock()) {
        let signs = matches!(signer, KubernetesSigner::Client | KubernetesSigner::KubeletClient);
        assert_eq!(ca.current().is_some(), signs, "{signer:?}");
    }
}

fn plane_fingerprint_of_nobody() -> String {
    format!("sha256:{}", "0".repeat(64))
}

#[test]
fn the_names_of_the_server_are_those_of_its_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let data = data(directory.path());
    assert_eq!(data.server_names, certificate(&data, "server.crt").alt_names());
    let names: Vec<String> = data.server_names.iter().map(name_text).collect();
    for name in ["localhost", "127.0.0.1", "kubernetes.default.svc", "lb.example"] {
        assert!(names.iter().any(|found| found == name), "{name}: {names:?}");
    }
}
