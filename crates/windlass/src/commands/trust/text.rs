//! Delivery status of bundles as text.

use std::collections::BTreeSet;

use time::OffsetDateTime;
use windlass_api::age::age;

use super::delivery::{
    BundleDelivery, CarriedContent, DeliveryOverview, DeliveryShortfall, NodeVolumes, UnreportedNode,
    VolumeGroup,
};
use crate::cli::OutputFormat;
use crate::commands::print;

/// Maximum number of names listed in one place.
const FEW: usize = 10;
/// Maximum number of volumes listed per node unless all are requested.
const SOME: usize = 3;
/// Number of digest digits shown, enough to distinguish bundles.
const DIGITS: usize = 12;

/// Lists all bundles, one per line.
pub fn list(overview: &DeliveryOverview, format: Option<OutputFormat>, now: OffsetDateTime) -> String {
    let deliveries = &overview.deliveries;
    if format == Some(OutputFormat::Name) {
        return deliveries.iter().map(|delivery| print::word(&delivery.name) + "\n").collect();
    }
    let wide = format == Some(OutputFormat::Wide);
    let mut head = vec!["NAME", "GENERATION", "CERTIFICATES", "NODES", "DELIVERED", "MISSING", "STATE"];
    if wide {
        head.extend(["LEFTOVER", "SIGNER", "DIGEST"]);
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for delivery in deliveries {
        let known = |number: String| if delivery.exists { number } else { "-".into() };
        let mut row = vec![
            print::word(&delivery.name),
            known(delivery.generation.to_string()),
            known(delivery.certificates.to_string()),
            delivery.nodes.to_string(),
            delivery.have.to_string(),
            delivery.lacking.len().to_string(),
            delivery.state().to_lowercase(),
        ];
        if wide {
            row.push(delivery.leftover.len().to_string());
            for text in [&delivery.signer, &delivery.digest] {
                row.push(if text.is_empty() { "-".into() } else { print::word(text) });
            }
        }
        rows.push(row);
    }
    let table = if deliveries.is_empty() { String::new() } else { print::table(&rows) };
    table + &uncertainty_notes(overview, format, now)
}

/// Describes one bundle: which nodes do not have it, and why.
pub fn bundle_details(
    delivery: &BundleDelivery,
    overview: &DeliveryOverview,
    format: Option<OutputFormat>,
    now: OffsetDateTime,
) -> String {
    let BundleDelivery { lacking, leftover, .. } = delivery;
    if format == Some(OutputFormat::Name) {
        return names(lacking.iter().chain(leftover), overview);
    }
    let name = print::word(&delivery.name);
    let mut text = match delivery.exists {
        true => {
            let generation = match delivery.generation {
                0 => String::new(),
                generation => format!("generation {generation}, "),
            };
            let certificates = count_text(delivery.certificates, "certificate");
            format!("{name}: {generation}{certificates}, {}\n", delivery.digest)
        }
        false if delivery.carriers.is_empty() => format!("{name}: bundle not found\n"),
        false => format!("{name}: deleted\n"),
    };
    match lacking.len() {
        0 if !delivery.exists => {}
        0 => text.push_str(&format!("{}\n", delivery_summary(delivery))),
        _ => text.push_str(&format!("{}:\n{}", delivery_summary(delivery), nodes(lacking, format, now))),
    }
    if !leftover.is_empty() {
        let have = node_count_text(leftover.len());
        text.push_str(&format!("{have} in volumes that no longer select it:\n"));
        text.push_str(&nodes(leftover, format, now));
    }
    text + &uncertainty_notes(overview, format, now)
}

/// Describes a bundle that no node should have: which nodes have it.
pub fn carrier_details(
    delivery: &BundleDelivery,
    overview: &DeliveryOverview,
    format: Option<OutputFormat>,
    now: OffsetDateTime,
) -> String {
    let carriers = &delivery.carriers;
    let text = match (format, carriers.len()) {
        (Some(OutputFormat::Name), _) => return names(carriers.iter(), overview),
        (_, 0) => format!("{}\n", carriers_text(delivery)),
        (_, _) => format!("{}:\n", carriers_text(delivery)) + &nodes(carriers, format, now),
    };
    text + &uncertainty_notes(overview, format, now)
}

/// Lists uncertainties that may concern any bundle.
pub fn uncertainty_notes(
    overview: &DeliveryOverview,
    format: Option<OutputFormat>,
    now: OffsetDateTime,
) -> String {
    let DeliveryOverview { unmatched, unreported, .. } = overview;
    if format == Some(OutputFormat::Name) {
        return names(std::iter::empty(), overview);
    }
    let mut text = String::new();
    if !unmatched.is_empty() {
        let count = count_text(unmatched.len(), "node");
        text.push_str(&format!("blocked volumes that match no bundle, on {count}:\n"));
        text.push_str(&nodes(unmatched, format, now));
    }
    if !unreported.is_empty() {
        let count = count_text(unreported.len(), "node");
        text.push_str(&format!("no complete report from {count}:\n"));
        let rows = unreported.iter().map(|UnreportedNode { node, message }| [node, message]);
        let rows = rows.map(|[node, message]| vec![print::word(node), print::plain(message)]);
        let head = ["NODE", "WHY"].map(str::to_owned).to_vec();
        text.push_str(&print::table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()));
    }
    text
}

/// Lists the names of these nodes, and of unmatched and unreported ones.
fn names<'a>(all: impl Iterator<Item = &'a NodeVolumes>, overview: &'a DeliveryOverview) -> String {
    let DeliveryOverview { unmatched, unreported, .. } = overview;
    let unreported = unreported.iter().map(|one| &one.node);
    let names = all.chain(unmatched).map(|at| &at.node).chain(unreported);
    let names = names.collect::<BTreeSet<_>>();
    names.into_iter().map(|node| print::word(node) + "\n").collect()
}

/// Summarizes the delivery of all bundles on one line.
pub fn overview_summary(overview: &DeliveryOverview, gone: bool) -> String {
    let DeliveryOverview { deliveries, unmatched, unreported, .. } = overview;
    let mut parts = vec![progress(deliveries, gone)];
    if !unmatched.is_empty() {
        let count = count_text(unmatched.len(), "node");
        parts.push(format!("blocked volumes on {count} match no bundle"));
    }
    if !unreported.is_empty() {
        parts.push(format!("no complete report from {}", count_text(unreported.len(), "node")));
    }
    parts.join("; ")
}

fn progress(deliveries: &[BundleDelivery], gone: bool) -> String {
    match deliveries {
        [] => "bundle not found".into(),
        [one] if gone => carriers_text(one),
        [one] => delivery_summary(one),
        all => {
            let well = all.iter().filter(|delivery| delivery.is_complete()).count();
            format!("{} of {} bundles delivered", with_separators(well), all.len())
        }
    }
}

/// Lists nodes without a reporting agent.
pub fn agentless(nodes: &[String]) -> String {
    let few = nodes.iter().take(FEW).collect::<Vec<_>>();
    let more = match nodes.len() - few.len() {
        0 => String::new(),
        more => format!(" and {} more", with_separators(more)),
    };
    let count = count_text(nodes.len(), "node");
    format!("no NodeTrust report from {count}: {}{more}", print::words(&few))
}

/// Counts the nodes that have a bundle and those that lack it.
pub fn delivery_summary(delivery: &BundleDelivery) -> String {
    let BundleDelivery { nodes, have, lacking, .. } = delivery;
    let (all, some) = (count_text(*nodes, "node"), with_separators(*have));
    let have = if *nodes == 1 { "has it" } else { "have it" };
    match lacking.len() {
        _ if *nodes == 0 => "no node selects it".into(),
        0 => format!("{some} of {all} {have}"),
        1 => format!("{some} of {all} {have}; 1 node lacks it"),
        many => format!("{some} of {all} {have}; {} nodes lack it", with_separators(many)),
    }
}

fn nodes(all: &[NodeVolumes], format: Option<OutputFormat>, now: OffsetDateTime) -> String {
    let states = all.iter().any(|at| at.state.is_some());
    let head = ["NODE", "STATE", "HAS", "VOLUMES", "REPORTED", "WHY"];
    let head = head.into_iter().filter(|column| states || *column != "STATE");
    let mut rows = vec![head.map(str::to_owned).collect::<Vec<_>>()];
    for NodeVolumes { node, reported, state, volumes } in all {
        for part in volumes {
            let reported = match reported.as_str() {
                "" => "-".to_owned(),
                at => age(at, now),
            };
            let why = print::plain(&part.message);
            let volumes = volume_names(part, format == Some(OutputFormat::Wide));
            let mut row = vec![print::word(node)];
            row.extend(state.map(|state| shortfall(state).to_owned()));
            row.extend([content_text(&part.carries), volumes, reported, why]);
            rows.push(row);
        }
    }
    print::table(&rows)
}

fn shortfall(state: DeliveryShortfall) -> &'static str {
    match state {
        DeliveryShortfall::Stale => "stale",
        DeliveryShortfall::Truncated => "truncated",
        DeliveryShortfall::Blocked => "blocked",
        DeliveryShortfall::Silent => "silent",
    }
}

fn content_text(carries: &CarriedContent) -> String {
    match carries {
        CarriedContent::Unknown => "unknown".into(),
        CarriedContent::Nothing => "nothing".into(),
        CarriedContent::Bundle { generation: 0, digest } => {
            let digits = digest.strip_prefix("sha256:").unwrap_or(digest);
            print::word(&digits.chars().take(DIGITS).collect::<String>())
        }
        CarriedContent::Bundle { generation, .. } => format!("generation {generation}"),
    }
}

fn volume_names(part: &VolumeGroup, all: bool) -> String {
    let shown = if all { part.names.len() } else { part.names.len().min(SOME) };
    let more = part.names.len() - shown + part.more as usize;
    let names = part.names.iter().take(shown).collect::<Vec<_>>();
    match (names.is_empty(), more) {
        (true, 0) => "-".into(),
        (true, more) => with_separators(more),
        (false, 0) => print::words(&names),
        (false, more) => format!("{} and {} more", print::words(&names), with_separators(more)),
    }
}

/// States how many nodes still have a bundle that should be nowhere.
fn carriers_text(delivery: &BundleDelivery) -> String {
    let name = print::word(&delivery.name);
    match delivery.carriers.len() {
        0 => format!("no node has {name} any more"),
        1 => format!("1 node still has {name}"),
        many => format!("{} still have {name}", count_text(many, "node")),
    }
}

fn node_count_text(nodes: usize) -> String {
    format!("{} {} it", count_text(nodes, "node"), if nodes == 1 { "has" } else { "have" })
}

/// Formats a number of things, with thousands separators.
pub fn count_text(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", with_separators(number))
}

/// Formats a number with thousands separators.
fn with_separators(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: OffsetDateTime = time::macros::datetime!(2026-03-01 12:05 UTC);

    fn node_volumes(
        node: &str,
        carries: CarriedContent,
        names: &[&str],
        more: u32,
        message: &str,
    ) -> NodeVolumes {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let volumes = vec![VolumeGroup { carries, names, more, message: message.to_owned() }];
        let reported = "2026-03-01T12:00:00Z".into();
        NodeVolumes { node: node.to_owned(), reported, state: None, volumes }
    }

    fn lacking(at: NodeVolumes, state: DeliveryShortfall) -> NodeVolumes {
        NodeVolumes { state: Some(state), ..at }
    }

    fn empty_overview() -> DeliveryOverview {
        DeliveryOverview::default()
    }

    fn delivery(lacking: Vec<NodeVolumes>, leftover: Vec<NodeVolumes>) -> BundleDelivery {
        BundleDelivery {
            name: "a:b:c".into(),
            exists: true,
            generation: 3,
            digest: "sha256:00".into(),
            certificates: 1,
            nodes: 5000,
            have: 5000 - lacking.len(),
            carriers: leftover.clone(),
            lacking,
            leftover,
            ..BundleDelivery::default()
        }
    }

    #[test]
    fn lacking_nodes_are_listed_with_reasons() {
        let old = CarriedContent::Bundle { generation: 2, digest: "sha256:1".into() };
        let other = CarriedContent::Bundle { generation: 0, digest: "sha256:0123456789abcdef".into() };
        let names = ["ns/a/v", "ns/b/v", "ns/c/v", "ns/d/v"];
        let two = delivery(
            vec![
                lacking(node_volumes("n1", old, &names, 1000, "no\ndisk"), DeliveryShortfall::Blocked),
                lacking(
                    node_volumes("n2", CarriedContent::Unknown, &["host/x"], 0, ""),
                    DeliveryShortfall::Stale,
                ),
            ],
            vec![node_volumes("n3", other, &["host/x"], 0, "")],
        );
        assert_eq!(
            bundle_details(&two, &empty_overview(), None, NOW),
            "a:b:c: generation 3, 1 certificate, sha256:00
4,998 of 5,000 nodes have it; 2 nodes lack it:
NODE   STATE     HAS            VOLUMES                                 REPORTED   WHY
n1     blocked   generation 2   ns/a/v, ns/b/v, ns/c/v and 1,001 more   5m         no disk
n2     stale     unknown        host/x                                  5m
1 node has it in volumes that no longer select it:
NODE   HAS            VOLUMES   REPORTED   WHY
n3     0123456789ab   host/x    5m
"
        );
        let wide = bundle_details(&two, &empty_overview(), Some(OutputFormat::Wide), NOW);
        assert!(wide.contains("ns/d/v and 1,000 more"), "{wide}");
        assert_eq!(bundle_details(&two, &empty_overview(), Some(OutputFormat::Name), NOW), "n1\nn2\nn3\n");
        let have = carrier_details(&two, &empty_overview(), None, NOW);
        assert!(have.starts_with("1 node still has a:b:c:\nNODE"), "{have}");
        assert_eq!(carrier_details(&two, &empty_overview(), Some(OutputFormat::Name), NOW), "n3\n");
        let all = delivery(Vec::new(), Vec::new());
        let good = bundle_details(&all, &empty_overview(), None, NOW);
        assert!(good.ends_with("\n5,000 of 5,000 nodes have it\n"), "{good}");
        assert_eq!(carrier_details(&all, &empty_overview(), None, NOW), "no node has a:b:c any more\n");
        let single = BundleDelivery { nodes: 1, have: 1, ..all };
        assert!(bundle_details(&single, &empty_overview(), None, NOW).ends_with("\n1 of 1 node has it\n"));
        let gone = BundleDelivery { exists: false, nodes: 0, have: 0, ..two };
        let gone = BundleDelivery { lacking: Vec::new(), ..gone };
        let deleted = bundle_details(&gone, &empty_overview(), None, NOW);
        assert!(
            deleted.starts_with("a:b:c: deleted\n1 node has it in volumes that no longer select"),
            "{deleted}"
        );
    }

    #[test]
    fn notes_about_all_bundles_come_last() {
        let blocked = node_volumes("n8", CarriedContent::Unknown, &["host/x"], 0, "no bundle matches name=y");
        let unreported = UnreportedNode { node: "n9".into(), message: "agent has not reported".into() };
        let overview = DeliveryOverview {
            unmatched: vec![lacking(blocked, DeliveryShortfall::Blocked)],
            unreported: vec![unreported],
            ..DeliveryOverview::default()
        };
        let all = delivery(Vec::new(), Vec::new());
        let text = bundle_details(&all, &overview, None, NOW);
        let (_, rest) = text.split_once("nodes have it\n").unwrap();
        assert_eq!(
            rest,
            "blocked volumes that match no bundle, on 1 node:
NODE   STATE     HAS       VOLUMES   REPORTED   WHY
n8     blocked   unknown   host/x    5m         no bundle matches name=y
no complete report from 1 node:
NODE   WHY
n9     agent has not reported
"
        );
        assert!(list(&overview, None, NOW).ends_with(rest));
        assert!(carrier_details(&all, &overview, None, NOW).ends_with(rest));
        assert_eq!(bundle_details(&all, &overview, Some(OutputFormat::Name), NOW), "n8\nn9\n");
        let said = overview_summary(&DeliveryOverview { deliveries: vec![all], ..overview }, false);
        let tail = "; blocked volumes on 1 node match no bundle; no complete report from 1 node";
        assert_eq!(said, format!("5,000 of 5,000 nodes have it{tail}"));
    }

    #[test]
    fn all_of_them_in_a_table() {
        let one = || delivery(vec![node_volumes("n1", CarriedContent::Nothing, &[], 0, "")], Vec::new());
        let unused = BundleDelivery { name: "x".into(), exists: true, ..BundleDelivery::default() };
        let listed = |deliveries| DeliveryOverview { deliveries, ..DeliveryOverview::default() };
        assert_eq!(
            list(&listed(vec![one(), unused]), None, NOW),
            "NAME    GENERATION   CERTIFICATES   NODES   DELIVERED   MISSING   STATE
a:b:c   3            1              5000    4999        1         incomplete
x       0            0              0       0           0         unused
"
        );
        assert!(list(&listed(vec![one()]), Some(OutputFormat::Wide), NOW).contains("SIGNER"));
        assert_eq!(
            overview_summary(&listed(vec![one()]), false),
            "4,999 of 5,000 nodes have it; 1 node lacks it"
        );
        assert_eq!(overview_summary(&listed(vec![one(), one()]), false), "0 of 2 bundles delivered");
        let many = (0..12).map(|i| format!("n{i}")).collect::<Vec<_>>();
        let said = agentless(&many);
        assert!(said.starts_with("no NodeTrust report from 12 nodes: n0, n1, "), "{said}");
        assert!(said.ends_with(", n9 and 2 more"), "{said}");
    }
}
