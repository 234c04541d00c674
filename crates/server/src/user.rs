//! Users and well-known groups.

use std::collections::BTreeMap;

/// An authenticated or anonymous user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// User name that RBAC subjects refer to, for example `alice` or `system:node:n`.
    pub name: String,
    /// UID, stable across renames; may be empty.
    pub uid: String,
    /// Groups, with `system:authenticated` or `system:unauthenticated` among them.
    pub groups: Vec<String>,
    /// Extra fields of the authenticator (`authentication.kubernetes.io/credential-id`).
    pub extra: BTreeMap<String, Vec<String>>,
}

pub(crate) const AUTHENTICATED: &str = "system:authenticated";
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// User name of callers without a credential.
pub(crate) const ANONYMOUS: &str = "system:anonymous";
/// Group that is authorized for everything.
pub const MASTERS: &str = "system:masters";

impl User {
    /// A caller who proved to be `name`, in `groups` and in `AUTHENTICATED`.
    pub fn authenticated(name: &str, uid: &str, groups: Vec<String>) -> User {
        let mut groups = groups;
        if !groups.iter().any(|g| g == AUTHENTICATED) {
            groups.push(AUTHENTICATED.into());
        }
        User { name: name.into(), uid: uid.into(), groups, extra: BTreeMap::new() }
    }

    /// Returns the user of callers without a credential.
    pub fn anonymous() -> User {
        User { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..User::default() }
    }

    /// Returns true if the user is unauthenticated, by Kubernetes' criteria.
    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS || self.has_group(UNAUTHENTICATED)
    }

    /// Returns true if the user is in `group`.
    pub fn has_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}
