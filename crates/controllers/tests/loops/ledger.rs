//! Tests of the ledger on a server: recording before signing, restarts, concurrent writers, rollover and pruning.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{DynamicObject, ListParams};
use kube::client::Body;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use windlass_api::ledger_segment::LedgerSegmentSpec;
use windlass_controllers::csr_signer::DELAYED;
use windlass_controllers::ledger::{Ledger, parse_segment};
use windlass_controllers::{Clock, MetricFamilies};
use windlass_ledger::{
    AuthorityId, CertificateIndex, CertificateState, IssuanceRecord, KeyHash, LedgerChain, LedgerEntry,
    ObjectUid, RequestKind, RequestReference, SerialNumber, StoredSegment, decode_entries, verify_chain,
};
use windlass_pki::Certificate;
use windlass_runtime::csr::certificate;

use crate::certificates::{SigningLoops, approve, condition, create_csr, is_settled};
use crate::fixture::{PATIENCE, TestCluster, wait_until};

type Csr = CertificateSigningRequest;

/// What a [`faulty_client`] does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The server responds as usual.
    None,
    /// The server does not get the request and responds with this status.
    Rejected(u16),
    /// The server executes the request, and its response is lost.
    Lost,
    /// The server executes the request and never responds.
    Silent,
}

/// A client whose requests a test disturbs.
fn faulty_client(client: &Client, fault: impl Fn(&Method, &str) -> Fault + Send + Sync + 'static) -> Client {
    let (client, fault) = (client.clone(), Arc::new(fault));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, fault) = (client.clone(), fault(request.method(), request.uri().path()));
        async move {
            let failed = |code: u16| {
                let status =
                    json!({"kind": "Status", "apiVersion": "v1", "code": code, "message": "injected"});
                let body = Body::from(status.to_string().into_bytes());
                let code = StatusCode::from_u16(code).unwrap();
                Ok::<_, kube::Error>(Response::builder().status(code).body(body).unwrap())
            };
            match fault {
                Fault::None => client.send(request).await,
                Fault::Rejected(code) => failed(code),
                Fault::Lost => client.send(request).await.and_then(|_| failed(502)),
                Fault::Silent => {
                    client.send(request).await?;
                    std::future::pending().await
                }
            }
        }
    });
    Client::new(service, "default")
}

fn is_ledger_write(method: &Method, path: &str) -> bool {
    path.contains("/ledgersegments") && (method == Method::PUT || method == Method::POST)
}

fn clock_ahead(seconds: i64) -> Clock {
    Arc::new(move || OffsetDateTime::now_utc() + time::Duration::seconds(seconds))
}

/// A ledger and its task, which ends when this is dropped.
struct RunningLedger {
    ledger: Ledger,
    _task: JoinSet<Infallible>,
}

fn start_ledger(client: &Client, seconds_ahead: i64) -> RunningLedger {
    let metrics = MetricFamilies::unregistered();
    let (ledger, task) = Ledger::new(client.clone(), clock_ahead(seconds_ahead), &metrics);
    let mut tasks = JoinSet::new();
    tasks.spawn(task.run());
    RunningLedger { ledger, _task: tasks }
}

fn segments_api(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("windlass.dev", "v1alpha1", "LedgerSegment");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

pub async fn stored_segments(client: &Client) -> Vec<StoredSegment> {
    let objects = segments_api(client).list(&ListParams::default()).await.unwrap().items;
    let parse = |object: &DynamicObject| {
        let spec: LedgerSegmentSpec = serde_json::from_value(object.data["spec"].clone()).unwrap();
        parse_segment(&object.name_any(), &spec).unwrap()
    };
    objects.iter().map(parse).collect()
}

/// Verifies all chains and returns the states of all certificates by serial number; none is there twice.
async fn verified_states(client: &Client) -> BTreeMap<String, CertificateState> {
    let segments = stored_segments(client).await;
    let mut index = CertificateIndex::new();
    for chain in LedgerChain::ALL {
        let report = verify_chain(chain, &segments);
        assert!(report.is_intact(), "{chain}: {:?}", report.problems);
    }
    for segment in &segments {
        index.add_segment(&segment.header, &decode_entries(&segment.header, &segment.data).unwrap());
    }
    let mut states = BTreeMap::new();
    for certificate in index.certificates() {
        let serial = certificate.serial().to_string();
        assert!(states.insert(serial.clone(), certificate.state()).is_none(), "{serial} is there twice");
    }
    states
}

/// Waits until the number of certificates in each state is as expected: recorded, issued, abandoned.
async fn wait_for_states(client: &Client, expected: [usize; 3]) -> BTreeMap<String, CertificateState> {
    let waiting = async {
        loop {
            let states = verified_states(client).await;
            let wanted = [CertificateState::Recorded, CertificateState::Issued, CertificateState::Abandoned];
            let counts = wanted.map(|wanted| states.values().filter(|state| **state == wanted).count());
            if counts == expected {
                return states;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, waiting).await;
    found.unwrap_or_else(|_| panic!("{expected:?} certificates were expected"))
}

fn serial_of(request: &Csr) -> String {
    let pem = certificate(request).unwrap();
    let serial = Certificate::from_pem(pem).unwrap().serial().to_vec();
    SerialNumber::from_bytes(&serial).unwrap().to_string()
}

/// A record of a certificate that is valid for an hour.
fn record(number: u32) -> IssuanceRecord {
    let now = OffsetDateTime::now_utc().unix_timestamp();
    let serial = [&[0x40; 12][..], &number.to_be_bytes()].concat();
    IssuanceRecord {
        signer: "example.com/web".into(),
        authority: AuthorityId::from_bytes(&[7; 20]).unwrap(),
        serial: SerialNumber::from_bytes(&serial).unwrap(),
        not_before: now,
        not_after: now + 3600,
        subject: format!("CN=client {number}"),
        dns_names: vec![format!("{number}.example.com")],
        ip_addresses: Vec::new(),
        email_addresses: Vec::new(),
        // As random as the names of real requests, so that a segment has about as many records.
        uris: vec![format!("urn:{}", KeyHash::from_spki(&serial))],
        omitted_names: 0,
        usages: vec!["client auth".into()],
        key_hash: KeyHash::from_spki(&serial),
        requester: "somebody".into(),
        approver: None,
        request: RequestReference {
            kind: RequestKind::CertificateSigningRequest,
            namespace: String::new(),
            name: format!("csr-{number}"),
            uid: ObjectUid::from("0f8fad5b-d9cb-469f-a165-70867728950e"),
        },
        node: None,
        pod: None,
        recorded: now,
    }
}

#[tokio::test]
async fn a_certificate_is_recorded_and_confirmed() {
    let world = TestCluster::without_controllers().await;
    let running = start_ledger(&world.client, 0);
    let _signing = SigningLoops::with_ledger(world.client.clone(), running.ledger.clone());
    let api: Api<Csr> = Api::all(world.client.clone());
    create_csr(&api, "one", "kubelet client").await;
    approve(&api, "one").await;
    let request = wait_until(&api, "one", "be answered", is_settled).await.unwrap();
    let states = verified_states(&world.client).await;
    assert!(states.contains_key(&serial_of(&request)), "the record exists before the certificate");
    wait_for_states(&world.client, [0, 1, 0]).await;
    let segments = stored_segments(&world.client).await;
    let entries = decode_entries(&segments[0].header, &segments[0].data).unwrap();
    let LedgerEntry::Issuance(record) = &entries[0] else { panic!("{entries:?}") };
    assert_eq!(record.signer, "kubernetes.io/kube-apiserver-client-kubelet");
    assert_eq!((record.request.name.as_str(), record.node.as_deref()), ("one", Some("n1")));
    assert_eq!(record.request.uid.to_string(), request.uid().unwrap());
    assert_eq!(record.subject, "CN=system:node:n1,O=system:nodes");
    assert!(!record.usages.is_empty() && !record.requester.is_empty());
}

#[tokio::test]
async fn without_a_record_nothing_is_signed() {
    let world = TestCluster::without_controllers().await;
    let (broken, is_broken) = watch::channel(true);
    let client = faulty_client(&world.client, move |method, path| {
        let fails = is_ledger_write(method, path) && *is_broken.borrow();
        if fails { Fault::Rejected(500) } else { Fault::None }
    });
    let running = start_ledger(&client, 0);
    let _signing = SigningLoops::with_ledger(client, running.ledger.clone());
    let api: Api<Csr> = Api::all(world.client.clone());
    create_csr(&api, "one", "kubelet client").await;
    approve(&api, "one").await;
    let is_delayed = |request: Option<&Csr>| request.is_some_and(|found| condition(found, DELAYED).is_some());
    let request = wait_until(&api, "one", "be delayed", is_delayed).await.unwrap();
    let delayed = condition(&request, DELAYED).unwrap();
    assert_eq!(delayed.reason.as_deref(), Some("LedgerUnavailable"));
    let message = delayed.message.clone().unwrap();
    assert!(message.starts_with("cannot record the certificate in the ledger: "), "{message}");
    assert!(certificate(&request).is_none());
    broken.send_replace(false);
    let request = wait_until(&api, "one", "be answered", is_settled).await.unwrap();
    assert!(condition(&request, DELAYED).is_none());
    let states = wait_for_states(&world.client, [0, 1, 0]).await;
    assert!(states.contains_key(&serial_of(&request)));
}

#[tokio::test]
async fn a_restart_between_record_and_signature_leaves_an_abandoned_record() {
    let world = TestCluster::without_controllers().await;
    let (seen, mut is_recorded) = watch::channel(false);
    // The process ends while its record is stored: the response never arrives.
    let client = faulty_client(&world.client, move |method, path| {
        let is_write = is_ledger_write(method, path);
        seen.send_if_modified(|seen| is_write && !std::mem::replace(seen, true));
        if is_write { Fault::Silent } else { Fault::None }
    });
    let api: Api<Csr> = Api::all(world.client.clone());
    let first = start_ledger(&client, 0);
    let signing = SigningLoops::with_ledger(client, first.ledger.clone());
    create_csr(&api, "one", "kubelet client").await;
    approve(&api, "one").await;
    is_recorded.wait_for(|recorded| *recorded).await.unwrap();
    wait_for_states(&world.client, [1, 0, 0]).await;
    drop((first, signing));

    let second = start_ledger(&world.client, 0);
    let signing = SigningLoops::with_ledger(world.client.clone(), second.ledger.clone());
    let request = wait_until(&api, "one", "be answered", is_settled).await.unwrap();
    wait_for_states(&world.client, [1, 1, 0]).await;
    drop((second, signing));

    let _third = start_ledger(&world.client, 60);
    let states = wait_for_states(&world.client, [0, 1, 1]).await;
    assert_eq!(states[&serial_of(&request)], CertificateState::Issued);
}

#[tokio::test]
async fn a_certificate_whose_write_was_not_acknowledged_is_found() {
    let world = TestCluster::without_controllers().await;
    let client = faulty_client(&world.client, |method, path| {
        let is_answer = method == Method::PUT && path.ends_with("/status");
        if is_answer { Fault::Lost } else { Fault::None }
    });
    let api: Api<Csr> = Api::all(world.client.clone());
    let first = start_ledger(&client, 0);
    let signing = SigningLoops::with_ledger(client, first.ledger.clone());
    create_csr(&api, "one", "kubelet client").await;
    approve(&api, "one").await;
    let request = wait_until(&api, "one", "be answered", is_settled).await.unwrap();
    wait_for_states(&world.client, [1, 0, 0]).await;
    drop((first, signing));
    let _second = start_ledger(&world.client, 60);
    let states = wait_for_states(&world.client, [0, 1, 0]).await;
    assert!(states.contains_key(&serial_of(&request)));
}

#[tokio::test]
async fn writers_share_a_chain_and_lost_responses_duplicate_nothing() {
    let world = TestCluster::without_controllers().await;
    let count = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let client = faulty_client(&world.client, move |method, path| {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match is_ledger_write(method, path) {
            true if number.is_multiple_of(3) => Fault::Lost,
            _ => Fault::None,
        }
    });
    let writers = [start_ledger(&client, 0), start_ledger(&world.client, 0)];
    const RECORDS: u32 = 250;
    let record_one = async |number: u32| {
        let ledger = &writers[usize::try_from(number % 2).unwrap()].ledger;
        // Conflicts may exceed the number of attempts; signers retry with another serial number.
        for retry in 0.. {
            if let Ok(recorded) = ledger.record(record(number + retry * 10_000)).await {
                ledger.confirm(recorded);
                return number + retry * 10_000;
            }
        }
        unreachable!()
    };
    let mut confirmed = Vec::new();
    for chunk in (0..RECORDS).collect::<Vec<_>>().chunks(25) {
        confirmed.extend(join_all(chunk.iter().map(|number| record_one(*number))).await);
    }
    let waiting = async {
        loop {
            let states = verified_states(&world.client).await;
            let is_issued = |number: &u32| {
                states.get(&record(*number).serial.to_string()) == Some(&CertificateState::Issued)
            };
            if confirmed.iter().all(is_issued) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    let segments = stored_segments(&world.client).await;
    assert!(segments.len() > 1, "a full segment has a successor");
    assert!(segments.iter().all(|segment| segment.data.len() <= 40 * 1024));
}

#[tokio::test]
async fn segments_are_deleted_a_week_after_their_certificates_expired() {
    let world = TestCluster::without_controllers().await;
    let running = start_ledger(&world.client, 0);
    for chunk in (0..450).collect::<Vec<u32>>().chunks(90) {
        let recorded = join_all(chunk.iter().map(|number| running.ledger.record(record(*number)))).await;
        recorded.into_iter().for_each(|recorded| running.ledger.confirm(recorded.unwrap()));
    }
    wait_for_states(&world.client, [0, 450, 0]).await;
    let before = stored_segments(&world.client).await;
    assert!(before.len() > 2, "{}", before.len());
    drop(running);

    let week = 7 * 24 * 3600;
    let early = start_ledger(&world.client, week);
    let issued = early.ledger.record(record(1000)).await.unwrap();
    early.ledger.confirm(issued);
    wait_for_states(&world.client, [0, 451, 0]).await;
    drop(early);

    let _late = start_ledger(&world.client, week + 7200);
    let last = before.iter().map(|segment| segment.header.sequence).max().unwrap();
    let waiting = async {
        loop {
            let states = verified_states(&world.client).await;
            let first = stored_segments(&world.client).await.iter().map(|each| each.header.sequence).min();
            if first == Some(last) {
                return states;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let states = tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    assert!(states.contains_key(&record(1000).serial.to_string()));
    let report = verify_chain(LedgerChain::Short, &stored_segments(&world.client).await);
    assert_eq!((report.first, report.pruned_through), (last, last - 1));
}

#[tokio::test]
async fn where_the_kind_is_not_served_certificates_are_issued_without_it() {
    let world = TestCluster::without_controllers().await;
    let client = faulty_client(&world.client, |_, path| {
        if path.starts_with("/apis/windlass.dev") { Fault::Rejected(404) } else { Fault::None }
    });
    let running = start_ledger(&client, 0);
    let _signing = SigningLoops::with_ledger(client, running.ledger.clone());
    let api: Api<Csr> = Api::all(world.client.clone());
    create_csr(&api, "one", "kubelet client").await;
    approve(&api, "one").await;
    wait_until(&api, "one", "be answered", is_settled).await.unwrap();
    assert!(stored_segments(&world.client).await.is_empty());
    assert!(running.ledger.totals().is_empty());
}
