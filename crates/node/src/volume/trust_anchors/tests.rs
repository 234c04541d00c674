//! Tests of anchor sets, and of the bundles they come from.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use windlass_api::selector::labels::LabelSelector;
use windlass_pki::{PrivateKey, pem};

use super::{BundleSelector, TrustAnchors, TrustAnchorsError, TrustBundle, TrustBundleIndex};
use crate::testing::{CertificateFixture, START};

/// Returns this many different certificates as PEM.
pub fn certificates(count: usize) -> Vec<String> {
    let key = PrivateKey::generate().unwrap();
    (0..count).map(|_| CertificateFixture::client(START).pem(key.public_key())).collect()
}

pub fn bundle(name: &str, signer: &str, labels: &[(&str, &str)], text: &str) -> TrustBundle {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    TrustBundle::new(name, 1, signer, labels.collect(), text)
}

fn by_name(name: &str) -> BundleSelector {
    BundleSelector::Name(name.to_owned())
}

fn by_signer(signer: &str, selector: Value) -> BundleSelector {
    BundleSelector::Signer(signer.to_owned(), LabelSelector::from_object(&selector).unwrap())
}

#[test]
fn the_text_depends_on_nothing_but_the_set() {
    let texts = certificates(5);
    let [a, b, c, d, e] = texts.as_slice() else { panic!("five") };
    let (whole, unreadable) = TrustAnchors::from_pem(&texts.concat());
    assert_eq!((whole.len(), unreadable), (5, 0));
    // Another order would rewrite every file on every node.
    let digests = whole.der().map(super::fingerprint).collect::<Vec<_>>();
    assert!(digests.is_sorted());
    let orders = [
        [e, d, c, b, a].map(String::as_str).concat(),
        [c, a, e, a, b, d, c].map(String::as_str).concat(),
        format!("words before\n{a}{b}words between\n{c}\n\n{d}\r\n{e}words after"),
        texts.concat().replace('\n', "\r\n"),
    ];
    for order in &orders {
        let (anchors, _) = TrustAnchors::from_pem(order);
        assert_eq!(anchors.to_pem(), whole.to_pem());
        assert_eq!(anchors.digest(), whole.digest());
    }
    // From one bundle or from several.
    let mut bundles = TrustBundleIndex::default();
    for (index, text) in texts.iter().enumerate() {
        let both = format!("{text}{a}");
        bundles.set(bundle(&format!("s:x:{index}"), "s/x", &[], &both));
    }
    let together = bundles.anchors(&by_signer("s/x", json!({})), false).unwrap();
    assert_eq!(together, whole);
    let (fewer, _) = TrustAnchors::from_pem(&[b, c, d, e].map(String::as_str).concat());
    assert_ne!(fewer.digest(), whole.digest());
    assert_eq!(fewer.len(), 4);
    assert_eq!(TrustAnchors::default().to_pem(), "");
}

#[test]
fn only_certificates_come_out() {
    let texts = certificates(2);
    let key = PrivateKey::generate().unwrap().to_pem().unwrap();
    let junk = pem::encode(pem::CERTIFICATE, b"no certificate");
    let with_headers = texts[1].replacen("-----\n", "-----\nComment: mine\n\n", 1);
    let text = format!("# Comment\n{}{}{}{}", texts[0], key.as_str(), junk.as_str(), with_headers);
    let (anchors, unreadable) = TrustAnchors::from_pem(&text);
    assert_eq!((anchors.len(), unreadable), (2, 1));
    let out = anchors.to_pem();
    assert_eq!(out.matches("-----BEGIN ").count(), 2);
    assert_eq!(out.matches("-----BEGIN CERTIFICATE-----\n").count(), 2);
    assert!(!out.contains("omment") && !out.contains("PRIVATE"));
    let mut lines = out.lines();
    assert!(lines.all(|line| !line.contains(':')), "no headers");
    assert_eq!(anchors, TrustAnchors::from_pem(&texts.concat()).0);
}

#[test]
fn bundles_are_selected_by_name_or_by_signer_and_labels() {
    let texts = certificates(4);
    let mut bundles = TrustBundleIndex::default();
    bundles.set(bundle("plain", "", &[("label", "a")], &texts[0]));
    bundles.set(bundle("foo.bar:a:1", "foo.bar/a", &[("label", "a")], &texts[1]));
    bundles.set(bundle("foo.bar:a:2", "foo.bar/a", &[("label", "b")], &texts[2]));
    bundles.set(bundle("foo.bar:b:1", "foo.bar/b", &[("label", "a")], &texts[3]));
    bundles.set(bundle("empty", "", &[], "nothing in it"));

    let none = Err(TrustAnchorsError::NoneMatched);
    let missing = |name: &str| Err(TrustAnchorsError::NotFound(name.to_owned()));
    let a = json!({"matchLabels": {"label": "a"}});
    let in_ab = json!({"matchExpressions": [
        {"key": "label", "operator": "In", "values": ["a", "b"]},
    ]});
    let not_a = json!({"matchExpressions": [
        {"key": "label", "operator": "NotIn", "values": ["a"]},
    ]});
    let cases = [
        (by_name("plain"), Ok(vec![0])),
        (by_name("foo.bar:a:1"), Ok(vec![1])),
        (by_name("gone"), missing("gone")),
        (by_name("empty"), Err(TrustAnchorsError::Empty)),
        (by_signer("foo.bar/a", a.clone()), Ok(vec![1])),
        (by_signer("foo.bar/b", a), Ok(vec![3])),
        (by_signer("foo.bar/a", in_ab), Ok(vec![1, 2])),
        (by_signer("foo.bar/a", not_a), Ok(vec![2])),
        (by_signer("foo.bar/a", json!({})), Ok(vec![1, 2])),
        (by_signer("foo.bar/a", Value::Null), none.clone()),
        (by_signer("foo.bar/a", json!({"matchLabels": {"label": "c"}})), none.clone()),
        (by_signer("foo.bar/c", json!({})), none),
    ];
    for (select, wanted) in cases {
        let wanted = wanted.map(|indices: Vec<usize>| {
            let texts = indices.iter().map(|index| texts[*index].as_str());
            TrustAnchors::from_pem(&texts.collect::<String>()).0
        });
        assert_eq!(bundles.anchors(&select, false), wanted, "{select:?}");
        let optional = Ok(wanted.unwrap_or_default());
        assert_eq!(bundles.anchors(&select, true), optional, "{select:?}");
    }
}

#[test]
fn errors_are_kubelets() {
    let texts = [
        (
            TrustAnchorsError::NotFound("gone".to_owned()),
            "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \"gone\" not found",
        ),
        (
            TrustAnchorsError::NoneMatched,
            "combination of signerName and labelSelector matched zero ClusterTrustBundles",
        ),
    ];
    for (error, text) in texts {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn bundles_change() {
    let texts = certificates(3);
    let mut bundles = TrustBundleIndex::default();
    let all = |signer: &str| by_signer(signer, json!({}));
    bundles.set(bundle("n", "s/a", &[], &texts[0]));
    bundles.set(bundle("n", "s/a", &[], &texts[1]));
    let (second, _) = TrustAnchors::from_pem(&texts[1]);
    assert_eq!(bundles.anchors(&by_name("n"), false).unwrap(), second);
    assert_eq!(bundles.anchors(&all("s/a"), false).unwrap(), second);
    // The server forbids this, but a delete and a create may look like it.
    bundles.set(bundle("n", "s/b", &[], &texts[2]));
    assert_eq!(bundles.anchors(&all("s/a"), false), Err(TrustAnchorsError::NoneMatched));
    assert_eq!(bundles.anchors(&all("s/b"), false).unwrap().len(), 1);
    bundles.remove("n");
    bundles.remove("n");
    assert!(bundles.is_empty() && bundles.by_signer.is_empty());
    let labels = BTreeMap::new();
    bundles.set(TrustBundle::new("m", 7, "", labels, &texts.concat()));
    assert_eq!((bundles.len(), bundles.select(&by_name("m"))[0].generation), (1, 7));
}
