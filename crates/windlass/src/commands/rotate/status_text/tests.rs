//! The text of rotations in every phase.

use serde_json::{Value, json};

use super::super::rotations::tests::rotation;
use super::*;

const NOW: OffsetDateTime = time::macros::datetime!(2026-03-01 12:05 UTC);

fn step(phase: &str, start: &str, end: Option<&str>, waited_for: &[&str]) -> Value {
    let mut step = json!({"phase": phase, "startTime": format!("2026-03-01T{start}Z")});
    if let Some(end) = end {
        step["completionTime"] = json!(format!("2026-03-01T{end}Z"));
    }
    if !waited_for.is_empty() {
        step["waitedFor"] = json!(waited_for);
    }
    step
}

fn held_condition(reason: &str, message: &str) -> Value {
    json!({"type": "Held", "status": "True", "reason": reason, "message": message,
           "lastTransitionTime": "2026-03-01T12:02:00Z"})
}

fn laggard(name: &str, reason: &str, message: &str) -> Value {
    json!({"kind": "Node", "name": name, "reason": reason, "since": "2026-03-01T12:02:00Z", "message": message})
}

fn waiting() -> RotationObject {
    rotation(
        "web.example.com-x7k2p",
        "example.com/web",
        json!({
            "phase": "WaitingForTrust", "message": "waiting for 2 of 20 consumers",
            "conditions": [held_condition("ConsumersNotRead", "2 consumers have not read the file")],
            "oldAuthority": {"id": "0a", "subject": "CN=web", "notAfter": "2026-06-01T00:00:00Z"},
            "newAuthority": {"id": "0b"},
            "consumers": {"total": 20, "written": 20, "read": 10, "notRead": 2, "notObservable": 7, "accepted": 1},
            "leaves": {"outstanding": 30, "renewed": 10},
            "laggards": [laggard("node/n3/host/nginx", "NotRead", "has not opened\nthe file"),
                         laggard("node/n9/shop/web-0/trust", "NotReporting", "")],
            "moreLaggards": 3,
            "earliestRetirementTime": "2026-03-03T12:05:00Z",
            "steps": [step("Preparing", "12:00:00", Some("12:00:01"), &[]),
                      step("Publishing", "12:00:01", Some("12:00:03"), &["bundle/a", "bundle/b", "bundle/c", "bundle/d"]),
                      step("WaitingForTrust", "12:00:03", None, &[])],
        }),
    )
}

#[test]
fn a_held_rotation_says_who_lags_and_what_to_do() {
    assert_eq!(
        details(&waiting(), false, NOW, 80),
        "\
carotation.windlass.dev/web.example.com-x7k2p
Signer:  example.com/web
Old CA:  0a CN=web, expires 2026-06-01T00:00:00Z
New CA:  0b
Phase:   WaitingForTrust: waiting for 2 of 20 consumers
  [x] Preparing         2026-03-01T12:00:00Z   1s
  [x] Publishing        2026-03-01T12:00:01Z   2s      waited for bundle/a, bundle/b, bundle/c and 1 more
  [>] WaitingForTrust   2026-03-01T12:00:03Z   4m57s
  [ ] Switching
  [ ] Renewing
  [ ] Retiring
  [ ] Completed
Consumers written  [############################] 20 of 20
Consumers read     [##############--------------] 10 of 20, 2 not read, 7 not observable, 1 accepted
Leaves renewed     [#######---------------------] 10 of 40, 30 outstanding
Held for 3m: ConsumersNotRead: 2 consumers have not read the file
LAGGARD                    REASON         SINCE   MESSAGE
node/n3/host/nginx         NotRead        3m      has not opened the file
node/n9/shop/web-0/trust   NotReporting   3m
and 3 more
  NotRead: reload or restart the application, or accept it with windlass rotate accept web.example.com-x7k2p NAME
  NotReporting: restore the agent of the node; if the node is gone for good, windlass rotate exclude \
web.example.com-x7k2p NODE
Earliest retirement: 2026-03-03T12:05:00Z (in 2d)
"
    );
    let wide = details(&waiting(), true, NOW, 80);
    assert!(wide.contains("waited for bundle/a, bundle/b, bundle/c, bundle/d\n"), "{wide}");
}

#[test]
fn every_phase_has_its_list() {
    let marks = |status: Value| {
        let rotation = rotation("a", "example.com/a", status);
        let text = details(&rotation, false, NOW, 80);
        let lines = text.lines().filter(|line| line.starts_with("  ["));
        lines
            .map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
            .join("; ")
    };
    let done = |phase: &str| step(phase, "12:00:00", Some("12:00:01"), &[]);
    let at = "2026-03-01T12:00:00Z";
    for (status, wanted) in [
        (json!({}), String::new()),
        (
            json!({"phase": "Renewing", "steps": [done("PublishingCanary")]}),
            format!("[x] PublishingCanary {at}; [>] Renewing; [ ] Retiring; [ ] Completed"),
        ),
        (
            json!({"phase": "RollingBack", "steps": [done("Switching"), step("RollingBack", "12:00:00", None, &[])]}),
            format!("[x] Switching {at}; [>] RollingBack {at}; [ ] RolledBack"),
        ),
        (
            json!({"phase": "Completed", "steps": [done("Retiring")]}),
            format!("[x] Retiring {at}; [x] Completed"),
        ),
        (
            json!({"phase": "Completed", "steps": [step("Completed", "12:00:00", None, &[])]}),
            format!("[x] Completed {at}"),
        ),
        (json!({"phase": "Failed"}), "[!] Failed".into()),
    ] {
        assert_eq!(marks(status.clone()), wanted, "{status}");
    }
}

#[test]
fn each_reason_has_a_remedy() {
    for reason in HeldReason::ALL {
        let status = json!({"phase": "Renewing", "conditions": [held_condition(reason.as_str(), "why")]});
        let text = details(&rotation("a", "example.com/a", status), false, NOW, 80);
        assert!(text.contains(&format!("Held for 3m: {}: why\n", reason.as_str())), "{text}");
        let has_laggards = matches!(reason, HeldReason::ConsumersLagging | HeldReason::ConsumersNotRead);
        assert_eq!(text.contains("  to continue: "), !has_laggards, "{text}");
    }
    let status = json!({"phase": "Renewing", "conditions": [held_condition("FromTheFuture", "")]});
    let text = details(&rotation("a", "example.com/a", status), false, NOW, 80);
    assert!(text.ends_with("Held for 3m: FromTheFuture\n"), "{text}");
}

#[test]
fn a_finished_rotation_holds_nobody_up() {
    let mut finished = waiting();
    finished.status.as_mut().unwrap().phase = Some(RotationPhase::Completed);
    let text = details(&finished, false, NOW, 80);
    assert!(!text.contains("Held") && !text.contains("LAGGARD") && !text.contains("Earliest"), "{text}");
}

#[test]
fn the_retirement_is_the_latest_of_its_conditions() {
    let line = |retirement: Value, expiry: &str, phase: &str| {
        let status = json!({"phase": phase, "earliestRetirementTime": expiry});
        let mut rotation = rotation("a", "example.com/a", status);
        rotation.spec.retirement = serde_json::from_value(retirement).unwrap();
        let text = details(&rotation, false, NOW, 80);
        text.lines().find(|line| line.starts_with("Earliest")).unwrap_or_default().to_owned()
    };
    let past = "2026-03-01T12:00:00Z";
    for (retirement, expiry, phase, wanted) in [
        (json!(null), past, "Renewing", "Earliest retirement: now"),
        (
            json!(null),
            "2026-03-01T13:05:00Z",
            "Renewing",
            "Earliest retirement: 2026-03-01T13:05:00Z (in 60m)",
        ),
        (
            json!({"notBefore": "2026-03-11T12:05:00Z"}),
            past,
            "Renewing",
            "Earliest retirement: 2026-03-11T12:05:00Z (in 10d)",
        ),
        (
            json!({"acceptOutstandingLeaves": true}),
            "2026-03-01T13:05:00Z",
            "Renewing",
            "Earliest retirement: without waiting for outstanding certificates",
        ),
        (json!(null), past, "Retiring", ""),
    ] {
        assert_eq!(line(retirement, expiry, phase), wanted);
    }
}

#[test]
fn bars_fit_the_terminal() {
    for (width, bar) in [(0, 10), (62, 10), (80, 28), (1000, 40)] {
        let text = details(&waiting(), false, NOW, width);
        let line = text.lines().find(|line| line.starts_with("Consumers written")).unwrap();
        assert_eq!(line.matches('#').count(), bar, "{width}");
        assert!(line.len() <= width.max(62), "{line}");
    }
    let nobody = json!({"phase": "Renewing", "consumers": {"total": 0}, "leaves": {"outstanding": 0}});
    let text = details(&rotation("a", "example.com/a", nobody), false, NOW, 80);
    assert!(
        text.contains("Consumers written  none\n") && text.contains("Leaves renewed     none\n"),
        "{text}"
    );
}

#[test]
fn all_rotations_in_a_table() {
    let new = rotation("a", "example.com/a", json!({}));
    assert_eq!(
        overview(&[&waiting(), &new], false, NOW),
        "\
NAME                    SIGNER            PHASE             HELD               CONSUMERS   LEAVES   AGE
web.example.com-x7k2p   example.com/web   WaitingForTrust   ConsumersNotRead   20/20       30       5m
a                       example.com/a     -                 -                  -           -        5m
"
    );
    let wide = overview(&[&waiting()], true, NOW);
    assert!(
        wide.contains("Manual") && wide.ends_with("0a       0b       waiting for 2 of 20 consumers\n"),
        "{wide}"
    );
}

#[test]
fn a_line_says_what_changed() {
    assert_eq!(
        summary_line(&waiting(), NOW),
        "2026-03-01T12:05:00Z web.example.com-x7k2p WaitingForTrust, held: ConsumersNotRead, written 20/20, read 10/20, \
         leaves outstanding 30, waits for node/n3/host/nginx, node/n9/shop/web-0/trust and 3 more"
    );
    let new = rotation("a", "example.com/a", json!({}));
    assert_eq!(summary_line(&new, NOW), "2026-03-01T12:05:00Z a -");
}

/// What objects contain cannot change the terminal.
#[test]
fn escapes_of_objects_are_not_printed() {
    let evil = "\u{1b}[2J\u{202e}";
    let status = json!({
        "phase": "Renewing", "message": evil,
        "conditions": [held_condition("Paused", evil)],
        "oldAuthority": {"id": evil, "subject": evil, "notAfter": evil},
        "laggards": [laggard(evil, "NotRead", evil)],
        "steps": [{"phase": "Preparing", "startTime": evil, "waitedFor": [evil], "message": evil}],
        "leaves": {"latestExpiry": evil},
    });
    let rotation = rotation("a", evil, status);
    for text in
        [details(&rotation, true, NOW, 80), overview(&[&rotation], true, NOW), summary_line(&rotation, NOW)]
    {
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text:?}");
    }
}
