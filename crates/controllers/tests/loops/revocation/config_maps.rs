//! Tests of the ConfigMaps with revocation lists.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ListParams, Patch, PatchParams};
use windlass_testkit::create;

use super::*;

async fn namespace(site: &CrlFixture, name: &str, label: &str) {
    let labels = json!({"crl": label});
    create::<Namespace>(&site.world.namespaces(), json!({"metadata": {"name": name, "labels": labels}}))
        .await;
}

fn has_list(map: &ConfigMap, list: &CertificateRevocationList) -> bool {
    map.data.as_ref().and_then(|data| data.get("crl.pem")) == Some(&list.to_pem())
}

#[tokio::test(flavor = "multi_thread")]
async fn selected_namespaces_get_the_lists() {
    let site =
        CrlFixture::start("configMap: {name: web-crl, namespaceSelector: {matchLabels: {crl: web}}}").await;
    namespace(&site, "early", "web").await;
    namespace(&site, "other", "none").await;
    namespace(&site, "taken", "web").await;
    // Somebody else's ConfigMap stays, whichever was first.
    let own = json!({"metadata": {"name": "mine"}, "data": {"crl.pem": "mine"}});
    create::<ConfigMap>(&site.world.api("taken"), own).await;
    site.revoke("0a", "keyCompromise").await;
    let list = site.wait_for_list(&site.ca, "have the revocation", |list| list.len() == 1).await;
    namespace(&site, "late", "web").await;
    let id = site.ca.certificate().authority_id();
    for place in ["early", "late"] {
        let good = |found: Option<&ConfigMap>| found.is_some_and(|map| has_list(map, &list));
        let map = wait_until(&site.world.api(place), "web-crl", "have the list", good).await.unwrap();
        assert_eq!(map.data.as_ref().unwrap()[&format!("{id}.pem")], list.to_pem());
        assert_eq!(map.binary_data.as_ref().unwrap()[&format!("{id}.crl")].0, list.der());
        assert_eq!(map.labels()["app.kubernetes.io/managed-by"], "windlass");
        assert_eq!(map.annotations()["windlass.dev/signer-name"], SIGNER);
    }
    // Changes are reverted.
    let change = Patch::Merge(json!({"data": {"crl.pem": "changed"}}));
    let api = site.world.api::<ConfigMap>("early");
    api.patch("web-crl", &PatchParams::default(), &change).await.unwrap();
    let good = |found: Option<&ConfigMap>| found.is_some_and(|map| has_list(map, &list));
    wait_until(&api, "web-crl", "be repaired", good).await;
    let others = site.world.api::<ConfigMap>("other").list(&ListParams::default()).await.unwrap();
    assert!(others.items.iter().all(|map| map.name_any() != "web-crl"));
    site.world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_of_others_is_left_alone() {
    let site =
        CrlFixture::start("configMap: {name: mine, namespaceSelector: {matchLabels: {crl: web}}}").await;
    let own = json!({"metadata": {"name": "mine"}, "data": {"crl.pem": "mine"}});
    namespace(&site, "taken", "none").await;
    let before = create::<ConfigMap>(&site.world.api("taken"), own).await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"crl": "web"}}}));
    site.world.namespaces().patch("taken", &PatchParams::default(), &label).await.unwrap();
    let line = format!("windlass_crl_configmap_conflicts{{signer=\"{SIGNER}\"}} 1");
    let waiting = async {
        while !site.world.metrics().lines().any(|found| found == line) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "{line}");
    let after = site.world.api::<ConfigMap>("taken").get("mine").await.unwrap();
    assert_eq!(after, before);
    site.world.shut_down().await;
}
