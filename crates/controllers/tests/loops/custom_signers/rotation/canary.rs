//! Tests of rotations with a canary bundle.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_canary_bundle_gets_and_loses_anchors_first() {
    let fixture = RotationFixture::start("{canary: {labels: {trial: 'true'}}}").await;
    fixture.site.wait_until_anchored(CANARY, 1).await;
    fixture.deliver("trial", CANARY).await;
    fixture.deliver("n1", MAIN).await;
    fixture.create("rotation", json!({"canary": {"soakTime": "1h"}})).await;
    fixture.wait_until_held("rotation", "PublishingCanary", "ConsumersLagging").await;
    let canary = fixture.site.wait_until_anchored(CANARY, 2).await;
    assert_eq!(canary.labels()["trial"], "true");
    fixture.deliver("trial", CANARY).await;
    fixture.wait_until_held("rotation", "PublishingCanary", "CanarySoaking").await;
    fixture.site.wait_until_anchored(MAIN, 1).await;
    *fixture.site.now.lock().unwrap() += HOUR;
    fixture.wait_until_held("rotation", "WaitingForTrust", "ConsumersLagging").await;
    fixture.deliver("n1", MAIN).await;
    fixture.wait_until_held("rotation", "Retiring", "ConsumersLagging").await;
    fixture.site.wait_until_anchored(CANARY, 1).await;
    fixture.site.wait_until_anchored(MAIN, 2).await;
    fixture.deliver("trial", CANARY).await;
    fixture.site.wait_until_anchored(MAIN, 1).await;
    fixture.deliver("n1", MAIN).await;
    fixture.wait_for_phase("rotation", "Completed").await;
    fixture.site.world.shut_down().await;
}

/// Neither a canary volume that cannot be written nor one that loses the anchors lets the other bundle change.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_canary_is_rolled_back_and_the_other_bundle_never_changes() {
    let mut fixture = RotationFixture::start("{canary: {labels: {trial: 'true'}}}").await;
    fixture.site.wait_until_anchored(CANARY, 1).await;
    let old = certificate(&fixture.secret().await, "tls.crt");
    fixture.deliver("n1", MAIN).await;
    let before = fixture.site.bundles().get(MAIN).await.unwrap();
    let soaks = json!({"canary": {"soakTime": "1h"}});

    // The volume cannot be written.
    fixture.report("trial", CANARY, json!({"message": "disk full"})).await;
    fixture.create("blocked", soaks.clone()).await;
    let status = fixture.wait_for_phase("blocked", "RolledBack").await;
    let steps = status["steps"].as_array().unwrap();
    let canary = steps.iter().find(|step| step["phase"] == "PublishingCanary").unwrap();
    let message = canary["message"].as_str().unwrap();
    assert!(message.ends_with("the first is node/trial/shop/web/trust: disk full"), "{message}");
    assert_eq!(canary["waitedFor"], json!(["node/trial/shop/web/trust"]));
    assert_eq!(fixture.site.events("CanaryFailed").await.len(), 1);

    // It had the anchors and has lost them.
    fixture.deliver("trial", CANARY).await;
    fixture.create("lost", soaks.clone()).await;
    fixture.wait_until_held("lost", "PublishingCanary", "ConsumersLagging").await;
    fixture.deliver("trial", CANARY).await;
    fixture.wait_until_held("lost", "PublishingCanary", "CanarySoaking").await;
    fixture.report("trial", CANARY, json!({"bundles": []})).await;
    fixture.wait_for_phase("lost", "RollingBack").await;
    // The decision survives a restart, although the volume recovers.
    fixture.restart().await;
    fixture.site.wait_until_anchored(CANARY, 1).await;
    fixture.deliver("trial", CANARY).await;
    fixture.wait_for_phase("lost", "RolledBack").await;

    let after = fixture.site.bundles().get(MAIN).await.unwrap();
    assert_eq!(after.spec.trust_bundle, before.spec.trust_bundle);
    assert_eq!(after.spec.trust_bundle, old.to_pem());
    let annotation = |bundle: &Bundle| bundle.annotations().contains_key("windlass.dev/tainted-authorities");
    assert!(!annotation(&after));
    let secret = fixture.secret().await;
    assert_eq!((certificate(&secret, "tls.crt").der(), entry(&secret, "next.key")), (old.der(), None));

    // Within the budget, it is held instead.
    fixture.report("trial", CANARY, json!({"message": "disk full"})).await;
    fixture.create("tolerated", json!({"canary": {"soakTime": "1h", "maxFailures": 1}})).await;
    fixture.wait_until_held("tolerated", "PublishingCanary", "CanarySoaking").await;
    fixture.site.world.shut_down().await;
}
