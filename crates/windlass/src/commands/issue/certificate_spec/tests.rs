use clap::Parser as _;

use super::*;
use crate::cli::{Cli, CliCommand};

fn arguments(line: &str) -> IssueArgs {
    let line = format!("windlass issue --out d {line}");
    match Cli::try_parse_from(shell(&line)).unwrap().command {
        CliCommand::Issue(arguments) => *arguments,
        other => panic!("{other:?}"),
    }
}

/// Splits a line into words; underscores stand for spaces within a word.
fn shell(line: &str) -> Vec<String> {
    line.split_whitespace().map(|word| word.replace('_', " ")).collect()
}

#[test]
fn usages_fit_the_signer() {
    let client = "kubernetes.io/kube-apiserver-client";
    let table = [
        (client, "", "client auth"),
        (client, "--key-type rsa-3072", "client auth"),
        (client, "--usage digital_signature,client_auth", "digital signature,client auth"),
        (
            "kubernetes.io/kube-apiserver-client-kubelet",
            "--key-type ed25519",
            "digital signature,client auth",
        ),
        (
            "kubernetes.io/kube-apiserver-client-kubelet",
            "--key-type rsa-4096",
            "digital signature,key encipherment,client auth",
        ),
        ("kubernetes.io/kubelet-serving", "", "digital signature,server auth"),
        (
            "kubernetes.io/kubelet-serving",
            "--key-type rsa-3072",
            "digital signature,key encipherment,server auth",
        ),
        ("example.com/web", "--key-type ecdsa-p384", "digital signature,server auth"),
        ("example.com/web", "--usage client_auth", "client auth"),
    ];
    for (signer, flags, usages) in table {
        let wanted = CertificateSpec::from_flags(&arguments(&format!("--signer {signer} --cn a {flags}")));
        assert_eq!(wanted.unwrap().usages.join(","), usages, "{signer} {flags}");
    }
}

#[test]
fn a_subject_or_name_is_required() {
    let nobody = CertificateSpec::from_flags(&arguments("--signer example.com/a")).unwrap_err();
    assert!(nobody.to_string().contains("--dns"), "{nobody}");
    for flags in ["--cn a", "--org a", "--dns a", "--ip ::1", "--uri urn:a", "--email a@b"] {
        assert!(CertificateSpec::from_flags(&arguments(&format!("--signer example.com/a {flags}"))).is_ok());
    }
    let mapped = arguments("--signer example.com/a --ip ::ffff:192.0.2.1");
    assert_eq!(CertificateSpec::from_flags(&mapped).unwrap().names.ip_addresses[0].to_string(), "192.0.2.1");
}

#[test]
fn renewal_requests_the_same_names() {
    let key = windlass_pki::PrivateKey::generate().unwrap();
    let ca = super::super::certificate_dir::tests::authority("jane", key);
    let certificate = ForeignCertificate::from_der(ca.certificate().der()).unwrap();
    let first = arguments("--signer example.com/a --cn jane --usage any --duration 1d --key-type ed25519");
    let note = CertificateSpec::from_flags(&first).unwrap().to_record();
    assert_eq!(IssueRecord::read(note.render().unwrap().as_bytes()).unwrap(), note);
    let there = RenewableCertificate { certificate, note: Some(note), anchors: None };

    let again = CertificateSpec::for_renewal(&there, &arguments("--renew")).unwrap();
    assert_eq!((again.signer.as_str(), again.usages.as_slice()), ("example.com/a", &["any".into()][..]));
    assert_eq!((again.seconds, again.key_type), (Some(86400), KeyType::Ed25519));
    assert_eq!(again.subject, IssuedSubject::new("jane", &[]));
    let flags = "--renew --duration 2h --key-type rsa-3072 --usage server_auth";
    let other = CertificateSpec::for_renewal(&there, &arguments(flags)).unwrap();
    assert_eq!((other.seconds, other.key_type), (Some(7200), KeyType::Rsa3072));
    assert_eq!(other.usages, ["server auth"]);
    // Usages that one signer accepts need not be valid for another.
    let other = CertificateSpec::for_renewal(&there, &arguments("--renew --signer example.com/b")).unwrap();
    assert_eq!(other.usages, ["digital signature", "server auth"]);

    let there = RenewableCertificate { note: None, ..there };
    assert!(CertificateSpec::for_renewal(&there, &arguments("--renew")).is_err());
    assert!(CertificateSpec::for_renewal(&there, &arguments("--renew --signer example.com/a")).is_ok());
}
