use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::datetime;
use windlass_pki::{
    AltNames, IssuedSubject, KeyPurpose, KeyType, LeafTemplate, PrivateKey, Validity, build_csr, issue, pem,
};
use windlass_testkit::leaf_template;

use super::*;

const NOW: OffsetDateTime = datetime!(2026-11-16 12:00 UTC);

fn encoded(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn csr_object(request: &str, status: Value) -> CsrObject {
    serde_json::from_value(json!({
        "metadata": {"name": "csr-abc", "creationTimestamp": "2026-11-16T11:57:00Z"},
        "spec": {
            "request": encoded(request),
            "signerName": "example.com/web",
            "username": "bob",
            "groups": ["dev", "system:authenticated"],
            "usages": ["digital signature", "server auth"],
            "expirationSeconds": 86400,
        },
        "status": status,
    }))
    .unwrap()
}

fn csr_pem(key: &PrivateKey) -> String {
    let names = AltNames {
        dns_names: vec!["web.example.com".into(), "odd,name".into()],
        ip_addresses: vec!["192.0.2.7".parse().unwrap()],
        ..AltNames::default()
    };
    let subject = IssuedSubject::new("web, O=system:masters", &["dev\u{1b}[2J"]);
    build_csr(key, &subject, &names).unwrap()
}

fn certificate(key: &PrivateKey) -> String {
    let ca = {
        let validity = Validity::new(datetime!(2026-01-01 0:00 UTC), datetime!(2036-01-01 0:00 UTC)).unwrap();
        windlass_testkit::ca_with_validity("example web CA", validity)
    };
    let leaf = LeafTemplate {
        alt_names: vec![windlass_pki::AltName::Dns("web.example.com".into())],
        ..leaf_template(
            "web",
            &[KeyPurpose::ServerAuth],
            Validity::new(NOW - time::Duration::MINUTE, NOW + time::Duration::DAY).unwrap(),
            key,
        )
    };
    let der = issue(&ca, &leaf).unwrap();
    pem::encode_certificates([der.as_slice()])
}

#[test]
fn a_pending_request_is_described() {
    let key = PrivateKey::generate().unwrap();
    let request = csr_object(&csr_pem(&key), json!({}));
    let view = CsrView::from_csr(&request, NOW);
    let expected = "  Name:                csr-abc
  Signer:              example.com/web
  Requested by:        bob (groups: dev, system:authenticated), 3m ago
  Usages:              digital signature, server auth
  Duration:            24h requested
  State:               Pending

Request
  Subject:             O=dev [2J, CN=web\\, O\\=system:masters
  DNS names:           web.example.com, \"odd,name\"
  Addresses:           192.0.2.7
  Key:                 ECDSA P-256
  Proof of possession: verified

Certificate
  none

Conditions
  none
";
    assert_eq!(show(&view, &request, None), expected);
    let wide = show(&view, &request, Some(OutputFormat::Wide));
    assert!(wide.starts_with(expected) && wide.contains("BEGIN CERTIFICATE REQUEST"), "{wide}");
    assert_eq!(
        summarize(&view),
        "O=dev [2J, CN=web\\, O\\=system:masters, DNS:web.example.com, DNS:\"odd,name\", IP:192.0.2.7 \
         from example.com/web for digital signature, server auth, 24h requested, requested by bob"
    );
    assert!(view.is_pending);
}

#[test]
fn a_certificate_is_described() {
    let key = PrivateKey::generate_type(KeyType::EcdsaP384).unwrap();
    let other = PrivateKey::generate().unwrap();
    for (holder, reported) in
        [(&key, "ECDSA P-384, matches the request"), (&other, "DOES NOT MATCH the request")]
    {
        let approved = json!({
            "type": "Approved", "status": "True", "reason": "Checked", "message": "two\nlines",
            "lastUpdateTime": "2026-11-16T11:58:00Z",
        });
        let status = json!({"conditions": [approved], "certificate": encoded(&certificate(holder))});
        let request = csr_object(&csr_pem(&key), status);
        let view = CsrView::from_csr(&request, NOW);
        let text = show(&view, &request, None);
        for words in [
            "State:               Approved,Issued",
            "Subject:             CN=web\n  DNS names:           web.example.com",
            "Validity:            2026-11-16T11:59:00Z to 2026-11-17T12:00:00Z, expires in 24h",
            "Issuer:              CN=example web CA",
            "Approved True, 2m ago, Checked: two lines",
            reported,
        ] {
            assert!(text.contains(words), "{words} in\n{text}");
        }
        let json = serde_json::to_value(&view).unwrap();
        assert_eq!(json["certificate"]["keyMatches"], std::ptr::eq(holder, &key));
        assert_eq!(json["certificate"]["dnsNames"], json!(["web.example.com"]));
        assert_eq!(json["request"]["key"], "ECDSA P-384");
        assert!(!view.is_pending);
    }
}

#[test]
fn undecodable_requests_show_the_reason() {
    let status = json!({"conditions": [{"type": "Denied", "status": "True"}], "certificate": encoded("x")});
    let request = csr_object("rubbish", status);
    let view = CsrView::from_csr(&request, NOW);
    let text = show(&view, &request, None);
    assert!(text.contains("PEM block type must be CERTIFICATE REQUEST"), "{text}");
    assert!(text.contains("must contain at least one CERTIFICATE PEM block"), "{text}");
    assert!(text.contains("Denied True, <unknown> ago, no reason: \n"), "{text}");
    assert_eq!(view.state, "Denied,Issued");
    assert!(serde_json::to_value(&view).unwrap()["request"]["error"].is_string());
}

#[test]
fn a_list_has_the_format_of_kubectl() {
    let key = PrivateKey::generate().unwrap();
    let views = [CsrView::from_csr(&csr_object(&csr_pem(&key), json!({})), NOW)];
    let expected = "NAME      AGE   SIGNERNAME        REQUESTOR   REQUESTEDDURATION   CONDITION\n\
                    csr-abc   3m    example.com/web   bob         24h                 Pending\n";
    assert_eq!(list(&views, None), expected);
    let wide = list(&views, Some(OutputFormat::Wide));
    assert!(wide.contains("NAMES") && wide.contains("DNS:web.example.com"), "{wide}");
    let names = list(&views, Some(OutputFormat::Name));
    assert_eq!(names, "certificatesigningrequest.certificates.k8s.io/csr-abc\n");
}
