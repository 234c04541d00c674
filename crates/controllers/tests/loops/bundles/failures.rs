//! Tests of failed writes, which are reported and do not block other targets.

use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{BundleFixture, LABEL, P256, RSA, bundle_pem};
use crate::fixture::{TestCluster, object, wait_until_removed};

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_another_owner_is_reported_and_unchanged() {
    let site = BundleFixture::without_controllers().await;
    let owner: ConfigMap = object(json!({"metadata": {"name": "owner"}}));
    let owner = site.config_maps("b").create(&PostParams::default(), &owner).await.unwrap();
    let controller = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid,
        "controller": true,
    });
    let foreign = json!({
        "metadata": {"name": "roots", "ownerReferences": [controller]}, "data": {"x": "y"},
    });
    let foreign = site.config_maps("b").create(&PostParams::default(), &object(foreign)).await.unwrap();
    let mut site = site;
    site.run(super::settings(), windlass_server::system_clock());
    site.create("roots", json!([{"inLine": P256}]), json!({"configMap": {"key": "k"}})).await;
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[P256]))]).await;
    let (message, status) = site.wait_for_reason("roots", "SyncConfigMapTargetFailed").await;
    assert!(message.starts_with("Failed to sync bundle ConfigMap to namespace \"b\": "), "{message}");
    assert!(message.ends_with("it is controlled by ConfigMap owner"), "{message}");
    assert_eq!(status["conditions"][0]["status"], "False");
    let kept = site.config_maps("b").get("roots").await.unwrap();
    assert_eq!(kept.metadata.resource_version, foreign.metadata.resource_version);
    for namespace in ["default", "kube-system", "cert-manager"] {
        site.wait_for_data(namespace, "roots", &[("k", &bundle_pem(&[P256]))]).await;
    }
    let event = events(&site.world, "SyncConfigMapTargetFailed").await;
    assert_eq!((&event["type"], &event["action"]), (&json!("Warning"), &json!("SyncFailed")));
    // Deleting the owner also deletes the ConfigMap; the target is then written without another
    // trigger.
    let _ = site.config_maps("b").delete("owner", &Default::default()).await.unwrap();
    site.wait_for_data("b", "roots", &[("k", &bundle_pem(&[P256]))]).await;
    site.wait_for_reason("roots", "Synced").await;
    let event = events(&site.world, "Synced").await;
    assert_eq!(event["reportingController"], "bundles");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_namespace_that_refuses_does_not_delay_the_others() {
    let site = BundleFixture::without_controllers().await;
    // An immutable ConfigMap cannot be updated.
    for name in ["one", "two"] {
        let metadata = json!({"name": name, "labels": {LABEL: name}});
        let stuck = json!({"metadata": metadata, "data": {"k": "old"}, "immutable": true});
        site.config_maps("a").create(&PostParams::default(), &object(stuck)).await.unwrap();
    }
    let mut site = site;
    site.run(super::settings(), windlass_server::system_clock());
    for name in ["one", "two"] {
        site.create(name, json!([{"inLine": P256}]), json!({"configMap": {"key": "k"}})).await;
    }
    for name in ["one", "two"] {
        for namespace in ["b", "default", "kube-system"] {
            site.wait_for_data(namespace, name, &[("k", &bundle_pem(&[P256]))]).await;
        }
        let (message, _) = site.wait_for_reason(name, "SyncConfigMapTargetFailed").await;
        assert!(message.contains("namespace \"a\""), "{message}");
        assert!(message.contains("field is immutable when `immutable` is set"), "{message}");
    }
    site.world.create_namespace("new").await;
    site.wait_for_data("new", "one", &[("k", &bundle_pem(&[P256]))]).await;
    let metrics = site.world.metrics();
    assert!(metrics.contains("windlass_bundle_targets{bundle=\"one\",state=\"failed\"} 1"), "{metrics}");
    // A namespace that is being deleted does not block.
    let _ = site.world.namespaces().delete("a", &Default::default()).await.unwrap();
    wait_until_removed(&site.world.namespaces(), "a").await;
    site.wait_for_reason("one", "Synced").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_is_reported_instead_of_overwritten() {
    let site = BundleFixture::start().await;
    site.create("roots", json!([{"inLine": P256}]), json!({"configMap": {"key": "k"}})).await;
    let drift = Patch::Merge(json!({"data": {"k": "other"}}));
    for _ in 0..5 {
        site.wait_for_data("b", "roots", &[("k", &bundle_pem(&[P256]))]).await;
        site.config_maps("b").patch("roots", &PatchParams::default(), &drift).await.unwrap();
    }
    let (message, _) = site.wait_for_reason("roots", "SyncConfigMapTargetFailed").await;
    let words = "Failed to sync bundle ConfigMap to namespace \"b\": another manager keeps changing it";
    assert_eq!(message, words);
    // A new change is still written.
    site.patch("roots", json!({"spec": {"sources": [{"inLine": RSA}]}})).await;
    site.wait_for_data("b", "roots", &[("k", &bundle_pem(&[RSA]))]).await;
    site.wait_for_reason("roots", "Synced").await;
}

/// Waits for an event with this reason and returns it.
async fn events(world: &TestCluster, reason: &str) -> Value {
    let waiting = async {
        loop {
            let all = world.api::<Event>("default").list(&ListParams::default()).await.unwrap();
            let mut all = all.items.into_iter();
            let found = all.find(|event| {
                event.reason.as_deref() == Some(reason)
                    && event.involved_object.kind.as_deref() == Some("Bundle")
            });
            if let Some(found) = found {
                let mut found = serde_json::to_value(found).unwrap();
                found["reportingController"] = found["reportingComponent"].clone();
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::fixture::PATIENCE, waiting).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reserved_name_is_refused_and_what_was_written_is_given_back() {
    // The server rejects such Bundles now, but one may exist from an earlier version.
    let (name, uid) = ("kube-root-ca.crt", "0e9e8f4c-6f0f-4b0e-a3f5-6a1d2f9f8f10");
    let bundle = json!({"sources": [{"inLine": P256}], "target": {"configMap": {"key": "ca.crt"}}});
    let stored = format!(
        "{{\"kind\":\"Bundle\",\"apiVersion\":\"trust.cert-manager.io/v1alpha1\",\"metadata\":{{\
         \"name\":\"{name}\",\"uid\":\"{uid}\",\"generation\":1,\
         \"creationTimestamp\":\"2026-01-01T00:00:00Z\"}},\"spec\":{bundle}}}"
    );
    let key = format!("trust.cert-manager.io/bundles/{name}");
    let mut site = BundleFixture::with_stored_objects(&[(key.as_str(), stored)]).await;
    let refused = json!({
        "apiVersion": "trust.cert-manager.io/v1alpha1", "kind": "Bundle",
        "metadata": {"name": "cluster-info"}, "spec": bundle,
    });
    let refused = site.bundles().create(&PostParams::default(), &object(refused)).await;
    assert!(refused.unwrap_err().to_string().contains("is reserved"));
    // ConfigMaps that Kubernetes maintains: untouched in one namespace, overwritten in the other.
    let map = json!({"metadata": {"name": name}, "data": {"ca.crt": RSA}});
    let kept = site.config_maps("b").create(&PostParams::default(), &object(map)).await.unwrap();
    let owner = json!({
        "apiVersion": "trust.cert-manager.io/v1alpha1", "kind": "Bundle", "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    });
    let written = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {LABEL: name}, "ownerReferences": [owner]},
        "data": {"ca.crt": P256},
    });
    let ours = PatchParams::apply("trust-manager");
    site.config_maps("a").patch(name, &ours, &Patch::Apply(written)).await.unwrap();
    site.run(super::settings(), windlass_server::system_clock());
    let (message, status) = site.wait_for_reason(name, "ReservedName").await;
    assert!(message.starts_with("Bundle name is reserved"), "{message}");
    assert_eq!(status["conditions"][0]["status"], "False");
    wait_until_removed(&site.config_maps("a"), name).await;
    let found = site.config_maps("b").get(name).await.unwrap();
    assert_eq!(found.metadata.resource_version, kept.metadata.resource_version);
    for namespace in ["default", "kube-system"] {
        assert!(site.config_maps(namespace).get_opt(name).await.unwrap().is_none(), "{namespace}");
    }
}
