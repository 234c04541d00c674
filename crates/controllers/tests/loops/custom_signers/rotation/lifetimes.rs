//! Tests of times in rotations: leaves end before a planned retirement, and long holds are reported.

use windlass_api::timestamp;

use super::*;

/// Returns when the certificate of a request ends.
fn end_of(request: &Csr) -> OffsetDateTime {
    let text = &request.status.as_ref().unwrap().certificate.as_ref().unwrap().0;
    Certificate::from_pem(text).unwrap().validity().not_after()
}

#[tokio::test(flavor = "multi_thread")]
async fn leaves_of_the_old_ca_end_before_its_planned_retirement() {
    let fixture = RotationFixture::start("{}").await;
    fixture.deliver("n1", MAIN).await;
    let start = *fixture.site.now.lock().unwrap();
    let retirement = start + DAY;
    let old = certificate(&fixture.secret().await, "tls.crt");
    fixture.create("rotation", json!({"retirement": {"notBefore": timestamp::format(retirement)}})).await;
    fixture.wait_until_held("rotation", "WaitingForTrust", "ConsumersLagging").await;
    let one = fixture.issue("one").await;
    assert!(is_of(&old, &one));
    assert!(end_of(&one) <= retirement && end_of(&one) > retirement - HOUR, "{}", end_of(&one));

    fixture.deliver("n1", MAIN).await;
    fixture.wait_for_phase("rotation", "Renewing").await;
    let new = certificate(&fixture.secret().await, "tls.crt");
    let mut number = 0;
    let two = loop {
        // The signer may still have the old CA in memory for a moment.
        number += 1;
        let request = fixture.issue(&format!("two-{number}")).await;
        if is_of(&new, &request) {
            break request;
        }
    };
    assert!(end_of(&two) > retirement + HOUR, "leaves of the new CA are not limited");
    // No leaf of the old CA is in use, and it is too early nevertheless.
    let is_early =
        |status: &Value| status["leaves"]["outstanding"] == 0 && held(status) == Some("LeavesOutstanding");
    let status = fixture.wait("rotation", "held until the retirement", is_early).await;
    assert!(status["message"].as_str().unwrap().starts_with("spec.retirement.notBefore is "), "{status:#}");
    fixture.site.wait_until_anchored(MAIN, 2).await;
    *fixture.site.now.lock().unwrap() += DAY + HOUR;
    fixture.site.wait_until_anchored(MAIN, 1).await;
    fixture.deliver("n1", MAIN).await;
    fixture.wait_for_phase("rotation", "Completed").await;
    fixture.site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_warns_about_a_rotation_that_is_held_for_five_minutes() {
    let fixture = RotationFixture::start("{}").await;
    fixture.deliver("n1", MAIN).await;
    fixture.create("rotation", json!({})).await;
    fixture.wait_until_held("rotation", "WaitingForTrust", "ConsumersLagging").await;
    let warnings = async || {
        let found = fixture.site.events("ConsumersLagging").await;
        found.into_iter().filter(|event| event.type_.as_deref() == Some("Warning")).collect::<Vec<_>>()
    };
    *fixture.site.now.lock().unwrap() += Duration::from_secs(240);
    // Another reconciliation, after which it is still too early.
    fixture.deliver("n2", MAIN).await;
    fixture.wait("rotation", "told of another node", |status| status["consumers"]["total"] == 2).await;
    assert_eq!(warnings().await.len(), 0);
    *fixture.site.now.lock().unwrap() += Duration::from_secs(61);
    let warned = async {
        loop {
            if let Some(event) = warnings().await.pop() {
                return event;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let event = tokio::time::timeout(crate::fixture::PATIENCE, warned).await.unwrap();
    let regarding = event.regarding.unwrap();
    assert_eq!(
        (regarding.kind.as_deref(), regarding.name.as_deref()),
        (Some("CARotation"), Some("rotation"))
    );
    assert!(event.note.unwrap().contains("node/n1/shop/web/trust"));
    fixture.site.world.shut_down().await;
}
