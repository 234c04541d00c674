//! Tests of sources: missing, optional, invalid and expiring certificates.

use std::sync::{Arc, Mutex};

use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use time::{Duration, OffsetDateTime};
use windlass_controllers::bundles::certificate_set::CertificateFilter;
use windlass_controllers::bundles::package::CaPackage;
use windlass_controllers::bundles::{BundleSettings, PackageFile};
use windlass_pki::Validity;
use windlass_server::system_clock;
use windlass_testkit::ca_with_validity;

use super::{BundleFixture, ED25519, P256, RSA, TRUST, bundle_pem, fixed_clock, settings};
use crate::fixture::object;

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_source_keeps_targets_as_they_were() {
    let site = BundleFixture::start().await;
    site.apply_source("src", json!({"k": P256})).await;
    let sources = json!([{"configMap": {"name": "src", "key": "k"}}]);
    site.create("roots", sources, json!({"configMap": {"key": "k"}})).await;
    let map = site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[P256]))]).await;
    site.wait_for_reason("roots", "Synced").await;
    let _ = site.config_maps(TRUST).delete("src", &DeleteParams::default()).await.unwrap();
    let (message, status) = site.wait_for_reason("roots", "SourceNotFound").await;
    let words = "Bundle source was not found: failed to get ConfigMap cert-manager/src: \
                 configmaps \"src\" not found";
    assert_eq!(message, words);
    assert_eq!((&status["certificates"], &status["sources"][0]["certificates"]), (&json!(1), &json!(0)));
    let kept = site.config_maps("a").get("roots").await.unwrap();
    assert_eq!(kept.metadata.resource_version, map.metadata.resource_version);
    site.apply_source("src", json!({"k": RSA})).await;
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[RSA]))]).await;
    site.wait_for_reason("roots", "Synced").await;
    // Data that is not a certificate.
    site.apply_source("src", json!({"k": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}))
        .await;
    let (message, _) = site.wait_for_reason("roots", "SourceBuildError").await;
    assert!(message.contains("ConfigMap cert-manager/src at key \"k\""), "{message}");
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[RSA]))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn optional_objects_may_be_created_later() {
    let site = BundleFixture::start().await;
    let sources = json!([
        {"inLine": P256},
        {"configMap": {"name": "later", "key": "k"}, "optional": true},
        {"secret": {"selector": {"matchLabels": {"ca": "yes"}}, "includeAllKeys": true}},
    ]);
    site.create("roots", sources, json!({"configMap": {"key": "k"}})).await;
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[P256]))]).await;
    let (_, status) = site.wait_for_reason("roots", "Synced").await;
    let problem = status["sources"][1]["problem"].as_str().unwrap();
    assert!(problem.contains("configmaps \"later\" not found"), "{problem}");
    site.apply_source("later", json!({"k": ED25519})).await;
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[P256, ED25519]))]).await;
    let secret = json!({
        "metadata": {"name": "s", "labels": {"ca": "yes"}}, "stringData": {"one": RSA},
    });
    site.secrets(TRUST).create(&PostParams::default(), &object(secret)).await.unwrap();
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[P256, ED25519, RSA]))]).await;
    // A Bundle's own target in the trust namespace is not one of its sources.
    let sources = json!([{"inLine": P256}, {"configMap": {"selector": {}, "key": "k"}}]);
    let own = json!({"spec": {"sources": sources, "target": {"configMap": {"key": "k"}}}});
    site.patch("roots", own).await;
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[P256, ED25519]))]).await;
    site.wait_for_data(TRUST, "roots", &[("k", &bundle_pem(&[P256, ED25519]))]).await;
    let _ = site.config_maps(TRUST).delete("later", &DeleteParams::default()).await.unwrap();
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[P256]))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_package_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("package.json");
    let write = |version: &str, pem: &str| {
        let package = CaPackage::from_store("own", version, pem.as_bytes()).unwrap();
        std::fs::write(&path, package.to_json().unwrap()).unwrap();
        package.id()
    };
    let first = write("1", P256);
    let file = PackageFile::open(path.clone()).unwrap();
    let settings = BundleSettings { package: Some(file.clone()), ..settings() };
    let site = BundleFixture::start_with(settings, system_clock()).await;
    site.create("roots", json!([{"useDefaultCAs": true}]), json!({"configMap": {"key": "k"}})).await;
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[P256]))]).await;
    let (_, status) = site.wait_for_reason("roots", "Synced").await;
    assert_eq!(status["defaultCAVersion"], first);
    let second = write("2", ED25519);
    file.reload();
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[ED25519]))]).await;
    site.wait_for("the status names the second", async || {
        let bundle = site.bundles().get("roots").await.unwrap();
        (bundle.data["status"]["defaultCAVersion"] == second).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_package_is_reported() {
    let site = BundleFixture::start_with(settings(), fixed_clock(OffsetDateTime::now_utc())).await;
    site.create("roots", json!([{"useDefaultCAs": true}]), json!({"configMap": {"key": "k"}})).await;
    let (message, _) = site.wait_for_reason("roots", "SourceNotFound").await;
    assert!(message.contains("default CAs not available"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_removed_when_it_expires() {
    let now = Arc::new(Mutex::new(OffsetDateTime::now_utc()));
    let end = *now.lock().unwrap() + Duration::SECOND;
    let validity = Validity::new(end - Duration::DAY, end).unwrap();
    let short = ca_with_validity("short", validity).certificate().to_pem();
    let filters = CertificateFilter { expired: true, non_authorities: false };
    let clock = now.clone();
    let clock = Arc::new(move || *clock.lock().unwrap());
    let site = BundleFixture::start_with(BundleSettings { filters, ..settings() }, clock).await;
    let sources = json!([{"inLine": format!("{P256}{short}")}]);
    site.create("roots", sources, json!({"configMap": {"key": "k"}})).await;
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[P256, &short]))]).await;
    // From here on only time passes.
    *now.lock().unwrap() += Duration::minutes(1);
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[P256]))]).await;
}
