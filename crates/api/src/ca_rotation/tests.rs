//! Validity of CARotations and the wording of errors.

use serde_json::{Value, json};

use super::*;
use crate::field::FieldErrors;
use crate::schema::{Schema, SchemaField};

fn rotation() -> Value {
    json!({"metadata": {"name": "web.example.com-x7k2p"}, "spec": {
        "signerName": "example.com/web", "trigger": "Manual", "compromised": false, "requireRead": true,
        "canary": {"soakTime": "10m", "maxFailures": 0}, "renewalWindow": "10m",
        "retirement": {
            "notBefore": "2027-01-01T00:00:00Z", "acceptOutstandingLeaves": false, "keyRetention": "168h",
        },
        "paused": false, "rollback": false,
        "excludedNodes": ["n1", "n2"], "acceptedConsumers": ["node/n3/host/nginx", "bundle/roots"],
    }})
}

fn errors_of(check: impl Fn(&mut FieldErrors)) -> String {
    let mut errors = FieldErrors::new();
    check(&mut errors);
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Returns the good rotation with one value replaced; `null` removes it.
fn changed(pointer: &str, value: Value) -> Value {
    let mut object = rotation();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Value::Null => parent.remove(field),
        value => parent.insert(field.to_owned(), value),
    };
    object
}

#[test]
fn good_rotations_are_accepted() {
    assert_eq!(errors_of(|errors| validate(&rotation(), errors)), "");
    let bare = json!({"spec": {"signerName": "example.com/web"}});
    assert_eq!(errors_of(|errors| validate(&bare, errors)), "");
    // The built-in signers rotate as well.
    let built_in = json!({"spec": {"signerName": "kubernetes.io/kubelet-serving"}});
    assert_eq!(errors_of(|errors| validate(&built_in, errors)), "");
}

#[test]
fn values_are_limited() {
    let names = |count: usize| json!((0..count).map(|index| format!("n{index}")).collect::<Vec<_>>());
    let cases = [
        ("/spec/signerName", Value::Null, "spec.signerName: Required value"),
        (
            "/spec/signerName",
            json!("web"),
            "spec.signerName: Invalid value: \"web\": must be a fully qualified domain and path of the form \
             'example.com/signer-name'",
        ),
        (
            "/spec/trigger",
            json!("Whim"),
            "spec.trigger: Unsupported value: \"Whim\": supported values: \"Manual\", \"Expiry\", \"SourceChanged\"",
        ),
        (
            "/spec/renewalWindow",
            json!("ten minutes"),
            "spec.renewalWindow: Invalid value: \"ten minutes\": must be a duration such as 24h, 1h30m or 90s",
        ),
        (
            "/spec/canary",
            json!({"soakTime": "1d", "maxFailures": -1}),
            "spec.canary.soakTime: Invalid value: \"1d\": must be a duration such as 24h, 1h30m or 90s; \
             spec.canary.maxFailures: Invalid value: -1: must be greater than or equal to 0",
        ),
        ("/spec/excludedNodes", json!(["n1", "n2", "n1"]), "spec.excludedNodes[2]: Duplicate value: \"n1\""),
        (
            "/spec/acceptedConsumers",
            json!(["bundle/a", "bundle/a"]),
            "spec.acceptedConsumers[1]: Duplicate value: \"bundle/a\"",
        ),
        (
            "/spec/excludedNodes",
            names(1025),
            "spec.excludedNodes: Too many: 1025: must have at most 1024 items",
        ),
        ("/spec/excludedNodes", json!([""]), "spec.excludedNodes[0]: Required value"),
        (
            "/spec/acceptedConsumers",
            json!(["x".repeat(1025)]),
            "spec.acceptedConsumers[0]: Too long: may not be more than 1024 bytes",
        ),
    ];
    for (pointer, value, want) in cases {
        let object = changed(pointer, value.clone());
        assert_eq!(errors_of(|errors| validate(&object, errors)), want, "{pointer} {value}");
    }
}

#[test]
fn the_signer_and_the_trigger_are_immutable_and_a_rollback_is_final() {
    let cases = [
        (
            "/spec/signerName",
            json!("example.com/other"),
            "spec.signerName: Invalid value: \"example.com/other\": field is immutable",
        ),
        ("/spec/trigger", json!("Expiry"), "spec.trigger: Invalid value: \"Expiry\": field is immutable"),
        ("/spec/trigger", Value::Null, ""),
        ("/spec/compromised", json!(true), ""),
        ("/spec/requireRead", json!(false), ""),
        ("/spec/canary", Value::Null, ""),
        ("/spec/renewalWindow", json!("1h"), ""),
        ("/spec/retirement", json!({"acceptOutstandingLeaves": true}), ""),
        ("/spec/paused", json!(true), ""),
        ("/spec/rollback", json!(true), ""),
        ("/spec/excludedNodes", json!([]), ""),
        ("/spec/acceptedConsumers", json!(["bundle/roots", "node/n4/host/a"]), ""),
    ];
    for (pointer, value, want) in cases {
        let new = changed(pointer, value.clone());
        let found = errors_of(|errors| validate_update(&new, &rotation(), errors));
        assert_eq!(found, want, "{pointer} {value}");
    }
    let rolled_back = changed("/spec/rollback", json!(true));
    for value in [Value::Null, json!(false)] {
        let new = changed("/spec/rollback", value);
        let found = errors_of(|errors| validate_update(&new, &rolled_back, errors));
        assert_eq!(found, "spec.rollback: Forbidden: cannot be unset; start another rotation instead");
    }
    assert_eq!(errors_of(|errors| validate_update(&rolled_back, &rolled_back, errors)), "");
}

#[test]
fn the_status_is_held_to_the_schema() {
    let condition = json!({"type": "Held", "status": "True", "reason": "ConsumersNotRead", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let laggard = json!({"kind": "Node", "name": "node/n1/host/nginx", "reason": "NotRead"});
    let step = json!({"phase": "Preparing", "startTime": "2026-01-01T00:00:00Z", "waitedFor": ["bundle/a"]});
    let mut object = rotation();
    object["status"] = json!({
        "phase": "WaitingForTrust", "conditions": [condition], "laggards": [laggard], "steps": [step],
        "oldAuthority": {"id": "0a", "anchorFingerprint": "ab".repeat(32)},
        "consumers": {"total": 2, "written": 2, "read": 1, "notRead": 1}, "leaves": {"outstanding": 3},
    });
    assert_eq!(errors_of(|errors| validate_status(&object, errors)), "");
    for (status, want) in [
        (
            json!({"conditions": [condition, condition]}),
            "status.conditions[1].type: Duplicate value: \"Held\"",
        ),
        (
            json!({"laggards": vec![laggard.clone(); MAX_LAGGARDS + 1]}),
            "status.laggards: Too many: 101: must have at most 100 items",
        ),
        (
            json!({"steps": vec![step.clone(); MAX_STEPS + 1]}),
            "status.steps: Too many: 65: must have at most 64 items",
        ),
        (
            json!({"laggards": [{"kind": "Pod", "name": "a", "reason": "NotRead"}]}),
            "status.laggards[0].kind: Unsupported value: \"Pod\": supported values: \"Node\", \
             \"BundleTarget\", \"Signer\"",
        ),
        (json!({"oldAuthority": {}}), "status.oldAuthority.id: Required value"),
        (
            json!({"leaves": {"outstanding": -1}}),
            "status.leaves.outstanding: Invalid value: -1: must be greater than or equal to 0",
        ),
    ] {
        object["status"] = status;
        assert_eq!(errors_of(|errors| validate_status(&object, errors)), want);
    }
}

fn field(name: &str, field: &str) -> SchemaField {
    let schema = Schema::get();
    let ty = schema.get_type(schema.lookup(&format!("dev.windlass.v1alpha1.{name}")).unwrap());
    ty.field(field).unwrap().clone()
}

#[test]
fn constants_and_enums_are_those_of_the_schema() {
    assert_eq!(field("CARotationStatus", "laggards").limits.max, Some(MAX_LAGGARDS));
    assert_eq!(field("CARotationStatus", "steps").limits.max, Some(MAX_STEPS));
    assert_eq!(field("CARotationStep", "waitedFor").limits.max, Some(MAX_WAITED_FOR));
    let phases = field("CARotationStatus", "phase").one_of;
    assert_eq!(field("CARotationStep", "phase").one_of, phases);
    for name in phases {
        let phase: RotationPhase = serde_json::from_value(json!(name)).unwrap();
        assert_eq!((phase.as_str(), phase.to_string()), (name, name.to_owned()));
        let is_on_the_way = RotationPhase::FORWARD.contains(&phase);
        assert_eq!(is_on_the_way, !matches!(name, "RollingBack" | "RolledBack" | "Failed"), "{name}");
    }
    for name in field("CARotationLaggard", "reason").one_of {
        assert_eq!(serde_json::from_value::<LaggardReason>(json!(name)).unwrap().as_str(), name);
    }
    for reason in HeldReason::ALL {
        assert_eq!(HeldReason::parse(reason.as_str()), Some(reason));
    }
    assert_eq!(HeldReason::parse("FromTheFuture"), None);
}

#[test]
fn absent_values_have_their_documented_meaning() {
    let bare: CaRotationSpec = serde_json::from_value(json!({"signerName": "example.com/web"})).unwrap();
    assert!(bare.requires_read() && !bare.is_compromised());
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    let durations = (bare.soak_time(), bare.renewal_window(), bare.key_retention());
    assert_eq!(durations, (minutes(10), minutes(10), minutes(168 * 60)));
    let mut full: CaRotationSpec = serde_json::from_value(rotation()["spec"].clone()).unwrap();
    full.canary.as_mut().unwrap().soak_time = Some("1m".into());
    full.renewal_window = Some("2m".into());
    full.retirement.as_mut().unwrap().key_retention = Some("3m".into());
    assert_eq!(
        (full.soak_time(), full.renewal_window(), full.key_retention()),
        (minutes(1), minutes(2), minutes(3))
    );
    full.compromised = Some(true);
    assert!(!full.requires_read());
}

#[test]
fn a_rotation_is_finished_in_final_phases_only() {
    let status = |status: Value| serde_json::from_value::<CaRotationStatus>(status).unwrap();
    assert!(!status(json!({})).is_finished());
    assert!(!status(json!({"phase": "RollingBack"})).is_finished());
    for phase in ["Completed", "RolledBack", "Failed"] {
        assert!(status(json!({"phase": phase})).is_finished());
    }
    let held = |value: &str| {
        let condition = json!({"type": "Held", "status": value, "reason": "Paused", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        status(json!({"conditions": [condition]})).held().map(|held| held.reason.clone())
    };
    assert_eq!((held("True").as_deref(), held("False")), (Some("Paused"), None));
}
