//! The plan of a rotation for people.

use time::OffsetDateTime;
use windlass_api::age::human_duration;
use windlass_api::timestamp;

use super::consumers::PlannedNode;
use super::evaluation::{PlannedHold, PlannedLeaf, PlannedLeaves, RotationPlan};
use crate::commands::print::{plain, table, word, words};
use crate::commands::trust::count_text;

/// Number of entries of a list that are shown; the structured output has all.
const SOME: usize = 10;

pub fn text(plan: &RotationPlan, now: OffsetDateTime) -> String {
    let mut text = format!("Rotation of {}\n", word(&plan.signer_name));
    text.push_str(&old_ca(plan));
    text.push_str(&consumers(plan));
    text.push_str(&leaves(plan.leaves.as_ref()));
    text.push_str(&expected_end(plan, now));
    text.push_str(&holds(&plan.holds));
    for note in &plan.notes {
        text.push_str(&format!("Note: {}\n", plain(note)));
    }
    text
}

/// Formats what a rotation with --compromised breaks.
pub fn consequences(plan: &RotationPlan) -> String {
    let mut text = format!("Rotation of {} as compromised:\n", word(&plan.signer_name));
    text.push_str(&old_ca(plan));
    match &plan.leaves {
        None => {
            text.push_str("Certificates that will be revoked: not known, because the ledger cannot be read\n")
        }
        Some(leaves) => {
            let (all, rest) = (leaves.outstanding, &leaves.not_renewable);
            text.push_str(&format!(
                "Certificates that will be revoked: {all}; {} of them are renewed by agents at once\n",
                leaves.renewed_by_agents
            ));
            if !rest.is_empty() {
                text.push_str("These holders cannot be told to renew, and will fail:\n");
                text.push_str(&leaf_table(rest));
            }
        }
    }
    let lagging: Vec<&PlannedHold> =
        plan.holds.iter().filter(|hold| hold.name.starts_with("node/")).collect();
    if !lagging.is_empty() {
        text.push_str(
            "These consumers may reject new certificates, because they may not get or read the new CA:\n",
        );
        text.push_str(&hold_table(&lagging));
    }
    text.push_str(
        "Reads are not waited for: applications that do not reload their trust anchors will fail\n",
    );
    text
}

fn old_ca(plan: &RotationPlan) -> String {
    let Some(authority) = &plan.old_authority else {
        return "Old CA: none is active yet\n".into();
    };
    let mut text = format!("Old CA: {}", word(&authority.id));
    if let Some(subject) = &authority.subject {
        text.push_str(&format!(" {}", plain(subject)));
    }
    if let Some(end) = &authority.not_after {
        text.push_str(&format!(", expires {}", plain(end)));
    }
    text + "\n"
}

fn consumers(plan: &RotationPlan) -> String {
    let volumes = plan.nodes.iter().map(PlannedNode::volume_count).fold(0, u32::saturating_add);
    let (nodes, bundles) = (plan.nodes.len(), plan.bundles.len());
    let volumes = count_text(usize::try_from(volumes).unwrap_or(usize::MAX), "volume");
    let on_nodes = count_text(nodes, "node");
    let mut text = format!("Consumers: {volumes} on {on_nodes}, {}\n", count_text(bundles, "Bundle"));
    if !plan.nodes.is_empty() {
        let head = ["NODE", "VOLUMES", "READ", "NOT-READ", "NOT-OBSERVABLE"].map(str::to_owned).to_vec();
        let rows = plan.nodes.iter().take(SOME).map(node_row);
        text.push_str(&table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()));
        text.push_str(&more(nodes));
    }
    if !plan.bundles.is_empty() {
        let shown = plan.bundles.iter().take(SOME).collect::<Vec<_>>();
        text.push_str(&format!("Bundles: {}\n{}", words(&shown), more(bundles)));
    }
    text
}

fn node_row(node: &PlannedNode) -> Vec<String> {
    vec![
        word(&node.node_name),
        node.volume_count().to_string(),
        node.read.to_string(),
        node.not_read.len().to_string(),
        node.not_observable.to_string(),
    ]
}

fn leaves(leaves: Option<&PlannedLeaves>) -> String {
    let Some(leaves) = leaves else {
        return "Certificates: not known, because the ledger cannot be read\n".into();
    };
    let latest = leaves.latest_expiry.as_ref().map(|time| format!(", the last until {time}"));
    let mut text = format!(
        "Certificates: {} outstanding{}; renewed by agents: {}, by holders that cannot be told: {}\n",
        leaves.outstanding,
        latest.unwrap_or_default(),
        leaves.renewed_by_agents,
        leaves.not_renewable.len()
    );
    if !leaves.not_renewable.is_empty() {
        text.push_str(&leaf_table(&leaves.not_renewable));
    }
    text
}

fn leaf_table(leaves: &[PlannedLeaf]) -> String {
    let head = ["HOLDER", "SERIAL", "EXPIRES", "WHY"].map(str::to_owned).to_vec();
    let rows = leaves.iter().take(SOME).map(|leaf| {
        vec![plain(&leaf.holder), leaf.serial_number.clone(), leaf.not_after.clone(), leaf.message.to_owned()]
    });
    table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()) + &more(leaves.len())
}

fn expected_end(plan: &RotationPlan, now: OffsetDateTime) -> String {
    let Some(end) = plan.expected_end.as_deref() else {
        return "Expected end: not known\n".into();
    };
    let left = timestamp::parse(end).map(|end| (end - now).whole_seconds()).unwrap_or_default();
    match left {
        ..=0 => "Expected end: within seconds of the last proof\n".into(),
        left => format!("Expected end: {end} (in {})\n", human_duration(left)),
    }
}

fn holds(holds: &[PlannedHold]) -> String {
    match holds {
        [] => "Nothing would hold it\n".into(),
        holds => format!("It would be held by:\n{}", hold_table(&holds.iter().collect::<Vec<_>>())),
    }
}

fn hold_table(holds: &[&PlannedHold]) -> String {
    let head = ["REASON", "NAME", "MESSAGE"].map(str::to_owned).to_vec();
    let row = |hold: &&PlannedHold| vec![hold.reason.to_owned(), word(&hold.name), plain(&hold.message)];
    let rows = holds.iter().take(SOME).map(row);
    table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()) + &more(holds.len())
}

fn more(count: usize) -> String {
    match count.saturating_sub(SOME) {
        0 => String::new(),
        more => format!("and {more} more; -o json lists all\n"),
    }
}
