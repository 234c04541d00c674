//! NodeRestriction: a node may write only its own objects and the pods bound to it.
//!
//! Authorization lets nodes write to whole kinds; admission decides by content, and by the stored
//! object rather than by what the request says about it.

mod certificate_requests;
mod claims;
mod nodes;
mod pods;
mod tokens;

use serde_json::Value;
use windlass_api::field::quote;
use windlass_api::meta::ObjectMetaView;

use super::{AdmissionOperation, new_name};
use crate::chain::authz::attributes::{AuthorizationAttributes, AuthorizationTarget, ResourceAttributes};
use crate::chain::authz::node::{LEASES, identity};
use crate::error::{Error, ErrorSubject};
use crate::registry::certificatesigningrequests::CsrParser;
use crate::registry::kind::Scope;
use crate::registry::object_fields::text;
use crate::verbs::RequestContext;

/// Rejects writes of nodes that violate the restriction.
pub(super) fn admit(
    call: &RequestContext<'_>,
    operation: AdmissionOperation<'_>,
    object: &Value,
) -> Result<(), Error> {
    let Some(node) = identity(call.user) else { return Ok(()) };
    let written = NodeWrite {
        node,
        user: &call.user.name,
        group: call.served.group,
        resource: call.kind.plural,
        subresource: &call.path.subresource,
        namespace: &call.path.namespace,
        name: name(call, object),
        operation,
        object,
        csr: call.csr,
        find: &|group, plural, namespace, name| get_object(call, group, plural, namespace, name),
        may_request: &|audience| may_request(call, audience),
        may_request_from: &|signer, account| may_request_from(call, signer, account),
    };
    written.check().map_err(|refusal| match refusal {
        NodeRefusal::Forbidden(why) => Error::Forbidden(call.subject(object_name(written.name, object)), why),
        NodeRefusal::NotFound(kind, name) => Error::NotFound(ErrorSubject::new("", kind, &name)),
        NodeRefusal::Failed(why) => Error::Unclassified(why),
    })
}

/// Returns the name from the path, or from the object if it is new.
fn name<'a>(call: &'a RequestContext<'_>, object: &'a Value) -> &'a str {
    if call.path.name.is_empty() { ObjectMetaView::from_object(object).name() } else { &call.path.name }
}

/// Returns the object's name for error messages.
fn object_name<'a>(name: &'a str, object: &'a Value) -> &'a str {
    if name.is_empty() { new_name(object) } else { name }
}

fn get_object(
    call: &RequestContext<'_>,
    group: &str,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Option<Value> {
    let (kind, _) = call.server.registry.by_path(group, "v1", plural)?;
    let cache = call.server.caches.for_kind(kind)?;
    let found = match kind.scope {
        Scope::Cluster => cache.get(name)?,
        Scope::Namespaced => cache.get(&format!("{namespace}/{name}"))?,
    };
    // A slash in a name must not lead to another object.
    (found.name() == name).then(|| found.stored_value())
}

fn may_request(call: &RequestContext<'_>, audience: &str) -> bool {
    let asked = AuthorizationAttributes {
        user: call.user,
        verb: "request-serviceaccounts-token-audience",
        target: AuthorizationTarget::Resource(ResourceAttributes {
            version: "v1",
            resource: audience,
            namespace: &call.path.namespace,
            name: &call.path.name,
            ..ResourceAttributes::default()
        }),
    };
    call.server.authorizer.decide(&asked).is_allowed()
}

fn may_request_from(call: &RequestContext<'_>, signer: &str, account: &str) -> bool {
    let resource = signer.replace('/', ":");
    let asked = AuthorizationAttributes {
        user: call.user,
        verb: "request-serviceaccounts-podcertificate-signer",
        target: AuthorizationTarget::Resource(ResourceAttributes {
            version: "v1",
            resource: &resource,
            namespace: &call.path.namespace,
            name: account,
            ..ResourceAttributes::default()
        }),
    };
    call.server.authorizer.decide(&asked).is_allowed()
}

struct NodeWrite<'a> {
    node: &'a str,
    /// Full user name of the node: `system:node:<name>`.
    user: &'a str,
    group: &'a str,
    resource: &'a str,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
    operation: AdmissionOperation<'a>,
    /// The object written; for a deletion the object deleted.
    object: &'a Value,
    csr: &'a CsrParser,
    /// Looks up other objects by group, plural, namespace and name.
    find: &'a dyn Fn(&str, &str, &str, &str) -> Option<Value>,
    /// Whether RBAC grants the node tokens for an audience that none of its pods requests.
    may_request: &'a dyn Fn(&str) -> bool,
    /// Whether RBAC grants the node pod certificates of a signer for an account although the pod
    /// requests none.
    may_request_from: &'a dyn Fn(&str, &str) -> bool,
}

#[derive(Debug, PartialEq, Eq)]
enum NodeRefusal {
    Forbidden(String),
    /// Kind and name of the missing object.
    NotFound(&'static str, String),
    /// A retry may succeed, because a cache may be stale.
    Failed(String),
}

type AdmissionResult = Result<(), NodeRefusal>;

fn forbidden(why: impl Into<String>) -> AdmissionResult {
    Err(NodeRefusal::Forbidden(why.into()))
}

impl NodeWrite<'_> {
    fn check(&self) -> AdmissionResult {
        if self.node.is_empty() {
            return forbidden(format!("could not determine node from user {}", quote(self.user)));
        }
        match (self.group, self.resource) {
            ("", "pods") => pods::check(self),
            ("", "nodes") => nodes::check(self),
            ("", "persistentvolumeclaims") => claims::check(self),
            ("", "serviceaccounts") => match (self.subresource, self.operation) {
                ("token", AdmissionOperation::Create) => tokens::check(self),
                _ => Ok(()),
            },
            ("coordination.k8s.io", "leases") => self.lease(),
            ("storage.k8s.io", "csinodes") => self.csi_node(),
            ("windlass.dev", "nodetrusts") => self.node_trust(),
            ("resource.k8s.io", "resourceslices") => self.resource_slice(),
            ("certificates.k8s.io", "certificatesigningrequests") => {
                certificate_requests::check_signing_request(self)
            }
            ("certificates.k8s.io", "podcertificaterequests") => {
                certificate_requests::check_pod_request(self)
            }
            _ => Ok(()),
        }
    }

    /// Returns the node's name in quotes.
    fn quoted(&self) -> String {
        quote(self.node)
    }

    /// Returns the operation's name in Kubernetes.
    fn operation_name(&self) -> &'static str {
        match self.operation {
            AdmissionOperation::Create => "CREATE",
            AdmissionOperation::Update(_) => "UPDATE",
            AdmissionOperation::Delete => "DELETE",
        }
    }

    fn get_pod(&self, name: &str) -> Result<Value, NodeRefusal> {
        let found = (self.find)("", "pods", self.namespace, name);
        // Kubernetes' listers name the kind in the singular.
        found.ok_or_else(|| NodeRefusal::NotFound("pod", name.to_owned()))
    }

    fn lease(&self) -> AdmissionResult {
        if self.namespace != LEASES {
            let shown = quote(LEASES);
            return forbidden(format!("can only access leases in the {shown} system namespace"));
        }
        if self.name != self.node {
            return forbidden("can only access node lease with the same name as the requesting node");
        }
        Ok(())
    }

    fn csi_node(&self) -> AdmissionResult {
        if self.name != self.node {
            return forbidden("can only access CSINode with the same name as the requesting node");
        }
        Ok(())
    }

    fn node_trust(&self) -> AdmissionResult {
        if self.name != self.node {
            return forbidden("can only access NodeTrust with the same name as the requesting node");
        }
        Ok(())
    }

    fn resource_slice(&self) -> AdmissionResult {
        let does = match self.operation {
            AdmissionOperation::Create => "create",
            AdmissionOperation::Delete => "delete",
            // The owner is immutable, and authorization has checked the stored object.
            AdmissionOperation::Update(_) => return Ok(()),
        };
        if text(self.object, "/spec/nodeName") != self.node {
            return forbidden(format!(
                "can only {does} ResourceSlice with the same NodeName as the requesting node"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
