//! Tests of CARotations that are deleted: no key stays behind.

use super::*;

impl RotationFixture {
    async fn delete(&self, name: &str) {
        let _ = self.rotations.delete(name, &DeleteParams::default()).await.unwrap();
    }

    async fn wait_for_secret(&self, what: &str, good: impl Fn(&Secret) -> bool) -> Secret {
        let secrets: Api<Secret> = Api::namespaced(self.site.world.client.clone(), "windlass-system");
        wait_until(&secrets, SECRET, what, |found: Option<&Secret>| found.is_some_and(&good)).await.unwrap()
    }
}

fn has(secret: &Secret, name: &str) -> bool {
    entry(secret, name).is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_deleted_rotations_are_destroyed() {
    let mut fixture = RotationFixture::start("{}").await;
    fixture.deliver("n1", MAIN).await;
    let old = certificate(&fixture.secret().await, "tls.crt");
    // Before the switch, the prepared key is removed, and the old CA signs.
    fixture.create("early", json!({})).await;
    fixture.wait_until_held("early", "WaitingForTrust", "ConsumersLagging").await;
    assert!(has(&fixture.secret().await, "next.key"));
    fixture.delete("early").await;
    fixture.wait_for_secret("have no prepared key", |secret| !has(secret, "next.key")).await;
    assert!(is_of(&old, &fixture.issue("one").await));

    // After the switch, the old key stays for the time of a rotation that says nothing, whoever runs.
    fixture.create("late", json!({})).await;
    fixture.deliver("n1", MAIN).await;
    fixture.wait("late", "held", |status| status["phase"] == "WaitingForTrust").await;
    fixture.deliver("n1", MAIN).await;
    fixture.wait_for_phase("late", "Renewing").await;
    fixture.delete("late").await;
    let is_abandoned = |secret: &Secret| secret.annotations().contains_key("windlass.dev/rotation-abandoned");
    fixture.wait_for_secret("be abandoned", is_abandoned).await;
    let new = certificate(&fixture.secret().await, "tls.crt");
    assert!(new.der() != old.der());
    *fixture.site.now.lock().unwrap() += 6 * DAY;
    fixture.restart().await;
    assert!(is_of(&new, &fixture.issue("two").await));
    assert!(has(&fixture.secret().await, "previous.key"));
    *fixture.site.now.lock().unwrap() += DAY;
    fixture.wait_for_secret("have no previous key", |secret| !has(secret, "previous.key")).await;

    // A later rotation runs as if there had been none, and is deleted after its end.
    fixture.create("third", json!({})).await;
    assert_eq!(fixture.complete("third", &["n1"]).await, "Completed");
    assert!(!is_abandoned(&fixture.secret().await));
    fixture.delete("third").await;
    fixture.wait_for_secret("be abandoned", is_abandoned).await;
    *fixture.site.now.lock().unwrap() += 7 * DAY;
    let last = fixture.wait_for_secret("have one key", |secret| !has(secret, "previous.key")).await;
    assert!(certificate(&last, "tls.crt").der() != new.der());
    fixture.site.world.shut_down().await;
}
