//! Node authorizer decisions on prepared caches.

mod graph_updates;
mod tables;

use std::cell::Cell;
use std::sync::Arc;

use serde_json::{Value, json};
use windlass_api::selector::fields::FieldSelector;
use windlass_store::{ChangeEvent, FeedMessage};

use super::super::attributes::AuthorizationTarget;
use super::*;
use crate::cache::store_key;
use crate::object::encode_object;
use crate::registry::KINDS;
use crate::registry::kind::{Kind, SelectableField, ServedVersion};

/// The fields of the registered kind that the authorizer needs.
static CERTIFICATE_REQUEST: Kind = Kind {
    name: "PodCertificateRequest",
    plural: "podcertificaterequests",
    served: &[ServedVersion::new("certificates.k8s.io", "v1", "")],
    selectable: &[
        SelectableField::new("spec.signerName", &["/spec/signerName"]),
        SelectableField::new("spec.nodeName", &["/spec/nodeName"]),
    ],
    ..Kind::DEFAULT
};

/// Caches and an authorizer that uses them.
struct NodeAuthorizerFixture {
    caches: Arc<ResourceCaches>,
    registry: KindRegistry,
    authorizer: NodeAuthorizer,
    revision: Cell<u64>,
}

impl NodeAuthorizerFixture {
    fn new(features: ServerFeatureGates) -> NodeAuthorizerFixture {
        let mut kinds = KINDS.to_vec();
        if !kinds.iter().any(|k| k.plural == CERTIFICATE_REQUEST.plural) {
            kinds.push(&CERTIFICATE_REQUEST);
        }
        let caches = Arc::new(ResourceCaches::new(&kinds));
        let registry = KindRegistry::new(&kinds);
        let authorizer = NodeAuthorizer::new(&caches, &registry, features);
        NodeAuthorizerFixture { caches, registry, authorizer, revision: Cell::new(0) }
    }

    /// Stores an object; `at` is `group/plural/namespace/name`, with empty parts where absent.
    fn put(&self, at: &str, spec: Value) {
        let name = at.rsplit('/').next().unwrap();
        self.write(at, json!({"metadata": {"name": name}, "spec": spec}));
    }

    fn write(&self, at: &str, object: Value) {
        let (key, kind) = self.place(at);
        let value = encode_object(kind.name, &kind.stored().api_version(), &object, false);
        self.apply(key, Some(value));
    }

    fn delete(&self, at: &str) {
        let (key, _) = self.place(at);
        self.apply(key, None);
    }

    fn apply(&self, key: String, value: Option<bytes::Bytes>) {
        let revision = self.revision.get() + 1;
        self.revision.set(revision);
        self.caches.handle_message(FeedMessage::Changes(&[ChangeEvent {
            revision,
            key,
            value,
            created: revision,
            previous: None,
        }]));
    }

    fn place(&self, at: &str) -> (String, &'static Kind) {
        let parts: Vec<&str> = at.split('/').collect();
        let (kind, _) = self.registry.by_path(parts[0], "v1", parts[1]).unwrap();
        let key = match parts[2] {
            "" => parts[3].to_owned(),
            namespace => format!("{namespace}/{}", parts[3]),
        };
        (store_key(kind, &key), kind)
    }

    /// Returns the decision for node-1; `at` is `group/plural[/subresource] namespace name`, `-`
    /// for an absent part.
    fn decide(&self, verb: &str, at: &str, selector: &str) -> Decision {
        self.decide_as(&node("node-1"), verb, at, selector)
    }

    fn decide_as(&self, user: &User, verb: &str, at: &str, selector: &str) -> Decision {
        let words: Vec<&str> = at.split(' ').map(|w| if w == "-" { "" } else { w }).collect();
        let parts: Vec<&str> = words[0].split('/').collect();
        let fields = (!selector.is_empty()).then(|| FieldSelector::parse(selector).unwrap());
        let target = AuthorizationTarget::Resource(ResourceAttributes {
            group: parts[0],
            version: "v1",
            resource: parts[1],
            subresource: parts.get(2).copied().unwrap_or_default(),
            namespace: words[1],
            name: words[2],
            fields: fields.as_ref(),
        });
        self.authorizer.decide(&AuthorizationAttributes { user, verb, target })
    }

    /// Returns true if node-1 may get an object.
    fn is_allowed(&self, at: &str) -> bool {
        self.decide("get", at, "").is_allowed()
    }
}

fn node(name: &str) -> User {
    User::authenticated(&format!("system:node:{name}"), "", vec!["system:nodes".into()])
}

/// Returns a pod with every type of reference.
fn busy_pod(node: &str) -> Value {
    json!({
        "nodeName": node,
        "serviceAccountName": "account",
        "imagePullSecrets": [{"name": "s-pull"}],
        "initContainers": [{"name": "i", "env": [
            {"name": "a", "valueFrom": {"secretKeyRef": {"name": "s-init", "key": "k"}}},
            {"name": "b", "valueFrom": {"configMapKeyRef": {"name": "c-init", "key": "k"}}},
        ]}],
        "containers": [{"name": "c",
            "env": [
                {"name": "a", "valueFrom": {"secretKeyRef": {"name": "s-env", "key": "k"}}},
                {"name": "b", "valueFrom": {"configMapKeyRef": {"name": "c-env", "key": "k"}}},
            ],
            "envFrom": [{"secretRef": {"name": "s-from"}}, {"configMapRef": {"name": "c-from"}}],
        }],
        "ephemeralContainers": [{"name": "e", "envFrom": [
            {"secretRef": {"name": "s-debug"}}, {"configMapRef": {"name": "c-debug"}},
        ]}],
        "volumes": [
            {"name": "v1", "secret": {"secretName": "s-volume"}},
            {"name": "v2", "configMap": {"name": "c-volume"}},
            {"name": "v3", "projected": {"sources": [
                {"secret": {"name": "s-projected"}}, {"configMap": {"name": "c-projected"}},
                {"serviceAccountToken": {"path": "t"}},
            ]}},
            {"name": "v4", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "s-csi"}}},
            {"name": "v5", "azureFile": {"secretName": "s-azure"}},
            {"name": "v6", "cephfs": {"secretRef": {"name": "s-ceph"}}},
            {"name": "v7", "cinder": {"secretRef": {"name": "s-cinder"}}},
            {"name": "v8", "flexVolume": {"secretRef": {"name": "s-flex"}}},
            {"name": "v9", "rbd": {"secretRef": {"name": "s-rbd"}}},
            {"name": "v10", "scaleIO": {"secretRef": {"name": "s-scale"}}},
            {"name": "v11", "iscsi": {"secretRef": {"name": "s-iscsi"}}},
            {"name": "v12", "storageos": {"secretRef": {"name": "s-storage"}}},
            {"name": "v13", "persistentVolumeClaim": {"claimName": "claim"}},
            {"name": "v14", "ephemeral": {"volumeClaimTemplate": {}}},
        ],
        "resourceClaims": [{"name": "r", "resourceClaimName": "device"}, {"name": "made"}],
    })
}

const POD: &str = "/pods/ns/busy";
