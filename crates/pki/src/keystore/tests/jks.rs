//! JKS, parsed by an independent reader.

use std::io::{Cursor, Read};

use aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY;

use super::*;

struct JksEntry {
    alias: String,
    created: i64,
    kind: String,
    der: Vec<u8>,
}

/// Parses a trust store; `None` if it is damaged or the password is wrong.
fn read(store: &[u8], password: &str) -> Option<Vec<JksEntry>> {
    let (content, integrity) = store.split_at_checked(store.len().checked_sub(20)?)?;
    let mut hashed = Vec::new();
    password.encode_utf16().for_each(|unit| hashed.extend([(unit >> 8) as u8, unit as u8]));
    hashed.extend(b"Mighty Aphrodite");
    hashed.extend(content);
    if digest(&SHA1_FOR_LEGACY_USE_ONLY, &hashed).as_ref() != integrity {
        return None;
    }
    let mut reader = Cursor::new(content);
    assert_eq!((number(&mut reader), number(&mut reader)), (0xFEEDFEED, 2));
    let entries = (0..number(&mut reader)).map(|_| {
        assert_eq!(number(&mut reader), 2);
        let alias = text(&mut reader);
        let created = i64::from_be_bytes(octets(&mut reader, 8).try_into().unwrap());
        let kind = text(&mut reader);
        let length = number(&mut reader) as usize;
        JksEntry { alias, created, kind, der: octets(&mut reader, length) }
    });
    let entries = entries.collect();
    assert_eq!(reader.position(), content.len() as u64);
    Some(entries)
}

fn octets(reader: &mut Cursor<&[u8]>, length: usize) -> Vec<u8> {
    let mut octets = vec![0; length];
    reader.read_exact(&mut octets).unwrap();
    octets
}

fn number(reader: &mut Cursor<&[u8]>) -> u32 {
    u32::from_be_bytes(octets(reader, 4).try_into().unwrap())
}

/// Decodes modified UTF-8: UTF-16 units in one, two or three octets, never a zero.
fn text(reader: &mut Cursor<&[u8]>) -> String {
    let length = u16::from_be_bytes(octets(reader, 2).try_into().unwrap());
    let encoded = octets(reader, usize::from(length));
    assert!(!encoded.contains(&0));
    let mut units = Vec::new();
    let mut rest = encoded.as_slice();
    while let Some(first) = rest.first() {
        let (length, head) = match first {
            0x00..=0x7F => (1, *first),
            0xC0..=0xDF => (2, first & 0x1F),
            0xE0..=0xEF => (3, first & 0x0F),
            _ => panic!("{first:x} begins no character"),
        };
        units.push(rest[1..length].iter().fold(u16::from(head), |unit, octet| {
            assert_eq!(octet & 0xC0, 0x80);
            unit << 6 | u16::from(octet & 0x3F)
        }));
        rest = &rest[length..];
    }
    String::from_utf16(&units).unwrap()
}

#[test]
fn another_reader_finds_every_anchor() {
    let mut anchors = anchors(&["Zürich", "a\u{7ff}\u{800}z", "plain"]);
    anchors.push(anchor());
    let store = TrustStore::new(&anchors);
    for secret in ["changeit", "pässwörd 🔑"] {
        let written = store.to_jks(&password(secret)).unwrap();
        let entries = read(&written, secret).unwrap();
        assert_eq!(entries.len(), anchors.len());
        for (entry, alias) in entries.iter().zip(store.aliases()) {
            assert_eq!((entry.alias.as_str(), entry.kind.as_str()), (&*alias.to_lowercase(), "X509"));
            let anchor = anchors.iter().find(|anchor| anchor.der() == entry.der).unwrap();
            assert_eq!(entry.created, anchor.not_before().unix_timestamp() * 1000);
        }
        assert!(read(&written, "changed").is_none());
        assert!(read(&written[1..], secret).is_none());
    }
}

#[test]
fn a_store_may_be_empty_or_large() {
    let secret = password("changeit");
    let empty = TrustStore::new([]).to_jks(&secret).unwrap();
    assert!(read(&empty, "changeit").unwrap().is_empty());
    // Known from Java: what keytool writes after the last entry is deleted.
    assert_eq!(hex(&empty), "feedfeed0000000200000000e2686e45fb43dfa4d992dd41ceb6b21c6330d792");
    let names = (0..150).map(|number| format!("anchor {number}")).collect::<Vec<_>>();
    let anchors = anchors(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let large = TrustStore::new(&anchors).to_jks(&secret).unwrap();
    let entries = read(&large, "changeit").unwrap();
    assert_eq!(entries.len(), 150);
    assert!(entries.is_sorted_by(|one, next| one.alias < next.alias));
}

#[test]
fn a_very_long_subject_is_cut() {
    use crate::limits::MAX_ATTRIBUTE_BYTES;
    let long = "İ".repeat(MAX_ATTRIBUTE_BYTES / 2);
    let organizations = vec![long.as_str(); 20];
    let subject = Subject::new("root", &organizations).unwrap();
    let key = PrivateKey::generate().unwrap();
    let authority = CertificateAuthority::self_signed(&subject, validity(), key, serial()).unwrap();
    let store = TrustStore::new(&[foreign(authority.certificate())]);
    assert_eq!(store.aliases().next().unwrap().chars().count(), MAX_ALIAS_CHARACTERS);
    let written = store.to_jks(&password("changeit")).unwrap();
    assert_eq!(read(&written, "changeit").unwrap().len(), 1);
    assert!(store.to_pkcs12(&KeystoreProtection::Open).is_ok());
}
