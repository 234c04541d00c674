//! How far bundles have come, for people.

use time::OffsetDateTime;
use windlass_api::age::age;

use super::delivery::{At, Carries, Delivery, Volumes};
use crate::cli::Format;
use crate::commands::print;

/// Names that are listed in one place.
const FEW: usize = 10;
/// Volumes that are listed of one node, if not all are wanted.
const SOME: usize = 3;
/// The digits of a digest that tell it from others.
const DIGITS: usize = 12;

/// All of them, a line each.
pub fn list(deliveries: &[Delivery], format: Option<Format>) -> String {
    if format == Some(Format::Name) {
        return deliveries.iter().map(|delivery| print::word(&delivery.name) + "\n").collect();
    }
    let wide = format == Some(Format::Wide);
    let mut head =
        vec!["NAME", "GENERATION", "CERTIFICATES", "NODES", "HAVE IT", "DO NOT", "STATE"];
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
            delivery.state().to_owned(),
        ];
        if wide {
            row.push(delivery.leftover.len().to_string());
            for text in [&delivery.signer, &delivery.digest] {
                row.push(if text.is_empty() { "-".into() } else { print::word(text) });
            }
        }
        rows.push(row);
    }
    print::table(&rows)
}

/// One of them: which nodes do not have it, and why.
pub fn one(delivery: &Delivery, format: Option<Format>, now: OffsetDateTime) -> String {
    let Delivery { lacking, leftover, .. } = delivery;
    if format == Some(Format::Name) {
        let mut names = lacking.iter().chain(leftover).map(|at| &at.node).collect::<Vec<_>>();
        names.sort();
        names.dedup();
        return names.into_iter().map(|node| print::word(node) + "\n").collect();
    }
    let name = print::word(&delivery.name);
    let mut text = match delivery.exists {
        true => {
            let generation = match delivery.generation {
                0 => String::new(),
                generation => format!("generation {generation}, "),
            };
            let certificates = counted(delivery.certificates, "certificate");
            format!("{name}: {generation}{certificates}, {}\n", delivery.digest)
        }
        false => format!("{name}: there is no such bundle\n"),
    };
    match lacking.len() {
        0 if !delivery.exists => {}
        0 => text.push_str(&format!("{}.\n", verdict(delivery))),
        _ => text.push_str(&format!("{}:\n{}", verdict(delivery), nodes(lacking, format, now))),
    }
    if !leftover.is_empty() {
        let have = having(leftover.len());
        text.push_str(&format!("{have} in volumes that should not have it any more:\n"));
        text.push_str(&nodes(leftover, format, now));
    }
    text
}

/// One of them that should be nowhere: which nodes have it.
pub fn carriers(delivery: &Delivery, format: Option<Format>, now: OffsetDateTime) -> String {
    let (carriers, name) = (&delivery.carriers, print::word(&delivery.name));
    match (format, carriers.len()) {
        (Some(Format::Name), _) => carriers.iter().map(|at| print::word(&at.node) + "\n").collect(),
        (_, 0) => format!("{name}: no node has it.\n"),
        (_, count) => format!("{name}: {}:\n", having(count)) + &nodes(carriers, format, now),
    }
}

/// How far it is in all, in one line.
pub fn brief(deliveries: &[Delivery], gone: bool) -> String {
    match deliveries {
        [] => "there is no such bundle".into(),
        [one] if gone => having(one.carriers.len()),
        [one] => verdict(one),
        all => {
            let well = all.iter().filter(|delivery| delivery.is_well()).count();
            format!("{} of {} bundles are where they should be", thousands(well), all.len())
        }
    }
}

/// Which nodes report nothing.
pub fn silent(nodes: &[&str]) -> String {
    let few = nodes.iter().take(FEW).copied().collect::<Vec<_>>();
    let more = match nodes.len() - few.len() {
        0 => String::new(),
        more => format!(" and {} more", thousands(more)),
    };
    let count = counted(nodes.len(), "node");
    format!("no report on trust from {count}: {}{more}", print::words(&few))
}

fn verdict(delivery: &Delivery) -> String {
    let Delivery { nodes, have, lacking, .. } = delivery;
    let (all, some) = (counted(*nodes, "node"), thousands(*have));
    match lacking.len() {
        _ if *nodes == 0 => "no node asks for it".into(),
        0 => format!("{some} of {all} have it"),
        1 => format!("{some} of {all} have it; this one does not"),
        many => format!("{some} of {all} have it; these {} do not", thousands(many)),
    }
}

fn nodes(all: &[At], format: Option<Format>, now: OffsetDateTime) -> String {
    let head = ["NODE", "HAS", "VOLUMES", "REPORTED", "WHY"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for At { node, reported, volumes } in all {
        for part in volumes {
            let reported = match reported.as_str() {
                "" => "-".to_owned(),
                at => age(at, now),
            };
            let why = print::plain(&part.message);
            let volumes = volumes_of(part, format == Some(Format::Wide));
            rows.push(vec![print::word(node), has(&part.carries), volumes, reported, why]);
        }
    }
    print::table(&rows)
}

fn has(carries: &Carries) -> String {
    match carries {
        Carries::Unknown => "not known".into(),
        Carries::Nothing => "nothing".into(),
        Carries::Bundle { generation: 0, digest } => {
            let digits = digest.strip_prefix("sha256:").unwrap_or(digest);
            print::word(&digits.chars().take(DIGITS).collect::<String>())
        }
        Carries::Bundle { generation, .. } => format!("generation {generation}"),
    }
}

fn volumes_of(part: &Volumes, all: bool) -> String {
    let shown = if all { part.names.len() } else { part.names.len().min(SOME) };
    let more = part.names.len() - shown + part.more as usize;
    let names = part.names.iter().take(shown).collect::<Vec<_>>();
    match (names.is_empty(), more) {
        (true, 0) => "-".into(),
        (true, more) => thousands(more),
        (false, 0) => print::words(&names),
        (false, more) => format!("{} and {} more", print::words(&names), thousands(more)),
    }
}

fn having(nodes: usize) -> String {
    format!("{} {} it", counted(nodes, "node"), if nodes == 1 { "has" } else { "have" })
}

fn counted(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", thousands(number))
}

/// A number as people read it.
fn thousands(number: usize) -> String {
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

    fn at(node: &str, carries: Carries, names: &[&str], more: u32, message: &str) -> At {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let volumes = vec![Volumes { carries, names, more, message: message.to_owned() }];
        At { node: node.to_owned(), reported: "2026-03-01T12:00:00Z".into(), volumes }
    }

    fn delivery(lacking: Vec<At>, leftover: Vec<At>) -> Delivery {
        Delivery {
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
            ..Delivery::default()
        }
    }

    #[test]
    fn who_does_not_have_it_and_why() {
        let old = Carries::Bundle { generation: 2, digest: "sha256:1".into() };
        let other = Carries::Bundle { generation: 0, digest: "sha256:0123456789abcdef".into() };
        let names = ["ns/a/v", "ns/b/v", "ns/c/v", "ns/d/v"];
        let two = delivery(
            vec![
                at("n1", old, &names, 1000, "no\ndisk"),
                at("n2", Carries::Unknown, &["host/x"], 0, ""),
            ],
            vec![at("n3", other, &["host/x"], 0, "")],
        );
        assert_eq!(
            one(&two, None, NOW),
            "\
a:b:c: generation 3, 1 certificate, sha256:00
4,998 of 5,000 nodes have it; these 2 do not:
NODE   HAS            VOLUMES                                 REPORTED   WHY
n1     generation 2   ns/a/v, ns/b/v, ns/c/v and 1,001 more   5m         no disk
n2     not known      host/x                                  5m
1 node has it in volumes that should not have it any more:
NODE   HAS            VOLUMES   REPORTED   WHY
n3     0123456789ab   host/x    5m
"
        );
        assert!(one(&two, Some(Format::Wide), NOW).contains("ns/d/v and 1,000 more"));
        assert_eq!(one(&two, Some(Format::Name), NOW), "n1\nn2\nn3\n");
        assert!(carriers(&two, None, NOW).starts_with("a:b:c: 1 node has it:\nNODE"));
        assert_eq!(carriers(&two, Some(Format::Name), NOW), "n3\n");
        let all = delivery(Vec::new(), Vec::new());
        assert!(one(&all, None, NOW).ends_with("\n5,000 of 5,000 nodes have it.\n"));
        assert_eq!(carriers(&all, None, NOW), "a:b:c: no node has it.\n");
        let gone = Delivery { exists: false, nodes: 0, have: 0, ..two };
        let gone = Delivery { lacking: Vec::new(), ..gone };
        assert!(one(&gone, None, NOW).starts_with(
            "a:b:c: there is no such bundle\n1 node has it in volumes that should not"
        ));
    }

    #[test]
    fn all_of_them_in_a_table() {
        let one = || delivery(vec![at("n1", Carries::Nothing, &[], 0, "")], Vec::new());
        let unused = Delivery { name: "x".into(), exists: true, ..Delivery::default() };
        assert_eq!(
            list(&[one(), unused], None),
            "\
NAME    GENERATION   CERTIFICATES   NODES   HAVE IT   DO NOT   STATE
a:b:c   3            1              5000    4999      1        incomplete
x       0            0              0       0         0        unused
"
        );
        assert!(list(&[one()], Some(Format::Wide)).contains("SIGNER"));
        assert_eq!(brief(&[one()], false), "4,999 of 5,000 nodes have it; this one does not");
        assert_eq!(brief(&[one(), one()], false), "0 of 2 bundles are where they should be");
        let many = (0..12).map(|i| format!("n{i}")).collect::<Vec<_>>();
        let many = many.iter().map(String::as_str).collect::<Vec<_>>();
        let said = silent(&many);
        assert!(said.starts_with("no report on trust from 12 nodes: n0, n1, "), "{said}");
        assert!(said.ends_with(", n9 and 2 more"), "{said}");
    }
}
