//! Metrics of volumes of the agent.

use serde_json::json;

use super::volume_fixture::{
    VolumeFixture, anchor, bundle, bundle_source_by_name, certificate, metric, pod_object, wait_for_text,
    wait_until,
};

#[test]
fn everything_has_its_name_and_a_sensible_value() {
    let world = VolumeFixture::start();
    let (one, two) = (anchor(), anchor());
    world.apply(&[
        bundle("roots", &one),
        pod_object("p", json!([bundle_source_by_name("roots"), certificate()])),
        pod_object("q", json!([bundle_source_by_name("roots")])),
        pod_object("missing", json!([bundle_source_by_name("none")])),
    ]);
    world.wait_until_ready("p");
    world.wait_until_ready("q");
    world.wait_until_not_ready("missing", "FailedMount");
    world.apply(&[bundle("roots", &two)]);
    wait_for_text(&world.volume("p").join("ca.pem"), &two);
    wait_for_text(&world.volume("q").join("ca.pem"), &two);
    let arrival = "windlass_node_trust_delivery_seconds_count{from=\"arrival\"}";
    let page = wait_until("the deliveries are not counted", || {
        let page = world.metrics();
        (metric(&page, arrival)? >= 2.0).then_some(page)
    });
    let is = |name: &str| metric(&page, name).unwrap_or_else(|| panic!("{name}\n{page}"));
    assert!(is("clustertrustbundle_informer_cache_size") > 300.0);
    let of = |source: &str| format!("projected_volume_source_type=\"{source}\"");
    // Each pod has a token and a ConfigMap for its service account.
    for (source, number) in
        [("ClusterTrustBundle", 3.0), ("PodCertificate", 1.0), ("ServiceAccountToken", 3.0)]
    {
        let source = of(source);
        assert_eq!(is(&format!("projectedvolumesource_instances{{{source}}}")), number);
    }
    let bundles = of("ClusterTrustBundle");
    for (status, least) in [("OK", 4.0), ("Error", 1.0)] {
        let labels = format!("{{{bundles},status=\"{status}\"}}");
        let counted = is(&format!("projectedvolumesource_refresh_count{labels}"));
        assert!(counted >= least, "{status}: {counted}");
        let timed = is(&format!("projectedvolumesource_refresh_duration_count{labels}"));
        assert_eq!(timed, counted);
    }
    let spent = is(&format!("projectedvolumesource_refresh_duration_sum{{{bundles},status=\"OK\"}}"));
    assert!(spent > 0.0 && spent < 30.0, "{spent}");
    let waited = is("windlass_node_trust_delivery_seconds_sum{from=\"arrival\"}");
    assert!(waited > 0.0 && waited < 30.0, "{waited}");
    assert!(is("windlass_node_trust_delivery_seconds_count{from=\"change\"}") >= 2.0);
    let fresh = "{signer_name=\"example.com/workloads\",state=\"fresh\"}";
    assert_eq!(is(&format!("kubelet_podcertificate_states{fresh}")), 1.0);
}
