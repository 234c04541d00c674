//! Tests of request names, adoption of earlier requests, and waiting.

use std::sync::Arc;
use std::time::Duration;

use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tokio::time::Instant;
use windlass_pki::AltNames;
use windlass_testkit::{InjectedFault, ScriptedApi, Signer, SigningPolicy};

use super::*;
use crate::testing::{CertificateFixture, START};

const MINUTE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(15 * 60);

fn signer() -> Signer {
    Arc::new(|request| CertificateFixture::client(START).pem(&request.public_key().to_public_key().unwrap()))
}

fn key() -> PrivateKey {
    PrivateKey::generate().unwrap()
}

async fn submit_with(server: &ScriptedApi, key: &PrivateKey) -> Result<SubmittedCsr, CsrSubmitError> {
    submit(&server.client(), CertificatePurpose::Client, &CertificateTemplate::client("n1"), key, START).await
}

#[test]
fn names_are_those_of_kubernetes() {
    let spki = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEKRncdrlny7V7g7Re51d20LVpmNwlRHA1GK2vi3OoRu/4EN3K9TjophxncVh6QlrMMZexGsb2CGwLDJ9U6boXUg==";
    let key = PublicKey::from_der(&STANDARD.decode(spki).unwrap()).unwrap();
    let template = CertificateTemplate::client("test-node");
    assert_eq!(
        request_name(&key, &template, &CertificatePurpose::Client.usages()),
        "node-csr-ThDGoDPTp4IT2yw4p2kGo-LrRuuujataPMBl06Y2YQo"
    );
    assert_eq!(
        request_name(&key, &template, &["digital signature", "client auth", "key encipherment"]),
        "node-csr-0PGjrxNAmLyQYed5G-zgcKJcIDpCQpeW94jPKgGSFzU"
    );
}

#[tokio::test(start_paused = true)]
async fn submits_once_per_key() {
    let server = ScriptedApi::new(SigningPolicy::Wait);
    let key = key();
    let first = submit_with(&server, &key).await.unwrap();
    assert_eq!(submit_with(&server, &key).await.unwrap(), first);
    assert_eq!(server.created().len(), 1);
    // The response was lost, but the request was created.
    let other = PrivateKey::generate().unwrap();
    server.fault("create", InjectedFault::Lost);
    assert!(matches!(submit_with(&server, &other).await, Err(CsrSubmitError::Api(_))));
    submit_with(&server, &other).await.unwrap();
    assert_eq!(server.created().len(), 2);
    // The request is deleted between the conflict and the read.
    server.fault("get", InjectedFault::Status(404));
    let gone = submit_with(&server, &other).await.unwrap_err();
    assert!(gone.to_string().contains("AlreadyExists"), "{gone}");
}

#[tokio::test(start_paused = true)]
async fn reports_server_errors() {
    for (fault, expected) in [
        (InjectedFault::Status(401), "unauthorized: the server rejected the credentials"),
        (InjectedFault::Status(403), "scripted 403"),
        (InjectedFault::Status(404), "scripted 404"),
        (InjectedFault::Status(500), "scripted 500"),
        (InjectedFault::Cut, "connection reset by the script"),
        (InjectedFault::Silence, "the server did not respond within 30s"),
    ] {
        let server = ScriptedApi::new(SigningPolicy::Wait);
        server.fault("create", fault);
        assert_eq!(submit_with(&server, &key()).await.unwrap_err().to_string(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn does_not_take_the_request_of_another() {
    let other_key = build_csr(&key(), &CertificateTemplate::client("n1").subject(), &AltNames::default());
    let mine = key();
    let write = |template: &CertificateTemplate| {
        STANDARD.encode(build_csr(&mine, &template.subject(), &template.names).unwrap())
    };
    let serving = CertificateTemplate::serving("n1", ["n1".to_owned()], []).unwrap();
    let old = CertificateFixture::client(START - time::Duration::days(9)).pem(mine.public_key());
    let table = [
        ("/spec/signerName", json!("example.com/a"), "it is for the signer example.com/a"),
        ("/spec/request", json!(STANDARD.encode(other_key.unwrap())), "it is for another key"),
        ("/spec/request", json!(write(&CertificateTemplate::client("n2"))), "it is for another subject"),
        ("/spec/request", json!(write(&serving)), "it is for other names"),
        ("/spec/request", json!(STANDARD.encode("nothing")), "it cannot be read"),
        ("/status/certificate", json!(STANDARD.encode(old)), "its certificate has expired"),
    ];
    for (field, value, expected) in table {
        let server = ScriptedApi::new(SigningPolicy::Sign(signer()));
        let asked = submit_with(&server, &mine).await.unwrap();
        server.edit(&asked.name, |request| *request.pointer_mut(field).unwrap() = value);
        let error = submit_with(&server, &mine).await.unwrap_err();
        assert!(matches!(error, CsrSubmitError::Incompatible { .. }));
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn waits_for_later_events() {
    type Expected = fn(&CsrOutcome) -> bool;
    let table: [(SigningPolicy, Expected); 5] = [
        (SigningPolicy::Sign(signer()), |o| matches!(o, CsrOutcome::Issued(text) if !text.is_empty())),
        (SigningPolicy::Refuse("Denied"), |o| *o == CsrOutcome::Denied("Because: of the script".into())),
        (SigningPolicy::Refuse("Failed"), |o| *o == CsrOutcome::Failed("Because: of the script".into())),
        (SigningPolicy::Approve, |o| *o == CsrOutcome::TimedOut(CsrStage::Signature)),
        (SigningPolicy::Wait, |o| *o == CsrOutcome::TimedOut(CsrStage::Approval)),
    ];
    for (policy, expected) in table {
        // Before the first read, and during the watch.
        for early in [true, false] {
            let server = ScriptedApi::new(if early { policy.clone() } else { SigningPolicy::Wait });
            let asked = submit_with(&server, &key()).await.unwrap();
            let (began, client) = (Instant::now(), server.client());
            let decided = async {
                server.until(|server| server.calls("watch") > 0).await;
                if !early {
                    server.decide(&policy);
                }
                std::future::pending().await
            };
            let outcome = tokio::select! {
                outcome = wait_for_completion(&client, &asked, LONG, |_| {}) => outcome,
                () = decided => unreachable!(),
            };
            assert!(expected(&outcome), "{outcome:?}");
            let timed_out = matches!(outcome, CsrOutcome::TimedOut(_));
            assert_eq!(began.elapsed() >= LONG, timed_out, "{outcome:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn notices_that_its_request_is_another() {
    type Change = fn(&ScriptedApi, &str);
    let change: [(Change, &str); 2] =
        [(ScriptedApi::delete, "it was deleted"), (ScriptedApi::replace, "it was replaced by another one")];
    for (change, expected) in change {
        // Without and during a watch.
        for watching in [false, true] {
            let server = ScriptedApi::new(SigningPolicy::Wait);
            let (asked, client) = (submit_with(&server, &key()).await.unwrap(), server.client());
            if !watching {
                change(&server, &asked.name);
            }
            let changed = async {
                server.until(|server| server.calls("watch") > 0).await;
                if watching {
                    change(&server, &asked.name);
                }
                std::future::pending().await
            };
            let outcome = tokio::select! {
                outcome = wait_for_completion(&client, &asked, LONG, |_| {}) => outcome,
                () = changed => unreachable!(),
            };
            let CsrOutcome::Gone(why) = outcome else { panic!("{outcome:?}") };
            assert!(why == expected || watching && why == "it was deleted", "{why}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn retries_after_broken_connections() {
    let faults = [
        InjectedFault::Status(500),
        InjectedFault::Status(503),
        InjectedFault::Status(410),
        InjectedFault::Cut,
    ];
    for verb in ["list", "watch"] {
        for fault in faults {
            let server = ScriptedApi::new(SigningPolicy::Wait);
            let (asked, client) = (submit_with(&server, &key()).await.unwrap(), server.client());
            for _ in 0..4 {
                server.fault(verb, fault);
            }
            let trouble = async {
                server.until(|server| server.calls(verb) > 4).await;
                server.cut_watches();
                server.until(|server| server.calls("watch") > 1).await;
                server.decide(SigningPolicy::Sign(signer()));
                std::future::pending().await
            };
            let outcome = tokio::select! {
                outcome = wait_for_completion(&client, &asked, LONG, |_| {}) => outcome,
                () = trouble => unreachable!(),
            };
            assert!(matches!(outcome, CsrOutcome::Issued(_)), "{verb} {fault:?}: {outcome:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn polls_if_files_cannot_be_watched() {
    for (fault, longest) in [(InjectedFault::Status(403), 6), (InjectedFault::Silence, 61)] {
        for verb in ["list", "watch"] {
            let server = ScriptedApi::new(SigningPolicy::Wait);
            let (asked, client) = (submit_with(&server, &key()).await.unwrap(), server.client());
            server.always(verb, fault);
            server.decide(SigningPolicy::Sign(signer()));
            // The state that the list would have returned.
            if verb == "watch" {
                server.edit(&asked.name, |request| request["status"] = json!({}));
            }
            let began = Instant::now();
            let later = async {
                server.until(|server| server.calls(verb) > 0).await;
                server.decide(SigningPolicy::Sign(signer()));
                std::future::pending().await
            };
            let outcome = tokio::select! {
                outcome = wait_for_completion(&client, &asked, LONG, |_| {}) => outcome,
                () = later => unreachable!(),
            };
            assert!(matches!(outcome, CsrOutcome::Issued(_)), "{verb} {fault:?}: {outcome:?}");
            assert!(began.elapsed() <= Duration::from_secs(longest), "{:?}", began.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ends_when_the_server_does_not_know_us() {
    for verb in ["list", "watch"] {
        let server = ScriptedApi::new(SigningPolicy::Wait);
        let asked = submit_with(&server, &key()).await.unwrap();
        server.always(verb, InjectedFault::Status(401));
        let outcome = wait_for_completion(&server.client(), &asked, LONG, |_| {}).await;
        assert!(matches!(outcome, CsrOutcome::Unauthorized(_)), "{outcome:?}");
    }
    let server = ScriptedApi::new(SigningPolicy::Wait);
    let asked = submit_with(&server, &key()).await.unwrap();
    server.always("list", InjectedFault::Silence);
    server.always("get", InjectedFault::Status(401));
    let began = Instant::now();
    let outcome = wait_for_completion(&server.client(), &asked, LONG, |_| {}).await;
    assert!(matches!(outcome, CsrOutcome::Unauthorized(_)), "{outcome:?}");
    assert!(began.elapsed() <= MINUTE + PATIENCE);
}
