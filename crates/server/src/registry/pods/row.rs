//! A pod as a row of `kubectl get pods`.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use windlass_api::age::age;

use super::fields::{below, flag, int, list, metadata, optional_flag, part, spec, status, text};

/// Cells: name, readiness, status, restarts, age; then address, node, nominated node, gates.
pub(super) fn row(pod: &Value, now: OffsetDateTime) -> Vec<Value> {
    let seen = ContainerSummary::from_pod(pod);
    let restarts = match seen.restarted {
        Some(when) if seen.restarts != 0 => {
            format!("{} ({} ago)", seen.restarts, age(&stamp(when), now))
        }
        _ => seen.restarts.to_string(),
    };
    vec![
        json!(text(metadata(pod), "name")),
        json!(format!("{}/{}", seen.ready, seen.total)),
        json!(seen.reason),
        json!(restarts),
        json!(age(text(metadata(pod), "creationTimestamp"), now)),
        or_none(list(status(pod), "podIPs").first().map_or("", |ip| text(ip, "ip"))),
        or_none(text(spec(pod), "nodeName")),
        or_none(text(status(pod), "nominatedNodeName")),
        json!(readiness_gates(pod)),
    ]
}

/// Returns the condition of a terminated pod, for clients that show only running ones.
pub(super) fn conditions(pod: &Value) -> Vec<Value> {
    let phase = text(status(pod), "phase");
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": phase, "message": message})]
}

struct ContainerSummary {
    total: usize,
    ready: usize,
    reason: String,
    restarts: i64,
    restarted: Option<OffsetDateTime>,
}

impl ContainerSummary {
    fn from_pod(pod: &Value) -> ContainerSummary {
        let mut seen = ContainerSummary {
            total: list(spec(pod), "containers").len()
                + list(spec(pod), "initContainers").iter().filter(|c| is_sidecar(c)).count(),
            ready: 0,
            reason: pod_reason(pod),
            restarts: 0,
            restarted: None,
        };
        let initializing = seen.init_containers(pod);
        if !initializing || condition_is(pod, "Initialized", "True") {
            seen.containers(pod);
        }
        let deleting = part(metadata(pod), "deletionTimestamp").is_some();
        let ended = matches!(text(status(pod), "phase"), "Failed" | "Succeeded");
        if deleting && text(status(pod), "reason") == "NodeLost" {
            seen.reason = "Unknown".to_owned();
        } else if deleting && !ended {
            seen.reason = "Terminating".to_owned();
        }
        seen
    }

    /// Evaluates the init containers; returns true if one of them still blocks the pod.
    fn init_containers(&mut self, pod: &Value) -> bool {
        let declared = list(spec(pod), "initContainers");
        let sidecars = sidecars(pod);
        for (index, container) in list(status(pod), "initContainerStatuses").iter().enumerate() {
            self.count_restarts(container);
            let sidecar = sidecars.contains(text(container, "name"));
            let state = part(container, "state");
            let ended = below(state, "terminated");
            if ended.is_some_and(|e| int(e, "exitCode").unwrap_or_default() == 0) {
                continue;
            }
            if sidecar && optional_flag(container, "started") == Some(true) {
                self.ready += usize::from(flag(container, "ready"));
                continue;
            }
            let waiting = below(state, "waiting").map_or("", |w| text(w, "reason"));
            self.reason = match ended {
                Some(ended) => format!("Init:{}", ended_reason(ended)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => {
                    format!("Init:{waiting}")
                }
                None => format!("Init:{index}/{}", declared.len()),
            };
            return true;
        }
        false
    }

    /// Evaluates the regular containers; keeps only the restart count of sidecars from before.
    fn containers(&mut self, pod: &Value) {
        (self.restarts, self.restarted) = (0, None);
        let sidecars = sidecars(pod);
        for container in list(status(pod), "initContainerStatuses") {
            if sidecars.contains(text(container, "name")) {
                self.count_restarts(container);
            }
        }
        let mut running = false;
        for container in list(status(pod), "containerStatuses").iter().rev() {
            self.count_restarts(container);
            let state = part(container, "state");
            let waiting = below(state, "waiting").map_or("", |w| text(w, "reason"));
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(ended) = below(state, "terminated") {
                self.reason = ended_reason(ended);
            } else if flag(container, "ready") && below(state, "running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && running {
            let ready = condition_is(pod, "Ready", "True");
            self.reason = if ready { "Running" } else { "NotReady" }.to_owned();
        }
    }

    fn count_restarts(&mut self, container: &Value) {
        self.restarts += int(container, "restartCount").unwrap_or_default();
        let finished = below(below(Some(container), "lastState"), "terminated")
            .and_then(|ended| OffsetDateTime::parse(text(ended, "finishedAt"), &Rfc3339).ok());
        self.restarted = self.restarted.max(finished);
    }
}

fn pod_reason(pod: &Value) -> String {
    let status = status(pod);
    let gated = list(status, "conditions").iter().any(|condition| {
        text(condition, "type") == "PodScheduled" && text(condition, "reason") == "SchedulingGated"
    });
    match text(status, "reason") {
        _ if gated => "SchedulingGated",
        "" => text(status, "phase"),
        reason => reason,
    }
    .to_owned()
}

fn ended_reason(ended: &Value) -> String {
    let signal = int(ended, "signal").unwrap_or_default();
    match text(ended, "reason") {
        "" if signal != 0 => format!("Signal:{signal}"),
        "" => format!("ExitCode:{}", int(ended, "exitCode").unwrap_or_default()),
        reason => reason.to_owned(),
    }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(spec(pod), "readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let met = gates.iter().filter(|gate| condition_is(pod, text(gate, "conditionType"), "True"));
    format!("{}/{}", met.count(), gates.len())
}

fn condition_is(pod: &Value, kind: &str, wanted: &str) -> bool {
    let conditions = list(status(pod), "conditions");
    let found = conditions.iter().find(|condition| text(condition, "type") == kind);
    found.is_some_and(|condition| text(condition, "status") == wanted)
}

/// Returns the names of restartable init containers.
fn sidecars(pod: &Value) -> BTreeSet<&str> {
    let declared = list(spec(pod), "initContainers").iter();
    declared.filter(|container| is_sidecar(container)).map(|c| text(c, "name")).collect()
}

fn is_sidecar(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

fn or_none(value: &str) -> Value {
    json!(if value.is_empty() { "<none>" } else { value })
}

fn stamp(time: OffsetDateTime) -> String {
    time.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: OffsetDateTime = time::macros::datetime!(2026-01-01 01:00 UTC);

    #[test]
    fn the_status_shows_the_most_important_problem() {
        let cases = [
            (json!({"status": {"phase": "Pending"}}), "0/1", "Pending", "0"),
            (json!({"status": {"phase": "Failed", "reason": "Evicted"}}), "0/1", "Evicted", "0"),
            (
                json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                    "containerStatuses": [{"ready": true, "restartCount": 2, "state": {"running": {}},
                        "lastState": {"terminated": {"finishedAt": "2026-01-01T00:55:00Z"}}}]}}),
                "1/1",
                "Running",
                "2 (5m ago)",
            ),
            (
                json!({"status": {"phase": "Running", "containerStatuses": [
                    {"restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}),
                "0/1",
                "CrashLoopBackOff",
                "4",
            ),
            (
                json!({"status": {"phase": "Succeeded", "containerStatuses": [
                    {"restartCount": 0, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}}),
                "0/1",
                "Completed",
                "0",
            ),
            (
                json!({"status": {"phase": "Running", "containerStatuses": [
                    {"ready": true, "state": {"running": {}}},
                    {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}}),
                "1/1",
                "NotReady",
                "0",
            ),
            (
                json!({"status": {"phase": "Failed", "containerStatuses": [
                    {"state": {"terminated": {"exitCode": 137, "signal": 9}}}]}}),
                "0/1",
                "Signal:9",
                "0",
            ),
            (
                json!({"spec": {"initContainers": [{"name": "a"}, {"name": "b"}]},
                    "status": {"phase": "Pending", "initContainerStatuses": [
                        {"name": "a", "state": {"terminated": {"exitCode": 0}}},
                        {"name": "b", "state": {"running": {}}}]}}),
                "0/1",
                "Init:1/2",
                "0",
            ),
            (
                json!({"spec": {"initContainers": [{"name": "a"}]},
                    "status": {"phase": "Pending", "initContainerStatuses": [
                        {"name": "a", "restartCount": 3,
                         "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}),
                "0/1",
                "Init:CrashLoopBackOff",
                "3",
            ),
            (
                json!({"spec": {"initContainers": [{"name": "a"}]},
                    "status": {"phase": "Pending", "initContainerStatuses": [
                        {"name": "a", "state": {"terminated": {"exitCode": 1}}}]}}),
                "0/1",
                "Init:ExitCode:1",
                "0",
            ),
            (
                json!({"spec": {"initContainers": [{"name": "s", "restartPolicy": "Always"}]},
                    "status": {"phase": "Running",
                        "initContainerStatuses": [
                            {"name": "s", "started": true, "ready": true, "restartCount": 1,
                             "state": {"running": {}}}],
                        "containerStatuses": [
                            {"ready": true, "restartCount": 1, "state": {"running": {}}}]}}),
                "2/2",
                "Running",
                "2",
            ),
            (
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
                       "status": {"phase": "Running"}}),
                "0/1",
                "Terminating",
                "0",
            ),
            (
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
                       "status": {"phase": "Running", "reason": "NodeLost"}}),
                "0/1",
                "Unknown",
                "0",
            ),
            (
                json!({"status": {"phase": "Pending", "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}}),
                "0/1",
                "SchedulingGated",
                "0",
            ),
        ];
        for (mut pod, ready, reason, restarts) in cases {
            pod["spec"]["containers"] = json!([{"name": "c"}]);
            let cells = row(&pod, NOW);
            assert_eq!(cells[1..4], [json!(ready), json!(reason), json!(restarts)], "{pod}");
        }
    }

    #[test]
    fn wide_cells_show_the_location() {
        let pod = json!({
            "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "n", "readinessGates": [{"conditionType": "a/b"}, {"conditionType": "c"}]},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}],
                       "conditions": [{"type": "a/b", "status": "True"}]}
        });
        assert_eq!(
            row(&pod, NOW),
            ["p", "0/0", "Running", "0", "60m", "10.0.0.1", "n", "<none>", "1/2"].map(|c| json!(c))
        );
    }
}
