//! RBAC: roles define permissions, bindings grant them to subjects.
//!
//! A decision is never older than the last write acknowledged before the request: caches apply a
//! write before it is acknowledged, and every decision first applies the changes that the index
//! lacks.

mod aggregate;
mod binding;
mod index;
mod rule;
pub(crate) mod rule_coverage;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::{Arc, RwLock, RwLockReadGuard, Weak};

use super::Decision;
use super::attributes::{AuthorizationAttributes, AuthorizationTarget};
use crate::cache::{KindCache, ObjectChange, ResourceCaches, RevisionTooOld, WalkAction};
use crate::registry::KindRegistry;
use crate::registry::rbac::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, GROUP, ROLE, ROLE_BINDING};
use crate::user::User;

pub(crate) use binding::RoleRef;
use index::{RbacIndex, RbacKind, RoleGrant};
pub(crate) use rule::PolicyRule;
use rule::RuleQuery;

/// Decides requests by the stored roles and bindings.
pub struct RbacAuthorizer(Arc<RbacState>);

struct RbacState {
    caches: Arc<ResourceCaches>,
    sources: Vec<(RbacKind, Arc<KindCache>)>,
    index: RwLock<RbacIndex>,
}

/// The rules that apply to a user.
#[derive(Debug, Default)]
pub struct ResolvedRules {
    /// The rules, cluster-wide ones first.
    pub rules: Vec<Arc<PolicyRule>>,
    /// One message per missing role, or one that roles cannot be read.
    pub errors: Vec<String>,
}

impl RbacAuthorizer {
    /// Creates an authorizer that decides by the roles and bindings in `caches`. Within a runtime,
    /// it syncs in the background.
    pub fn new(caches: &Arc<ResourceCaches>, registry: &KindRegistry) -> RbacAuthorizer {
        let tables = [
            (RbacKind::Roles, ROLE.plural),
            (RbacKind::ClusterRoles, CLUSTER_ROLE.plural),
            (RbacKind::RoleBindings, ROLE_BINDING.plural),
            (RbacKind::ClusterRoleBindings, CLUSTER_ROLE_BINDING.plural),
        ];
        let source = |(table, plural)| {
            let (kind, _) = registry.by_path(GROUP, "v1", plural)?;
            Some((table, caches.for_kind(kind)?.clone()))
        };
        let sources: Vec<_> = tables.into_iter().filter_map(source).collect();
        let index = RwLock::new(build(&sources, caches.applied()));
        let shared = Arc::new(RbacState { caches: caches.clone(), sources, index });
        spawn_refresh(&shared);
        RbacAuthorizer(shared)
    }

    /// Allows a request if a rule does; never denies.
    pub fn decide(&self, asked: &AuthorizationAttributes<'_>) -> Decision {
        let Some(index) = self.0.up_to_date_index() else {
            return Decision::NoOpinion(String::new());
        };
        let namespace = match &asked.target {
            AuthorizationTarget::Resource(resource) => resource.namespace,
            AuthorizationTarget::Path(_) => "",
        };
        let request = RuleQuery::from_attributes(asked);
        // A role granted by many bindings is checked once.
        let (mut tried, mut missing) = (HashSet::new(), Vec::new());
        let allowed = index.visit(asked.user, namespace, |RoleGrant { binding, rules }| match rules {
            Some(rules) if !tried.insert(rules.as_ptr()) => ControlFlow::Continue(()),
            Some(rules) if rules.iter().any(|rule| rule.allows(&request)) => ControlFlow::Break(binding),
            Some(_) => ControlFlow::Continue(()),
            None => {
                missing.push(binding.role.missing());
                ControlFlow::Continue(())
            }
        });
        match allowed {
            ControlFlow::Break(binding) => {
                Decision::Allow(format!("RBAC: allowed by {}", binding.describe(asked.user)))
            }
            ControlFlow::Continue(()) if missing.is_empty() => Decision::NoOpinion(String::new()),
            ControlFlow::Continue(()) => Decision::NoOpinion(format!("RBAC: {}", aggregated(missing))),
        }
    }

    /// Returns the newest revision of roles and bindings.
    pub fn newest(&self) -> u64 {
        self.0.newest()
    }

    /// Returns all rules that apply to `user` in `namespace`, and errors; an empty namespace
    /// selects only cluster-wide rules.
    pub fn resolve(&self, user: &User, namespace: &str) -> ResolvedRules {
        let mut resolved = ResolvedRules::default();
        let Some(index) = self.0.up_to_date_index() else {
            resolved.errors.push("RBAC: roles unavailable".into());
            return resolved;
        };
        // By role: many bindings of a role grant no more than one.
        let (mut seen, mut missing) = (HashSet::new(), HashSet::new());
        let _: ControlFlow<()> = index.visit(user, namespace, |RoleGrant { binding, rules }| {
            match rules {
                Some(rules) if seen.insert(rules.as_ptr()) => {
                    resolved.rules.extend(rules.iter().cloned());
                }
                Some(_) => {}
                None => {
                    let why = binding.role.missing();
                    if missing.insert(why.clone()) {
                        resolved.errors.push(why);
                    }
                }
            }
            ControlFlow::Continue(())
        });
        resolved
    }

    /// Returns the rules of the role that a binding in `namespace` references (empty for a cluster
    /// role binding); `None` if the role does not exist.
    pub fn role_rules(&self, role: &RoleRef, namespace: &str) -> Option<Vec<Arc<PolicyRule>>> {
        Some(self.0.up_to_date_index()?.role(role, namespace)?.to_vec())
    }
}

/// Formats several errors like Go's aggregate.
pub(crate) fn aggregated(errors: Vec<String>) -> String {
    let mut seen = HashSet::new();
    let texts: Vec<&str> = errors.iter().map(String::as_str).filter(|text| seen.insert(*text)).collect();
    match texts.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}

impl RbacState {
    fn newest(&self) -> u64 {
        self.sources.iter().map(|(_, cache)| cache.last()).max().unwrap_or_default()
    }

    /// Returns the index with all writes before now applied.
    fn up_to_date_index(&self) -> Option<RwLockReadGuard<'_, RbacIndex>> {
        let newest = self.newest();
        if let Ok(index) = self.index.read()
            && newest <= index.revision
        {
            return Some(index);
        }
        self.catch_up();
        let index = self.index.read();
        index.inspect_err(|_| tracing::error!("RBAC: building the index of roles panicked")).ok()
    }

    /// Brings the index up to the newest revision that every cache has applied, so that it shows
    /// all four kinds at one revision.
    fn catch_up(&self) {
        let upto = self.caches.applied();
        let mut index = match self.index.write() {
            Ok(index) => index,
            // A panic may have left it partially updated.
            Err(poisoned) => {
                let mut index = poisoned.into_inner();
                *index = build(&self.sources, upto);
                self.index.clear_poison();
                return;
            }
        };
        if upto <= index.revision {
            return;
        }
        match self.changes(index.revision, upto) {
            Ok(changes) => {
                for (table, change) in changes {
                    if change.is_delete() {
                        index.remove(table, &change.object);
                    } else {
                        index.upsert(table, &change.object);
                    }
                }
                index.settle(upto);
            }
            Err(RevisionTooOld { .. }) => *index = build(&self.sources, upto),
        }
    }

    /// Returns the changes after one revision, up to another.
    fn changes(&self, after: u64, upto: u64) -> Result<Vec<(RbacKind, Arc<ObjectChange>)>, RevisionTooOld> {
        let mut all = Vec::new();
        for (table, cache) in &self.sources {
            let (changes, _) = cache.changes(after, usize::MAX)?;
            let until = changes.into_iter().take_while(|change| change.revision <= upto);
            all.extend(until.map(|change| (*table, change)));
        }
        Ok(all)
    }
}

/// Builds an index of all objects, with every change up to `revision`.
fn build(sources: &[(RbacKind, Arc<KindCache>)], revision: u64) -> RbacIndex {
    let mut index = RbacIndex::default();
    for (table, cache) in sources {
        for object in cache.snapshot("", None, |_| WalkAction::Include).objects {
            index.upsert(*table, &object);
        }
    }
    index.settle(revision);
    index
}

/// Applies changes in the background, so that no request has to apply many.
fn spawn_refresh(shared: &Arc<RbacState>) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    for (_, cache) in &shared.sources {
        let mut news = cache.subscribe();
        let shared: Weak<RbacState> = Arc::downgrade(shared);
        runtime.spawn(async move {
            while news.changed().await.is_ok() {
                let Some(shared) = shared.upgrade() else { break };
                shared.catch_up();
            }
        });
    }
}
