#![allow(clippy::indexing_slicing)]

use der::asn1::{Any, ObjectIdentifier, PrintableStringRef, SetOfVec, Utf8StringRef};
use der::{Decode, Encode};
use x509_cert::attr::AttributeTypeAndValue;

use super::*;

/// Builds a name with each attribute in a separate set.
fn name(attributes: &[(&str, &str)]) -> DistinguishedName {
    let sets = attributes.iter().map(|(oid, value)| {
        let value = Utf8StringRef::new(value).unwrap().to_der().unwrap();
        let attribute = AttributeTypeAndValue {
            oid: ObjectIdentifier::new(oid).unwrap(),
            value: Any::from_der(&value).unwrap(),
        };
        SetOfVec::try_from(vec![attribute]).unwrap()
    });
    DistinguishedName::from_certificate(&sets.collect::<Vec<_>>().to_der().unwrap()).unwrap()
}

#[test]
fn names_are_written_as_go_writes_them() {
    let (c, o, ou, cn) = ("2.5.4.6", "2.5.4.10", "2.5.4.11", "2.5.4.3");
    let table: &[(&[(&str, &str)], &str)] = &[
        (&[], ""),
        (&[(cn, "root")], "CN=root"),
        // The order is Go's, not the certificate's.
        (&[(c, "GB"), (o, "Isode Limited"), (cn, "Steve")], "CN=Steve,O=Isode Limited,C=GB"),
        (&[(cn, "Steve"), (o, "Isode Limited"), (c, "GB")], "CN=Steve,O=Isode Limited,C=GB"),
        (
            &[
                (cn, "cn"),
                ("2.5.4.5", "sn"),
                (c, "c"),
                ("2.5.4.7", "l"),
                ("2.5.4.8", "st"),
                ("2.5.4.9", "s"),
                (o, "o"),
                (ou, "ou"),
                ("2.5.4.17", "pc"),
            ],
            "SERIALNUMBER=sn,CN=cn,POSTALCODE=pc,STREET=s,ST=st,L=l,OU=ou,O=o,C=c",
        ),
        // Values of one type are grouped, unless Go keeps only one.
        (&[(ou, "a"), (cn, "x"), (ou, "b")], "CN=x,OU=a+OU=b"),
        (&[(cn, "first"), (cn, "last")], "CN=last"),
        (&[(cn, "first"), (cn, "")], ""),
        (&[(o, "")], "O="),
        // Attributes unknown to Go come last, in reverse order, as PrintableString or UTF8String.
        (
            &[("0.9.2342.19200300.100.1.25", "com"), ("1.2.3", "a*"), (cn, "x")],
            "CN=x,1.2.3=#0c02612a,0.9.2342.19200300.100.1.25=#1303636f6d",
        ),
        (&[(cn, "L. Eagle"), (o, "Sue, Grabbit & Runn")], "CN=L. Eagle,O=Sue\\, Grabbit & Runn"),
        (&[(cn, "a+b\"c\\d<e>f;g=h")], "CN=a\\+b\\\"c\\\\d\\<e\\>f\\;g=h"),
        (&[(cn, " a b ")], "CN=\\ a b\\ "),
        (&[(cn, " ")], "CN=\\ "),
        (&[(cn, "#a#")], "CN=\\#a#"),
        (&[(cn, "Zürich 🔑")], "CN=Zürich 🔑"),
    ];
    for (attributes, expected) in table {
        assert_eq!(text(&name(attributes)), *expected, "{attributes:?}");
    }
}

#[test]
fn a_printable_string_of_another_type_is_written_as_it_stands() {
    assert_eq!(encoded("com"), PrintableStringRef::new("com").unwrap().to_der().unwrap());
}

#[test]
fn aliases_differ_also_in_lower_case() {
    let (upper, lower) = (name(&[("2.5.4.3", "ROOT")]), name(&[("2.5.4.3", "root")]));
    let digests = [[1; 32], [2; 32]].map(|mut digest: [u8; 32]| {
        digest[..4].fill(0xAB);
        digest
    });
    let pair = [(digests[0].as_slice(), &upper), (digests[1].as_slice(), &lower)];
    let aliases = unique_aliases(pair.into_iter());
    let [one, other] = aliases.as_slice() else { panic!() };
    assert_eq!(*one, format!("abababab{}|CN=ROOT", "01".repeat(28)));
    assert_eq!(*other, format!("abababab{}|CN=root", "02".repeat(28)));
    assert_eq!(unique_aliases(pair.into_iter().take(1)), ["abababab|CN=ROOT"]);
}
