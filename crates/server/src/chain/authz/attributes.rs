//! Attributes of a request for authorization: user, verb and target.

use std::borrow::Cow;

use windlass_api::selector::fields::FieldSelector;

use crate::request::info::{RequestInfo, RequestTarget as Place};
use crate::user::User;

/// A request as authorizers see it.
#[derive(Clone, Debug)]
pub struct AuthorizationAttributes<'a> {
    /// User that the request is authorized for, after impersonation.
    pub user: &'a User,
    /// Verb in lower case: `get`, `list`, `create`, `approve`, …
    pub verb: &'a str,
    /// Resource or non-resource path that the verb applies to.
    pub target: AuthorizationTarget<'a>,
}

#[derive(Clone, Debug)]
pub enum AuthorizationTarget<'a> {
    /// An object or a collection of objects.
    Resource(ResourceAttributes<'a>),
    /// A non-resource path, for example `/healthz`.
    Path(&'a str),
}

/// An object or collection to be authorized.
#[derive(Clone, Debug, Default)]
pub struct ResourceAttributes<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// API version such as `v1`, or `*` where irrelevant.
    pub version: &'a str,
    /// Plural resource name, for example `pods`.
    pub resource: &'a str,
    /// Subresource, for example `status`; empty for the main resource.
    pub subresource: &'a str,
    /// Namespace; empty at cluster scope and for all namespaces.
    pub namespace: &'a str,
    /// Object name; empty for requests on a collection.
    pub name: &'a str,
    /// Field selector of a list, watch or collection deletion, if it can be parsed.
    pub fields: Option<&'a FieldSelector>,
}

impl<'a> AuthorizationAttributes<'a> {
    /// Builds the attributes of `user`'s request from its path and query.
    pub fn from_request(
        user: &'a User,
        info: &'a RequestInfo,
        fields: Option<&'a FieldSelector>,
    ) -> AuthorizationAttributes<'a> {
        let target = match &info.target {
            Place::Path => AuthorizationTarget::Path(&info.path),
            Place::Resource(path) => AuthorizationTarget::Resource(ResourceAttributes {
                group: &path.group,
                version: &path.version,
                resource: &path.resource,
                subresource: &path.subresource,
                namespace: &path.namespace,
                name: &path.name,
                // Deprecated watch paths do not apply selectors in all their forms.
                fields: if path.watch_path { None } else { fields },
            }),
        };
        AuthorizationAttributes { user, verb: info.verb, target }
    }
}

impl ResourceAttributes<'_> {
    /// Returns the resource as RBAC rules name it: `pods` or `pods/status`.
    pub fn with_subresource(&self) -> Cow<'_, str> {
        if self.subresource.is_empty() {
            Cow::Borrowed(self.resource)
        } else {
            Cow::Owned(format!("{}/{}", self.resource, self.subresource))
        }
    }
}
