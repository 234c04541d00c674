//! Modes of impersonation.
//!
//! A constrained mode requires two permissions: to perform this verb in this mode on the target
//! (`impersonate-on:<mode>:<verb>`), and to be this user in this mode (`impersonate:<mode>`). The
//! legacy mode requires only `impersonate`. Every mode that supports the user is tried; if none
//! allows it, the first refusal is reported.

use std::collections::BTreeMap;

use windlass_api::names;

use super::extra;
use super::headers::ImpersonatedIdentity;
use crate::chain::authz::attributes::{AuthorizationAttributes, AuthorizationTarget, ResourceAttributes};
use crate::chain::authz::{Decision, denied};
use crate::error::Error;
use crate::user::{AUTHENTICATED, MASTERS, UNAUTHENTICATED, User};

/// Function that decides authorization queries.
pub(super) type AuthorizeFn<'a> = dyn Fn(&AuthorizationAttributes<'_>) -> Decision + 'a;

/// Returns the user for `wanted`, if the caller of `target` may impersonate them there.
pub(super) fn decide(
    wanted: &ImpersonatedIdentity,
    target: &AuthorizationAttributes<'_>,
    ask: &AuthorizeFn<'_>,
) -> Result<User, Error> {
    let who = UserKind::from_name(&wanted.name);
    let mut refused = None;
    for mode in MODES {
        if !mode.supports(wanted, &who, target.user) {
            continue;
        }
        match mode.allow(wanted, &who, target, ask) {
            Ok(()) => return Ok(mode.user(wanted, &who)),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| Error::Internal("no impersonation mode was tried".into())))
}

/// In the order in which they are tried.
const MODES: [ImpersonationMode; 5] = [
    ImpersonationMode::AssociatedNode,
    ImpersonationMode::ArbitraryNode,
    ImpersonationMode::ServiceAccount,
    ImpersonationMode::UserInfo,
    ImpersonationMode::Legacy,
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum ImpersonationMode {
    /// A service account impersonates the node that its pod runs on.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    /// Any user that is neither a node nor a service account.
    UserInfo,
    /// Unconstrained impersonation by the verb `impersonate`, as before constrained modes existed.
    Legacy,
}

/// Kind of user that a name denotes.
enum UserKind<'a> {
    Node(&'a str),
    Account { namespace: &'a str, name: &'a str },
    Other,
}

impl<'a> UserKind<'a> {
    fn from_name(name: &'a str) -> UserKind<'a> {
        if let Some(node) = name.strip_prefix("system:node:") {
            return if names::dns1123_subdomain(node).is_empty() {
                UserKind::Node(node)
            } else {
                UserKind::Other
            };
        }
        let account = name.strip_prefix("system:serviceaccount:").and_then(|a| a.split_once(':'));
        match account {
            Some((namespace, name))
                if names::dns1123_label(namespace).is_empty()
                    && names::dns1123_subdomain(name).is_empty() =>
            {
                UserKind::Account { namespace, name }
            }
            _ => UserKind::Other,
        }
    }
}

/// From this many permissions on, the wildcard permission is checked first.
const MANY: usize = 4;
const AUTHENTICATION: &str = "authentication.k8s.io";
const NODES: &str = "system:nodes";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_KEYS: &str = "authentication.kubernetes.io/associated-node-keys";

impl ImpersonationMode {
    /// Returns the mode's name in verbs; `None` for the legacy mode.
    fn name(self) -> Option<&'static str> {
        match self {
            ImpersonationMode::AssociatedNode => Some("associated-node"),
            ImpersonationMode::ArbitraryNode => Some("arbitrary-node"),
            ImpersonationMode::ServiceAccount => Some("serviceaccount"),
            ImpersonationMode::UserInfo => Some("user-info"),
            ImpersonationMode::Legacy => None,
        }
    }

    /// Returns true if this mode supports such a user. The server sets all attributes of nodes and
    /// service accounts, so only their name may be given.
    fn supports(self, wanted: &ImpersonatedIdentity, who: &UserKind<'_>, caller: &User) -> bool {
        match (self, who) {
            (ImpersonationMode::AssociatedNode, UserKind::Node(node)) => {
                wanted.is_name_only() && runs_on(caller, node)
            }
            (ImpersonationMode::ArbitraryNode, UserKind::Node(_)) => wanted.is_name_only(),
            (ImpersonationMode::ServiceAccount, UserKind::Account { .. }) => wanted.is_name_only(),
            (ImpersonationMode::UserInfo, UserKind::Other) | (ImpersonationMode::Legacy, _) => true,
            (
                ImpersonationMode::AssociatedNode | ImpersonationMode::ArbitraryNode,
                UserKind::Account { .. } | UserKind::Other,
            )
            | (ImpersonationMode::ServiceAccount, UserKind::Node(_) | UserKind::Other)
            | (ImpersonationMode::UserInfo, UserKind::Node(_) | UserKind::Account { .. }) => false,
        }
    }

    fn allow(
        self,
        wanted: &ImpersonatedIdentity,
        who: &UserKind<'_>,
        target: &AuthorizationAttributes<'_>,
        ask: &AuthorizeFn<'_>,
    ) -> Result<(), Error> {
        let reduced;
        let caller = match self {
            ImpersonationMode::AssociatedNode => {
                reduced = without_node(target.user);
                &reduced
            }
            ImpersonationMode::ArbitraryNode
            | ImpersonationMode::ServiceAccount
            | ImpersonationMode::UserInfo
            | ImpersonationMode::Legacy => target.user,
        };
        let verb = match self.name() {
            None => "impersonate".to_owned(),
            Some(mode) => {
                let verb = format!("impersonate-on:{mode}:{}", target.verb);
                let target = target.target.clone();
                permit(&AuthorizationAttributes { user: caller, verb: &verb, target }, ask)?;
                format!("impersonate:{mode}")
            }
        };
        let rights = ImpersonationCheck { mode: self, verb: &verb, caller, authorize: ask };
        rights.check_name(&wanted.name, who)?;
        rights.check_uid(&wanted.uid)?;
        rights.check_groups(&wanted.groups)?;
        rights.check_extra(&wanted.extra)
    }

    /// Returns the user with its implied groups.
    fn user(self, wanted: &ImpersonatedIdentity, who: &UserKind<'_>) -> User {
        let ImpersonatedIdentity { name, uid, groups, extra } = wanted;
        let mut groups = match who {
            UserKind::Account { namespace, .. } if groups.is_empty() => {
                vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")]
            }
            UserKind::Node(_) if self != ImpersonationMode::Legacy => vec![NODES.to_owned()],
            UserKind::Node(_) | UserKind::Account { .. } | UserKind::Other => groups.clone(),
        };
        let has = |group: &str| groups.iter().any(|g| g == group);
        let proof = match name.as_str() {
            "system:anonymous" => UNAUTHENTICATED,
            _ if has(UNAUTHENTICATED) => UNAUTHENTICATED,
            _ => AUTHENTICATED,
        };
        if !has(proof) {
            groups.push(proof.into());
        }
        User { name: name.clone(), uid: uid.clone(), groups, extra: extra.clone() }
    }
}

/// Returns true if the caller is a service account whose token names `node`.
fn runs_on(caller: &User, node: &str) -> bool {
    let account = matches!(UserKind::from_name(&caller.name), UserKind::Account { .. });
    let node_names = caller.extra.get(NODE_NAME).map(Vec::as_slice);
    account && matches!(node_names, Some([only]) if only == node)
}

/// Removes the node from the caller of an associated node: permissions must not depend on the node.
fn without_node(caller: &User) -> User {
    let keys = caller.extra.keys().cloned().collect();
    User { extra: BTreeMap::from([(NODE_KEYS.to_owned(), keys)]), ..caller.clone() }
}

/// Permissions required for the requested identity.
struct ImpersonationCheck<'a> {
    mode: ImpersonationMode,
    verb: &'a str,
    caller: &'a User,
    authorize: &'a AuthorizeFn<'a>,
}

impl ImpersonationCheck<'_> {
    /// `impersonate` applies to users, groups and service accounts of the core group, because users
    /// and groups were once expected to become resources there.
    fn group(&self) -> &'static str {
        match self.mode {
            ImpersonationMode::Legacy => "",
            ImpersonationMode::AssociatedNode
            | ImpersonationMode::ArbitraryNode
            | ImpersonationMode::ServiceAccount
            | ImpersonationMode::UserInfo => AUTHENTICATION,
        }
    }

    fn constrained(&self) -> bool {
        self.mode != ImpersonationMode::Legacy
    }

    fn check_name(&self, user: &str, who: &UserKind<'_>) -> Result<(), Error> {
        let group = self.group();
        let resource = match *who {
            UserKind::Node(node) if self.constrained() => {
                let name = if self.mode == ImpersonationMode::AssociatedNode { "*" } else { node };
                ResourceAttributes { group, resource: "nodes", name, ..ResourceAttributes::default() }
            }
            UserKind::Account { namespace, name } => ResourceAttributes {
                group,
                resource: "serviceaccounts",
                namespace,
                name,
                ..ResourceAttributes::default()
            },
            UserKind::Node(_) | UserKind::Other => {
                ResourceAttributes { group, resource: "users", name: user, ..ResourceAttributes::default() }
            }
        };
        self.permit(resource)
    }

    fn check_uid(&self, uid: &str) -> Result<(), Error> {
        if uid.is_empty() {
            return Ok(());
        }
        let group = AUTHENTICATION;
        self.permit(ResourceAttributes {
            group,
            resource: "uids",
            name: uid,
            ..ResourceAttributes::default()
        })
    }

    fn check_groups(&self, groups: &[String]) -> Result<(), Error> {
        let group = |name| ResourceAttributes {
            group: self.group(),
            resource: "groups",
            name,
            ..ResourceAttributes::default()
        };
        if self.constrained() {
            let refusals = [
                ("", "impersonating the empty string group is not allowed"),
                (MASTERS, "impersonating the system:masters group is not allowed"),
            ];
            for (name, why) in refusals {
                if groups.iter().any(|g| g == name) {
                    return Err(denied(&self.attributes(group(name)), why));
                }
            }
            if groups.len() >= MANY && self.permit(group("*")).is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|name| self.permit(group(name)))
    }

    fn check_extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Result<(), Error> {
        let entry = |subresource, name| ResourceAttributes {
            group: AUTHENTICATION,
            resource: "userextras",
            subresource,
            name,
            ..ResourceAttributes::default()
        };
        if self.constrained() {
            extra::check(extra).map_err(|why| denied(&self.attributes(entry("", "")), &why))?;
            let many = extra.values().map(Vec::len).sum::<usize>() >= MANY;
            if many && self.permit(entry("*", "*")).is_ok() {
                return Ok(());
            }
        }
        let entries = extra.iter().flat_map(|(key, values)| values.iter().map(move |v| (key, v)));
        for (key, value) in entries {
            self.permit(entry(key, value))?;
        }
        Ok(())
    }

    fn permit(&self, resource: ResourceAttributes<'_>) -> Result<(), Error> {
        permit(&self.attributes(resource), self.authorize)
    }

    fn attributes<'b>(&'b self, resource: ResourceAttributes<'b>) -> AuthorizationAttributes<'b> {
        let resource = ResourceAttributes { version: "v1", ..resource };
        AuthorizationAttributes {
            user: self.caller,
            verb: self.verb,
            target: AuthorizationTarget::Resource(resource),
        }
    }
}

fn permit(asked: &AuthorizationAttributes<'_>, ask: &AuthorizeFn<'_>) -> Result<(), Error> {
    match ask(asked) {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(why) | Decision::NoOpinion(why) => Err(denied(asked, &why)),
    }
}
