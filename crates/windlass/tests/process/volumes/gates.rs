//! What the agent's feature gates turn off.

use serde_json::json;

use super::world::{SIGNERS, World, anchor, bundle, certificate, named, pod, read};

#[test]
fn what_is_turned_off_is_not_mounted_and_says_so() {
    let off = "--feature-gates ClusterTrustBundleProjection=false,PodCertificateRequest=false";
    let mut world = World::with(SIGNERS, off);
    let one = anchor();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"},
                     "data": {"greeting": "hello"}});
    let plain = json!({"configMap": {"name": "map"}});
    world.apply(&[
        map,
        bundle("roots", &one),
        pod("anchors", json!([named("roots"), plain])),
        pod("certificate", json!([certificate()])),
        pod("plain", json!([plain])),
    ]);
    world.is_ready("plain");
    assert_eq!(read(&world.volume("plain").join("greeting")), "hello");
    for (pod, gate) in [
        ("anchors", "ClusterTrustBundle projection: the feature gate ClusterTrustBundleProjection"),
        ("certificate", "PodCertificate projection: the feature gate PodCertificateRequest"),
    ] {
        let why = format!("MountVolume.SetUp failed for volume \"v\" : {gate} is off");
        assert_eq!(world.is_not_ready(pod, "FailedMount"), why);
        assert_eq!(world.failed_mounts(pod), [why]);
        assert!(!world.volume(pod).join("..data").exists(), "{pod}");
    }
    assert_eq!(world.count("podcertificaterequests"), 0);

    // Turned on, they get what they wait for; off again, they keep it.
    world.stop_agent();
    world.start_agent("");
    world.is_ready("anchors");
    world.is_ready("certificate");
    world.stop_agent();
    world.start_agent(off);
    world.is_not_ready("anchors", "KeepingOldContent");
    assert_eq!(read(&world.volume("anchors").join("ca.pem")), one);
    assert!(world.volume("certificate").join("pod.pem").exists());
}
