use der::asn1::{AnyRef, UintRef};
use time::Duration;
use time::macros::datetime;
use x509_cert::certificate::Version;
use x509_cert::time::Validity as Encoded;

use super::*;
use crate::authority::{NOT_AN_AUTHORITY, authority_key_identifier, encode_extension, extension};
use crate::certificate::SUBJECT_KEY_IDENTIFIER;
use crate::{IssuedSubject, PrivateKey, Serial, Subject};

const NAMES: [u8; 5] = [0x30, 3, 0x82, 1, b'a'];

fn authority() -> CertificateAuthority {
    let validity = Validity::lasting(datetime!(2026-01-01 0:00 UTC), Duration::days(100)).unwrap();
    let subject = Subject::new("ca", &[]).unwrap();
    let (key, serial) = (PrivateKey::generate().unwrap(), Serial::from_bytes([7; 16]));
    CertificateAuthority::self_signed(&subject, validity, key, serial).unwrap()
}

fn usage() -> Extension {
    encode_extension(KEY_USAGE, true, KeyUsageSet::DIGITAL_SIGNATURE.to_der()).unwrap()
}

fn basic() -> Extension {
    extension(BASIC_CONSTRAINTS, true, &NOT_AN_AUTHORITY).unwrap()
}

fn names(critical: bool) -> Extension {
    encode_extension(SUBJECT_ALT_NAME, critical, NAMES.to_vec()).unwrap()
}

/// Lints a good certificate after `spoil` has changed it.
fn verdict(spoil: impl FnOnce(&mut TbsFields<'_>)) -> Result<(), Error> {
    let authority = authority();
    let subject = IssuedSubject::new("x", &[]);
    let validity = Validity::new(datetime!(2026-01-02 0:00 UTC), datetime!(2026-01-03 0:00 UTC));
    let mut fields = TbsFields {
        version: Version::V3,
        serial: UintRef::new(&[0x41; 16]).unwrap(),
        algorithm: authority.key().signature_scheme().identifier(),
        issuer: AnyRef::from_der(authority.certificate().subject_der()).unwrap(),
        validity: validity.unwrap().encoded().unwrap(),
        subject: AnyRef::from_der(subject.as_der()).unwrap(),
        public_key: AnyRef::from_der(authority.key().public_key().as_der()).unwrap(),
        issuer_unique_id: None,
        subject_unique_id: None,
        extensions: Some(vec![usage(), basic(), names(false)]),
    };
    spoil(&mut fields);
    check(&fields.to_der().unwrap(), &authority)
}

fn failed(verdict: Result<(), Error>) -> Option<IssuanceLint> {
    match verdict {
        Ok(()) => None,
        Err(Error::Lint { lint, .. }) => Some(lint),
        Err(other) => panic!("{other}"),
    }
}

fn with_extensions(extensions: Vec<Extension>) -> Option<IssuanceLint> {
    failed(verdict(|fields| fields.extensions = Some(extensions)))
}

#[test]
fn accepts_valid_certificates() {
    verdict(|_| ()).unwrap();
    verdict(|fields| fields.serial = UintRef::new(&[0xff; 20]).unwrap()).unwrap();
    verdict(|fields| fields.serial = UintRef::new(&[1; 8]).unwrap()).unwrap();
    // From before the CA's first second up to its last.
    let last = Validity::new(datetime!(2025-12-31 0:00 UTC), datetime!(2026-04-11 0:00 UTC));
    let last = last.unwrap().encoded().unwrap();
    verdict(|fields| fields.validity = last).unwrap();
    assert_eq!(with_extensions(vec![basic()]), None);
}

#[test]
fn finds_every_fault_of_the_body() {
    let at = |time| Validity::new(time, time).unwrap().encoded().unwrap().not_before;
    let (early, late) = (at(datetime!(2026-01-02 0:00 UTC)), at(datetime!(2026-01-03 0:00 UTC)));
    let reversed = verdict(|fields| fields.validity = Encoded::new(late, early));
    assert_eq!(failed(reversed), Some(IssuanceLint::ValidityOrder));
    let over = at(datetime!(2026-04-11 0:00:01 UTC));
    let longer = verdict(|fields| fields.validity = Encoded::new(early, over));
    assert_eq!(failed(longer), Some(IssuanceLint::ValidityEnd));
    for serial in [&[1][..], &[1; 7], &[1; 21]] {
        let verdict = verdict(|fields| fields.serial = UintRef::new(serial).unwrap());
        assert_eq!(failed(verdict), Some(IssuanceLint::SerialNumber), "{serial:?}");
    }
    let verdict = verdict(|fields| fields.issuer = AnyRef::from_der(&[0x30, 0]).unwrap());
    assert_eq!(failed(verdict), Some(IssuanceLint::Issuer));
}

#[test]
fn finds_another_algorithm() {
    let key = PrivateKey::generate_type(crate::KeyType::Ed25519).unwrap();
    let verdict = verdict(|fields| fields.algorithm = key.signature_scheme().identifier());
    assert_eq!(failed(verdict), Some(IssuanceLint::SignatureAlgorithm));
}

#[test]
fn finds_every_fault_of_the_extensions() {
    let not_an_authority = Some(IssuanceLint::NotAnAuthority);
    let authority =
        extension(BASIC_CONSTRAINTS, true, &BasicConstraints { ca: true, path_len_constraint: None })
            .unwrap();
    let soft = extension(BASIC_CONSTRAINTS, false, &NOT_AN_AUTHORITY).unwrap();
    assert_eq!(with_extensions(vec![]), not_an_authority);
    assert_eq!(failed(verdict(|fields| fields.extensions = None)), not_an_authority);
    assert_eq!(with_extensions(vec![authority.clone()]), not_an_authority);
    assert_eq!(with_extensions(vec![soft]), not_an_authority);

    let extensions = Some(IssuanceLint::Extensions);
    assert_eq!(with_extensions(vec![basic(), basic()]), extensions);
    assert_eq!(with_extensions(vec![basic(), authority]), extensions);
    assert_eq!(with_extensions(vec![basic(), names(false), names(false)]), extensions);
    assert_eq!(with_extensions(vec![basic(), usage()]), extensions);
    let identifier = authority_key_identifier(&[1]).unwrap();
    assert_eq!(with_extensions(vec![basic(), names(false), identifier]), extensions);
    let unknown = encode_extension(SUBJECT_KEY_IDENTIFIER, false, vec![4, 1, 1]).unwrap();
    assert_eq!(with_extensions(vec![basic(), unknown]), extensions);

    let criticality = Some(IssuanceLint::AltNameCriticality);
    assert_eq!(with_extensions(vec![basic(), names(true)]), criticality);
    let nobody = |critical| {
        failed(verdict(|fields| {
            fields.subject = AnyRef::from_der(&[0x30, 0]).unwrap();
            fields.extensions = Some(vec![basic(), names(critical)]);
        }))
    };
    assert_eq!((nobody(false), nobody(true)), (criticality, None));
}

#[test]
fn finds_what_cannot_be_read() {
    assert_eq!(failed(check(&[0x30, 0], &authority())), Some(IssuanceLint::Readable));
}

#[test]
fn distinguishes_dns_names_from_other_text() {
    for good in ["a", "a.b-c.example", "*.example.com", "_x.y", "1.2", &"a".repeat(63)] {
        assert!(is_dns_name(good), "{good}");
    }
    let long = vec!["a".repeat(63); 4].join(".");
    for bad in ["", ".", "a.", "a..b", "*", "a.*.b", "-a", "a-", "a b", &"a".repeat(64), &long] {
        assert!(!is_dns_name(bad), "{bad}");
    }
}
