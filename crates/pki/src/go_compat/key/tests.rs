use super::*;

/// Builds a `SubjectPublicKeyInfo` from an algorithm, its parameters and a key.
fn info(oid: &[u8], parameters: &[u8], key: &[u8]) -> Vec<u8> {
    let algorithm = wrapped(0x30, &[wrapped(0x06, oid), parameters.to_vec()].concat());
    wrapped(0x30, &[algorithm, wrapped(0x03, &[&[0], key].concat())].concat())
}

fn wrapped(kind: u8, contents: &[u8]) -> Vec<u8> {
    let length = u16::try_from(contents.len()).unwrap();
    let [high, low] = length.to_be_bytes();
    let header = match length {
        0..0x80 => vec![kind, low],
        0x80..0x100 => vec![kind, 0x81, low],
        _ => vec![kind, 0x82, high, low],
    };
    [header, contents.to_vec()].concat()
}

fn rsa_key(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let numbers = [wrapped(0x02, modulus), wrapped(0x02, exponent)].concat();
    info(RSA, &NULL, &wrapped(0x30, &numbers))
}

#[test]
fn reads_rsa_keys_of_every_size() {
    let modulus = |bytes: usize| [&[0][..], &vec![0xc1; bytes]].concat();
    let table = [
        (rsa_key(&modulus(384), &[3]), Some((3072, Ok(KeyType::Rsa3072)))),
        (rsa_key(&modulus(512), &[1, 0, 1]), Some((4096, Ok(KeyType::Rsa4096)))),
        (rsa_key(&modulus(256), &[3]), Some((2048, Err(PodKeyError::Modulus { bits: 2048 })))),
        // The size is rounded up to whole bytes.
        (rsa_key(&[0x11; 384], &[3]), Some((3069, Ok(KeyType::Rsa3072)))),
        (rsa_key(&[1], &[1]), Some((1, Err(PodKeyError::Modulus { bits: 8 })))),
        (rsa_key(&[0], &[3]), None),
        (rsa_key(&[0x80], &[3]), None),
        (rsa_key(&[0, 1], &[3]), None),
        (rsa_key(&[5], &[0]), None),
        (rsa_key(&[5], &[0xff]), None),
        (rsa_key(&[5], &[1; 9]), None),
        (rsa_key(&[], &[3]), None),
        (info(RSA, &[], &wrapped(0x30, &[2, 1, 5, 2, 1, 3])), None),
        (
            info(RSA, &NULL, &wrapped(0x30, &[2, 1, 5, 2, 1, 3])),
            Some((3, Err(PodKeyError::Modulus { bits: 8 }))),
        ),
    ];
    for (der, expected) in table {
        let key = SubjectKey::from_der(&der).ok();
        let read = key.map(|key| match key.algorithm() {
            KeyAlgorithm::Rsa { modulus_bits } => (modulus_bits, key.pod_key_type()),
            other => panic!("{other:?}"),
        });
        assert_eq!(read, expected, "{der:x?}");
    }
}

#[test]
fn refuses_what_go_refuses() {
    let p256 = [0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    let off_curve = [&[4][..], &[1; 64]].concat();
    let compressed = [&[2][..], &[1; 32]].concat();
    let secp256k1 = [0x06, 5, 0x2b, 0x81, 4, 0, 0x0a];
    for der in [
        info(ECDSA, &p256, &off_curve),
        info(ECDSA, &p256, &compressed),
        info(ECDSA, &p256, &[0]),
        info(ECDSA, &p256, &[]),
        info(ECDSA, &secp256k1, &off_curve),
        info(ECDSA, &[], &off_curve),
        info(ECDSA, &wrapped(0x30, &[]), &off_curve),
        info(ED25519, &[], &[1; 31]),
        info(ED25519, &NULL, &[1; 32]),
        info(X25519, &NULL, &[1; 32]),
        info(&[0x2a, 3], &[], &[1; 32]),
        [info(ED25519, &[], &[1; 32]), vec![0]].concat(),
        info(DSA, &wrapped(0x30, &[2, 1, 1, 2, 1, 1]), &[2, 1, 1]),
        vec![],
    ] {
        assert!(SubjectKey::from_der(&der).is_err(), "{der:x?}");
    }
    assert!(SubjectKey::from_der(&vec![0x30; MAX_SUBJECT_KEY_BYTES + 1]).is_err());
}

#[test]
fn reads_keys_that_pods_cannot_have() {
    let dsa = info(DSA, &wrapped(0x30, &[2, 1, 1, 2, 1, 1, 2, 1, 1]), &[2, 1, 1]);
    for (der, algorithm) in [(info(X25519, &[], &[1; 32]), KeyAlgorithm::X25519), (dsa, KeyAlgorithm::Dsa)] {
        let key = SubjectKey::from_der(&der).unwrap();
        assert_eq!(key.algorithm(), algorithm);
        assert_eq!(key.pod_key_type(), Err(PodKeyError::Algorithm));
        assert!(key.verify_possession(b"m", b"s").is_err());
    }
}

#[test]
fn is_the_same_key_however_it_is_encoded() {
    let plain = rsa_key(&[5], &[3]);
    let padded = info(RSA, &NULL, &[&wrapped(0x30, &[2, 1, 5, 2, 1, 3])[..], b"tail"].concat());
    let (plain, padded) = (SubjectKey::from_der(&plain).unwrap(), SubjectKey::from_der(&padded).unwrap());
    assert_ne!(plain.as_der(), padded.as_der());
    assert_eq!(plain, padded);
    assert_ne!(plain, SubjectKey::from_der(&rsa_key(&[7], &[3])).unwrap());
}
