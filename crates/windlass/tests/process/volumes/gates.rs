//! Effects of disabled feature gates of the agent.

use serde_json::json;

use super::volume_fixture::{
    SIGNERS, VolumeFixture, anchor, bundle, bundle_source_by_name, certificate, pod_object, read,
};

#[test]
fn disabled_sources_are_not_mounted_and_are_reported() {
    let off = "--feature-gates ClusterTrustBundleProjection=false,PodCertificateRequest=false";
    let mut world = VolumeFixture::with_signers_and_flags(SIGNERS, off);
    let one = anchor();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"},
                     "data": {"greeting": "hello"}});
    let plain = json!({"configMap": {"name": "map"}});
    world.apply(&[
        map,
        bundle("roots", &one),
        pod_object("anchors", json!([bundle_source_by_name("roots"), plain])),
        pod_object("certificate", json!([certificate()])),
        pod_object("plain", json!([plain])),
    ]);
    world.wait_until_ready("plain");
    assert_eq!(read(&world.volume("plain").join("greeting")), "hello");
    for (pod, gate) in [
        ("anchors", "ClusterTrustBundle projection: the feature gate ClusterTrustBundleProjection"),
        ("certificate", "PodCertificate projection: the feature gate PodCertificateRequest"),
    ] {
        let why = format!("MountVolume.SetUp failed for volume \"v\" : {gate} is off");
        assert_eq!(world.wait_until_not_ready(pod, "FailedMount"), why);
        assert_eq!(world.failed_mounts(pod), [why]);
        assert!(!world.volume(pod).join("..data").exists(), "{pod}");
    }
    assert_eq!(world.count("podcertificaterequests"), 0);

    // Enabled, they get what they wait for; disabled again, they keep it.
    world.stop_agent();
    world.start_agent("");
    world.wait_until_ready("anchors");
    world.wait_until_ready("certificate");
    world.stop_agent();
    world.start_agent(off);
    world.wait_until_not_ready("anchors", "KeepingOldContent");
    assert_eq!(read(&world.volume("anchors").join("ca.pem")), one);
    assert!(world.volume("certificate").join("pod.pem").exists());
}
