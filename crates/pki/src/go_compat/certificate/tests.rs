use super::*;

#[derive(Clone)]
struct CertificateParts {
    version: Vec<u8>,
    serial: Vec<u8>,
    inner: Vec<u8>,
    issuer: Vec<u8>,
    validity: Vec<u8>,
    subject: Vec<u8>,
    key: Vec<u8>,
    extensions: Vec<u8>,
    outer: Vec<u8>,
    signature: Vec<u8>,
}

fn wrapped(kind: u8, contents: &[u8]) -> Vec<u8> {
    let length = u16::try_from(contents.len()).unwrap();
    let [high, low] = length.to_be_bytes();
    let header = if length < 0x80 { vec![kind, low] } else { vec![kind, 0x82, high, low] };
    let header = if (0x80..0x100).contains(&length) { vec![kind, 0x81, low] } else { header };
    [header, contents.to_vec()].concat()
}

fn sequence(contents: &[&[u8]]) -> Vec<u8> {
    wrapped(0x30, &contents.concat())
}

fn named(attribute: &[u8]) -> Vec<u8> {
    sequence(&[&wrapped(0x31, attribute)])
}

fn common_name(kind: u8, value: &[u8]) -> Vec<u8> {
    named(&sequence(&[&[6, 3, 0x55, 4, 3], &wrapped(kind, value)]))
}

/// Builds extensions from the last OID arc, the critical flag and the value.
fn extensions(all: &[(u8, bool, &[u8])]) -> Vec<u8> {
    let all = all.iter().map(|(number, critical, value)| {
        let critical: &[u8] = if *critical { &[1, 1, 0xff] } else { &[] };
        sequence(&[&[6, 3, 0x55, 0x1d, *number], critical, &wrapped(4, value)])
    });
    wrapped(0xa3, &wrapped(0x30, &all.collect::<Vec<_>>().concat()))
}

const ED25519: [u8; 7] = [0x30, 5, 6, 3, 0x2b, 0x65, 0x70];
const AUTHORITY: (u8, bool, &[u8]) = (19, true, &[0x30, 3, 1, 1, 0xff]);

impl CertificateParts {
    fn good() -> Self {
        let validity = [wrapped(0x17, b"260101000000Z"), wrapped(0x17, b"270101000000Z")].concat();
        Self {
            version: vec![0xa0, 3, 2, 1, 2],
            serial: vec![2, 1, 1],
            inner: ED25519.to_vec(),
            issuer: common_name(0x0c, b"issuer"),
            validity: wrapped(0x30, &validity),
            subject: common_name(0x0c, b"subject"),
            key: sequence(&[&ED25519, &wrapped(3, &[0; 33])]),
            extensions: extensions(&[AUTHORITY]),
            outer: ED25519.to_vec(),
            signature: wrapped(3, &[0; 65]),
        }
    }

    fn with(change: impl FnOnce(&mut Self)) -> Vec<u8> {
        let mut parts = Self::good();
        change(&mut parts);
        let tbs = sequence(&[
            &parts.version,
            &parts.serial,
            &parts.inner,
            &parts.issuer,
            &parts.validity,
            &parts.subject,
            &parts.key,
            &parts.extensions,
        ]);
        sequence(&[&tbs, &parts.outer, &parts.signature])
    }

    fn extended(all: &[(u8, bool, &[u8])]) -> Vec<u8> {
        let all = [&[AUTHORITY], all].concat();
        Self::with(|parts| parts.extensions = extensions(&all))
    }
}

fn check(der: &[u8], good: bool, what: &str) {
    let read = ForeignCertificate::from_der(der);
    assert_eq!(read.is_ok(), good, "{what}: {read:?}");
}

#[test]
fn reports_issuer_and_serial_number() {
    let table: [(&[u8], &[u8]); 3] = [(&[2, 1, 1], &[1]), (&[2, 2, 0, 0x80], &[0x80]), (&[2, 1, 0], &[])];
    for (serial, reported) in table {
        let der = CertificateParts::with(|parts| parts.serial = serial.to_vec());
        let certificate = ForeignCertificate::from_der(&der).unwrap();
        assert_eq!(certificate.serial(), reported);
        assert_eq!(certificate.issuer().common_name(), "issuer");
    }
    let first = CertificateParts::with(|parts| (parts.version, parts.extensions) = (Vec::new(), Vec::new()));
    assert_eq!(ForeignCertificate::from_der(&first).unwrap().issuer().common_name(), "issuer");
}

#[test]
fn reads_the_facts() {
    let certificate = ForeignCertificate::from_der(&CertificateParts::with(|_| ())).unwrap();
    assert!(certificate.is_authority());
    assert_eq!(certificate.subject().common_name(), "subject");
    assert_eq!(certificate.signature_algorithm(), SignatureAlgorithm::Ed25519);
    assert_eq!(certificate.not_before(), time::macros::datetime!(2026-01-01 0:00 UTC));
    assert_eq!(certificate.not_after(), time::macros::datetime!(2027-01-01 0:00 UTC));
    assert_eq!(certificate.der(), CertificateParts::with(|_| ()));
}

#[test]
fn judges_the_body_as_go_does() {
    type Change = fn(&mut CertificateParts);
    let table: [(&str, bool, Change); 32] = [
        ("no version", true, |parts| parts.version = vec![]),
        ("version 2", true, |parts| parts.version = vec![0xa0, 3, 2, 1, 1]),
        ("version 4", false, |parts| parts.version = vec![0xa0, 3, 2, 1, 3]),
        ("version with more", false, |parts| parts.version = vec![0xa0, 4, 2, 1, 2, 0]),
        ("serial 0", true, |parts| parts.serial = vec![2, 1, 0]),
        ("serial of 30 bytes", true, |parts| parts.serial = wrapped(2, &[1; 30])),
        ("negative serial", false, |parts| parts.serial = vec![2, 1, 0x80]),
        ("padded serial", false, |parts| parts.serial = vec![2, 2, 0, 1]),
        ("empty serial", false, |parts| parts.serial = vec![2, 0]),
        ("other algorithm outside", false, |parts| parts.outer = vec![0x30, 4, 6, 2, 0x2b, 0x65]),
        ("unknown algorithm", true, |parts| {
            parts.outer = vec![0x30, 4, 6, 2, 0x2b, 0x65];
            parts.inner = parts.outer.clone();
        }),
        ("empty algorithm", false, |parts| {
            parts.outer = vec![0x30, 0];
            parts.inner = vec![0x30, 0];
        }),
        ("empty issuer", true, |parts| parts.issuer = vec![0x30, 0]),
        ("issuer that is a set", false, |parts| parts.issuer = vec![0x31, 0]),
        ("empty set in a name", true, |parts| parts.subject = vec![0x30, 2, 0x31, 0]),
        ("attribute with more", true, |parts| {
            parts.subject = named(&sequence(&[&[6, 1, 0x2a], &[0x0c, 1, b'a'], &[5, 0]]));
        }),
        ("attribute without a value", false, |parts| parts.subject = named(&[0x30, 3, 6, 1, 0x2a])),
        ("name that is a number", false, |parts| parts.subject = common_name(2, &[1])),
        ("name that is no UTF-8", false, |parts| parts.subject = common_name(0x0c, &[0xff])),
        ("name that is not printable", false, |parts| parts.issuer = common_name(0x13, b"a@b")),
        ("name with an ampersand", true, |parts| parts.issuer = common_name(0x13, b"a&b*")),
        ("name in Latin-1", true, |parts| parts.issuer = common_name(0x14, &[0xff])),
        ("universal string", false, |parts| parts.issuer = common_name(0x1c, b"\0\0\0a")),
        ("times the wrong way round", true, |parts| {
            let times = [wrapped(0x17, b"270101000000Z"), wrapped(0x17, b"260101000000Z")].concat();
            parts.validity = wrapped(0x30, &times);
        }),
        ("time without a zone", false, |parts| {
            let times = [wrapped(0x17, b"260101000000"), wrapped(0x17, b"270101000000Z")].concat();
            parts.validity = wrapped(0x30, &times);
        }),
        ("one time", false, |parts| {
            parts.validity = wrapped(0x30, &wrapped(0x17, b"270101000000Z"));
        }),
        ("short key", false, |parts| parts.key = sequence(&[&ED25519, &wrapped(3, &[0; 32])])),
        ("key of an unknown algorithm", true, |parts| {
            parts.key = sequence(&[&[0x30, 3, 6, 1, 0x2a], &wrapped(3, &[0; 2])]);
        }),
        ("unique identifiers", true, |parts| {
            parts.extensions = [&[0x81, 1, 0, 0x82, 1, 0][..], &parts.extensions].concat();
        }),
        ("anything after the extensions", true, |parts| parts.extensions.extend([5, 0])),
        ("empty signature", true, |parts| parts.signature = vec![3, 1, 0]),
        ("signature that is no bits", false, |parts| parts.signature = vec![3, 0]),
    ];
    for (what, good, change) in table {
        check(&CertificateParts::with(change), good, what);
    }
    check(&[CertificateParts::with(|_| ()), vec![0]].concat(), false, "trailing byte");
    let mut truncated = CertificateParts::with(|_| ());
    truncated.pop();
    check(&truncated, false, "truncated");
}

#[test]
fn is_an_authority_only_in_version_three() {
    for (change, authority) in [
        (CertificateParts::with(|_| ()), true),
        (CertificateParts::with(|parts| parts.version = vec![0xa0, 3, 2, 1, 1]), false),
        (CertificateParts::with(|parts| parts.version = vec![]), false),
        (CertificateParts::with(|parts| parts.extensions = vec![]), false),
        (CertificateParts::with(|parts| parts.extensions = extensions(&[(19, true, &[0x30, 0])])), false),
        (
            CertificateParts::with(|parts| parts.extensions = extensions(&[(19, true, &[0x30, 3, 1, 1, 0])])),
            false,
        ),
    ] {
        assert_eq!(ForeignCertificate::from_der(&change).unwrap().is_authority(), authority);
    }
}

#[test]
fn judges_extensions_as_go_does() {
    let name = |kind: u8, value: &[u8]| sequence(&[&wrapped(kind, value)]);
    let constraint = |list: u8, base: &[u8]| sequence(&[&wrapped(list, &sequence(&[base]))]);
    let ip6 = [&[0; 10][..], &[0xff; 2], &[1; 4]].concat();
    let table: Vec<(&str, bool, u8, bool, Vec<u8>)> = vec![
        ("key identifier", true, 14, false, vec![4, 1, 0]),
        ("critical key identifier", false, 14, true, vec![4, 1, 0]),
        ("key identifier that is none", false, 14, false, vec![5, 0]),
        ("key usage", true, 15, true, vec![3, 2, 1, 6]),
        ("key usage with padding set", false, 15, true, vec![3, 2, 1, 7]),
        ("DNS name", true, 17, false, name(0x82, b"a..b")),
        ("DNS name beyond ASCII", false, 17, false, name(0x82, "ü".as_bytes())),
        ("e-mail beyond ASCII", false, 17, false, name(0x81, "ü".as_bytes())),
        ("no names", true, 17, true, vec![0x30, 0]),
        ("directory name", true, 17, false, name(0xa4, b"rubbish")),
        ("tag above 30", false, 17, false, vec![0x30, 3, 0x9f, 0x20, 0]),
        ("address of 4", true, 17, false, name(0x87, &[1; 4])),
        ("address of 5", false, 17, false, name(0x87, &[1; 5])),
        ("address of 16", true, 17, false, name(0x87, &[1; 16])),
        ("mapped address", true, 17, false, name(0x87, &ip6)),
        ("URI", true, 17, false, name(0x86, b"spiffe://a/b")),
        ("URI with a bad host", false, 17, false, name(0x86, b"spiffe://a../b")),
        ("URI that is none", false, 17, false, name(0x86, b"http://[")),
        ("constraint on a DNS name", true, 30, true, constraint(0xa0, &wrapped(0x82, b".a.b"))),
        ("constraint on a bad name", false, 30, true, constraint(0xa0, &wrapped(0x82, b"a."))),
        ("constraint on a mailbox", true, 30, true, constraint(0xa1, &wrapped(0x81, b"a@b"))),
        ("constraint on a bad mailbox", false, 30, true, constraint(0xa1, &wrapped(0x81, b".@b"))),
        ("constraint on a host", true, 30, true, constraint(0xa1, &wrapped(0x86, b"a"))),
        ("constraint on an IP host", false, 30, true, constraint(0xa1, &wrapped(0x86, b"1.2.3.4"))),
        ("constraint on a network", true, 30, true, constraint(0xa0, &wrapped(0x87, &[0; 8]))),
        ("constraint on a mask", false, 30, true, constraint(0xa0, &wrapped(0x87, &[1; 8]))),
        ("constraint on a directory", true, 30, true, constraint(0xa0, &wrapped(0xa4, b"x"))),
        ("constraint on nothing", false, 30, true, vec![0x30, 2, 0xa0, 0]),
        ("no constraints", false, 30, true, vec![0x30, 0]),
        ("one empty list", true, 30, true, vec![0x30, 9, 0xa0, 0, 0xa1, 5, 0x30, 3, 0x82, 1, b'a']),
        (
            "constraints with more",
            false,
            30,
            true,
            [constraint(0xa0, &wrapped(0x82, b"a")), vec![0]].concat(),
        ),
        (
            "distribution point",
            true,
            31,
            false,
            sequence(&[&sequence(&[&wrapped(0xa0, &wrapped(0xa0, &wrapped(0x86, b"u")))])]),
        ),
        (
            "distribution point elsewhere",
            false,
            31,
            false,
            sequence(&[&sequence(&[&wrapped(0xa0, &wrapped(0xa1, b""))])]),
        ),
        ("policy", true, 32, false, sequence(&[&sequence(&[&[6, 1, 0x2a]])])),
        (
            "the same policy twice",
            false,
            32,
            false,
            sequence(&[&sequence(&[&[6, 1, 0x2a]]), &sequence(&[&[6, 1, 0x2a]])]),
        ),
        (
            "policy with a huge number",
            true,
            32,
            false,
            sequence(&[&sequence(&[&[6, 7, 0x2a, 0xff, 0xff, 0xff, 0xff, 0xff, 1]])]),
        ),
        ("policy that does not end", false, 32, false, sequence(&[&sequence(&[&[6, 1, 0x81]])])),
        ("policy mapping", true, 33, false, sequence(&[&sequence(&[&[6, 0], &[6, 0]])])),
        ("half a policy mapping", false, 33, false, sequence(&[&sequence(&[&[6, 0]])])),
        ("authority key identifier", true, 35, false, vec![0x30, 3, 0x80, 1, 0]),
        ("critical authority key", false, 35, true, vec![0x30, 3, 0x80, 1, 0]),
        ("authority key without one", true, 35, false, vec![0x30, 0]),
        ("policy constraints", true, 36, false, vec![0x30, 6, 0x80, 1, 0, 0x81, 1, 1]),
        ("padded policy constraint", false, 36, false, vec![0x30, 4, 0x80, 2, 0, 1]),
        ("usages", true, 37, false, vec![0x30, 3, 6, 1, 0x2a]),
        (
            "usage with a huge number",
            false,
            37,
            false,
            vec![0x30, 9, 6, 7, 0x2a, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        ),
        ("inhibit any policy", true, 54, false, vec![2, 1, 0]),
        ("inhibit no number", false, 54, false, vec![2, 0]),
        ("unknown and critical", true, 99, true, b"rubbish".to_vec()),
    ];
    for (what, good, number, critical, value) in table {
        check(&CertificateParts::extended(&[(number, critical, &value)]), good, what);
    }
    for (what, good, value) in [
        ("path length", true, vec![0x30, 6, 1, 1, 0xff, 2, 1, 0]),
        ("negative path length", false, vec![0x30, 6, 1, 1, 0xff, 2, 1, 0xff]),
        ("almost true", false, vec![0x30, 3, 1, 1, 1]),
        ("more constraints", true, vec![0x30, 5, 1, 1, 0xff, 5, 0]),
        ("no sequence", false, vec![0x31, 0]),
    ] {
        let parts = CertificateParts::with(|parts| parts.extensions = extensions(&[(19, true, &value)]));
        check(&parts, good, what);
    }
    check(&CertificateParts::extended(&[(99, false, b""), (99, false, b"")]), false, "twice");
}
