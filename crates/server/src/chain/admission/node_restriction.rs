//! NodeRestriction: a node writes about itself and the pods on it only.
//!
//! Authorization lets nodes write to whole kinds; here it is decided by what is written, and on the
//! object that is stored, not on what the request says of it.

mod claims;
mod nodes;
mod pods;
mod requests;
mod tokens;

use serde_json::Value;
use windlass_api::field::quote;
use windlass_api::meta::Meta;

use super::{Operation, new_name};
use crate::chain::authz::attributes::{Attributes, Resource, Target};
use crate::chain::authz::node::{LEASES, identity};
use crate::error::{Error, Subject};
use crate::registry::kind::Scope;
use crate::registry::parts::text;
use crate::verbs::Call;

/// Refuses what the rule forbids.
pub fn admit(call: &Call<'_>, operation: Operation<'_>, object: &Value) -> Result<(), Error> {
    let Some(node) = identity(call.user) else { return Ok(()) };
    let written = Written {
        node,
        user: &call.user.name,
        group: call.served.group,
        resource: call.kind.plural,
        subresource: &call.path.subresource,
        namespace: &call.path.namespace,
        name: name(call, object),
        operation,
        object,
        find: &|group, plural, namespace, name| find(call, group, plural, namespace, name),
        may_request: &|audience| may_request(call, audience),
        may_request_from: &|signer, account| may_request_from(call, signer, account),
    };
    written.check().map_err(|refusal| match refusal {
        Refusal::Forbidden(why) => Error::Forbidden(call.subject(about(written.name, object)), why),
        Refusal::NotFound(kind, name) => Error::NotFound(Subject::new("", kind, &name)),
        Refusal::Failed(why) => Error::Unclassified(why),
    })
}

/// The name in the path; a new object says its name itself.
fn name<'a>(call: &'a Call<'_>, object: &'a Value) -> &'a str {
    if call.path.name.is_empty() { Meta::of(object).name() } else { &call.path.name }
}

/// What a refusal calls the object.
fn about<'a>(name: &'a str, object: &'a Value) -> &'a str {
    if name.is_empty() { new_name(object) } else { name }
}

fn find(call: &Call<'_>, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
    let (kind, _) = call.server.registry.by_path(group, "v1", plural)?;
    let cache = call.server.caches.of(kind)?;
    let found = match kind.scope {
        Scope::Cluster => cache.get(name)?,
        Scope::Namespaced => cache.get(&format!("{namespace}/{name}"))?,
    };
    // A slash in a name must not lead to another object.
    (found.name() == name).then(|| found.stored_value())
}

fn may_request(call: &Call<'_>, audience: &str) -> bool {
    let asked = Attributes {
        user: call.user,
        verb: "request-serviceaccounts-token-audience",
        target: Target::Resource(Resource {
            version: "v1",
            resource: audience,
            namespace: &call.path.namespace,
            name: &call.path.name,
            ..Resource::default()
        }),
    };
    call.server.authorizer.decide(&asked).is_allow()
}

fn may_request_from(call: &Call<'_>, signer: &str, account: &str) -> bool {
    let resource = signer.replace('/', ":");
    let asked = Attributes {
        user: call.user,
        verb: "request-serviceaccounts-podcertificate-signer",
        target: Target::Resource(Resource {
            version: "v1",
            resource: &resource,
            namespace: &call.path.namespace,
            name: account,
            ..Resource::default()
        }),
    };
    call.server.authorizer.decide(&asked).is_allow()
}

/// What a node wants to write.
struct Written<'a> {
    /// The node that writes.
    node: &'a str,
    /// Its whole user name.
    user: &'a str,
    group: &'a str,
    resource: &'a str,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
    operation: Operation<'a>,
    /// What is written; for a deletion what goes.
    object: &'a Value,
    /// Other objects, by group, plural, namespace and name.
    find: &'a dyn Fn(&str, &str, &str, &str) -> Option<Value>,
    /// Whether the node may have tokens for an audience that no pod on it asks for.
    may_request: &'a dyn Fn(&str) -> bool,
    /// Whether the node may have pod certificates of a signer for an account though the pod does not ask.
    may_request_from: &'a dyn Fn(&str, &str) -> bool,
}

/// Why not.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    Forbidden(String),
    /// The kind and the name of what should be there.
    NotFound(&'static str, String),
    /// It may be right a moment later.
    Failed(String),
}

type Verdict = Result<(), Refusal>;

/// Refuses in these words.
fn forbidden(why: impl Into<String>) -> Verdict {
    Err(Refusal::Forbidden(why.into()))
}

impl Written<'_> {
    fn check(&self) -> Verdict {
        if self.node.is_empty() {
            return forbidden(format!("could not determine node from user {}", quote(self.user)));
        }
        match (self.group, self.resource) {
            ("", "pods") => pods::check(self),
            ("", "nodes") => nodes::check(self),
            ("", "persistentvolumeclaims") => claims::check(self),
            ("", "serviceaccounts") => match (self.subresource, self.operation) {
                ("token", Operation::Create) => tokens::check(self),
                _ => Ok(()),
            },
            ("coordination.k8s.io", "leases") => self.lease(),
            ("storage.k8s.io", "csinodes") => self.csi_node(),
            ("windlass.dev", "nodetrusts") => self.node_trust(),
            ("resource.k8s.io", "resourceslices") => self.resource_slice(),
            ("certificates.k8s.io", "certificatesigningrequests") => requests::signing(self),
            ("certificates.k8s.io", "podcertificaterequests") => requests::pod(self),
            _ => Ok(()),
        }
    }

    /// The node's name in quotes.
    fn quoted(&self) -> String {
        quote(self.node)
    }

    /// The operation as Kubernetes calls it.
    fn operation_name(&self) -> &'static str {
        match self.operation {
            Operation::Create => "CREATE",
            Operation::Update(_) => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }

    fn pod(&self, name: &str) -> Result<Value, Refusal> {
        let found = (self.find)("", "pods", self.namespace, name);
        // Kubernetes' listers name the kind in the singular.
        found.ok_or_else(|| Refusal::NotFound("pod", name.to_owned()))
    }

    fn lease(&self) -> Verdict {
        if self.namespace != LEASES {
            let shown = quote(LEASES);
            return forbidden(format!("can only access leases in the {shown} system namespace"));
        }
        if self.name != self.node {
            return forbidden(
                "can only access node lease with the same name as the requesting node",
            );
        }
        Ok(())
    }

    fn csi_node(&self) -> Verdict {
        if self.name != self.node {
            return forbidden("can only access CSINode with the same name as the requesting node");
        }
        Ok(())
    }

    fn node_trust(&self) -> Verdict {
        if self.name != self.node {
            return forbidden(
                "can only access NodeTrust with the same name as the requesting node",
            );
        }
        Ok(())
    }

    fn resource_slice(&self) -> Verdict {
        let does = match self.operation {
            Operation::Create => "create",
            Operation::Delete => "delete",
            // Whose it is cannot change, and authorization knows what is stored.
            Operation::Update(_) => return Ok(()),
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
