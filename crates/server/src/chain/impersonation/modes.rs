//! The ways in which acting as somebody else can be allowed.
//!
//! A constrained mode asks two things of the caller: the right to do this verb in this mode on the
//! target (`impersonate-on:<mode>:<verb>`), and the right to be this user in this mode
//! (`impersonate:<mode>`). The last mode asks only for `impersonate`. Every mode that can make such a
//! user is tried, and when none allows it the caller hears of the first refusal.

use std::collections::BTreeMap;

use windlass_api::names;

use super::extra;
use super::headers::Wanted;
use crate::chain::authz::attributes::{Attributes, Resource, Target};
use crate::chain::authz::{Decision, denied};
use crate::error::Error;
use crate::user::{AUTHENTICATED, MASTERS, UNAUTHENTICATED, User};

/// Answers what an authorizer is asked.
pub type Ask<'a> = dyn Fn(&Attributes<'_>) -> Decision + 'a;

/// The user that `wanted` becomes, if the caller of `target` may act as them there.
pub fn decide(wanted: &Wanted, target: &Attributes<'_>, ask: &Ask<'_>) -> Result<User, Error> {
    let who = Who::of(&wanted.name);
    let mut refused = None;
    for mode in MODES {
        if !mode.makes(wanted, &who, target.user) {
            continue;
        }
        match mode.allow(wanted, &who, target, ask) {
            Ok(()) => return Ok(mode.user(wanted, &who)),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| Error::Internal("no way to impersonate was tried".into())))
}

/// In the order in which they are tried.
const MODES: [Mode; 5] =
    [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// A service account acts as the node that its pod runs on.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    /// Everybody who is neither a node nor a service account.
    UserInfo,
    /// Anybody, for anything.
    Legacy,
}

/// What sort of user a name is.
enum Who<'a> {
    Node(&'a str),
    Account { namespace: &'a str, name: &'a str },
    Other,
}

impl<'a> Who<'a> {
    fn of(name: &'a str) -> Who<'a> {
        if let Some(node) = name.strip_prefix("system:node:") {
            return if names::dns1123_subdomain(node).is_empty() {
                Who::Node(node)
            } else {
                Who::Other
            };
        }
        let account = name.strip_prefix("system:serviceaccount:").and_then(|a| a.split_once(':'));
        match account {
            Some((namespace, name))
                if names::dns1123_label(namespace).is_empty()
                    && names::dns1123_subdomain(name).is_empty() =>
            {
                Who::Account { namespace, name }
            }
            _ => Who::Other,
        }
    }
}

/// From this many rights on, the right to all of them is asked for first.
const MANY: usize = 4;
const AUTHENTICATION: &str = "authentication.k8s.io";
const NODES: &str = "system:nodes";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_KEYS: &str = "authentication.kubernetes.io/associated-node-keys";

impl Mode {
    /// What the mode is called in verbs; the last one has no name.
    fn name(self) -> Option<&'static str> {
        match self {
            Mode::AssociatedNode => Some("associated-node"),
            Mode::ArbitraryNode => Some("arbitrary-node"),
            Mode::ServiceAccount => Some("serviceaccount"),
            Mode::UserInfo => Some("user-info"),
            Mode::Legacy => None,
        }
    }

    /// Whether such a user can be had in this mode at all. Nodes and service accounts are made
    /// whole by the server, so nothing but their name can be asked for.
    fn makes(self, wanted: &Wanted, who: &Who<'_>, caller: &User) -> bool {
        match (self, who) {
            (Mode::AssociatedNode, Who::Node(node)) => {
                wanted.is_name_only() && runs_on(caller, node)
            }
            (Mode::ArbitraryNode, Who::Node(_)) => wanted.is_name_only(),
            (Mode::ServiceAccount, Who::Account { .. }) => wanted.is_name_only(),
            (Mode::UserInfo, Who::Other) | (Mode::Legacy, _) => true,
            (Mode::AssociatedNode | Mode::ArbitraryNode, Who::Account { .. } | Who::Other)
            | (Mode::ServiceAccount, Who::Node(_) | Who::Other)
            | (Mode::UserInfo, Who::Node(_) | Who::Account { .. }) => false,
        }
    }

    fn allow(
        self,
        wanted: &Wanted,
        who: &Who<'_>,
        target: &Attributes<'_>,
        ask: &Ask<'_>,
    ) -> Result<(), Error> {
        let reduced;
        let caller = match self {
            Mode::AssociatedNode => {
                reduced = without_node(target.user);
                &reduced
            }
            Mode::ArbitraryNode | Mode::ServiceAccount | Mode::UserInfo | Mode::Legacy => {
                target.user
            }
        };
        let verb = match self.name() {
            None => "impersonate".to_owned(),
            Some(mode) => {
                let verb = format!("impersonate-on:{mode}:{}", target.verb);
                let target = target.target.clone();
                permit(&Attributes { user: caller, verb: &verb, target }, ask)?;
                format!("impersonate:{mode}")
            }
        };
        let rights = Rights { mode: self, verb: &verb, caller, ask };
        rights.to_name(&wanted.name, who)?;
        rights.to_uid(&wanted.uid)?;
        rights.to_groups(&wanted.groups)?;
        rights.to_extra(&wanted.extra)
    }

    /// The user with the groups that come with being one.
    fn user(self, wanted: &Wanted, who: &Who<'_>) -> User {
        let Wanted { name, uid, groups, extra } = wanted;
        let mut groups = match who {
            Who::Account { namespace, .. } if groups.is_empty() => {
                vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")]
            }
            Who::Node(_) if self != Mode::Legacy => vec![NODES.to_owned()],
            Who::Node(_) | Who::Account { .. } | Who::Other => groups.clone(),
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

/// Whether the caller is a service account whose token says that it runs on `node`.
fn runs_on(caller: &User, node: &str) -> bool {
    let account = matches!(Who::of(&caller.name), Who::Account { .. });
    let told = caller.extra.get(NODE_NAME).map(Vec::as_slice);
    account && matches!(told, Some([only]) if only == node)
}

/// The caller of an associated node: what is allowed must not depend on which node it is.
fn without_node(caller: &User) -> User {
    let keys = caller.extra.keys().cloned().collect();
    User { extra: BTreeMap::from([(NODE_KEYS.to_owned(), keys)]), ..caller.clone() }
}

/// The rights to be what was asked for.
struct Rights<'a> {
    mode: Mode,
    verb: &'a str,
    caller: &'a User,
    ask: &'a Ask<'a>,
}

impl Rights<'_> {
    /// The right `impersonate` is on users, groups and accounts of the core group, for users and
    /// groups were thought to become resources there one day.
    fn group(&self) -> &'static str {
        match self.mode {
            Mode::Legacy => "",
            Mode::AssociatedNode | Mode::ArbitraryNode | Mode::ServiceAccount | Mode::UserInfo => {
                AUTHENTICATION
            }
        }
    }

    fn constrained(&self) -> bool {
        self.mode != Mode::Legacy
    }

    fn to_name(&self, user: &str, who: &Who<'_>) -> Result<(), Error> {
        let group = self.group();
        let resource = match *who {
            Who::Node(node) if self.constrained() => {
                let name = if self.mode == Mode::AssociatedNode { "*" } else { node };
                Resource { group, resource: "nodes", name, ..Resource::default() }
            }
            Who::Account { namespace, name } => Resource {
                group,
                resource: "serviceaccounts",
                namespace,
                name,
                ..Resource::default()
            },
            Who::Node(_) | Who::Other => {
                Resource { group, resource: "users", name: user, ..Resource::default() }
            }
        };
        self.permit(resource)
    }

    fn to_uid(&self, uid: &str) -> Result<(), Error> {
        if uid.is_empty() {
            return Ok(());
        }
        let group = AUTHENTICATION;
        self.permit(Resource { group, resource: "uids", name: uid, ..Resource::default() })
    }

    fn to_groups(&self, groups: &[String]) -> Result<(), Error> {
        let group = |name| Resource {
            group: self.group(),
            resource: "groups",
            name,
            ..Resource::default()
        };
        if self.constrained() {
            let refusals = [
                ("", "impersonating the empty string group is not allowed"),
                (MASTERS, "impersonating the system:masters group is not allowed"),
            ];
            for (name, why) in refusals {
                if groups.iter().any(|g| g == name) {
                    return Err(denied(&self.asked(group(name)), why));
                }
            }
            if groups.len() >= MANY && self.permit(group("*")).is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|name| self.permit(group(name)))
    }

    fn to_extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Result<(), Error> {
        let entry = |subresource, name| Resource {
            group: AUTHENTICATION,
            resource: "userextras",
            subresource,
            name,
            ..Resource::default()
        };
        if self.constrained() {
            extra::check(extra).map_err(|why| denied(&self.asked(entry("", "")), &why))?;
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

    fn permit(&self, resource: Resource<'_>) -> Result<(), Error> {
        permit(&self.asked(resource), self.ask)
    }

    fn asked<'b>(&'b self, resource: Resource<'b>) -> Attributes<'b> {
        let resource = Resource { version: "v1", ..resource };
        Attributes { user: self.caller, verb: self.verb, target: Target::Resource(resource) }
    }
}

fn permit(asked: &Attributes<'_>, ask: &Ask<'_>) -> Result<(), Error> {
    match ask(asked) {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(why) | Decision::NoOpinion(why) => Err(denied(asked, &why)),
    }
}
