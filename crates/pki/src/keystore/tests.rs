#![allow(clippy::indexing_slicing)]

use time::Duration;
use time::macros::datetime;

use super::*;
use crate::{
    Certificate, CertificateAuthority, KeyPurpose, LeafTemplate, Serial, Subject, SystemRandom, Validity,
    issue,
};

mod jks;
mod keytool;
mod openssl;

/// Created by OpenSSL with attributes that Go knows and one that it does not, and characters beyond
/// ASCII and UCS-2. Its bytes never change, and neither do those of a store that contains it.
const ANCHOR: &[u8] = include_bytes!("tests/anchor.pem");
const ANCHOR_ALIAS: &str = "c809d8b9|CN=Wurzel 🔑,OU=a+OU=b,O=Müller\\, Söhne,C=DE,\
    1.2.840.113549.1.9.1=#0c0e6361406578616d706c652e636f6d";

fn anchor() -> ForeignCertificate {
    foreign(&Certificate::from_pem(ANCHOR).unwrap())
}

fn foreign(certificate: &Certificate) -> ForeignCertificate {
    ForeignCertificate::from_der(certificate.der()).unwrap()
}

fn validity() -> Validity {
    Validity::lasting(datetime!(2026-06-01 12:00 UTC), Duration::days(3650)).unwrap()
}

fn serial() -> Serial {
    Serial::random(&SystemRandom::new()).unwrap()
}

fn authority(name: &str) -> CertificateAuthority {
    let subject = Subject::new(name, &[]).unwrap();
    let key = PrivateKey::generate().unwrap();
    CertificateAuthority::self_signed(&subject, validity(), key, serial()).unwrap()
}

fn anchors(names: &[&str]) -> Vec<ForeignCertificate> {
    names.iter().map(|name| foreign(authority(name).certificate())).collect()
}

/// Issues a chain of two certificates for a key.
fn chain(key: &PrivateKey) -> Vec<ForeignCertificate> {
    let authority = authority("issuer");
    let leaf = LeafTemplate {
        subject: Subject::new("web", &[]).unwrap(),
        alt_names: Vec::new(),
        purposes: vec![KeyPurpose::ServerAuth],
        validity: validity(),
        public_key: key.public_key(),
        serial: serial(),
    };
    let leaf = issue(&authority, &leaf).unwrap();
    vec![ForeignCertificate::from_der(&leaf).unwrap(), foreign(authority.certificate())]
}

fn password(text: &str) -> KeystorePassword {
    KeystorePassword::new(text).unwrap()
}

fn protections<'a>(password: &'a KeystorePassword) -> Vec<(&'static str, KeystoreProtection<'a>)> {
    let sealed =
        Pkcs12Profile::ALL.map(|profile| (profile.name(), KeystoreProtection::Sealed { password, profile }));
    sealed.into_iter().chain([("open", KeystoreProtection::Open)]).collect()
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[test]
fn the_same_set_gives_the_same_bytes() {
    let anchors = anchors(&["one", "two", "three"]);
    let [one, two, three] = anchors.as_slice() else { panic!() };
    let store = TrustStore::new([one, two, three]);
    let other = TrustStore::new([three, one, two, one, three]);
    let (secret, same) = (password("secret"), password("secret"));
    for ((name, first), (_, second)) in protections(&secret).iter().zip(protections(&same)) {
        assert_eq!(store.to_pkcs12(first), other.to_pkcs12(&second), "{name}");
    }
    assert_eq!(store.to_jks(&secret), other.to_jks(&same));
    let key = PrivateKey::generate().unwrap();
    let chain = chain(&key);
    for profile in Pkcs12Profile::ALL {
        let write = || KeyStore::new("web", &key, &chain).unwrap().to_pkcs12(&secret, profile);
        assert_eq!(write(), write(), "{profile:?}");
    }
}

/// If a later version encoded an unchanged set differently, every file would be rewritten.
#[test]
fn the_bytes_stay_the_same() {
    let anchor = anchor();
    let store = TrustStore::new([&anchor]);
    let password = password("changeit");
    let sha256 = |bytes: &[u8]| hex(digest(&SHA256, bytes).as_ref());
    let mut found = protections(&password)
        .iter()
        .map(|(name, protection)| (*name, sha256(&store.to_pkcs12(protection).unwrap())))
        .collect::<Vec<_>>();
    found.push(("jks", sha256(&store.to_jks(&password).unwrap())));
    let expected = [
        ("LegacyRC2", "74b9bf26a8b4f63efe6c0dc39c2672fa64d9453ecafedb6ab47217e465e73c34"),
        ("LegacyDES", "985fe78ff7ddcb19fd8c936eafe2ea0cf728c880385e9eff4e5466c26e3654ec"),
        ("Modern2023", "3e5beb8755f9c72ae68eb64b71405c2ec9931d66a2a466567189e1aac1c79341"),
        ("open", "2180f71f2f18350a8031d928e023c5e7701b3aaf2e9b25f01088a268b33e5174"),
        ("jks", "0e8d363cba1cc11ea8b82faa4ea1b4d5dd18aabbd6bced29b05481746a9a547c"),
    ];
    assert_eq!(found, expected.map(|(name, digest)| (name, digest.to_owned())));
}

/// Ed25519 signatures are deterministic, so a key and its certificate can be recreated.
#[test]
fn the_bytes_of_key_stores_stay_the_same() {
    let mut pkcs8 = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20".to_vec();
    pkcs8.extend([7; 32]);
    let pem = crate::pem::encode(crate::pem::PRIVATE_KEY, &pkcs8);
    let [key, same] = [0, 1].map(|_| PrivateKey::from_pem(pem.as_bytes()).unwrap());
    let subject = Subject::new("web", &[]).unwrap();
    let serial = Serial::from_bytes([7; 16]);
    let authority = CertificateAuthority::self_signed(&subject, validity(), same, serial).unwrap();
    let chain = [foreign(authority.certificate())];
    let store = KeyStore::new("web", &key, &chain).unwrap();
    let found = Pkcs12Profile::ALL.map(|profile| {
        hex(digest(&SHA256, &store.to_pkcs12(&password("changeit"), profile).unwrap()).as_ref())
    });
    let expected = [
        "d5449ee92ad11beeaa624d118865fde35e8a1aa880525a85da4cad27d8daeb12",
        "c3397f981d1d55d062f9800ff00c78e99f07a7a3389ea94b9ad378c8c1430a59",
        "a0f0ff152e617086f9eb8bfb3d6bda2c0b29f5db04ddc0e3ad0166cc16051447",
    ];
    assert_eq!(found, expected);
}

#[test]
fn salts_depend_on_content_password_and_profile() {
    let (one, two) = (anchors(&["one"]), anchors(&["two"]));
    let [secret, other] = ["secret", "other"].map(password);
    let salts = |anchors: &[ForeignCertificate], password: &KeystorePassword, profile| {
        let sealed = KeystoreProtection::Sealed { password, profile };
        salts(&TrustStore::new(anchors).to_pkcs12(&sealed).unwrap())
    };
    for profile in Pkcs12Profile::ALL {
        let base = salts(&one, &secret, profile);
        // The salts of encryption and authentication, and the AES vector.
        assert_eq!(base.len(), if profile == Pkcs12Profile::Modern2023 { 3 } else { 2 }, "{profile:?}");
        for changed in [salts(&two, &secret, profile), salts(&one, &other, profile)] {
            assert!(base.iter().all(|salt| !changed.contains(salt)), "{profile:?}");
        }
        assert!(base.windows(2).all(|pair| pair[0] != pair[1]), "{profile:?}");
    }
    let rc2 = salts(&one, &secret, Pkcs12Profile::LegacyRc2);
    let des = salts(&one, &secret, Pkcs12Profile::LegacyDes);
    assert!(rc2.iter().all(|salt| !des.contains(salt)));
}

/// Returns the octet strings of 8 or 16 bytes in a store.
fn salts(store: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    collect_salts(store, &mut found);
    found
}

fn collect_salts(mut der: &[u8], found: &mut Vec<Vec<u8>>) {
    use der::{Decode, Encode, Header, Reader, SliceReader, Tag};
    while !der.is_empty() {
        let mut reader = SliceReader::new(der).unwrap();
        let Ok(header) = Header::decode(&mut reader) else { return };
        let start = usize::try_from(header.encoded_len().unwrap()).unwrap();
        let Ok(value) = reader.read_slice(header.length()) else { return };
        match header.tag() {
            Tag::OctetString if [8, 16].contains(&value.len()) => found.push(value.to_vec()),
            // The outermost content is an octet string that contains DER.
            Tag::OctetString if value.first() == Some(&0x30) => collect_salts(value, found),
            tag if tag.is_constructed() => collect_salts(value, found),
            _ => {}
        }
        der = &der[start + value.len()..];
    }
}

#[test]
fn anchors_are_named_as_trust_manager_names_them() {
    let anchor = anchor();
    let store = TrustStore::new([&anchor]);
    assert_eq!(store.aliases().collect::<Vec<_>>(), [ANCHOR_ALIAS]);
}

#[test]
fn profiles_are_named_as_trust_manager_names_them() {
    for (name, profile) in [
        ("LegacyRC2", Some(Pkcs12Profile::LegacyRc2)),
        ("LegacyDES", Some(Pkcs12Profile::LegacyDes)),
        ("Modern2023", Some(Pkcs12Profile::Modern2023)),
        ("modern2023", None),
        ("", None),
    ] {
        assert_eq!(Pkcs12Profile::from_name(name), profile);
        assert!(profile.is_none_or(|profile| profile.name() == name));
    }
}

#[test]
fn passwords_have_a_length() {
    for (text, accepted) in
        [(String::new(), false), ("x".to_owned(), true), ("é".repeat(128), true), ("x".repeat(129), false)]
    {
        let password = KeystorePassword::new(&text);
        assert_eq!(password.is_ok(), accepted, "{text}");
        assert!(password.is_ok() || password.is_err_and(|e| e == KeystoreError::PasswordLength));
    }
}

#[test]
fn a_key_store_needs_an_alias_and_the_certificate_of_its_key() {
    let (key, stranger) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    let chain = chain(&key);
    let long = "x".repeat(MAX_ALIAS_CHARACTERS + 1);
    let refused = |alias, key, chain| KeyStore::new(alias, key, chain).err();
    assert_eq!(refused("web", &key, &chain), None);
    assert_eq!(refused(&long[1..], &key, &chain), None);
    assert_eq!(refused("", &key, &chain), Some(KeystoreError::AliasLength));
    assert_eq!(refused(&long, &key, &chain), Some(KeystoreError::AliasLength));
    assert_eq!(refused("web", &key, &[]), Some(KeystoreError::NoCertificate));
    assert_eq!(refused("web", &stranger, &chain), Some(KeystoreError::KeyMismatch));
    assert_eq!(refused("web", &key, &chain[1..]), Some(KeystoreError::KeyMismatch));
}

/// Returns certificates with one subject whose SHA-256 start alike. The signature of an anchor is
/// not verified, so creating them takes no key.
fn similar_certificates() -> Vec<ForeignCertificate> {
    let certificate = authority("alike").certificate().der().to_vec();
    let mut seen = std::collections::HashMap::new();
    for count in 0..u32::MAX {
        let mut der = certificate.clone();
        let end = der.len() - 4;
        der[end..].copy_from_slice(&count.to_be_bytes());
        let start = digest(&SHA256, &der).as_ref()[..4].to_vec();
        if let Some(other) = seen.insert(start, der.clone()) {
            return [other, der].map(|der| ForeignCertificate::from_der(&der).unwrap()).into();
        }
    }
    unreachable!("four octets can have so many values only")
}

#[test]
fn anchors_whose_digests_begin_alike_have_different_aliases() {
    let mut anchors = similar_certificates();
    let short = hex(&digest(&SHA256, anchors[0].der()).as_ref()[..4]);
    anchors.extend(self::anchors(&["alike"]));
    let store = TrustStore::new(&anchors);
    let mut aliases = store.aliases().collect::<Vec<_>>();
    aliases.sort_unstable();
    aliases.dedup();
    assert_eq!(aliases.len(), 3);
    let long = aliases.iter().filter(|alias| alias.starts_with(&short));
    assert!(long.clone().all(|alias| alias.len() == "64|CN=alike".len() + 62), "{aliases:?}");
    assert_eq!(long.count(), 2);
    // A single one gets trust-manager's alias.
    let store = TrustStore::new(&anchors[..1]);
    assert_eq!(store.aliases().collect::<Vec<_>>(), [format!("{short}|CN=alike")]);
}
