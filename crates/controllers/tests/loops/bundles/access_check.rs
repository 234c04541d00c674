//! Tests of restricted permissions: the controller syncs what it can and reports the rest.

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use windlass_controllers::bundles::BundleSettings;
use windlass_controllers::{ControllerName, ControllerOptions, ControllerSelection};
use windlass_server::system_clock;

use super::{BundleFixture, P256, TRUST, bundle_pem};
use crate::fixture::object;

const GROUP: &str = "rbac.authorization.k8s.io";

fn rule(groups: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [groups], "resources": resources, "verbs": verbs})
}

/// Cluster-wide rules of trust-manager's chart, without those for targets.
fn common_rules() -> Vec<Value> {
    let read = ["get", "list", "watch"];
    vec![
        rule("trust.cert-manager.io", &["bundles"], &read),
        rule("trust.cert-manager.io", &["bundles/status"], &["patch"]),
        rule("", &["namespaces"], &read),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
    ]
}

impl BundleFixture {
    /// Grants the controllers these rules in a namespace, or everywhere.
    async fn allow(&self, namespace: Option<&str>, rules: Vec<Value>) {
        let (client, parameters) = (self.world.client.clone(), PostParams::default());
        let subject = json!({"kind": "User", "name": "limited", "apiGroup": GROUP});
        let role = json!({"metadata": {"name": "limited"}, "rules": rules});
        let binding = |kind: &str| {
            json!({
                "metadata": {"name": "limited"}, "subjects": [subject],
                "roleRef": {"apiGroup": GROUP, "kind": kind, "name": "limited"},
            })
        };
        match namespace {
            None => {
                let (roles, bindings) = (Api::<ClusterRole>::all(client.clone()), Api::all(client));
                roles.create(&parameters, &object(role)).await.unwrap();
                let binding = object::<ClusterRoleBinding>(binding("ClusterRole"));
                bindings.create(&parameters, &binding).await.unwrap();
            }
            Some(namespace) => {
                let roles: Api<Role> = Api::namespaced(client.clone(), namespace);
                roles.create(&parameters, &object(role)).await.unwrap();
                let bindings: Api<RoleBinding> = Api::namespaced(client, namespace);
                bindings.create(&parameters, &object(binding("Role"))).await.unwrap();
            }
        }
    }

    /// Starts the Bundle controller as a user with only the granted permissions.
    fn run_limited(&mut self, bundles: BundleSettings) {
        let admin = self.world.client.clone();
        self.world.client = self.world.client_as("limited", &["system:authenticated"]);
        let controllers: ControllerSelection = ControllerName::Bundles.name().parse().unwrap();
        let options = ControllerOptions { bundles, controllers, ..ControllerOptions::new(system_clock()) };
        self.world.run_controllers_with(options);
        self.world.client = admin;
    }

    async fn wait_for_event(&self, reason: &str) -> String {
        self.wait_for(reason, async || {
            let events = self.world.api::<Event>("default").list(&ListParams::default()).await;
            let mut events = events.unwrap().items.into_iter();
            events.find(|event| event.reason.as_deref() == Some(reason))?.message
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_permissions_on_secrets_config_maps_are_written() {
    let mut site = BundleFixture::without_controllers().await;
    let mut rules = common_rules();
    let all = ["get", "list", "watch", "create", "patch", "delete"];
    rules.push(rule("", &["configmaps"], &all));
    site.allow(None, rules).await;
    site.run_limited(BundleSettings { secret_targets: true, ..BundleSettings::default() });
    site.create("open", json!([{"inLine": P256}]), json!({"configMap": {"key": "k"}})).await;
    site.create("sealed", json!([{"inLine": P256}]), json!({"secret": {"key": "k"}})).await;
    let secret = json!([{"secret": {"name": "s", "key": "k"}}]);
    site.create("unread", secret, json!({"configMap": {"key": "k"}})).await;
    site.wait_for_data("a", "open", &[("k", &bundle_pem(&[P256]))]).await;
    site.wait_for_reason("open", "Synced").await;
    let reported = site.wait_for_event("SecretListError").await;
    assert!(reported.starts_with("Failed to list secrets: secrets is forbidden: "), "{reported}");
    let (message, _) = site.wait_for_reason("unread", "SourceBuildError").await;
    let words = "failed to list Secrets in namespace cert-manager: secrets is forbidden: ";
    assert!(message.contains(words), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_permissions_in_some_namespaces_those_are_written() {
    let mut site = BundleFixture::without_controllers().await;
    site.allow(None, common_rules()).await;
    let (read, all) = (["get", "list", "watch"], ["get", "list", "watch", "create", "patch", "delete"]);
    site.allow(Some(TRUST), vec![rule("", &["configmaps", "secrets"], &read)]).await;
    site.allow(Some("a"), vec![rule("", &["configmaps"], &all)]).await;
    let only = ["a".to_owned()].into_iter().collect();
    site.run_limited(BundleSettings { target_namespaces: only, ..BundleSettings::default() });
    site.create("roots", json!([{"inLine": P256}]), json!({"configMap": {"key": "k"}})).await;
    let (message, _) = site.wait_for_reason("roots", "Synced").await;
    assert_eq!(message, "Successfully synced Bundle to all allowed namespaces");
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[P256]))]).await;
    assert!(site.config_maps("b").get_opt("roots").await.unwrap().is_none());
    // Targets in that namespace are also watched.
    let _ = site.config_maps("a").delete("roots", &Default::default()).await.unwrap();
    site.wait_for_data("a", "roots", &[("k", &bundle_pem(&[P256]))]).await;
}
