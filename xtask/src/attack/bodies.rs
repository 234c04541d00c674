//! Bodies just below the size limit in which every element is invalid, so that each causes an
//! error.

use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::Method;
use tokio::task::JoinSet;
use tokio::time::timeout;
use windlass_testkit::HttpProtocol;

use super::AttackGuard;
use super::target::AttackTarget;

/// Request body limit of Kubernetes and of Windlass.
const BODY: usize = 3 << 20;
/// Concurrent review requests of the attacker.
const REVIEWS: usize = 4;
/// Elements of a review's selector, and of a signing request's usages.
const REQUIREMENTS: usize = 115_000;
const USAGES: usize = 700_000;
/// Timeout for a response of the server.
const PATIENCE: Duration = Duration::from_secs(10);

const REVIEW: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const SIGNING: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Sends four reviews and a signing request concurrently.
pub async fn post(target: &AttackTarget) -> Result<AttackGuard> {
    let mut requests: Vec<(&str, Bytes)> = (0..REVIEWS)
        .map(|number| {
            let selector = ["labelSelector", "fieldSelector"][number % 2];
            (REVIEW, review(selector))
        })
        .collect();
    requests.push((SIGNING, signing_request()));
    let mut answers = JoinSet::new();
    for (path, body) in requests {
        let mut connection = target.attacker.connect_with(HttpProtocol::Http2).await?;
        answers.spawn(async move {
            let bytes = body.len();
            let answer = timeout(PATIENCE, connection.fetch(Method::POST, path, body)).await;
            match answer {
                Ok(Ok((status, _))) => eprintln!("attack:   {path}, {bytes} bytes: {status}"),
                Ok(Err(error)) => eprintln!("attack:   {path}: {error:#}"),
                Err(_) => eprintln!("attack:   {path}: no answer in {PATIENCE:?}"),
            }
        });
    }
    while let Some(answer) = answers.join_next().await {
        answer?;
    }
    Ok(Box::new(()))
}

fn review(selector: &str) -> Bytes {
    let head = format!(
        r#"{{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{{"resourceAttributes":{{"verb":"list","resource":"pods","{selector}":{{"requirements":["#
    );
    filled(&head, r#"{"key":"!","operator":"x"}"#, REQUIREMENTS, "]}}}}")
}

fn signing_request() -> Bytes {
    let pem = include_str!("../../../crates/server/tests/api/conformance/fixtures/csr-p256.pem");
    let head = format!(
        r#"{{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{{"generateName":"attack-"}},"spec":{{"signerName":"example.com/attack","request":"{}","usages":["#,
        STANDARD.encode(pem)
    );
    filled(&head, r#""!""#, USAGES, "]}}")
}

/// Repeats an element between head and tail `count` times, or as often as the body limit allows.
fn filled(head: &str, element: &str, count: usize, tail: &str) -> Bytes {
    let count = count.min((BODY - head.len() - tail.len()) / (element.len() + 1));
    let elements = vec![element; count].join(",");
    [head, &elements, tail].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_just_below_the_limit() {
        for body in [review("labelSelector"), review("fieldSelector"), signing_request()] {
            assert!((BODY * 8 / 10..=BODY).contains(&body.len()), "{}", body.len());
            serde_json::from_slice::<serde_json::Value>(&body).unwrap();
        }
    }
}
