//! Tests of the lifecycle of targets: ConfigMaps, Secrets and ClusterTrustBundles.

use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use windlass_controllers::bundles::BundleSettings;
use windlass_server::system_clock;

use super::{BundleFixture, ED25519, HASH, LABEL, P256, RSA, TRUST, bundle_pem, settings};
use crate::fixture::{object, wait_until, wait_until_removed};

async fn merge(maps: &Api<ConfigMap>, name: &str, patch: Value) {
    maps.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_is_created_and_deleted_with_its_bundle() {
    let site = BundleFixture::start().await;
    site.apply_source("src", json!({"k": P256})).await;
    let sources = json!([{"configMap": {"name": "src", "key": "k"}}, {"inLine": ED25519}]);
    site.create("roots", sources, json!({"configMap": {"key": "ca.crt"}})).await;
    let both = bundle_pem(&[P256, ED25519]);
    for namespace in ["a", "b", "default", "kube-system", TRUST] {
        let map = site.wait_for_data(namespace, "roots", &[("ca.crt", &both)]).await;
        assert_eq!(map.labels()[LABEL], "roots");
        let owners = map.owner_references();
        assert_eq!((owners.len(), owners[0].controller), (1, Some(true)));
    }
    let (message, status) = site.wait_for_reason("roots", "Synced").await;
    assert_eq!(message, "Successfully synced Bundle to all namespaces");
    assert_eq!(status["certificates"], 2);
    assert_eq!(status["sources"][0]["source"], "configMap src at key k");
    // A source changes and a namespace is created.
    site.apply_source("src", json!({"k": RSA})).await;
    let both = bundle_pem(&[RSA, ED25519]);
    site.wait_for_data("a", "roots", &[("ca.crt", &both)]).await;
    site.world.create_namespace("c").await;
    site.wait_for_data("c", "roots", &[("ca.crt", &both)]).await;
    // The target key is renamed.
    site.patch("roots", json!({"spec": {"target": {"configMap": {"key": "new"}}}})).await;
    site.wait_for_data("a", "roots", &[("new", &both)]).await;
    site.wait_for_data("c", "roots", &[("new", &both)]).await;
    // The Bundle selects only some namespaces.
    let label = json!({"metadata": {"labels": {"team": "x"}}});
    let namespaces = site.world.namespaces();
    namespaces.patch("a", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    let selector = json!({"matchLabels": {"team": "x"}});
    site.patch("roots", json!({"spec": {"target": {"namespaceSelector": selector}}})).await;
    for namespace in ["b", "c", "default", TRUST] {
        wait_until_removed(&site.config_maps(namespace), "roots").await;
    }
    let (message, _) = site.wait_for_reason("roots", "Synced").await;
    let words = "Successfully synced Bundle to namespaces that match this label selector: team=x";
    assert_eq!(message, words);
    namespaces.patch("b", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    site.wait_for_data("b", "roots", &[("new", &both)]).await;
    let label = json!({"metadata": {"labels": {"team": "y"}}});
    namespaces.patch("a", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    wait_until_removed(&site.config_maps("a"), "roots").await;
    // Deleting the Bundle deletes its targets.
    let _ = site.bundles().delete("roots", &DeleteParams::default()).await.unwrap();
    wait_until_removed(&site.config_maps("b"), "roots").await;
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_created_and_deleted_with_its_bundle() {
    let site = BundleFixture::start().await;
    let formats = json!({"jks": {"key": "t.jks"}, "pkcs12": {"key": "t.p12", "password": "x"}});
    let target = json!({"secret": {"key": "ca.crt"}, "additionalFormats": formats});
    site.create("roots", json!([{"inLine": P256}]), target).await;
    let has = |keys: &'static [&'static str], pem: String| {
        move |secret: Option<&Secret>| {
            let data = secret.and_then(|secret| secret.data.as_ref());
            data.is_some_and(|data| {
                data.keys().map(String::as_str).eq(keys.iter().copied()) && data["ca.crt"].0 == pem.as_bytes()
            })
        }
    };
    let all: &[&str] = &["ca.crt", "t.jks", "t.p12"];
    for namespace in ["a", "b"] {
        let right = has(all, bundle_pem(&[P256]));
        let secret = wait_until(&site.secrets(namespace), "roots", "be there", right).await.unwrap();
        assert_eq!(secret.type_.as_deref(), Some("Opaque"));
    }
    site.wait_for_reason("roots", "Synced").await;
    assert!(site.config_maps("a").get_opt("roots").await.unwrap().is_none());
    // Another client deletes or changes a target.
    let secrets = site.secrets("a");
    let _ = secrets.delete("roots", &DeleteParams::default()).await.unwrap();
    wait_until(&secrets, "roots", "be back", has(all, bundle_pem(&[P256]))).await;
    let drift = json!({"stringData": {"ca.crt": "other"}});
    secrets.patch("roots", &PatchParams::default(), &Patch::Merge(drift)).await.unwrap();
    wait_until(&secrets, "roots", "be repaired", has(all, bundle_pem(&[P256]))).await;
    // The target kind changes to ConfigMap.
    let target = json!({"secret": null, "additionalFormats": null, "configMap": {"key": "k"}});
    site.patch("roots", json!({"spec": {"target": target}})).await;
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[P256]))]).await;
    wait_until_removed(&secrets, "roots").await;
    // The Bundle has no target any more.
    site.patch("roots", json!({"spec": {"target": null}})).await;
    wait_until_removed(&site.config_maps("a"), "roots").await;
    site.wait_for_reason("roots", "Synced").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_repaired_and_what_others_wrote_stays() {
    let site = BundleFixture::start().await;
    let metadata = json!({"labels": {"l": "1"}, "annotations": {"n": "2"}});
    let target = json!({"configMap": {"key": "k", "metadata": metadata}});
    let sources = json!([{"inLine": P256}]);
    let maps = site.config_maps("a");
    // An object of that name with data exists already: it is left alone until its manager hands it
    // over.
    let foreign: ConfigMap = object(json!({"metadata": {"name": "roots"}, "data": {"own": "x"}}));
    let foreign = maps.create(&PostParams::default(), &foreign).await.unwrap();
    site.create("roots", sources, target).await;
    let pem = bundle_pem(&[P256]);
    site.wait_for_data("b", "roots", &[("k", &pem)]).await;
    let (message, _) = site.wait_for_reason("roots", "SyncConfigMapTargetFailed").await;
    assert!(message.contains("it exists and is not of this Bundle"), "{message}");
    let kept = maps.get("roots").await.unwrap();
    assert_eq!(kept.resource_version(), foreign.resource_version());
    merge(&maps, "roots", json!({"metadata": {"labels": {LABEL: "roots"}}})).await;
    site.wait_for_data("a", "roots", &[("k", &pem), ("own", "x")]).await;
    site.wait_for_reason("roots", "Synced").await;
    let described = |map: Option<&ConfigMap>| {
        map.is_some_and(|map| {
            let labelled = map.labels().get("l").is_some_and(|value| value == "1");
            let annotated = map.annotations().get("n").is_some_and(|value| value == "2");
            labelled && annotated && map.labels().contains_key(LABEL) && map.annotations().contains_key(HASH)
        })
    };
    let owned = |map: Option<&ConfigMap>| map.is_some_and(|m| m.owner_references().len() == 1);
    for drift in [
        json!({"data": {"k": "changed"}}),
        json!({"data": {"k": null}}),
        json!({"metadata": {"labels": null, "annotations": null}}),
        json!({"metadata": {"ownerReferences": null}}),
    ] {
        merge(&maps, "roots", drift).await;
        site.wait_for_data("a", "roots", &[("k", &pem), ("own", "x")]).await;
        wait_until(&maps, "roots", "be described", described).await;
        wait_until(&maps, "roots", "be owned", owned).await;
    }
    for drift in [json!({"labels": {"l": "changed"}}), json!({"annotations": {"n": null}})] {
        merge(&site.config_maps("b"), "roots", json!({"metadata": drift})).await;
        wait_until(&site.config_maps("b"), "roots", "be described", described).await;
    }
    // A released object keeps the data of other managers and is no longer a target.
    site.patch("roots", json!({"spec": {"target": null}})).await;
    site.wait_for_data("a", "roots", &[("own", "x")]).await;
    let free = |map: Option<&ConfigMap>| {
        map.is_some_and(|map| map.owner_references().is_empty() && map.labels().is_empty())
    };
    wait_until(&maps, "roots", "be free", free).await;
    wait_until_removed(&site.config_maps("b"), "roots").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trust_bundle_is_source_and_target() {
    let site = BundleFixture::start().await;
    let anchors: Api<ClusterTrustBundle> = Api::all(site.world.client.clone());
    let of = |name: &str, pem: &str| {
        object::<ClusterTrustBundle>(json!({
            "metadata": {"name": name, "labels": {"x": "1"}},
            "spec": {"signerName": "example.com/a", "trustBundle": pem},
        }))
    };
    anchors.create(&PostParams::default(), &of("example.com:a:one", P256)).await.unwrap();
    let source = json!({"signerName": "example.com/a", "labelSelector": {"matchLabels": {"x": "1"}}});
    let target = json!({
        "configMap": {"key": "k"}, "clusterTrustBundle": {"signerName": "example.com/out"},
    });
    site.create("roots", json!([{"clusterTrustBundle": source}]), target).await;
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[P256]))]).await;
    let holds = |pem: String| {
        move |found: Option<&ClusterTrustBundle>| found.is_some_and(|found| found.spec.trust_bundle == pem)
    };
    let name = "example.com:out:roots";
    wait_until(&anchors, name, "be there", holds(bundle_pem(&[P256]))).await;
    anchors.create(&PostParams::default(), &of("example.com:a:two", ED25519)).await.unwrap();
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[P256, ED25519]))]).await;
    wait_until(&anchors, name, "have both", holds(bundle_pem(&[P256, ED25519]))).await;
    let _ = anchors.delete("example.com:a:one", &DeleteParams::default()).await.unwrap();
    wait_until(&anchors, name, "have one", holds(bundle_pem(&[ED25519]))).await;
    let drift = Patch::Merge(json!({"spec": {"trustBundle": RSA}}));
    anchors.patch(name, &PatchParams::default(), &drift).await.unwrap();
    wait_until(&anchors, name, "be repaired", holds(bundle_pem(&[ED25519]))).await;
    // An object of another owner is not touched.
    let mut other = of("taken", RSA);
    other.spec.signer_name = None;
    let other = anchors.create(&PostParams::default(), &other).await.unwrap();
    site.create("taken", json!([{"inLine": P256}]), json!({"clusterTrustBundle": {}})).await;
    let (message, _) = site.wait_for_reason("taken", "SyncClusterTrustBundleTargetFailed").await;
    assert!(message.contains("it exists and is not of this Bundle"), "{message}");
    let kept = anchors.get("taken").await.unwrap();
    assert_eq!(kept.resource_version(), other.resource_version());
    let without = json!({"spec": {"target": {"clusterTrustBundle": null}}});
    site.patch("roots", without).await;
    wait_until_removed(&anchors, name).await;
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[ED25519]))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_pass_writes_nothing() {
    let mut site = BundleFixture::without_controllers().await;
    let formats = json!({"pkcs12": {"key": "p", "password": "x"}});
    let metadata = json!({"labels": {"l": "1", "m": "2"}, "annotations": {"n": "3"}});
    let target = json!({
        "configMap": {"key": "k", "metadata": metadata}, "secret": {"key": "k"},
        "additionalFormats": formats,
    });
    site.create("roots", json!([{"inLine": P256}]), target).await;
    site.run(settings(), system_clock());
    site.wait_for_reason("roots", "Synced").await;
    let before = (site.target_versions().await, site.bundles().get("roots").await.unwrap());
    assert_eq!(
        before.0.len(),
        2 * site.world.namespaces().list(&Default::default()).await.unwrap().items.len()
    );
    // Restarted controllers have an empty cache; a second Bundle shows that they have reconciled.
    site.world.stop_controllers().await;
    site.run(settings(), system_clock());
    site.create("other", json!([{"inLine": RSA}]), json!({"configMap": {"key": "k"}})).await;
    site.wait_for_reason("other", "Synced").await;
    site.patch("roots", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    site.patch("other", json!({"spec": {"target": null}})).await;
    wait_until_removed(&site.config_maps("a"), "other").await;
    wait_until_removed(&site.config_maps("b"), "other").await;
    site.wait_for("the other's targets are gone", async || {
        (site.target_versions().await.len() == before.0.len()).then_some(())
    })
    .await;
    assert_eq!(site.target_versions().await, before.0);
    let after = site.bundles().get("roots").await.unwrap();
    assert_eq!(after.data["status"], before.1.data["status"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_of_other_settings_are_removed() {
    let mut site = BundleFixture::without_controllers().await;
    site.create("roots", json!([{"inLine": P256}]), json!({"configMap": {"key": "k"}})).await;
    site.create("sealed", json!([{"inLine": P256}]), json!({"secret": {"key": "k"}})).await;
    site.run(settings(), system_clock());
    site.wait_for_reason("roots", "Synced").await;
    site.wait_for_reason("sealed", "Synced").await;
    site.world.stop_controllers().await;
    site.patch("sealed", json!({"spec": {"target": {"secret": null, "configMap": {"key": "k"}}}})).await;
    let only = ["a".to_owned()].into_iter().collect();
    site.run(BundleSettings { target_namespaces: only, ..BundleSettings::default() }, system_clock());
    let (message, _) = site.wait_for_reason("sealed", "Synced").await;
    assert_eq!(message, "Successfully synced Bundle to all allowed namespaces");
    wait_until_removed(&site.secrets("a"), "sealed").await;
    wait_until_removed(&site.config_maps("b"), "roots").await;
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[P256]))]).await;
    // Secret targets are disabled here.
    site.patch("sealed", json!({"spec": {"target": {"secret": {"key": "k"}}}})).await;
    let (message, _) = site.wait_for_reason("sealed", "SecretTargetsDisabled").await;
    assert_eq!(message, "Bundle has Secret targets but the feature is disabled");
    site.wait_for_data("a", "sealed", &[("k", &bundle_pem(&[P256]))]).await;
}
