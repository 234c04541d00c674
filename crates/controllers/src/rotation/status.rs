//! Status of a CARotation, computed from the decision. Pure.

use time::OffsetDateTime;
use windlass_api::ca_rotation::{
    ANOTHER_ROTATION, COMPLETE, CaRotationAuthority, CaRotationLaggard, CaRotationLeaves, CaRotationStatus,
    CaRotationStep, HELD, MAX_LAGGARDS, MAX_STEPS, MAX_WAITED_FOR, RotationPhase,
};
use windlass_api::conditions::ObjectCondition;
use windlass_api::timestamp;

use super::phase::{RotationAction, RotationDecision, RotationHold};

/// Largest number of characters of a message.
const MAX_MESSAGE: usize = 1024;

/// What a status contains besides the decision.
#[derive(Clone, Debug, Default)]
pub struct StatusFacts {
    /// Generation of the rotation that was decided on.
    pub generation: Option<i64>,
    /// Authority that is replaced; `None` keeps the recorded one.
    pub old: Option<CaRotationAuthority>,
    /// Authority that replaces it; `None` keeps the recorded one.
    pub new: Option<CaRotationAuthority>,
    /// Leaves of both; `None` if the ledger is not known.
    pub leaves: Option<CaRotationLeaves>,
}

/// Computes the status. `before` is the present one, whose times and steps are kept.
pub fn compute(
    before: &CaRotationStatus,
    decision: &RotationDecision,
    facts: StatusFacts,
    now: OffsetDateTime,
) -> CaRotationStatus {
    let time = timestamp::format(now);
    let phase = decision.phase;
    let message = summarize(decision);
    let held = match &decision.hold {
        Some(RotationHold { reason, message }) => ("True", reason.as_str(), message.as_str()),
        None => ("False", "NotHeld", "the rotation does not wait"),
    };
    let complete = if phase == RotationPhase::Completed { "True" } else { "False" };
    let complete = (complete, phase.as_str(), message.as_str());
    let conditions = [(HELD, held), (COMPLETE, complete)];
    let conditions = conditions.map(|(kind, state)| {
        ObjectCondition::following(&before.conditions, kind, state, facts.generation, &time)
    });
    let earliest = facts.leaves.as_ref().and_then(|leaves| leaves.latest_expiry.clone());
    let listed = decision.laggards.len().min(MAX_LAGGARDS);
    let more = decision.laggards.len() - listed;
    CaRotationStatus {
        observed_generation: facts.generation,
        phase: Some(phase),
        conditions: conditions.to_vec(),
        start_time: before.start_time.clone().or_else(|| Some(time.clone())),
        completion_time: phase
            .is_final()
            .then(|| before.completion_time.clone().unwrap_or_else(|| time.clone())),
        old_authority: facts.old.or_else(|| before.old_authority.clone()),
        new_authority: facts.new.or_else(|| before.new_authority.clone()),
        consumers: Some(decision.consumers.clone()),
        leaves: facts.leaves,
        laggards: laggards(before, decision, &time),
        more_laggards: u32::try_from(more).ok().filter(|more| *more > 0),
        earliest_retirement_time: earliest,
        steps: steps(before, decision, &message, &time),
        message: Some(message),
    }
}

/// Whether two statuses differ in more than numbers, laggards and messages, which change with every report of a node.
pub fn is_urgent(before: &CaRotationStatus, after: &CaRotationStatus) -> bool {
    let reason = |status: &CaRotationStatus| status.held().map(|held| held.reason.clone());
    before.phase != after.phase
        || before.observed_generation != after.observed_generation
        || reason(before) != reason(after)
        || before.old_authority != after.old_authority
        || before.new_authority != after.new_authority
}

/// Computes the status of a rotation that does not run because an older one does.
pub fn refuse(
    before: &CaRotationStatus,
    other: &str,
    generation: Option<i64>,
    now: OffsetDateTime,
) -> CaRotationStatus {
    let time = timestamp::format(now);
    let message = format!("the CARotation {other} of the same signer is older and has not ended");
    let state = ("False", ANOTHER_ROTATION, message.as_str());
    CaRotationStatus {
        observed_generation: generation,
        phase: Some(RotationPhase::Failed),
        conditions: vec![ObjectCondition::following(&before.conditions, COMPLETE, state, generation, &time)],
        start_time: before.start_time.clone().or_else(|| Some(time.clone())),
        completion_time: Some(time),
        message: Some(message),
        ..CaRotationStatus::default()
    }
}

/// Says in one sentence what is waited for or done.
fn summarize(decision: &RotationDecision) -> String {
    if let Some(RotationAction::RollBack(reason)) = &decision.action {
        return reason.chars().take(MAX_MESSAGE).collect();
    }
    let text = match (&decision.hold, decision.phase) {
        (Some(hold), _) => hold.message.as_str(),
        (None, RotationPhase::Preparing) => "the new authority is prepared",
        (None, RotationPhase::PublishingCanary) => "the new trust anchor is added to the canary bundle",
        (None, RotationPhase::Publishing) => "the new trust anchor is added to the bundle",
        (None, RotationPhase::WaitingForTrust) => "consumers get the new trust anchor",
        (None, RotationPhase::Switching) => "the new authority begins to sign",
        (None, RotationPhase::Renewing) => "agents renew leaves of the old authority",
        (None, RotationPhase::Retiring) => "the old trust anchor is removed",
        (None, RotationPhase::RollingBack) => "the rotation returns to the old authority",
        (None, RotationPhase::Completed) => "the old authority was replaced",
        (None, RotationPhase::RolledBack) => "the old authority is in use as before",
        (None, RotationPhase::Failed) => "the rotation did not run",
    };
    let refused = match decision.is_rollback_refused {
        true => "; it cannot be rolled back, because the old trust anchor was removed",
        false => "",
    };
    format!("{text}{refused}").chars().take(MAX_MESSAGE).collect()
}

fn laggards(before: &CaRotationStatus, decision: &RotationDecision, time: &str) -> Vec<CaRotationLaggard> {
    let listed = decision.laggards.iter().take(MAX_LAGGARDS).map(|laggard| {
        let is_same = |each: &&CaRotationLaggard| each.name == laggard.name && each.reason == laggard.reason;
        let known = before.laggards.iter().find(is_same).and_then(|known| known.since.clone());
        let reported = laggard.since.map(timestamp::format);
        CaRotationLaggard {
            kind: laggard.kind,
            name: laggard.name.chars().take(MAX_MESSAGE).collect(),
            since: reported.or(known).or_else(|| Some(time.to_owned())),
            reason: laggard.reason,
            message: Some(laggard.message.chars().take(MAX_MESSAGE).collect::<String>())
                .filter(|text| !text.is_empty()),
        }
    });
    listed.collect()
}

/// Ends the last step and begins another one when the phase changes.
fn steps(
    before: &CaRotationStatus,
    decision: &RotationDecision,
    message: &str,
    time: &str,
) -> Vec<CaRotationStep> {
    let mut steps = before.steps.clone();
    let is_new = steps.last().is_none_or(|last| last.phase != decision.phase);
    if is_new {
        if let Some(last) = steps.last_mut() {
            last.completion_time.get_or_insert_with(|| time.to_owned());
        }
        steps.push(CaRotationStep {
            phase: decision.phase,
            start_time: time.to_owned(),
            completion_time: decision.phase.is_final().then(|| time.to_owned()),
            waited_for: Vec::new(),
            message: None,
        });
    }
    if let Some(last) = steps.last_mut() {
        last.message = Some(message.to_owned());
        if !decision.laggards.is_empty() {
            last.waited_for =
                decision.laggards.iter().take(MAX_WAITED_FOR).map(|laggard| laggard.name.clone()).collect();
        }
    }
    let excess = steps.len().saturating_sub(MAX_STEPS);
    steps.drain(..excess);
    steps
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use windlass_api::ca_rotation::{CaRotationConsumers, HeldReason, LaggardKind, LaggardReason};

    use super::super::consumers::LaggingConsumer;
    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-11-18 12:00 UTC);

    fn decision(phase: RotationPhase, laggards: &[&str]) -> RotationDecision {
        let laggards = laggards.iter().map(|name| LaggingConsumer {
            kind: LaggardKind::Node,
            name: (*name).to_owned(),
            node: "n1".to_owned(),
            volumes: 1,
            reason: LaggardReason::NotWritten,
            since: None,
            message: "check the agent".to_owned(),
        });
        let laggards: Vec<LaggingConsumer> = laggards.collect();
        let message = "n1 lags".to_owned();
        let hold = RotationHold { reason: HeldReason::ConsumersLagging, message };
        RotationDecision {
            phase,
            action: None,
            hold: Some(hold).filter(|_| !laggards.is_empty()),
            laggards,
            consumers: CaRotationConsumers::default(),
            recheck: None,
            is_rollback_refused: false,
        }
    }

    fn next(before: &CaRotationStatus, decision: &RotationDecision, minutes: i64) -> CaRotationStatus {
        compute(before, decision, StatusFacts::default(), NOW + time::Duration::minutes(minutes))
    }

    #[test]
    fn times_and_steps_are_kept() {
        let first =
            next(&CaRotationStatus::default(), &decision(RotationPhase::WaitingForTrust, &["node/n1/v"]), 0);
        let held = first.held().unwrap();
        assert_eq!((held.reason.as_str(), held.message.as_str()), ("ConsumersLagging", "n1 lags"));
        let same = next(&first, &decision(RotationPhase::WaitingForTrust, &["node/n1/v"]), 5);
        assert_eq!(same, first, "nothing is written unless something changes");
        assert!(is_urgent(&CaRotationStatus::default(), &first));
        let both = next(&first, &decision(RotationPhase::WaitingForTrust, &["node/n1/v", "node/n2/v"]), 5);
        let since: Vec<_> = both.laggards.iter().map(|each| each.since.clone().unwrap()).collect();
        assert_eq!(since, ["2026-11-18T12:00:00Z", "2026-11-18T12:05:00Z"]);
        assert!(!is_urgent(&first, &both), "another laggard");
        let ended = next(&both, &decision(RotationPhase::Completed, &[]), 6);
        assert_eq!(ended.held(), None);
        assert_eq!(ended.condition(COMPLETE).unwrap().status, "True");
        assert_eq!(ended.start_time.as_deref(), Some("2026-11-18T12:00:00Z"));
        assert_eq!(ended.completion_time.as_deref(), Some("2026-11-18T12:06:00Z"));
        let phases: Vec<_> =
            ended.steps.iter().map(|step| (step.phase, step.completion_time.is_some())).collect();
        assert_eq!(phases, [(RotationPhase::WaitingForTrust, true), (RotationPhase::Completed, true)]);
        assert_eq!(ended.steps[0].waited_for, ["node/n1/v", "node/n2/v"]);
    }

    #[test]
    fn lists_are_limited() {
        let names: Vec<String> = (0..150).map(|number| format!("node/n{number}/v")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut status =
            next(&CaRotationStatus::default(), &decision(RotationPhase::WaitingForTrust, &names), 0);
        assert_eq!((status.laggards.len(), status.more_laggards), (100, Some(50)));
        assert_eq!(status.steps[0].waited_for.len(), 20);
        for round in 0..100 {
            let phases = [RotationPhase::Renewing, RotationPhase::Retiring];
            status = next(&status, &decision(phases[round % 2], &[]), 1);
        }
        assert_eq!(status.steps.len(), 64);
    }
}
