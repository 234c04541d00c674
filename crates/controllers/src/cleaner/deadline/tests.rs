use serde_json::{Value, json};
use time::macros::datetime;

use super::*;

const MADE: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);
/// Time of the decision: one hour after creation.
const DECIDED: &str = "2026-03-01T13:00:00Z";
/// A certificate that expired long ago.
const EXPIRED: &[u8] = include_bytes!("../../../../server/tests/api/conformance/fixtures/ca-expired.pem");

fn request(conditions: &Value, certificate: Option<&[u8]>) -> Csr {
    let mut request: Csr = serde_json::from_value(json!({
        "metadata": {"name": "old", "creationTimestamp": "2026-03-01T12:00:00Z"},
        "spec": {"request": "", "signerName": "example.com/a"},
        "status": {"conditions": conditions},
    }))
    .unwrap();
    let text = certificate.map(|text| k8s_openapi::ByteString(text.to_vec()));
    request.status.as_mut().unwrap().certificate = text;
    request
}

fn condition(kind: &str, when: Option<&str>) -> Value {
    json!({"type": kind, "status": "True", "lastUpdateTime": when})
}

/// States, and the minutes from creation to deletion.
#[test]
fn every_state_has_its_time() {
    let decided = |kind| condition(kind, Some(DECIDED));
    let (day, unread): (i64, Option<&[u8]>) = (24 * 60, Some(b"not a certificate"));
    let table = [
        ("nothing said", json!([]), None, day),
        ("denied", json!([decided("Denied")]), None, 120),
        ("failed", json!([decided("Failed")]), None, 120),
        ("approved and failed", json!([decided("Approved"), decided("Failed")]), None, 120),
        ("approved and signed", json!([decided("Approved")]), unread, 120),
        ("approved", json!([decided("Approved")]), None, 60 + day),
        ("approved and expired", json!([decided("Approved")]), Some(EXPIRED), 0),
        ("denied and expired", json!([decided("Denied")]), Some(EXPIRED), 120),
        ("expired without an approval", json!([]), Some(EXPIRED), day),
        ("signed without an approval", json!([]), unread, day),
        ("custom condition", json!([decided("example.com/Seen")]), None, day),
        ("custom condition and a denial", json!([decided("example.com/Seen"), decided("Denied")]), None, 120),
        // Missing or unusable times.
        ("no time", json!([condition("Denied", None)]), None, day),
        ("Go's zero", json!([condition("Denied", Some("0001-01-01T00:00:00Z"))]), None, day),
        ("before it was made", json!([condition("Denied", Some("1999-01-01T00:00:00Z"))]), None, 60),
    ];
    for (what, conditions, certificate, minutes) in table {
        let deadline = csr_deadline(&request(&conditions, certificate));
        assert_eq!(deadline, Some(MADE + Duration::minutes(minutes)), "{what}");
    }
    let mut ageless = request(&json!([]), None);
    ageless.metadata.creation_timestamp = None;
    assert_eq!(csr_deadline(&ageless), None);
}

#[test]
fn a_condition_with_status_false_does_not_count() {
    let no = json!([{"type": "Denied", "status": "False", "lastUpdateTime": DECIDED}]);
    assert_eq!(csr_deadline(&request(&no, None)), Some(MADE + Duration::DAY));
}

#[test]
fn pods_have_a_quarter_of_an_hour() {
    let made = Time(Timestamp::from_second(MADE.unix_timestamp()).unwrap());
    assert_eq!(pod_request_deadline(&made), Some(MADE + Duration::minutes(15)));
    assert_eq!(pod_request_deadline(&Time(Timestamp::UNIX_EPOCH)), None);
}
