//! Decisions on requests of nodes, on caches filled by hand.

mod following;
mod tables;

use std::cell::Cell;
use std::sync::Arc;

use serde_json::{Value, json};
use windlass_api::selector::fields::Selector;
use windlass_store::Event;

use super::super::attributes::Target;
use super::*;
use crate::cache::store_key;
use crate::object::encode;
use crate::registry::KINDS;
use crate::registry::kind::{Kind, Selectable, Served};

/// As it will be registered: all that the authorizer needs of it.
static CERTIFICATE_REQUEST: Kind = Kind {
    name: "PodCertificateRequest",
    plural: "podcertificaterequests",
    served: &[Served { group: "certificates.k8s.io", version: "v1", type_name: "", convert: None }],
    selectable: &[
        Selectable { label: "spec.signerName", at: &["/spec/signerName"], absent: "" },
        Selectable { label: "spec.nodeName", at: &["/spec/nodeName"], absent: "" },
    ],
    ..Kind::DEFAULT
};

/// Caches with an authorizer on them.
struct World {
    caches: Arc<Caches>,
    registry: Registry,
    authorizer: NodeAuthorizer,
    revision: Cell<u64>,
}

impl World {
    fn new(features: Features) -> World {
        let mut kinds = KINDS.to_vec();
        if !kinds.iter().any(|k| k.plural == CERTIFICATE_REQUEST.plural) {
            kinds.push(&CERTIFICATE_REQUEST);
        }
        let caches = Arc::new(Caches::new(&kinds));
        let registry = Registry::new(&kinds);
        let authorizer = NodeAuthorizer::new(&caches, &registry, features);
        World { caches, registry, authorizer, revision: Cell::new(0) }
    }

    /// Stores an object; `at` is `group/plural/namespace/name`, with nothing for what there is not.
    fn put(&self, at: &str, spec: Value) {
        let name = at.rsplit('/').next().unwrap();
        self.write(at, json!({"metadata": {"name": name}, "spec": spec}));
    }

    fn write(&self, at: &str, object: Value) {
        let (key, kind) = self.place(at);
        let value = encode(kind.name, &kind.stored().api_version(), &object, false);
        self.apply(key, Some(value));
    }

    fn delete(&self, at: &str) {
        let (key, _) = self.place(at);
        self.apply(key, None);
    }

    fn apply(&self, key: String, value: Option<bytes::Bytes>) {
        let revision = self.revision.get() + 1;
        self.revision.set(revision);
        self.caches.apply(&[Event { revision, key, value, created: revision, previous: None }]);
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

    /// What node-1 is told; `at` is `group/plural[/subresource] namespace name`, `-` for nothing.
    fn ask(&self, verb: &str, at: &str, selector: &str) -> Decision {
        self.ask_as(&node("node-1"), verb, at, selector)
    }

    fn ask_as(&self, user: &User, verb: &str, at: &str, selector: &str) -> Decision {
        let words: Vec<&str> = at.split(' ').map(|w| if w == "-" { "" } else { w }).collect();
        let parts: Vec<&str> = words[0].split('/').collect();
        let fields = (!selector.is_empty()).then(|| Selector::parse(selector).unwrap());
        let target = Target::Resource(Resource {
            group: parts[0],
            version: "v1",
            resource: parts[1],
            subresource: parts.get(2).copied().unwrap_or_default(),
            namespace: words[1],
            name: words[2],
            fields: fields.as_ref(),
        });
        self.authorizer.decide(&Attributes { user, verb, target })
    }

    /// Whether node-1 may get an object.
    fn sees(&self, at: &str) -> bool {
        self.ask("get", at, "").is_allow()
    }
}

fn node(name: &str) -> User {
    User::authenticated(&format!("system:node:{name}"), "", vec!["system:nodes".into()])
}

/// A pod that refers to something in every way there is.
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
