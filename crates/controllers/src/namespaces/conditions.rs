//! Conditions of a terminating namespace, with the texts of kube-controller-manager, which people and programs rely on.

use serde_json::{Value, json};

use super::content::DeletionReport;

/// Updates `conditions`; returns whether any changed.
pub fn update(conditions: &mut Vec<Value>, findings: &DeletionReport, now: &str) -> bool {
    let mut changed = false;
    for condition in from_report(findings) {
        let DeletionCondition { kind, status, reason, message } = &condition;
        let old = conditions.iter_mut().find(|old| old["type"] == *kind);
        let Some(old) = old.and_then(Value::as_object_mut) else {
            conditions.push(json!({
                "type": kind,
                "status": status,
                "lastTransitionTime": now,
                "reason": reason,
                "message": message,
            }));
            changed = true;
            continue;
        };
        let is = |field: &str, value: &str| old.get(field).is_some_and(|v| v == value);
        if is("status", status) && is("reason", reason) && is("message", message) {
            continue;
        }
        if !is("status", status) {
            old.insert("lastTransitionTime".into(), json!(now));
        }
        old.insert("status".into(), json!(status));
        old.insert("reason".into(), json!(reason));
        old.insert("message".into(), json!(message));
        changed = true;
    }
    changed
}

#[derive(Debug, PartialEq, Eq)]
struct DeletionCondition {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// Condition with its texts for both states.
struct ConditionTemplate {
    kind: &'static str,
    bad: &'static str,
    good: &'static str,
    good_message: &'static str,
    problem: fn(&DeletionReport) -> Option<String>,
}

const WORDINGS: [ConditionTemplate; 5] = [
    ConditionTemplate {
        kind: "NamespaceDeletionDiscoveryFailure",
        bad: "DiscoveryFailed",
        good: "ResourcesDiscovered",
        good_message: "All resources successfully discovered",
        problem: |findings| findings.discovery.clone(),
    },
    ConditionTemplate {
        kind: "NamespaceDeletionGroupVersionParsingFailure",
        bad: "GroupVersionParsingFailed",
        good: "ParsedGroupVersions",
        good_message: "All legacy kube types successfully parsed",
        problem: |findings| findings.malformed.clone(),
    },
    ConditionTemplate {
        kind: "NamespaceDeletionContentFailure",
        bad: "ContentDeletionFailed",
        good: "ContentDeleted",
        good_message: "All content successfully deleted, may be waiting on finalization",
        problem: failures_message,
    },
    ConditionTemplate {
        kind: "NamespaceContentRemaining",
        bad: "SomeResourcesRemain",
        good: "ContentRemoved",
        good_message: "All content successfully removed",
        problem: remaining_message,
    },
    ConditionTemplate {
        kind: "NamespaceFinalizersRemaining",
        bad: "SomeFinalizerRemain",
        good: "ContentRemoved",
        good_message: "All content successfully removed",
        problem: finalizers_message,
    },
];

fn from_report(findings: &DeletionReport) -> impl Iterator<Item = DeletionCondition> + '_ {
    WORDINGS.iter().map(|wording| match (wording.problem)(findings) {
        Some(message) => {
            DeletionCondition { kind: wording.kind, status: "True", reason: wording.bad, message }
        }
        None => {
            let message = wording.good_message.to_owned();
            DeletionCondition { kind: wording.kind, status: "False", reason: wording.good, message }
        }
    })
}

fn failures_message(findings: &DeletionReport) -> Option<String> {
    let count = findings.failures.len();
    let text = join_sorted(findings.failures.clone())?;
    Some(format!("Failed to delete all resource types, {count} remaining: {text}"))
}

fn remaining_message(findings: &DeletionReport) -> Option<String> {
    let words = findings.remaining.iter();
    let words = words.map(|((group, plural), n)| format!("{plural}.{group} has {n} resource instances"));
    Some(format!("Some resources are remaining: {}", join_sorted(words.collect())?))
}

fn finalizers_message(findings: &DeletionReport) -> Option<String> {
    let words = findings.finalizers.iter();
    let words = words.map(|(finalizer, n)| format!("{finalizer} in {n} resource instances"));
    Some(format!("Some finalizers are remaining: {}", join_sorted(words.collect())?))
}

/// Joins texts in a stable order; `None` if there are none.
fn join_sorted(mut words: Vec<String>) -> Option<String> {
    words.sort();
    (!words.is_empty()).then(|| words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(conditions: &[Value]) -> Vec<String> {
        let text = |c: &Value, field: &str| c[field].as_str().unwrap_or_default().to_owned();
        let line = |c: &Value| {
            let (kind, status) = (text(c, "type"), text(c, "status"));
            let (reason, message) = (text(c, "reason"), text(c, "message"));
            let at = text(c, "lastTransitionTime");
            format!("{kind} {status} {reason} @{at}: {message}")
        };
        conditions.iter().map(line).collect()
    }

    #[test]
    fn an_empty_namespace_is_fine() {
        let mut conditions = Vec::new();
        assert!(update(&mut conditions, &DeletionReport::default(), "t1"));
        assert_eq!(
            messages(&conditions),
            [
                "NamespaceDeletionDiscoveryFailure False ResourcesDiscovered @t1: All resources successfully discovered",
                "NamespaceDeletionGroupVersionParsingFailure False ParsedGroupVersions @t1: All legacy kube types successfully parsed",
                "NamespaceDeletionContentFailure False ContentDeleted @t1: All content successfully deleted, may be waiting on finalization",
                "NamespaceContentRemaining False ContentRemoved @t1: All content successfully removed",
                "NamespaceFinalizersRemaining False ContentRemoved @t1: All content successfully removed",
            ]
        );
        assert!(!update(&mut conditions, &DeletionReport::default(), "t2"), "nothing new");
    }

    #[test]
    fn a_problem_is_reported_and_keeps_its_start_time() {
        let remaining = |n| [((String::new(), "pods".to_owned()), n)].into();
        let mut findings = DeletionReport {
            discovery: Some("no".into()),
            failures: vec!["b".into(), "a".into()],
            remaining: remaining(2),
            finalizers: [("x.io/f".to_owned(), 2)].into(),
            ..DeletionReport::default()
        };
        findings.remaining.insert(("apps".into(), "deployments".into()), 1);
        let mut conditions = Vec::new();
        update(&mut conditions, &DeletionReport::default(), "t1");
        assert!(update(&mut conditions, &findings, "t2"));
        assert_eq!(
            messages(&conditions),
            [
                "NamespaceDeletionDiscoveryFailure True DiscoveryFailed @t2: no",
                "NamespaceDeletionGroupVersionParsingFailure False ParsedGroupVersions @t1: All legacy kube types successfully parsed",
                "NamespaceDeletionContentFailure True ContentDeletionFailed @t2: Failed to delete all resource types, 2 remaining: a, b",
                "NamespaceContentRemaining True SomeResourcesRemain @t2: Some resources are remaining: deployments.apps has 1 resource instances, pods. has 2 resource instances",
                "NamespaceFinalizersRemaining True SomeFinalizerRemain @t2: Some finalizers are remaining: x.io/f in 2 resource instances",
            ]
        );
        findings.remaining = remaining(1);
        assert!(update(&mut conditions, &findings, "t3"));
        assert_eq!(
            messages(&conditions)[3],
            "NamespaceContentRemaining True SomeResourcesRemain @t2: Some resources are remaining: pods. has 1 resource instances"
        );
    }
}
