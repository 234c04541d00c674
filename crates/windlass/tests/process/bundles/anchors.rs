//! ClusterTrustBundles as sources and as targets.

use serde_json::json;

use super::bundle_fixture::{BundleFixture, bundle, joined, root, wait_for};
use crate::volumes::volume_fixture::{
    self, VolumeFixture, bundle_source_by_name, pod_object, signed_bundle, wait_for_text,
};

#[test]
fn sources_by_name_and_by_signer() {
    let scene = BundleFixture::start();
    let [one, two, three, four] = ["one", "two", "three", "four"].map(root);
    let apply = |object: serde_json::Value| scene.apply(&object.to_string());
    apply(volume_fixture::bundle("roots", &one));
    apply(signed_bundle("a", "live", &two));
    apply(signed_bundle("b", "canary", &three));
    let live = json!({"signerName": "example.com/hand",
                      "labelSelector": {"matchLabels": {"version": "live"}}});
    let all = json!({"signerName": "example.com/hand", "labelSelector": {}});
    let target = json!({"configMap": {"key": "ca.pem"}});
    scene.bundle("name", json!([{"clusterTrustBundle": {"name": "roots"}}]), target.clone());
    scene.bundle("live", json!([{"clusterTrustBundle": live}]), target.clone());
    scene.bundle("all", json!([{"clusterTrustBundle": all}]), target);
    let is = |name: &str, roots: &[&str]| {
        scene.wait_for_targets_everywhere("configmaps", name, "ca.pem", &joined(roots));
    };
    is("name", &[&one]);
    is("live", &[&two]);
    is("all", &[&two, &three]);

    // Targets follow changes of content and labels, creation and deletion.
    apply(volume_fixture::bundle("roots", &four));
    is("name", &[&four]);
    scene.kubectl_ok(&["label", "clustertrustbundle", "example.com:hand:b", "version=live", "--overwrite"]);
    is("live", &[&two, &three]);
    scene.kubectl_ok(&["delete", "clustertrustbundle", "example.com:hand:a"]);
    is("live", &[&three]);
    is("all", &[&three]);
    scene.kubectl_ok(&["delete", "clustertrustbundle", "roots"]);
    let message = scene.failed("name", "SourceNotFound");
    assert_eq!(
        message,
        "Bundle source was not found: failed to get ClusterTrustBundle roots: \
         clustertrustbundles.certificates.k8s.io \"roots\" not found"
    );
    is("name", &[&four]);
}

#[test]
fn a_target_that_pods_have_as_a_file() {
    let world = VolumeFixture::start();
    let [one, two] = ["one", "two"].map(root);
    let target = json!({"clusterTrustBundle": {"signerName": "example.com/hand",
                                               "metadata": {"labels": {"version": "live"}}}});
    let by_signer = json!({"labelSelector": {"matchLabels": {"version": "live"}}});
    world.apply(&[
        bundle("roots", json!([{"inLine": one}]), target.clone()),
        bundle("plain", json!([{"inLine": two}]), json!({"clusterTrustBundle": {}})),
        pod_object("signer", json!([volume_fixture::selected(by_signer)])),
        pod_object("name", json!([bundle_source_by_name("plain")])),
    ]);
    until_text_of(&world, "signer", &one);
    until_text_of(&world, "name", &two);
    let admin = world.admin();
    let found = admin.json(&["get", "clustertrustbundle", "example.com:hand:roots"]);
    assert_eq!(found["spec"]["signerName"], "example.com/hand");
    assert_eq!(found["metadata"]["labels"]["trust.cert-manager.io/bundle"], "roots");
    assert_eq!(found["metadata"]["ownerReferences"][0]["name"], "roots");

    world.apply(&[bundle("roots", json!([{"inLine": two}]), target.clone())]);
    until_text_of(&world, "signer", &two);
    // Changed or deleted targets are restored.
    admin.ok(&["delete", "clustertrustbundle", "example.com:hand:roots"]);
    wait_for(|| {
        let found = admin.ok(&["get", "clustertrustbundles", "-o", "name"]);
        found.contains("example.com:hand:roots").then_some(()).ok_or(found)
    });
    until_text_of(&world, "signer", &two);
    // A signer name is immutable: a new one means another object.
    let unsigned = json!({"clusterTrustBundle": {}});
    world.apply(&[bundle("roots", json!([{"inLine": two}]), unsigned)]);
    wait_for(|| {
        let found = admin.ok(&["get", "clustertrustbundles", "-o", "name"]);
        let moved =
            found.lines().any(|line| line.ends_with("/roots")) && !found.contains("example.com:hand:roots");
        moved.then_some(()).ok_or(found)
    });
    admin.ok(&["delete", "bundle", "roots", "plain"]);
    wait_for(|| {
        let found = admin.ok(&["get", "clustertrustbundles", "-o", "name"]);
        let gone = !found.lines().any(|it| it.ends_with("/roots") || it.ends_with("/plain"));
        gone.then_some(()).ok_or(found)
    });
}

fn until_text_of(world: &VolumeFixture, pod: &str, text: &str) {
    wait_for_text(&world.volume(pod).join("ca.pem"), text);
}

#[test]
fn a_target_of_another_owner_is_not_written() {
    let scene = BundleFixture::start();
    let [one, two] = ["one", "two"].map(root);
    scene.apply(&volume_fixture::bundle("roots", &one).to_string());
    scene.bundle("roots", json!([{"inLine": two}]), json!({"clusterTrustBundle": {}}));
    let message = scene.failed("roots", "SyncClusterTrustBundleTargetFailed");
    assert!(message.starts_with("Failed to sync bundle ClusterTrustBundle \"roots\": "), "{message}");
    let text = ["get", "clustertrustbundle", "roots", "-o", "jsonpath={.spec.trustBundle}"];
    assert_eq!(scene.kubectl_ok(&text), one);
    // It is written as soon as no other object has the name.
    scene.kubectl_ok(&["delete", "clustertrustbundle", "roots"]);
    scene.synced("roots");
    assert_eq!(scene.kubectl_ok(&text), two.trim_end());
}
