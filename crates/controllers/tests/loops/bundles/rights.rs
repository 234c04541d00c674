//! Controllers that may not see everything do what they can, and say what they cannot.

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use windlass_controllers::bundles::Settings;
use windlass_controllers::{Controller, Options, Selection};
use windlass_server::server::system_clock;

use super::{P256, Site, TRUST, text};
use crate::fixture::object;

const GROUP: &str = "rbac.authorization.k8s.io";

fn rule(groups: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [groups], "resources": resources, "verbs": verbs})
}

/// What trust-manager's chart gives in the cluster, but for targets.
fn common() -> Vec<Value> {
    let read = ["get", "list", "watch"];
    vec![
        rule("trust.cert-manager.io", &["bundles"], &read),
        rule("trust.cert-manager.io", &["bundles/status"], &["patch"]),
        rule("", &["namespaces"], &read),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
    ]
}

impl Site {
    /// Lets the controllers do this in a namespace, or everywhere.
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

    /// Starts the controller of Bundles as somebody who may do what was allowed.
    fn run_limited(&mut self, bundles: Settings) {
        let admin = self.world.client.clone();
        self.world.client = self.world.client_of("limited", &["system:authenticated"]);
        let controllers: Selection = Controller::Bundles.name().parse().unwrap();
        let options = Options { bundles, controllers, ..Options::new(system_clock()) };
        self.world.run_controllers_with(options);
        self.world.client = admin;
    }

    async fn told(&self, reason: &str) -> String {
        self.wait(reason, async || {
            let events = self.world.all::<Event>("default").list(&ListParams::default()).await;
            let mut events = events.unwrap().items.into_iter();
            events.find(|event| event.reason.as_deref() == Some(reason))?.message
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_rights_on_secrets_config_maps_are_written() {
    let mut site = Site::idle().await;
    let mut rules = common();
    let all = ["get", "list", "watch", "create", "patch", "delete"];
    rules.push(rule("", &["configmaps"], &all));
    site.allow(None, rules).await;
    site.run_limited(Settings { secret_targets: true, ..Settings::default() });
    site.create("open", json!([{"inLine": P256}]), json!({"configMap": {"key": "k"}})).await;
    site.create("sealed", json!([{"inLine": P256}]), json!({"secret": {"key": "k"}})).await;
    let secret = json!([{"secret": {"name": "s", "key": "k"}}]);
    site.create("unread", secret, json!({"configMap": {"key": "k"}})).await;
    site.has("a", "open", &[("k", &text(&[P256]))]).await;
    site.says("open", "Synced").await;
    let told = site.told("SecretListError").await;
    assert!(told.starts_with("Failed to list secrets: secrets is forbidden: "), "{told}");
    let (message, _) = site.says("unread", "SourceBuildError").await;
    let words = "failed to list Secrets in namespace cert-manager: secrets is forbidden: ";
    assert!(message.contains(words), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_rights_in_some_namespaces_those_are_written() {
    let mut site = Site::idle().await;
    site.allow(None, common()).await;
    let (read, all) =
        (["get", "list", "watch"], ["get", "list", "watch", "create", "patch", "delete"]);
    site.allow(Some(TRUST), vec![rule("", &["configmaps", "secrets"], &read)]).await;
    site.allow(Some("a"), vec![rule("", &["configmaps"], &all)]).await;
    let only = ["a".to_owned()].into_iter().collect();
    site.run_limited(Settings { target_namespaces: only, ..Settings::default() });
    site.create("roots", json!([{"inLine": P256}]), json!({"configMap": {"key": "k"}})).await;
    let (message, _) = site.says("roots", "Synced").await;
    assert_eq!(message, "Successfully synced Bundle to all allowed namespaces");
    site.has("a", "roots", &[("k", &text(&[P256]))]).await;
    assert!(site.maps("b").get_opt("roots").await.unwrap().is_none());
    // It is watched there, too.
    let _ = site.maps("a").delete("roots", &Default::default()).await.unwrap();
    site.has("a", "roots", &[("k", &text(&[P256]))]).await;
}
