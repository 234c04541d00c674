//! Rotations for people: a table of all, and the details of one. Pure functions of the objects, the time
//! and the width of the terminal.

use kube::ResourceExt as _;
use time::OffsetDateTime;
use windlass_api::age::{age, human_duration};
use windlass_api::ca_rotation::{
    CaRotationAuthority, CaRotationConsumers, CaRotationLaggard, CaRotationStatus, CaRotationStep,
    HeldReason, LaggardReason, RotationPhase,
};
use windlass_api::timestamp;

use super::hints::{held_hint, laggard_hint};
use super::progress_bar::bar;
use super::rotations::{RotationObject, full_name, is_running};
use crate::commands::print::{plain, table, word, words};

/// Number of laggards that are shown, and of names that a phase waited for; `-o wide` shows all.
const SOME: usize = 10;
const FEW: usize = 3;
/// Columns that the label and the numbers of a progress bar need.
const BAR_FRAME: usize = 50;

/// Formats a table of rotations.
pub fn overview(rotations: &[&RotationObject], wide: bool, now: OffsetDateTime) -> String {
    let mut head = vec!["NAME", "SIGNER", "PHASE", "HELD", "CONSUMERS", "LEAVES", "AGE"];
    if wide {
        head.extend(["TRIGGER", "OLD-CA", "NEW-CA", "MESSAGE"]);
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(rotations.iter().map(|rotation| overview_row(rotation, wide, now)));
    table(&rows)
}

fn overview_row(rotation: &RotationObject, wide: bool, now: OffsetDateTime) -> Vec<String> {
    let empty = CaRotationStatus::default();
    let status = rotation.status.as_ref().unwrap_or(&empty);
    let consumers = status.consumers.as_ref().map(|all| format!("{}/{}", all.written, all.total));
    let leaves = status.leaves.as_ref().map(|leaves| leaves.outstanding.to_string());
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let mut row = vec![
        word(&rotation.name_any()),
        word(&rotation.spec.signer_name),
        phase_name(status).to_owned(),
        or_dash(status.held().map(|held| word(&held.reason))),
        or_dash(consumers),
        or_dash(leaves),
        age(&created(rotation), now),
    ];
    if wide {
        let id = |authority: &Option<CaRotationAuthority>| or_dash(authority.as_ref().map(|of| word(&of.id)));
        let trigger = format!("{:?}", rotation.spec.trigger.unwrap_or_default());
        let message = status.message.as_deref().map(plain);
        row.extend([trigger, id(&status.old_authority), id(&status.new_authority), or_dash(message)]);
    }
    row
}

/// Describes the state of a rotation on one line, for output that is not redrawn.
pub fn summary_line(rotation: &RotationObject, now: OffsetDateTime) -> String {
    let empty = CaRotationStatus::default();
    let status = rotation.status.as_ref().unwrap_or(&empty);
    let mut parts = vec![format!("{} {}", word(&rotation.name_any()), phase_name(status))];
    if let Some(held) = status.held() {
        parts.push(format!("held: {}", word(&held.reason)));
    }
    if let Some(consumers) = &status.consumers {
        parts.push(format!("written {}/{}", consumers.written, consumers.total));
        parts.push(format!("read {}/{}", consumers.read, consumers.total));
    }
    if let Some(leaves) = &status.leaves {
        parts.push(format!("leaves outstanding {}", leaves.outstanding));
    }
    let laggards = status.laggards.len() + status.more_laggards.unwrap_or_default() as usize;
    if laggards > 0 {
        let few = status.laggards.iter().take(FEW).map(|laggard| laggard.name.as_str()).collect::<Vec<_>>();
        let more =
            if laggards > few.len() { format!(" and {} more", laggards - few.len()) } else { String::new() };
        parts.push(format!("waits for {}{more}", words(&few)));
    }
    format!("{} {}", timestamp::format(now), parts.join(", "))
}

/// Describes a rotation: authorities, phases, progress, what holds it, and when the old CA is retired.
pub fn details(rotation: &RotationObject, wide: bool, now: OffsetDateTime, width: usize) -> String {
    let empty = CaRotationStatus::default();
    let status = rotation.status.as_ref().unwrap_or(&empty);
    let mut text = format!("{}\n", full_name(rotation));
    text.push_str(&head(rotation, status));
    text.push_str(&phases(status, wide, now));
    text.push_str(&progress(status, width));
    text.push_str(&held(rotation, status, now));
    text.push_str(&laggards(rotation, status, wide, now));
    text.push_str(&retirement(rotation, status, now));
    text
}

fn head(rotation: &RotationObject, status: &CaRotationStatus) -> String {
    let spec = &rotation.spec;
    let mut marks = Vec::new();
    for (is_set, mark) in [
        (spec.is_compromised(), "compromised"),
        (spec.paused == Some(true), "paused"),
        (spec.rollback == Some(true), "rollback requested"),
        (!spec.requires_read(), "reads not required"),
    ] {
        marks.extend(is_set.then_some(mark));
    }
    let marks = if marks.is_empty() { String::new() } else { format!(" ({})", marks.join(", ")) };
    let mut text = format!("Signer:  {}{marks}\n", word(&spec.signer_name));
    for (label, authority) in [("Old CA: ", &status.old_authority), ("New CA: ", &status.new_authority)] {
        if let Some(authority) = authority {
            text.push_str(&format!("{label} {}\n", authority_text(authority)));
        }
    }
    match (status.phase, status.message.as_deref()) {
        (None, _) => text.push_str("Phase:   not started; no controller has reported yet\n"),
        (Some(phase), None) => text.push_str(&format!("Phase:   {phase}\n")),
        (Some(phase), Some(message)) => text.push_str(&format!("Phase:   {phase}: {}\n", plain(message))),
    }
    text
}

fn authority_text(authority: &CaRotationAuthority) -> String {
    let mut text = word(&authority.id);
    if let Some(subject) = &authority.subject {
        text.push_str(&format!(" {}", plain(subject)));
    }
    if let Some(end) = &authority.not_after {
        text.push_str(&format!(", expires {}", plain(end)));
    }
    text
}

/// One line of the list of phases.
struct PhaseLine<'a> {
    mark: &'static str,
    phase: RotationPhase,
    step: Option<&'a CaRotationStep>,
}

/// Lists the recorded phases, the current one, and those ahead.
fn phase_lines(status: &CaRotationStatus) -> Vec<PhaseLine<'_>> {
    let current = status.phase;
    let mut lines: Vec<PhaseLine<'_>> = Vec::new();
    for step in &status.steps {
        let is_current = Some(step.phase) == current && step.completion_time.is_none();
        let mark = match step.phase {
            RotationPhase::Failed => "[!]",
            phase if is_current && !phase.is_final() => "[>]",
            _ => "[x]",
        };
        lines.push(PhaseLine { mark, phase: step.phase, step: Some(step) });
    }
    let Some(current) = current else { return lines };
    if lines.last().is_none_or(|line| line.phase != current) {
        let mark = match current {
            RotationPhase::Failed => "[!]",
            phase if phase.is_final() => "[x]",
            _ => "[>]",
        };
        lines.push(PhaseLine { mark, phase: current, step: None });
    }
    let ahead = |phase| PhaseLine { mark: "[ ]", phase, step: None };
    match current {
        phase if phase.is_final() => {}
        RotationPhase::RollingBack => lines.push(ahead(RotationPhase::RolledBack)),
        _ => {
            let rest = RotationPhase::FORWARD.into_iter().filter(|phase| *phase > current);
            // Whether there is a canary is known only once it runs.
            lines.extend(rest.filter(|phase| *phase != RotationPhase::PublishingCanary).map(ahead));
        }
    }
    lines
}

fn phases(status: &CaRotationStatus, wide: bool, now: OffsetDateTime) -> String {
    let rows = phase_lines(status).into_iter().map(|PhaseLine { mark, phase, step }| {
        let mut row = vec![format!("  {mark} {phase}")];
        if let Some(step) = step {
            row.extend([plain(&step.start_time), duration_text(step, now), step_text(step, wide)]);
        }
        row
    });
    table(&rows.collect::<Vec<_>>())
}

fn duration_text(step: &CaRotationStep, now: OffsetDateTime) -> String {
    let end = step.completion_time.as_deref().and_then(|time| timestamp::parse(time).ok());
    let end = if step.phase.is_final() { None } else { end.or(Some(now)) };
    match (timestamp::parse(&step.start_time).ok(), end) {
        (Some(start), Some(end)) => human_duration((end - start).whole_seconds().max(0)),
        _ => String::new(),
    }
}

fn step_text(step: &CaRotationStep, wide: bool) -> String {
    let shown = if wide { step.waited_for.len() } else { FEW };
    let names = step.waited_for.iter().take(shown).collect::<Vec<_>>();
    let more = step.waited_for.len() - names.len();
    let mut parts: Vec<String> = step.message.iter().map(|message| plain(message)).collect();
    if !names.is_empty() {
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        parts.push(format!("waited for {}{more}", words(&names)));
    }
    parts.join("; ")
}

fn progress(status: &CaRotationStatus, width: usize) -> String {
    let room = width.saturating_sub(BAR_FRAME);
    let mut rows: Vec<(&str, u64, u64, String)> = Vec::new();
    if let Some(consumers) = &status.consumers {
        let CaRotationConsumers { total, written, read, .. } = *consumers;
        rows.push(("Consumers written", written.into(), total.into(), excluded_text(consumers)));
        rows.push(("Consumers read", read.into(), total.into(), read_text(consumers)));
    }
    if let Some(leaves) = &status.leaves {
        let total = leaves.renewed.saturating_add(leaves.outstanding);
        let rest = format!(", {} outstanding", leaves.outstanding);
        rows.push(("Leaves renewed", leaves.renewed, total, rest));
    }
    let line = |(label, done, total, rest): (&str, u64, u64, String)| match total {
        0 => format!("{label:<18} none\n"),
        _ => format!("{label:<18} {} {done} of {total}{rest}\n", bar(done, total, room)),
    };
    rows.into_iter().map(line).collect()
}

fn excluded_text(consumers: &CaRotationConsumers) -> String {
    match consumers.excluded {
        0 => String::new(),
        excluded => format!(", {excluded} excluded"),
    }
}

fn read_text(consumers: &CaRotationConsumers) -> String {
    let parts = [
        (consumers.not_read, "not read"),
        (consumers.not_observable, "not observable"),
        (consumers.accepted, "accepted"),
    ];
    parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!(", {count} {what}")).collect()
}

fn held(rotation: &RotationObject, status: &CaRotationStatus, now: OffsetDateTime) -> String {
    let Some(held) = status.held().filter(|_| is_running(rotation)) else { return String::new() };
    let since = age(&held.last_transition_time, now);
    let mut text = format!("Held for {since}: {}", word(&held.reason));
    if !held.message.is_empty() {
        text.push_str(&format!(": {}", plain(&held.message)));
    }
    text.push('\n');
    let hint = HeldReason::parse(&held.reason).map(|reason| held_hint(reason, &word(&rotation.name_any())));
    match hint.filter(|hint| !hint.is_empty()) {
        Some(hint) => text + &format!("  to continue: {hint}\n"),
        None => text,
    }
}

fn laggards(rotation: &RotationObject, status: &CaRotationStatus, wide: bool, now: OffsetDateTime) -> String {
    let all = &status.laggards;
    if all.is_empty() || !is_running(rotation) {
        return String::new();
    }
    let shown = if wide { all.len() } else { SOME };
    let mut rows = vec![["LAGGARD", "REASON", "SINCE", "MESSAGE"].map(str::to_owned).to_vec()];
    rows.extend(all.iter().take(shown).map(|laggard| laggard_row(laggard, now)));
    let mut text = table(&rows);
    let more = all.len().saturating_sub(shown) + status.more_laggards.unwrap_or_default() as usize;
    if more > 0 {
        text.push_str(&format!("and {more} more\n"));
    }
    let name = word(&rotation.name_any());
    let reasons = [
        LaggardReason::NotWritten,
        LaggardReason::NotRead,
        LaggardReason::StillPresent,
        LaggardReason::NotReporting,
    ];
    for reason in reasons.into_iter().filter(|reason| all.iter().any(|laggard| laggard.reason == *reason)) {
        text.push_str(&format!("  {}: {}\n", reason.as_str(), laggard_hint(reason, &name)));
    }
    text
}

fn laggard_row(laggard: &CaRotationLaggard, now: OffsetDateTime) -> Vec<String> {
    let since = laggard.since.as_deref().map_or_else(|| "-".to_owned(), |since| age(since, now));
    let message = laggard.message.as_deref().map(plain).unwrap_or_default();
    vec![word(&laggard.name), laggard.reason.as_str().to_owned(), since, message]
}

fn retirement(rotation: &RotationObject, status: &CaRotationStatus, now: OffsetDateTime) -> String {
    let is_ahead = status.phase.is_none_or(|phase| phase < RotationPhase::Retiring);
    if !is_ahead || rotation.spec.rollback == Some(true) {
        return String::new();
    }
    let not_before =
        rotation.spec.retirement.as_ref().and_then(|retirement| retirement.not_before.as_deref());
    let times = [status.earliest_retirement_time.as_deref(), not_before];
    let latest = times.into_iter().flatten().filter_map(|time| timestamp::parse(time).ok()).max();
    let accepts =
        rotation.spec.retirement.as_ref().and_then(|retirement| retirement.accept_outstanding_leaves);
    match latest {
        None => String::new(),
        Some(_) if accepts == Some(true) => {
            "Earliest retirement: without waiting for outstanding certificates\n".into()
        }
        Some(time) if time <= now => "Earliest retirement: now\n".into(),
        Some(time) => {
            let rest = human_duration((time - now).whole_seconds());
            format!("Earliest retirement: {} (in {rest})\n", timestamp::format(time))
        }
    }
}

fn phase_name(status: &CaRotationStatus) -> &'static str {
    status.phase.map_or("-", RotationPhase::as_str)
}

/// The time of creation as RFC 3339; empty if the server did not set it.
fn created(rotation: &RotationObject) -> String {
    rotation.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
