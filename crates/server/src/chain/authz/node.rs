//! Node authorizer: nodes may access what their pods need, and nothing else.
//!
//! A node is a user `system:node:<name>` in the group `system:nodes`. It may read objects that its
//! pods reference ([`graph`]), its own objects, and what all nodes may read ([`rules`]). This
//! authorizer never denies; it returns no opinion with a reason, which becomes part of the refusal.

mod graph;
mod graph_sync;
pub(crate) mod references;
mod rules;

use std::borrow::Cow;
use std::sync::Arc;

use windlass_api::field::quote;

use super::Decision;
use super::attributes::{AuthorizationAttributes, AuthorizationTarget, ResourceAttributes};
use crate::cache::{KindCache, ResourceCaches};
use crate::feature_gates::ServerFeatureGates;
use crate::object::Object;
use crate::registry::KindRegistry;
use crate::user::User;
use graph::DependencyKind;
use graph_sync::GraphSync;

const PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";

/// Namespace of the leases that nodes renew.
pub(crate) const LEASES: &str = "kube-node-lease";

/// Returns the node name of `user`; empty if the user name ends at the prefix.
pub(crate) fn identity(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix(PREFIX)?;
    user.has_group(GROUP).then_some(name)
}

/// Node authorizer: decides requests of kubelets by the pods bound to their node.
pub(crate) struct NodeAuthorizer {
    graph: Arc<GraphSync>,
    pods: Option<NodeBoundKind>,
    slices: Option<NodeBoundKind>,
    certificate_requests: Option<NodeBoundKind>,
    features: ServerFeatureGates,
}

type NodeVerdict = Result<(), Cow<'static, str>>;

impl NodeAuthorizer {
    /// Creates an authorizer that decides by the pods in `caches`.
    pub(crate) fn new(
        caches: &Arc<ResourceCaches>,
        registry: &KindRegistry,
        features: ServerFeatureGates,
    ) -> NodeAuthorizer {
        let placed = |group, plural| NodeBoundKind::for_resource(caches, registry, group, plural);
        let volumes = registry.by_path("", "v1", "persistentvolumes");
        let volumes = volumes.and_then(|(kind, _)| caches.for_kind(kind)).cloned();
        let pods = placed("", "pods");
        let graph = Arc::new(GraphSync::new(pods.clone(), volumes));
        GraphSync::spawn_refresh(&graph);
        NodeAuthorizer {
            graph,
            pods,
            slices: placed("resource.k8s.io", "resourceslices"),
            certificate_requests: placed("certificates.k8s.io", "podcertificaterequests"),
            features,
        }
    }

    /// Returns the newest revisions of pods and volumes.
    pub(crate) fn newest(&self) -> (u64, u64) {
        self.graph.newest()
    }

    /// Decides requests of nodes; no opinion on other users.
    pub(crate) fn decide(&self, asked: &AuthorizationAttributes<'_>) -> Decision {
        let Some(node) = identity(asked.user) else { return Decision::NoOpinion(String::new()) };
        if node.is_empty() {
            let why = format!("unknown node for user {}", quote(&asked.user.name));
            return Decision::NoOpinion(why);
        }
        let verdict = match &asked.target {
            AuthorizationTarget::Resource(resource) => self.resource(node, asked.verb, resource),
            AuthorizationTarget::Path(_) => Err("".into()),
        };
        match verdict {
            Ok(()) => Decision::Allow(String::new()),
            Err(why) => Decision::NoOpinion(why.into_owned()),
        }
    }

    fn resource(&self, node: &str, verb: &str, of: &ResourceAttributes<'_>) -> NodeVerdict {
        match (of.group, of.resource) {
            ("", "secrets") => self.read_named(node, verb, DependencyKind::Secret, of),
            ("", "configmaps") => self.read_named(node, verb, DependencyKind::ConfigMap, of),
            ("", "persistentvolumeclaims") if of.subresource == "status" => match verb {
                "update" | "patch" => self.related(node, DependencyKind::Claim, of),
                _ => Err("can only get/update/patch this type".into()),
            },
            ("", "persistentvolumeclaims") => self.get(node, verb, DependencyKind::Claim, of),
            ("", "persistentvolumes") => self.get(node, verb, DependencyKind::Volume, of),
            ("resource.k8s.io", "resourceclaims") => self.get(node, verb, DependencyKind::DeviceClaim, of),
            // VolumeAttachments are not stored here, so no node is related to one.
            ("storage.k8s.io", "volumeattachments") => self.get(node, verb, DependencyKind::Attachment, of),
            ("", "serviceaccounts") => self.account(node, verb, of),
            ("coordination.k8s.io", "leases") => lease(node, verb, of),
            ("storage.k8s.io", "csinodes") => csi_node(node, verb, of),
            ("windlass.dev", "nodetrusts") => node_trust(node, verb, of),
            ("resource.k8s.io", "resourceslices") => self.slice(node, verb, of),
            ("", "nodes") => own_node(node, verb, of),
            ("", "pods") => self.pod(node, verb, of),
            ("certificates.k8s.io", "podcertificaterequests") if self.features.pod_certificate_request => {
                self.certificate_request(node, verb, of)
            }
            _ if rules::allow(verb, of, self.features) => Ok(()),
            _ => Err("".into()),
        }
    }

    /// Authorizes reading a single object, by name or by a selector for its name.
    fn read_named(
        &self,
        node: &str,
        verb: &str,
        what: DependencyKind,
        of: &ResourceAttributes<'_>,
    ) -> NodeVerdict {
        if !matches!(verb, "get" | "list" | "watch") {
            return Err("can only read resources of this type".into());
        }
        if !of.subresource.is_empty() {
            return Err("cannot read subresource".into());
        }
        if of.namespace.is_empty() {
            return Err("can only read namespaced object of this type".into());
        }
        self.related(node, what, of)
    }

    fn get(&self, node: &str, verb: &str, what: DependencyKind, of: &ResourceAttributes<'_>) -> NodeVerdict {
        if verb != "get" {
            return Err("can only get individual resources of this type".into());
        }
        if !of.subresource.is_empty() {
            return Err("cannot get subresource".into());
        }
        self.related(node, what, of)
    }

    fn related(&self, node: &str, what: DependencyKind, of: &ResourceAttributes<'_>) -> NodeVerdict {
        if of.name.is_empty() {
            return Err("No Object name found".into());
        }
        if self.graph.reaches(what, of.namespace, of.name, node) { Ok(()) } else { Err(unrelated(node)) }
    }

    fn account(&self, node: &str, verb: &str, of: &ResourceAttributes<'_>) -> NodeVerdict {
        if verb == "get" && of.subresource.is_empty() {
            return self.read_named(node, verb, DependencyKind::ServiceAccount, of);
        }
        if verb != "create" || of.name.is_empty() {
            return Err("can only create tokens for individual service accounts".into());
        }
        if of.subresource != "token" {
            return Err("can only create token subresource of serviceaccount".into());
        }
        self.related(node, DependencyKind::ServiceAccount, of)
    }

    fn slice(&self, node: &str, verb: &str, of: &ResourceAttributes<'_>) -> NodeVerdict {
        if !of.subresource.is_empty() {
            return Err("cannot authorize ResourceSlice subresources".into());
        }
        match verb {
            // Admission checks the node of the new slice.
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => check_placement(self.slices.as_ref(), node, of),
            "watch" | "list" | "deletecollection" if selects(of, node) => Ok(()),
            "watch" | "list" | "deletecollection" => {
                Err("can only list/watch/deletecollection resourceslices with nodeName field selector".into())
            }
            _ => Err("only the following verbs are allowed for a ResourceSlice: get, watch, list, \
                      create, update, patch, delete, deletecollection"
                .into()),
        }
    }

    fn pod(&self, node: &str, verb: &str, of: &ResourceAttributes<'_>) -> NodeVerdict {
        match (of.subresource, verb) {
            ("", "get") => check_placement(self.pods.as_ref(), node, of),
            ("", "list" | "watch") if selects(of, node) => Ok(()),
            ("", "list" | "watch") if !of.name.is_empty() => check_placement(self.pods.as_ref(), node, of),
            ("", "list" | "watch") => {
                Err("can only list/watch pods with spec.nodeName field selector".into())
            }
            // Admission restricts these to mirror pods and to pods bound to the node.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => Err("".into()),
        }
    }

    fn certificate_request(&self, node: &str, verb: &str, of: &ResourceAttributes<'_>) -> NodeVerdict {
        if !of.subresource.is_empty() {
            let why = "nodes may not access the status subresource of PodCertificateRequests";
            return Err(why.into());
        }
        match verb {
            // Admission checks whom the request is for.
            "create" => Ok(()),
            "get" => check_placement(self.certificate_requests.as_ref(), node, of),
            "list" | "watch" if selects(of, node) => Ok(()),
            "list" | "watch" => {
                Err("can only list/watch podcertificaterequests with nodeName field selector".into())
            }
            _ => Err(format!("nodes may not {verb} podcertificaterequests").into()),
        }
    }
}

/// A kind whose objects name their node.
#[derive(Clone)]
struct NodeBoundKind {
    cache: Arc<KindCache>,
    /// Index of `spec.nodeName` among the selectable fields.
    field: usize,
}

impl NodeBoundKind {
    fn for_resource(
        caches: &ResourceCaches,
        registry: &KindRegistry,
        group: &str,
        plural: &str,
    ) -> Option<NodeBoundKind> {
        let (kind, _) = registry.by_path(group, "v1", plural)?;
        let field = kind.selectable.iter().position(|s| s.label == NODE_NAME)?;
        Some(NodeBoundKind { cache: caches.for_kind(kind)?.clone(), field })
    }

    fn node<'a>(&self, object: &'a Object) -> &'a str {
        object.fields.get(self.field).map_or("", |name| name)
    }
}

const NODE_NAME: &str = "spec.nodeName";

/// Checks that the requested object belongs to the node.
fn check_placement(kind: Option<&NodeBoundKind>, node: &str, of: &ResourceAttributes<'_>) -> NodeVerdict {
    if of.name.is_empty() {
        return Err("No Object name found".into());
    }
    let found = kind.and_then(|kind| {
        let object = match of.namespace {
            "" => kind.cache.get(of.name),
            namespace => kind.cache.get(&format!("{namespace}/{}", of.name)),
        };
        // A slash in the requested name must not lead to another object.
        let object = object.filter(|o| o.namespace() == of.namespace && o.name() == of.name)?;
        (kind.node(&object) == node).then_some(())
    });
    found.ok_or_else(|| unrelated(node))
}

/// Returns true if the selector matches objects of the node only.
fn selects(of: &ResourceAttributes<'_>, node: &str) -> bool {
    let requirements = of.fields.map(|fields| fields.requirements()).unwrap_or_default();
    requirements.iter().any(|r| r.equal && r.field == NODE_NAME && r.value == node)
}

fn unrelated(node: &str) -> Cow<'static, str> {
    format!("no relationship found between node '{node}' and this object").into()
}

fn lease(node: &str, verb: &str, of: &ResourceAttributes<'_>) -> NodeVerdict {
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a node lease".into());
    }
    if of.namespace != LEASES {
        let shown = quote(LEASES);
        return Err(format!("can only access leases in the {shown} system namespace").into());
    }
    // The name of a new object is not known yet; admission checks it.
    if verb != "create" && of.name != node {
        let why = "can only access node lease with the same name as the requesting node";
        return Err(why.into());
    }
    Ok(())
}

fn csi_node(node: &str, verb: &str, of: &ResourceAttributes<'_>) -> NodeVerdict {
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a CSINode".into());
    }
    if !of.subresource.is_empty() {
        return Err("cannot authorize CSINode subresources".into());
    }
    if verb != "create" && of.name != node {
        return Err("can only access CSINode with the same name as the requesting node".into());
    }
    Ok(())
}

fn node_trust(node: &str, verb: &str, of: &ResourceAttributes<'_>) -> NodeVerdict {
    if !matches!(verb, "get" | "create" | "update" | "patch") {
        return Err("can only get, create, update, or patch a NodeTrust".into());
    }
    if !of.subresource.is_empty() {
        return Err("cannot authorize NodeTrust subresources".into());
    }
    // The name of a new object is not known yet; admission checks it.
    if verb != "create" && of.name != node {
        return Err("can only access NodeTrust with the same name as the requesting node".into());
    }
    Ok(())
}

fn own_node(node: &str, verb: &str, of: &ResourceAttributes<'_>) -> NodeVerdict {
    match (of.subresource, verb) {
        // Admission restricts these to the node's own object.
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        // By name rather than by existing objects: a node reads its Node before it registers.
        ("", "get" | "list" | "watch") if of.name == node => Ok(()),
        ("", "get" | "list" | "watch") if of.name.is_empty() => {
            Err(format!("node '{node}' cannot read all nodes, only its own Node object").into())
        }
        ("", "get" | "list" | "watch") => {
            let name = of.name;
            Err(format!("node '{node}' cannot read '{name}', only its own Node object").into())
        }
        _ => Err("".into()),
    }
}

#[cfg(test)]
mod tests;
