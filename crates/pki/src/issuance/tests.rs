#![allow(clippy::indexing_slicing)]

mod request_generator;
mod verification;

use time::macros::datetime;
use time::{Duration, OffsetDateTime};

use self::request_generator::CraftedRequest;
use super::check::check;
use super::*;
use crate::der_syntax::encode_tlv;
use crate::{
    ExtendedUsage, ForeignCertificate, IssuedSubject, KeyUsageSet, PrivateKey, SignatureError, Subject,
};

const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);

fn days(days: i64) -> Validity {
    Validity::lasting(NOW, Duration::days(days)).unwrap()
}

fn authority_with(key: PrivateKey) -> CertificateAuthority {
    let subject = Subject::new("ca", &["windlass"]).unwrap();
    CertificateAuthority::self_signed(&subject, days(3650), key, Serial::from_bytes([1; 16])).unwrap()
}

fn authority() -> CertificateAuthority {
    authority_with(PrivateKey::generate().unwrap())
}

fn template<'a>(request: &'a CertificateRequest, usages: &[&str]) -> CertificateTemplate<'a> {
    let usages = CertificateUsages::from_names(usages).unwrap();
    CertificateTemplate::from_request(request, usages, days(1), Serial::from_bytes([2; 16])).unwrap()
}

fn read(issued: &IssuedCertificate) -> ForeignCertificate {
    ForeignCertificate::from_der(issued.der()).unwrap()
}

#[test]
fn drops_everything_of_a_request_but_names_and_key() {
    let mut crafted = CraftedRequest::named("alice", &["b", "a"]);
    crafted.attribute(&[0x55, 4, 42], 0x0c, b"given name");
    crafted.attribute(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], 0x16, b"a@example.com");
    crafted.extension(&[0x55, 0x1d, 19], true, &[0x30, 3, 1, 1, 0xff]);
    crafted.extension(&[0x55, 0x1d, 14], false, &[4, 1, 1]);
    crafted.extension(&[0x55, 0x1d, 37], true, &[0x30, 0]);
    // A DNS name, a registered ID, and an IPv4-mapped IPv6 address.
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
    let names = [encode_tlv(0x88, &[42]), encode_tlv(0x82, b"a"), encode_tlv(0x87, &mapped)];
    crafted.extension(&[0x55, 0x1d, 17], true, &encode_tlv(0x30, &names.concat()));
    let request = crafted.signed(&PrivateKey::generate().unwrap());
    let issued = read(&issue_certificate(&authority(), &template(&request, &["any"])).unwrap());
    assert_eq!(issued.subject_der(), IssuedSubject::new("alice", &["a", "b"]).as_der());
    assert_eq!(issued.alt_names(), request.alt_names());
    assert_eq!(issued.alt_names().ip_addresses, [std::net::IpAddr::from([10, 0, 0, 1])]);
    assert!(!issued.is_authority());
    assert_eq!(issued.public_key(), request.public_key());
}

#[test]
fn issues_nothing_without_the_proof_of_the_key() {
    let key = PrivateKey::generate().unwrap();
    let mut der = CraftedRequest::named("alice", &[]).der(&key);
    *der.last_mut().unwrap() ^= 1;
    let request = CertificateRequest::from_der(&der).unwrap();
    let serial = Serial::from_bytes([2; 16]);
    let error = CertificateTemplate::from_request(&request, CertificateUsages::default(), days(1), serial)
        .unwrap_err();
    assert_eq!(error, Error::Unproven(SignatureError::Invalid));
    assert!(error.is_permanent());
}

#[test]
fn leaves_out_the_authority_in_its_own_name_as_go_does() {
    let (authority, key) = (authority(), PrivateKey::generate().unwrap());
    let has_identifier = |request: &CertificateRequest| {
        let issued = issue_certificate(&authority, &template(request, &[])).unwrap();
        let identifier = [0x06, 3, 0x55, 0x1d, 35];
        issued.der().windows(5).any(|window| window == identifier)
    };
    // The subjects' DER must be equal, regardless of the order in the request.
    assert!(has_identifier(&CraftedRequest::named("cb", &["windlass"]).signed(&key)));
    assert!(!has_identifier(&CraftedRequest::named("ca", &["windlass"]).signed(&key)));
}

#[test]
fn warns_about_unusual_certificates_and_issues_them() {
    let (authority, key) = (authority(), PrivateKey::generate().unwrap());
    let warned = |crafted: CraftedRequest, usages: &[&str], validity: Validity| {
        let request = crafted.signed(&key);
        let wanted = CertificateTemplate { validity, ..template(&request, usages) };
        issue_certificate(&authority, &wanted).unwrap().warnings().to_vec()
    };
    let named = || CraftedRequest::named("alice", &[]);
    assert_eq!(warned(named(), &["client auth"], days(1)), []);
    assert_eq!(warned(CraftedRequest::default(), &[], days(1)), [LintWarning::NoSubjectOrNames]);
    let mut nul = named();
    nul.extension(&[0x55, 0x1d, 17], false, &[0x30, 5, 0x82, 3, b'a', 0, b'b']);
    assert_eq!(warned(nul, &[], days(1)), [LintWarning::DnsName("a\0b".into())]);
    let control = CraftedRequest::named("a\nb", &[]);
    assert_eq!(warned(control, &[], days(1)), [LintWarning::ControlCharacters]);
    let signs = warned(named(), &["cert sign", "crl sign"], days(1));
    assert_eq!(signs, [LintWarning::SignsCertificates]);
    let early = Validity::new(NOW - Duration::MINUTE, NOW).unwrap();
    assert_eq!(warned(named(), &[], early), [LintWarning::BeginsEarly]);
}

#[test]
fn does_not_outlive_its_authority() {
    let (authority, key) = (authority(), PrivateKey::generate().unwrap());
    let request = CraftedRequest::named("alice", &[]).signed(&key);
    let wanted = |days_long| CertificateTemplate { validity: days(days_long), ..template(&request, &[]) };
    issue_certificate(&authority, &wanted(3650)).unwrap();
    let error = issue_certificate(&authority, &wanted(3651)).unwrap_err();
    assert!(matches!(error, Error::Lint { lint: IssuanceLint::ValidityEnd, .. }), "{error}");
    assert_eq!(error.to_string(), "refusing to issue, validity-end: it ends after its authority");
    assert!(!error.is_permanent());
}

#[test]
fn finds_what_was_not_wanted_after_signing() {
    let (authority, key) = (authority(), PrivateKey::generate().unwrap());
    let request = CraftedRequest::named("alice", &[]).signed(&key);
    let good = template(&request, &[]);
    let der = issue_certificate(&authority, &good).unwrap().der().to_vec();
    let names = AltNames::default();
    check(&der, &authority, &good, &names).unwrap();

    let lint = |result: Result<(), Error>| match result.unwrap_err() {
        Error::Lint { lint, reason } => (lint, reason),
        other => panic!("{other}"),
    };
    let same = IssuanceLint::SameContents;
    let subject = CertificateTemplate { subject: IssuedSubject::new("bob", &[]), ..good.clone() };
    let found = lint(check(&der, &authority, &subject, &names));
    assert_eq!(found, (same, "the subject is another one"));
    let more = AltNames { dns_names: vec!["a".into()], ..AltNames::default() };
    let found = lint(check(&der, &authority, &good, &more));
    assert_eq!(found, (same, "the alternative names are other ones"));
    let other = CraftedRequest::named("alice", &[]).signed(&PrivateKey::generate().unwrap());
    let key = CertificateTemplate { public_key: other.public_key(), ..good.clone() };
    assert_eq!(lint(check(&der, &authority, &key, &names)), (same, "the key is another one"));
    let longer = CertificateTemplate { validity: days(2), ..good.clone() };
    let found = lint(check(&der, &authority, &longer, &names));
    assert_eq!(found, (same, "the validity is another one"));
    assert_eq!(lint(check(&der, &self::authority(), &good, &names)).0, IssuanceLint::Signature);
    let mut broken = der;
    *broken.last_mut().unwrap() ^= 1;
    assert_eq!(lint(check(&broken, &authority, &good, &names)).0, IssuanceLint::Signature);
    assert_eq!(lint(check(&broken[1..], &authority, &good, &names)).0, IssuanceLint::Readable);
}

#[test]
fn refuses_names_that_cannot_be_encoded() {
    let (authority, key) = (authority(), PrivateKey::generate().unwrap());
    let request = CraftedRequest::named("alice", &[]).signed(&key);
    for names in [
        AltNames { dns_names: vec!["ä".into()], ..AltNames::default() },
        AltNames { email_addresses: vec!["ä@b".into()], ..AltNames::default() },
        AltNames { uris: vec!["spiffe://ä/".into()], ..AltNames::default() },
        AltNames { uris: vec!["spiffe://a b/".into()], ..AltNames::default() },
    ] {
        let wanted = CertificateTemplate { alt_names: names, ..template(&request, &[]) };
        let error = issue_certificate(&authority, &wanted).unwrap_err();
        assert!(matches!(error, Error::InvalidName { .. }), "{error}");
    }
}

#[test]
fn writes_the_given_usages() {
    let (authority, key) = (authority(), PrivateKey::generate().unwrap());
    let request = CraftedRequest::named("alice", &[]).signed(&key);
    let usages = CertificateUsages {
        key: KeyUsageSet::DIGITAL_SIGNATURE.with(KeyUsageSet::KEY_ENCIPHERMENT),
        extended: [ExtendedUsage::ClientAuth, ExtendedUsage::ServerAuth].into(),
    };
    let ours = issue_certificate(&authority, &CertificateTemplate { usages, ..template(&request, &[]) });
    let names = ["client auth", "server auth", "key encipherment", "digital signature"];
    let theirs = issue_certificate(&authority, &template(&request, &names)).unwrap();
    // Skips the outer length, which depends on the signature's length.
    let body = |issued: &IssuedCertificate| issued.der().get(4..300).map(<[u8]>::to_vec);
    assert_eq!(body(&ours.unwrap()), body(&theirs));
}

#[test]
fn distribution_points_are_added_as_go_adds_them() {
    let authority = authority();
    let request = CraftedRequest::named("alice", &[]).signed(&PrivateKey::generate().unwrap());
    let urls = ["http://pki.example.com/a.crl", "https://10.0.0.1:6443/pki/crl/a.crl"];
    let points = urls.map(|url| crate::DistributionPoint::parse(url).unwrap()).to_vec();
    let wanted = CertificateTemplate { crl_distribution_points: points.clone(), ..template(&request, &[]) };
    let issued = issue_certificate(&authority, &wanted).unwrap();
    assert!(read(&issued).crl_distribution_points().eq(urls));
    // The encoding of Go's x509.CreateCertificate: one distribution point per URL.
    let name = |url: &str| encode_tlv(0xa0, &encode_tlv(0xa0, &encode_tlv(0x86, url.as_bytes())));
    let value = encode_tlv(0x30, &urls.map(|url| encode_tlv(0x30, &name(url))).concat());
    let extension = [vec![6, 3, 0x55, 0x1d, 31], encode_tlv(4, &value)].concat();
    let extension = encode_tlv(0x30, &extension);
    assert!(issued.der().windows(extension.len()).any(|window| window == extension));

    let plain = issue_certificate(&authority, &template(&request, &[])).unwrap();
    assert_eq!(read(&plain).crl_distribution_points().count(), 0);
    let oid = [6, 3, 0x55, 0x1d, 31];
    assert!(!plain.der().windows(oid.len()).any(|window| window == oid));
    let names = alt_names::canonical(&wanted.alt_names).unwrap();
    let error = check(plain.der(), &authority, &wanted, &names).unwrap_err();
    assert!(error.to_string().contains("CRL distribution points"), "{error}");

    let many = CertificateTemplate { crl_distribution_points: vec![points[0].clone(); 9], ..wanted };
    assert!(matches!(issue_certificate(&authority, &many), Err(Error::TooLarge { .. })));
}
