use time::Duration;
use time::macros::datetime;
use windlass_pki::{CertificateAuthority, KeyPurpose, LeafTemplate, PrivateKey, Subject, Validity, issue};
use windlass_testkit::{ca_with_validity, leaf_template, random_serial};

use super::*;

const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);

fn days(from: i64, until: i64) -> Validity {
    Validity::new(NOW + Duration::days(from), NOW + Duration::days(until)).unwrap()
}

fn leaf(
    ca: &CertificateAuthority,
    subject: Subject,
    purposes: &[KeyPurpose],
    validity: Validity,
) -> CertificateDer<'static> {
    let key = PrivateKey::generate().unwrap();
    let leaf = LeafTemplate {
        subject,
        alt_names: vec![windlass_pki::AltName::Dns("a.example".into())],
        purposes: purposes.to_vec(),
        validity,
        public_key: key.public_key(),
        serial: random_serial(),
    };
    issue(ca, &leaf).unwrap().into()
}

fn jane() -> Subject {
    Subject::with_user_ids("jane", &["dev", "ops"], &["42"]).unwrap()
}

fn cas(cas: &[&CertificateAuthority]) -> ClientCas {
    let ders: Vec<CertificateDer<'_>> = cas.iter().map(|ca| ca.certificate().der().clone()).collect();
    ClientCas::new(&ders).unwrap()
}

fn name(cas: &ClientCas, chain: &[CertificateDer<'_>]) -> Result<String, ClientCertError> {
    cas.verify(chain, NOW)?.user.map(|user| user.name.clone())
}

#[test]
fn a_certificate_identifies_its_user() {
    let (ca, other) = (ca_with_validity("ca", days(-9, 9)), ca_with_validity("other", days(-9, 9)));
    let chain = [leaf(&ca, jane(), &[KeyPurpose::ClientAuth], days(-1, 1))];
    let verified = cas(&[&other, &ca]).verify(&chain, NOW).unwrap();
    let user = verified.user.unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "42"));
    assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
    let id = &user.extra["authentication.kubernetes.io/credential-id"];
    assert!(id.len() == 1 && id[0].len() == 11 + 64 && id[0].starts_with("X509SHA256="), "{id:?}");
    assert_eq!(verified.until, NOW + Duration::days(1));
}

#[test]
fn only_client_certificates_of_the_cas_authenticate() {
    let (ca, other) = (ca_with_validity("ca", days(-9, 9)), ca_with_validity("ca", days(-9, 9)));
    let trusted = cas(&[&ca]);
    let client = [KeyPurpose::ClientAuth];
    for (what, der, ok) in [
        ("good", leaf(&ca, jane(), &client, days(-1, 1)), true),
        ("no usage", leaf(&ca, jane(), &[], days(-1, 1)), true),
        ("any usage", leaf(&ca, jane(), &[KeyPurpose::Any], days(-1, 1)), true),
        ("both", leaf(&ca, jane(), &[KeyPurpose::ServerAuth, KeyPurpose::ClientAuth], days(-1, 1)), true),
        ("serving only", leaf(&ca, jane(), &[KeyPurpose::ServerAuth], days(-1, 1)), false),
        ("expired", leaf(&ca, jane(), &client, days(-2, -1)), false),
        ("not yet valid", leaf(&ca, jane(), &client, days(1, 2)), false),
        ("another CA of that name", leaf(&other, jane(), &client, days(-1, 1)), false),
        ("the CA itself", ca.certificate().der().clone(), false),
        ("no certificate", CertificateDer::from(vec![0x30, 0]), false),
    ] {
        assert_eq!(name(&trusted, std::slice::from_ref(&der)).is_ok(), ok, "{what}");
        assert!(name(&ClientCas::default(), &[der]).is_err(), "{what}");
    }
    assert!(matches!(name(&trusted, &[]), Err(ClientCertError::Unreadable)));
}

#[test]
fn a_certificate_without_exactly_one_common_name_is_rejected() {
    let ca = ca_with_validity("ca", days(-9, 9));
    let trusted = cas(&[&ca]);
    let refused = |subject: Subject| {
        name(&trusted, &[leaf(&ca, subject, &[KeyPurpose::ClientAuth], days(-1, 1))]).unwrap_err()
    };
    let nameless = Subject::new("", &["system:masters"]).unwrap();
    assert!(matches!(refused(nameless), ClientCertError::Nameless));
    let two = Subject::with_user_ids("jane", &[], &["42", "43"]).unwrap();
    assert!(matches!(refused(two), ClientCertError::UserId));
}

#[test]
fn an_expired_ca_verifies_no_client() {
    let ca = ca_with_validity("ca", days(-9, 1));
    let chain = [leaf(&ca, jane(), &[KeyPurpose::ClientAuth], days(-1, 1))];
    let trusted = cas(&[&ca]);
    assert!(trusted.verify(&chain, NOW).is_ok());
    assert!(trusted.verify(&chain, NOW + Duration::days(2)).is_err());
    // A leaf cannot outlive its CA, so the CA is replaced by one that expires earlier.
    let ending = |validity| {
        let key = PrivateKey::from_pem(ca.key().to_pem().unwrap().as_bytes()).unwrap();
        let subject = Subject::new("ca", &[]).unwrap();
        cas(&[&CertificateAuthority::self_signed(&subject, validity, key, random_serial()).unwrap()])
    };
    assert!(ending(days(-9, -1)).verify(&chain, NOW).is_err());
    let soon = ending(Validity::lasting(NOW, Duration::hours(1)).unwrap());
    assert_eq!(soon.verify(&chain, NOW).unwrap().until, NOW + Duration::hours(1));
}

#[test]
fn intermediates_come_with_the_handshake() {
    let root = ca_with_validity("root", days(-9, 9));
    let between = |above: &CertificateAuthority, name: &str, validity| {
        let (subject, key) = (Subject::new(name, &[]).unwrap(), PrivateKey::generate().unwrap());
        above.intermediate(&subject, validity, key, random_serial()).unwrap()
    };
    let middle = between(&root, "middle", days(-9, 1));
    let chain =
        [leaf(&middle, jane(), &[KeyPurpose::ClientAuth], days(-1, 1)), middle.certificate().der().clone()];
    let trusted = cas(&[&root]);
    assert_eq!(name(&trusted, &chain).unwrap(), "jane");
    assert!(name(&trusted, &chain[..1]).is_err(), "the intermediate is missing");
    assert!(name(&cas(&[&ca_with_validity("root", days(-9, 9))]), &chain).is_err());
    assert!(trusted.verify(&chain, NOW + Duration::days(2)).is_err());
    let long: Vec<_> = std::iter::repeat_n(chain[1].clone(), limits::CHAIN).collect();
    let long = [vec![chain[0].clone()], long].concat();
    assert!(matches!(name(&trusted, &long), Err(ClientCertError::LongChain)));
    let mut deep = root;
    let mut path = Vec::new();
    for i in 0..limits::CHAIN - 1 {
        deep = between(&deep, &format!("ca {i}"), days(-9, 9));
        path.insert(0, deep.certificate().der().clone());
    }
    path.insert(0, leaf(&deep, jane(), &[KeyPurpose::ClientAuth], days(-1, 1)));
    assert!(matches!(name(&trusted, &path), Err(ClientCertError::Untrusted(_))));
}

#[test]
fn a_pem_file_may_hold_several_cas() {
    let (one, two) = (ca_with_validity("one", days(-9, 9)), ca_with_validity("two", days(-9, 9)));
    let text = format!("{}{}", one.certificate().to_pem(), two.certificate().to_pem());
    let trusted = ClientCas::from_pem(text.as_bytes()).unwrap();
    for ca in [&one, &two] {
        let chain = [leaf(ca, jane(), &[KeyPurpose::ClientAuth], days(-1, 1))];
        assert_eq!(name(&trusted, &chain).unwrap(), "jane");
    }
    assert!(trusted.overlaps(&cas(&[&two])));
    assert!(!cas(&[&one]).overlaps(&cas(&[&two])));
    assert!(ClientCas::from_pem(b"").is_err());
    assert!(!trusted.is_empty());
}

/// Returns a DER element and the offset of its contents.
fn element(der: &[u8]) -> (&[u8], usize) {
    let (start, length) = match der[1] {
        short @ ..=0x7f => (2, usize::from(short)),
        0x81 => (3, usize::from(der[2])),
        0x82 => (4, usize::from(der[2]) << 8 | usize::from(der[3])),
        other => panic!("a length of {other:x}"),
    };
    (&der[..start + length], start)
}

fn wrapped(tag: u8, contents: &[u8]) -> Vec<u8> {
    let length = u16::try_from(contents.len()).unwrap().to_be_bytes();
    let head = match length {
        [0, short @ ..=0x7f] => vec![tag, short],
        [0, long] => vec![tag, 0x81, long],
        [high, low] => vec![tag, 0x82, high, low],
    };
    [head, contents.to_vec()].concat()
}

/// Re-encodes the certificate as version 1 without extensions, signed by `ca`.
pub fn version_1(certificate: &[u8], ca: &CertificateAuthority) -> CertificateDer<'static> {
    let (whole, start) = element(certificate);
    let (tbs, fields) = element(&whole[start..]);
    let (algorithm, _) = element(&whole[start + tbs.len()..]);
    let (mut rest, mut kept) = (&tbs[fields..], Vec::new());
    while !rest.is_empty() {
        let (field, _) = element(rest);
        // Version and extensions are omitted.
        if !matches!(field[0], 0xa0 | 0xa3) {
            kept.extend_from_slice(field);
        }
        rest = &rest[field.len()..];
    }
    let tbs = wrapped(0x30, &kept);
    let signature = [vec![0], ca.key().sign(&tbs).unwrap()].concat();
    let parts = [tbs, algorithm.to_vec(), wrapped(0x03, &signature)].concat();
    CertificateDer::from(wrapped(0x30, &parts))
}

#[test]
fn version_1_counts_as_in_go() {
    let (ca, other) = (ca_with_validity("ca", days(-9, 9)), ca_with_validity("ca", days(-9, 9)));
    let trusted = cas(&[&ca_with_validity("another", days(-9, 9)), &ca]);
    let old = |issuer: &CertificateAuthority, validity| {
        version_1(&leaf(issuer, jane(), &[KeyPurpose::ClientAuth], validity), issuer)
    };
    let good = [old(&ca, days(-1, 1))];
    assert!(EndEntityCert::try_from(&good[0]).is_err(), "webpki reads it by now");
    let verified = trusted.verify(&good, NOW).unwrap();
    let user = verified.user.unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "42"));
    assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
    assert_eq!(verified.until, NOW + Duration::days(1));
    assert!(trusted.verify(&good, NOW + Duration::days(2)).is_err(), "expired");
    assert!(trusted.verify(&good, NOW - Duration::days(2)).is_err(), "not yet valid");
    assert!(ClientCas::default().verify(&good, NOW).is_err());

    let middle = {
        let (subject, key) = (Subject::new("m", &[]).unwrap(), PrivateKey::generate().unwrap());
        ca.intermediate(&subject, days(-9, 9), key, random_serial()).unwrap()
    };
    let mut forged = old(&ca, days(-1, 1)).to_vec();
    *forged.last_mut().unwrap() ^= 1;
    for (what, chain) in [
        ("another CA of that name", vec![old(&other, days(-1, 1))]),
        ("a signature that is not the CA's", vec![CertificateDer::from(forged)]),
        ("an intermediate", vec![old(&middle, days(-1, 1)), middle.certificate().der().clone()]),
        ("the CA itself", vec![version_1(ca.certificate().der(), &ca)]),
    ] {
        assert!(matches!(name(&trusted, &chain), Err(ClientCertError::OldIssuer)), "{what}");
    }
    // A version 1 certificate is no CA, so certificates it issued are rejected.
    let below = version_1(&leaf(&middle, jane(), &[], days(-1, 1)), &middle);
    assert!(name(&trusted, &[below, old(&ca, days(-1, 1))]).is_err());
}

/// Only a CA that may issue client certificates is accepted as issuer of a certificate without
/// extensions.
#[test]
fn version_1_needs_a_ca() {
    let root = ca_with_validity("root", days(-9, 9));
    let old_root = version_1(root.certificate().der(), &root);
    let old_leaf = version_1(&leaf(&root, jane(), &[], days(-1, 1)), &root);
    let trusted = ClientCas::new(std::slice::from_ref(&old_root)).unwrap();
    assert_eq!(name(&trusted, std::slice::from_ref(&old_leaf)).unwrap(), "jane");
    assert!(name(&trusted, &[old_root]).is_err(), "the CA's own certificate");

    let key = PrivateKey::generate().unwrap();
    let request = leaf_template("root", &[KeyPurpose::ClientAuth], days(-1, 1), &key);
    // A leaf of the same name in the CA file: matches as issuer by name and key, but is no CA.
    let no_ca: CertificateDer<'static> = issue(&root, &request).unwrap().into();
    let pem = key.to_pem().unwrap();
    let key = PrivateKey::from_pem(pem.as_bytes()).unwrap();
    let signer = CertificateAuthority::self_signed(
        &Subject::new("root", &[]).unwrap(),
        days(-9, 9),
        key,
        random_serial(),
    );
    let below = version_1(&old_leaf_template(&root), &signer.unwrap());
    let trusted = ClientCas::new(&[no_ca]).unwrap();
    assert!(matches!(name(&trusted, &[below]), Err(ClientCertError::OldIssuer)));
}

fn old_leaf_template(root: &CertificateAuthority) -> Vec<u8> {
    leaf(root, jane(), &[], days(-1, 1)).to_vec()
}
