use std::collections::BTreeSet;
use std::time::Duration;

use time::macros::datetime;
use windlass_api::ca_rotation::LaggardKind;

use super::super::observation::{BundleConsumer, ConsumerProof, DependentSigners, LeafObservation};
use super::*;

const NOW: OffsetDateTime = datetime!(2026-11-18 12:00 UTC);

fn identity(name: &str) -> AuthorityIdentity {
    AuthorityIdentity { id: format!("id-{name}"), anchor: name.to_owned() }
}

fn prepared() -> AuthorityPosition {
    AuthorityPosition::Prepared { old: identity("old"), new: identity("new"), is_withdrawn: false }
}

fn switched() -> AuthorityPosition {
    AuthorityPosition::Switched { old: identity("old"), new: identity("new"), is_reversible: true }
}

fn consumer(name: &str, proof: ConsumerProof) -> BundleConsumer {
    let (kind, node) = match name.split_once('/').unwrap() {
        ("bundle", _) => (LaggardKind::BundleTarget, String::new()),
        (_, volume) => (LaggardKind::Node, volume.split('/').next().unwrap().to_owned()),
    };
    BundleConsumer {
        kind,
        name: name.to_owned(),
        node,
        volumes: 1,
        proof,
        failure: None,
        blocked: String::new(),
    }
}

fn bundle(anchors: &[&str], consumers: Vec<BundleConsumer>) -> BundleObservation {
    BundleObservation {
        name: "main".to_owned(),
        owner: BundleOwner::Windlass,
        anchors: anchors.iter().map(|each| (*each).to_owned()).collect(),
        tainted: BTreeSet::new(),
        consumers: Some(consumers),
    }
}

fn tainted(bundle: BundleObservation, id: &str) -> BundleObservation {
    BundleObservation { tainted: [id.to_owned()].into(), ..bundle }
}

fn observation(position: AuthorityPosition, main: BundleObservation) -> RotationObservation {
    RotationObservation {
        position,
        is_generated: true,
        canary: None,
        main: Some(main),
        leaves: Some(LeafObservation::default()),
        dependents: DependentSigners::default(),
        canary_since: None,
        renewing_since: Some(NOW - Duration::from_secs(3600)),
    }
}

fn outstanding(observed: RotationObservation, old: u64, new: u64) -> RotationObservation {
    let latest_expiry = Some(NOW + Duration::from_secs(60));
    let count = |outstanding| LeafCount { issued: outstanding, outstanding, latest_expiry };
    RotationObservation { leaves: Some(LeafObservation { old: count(old), new: count(new) }), ..observed }
}

/// Phase, action and reason of the hold.
fn summary(
    policy: &RotationPolicy,
    observed: &RotationObservation,
) -> (RotationPhase, Option<RotationAction>, &'static str) {
    let decision = derive(policy, observed, NOW);
    let reason = decision.hold.map_or("", |hold| hold.reason.as_str());
    (decision.phase, decision.action, reason)
}

fn write(old: bool, new: bool, taint: Option<AuthorityRole>) -> Option<RotationAction> {
    Some(RotationAction::WriteBundle { bundle: BundleRole::Main, old, new, taint })
}

#[test]
fn phases_follow_each_other() {
    let stale = || consumer("node/n1/v", ConsumerProof::Stale(String::new()));
    let unread = || consumer("node/n1/v", ConsumerProof::NotRead { since: None });
    let read = || consumer("node/n1/v", ConsumerProof::Read);
    let hidden = || consumer("node/n1/v", ConsumerProof::NotObservable);
    let unprepared = AuthorityPosition::Unprepared(NewAuthoritySource::Generated);
    let provided = AuthorityPosition::Unprepared(NewAuthoritySource::Provided("replace it".to_owned()));
    let both = ["old", "new"];
    let old_taint = Some(AuthorityRole::Old);
    let table = [
        (
            observation(unprepared, bundle(&["old"], vec![])),
            RotationPhase::Preparing,
            Some(RotationAction::Prepare),
            "",
        ),
        (observation(provided, bundle(&["old"], vec![])), RotationPhase::Preparing, None, "CaUnavailable"),
        (
            observation(prepared(), bundle(&["old"], vec![])),
            RotationPhase::Publishing,
            write(true, true, None),
            "",
        ),
        // Removed by hand.
        (
            observation(prepared(), bundle(&["new"], vec![])),
            RotationPhase::Publishing,
            write(true, true, None),
            "",
        ),
        (
            observation(prepared(), bundle(&both, vec![stale()])),
            RotationPhase::WaitingForTrust,
            None,
            "ConsumersLagging",
        ),
        (
            observation(prepared(), bundle(&both, vec![unread()])),
            RotationPhase::WaitingForTrust,
            None,
            "ConsumersNotRead",
        ),
        (
            observation(prepared(), bundle(&both, vec![read(), hidden()])),
            RotationPhase::Switching,
            Some(RotationAction::Switch(AuthorityRole::New)),
            "",
        ),
        (
            outstanding(observation(switched(), bundle(&both, vec![read()])), 1, 1),
            RotationPhase::Renewing,
            write(true, true, old_taint),
            "",
        ),
        (
            outstanding(observation(switched(), tainted(bundle(&both, vec![read()]), "id-old")), 1, 1),
            RotationPhase::Renewing,
            None,
            "LeavesOutstanding",
        ),
        // The old anchor was removed by hand while a leaf depends on it.
        (
            outstanding(observation(switched(), bundle(&["new"], vec![read()])), 1, 1),
            RotationPhase::Renewing,
            write(true, true, old_taint),
            "",
        ),
        (
            observation(switched(), tainted(bundle(&both, vec![stale()]), "id-old")),
            RotationPhase::Renewing,
            None,
            "ConsumersLagging",
        ),
        (
            observation(switched(), tainted(bundle(&both, vec![unread()]), "id-old")),
            RotationPhase::Retiring,
            write(false, true, None),
            "",
        ),
        (
            observation(switched(), bundle(&["new"], vec![stale()])),
            RotationPhase::Retiring,
            None,
            "ConsumersLagging",
        ),
        (observation(switched(), bundle(&["new"], vec![read()])), RotationPhase::Completed, None, ""),
    ];
    for (number, (observed, phase, action, reason)) in table.into_iter().enumerate() {
        let found = summary(&RotationPolicy::default(), &observed);
        assert_eq!(found, (phase, action, reason), "case {number}");
    }
}

#[test]
fn operators_change_what_is_waited_for() {
    let unread = consumer("node/n1/v", ConsumerProof::NotRead { since: None });
    let stale = consumer("node/n1/v", ConsumerProof::Stale(String::new()));
    let switch = Some(RotationAction::Switch(AuthorityRole::New));
    let default = RotationPolicy::default;
    let both = || bundle(&["old", "new"], vec![unread.clone()]);
    let lagging = || bundle(&["old", "new"], vec![stale.clone()]);
    let table = [
        (
            RotationPolicy { accepted_consumers: ["node/n1/v".to_owned()].into(), ..default() },
            both(),
            switch.clone(),
            "",
        ),
        (
            RotationPolicy { accepted_consumers: ["node/n2/v".to_owned()].into(), ..default() },
            both(),
            None,
            "ConsumersNotRead",
        ),
        (RotationPolicy { require_read: false, ..default() }, both(), switch.clone(), ""),
        (RotationPolicy { compromised: true, ..default() }, both(), switch.clone(), ""),
        (RotationPolicy { compromised: true, ..default() }, lagging(), None, "ConsumersLagging"),
        (
            RotationPolicy { accepted_consumers: ["node/n1/v".to_owned()].into(), ..default() },
            lagging(),
            None,
            "ConsumersLagging",
        ),
        (
            RotationPolicy { excluded_nodes: ["n1".to_owned()].into(), ..default() },
            lagging(),
            switch.clone(),
            "",
        ),
        (RotationPolicy { paused: true, require_read: false, ..default() }, both(), None, "Paused"),
    ];
    for (number, (policy, main, action, reason)) in table.into_iter().enumerate() {
        let (_, found, held) = summary(&policy, &observation(prepared(), main));
        assert_eq!((found, held), (action, reason), "case {number}");
    }
}

#[test]
fn bundles_hold_a_rotation_until_their_targets_are_written() {
    let targets = |proof: ConsumerProof| vec![consumer("bundle/web", proof)];
    let stale = || targets(ConsumerProof::Stale("not synced".to_owned()));
    let written = || targets(ConsumerProof::NotObservable);
    let policy = RotationPolicy {
        accepted_consumers: ["bundle/web".to_owned()].into(),
        excluded_nodes: ["web".to_owned()].into(),
        ..RotationPolicy::default()
    };
    let both = ["old", "new"];
    let table = [
        (observation(prepared(), bundle(&both, stale())), Some(LaggardReason::NotWritten)),
        (observation(prepared(), bundle(&both, written())), None),
        (observation(switched(), bundle(&["new"], stale())), Some(LaggardReason::StillPresent)),
        (observation(switched(), bundle(&["new"], written())), None),
    ];
    for (number, (observed, reason)) in table.into_iter().enumerate() {
        let decision = derive(&policy, &observed, NOW);
        let laggards: Vec<_> =
            decision.laggards.iter().map(|each| (each.kind, each.name.as_str(), each.reason)).collect();
        let wanted = reason.map(|reason| (LaggardKind::BundleTarget, "bundle/web", reason));
        assert_eq!(laggards, wanted.into_iter().collect::<Vec<_>>(), "case {number}");
        assert_eq!(decision.hold.is_some(), reason.is_some(), "case {number}");
        let counts = decision.consumers;
        let written = u32::from(reason.is_none());
        assert_eq!((counts.total, counts.written, counts.not_observable), (1, written, written));
    }
}

#[test]
fn an_anchor_stays_while_leaves_are_outstanding_unless_that_is_accepted() {
    let main = || tainted(bundle(&["old", "new"], vec![]), "id-old");
    let held = outstanding(observation(switched(), main()), 3, 0);
    let removal = write(false, true, Some(AuthorityRole::Old));
    let default = RotationPolicy::default;
    assert_eq!(summary(&default(), &held).2, "LeavesOutstanding");
    for policy in [
        RotationPolicy { accept_outstanding_leaves: true, ..default() },
        RotationPolicy { compromised: true, ..default() },
    ] {
        assert_eq!(summary(&policy, &held), (RotationPhase::Retiring, removal.clone(), ""));
    }
    let unknown = RotationObservation { leaves: None, ..held.clone() };
    assert_eq!(summary(&default(), &unknown), (RotationPhase::Renewing, None, "LedgerUnavailable"));
    // A crash during the retirement does not bring the anchor back.
    let unknown = RotationObservation { main: Some(bundle(&["new"], vec![])), ..unknown };
    assert_eq!(summary(&default(), &unknown), (RotationPhase::Renewing, None, "LedgerUnavailable"));
    let early = RotationPolicy { retire_not_before: Some(NOW + Duration::from_secs(1)), ..default() };
    let free = observation(switched(), main());
    assert_eq!(summary(&early, &free), (RotationPhase::Renewing, None, "LeavesOutstanding"));
    let within = RotationObservation { renewing_since: Some(NOW), ..held };
    let decision = derive(&default(), &within, NOW);
    assert_eq!((decision.hold, decision.recheck), (None, Some(NOW + Duration::from_secs(600))));
}

#[test]
fn an_anchor_stays_while_a_consumer_cannot_store_its_renewed_leaf() {
    let full =
        BundleConsumer { blocked: "disk full".to_owned(), ..consumer("node/n1/v", ConsumerProof::Read) };
    let main = tainted(bundle(&["old", "new"], vec![full.clone()]), "id-old");
    let unused = observation(switched(), main);
    let superseded = LeafObservation {
        old: LeafCount { issued: 1, ..LeafCount::default() },
        ..LeafObservation::default()
    };
    let observed = RotationObservation { leaves: Some(superseded), ..unused.clone() };
    let decision = derive(&RotationPolicy::default(), &observed, NOW);
    assert_eq!((decision.phase, decision.action), (RotationPhase::Renewing, None));
    // An authority that has not signed has no leaves that could be superseded.
    assert_eq!(summary(&RotationPolicy::default(), &unused).0, RotationPhase::Retiring);
    let laggard = &decision.laggards[0];
    assert_eq!(
        (laggard.name.as_str(), laggard.message.as_str()),
        ("node/n1/v", "the volume is blocked: disk full")
    );
    for policy in [
        RotationPolicy { accept_outstanding_leaves: true, ..RotationPolicy::default() },
        RotationPolicy { compromised: true, ..RotationPolicy::default() },
        RotationPolicy { excluded_nodes: ["n1".to_owned()].into(), ..RotationPolicy::default() },
    ] {
        assert_eq!(summary(&policy, &observed), (RotationPhase::Retiring, write(false, true, None), ""));
    }
    // Before the switch, it may be blocked because it waits for a certificate of the new authority.
    let before = observation(prepared(), bundle(&["old", "new"], vec![full]));
    assert_eq!(summary(&RotationPolicy::default(), &before).0, RotationPhase::Switching);
}

#[test]
fn a_rollback_takes_the_same_steps_in_reverse() {
    let back = RotationPolicy { rollback: true, ..RotationPolicy::default() };
    let phase = RotationPhase::RollingBack;
    let withdrawn =
        || AuthorityPosition::Prepared { old: identity("old"), new: identity("new"), is_withdrawn: true };
    let new_taint = Some(AuthorityRole::New);
    let both = || bundle(&["old", "new"], vec![]);
    let gone = AuthorityPosition::Unprepared(NewAuthoritySource::Generated);
    let table = [
        (observation(switched(), tainted(both(), "id-old")), phase, write(true, true, None)),
        (observation(switched(), both()), phase, Some(RotationAction::Switch(AuthorityRole::Old))),
        (observation(prepared(), both()), phase, Some(RotationAction::Withdraw)),
        (outstanding(observation(withdrawn(), both()), 1, 1), phase, write(true, true, new_taint)),
        (outstanding(observation(withdrawn(), tainted(both(), "id-new")), 1, 1), phase, None),
        (observation(withdrawn(), tainted(both(), "id-new")), phase, write(true, false, None)),
        (observation(withdrawn(), bundle(&["old"], vec![])), phase, Some(RotationAction::Discard)),
        (observation(gone, bundle(&["old"], vec![])), RotationPhase::RolledBack, None),
    ];
    for (number, (observed, phase, action)) in table.into_iter().enumerate() {
        let decision = derive(&back, &observed, NOW);
        assert_eq!((decision.phase, decision.action), (phase, action), "case {number}");
        assert!(!decision.is_rollback_refused);
    }
    let late = derive(&back, &observation(switched(), bundle(&["new"], vec![])), NOW);
    assert!(late.is_rollback_refused);
    assert_eq!(late.phase, RotationPhase::Completed);
}

#[test]
fn the_canary_bundle_changes_first() {
    let read = || vec![consumer("node/n1/v", ConsumerProof::Read)];
    let stale = || vec![consumer("node/n1/v", ConsumerProof::Stale(String::new()))];
    let with_canary = |position, canary, main| RotationObservation {
        canary: Some(canary),
        canary_since: Some(NOW - Duration::from_secs(60)),
        ..observation(position, main)
    };
    let canary_write =
        |old, new| Some(RotationAction::WriteBundle { bundle: BundleRole::Canary, old, new, taint: None });
    let both = ["old", "new"];
    let phase = RotationPhase::PublishingCanary;
    let policy = RotationPolicy::default();
    let table = [
        (
            with_canary(prepared(), bundle(&["old"], read()), bundle(&["old"], read())),
            phase,
            canary_write(true, true),
            "",
        ),
        (
            with_canary(prepared(), bundle(&both, stale()), bundle(&["old"], read())),
            phase,
            None,
            "ConsumersLagging",
        ),
        (
            with_canary(prepared(), bundle(&both, read()), bundle(&["old"], read())),
            phase,
            None,
            "CanarySoaking",
        ),
        (
            with_canary(
                switched(),
                tainted(bundle(&both, read()), "id-old"),
                tainted(bundle(&both, read()), "id-old"),
            ),
            RotationPhase::Retiring,
            canary_write(false, true),
            "",
        ),
        (
            with_canary(switched(), bundle(&["new"], stale()), tainted(bundle(&both, read()), "id-old")),
            RotationPhase::Retiring,
            None,
            "ConsumersLagging",
        ),
        (
            with_canary(switched(), bundle(&["new"], read()), tainted(bundle(&both, read()), "id-old")),
            RotationPhase::Retiring,
            write(false, true, None),
            "",
        ),
    ];
    for (number, (observed, phase, action, reason)) in table.into_iter().enumerate() {
        assert_eq!(summary(&policy, &observed), (phase, action, reason), "case {number}");
    }
    let short = RotationPolicy { soak_time: Duration::from_secs(60), ..RotationPolicy::default() };
    let soaked = with_canary(prepared(), bundle(&both, read()), bundle(&["old"], read()));
    assert_eq!(summary(&short, &soaked), (RotationPhase::Publishing, write(true, true, None), ""));
}

#[test]
fn a_node_that_does_not_report_is_unknown() {
    let silent = || consumer("node/n1", ConsumerProof::NotReported);
    let both = bundle(&["old", "new"], vec![silent()]);
    let decision = derive(&RotationPolicy::default(), &observation(prepared(), both.clone()), NOW);
    assert_eq!((decision.phase, decision.action), (RotationPhase::WaitingForTrust, None));
    let laggard = &decision.laggards[0];
    assert_eq!((laggard.name.as_str(), laggard.reason), ("node/n1", LaggardReason::NotReporting));
    let gone = RotationPolicy { excluded_nodes: ["n1".to_owned()].into(), ..RotationPolicy::default() };
    let switch = Some(RotationAction::Switch(AuthorityRole::New));
    assert_eq!(summary(&gone, &observation(prepared(), both)).1, switch);
    let retired = observation(switched(), bundle(&["new"], vec![silent()]));
    assert_eq!(summary(&RotationPolicy::default(), &retired).2, "ConsumersLagging");
}

#[test]
fn a_canary_that_fails_is_rolled_back_before_the_other_bundle_changes() {
    let failed = |volumes| BundleConsumer {
        failure: Some("disk full".to_owned()),
        volumes,
        ..consumer("node/n1/v", ConsumerProof::Stale(String::new()))
    };
    let observed = |volumes, main: &[&str]| RotationObservation {
        canary: Some(bundle(&["old", "new"], vec![failed(volumes)])),
        canary_since: Some(NOW),
        ..observation(prepared(), bundle(main, vec![]))
    };
    let default = RotationPolicy::default;
    let tolerant = || RotationPolicy { max_canary_failures: 1, ..default() };
    let table = [
        (default(), observed(1, &["old"]), true),
        (tolerant(), observed(1, &["old"]), false),
        (tolerant(), observed(2, &["old"]), true),
        (
            RotationPolicy { excluded_nodes: ["n1".to_owned()].into(), ..default() },
            observed(1, &["old"]),
            false,
        ),
        (RotationPolicy { compromised: true, ..default() }, observed(1, &["old"]), false),
        (RotationPolicy { paused: true, ..default() }, observed(1, &["old"]), false),
        // The soak time is over, so others may depend on the new anchor.
        (default(), observed(1, &["old", "new"]), false),
    ];
    for (number, (policy, observed, wanted)) in table.into_iter().enumerate() {
        let decision = derive(&policy, &observed, NOW);
        let reason = match decision.action {
            Some(RotationAction::RollBack(reason)) => Some(reason),
            _ => None,
        };
        assert_eq!(reason.is_some(), wanted, "case {number}");
        assert!(reason.is_none_or(|reason| reason.ends_with("node/n1/v: disk full")));
    }
    // A consumer that lags does not hold the rollback: it had the old anchor from the beginning.
    let withdrawn =
        AuthorityPosition::Prepared { old: identity("old"), new: identity("new"), is_withdrawn: true };
    let canary = tainted(bundle(&["old", "new"], vec![failed(1)]), "id-new");
    let main = tainted(bundle(&["old"], vec![]), "id-new");
    let back = RotationPolicy { rollback: true, ..default() };
    let observed = RotationObservation { canary: Some(canary), ..observation(withdrawn, main) };
    let removal =
        RotationAction::WriteBundle { bundle: BundleRole::Canary, old: true, new: false, taint: None };
    assert_eq!(summary(&back, &observed), (RotationPhase::RollingBack, Some(removal), ""));
}

#[test]
fn an_anchor_stays_while_the_intermediate_of_another_signer_depends_on_it() {
    let main = || tainted(bundle(&["old", "new"], vec![]), "id-old");
    let dependents = |old: &[&str], new: &[&str]| {
        let names = |names: &[&str]| names.iter().map(|each| (*each).to_owned()).collect();
        DependentSigners { old: names(old), new: names(new) }
    };
    let observed = |dependents| RotationObservation { dependents, ..observation(switched(), main()) };
    let policy = RotationPolicy::default();
    let decision = derive(&policy, &observed(dependents(&["a.b/below"], &[])), NOW);
    assert_eq!((decision.phase, decision.action), (RotationPhase::Renewing, None));
    assert_eq!(decision.laggards[0].name, "signer/a.b/below");
    let free = summary(&policy, &observed(dependents(&[], &["a.b/below"])));
    assert_eq!(free, (RotationPhase::Retiring, write(false, true, None), ""));
}

#[test]
fn a_bundle_of_another_manager_is_not_written() {
    let foreign =
        |anchors: &[&str]| BundleObservation { owner: BundleOwner::Foreign, ..bundle(anchors, vec![]) };
    let policy = RotationPolicy::default();
    let held = summary(&policy, &observation(prepared(), foreign(&["old"])));
    assert_eq!(held, (RotationPhase::Publishing, None, "NotPublished"));
    let published = summary(&policy, &observation(prepared(), foreign(&["old", "new"])));
    assert_eq!(published.1, Some(RotationAction::Switch(AuthorityRole::New)));
    let kept = summary(&policy, &observation(switched(), foreign(&["old", "new"])));
    assert_eq!(kept, (RotationPhase::Completed, None, ""));
}
