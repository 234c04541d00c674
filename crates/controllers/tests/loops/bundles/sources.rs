//! Where certificates come from: missing, optional, bad, expiring.

use std::sync::{Arc, Mutex};

use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use time::{Duration, OffsetDateTime};
use windlass_controllers::bundles::package::Package;
use windlass_controllers::bundles::pool::Filters;
use windlass_controllers::bundles::{PackageFile, Settings};
use windlass_pki::{Authority, PrivateKey, Serial, Subject, SystemRandom, Validity};
use windlass_server::server::system_clock;

use super::{ED25519, P256, RSA, Site, TRUST, settings, standing, text};
use crate::fixture::object;

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_source_keeps_targets_as_they_were() {
    let site = Site::start().await;
    site.source("src", json!({"k": P256})).await;
    let sources = json!([{"configMap": {"name": "src", "key": "k"}}]);
    site.create("roots", sources, json!({"configMap": {"key": "k"}})).await;
    let map = site.has("a", "roots", &[("k", &text(&[P256]))]).await;
    site.says("roots", "Synced").await;
    let _ = site.maps(TRUST).delete("src", &DeleteParams::default()).await.unwrap();
    let (message, status) = site.says("roots", "SourceNotFound").await;
    let words = "Bundle source was not found: failed to get ConfigMap cert-manager/src: \
                 configmaps \"src\" not found";
    assert_eq!(message, words);
    assert_eq!(
        (&status["certificates"], &status["sources"][0]["certificates"]),
        (&json!(1), &json!(0))
    );
    let kept = site.maps("a").get("roots").await.unwrap();
    assert_eq!(kept.metadata.resource_version, map.metadata.resource_version);
    site.source("src", json!({"k": RSA})).await;
    site.has("a", "roots", &[("k", &text(&[RSA]))]).await;
    site.says("roots", "Synced").await;
    // Something that is no certificate.
    site.source(
        "src",
        json!({"k": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}),
    )
    .await;
    let (message, _) = site.says("roots", "SourceBuildError").await;
    assert!(message.contains("ConfigMap cert-manager/src at key \"k\""), "{message}");
    site.has("a", "roots", &[("k", &text(&[RSA]))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_optional_may_come_later() {
    let site = Site::start().await;
    let sources = json!([
        {"inLine": P256},
        {"configMap": {"name": "later", "key": "k"}, "optional": true},
        {"secret": {"selector": {"matchLabels": {"ca": "yes"}}, "includeAllKeys": true}},
    ]);
    site.create("roots", sources, json!({"configMap": {"key": "k"}})).await;
    site.has("a", "roots", &[("k", &text(&[P256]))]).await;
    let (_, status) = site.says("roots", "Synced").await;
    let problem = status["sources"][1]["problem"].as_str().unwrap();
    assert!(problem.contains("configmaps \"later\" not found"), "{problem}");
    site.source("later", json!({"k": ED25519})).await;
    site.has("a", "roots", &[("k", &text(&[P256, ED25519]))]).await;
    let secret = json!({
        "metadata": {"name": "s", "labels": {"ca": "yes"}}, "stringData": {"one": RSA},
    });
    site.secrets(TRUST).create(&PostParams::default(), &object(secret)).await.unwrap();
    site.has("a", "roots", &[("k", &text(&[P256, ED25519, RSA]))]).await;
    // Its own target in the trust namespace is no source of it.
    let sources = json!([{"inLine": P256}, {"configMap": {"selector": {}, "key": "k"}}]);
    let own = json!({"spec": {"sources": sources, "target": {"configMap": {"key": "k"}}}});
    site.change("roots", own).await;
    site.has("a", "roots", &[("k", &text(&[P256, ED25519]))]).await;
    site.has(TRUST, "roots", &[("k", &text(&[P256, ED25519]))]).await;
    let _ = site.maps(TRUST).delete("later", &DeleteParams::default()).await.unwrap();
    site.has("a", "roots", &[("k", &text(&[P256]))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_package_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("package.json");
    let write = |version: &str, pem: &str| {
        let package = Package::from_store("own", version, pem.as_bytes()).unwrap();
        std::fs::write(&path, package.to_json().unwrap()).unwrap();
        package.id()
    };
    let first = write("1", P256);
    let file = PackageFile::open(path.clone()).unwrap();
    let settings = Settings { package: Some(file.clone()), ..settings() };
    let site = Site::with(settings, system_clock()).await;
    site.create("roots", json!([{"useDefaultCAs": true}]), json!({"configMap": {"key": "k"}}))
        .await;
    site.has("a", "roots", &[("k", &text(&[P256]))]).await;
    let (_, status) = site.says("roots", "Synced").await;
    assert_eq!(status["defaultCAVersion"], first);
    let second = write("2", ED25519);
    file.reload();
    site.has("a", "roots", &[("k", &text(&[ED25519]))]).await;
    site.wait("the status names the second", async || {
        let bundle = site.bundles().get("roots").await.unwrap();
        (bundle.data["status"]["defaultCAVersion"] == second).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_package_the_reason_is_told() {
    let site = Site::with(settings(), standing(OffsetDateTime::now_utc())).await;
    site.create("roots", json!([{"useDefaultCAs": true}]), json!({"configMap": {"key": "k"}}))
        .await;
    let (message, _) = site.says("roots", "SourceNotFound").await;
    assert!(message.contains("default CAs not available"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_goes_when_it_expires() {
    let now = Arc::new(Mutex::new(OffsetDateTime::now_utc()));
    let end = *now.lock().unwrap() + Duration::SECOND;
    let (subject, key) = (Subject::new("short", &[]).unwrap(), PrivateKey::generate().unwrap());
    let validity = Validity::new(end - Duration::DAY, end).unwrap();
    let serial = Serial::random(&SystemRandom::new()).unwrap();
    let short = Authority::self_signed(&subject, validity, key, serial).unwrap();
    let short = short.certificate().to_pem();
    let filters = Filters { expired: true, non_authorities: false };
    let clock = now.clone();
    let clock = Arc::new(move || *clock.lock().unwrap());
    let site = Site::with(Settings { filters, ..settings() }, clock).await;
    let sources = json!([{"inLine": format!("{P256}{short}")}]);
    site.create("roots", sources, json!({"configMap": {"key": "k"}})).await;
    site.has("a", "roots", &[("k", &text(&[P256, &short]))]).await;
    // From here on nothing happens but that time passes.
    *now.lock().unwrap() += Duration::minutes(1);
    site.has("a", "roots", &[("k", &text(&[P256]))]).await;
}
