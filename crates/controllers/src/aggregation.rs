//! Aggregated ClusterRoles: their rules are the union of the rules of the ClusterRoles that their aggregation rule
//! selects.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{ApiResource, ParseExpressionError, Selector, SelectorExt as _};
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use windlass_runtime::backoff::Backoff;
use windlass_runtime::metrics::ControllerMetrics;
use windlass_runtime::watch::watch_metadata;
use windlass_runtime::work_queue::WorkQueue;
use windlass_runtime::workers::{Requeue, run_workers};

use crate::csr::requeue_changed;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(30));

/// The only key. Any role may contribute to any other, so all are reconciled together, once for all changes so far.
const ALL: &str = "clusterroles";

/// Combines the rules of aggregated ClusterRoles whenever one changes; does not return.
pub async fn run(client: Client, metrics: Arc<ControllerMetrics>) -> Infallible {
    let queue = Arc::new(WorkQueue::new(metrics.clone(), BACKOFF));
    let roles = ApiResource::erase::<ClusterRole>(&());
    let watch = watch_metadata(client.clone(), &roles, None, &metrics, |event| {
        if let Event::Apply(_) | Event::InitApply(_) | Event::Delete(_) = event {
            queue.add(ALL);
        }
    });
    let reconcile = |_| reconcile(client.clone());
    // One worker is enough for one key.
    tokio::join!(watch, run_workers(queue.clone(), 1, reconcile)).0
}

#[derive(Debug, PartialEq)]
struct RoleUpdate {
    name: String,
    /// Resource version of the role from which the rules were computed.
    version: Option<String>,
    rules: Vec<PolicyRule>,
}

/// Changes to all aggregated roles.
#[derive(Debug, Default, PartialEq)]
struct AggregationPlan {
    changes: Vec<RoleUpdate>,
    /// Roles whose selectors do not parse. They stay unchanged.
    unclear: Vec<String>,
}

/// Computes which roles change. Roles that contribute to others are computed first, so that each role is written once.
fn decide(mut roles: Vec<ClusterRole>) -> AggregationPlan {
    roles.sort_by_key(ClusterRole::name_any);
    let before: Vec<Option<Vec<PolicyRule>>> = roles.iter().map(|r| r.rules.clone()).collect();
    let selectors: Vec<_> = roles.iter().map(parse_selectors).collect();
    // A chain of roles is at most as long as there are roles; anything longer is a cycle.
    for _ in 0..roles.len() {
        let mut settled = true;
        for (at, selectors) in selectors.iter().enumerate() {
            let Some(Ok(selectors)) = selectors else { continue };
            let rules = aggregate_rules(&roles, at, selectors);
            if let Some(role) = roles.get_mut(at)
                && role.rules.as_deref().unwrap_or_default() != rules
            {
                role.rules = Some(rules);
                settled = false;
            }
        }
        if settled {
            break;
        }
    }
    let mut decision = AggregationPlan::default();
    for ((role, before), selectors) in roles.into_iter().zip(before).zip(selectors) {
        let (name, version) = (role.name_any(), role.resource_version());
        if let Some(Err(_)) = selectors {
            decision.unclear.push(name);
        } else if role.rules != before {
            let rules = role.rules.unwrap_or_default();
            decision.changes.push(RoleUpdate { name, version, rules });
        }
    }
    decision
}

/// Parses the selectors of an aggregated role; `None` if the role is not aggregated.
fn parse_selectors(role: &ClusterRole) -> Option<Result<Vec<Selector>, ParseExpressionError>> {
    let selectors = role.aggregation_rule.as_ref()?.cluster_role_selectors.iter().flatten();
    Some(selectors.cloned().map(Selector::try_from).collect())
}

/// Collects the rules of the selected roles without duplicates. The role at `at` does not contribute to itself.
fn aggregate_rules(roles: &[ClusterRole], at: usize, selectors: &[Selector]) -> Vec<PolicyRule> {
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in selectors {
        let others = roles.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, role)| role);
        for role in others.filter(|role| selector.matches(role.labels())) {
            for rule in role.rules.iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    rules
}

async fn reconcile(client: Client) -> anyhow::Result<Requeue> {
    let api: Api<ClusterRole> = Api::all(client);
    let roles = api.list(&ListParams::default()).await?.items;
    let AggregationPlan { changes, unclear } = decide(roles);
    for RoleUpdate { name, version, rules } in changes {
        let patch = json!({"metadata": {"resourceVersion": version}, "rules": rules});
        match api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                return Ok(requeue_changed());
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot write ClusterRole {name}"));
            }
        }
    }
    anyhow::ensure!(unclear.is_empty(), "invalid aggregation rules in {}", unclear.join(", "));
    Ok(Requeue::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn rule(verb: &str) -> Value {
        json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]})
    }

    /// Builds a role with the label `joins`, a rule for `verbs` and a selector for each of
    /// `gathers`.
    fn role(name: &str, joins: &str, verbs: &[&str], gathers: &[&str]) -> ClusterRole {
        let rules: Vec<Value> = verbs.iter().map(|verb| rule(verb)).collect();
        let mut role = json!({
            "metadata": {"name": name, "resourceVersion": "7", "labels": {"to": joins}},
            "rules": rules,
        });
        if !gathers.is_empty() {
            let of = |to: &&str| json!({"matchLabels": {"to": to}});
            let selectors: Vec<Value> = gathers.iter().map(of).collect();
            role["aggregationRule"] = json!({ "clusterRoleSelectors": selectors });
        }
        serde_json::from_value(role).unwrap()
    }

    fn decided(roles: Vec<ClusterRole>) -> Vec<(String, Vec<String>)> {
        let changes = decide(roles).changes.into_iter();
        changes
            .map(|change| {
                assert_eq!(change.version.as_deref(), Some("7"));
                let verbs = change.rules.into_iter().flat_map(|rule| rule.verbs);
                (change.name, verbs.collect())
            })
            .collect()
    }

    #[test]
    fn rules_are_gathered_by_name_and_once() {
        type Verbs = Vec<(&'static str, Vec<&'static str>)>;
        let table: Vec<(Vec<ClusterRole>, Verbs)> = vec![
            (vec![], vec![]),
            (vec![role("a", "x", &["get"], &[])], vec![]),
            (
                vec![
                    role("sum", "", &[], &["x"]),
                    role("b", "x", &["list", "get"], &[]),
                    role("a", "x", &["get", "watch"], &[]),
                    role("c", "y", &["delete"], &[]),
                ],
                vec![("sum", vec!["get", "watch", "list"])],
            ),
            // Already up to date.
            (vec![role("sum", "", &["get"], &["x"]), role("a", "x", &["get"], &[])], vec![]),
            // Rules set by hand are replaced by the aggregated ones.
            (
                vec![role("sum", "", &["delete", "get"], &["x"]), role("a", "x", &["get"], &[])],
                vec![("sum", vec!["get"])],
            ),
            (vec![role("sum", "", &["get"], &["x"])], vec![("sum", vec![])]),
            // Keeps the order of the selectors and never selects the role itself.
            (
                vec![
                    role("sum", "x", &["delete"], &["y", "x"]),
                    role("a", "x", &["get"], &[]),
                    role("b", "y", &["list"], &[]),
                ],
                vec![("sum", vec!["list", "get"])],
            ),
        ];
        for (roles, expected) in table {
            let shown = format!("{roles:?}");
            let expected: Vec<(String, Vec<String>)> = expected
                .into_iter()
                .map(|(name, verbs)| (name.into(), verbs.into_iter().map(Into::into).collect()))
                .collect();
            assert_eq!(decided(roles), expected, "{shown}");
        }
    }

    #[test]
    fn sums_of_sums_are_settled_at_once() {
        let roles = vec![
            role("admin", "", &[], &["admin"]),
            role("edit", "admin", &[], &["edit"]),
            role("view", "edit", &[], &["view"]),
            role("part", "view", &["get"], &[]),
        ];
        let all = ["admin", "edit", "view"].map(|name| (name.to_owned(), vec!["get".to_owned()]));
        assert_eq!(decided(roles), all);
    }

    #[test]
    fn circles_come_to_rest() {
        let circle = |a: &[&str], b: &[&str]| vec![role("a", "a", a, &["b"]), role("b", "b", b, &["a"])];
        assert_eq!(
            decided(circle(&["get", "list"], &["list", "get"])),
            [("a".to_owned(), vec!["list".to_owned(), "get".to_owned()])]
        );
        assert_eq!(decided(circle(&["get"], &["get"])), []);
    }

    #[test]
    fn a_role_that_is_unclear_stays_and_stops_no_other() {
        let mut bad = role("bad", "", &["get"], &["x"]);
        let selector = json!({"matchExpressions": [{"key": "k", "operator": "Is"}]});
        let selectors = json!({ "clusterRoleSelectors": [selector] });
        bad.aggregation_rule = serde_json::from_value(selectors).unwrap();
        let good = role("good", "", &["get"], &["x"]);
        let AggregationPlan { changes, unclear } = decide(vec![bad, good]);
        assert_eq!(unclear, ["bad"]);
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[0].name, "good");
    }
}
