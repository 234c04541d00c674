use std::process::Command;

use super::*;
use crate::{EllipticCurve, HashAlgorithm, KeyAlgorithm};

/// Creates a request with OpenSSL, to test against another implementation.
fn openssl(arguments: &str) -> Vec<u8> {
    let mut command = Command::new("openssl");
    command.args("req -new -nodes -keyout /dev/null -outform DER -subj".split(' '));
    command.arg("/O=system:nodes/O=team:beta/O=team:alpha/CN=first/CN=system:node:a");
    let output = command.args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn verifies_what_go_verifies() {
    use SignatureAlgorithm::{Ecdsa, Ed25519, Rsa, RsaPss};
    let ec = |curve: &str| format!("-newkey ec -pkeyopt ec_paramgen_curve:{curve}");
    let pss = "-newkey rsa:2048 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:";
    let unsupported = Err(SignatureError::Unsupported);
    let small = Err(SignatureError::BadKey("RSA key has less than 1024 bits"));
    let table = [
        (format!("{} -sha256", ec("P-256")), Ecdsa(HashAlgorithm::Sha256), Ok(())),
        (format!("{} -sha256", ec("P-384")), Ecdsa(HashAlgorithm::Sha256), Ok(())),
        (format!("{} -sha512", ec("P-521")), Ecdsa(HashAlgorithm::Sha512), Ok(())),
        (format!("{} -sha1", ec("P-256")), Ecdsa(HashAlgorithm::Sha1), Ok(())),
        // Go verifies these two; the cryptographic library does not support them.
        (format!("{} -sha256", ec("P-224")), Ecdsa(HashAlgorithm::Sha256), unsupported),
        (format!("{} -sha1", ec("P-384")), Ecdsa(HashAlgorithm::Sha1), unsupported),
        ("-newkey ed25519".to_owned(), Ed25519, Ok(())),
        ("-newkey rsa:2048 -sha256".to_owned(), Rsa(HashAlgorithm::Sha256), Ok(())),
        ("-newkey rsa:2048 -sha384".to_owned(), Rsa(HashAlgorithm::Sha384), Ok(())),
        ("-newkey rsa:2048 -sha512".to_owned(), Rsa(HashAlgorithm::Sha512), Ok(())),
        ("-newkey rsa:2048 -sha1".to_owned(), Rsa(HashAlgorithm::Sha1), Ok(())),
        ("-newkey rsa:1024 -sha256".to_owned(), Rsa(HashAlgorithm::Sha256), Ok(())),
        ("-newkey rsa:1016 -sha256".to_owned(), Rsa(HashAlgorithm::Sha256), small),
        ("-newkey rsa:2048 -md5".to_owned(), Rsa(HashAlgorithm::Md5), Err(SignatureError::Insecure)),
        (format!("{pss}32 -sha256"), RsaPss(HashAlgorithm::Sha256), Ok(())),
        (format!("{pss}64 -sha512"), RsaPss(HashAlgorithm::Sha512), Ok(())),
        // Go supports only salts as long as the hash.
        (format!("{pss}20 -sha256"), SignatureAlgorithm::Unknown, unsupported),
    ];
    for (arguments, algorithm, verdict) in table {
        let der = openssl(&arguments);
        let request = CertificateRequest::from_der(&der).unwrap();
        assert_eq!(request.signature_algorithm(), algorithm, "{arguments}");
        assert_eq!(request.verify_signature(), verdict, "{arguments}");
        let mut broken = der.clone();
        *broken.last_mut().unwrap() ^= 1;
        let broken = CertificateRequest::from_der(&broken).unwrap();
        assert!(broken.verify_signature().is_err(), "{arguments}");
        let mut renamed = der;
        let at = renamed.windows(5).position(|window| window == b"nodes").unwrap();
        *renamed.get_mut(at).unwrap() = b'N';
        let renamed = CertificateRequest::from_der(&renamed).unwrap();
        assert!(renamed.verify_signature().is_err(), "{arguments}");
    }
}

#[test]
fn sees_names_and_extensions() {
    let names = "subjectAltName=DNS:a.example,DNS:*.b,IP:192.0.2.1,IP:2001:db8::1,URI:spiffe://a/b,email:x@y";
    let der = openssl(&format!(
        "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -addext {names} -addext basicConstraints=critical,CA:TRUE"
    ));
    let request = CertificateRequest::from_der(&der).unwrap();
    assert_eq!(request.subject().common_name(), "system:node:a");
    assert_eq!(request.subject().organizations(), ["system:nodes", "team:beta", "team:alpha"]);
    let oids = request.subject().attributes().iter().map(|one| one.oid()).collect::<Vec<_>>();
    assert_eq!(oids, ["2.5.4.10", "2.5.4.10", "2.5.4.10", "2.5.4.3", "2.5.4.3"]);
    assert_eq!(request.public_key().algorithm(), KeyAlgorithm::Ecdsa(EllipticCurve::P256));
    let names = request.alt_names();
    assert_eq!(names.dns_names, ["a.example", "*.b"]);
    assert_eq!(names.email_addresses, ["x@y"]);
    assert_eq!(names.uris, ["spiffe://a/b"]);
    let addresses = ["192.0.2.1", "2001:db8::1"].map(|text| text.parse::<std::net::IpAddr>().unwrap());
    assert_eq!(names.ip_addresses, addresses);
    let extensions = request.extensions().iter();
    let extensions = extensions.map(|one| (one.oid(), one.is_critical())).collect::<Vec<_>>();
    assert_eq!(extensions, [("2.5.29.17".to_owned(), false), ("2.5.29.19".to_owned(), true)]);
    assert_eq!(request.extensions().last().unwrap().value(), [0x30, 3, 1, 1, 0xff]);
    assert_eq!(request.der(), der);
}

#[test]
fn accepts_only_the_first_block() {
    let text = include_str!("../../../tests/verdicts/csr-dns.pem");
    let other = text.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST");
    let broken = text.replace("END CERTIFICATE", "END");
    let headed = text.replacen("-----\n", "-----\na: b\n\n", 1);
    for (text, good) in [
        (text.to_owned(), true),
        (format!("leading text\n{text}{other}trailing text"), true),
        (headed, true),
        (format!("{broken}{text}"), true),
        (format!("{other}{text}"), false),
        (other.clone(), false),
        (String::new(), false),
    ] {
        let read = CertificateRequest::from_pem(text.as_bytes());
        assert_eq!(read.is_ok(), good, "{text}");
        assert!(good || read.unwrap_err() == RequestError::Label);
    }
}

#[test]
fn finds_each_extension_once_in_all_attributes() {
    let wrapped =
        |kind: u8, contents: &[u8]| [&[kind, u8::try_from(contents.len()).unwrap()], contents].concat();
    // SEQUENCE { extensionRequest, SET { SEQUENCE { SEQUENCE { 2.5.29.<number>, '' } } } }
    let attribute = |number: u8| {
        let extension = wrapped(0x30, &[6, 3, 0x55, 0x1d, number, 4, 0]);
        let values = wrapped(0x31, &wrapped(0x30, &extension));
        wrapped(0x30, &[wrapped(6, EXTENSION_REQUEST), values].concat())
    };
    let count = |attributes: &[Vec<u8>]| {
        requested_extensions(DerReader::new(&attributes.concat())).map(|all| all.len())
    };
    assert_eq!(count(&[]), Ok(0));
    assert_eq!(count(&[attribute(19), attribute(15)]), Ok(2));
    assert_eq!(count(&[attribute(19), attribute(19)]), Err("duplicate requested extensions"));
    // Malformed attributes are skipped; malformed elements are errors.
    assert_eq!(count(&[vec![5, 0], attribute(19)]), Ok(1));
    assert_eq!(count(&[vec![0x9f, 0x1f, 0], attribute(19)]), Ok(1));
    assert_eq!(count(&[vec![5, 1], vec![]]), Err("malformed attribute"));
}
