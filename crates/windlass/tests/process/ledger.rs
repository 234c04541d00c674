//! Kills a server that issues certificates with `kill -9`: every certificate that a client received is in the ledger
//! exactly once, and its chains verify.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use rand::Rng as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use windlass_api::ledger_segment::LedgerSegmentSpec;
use windlass_controllers::ledger::parse_segment;
use windlass_ledger::{LedgerChain, LedgerEntry, SerialNumber, StoredSegment, decode_entries, verify_chain};
use windlass_pki::{AltNames, Certificate, IssuedSubject, PrivateKey, build_csr};
use windlass_testkit::{HttpClient, HttpConnection};

use crate::server::{BoxedError, PATIENCE, TestServer, long};

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SEGMENTS: &str = "/apis/windlass.dev/v1alpha1/ledgersegments";
const CLIENTS: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn kills_leave_no_certificate_without_a_record() {
    let rounds = if long() { 200 } else { 6 };
    let mut server = TestServer::start();
    let mut received = BTreeSet::new();
    for round in 0..rounds {
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            clients.spawn(request_certificates(server.http(), format!("c{client}-{round}")));
        }
        // A deliberate sleep: the moment of the kill is varied.
        sleep(Duration::from_millis(rand::rng().random_range(100..900))).await;
        let place = server.kill();
        for serials in timeout(PATIENCE, clients.join_all()).await.expect("clients end with the server") {
            received.extend(serials);
        }
        server = place.start();
    }
    // What was issued when the server was killed, and is read later.
    received.extend(issued_serials(&server.http()).await);
    assert!(received.len() > rounds, "only {} certificates: no load", received.len());
    let recorded = recorded_serials(&server.http()).await;
    for serial in &received {
        assert_eq!(recorded.get(serial), Some(&1), "{serial}");
    }
    println!("{rounds} kills, {} certificates received, {} records", received.len(), recorded.len());
}

/// Requests certificates one after the other until the connection breaks; returns the serial numbers of those received.
async fn request_certificates(http: HttpClient, prefix: String) -> Vec<SerialNumber> {
    let mut serials = Vec::new();
    let Ok(mut connection) = http.connect().await else { return serials };
    let key = PrivateKey::generate().unwrap();
    for number in 0.. {
        match request_certificate(&mut connection, &key, &format!("{prefix}-{number}")).await {
            Ok(serial) => serials.push(serial),
            Err(_) => break,
        }
    }
    serials
}

async fn request_certificate(
    connection: &mut HttpConnection,
    key: &PrivateKey,
    name: &str,
) -> Result<SerialNumber, BoxedError> {
    let pem = build_csr(key, &IssuedSubject::new(name, &[]), &AltNames::default()).unwrap();
    let request = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": STANDARD.encode(pem),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
        },
    });
    let (status, mut request) = connection.request(Method::POST, CSRS, &request).await?;
    assert_eq!(status, 201, "{request}");
    let approved = json!({"type": "Approved", "status": "True", "reason": "Tested"});
    request["status"]["conditions"] = json!([approved]);
    let (path, approval) = (format!("{CSRS}/{name}"), format!("{CSRS}/{name}/approval"));
    let (status, answer) = connection.request(Method::PUT, &approval, &request).await?;
    assert_eq!(status, 200, "{answer}");
    loop {
        let (_, request) = connection.request(Method::GET, &path, &Value::Null).await?;
        if let Some(serial) = serial_of(&request) {
            return Ok(serial);
        }
        sleep(Duration::from_millis(2)).await;
    }
}

fn serial_of(request: &Value) -> Option<SerialNumber> {
    Some(certificate_serial(&STANDARD.decode(request["status"]["certificate"].as_str()?).unwrap()))
}

/// Returns the serial number of a certificate in PEM.
pub fn certificate_serial(pem: &[u8]) -> SerialNumber {
    SerialNumber::from_bytes(Certificate::from_pem(pem).unwrap().serial()).unwrap()
}

async fn issued_serials(http: &HttpClient) -> Vec<SerialNumber> {
    let (status, list) = http.request(Method::GET, CSRS, Value::Null).await;
    assert_eq!(status, 200, "{list}");
    list["items"].as_array().unwrap().iter().filter_map(serial_of).collect()
}

/// Verifies the chains and counts the records of every serial number.
pub async fn recorded_serials(http: &HttpClient) -> BTreeMap<SerialNumber, usize> {
    let (status, list) = http.request(Method::GET, SEGMENTS, Value::Null).await;
    assert_eq!(status, 200, "{list}");
    let segments: Vec<StoredSegment> = list["items"].as_array().unwrap().iter().map(stored_segment).collect();
    for chain in LedgerChain::ALL {
        let report = verify_chain(chain, &segments);
        assert!(report.is_intact(), "{chain}: {:?}", report.problems);
    }
    let mut serials = BTreeMap::new();
    for segment in &segments {
        for entry in decode_entries(&segment.header, &segment.data).unwrap() {
            if let LedgerEntry::Issuance(record) = entry {
                *serials.entry(record.serial).or_default() += 1;
            }
        }
    }
    serials
}

fn stored_segment(object: &Value) -> StoredSegment {
    let spec: LedgerSegmentSpec = serde_json::from_value(object["spec"].clone()).unwrap();
    parse_segment(object["metadata"]["name"].as_str().unwrap(), &spec).unwrap()
}
