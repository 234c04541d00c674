//! Status of a Bundle as text.

use time::OffsetDateTime;
use windlass_api::age::age;

use super::status_report::{BundleStatusReport, TargetProblem};
use crate::cli::OutputFormat;
use crate::commands::print::{plain, table, word};

/// Number of fingerprint digits shown, enough to distinguish certificates.
const DIGITS: usize = 16;
/// Maximum number of targets listed unless all are requested.
const SOME: usize = 20;

/// Formats the report for people; `OutputFormat::Name` lists only the targets with problems.
pub fn text(verdict: &BundleStatusReport, format: Option<OutputFormat>, now: OffsetDateTime) -> String {
    if format == Some(OutputFormat::Name) {
        return verdict.outdated.iter().map(|wrong| place(wrong) + "\n").collect();
    }
    let wide = format == Some(OutputFormat::Wide);
    let mut text = head(verdict, now);
    text.push_str("\nSources:\n");
    text.push_str(&sources(verdict));
    text.push_str(&format!("\nCertificates: {}\n", verdict.certificates.len()));
    text.push_str(&certificates(verdict, wide));
    let BundleStatusReport { targets, up_to_date, outdated, .. } = verdict;
    text.push_str(&format!("\nTargets: {up_to_date} of {targets} up to date\n"));
    text.push_str(&outdated_targets(outdated, wide));
    for (title, lines) in [("Problems", &verdict.problems), ("Notes", &verdict.notes)] {
        if !lines.is_empty() {
            text.push_str(&format!("\n{title}:\n"));
            text.extend(lines.iter().map(|line| format!("  {}\n", plain(line))));
        }
    }
    text
}

fn head(verdict: &BundleStatusReport, now: OffsetDateTime) -> String {
    let mut rows = vec![["Name:".to_owned(), word(&verdict.name)].to_vec()];
    let synced = match &verdict.synced {
        Some(synced) => {
            let since = age(&synced.last_transition_time, now);
            format!("{} ({}), for {since}", word(&synced.status), word(&synced.reason))
        }
        None => "Unknown".to_owned(),
    };
    rows.push(["Synced:".to_owned(), synced].to_vec());
    if let Some(package) = &verdict.default_ca_version {
        rows.push(["Default CAs:".to_owned(), word(package)].to_vec());
    }
    table(&rows)
}

fn sources(verdict: &BundleStatusReport) -> String {
    let head = ["SOURCE", "OBJECTS", "CERTIFICATES", "PROBLEM"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for source in &verdict.sources {
        rows.push(vec![
            plain(&source.source),
            source.objects.to_string(),
            source.certificates.to_string(),
            source.problem.as_deref().map(plain).unwrap_or_default(),
        ]);
    }
    indented(&rows)
}

fn certificates(verdict: &BundleStatusReport, wide: bool) -> String {
    if verdict.certificates.is_empty() {
        return String::new();
    }
    let mut rows = vec![["SHA-256", "EXPIRES", "SUBJECT"].map(str::to_owned).to_vec()];
    for each in &verdict.certificates {
        let digits = if wide { each.fingerprint.len() } else { DIGITS };
        let fingerprint = each.fingerprint.get(..digits).unwrap_or(&each.fingerprint);
        let mark = if each.authority { "" } else { " (not a CA)" };
        let subject = plain(&each.subject) + mark;
        rows.push(vec![fingerprint.to_owned(), each.not_after.clone(), subject]);
    }
    indented(&rows)
}

fn outdated_targets(wrong: &[TargetProblem], wide: bool) -> String {
    if wrong.is_empty() {
        return String::new();
    }
    let most = if wide { wrong.len() } else { SOME };
    let mut rows = vec![["KIND", "TARGET", "PROBLEM"].map(str::to_owned).to_vec()];
    for each in wrong.iter().take(most) {
        rows.push(vec![each.kind.clone(), place(each), plain(&each.problem)]);
    }
    let more = match wrong.len().saturating_sub(most) {
        0 => String::new(),
        more => format!("  and {more} more: -o wide lists them\n"),
    };
    indented(&rows) + &more
}

fn place(wrong: &TargetProblem) -> String {
    match wrong.namespace.as_str() {
        "" => word(&wrong.name),
        namespace => format!("{}/{}", word(namespace), word(&wrong.name)),
    }
}

fn indented(rows: &[Vec<String>]) -> String {
    table(rows).lines().map(|line| format!("  {line}\n")).collect()
}
