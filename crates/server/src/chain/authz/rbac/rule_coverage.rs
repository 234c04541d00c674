//! Checks whether the rules a user holds cover the rules to be granted.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use windlass_api::field::quote;

use super::rule::{ALL, PolicyRule, contains, covers_path};
use crate::limits;

/// The comparison exceeds the limits, which only abusive roles reach.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyComparisons;

/// Returns each permission of `wanted` that no rule of `held` covers.
pub(crate) fn missing(
    held: &[Arc<PolicyRule>],
    wanted: &[PolicyRule],
) -> Result<Vec<PolicyRule>, TooManyComparisons> {
    let mut missing = Vec::new();
    let (mut permissions, mut bytes) = (0_usize, 0_usize);
    let mut budget = ComparisonBudget(limits::COMPARISONS);
    for rule in wanted {
        for part in parts(rule) {
            if budget.is_covered(held, &part)? {
                continue;
            }
            permissions = permissions.saturating_add(count(&part));
            bytes = bytes.saturating_add(count(&part).saturating_mul(longest(&part)));
            if permissions > limits::PERMISSIONS || bytes > limits::PERMISSION_BYTES {
                return Err(TooManyComparisons);
            }
            for one in split_rule(&part) {
                if !budget.is_covered(held, &one)? {
                    missing.push(one);
                }
            }
        }
    }
    Ok(missing)
}

/// Words that may still be compared: the thread serves no other request meanwhile.
struct ComparisonBudget(usize);

impl ComparisonBudget {
    /// Returns true if one held rule covers the whole wanted rule.
    fn is_covered(
        &mut self,
        held: &[Arc<PolicyRule>],
        wanted: &PolicyRule,
    ) -> Result<bool, TooManyComparisons> {
        for held in held {
            self.0 = self.0.checked_sub(cost(held, wanted)).ok_or(TooManyComparisons)?;
            if covers(held, wanted) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns the maximum number of words that [`covers`] compares.
fn cost(held: &PolicyRule, wanted: &PolicyRule) -> usize {
    let lists = |rule: &PolicyRule| {
        [
            rule.verbs.len(),
            rule.api_groups.len(),
            rule.resources.len(),
            rule.resource_names.len(),
            rule.non_resource_urls.len(),
        ]
    };
    let pairs = lists(held).into_iter().zip(lists(wanted));
    pairs.fold(1, |sum, (held, wanted)| sum.saturating_add(held.saturating_mul(wanted + 1)))
}

/// Splits a rule into its resource part and its path part.
fn parts(rule: &PolicyRule) -> [PolicyRule; 2] {
    let (mut resources, mut paths) = (rule.clone(), PolicyRule::default());
    paths.verbs.clone_from(&rule.verbs);
    paths.non_resource_urls = std::mem::take(&mut resources.non_resource_urls);
    [resources, paths]
}

fn count(part: &PolicyRule) -> usize {
    let names = part.resource_names.len().max(1);
    let resources = part.api_groups.len().saturating_mul(part.resources.len());
    let lists = resources.saturating_mul(names).saturating_add(part.non_resource_urls.len());
    lists.saturating_mul(part.verbs.len())
}

/// Returns the size in bytes of the longest permission in a part.
fn longest(part: &PolicyRule) -> usize {
    let lists =
        [&part.verbs, &part.api_groups, &part.resources, &part.resource_names, &part.non_resource_urls];
    lists.into_iter().map(|list| list.iter().map(String::len).max().unwrap_or_default()).sum()
}

/// Splits a part into rules of one verb on one resource, with one name, or on one path.
fn split_rule(part: &PolicyRule) -> impl Iterator<Item = PolicyRule> {
    let mut single = Vec::new();
    for group in &part.api_groups {
        for resource in &part.resources {
            for verb in &part.verbs {
                let one = PolicyRule {
                    verbs: vec![verb.clone()],
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    ..PolicyRule::default()
                };
                if part.resource_names.is_empty() {
                    single.push(one);
                    continue;
                }
                for name in &part.resource_names {
                    single.push(PolicyRule { resource_names: vec![name.clone()], ..one.clone() });
                }
            }
        }
    }
    for url in &part.non_resource_urls {
        for verb in &part.verbs {
            let (verbs, non_resource_urls) = (vec![verb.clone()], vec![url.clone()]);
            single.push(PolicyRule { verbs, non_resource_urls, ..PolicyRule::default() });
        }
    }
    single.into_iter()
}

/// Returns true if one rule alone covers all of another.
fn covers(held: &PolicyRule, wanted: &PolicyRule) -> bool {
    let all = |held: &[String], wanted: &[String]| wanted.iter().all(|w| contains(held, w));
    let names = if wanted.resource_names.is_empty() {
        held.resource_names.is_empty()
    } else {
        held.resource_names.is_empty() || all(&held.resource_names, &wanted.resource_names)
    };
    let paths = &held.non_resource_urls;
    names
        && (contains(&held.verbs, ALL) || all(&held.verbs, &wanted.verbs))
        && (contains(&held.api_groups, ALL) || all(&held.api_groups, &wanted.api_groups))
        && wanted.resources.iter().all(|resource| covers_resource(&held.resources, resource))
        && wanted.non_resource_urls.iter().all(|url| paths.iter().any(|p| covers_path(p, url)))
}

fn covers_resource(held: &[String], resource: &str) -> bool {
    let subresource = resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
    contains(held, ALL) || contains(held, resource) || subresource.is_some_and(|any| contains(held, &any))
}

/// Formats rules in Kubernetes' words, one per line, grouping verbs on the same resource.
pub(crate) fn describe(rules: &[PolicyRule]) -> String {
    let mut compact: Vec<PolicyRule> = Vec::new();
    let mut places = HashMap::new();
    for rule in rules {
        let simple = rule.resource_names.is_empty() && rule.non_resource_urls.is_empty();
        let new = compact.len();
        let at = if simple { *places.entry((&rule.api_groups, &rule.resources)).or_insert(new) } else { new };
        match compact.get_mut(at) {
            Some(like) => like.verbs.extend(rule.verbs.iter().cloned()),
            None => compact.push(rule.clone()),
        }
    }
    let lines: BTreeSet<String> = compact.iter().map(line).collect();
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

fn line(rule: &PolicyRule) -> String {
    let lists = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let shown = lists.iter().filter(|(_, list)| !list.is_empty());
    let shown: Vec<String> = shown.map(|(name, list)| format!("{name}:{}", quoted(list))).collect();
    format!("{{{}}}", shown.join(", "))
}

/// Formats a list like Go's `%q`.
pub(crate) fn quoted(list: &[String]) -> String {
    format!("[{}]", list.iter().map(|text| quote(text)).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `verbs groups resources names`, comma-separated lists with `-` for none; or `verbs
    /// /paths`.
    fn rule(text: &str) -> PolicyRule {
        let list = |text: Option<&str>| -> Vec<String> {
            let items = text.filter(|t| *t != "-").into_iter().flat_map(|t| t.split(','));
            items.map(|t| t.replace("core", "")).collect()
        };
        let mut fields = text.split(' ').peekable();
        let verbs = list(fields.next());
        if fields.peek().is_some_and(|f| f.starts_with('/') || *f == "**") {
            let non_resource_urls = list(fields.next()).iter().map(|u| u.replace("**", "*")).collect();
            return PolicyRule { verbs, non_resource_urls, ..PolicyRule::default() };
        }
        let (api_groups, resources) = (list(fields.next()), list(fields.next()));
        PolicyRule {
            verbs,
            api_groups,
            resources,
            resource_names: list(fields.next()),
            ..PolicyRule::default()
        }
    }

    #[test]
    fn held_rules_cover_granted_rules() {
        for (held, wanted, covered) in [
            (&["get core pods"][..], "get core pods", true),
            (&["get core pods"], "get,list core pods", false),
            // Several rules combined.
            (&["get core pods", "list core pods"], "get,list core pods", true),
            (&["get,list core pods,nodes"], "get core pods,nodes", true),
            (&["get core pods", "get apps pods"], "get core,apps pods", true),
            (&["get core pods"], "get apps pods", false),
            (&["* core pods"], "delete core pods", true),
            (&["get core pods"], "* core pods", false),
            (&["get * pods"], "get apps pods", true),
            (&["get core pods"], "get * pods", false),
            (&["get core *"], "get core pods/status", true),
            (&["get core pods"], "get core *", false),
            // Subresources.
            (&["get core pods"], "get core pods/status", false),
            (&["get core */status"], "get core pods/status", true),
            (&["get core */status"], "get core pods", false),
            (&["get core pods/status"], "get core */status", false),
            (&["get core pods/*"], "get core pods/status", false),
            // Names.
            (&["get core pods"], "get core pods a", true),
            (&["get core pods a"], "get core pods", false),
            (&["get core pods a,b"], "get core pods a", true),
            (&["get core pods a"], "get core pods a,b", false),
            (&["get core pods a", "get core pods b"], "get core pods a,b", true),
            (&["get core pods a.b"], "get core pods axb", false),
            // Paths.
            (&["get /x"], "get /x", true),
            (&["get /x/*"], "get /x/y", true),
            (&["get /x/*"], "get /x/*", true),
            (&["get /x/y"], "get /x/*", false),
            (&["get **"], "get /x/*", true),
            (&["get core *"], "get /x", false),
            (&["get **"], "get core pods", false),
            // An empty rule is covered by anything.
            (&[], "- - -", true),
            (&[], "get - pods", true),
        ] {
            let held: Vec<Arc<PolicyRule>> = held.iter().map(|text| Arc::new(rule(text))).collect();
            let missing = missing(&held, &[rule(wanted)]).unwrap();
            assert_eq!(missing.is_empty(), covered, "{held:?} {wanted}: {missing:?}");
        }
    }

    #[test]
    fn missing_rules_are_reported_with_kubernetes_messages() {
        let wanted = [
            rule("get,list core pods"),
            rule("get,list apps pods a"),
            rule("get /x"),
            rule("watch core pods"),
        ];
        let held = [Arc::new(rule("list apps pods"))];
        let text = describe(&missing(&held, &wanted).unwrap());
        assert_eq!(
            text,
            concat!(
                "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\" \"watch\"]}\n",
                "{APIGroups:[\"apps\"], Resources:[\"pods\"], ResourceNames:[\"a\"], Verbs:[\"get\"]}\n",
                "{NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}",
            )
        );
    }

    #[test]
    fn billions_of_permissions_are_not_compared() {
        let many = || (0..2000).map(|i| format!("x{i}")).collect::<Vec<_>>();
        let wanted = PolicyRule {
            verbs: many(),
            api_groups: many(),
            resources: many(),
            resource_names: many(),
            ..PolicyRule::default()
        };
        assert_eq!(missing(&[], std::slice::from_ref(&wanted)), Err(TooManyComparisons));
        // Unless a held rule covers them as a whole.
        let all = Arc::new(rule("* * *"));
        assert_eq!(missing(&[all], &[wanted]), Ok(Vec::new()));
    }

    #[test]
    fn missing_rules_are_reported_quickly() {
        let words = |letter: &str| (0..140).map(|i| format!("{letter}{i}")).collect::<Vec<_>>();
        let wanted = PolicyRule { api_groups: words("g"), resources: words("r"), ..rule("get core x") };
        let begun = std::time::Instant::now();
        let text = describe(&missing(&[], &[wanted]).unwrap());
        assert_eq!(text.lines().count(), 140 * 140);
        // Unoptimized code on a busy machine; comparing all pairs would take minutes.
        assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
    }

    #[test]
    fn comparison_terminates() {
        let names = |order: &dyn Fn(usize) -> usize| {
            let resource_names = (0..100_000).map(|i| format!("a-name-{}", order(i))).collect();
            PolicyRule { resource_names, ..rule("get core pods") }
        };
        // Ten billion comparisons of names in the worst order.
        let (held, wanted) = (names(&|i| i), names(&|i| 99_999 - i));
        assert_eq!(missing(&[Arc::new(held)], &[wanted]), Err(TooManyComparisons));
        // As many comparisons of short rules.
        let held: Vec<_> = (0..30_000).map(|_| Arc::new(rule("list core pods"))).collect();
        let wanted = vec![rule("get core pods"); 30_000];
        assert_eq!(missing(&held, &wanted), Err(TooManyComparisons));
    }
}
