#![allow(clippy::indexing_slicing)]

mod verifiers;

use time::macros::datetime;
use time::{Duration, OffsetDateTime};

use super::*;
use crate::der_syntax::encode_tlv;
use crate::limits::MAX_CRL_ENTRIES;
use crate::{
    CertificateAuthority, KeyPurpose, KeyType, LeafTemplate, PrivateKey, Serial, Subject, Validity, issue,
};

const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);

fn authority_with(name: &str, key: PrivateKey) -> CertificateAuthority {
    let validity = Validity::lasting(NOW - Duration::DAY, Duration::days(365)).unwrap();
    let subject = Subject::new(name, &["windlass"]).unwrap();
    CertificateAuthority::self_signed(&subject, validity, key, Serial::from_bytes([1; 16])).unwrap()
}

fn authority() -> CertificateAuthority {
    authority_with("ca", PrivateKey::generate().unwrap())
}

fn template(revoked: &[RevokedCertificate]) -> CrlTemplate<'_> {
    CrlTemplate { number: 7, this_update: NOW, next_update: NOW + Duration::DAY, revoked }
}

fn revoked(serial: &[u8], reason: RevocationReason) -> RevokedCertificate {
    RevokedCertificate { serial: serial.to_vec(), revoked_at: NOW - Duration::HOUR, reason }
}

#[test]
fn survives_der_and_pem() {
    let authority = authority();
    let entries = [
        revoked(&[0xff, 1], RevocationReason::KeyCompromise),
        revoked(&[0, 5], RevocationReason::Unspecified),
        revoked(&[0x12; 20], RevocationReason::CertificateHold),
    ];
    let list = authority.sign_crl(&template(&entries)).unwrap();
    let der = CertificateRevocationList::from_der(list.der()).unwrap();
    let pem = CertificateRevocationList::from_pem(list.to_pem().as_bytes()).unwrap();
    for list in [list, der, pem] {
        list.verify(authority.certificate()).unwrap();
        assert_eq!(list.number(), Some(7));
        assert_eq!((list.this_update(), list.next_update()), (NOW, NOW + Duration::DAY));
        let serials = list.entries().map(|entry| entry.serial).collect::<Vec<_>>();
        assert_eq!(serials, [vec![5], vec![0xff, 1], vec![0x12; 20]]);
        assert_eq!(list.find(&[0xff, 1]).unwrap().reason, RevocationReason::KeyCompromise);
        assert_eq!(list.find(&[0, 0, 5]).unwrap().reason, RevocationReason::Unspecified);
        assert_eq!(list.find(&[5]).unwrap().revoked_at, NOW - Duration::HOUR);
        assert_eq!((list.find(&[1]), list.find(&[]), list.find(&[0xff])), (None, None, None));
    }
}

#[test]
fn equal_sets_have_equal_contents() {
    let authority = authority_with("ca", PrivateKey::generate_type(KeyType::Ed25519).unwrap());
    let mut entries = [1, 2, 3, 200].map(|serial| revoked(&[serial], RevocationReason::Superseded));
    let one = authority.sign_crl(&template(&entries)).unwrap();
    entries.reverse();
    assert_eq!(one.der(), authority.sign_crl(&template(&entries)).unwrap().der());
}

#[test]
fn every_reason_survives() {
    let authority = authority();
    let reasons = RevocationReason::ALL.iter().zip(1..);
    let entries = reasons.map(|(reason, serial)| revoked(&[serial], *reason)).collect::<Vec<_>>();
    let list = authority.sign_crl(&template(&entries)).unwrap();
    assert_eq!(list.entries().collect::<Vec<_>>(), entries);
    for reason in RevocationReason::ALL {
        assert_eq!(RevocationReason::from_name(reason.name()), Some(*reason));
    }
    assert_eq!(RevocationReason::from_name("removeFromCRL"), None);
}

#[test]
fn an_empty_list_has_no_entries() {
    let list = authority().sign_crl(&template(&[])).unwrap();
    assert!(list.is_empty());
    assert_eq!(list.find(&[1]), None);
}

#[test]
fn refuses_templates_that_verifiers_reject() {
    let authority = authority();
    let refuse = |template: &CrlTemplate<'_>| {
        let error = authority.sign_crl(template).unwrap_err();
        assert!(matches!(error, Error::RevocationList(_) | Error::Malformed { .. }), "{error}");
    };
    refuse(&CrlTemplate { next_update: NOW, ..template(&[]) });
    for serial in [&[][..], &[0], &[1; 21]] {
        refuse(&template(&[revoked(serial, RevocationReason::Unspecified)]));
    }
    let twice = [&[1][..], &[0, 1]].map(|serial| revoked(serial, RevocationReason::Unspecified));
    refuse(&template(&twice));
}

#[test]
fn verifies_only_lists_of_the_issuer() {
    let authority = authority();
    let list = authority.sign_crl(&template(&[])).unwrap();
    let reason = |issuer: &Certificate| list.verify(issuer).unwrap_err().to_string();
    let other = authority_with("ca", PrivateKey::generate().unwrap());
    assert!(reason(other.certificate()).contains("key identifier"));
    let renamed = authority_with("other", PrivateKey::generate().unwrap());
    assert!(reason(renamed.certificate()).contains("another CA"));
    let mut forged = list.der().to_vec();
    *forged.last_mut().unwrap() ^= 1;
    let forged = CertificateRevocationList::from_der(&forged).unwrap();
    let error = forged.verify(authority.certificate()).unwrap_err();
    assert_eq!(error, Error::RevocationList("its signature does not verify"));
}

#[test]
fn a_leaf_signs_no_list() {
    let (authority, key) = (authority(), PrivateKey::generate().unwrap());
    let leaf = LeafTemplate {
        subject: Subject::new("ca", &["windlass"]).unwrap(),
        alt_names: Vec::new(),
        purposes: vec![KeyPurpose::ClientAuth],
        validity: Validity::lasting(NOW, Duration::DAY).unwrap(),
        public_key: key.public_key(),
        serial: Serial::from_bytes([2; 16]),
    };
    let leaf = Certificate::from_der(&issue(&authority, &leaf).unwrap()).unwrap();
    assert!(authority.sign_crl(&template(&[])).unwrap().verify(&leaf).is_err());
}

/// Wraps list contents in the outer structure, with a signature that nobody verifies.
fn unsigned(contents: &[Vec<u8>]) -> Vec<u8> {
    let algorithm = encode_tlv(0x30, &[6, 3, 0x2b, 0x65, 0x70]);
    let parts = [encode_tlv(0x30, &contents.concat()), algorithm, encode_tlv(3, &[0, 1])];
    encode_tlv(0x30, &parts.concat())
}

#[test]
fn rejects_what_it_cannot_evaluate() {
    let algorithm = encode_tlv(0x30, &[6, 3, 0x2b, 0x65, 0x70]);
    let (version, issuer) = (vec![2, 1, 1], encode_tlv(0x30, &[]));
    let time = encode_tlv(0x17, b"260601120000Z");
    let extension = |last: u8, critical: bool, value: &[u8]| {
        let flag = if critical { vec![1, 1, 0xff] } else { Vec::new() };
        encode_tlv(0x30, &[vec![6, 3, 0x55, 0x1d, last], flag, encode_tlv(4, value)].concat())
    };
    let entry = |serial: &[u8], extensions: Option<Vec<u8>>| {
        let extensions = extensions.map(|list| encode_tlv(0x30, &list)).unwrap_or_default();
        encode_tlv(0x30, &[encode_tlv(2, serial), time.clone(), extensions].concat())
    };
    let list = |entries: &[Vec<u8>], extensions: Vec<u8>| {
        let head = [version.clone(), algorithm.clone(), issuer.clone(), time.clone(), time.clone()];
        let extensions = encode_tlv(0xa0, &encode_tlv(0x30, &extensions));
        CertificateRevocationList::from_der(&unsigned(&[
            head.concat(),
            encode_tlv(0x30, &entries.concat()),
            extensions,
        ]))
    };
    let number = extension(20, false, &[2, 1, 3]);
    let good =
        list(&[entry(&[9], None), entry(&[8], Some(extension(21, false, &[10, 1, 1])))], number.clone());
    assert_eq!(good.unwrap().find(&[8]).unwrap().reason, RevocationReason::KeyCompromise);
    for (bad, why) in [
        (list(&[], extension(27, true, &[2, 1, 3])), "critical extension"),
        (list(&[], [number.clone(), number.clone()].concat()), "occurs twice"),
        (list(&[entry(&[9], None), entry(&[9], None)], number.clone()), "occurs twice"),
        (list(&[entry(&[9], Some(extension(29, true, &[0x30, 0])))], number.clone()), "critical extension"),
        (list(&[entry(&[9], Some(extension(21, false, &[10, 1, 7])))], number.clone()), "reason code"),
        (list(&[entry(&[0x80], None)], number), "malformed"),
    ] {
        let error = bad.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let without_end = unsigned(&[version.clone(), algorithm.clone(), issuer.clone(), time.clone()]);
    assert!(CertificateRevocationList::from_der(&without_end).is_err());
    let first_version = unsigned(&[algorithm, issuer, time.clone(), time]);
    assert!(CertificateRevocationList::from_der(&first_version).is_err());
}

#[test]
fn no_mutation_makes_it_panic() {
    let entries = [1, 2].map(|serial| revoked(&[serial], RevocationReason::KeyCompromise));
    let der = authority().sign_crl(&template(&entries)).unwrap().der().to_vec();
    for position in 0..der.len() {
        for byte in [0, 1, 0x30, 0x7f, 0x80, 0x84, 0xff] {
            let mut mutant = der.clone();
            mutant[position] = byte;
            if let Ok(list) = CertificateRevocationList::from_der(&mutant) {
                assert!(list.entries().count() == list.len());
            }
        }
        assert!(CertificateRevocationList::from_der(&der[..position]).is_err());
    }
}

#[test]
fn holds_a_hundred_thousand_entries() {
    let authority = authority();
    let entry = |number: u32| {
        let serial = [[0x41; 12].as_slice(), &number.wrapping_mul(2_654_435_761).to_be_bytes()].concat();
        RevokedCertificate { serial, ..revoked(&[1], RevocationReason::Superseded) }
    };
    let entries = (0..100_000).map(entry).collect::<Vec<_>>();
    let list = authority.sign_crl(&template(&entries)).unwrap();
    assert_eq!(list.len(), 100_000);
    assert_eq!(list.find(&entry(77_777).serial), Some(entry(77_777)));
    assert_eq!(list.find(&entry(100_001).serial), None);
    let again = CertificateRevocationList::from_pem(list.to_pem().as_bytes()).unwrap();
    assert_eq!(again.find(&entry(99_999).serial), Some(entry(99_999)));
    let too_many = vec![entry(1); MAX_CRL_ENTRIES + 1];
    let error = authority.sign_crl(&template(&too_many)).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

#[test]
fn only_one_list_is_read_from_pem() {
    let (authority, read) = (authority(), CertificateRevocationList::from_pem);
    let pem = authority.sign_crl(&template(&[])).unwrap().to_pem();
    assert!(read(format!("{pem}{pem}").as_bytes()).is_err());
    assert!(read(authority.certificate().to_pem().as_bytes()).is_err());
    assert!(read(b"").is_err());
}
