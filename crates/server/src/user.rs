//! Who calls.

use std::collections::BTreeMap;

/// An authenticated (or anonymous) caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// User name that RBAC subjects refer to, for example `alice` or `system:node:n`.
    pub name: String,
    /// Stable across renames; may be empty.
    pub uid: String,
    /// Groups, with `system:authenticated` or `system:unauthenticated` among them.
    pub groups: Vec<String>,
    /// More facts of the authenticator (`authentication.kubernetes.io/credential-id`).
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The group of everybody who proved who they are.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// The group of everybody else.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of a caller without a credential.
pub(crate) const ANONYMOUS: &str = "system:anonymous";
/// The group that may do everything.
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

    /// A caller who did not say who they are.
    pub fn anonymous() -> User {
        User { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..User::default() }
    }

    /// Whether the caller has not been authenticated, by Kubernetes' criteria.
    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS || self.has_group(UNAUTHENTICATED)
    }

    /// Whether the caller is in `group`.
    pub fn has_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}
