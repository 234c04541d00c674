//! `windlass cert verify-ledger`.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;
use windlass_ledger::{ChainReport, ChainVerifier, LedgerChain};

use super::ledger::{self, SegmentObject};
use crate::cli::{CertVerifyArgs, ExpectedHead};
use crate::commands::{api_client, print};

/// Result of verifying all chains, as `-o json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LedgerVerification {
    intact: bool,
    chains: Vec<ChainSummary>,
    /// Objects that belong to no chain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    invalid_segments: Vec<String>,
}

/// Result of verifying one chain.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ChainSummary {
    chain: &'static str,
    /// Sequence numbers of the first and the last segment; 0 if the chain is empty.
    first_sequence: u64,
    last_sequence: u64,
    pruned_through: u64,
    entries: u64,
    /// Hash of the newest segment, to be noted elsewhere; absent if the chain is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<String>,
    problems: Vec<String>,
}

/// Verifies all chains; returns whether they are intact.
pub async fn run(arguments: CertVerifyArgs) -> Result<bool> {
    let client = api_client::connect(&arguments.server).await?;
    let expected = arguments.expect_head;
    let wanted = expected.clone();
    let convert = move |object: &SegmentObject| {
        let stored = ledger::parse_segment(object)?;
        let is_found = |head: &&ExpectedHead| {
            head.chain == stored.header.chain
                && matches!(stored.header.find_head(&stored.data, head.hash), Ok(Some(_)))
        };
        let found: Vec<ExpectedHead> = wanted.iter().filter(is_found).copied().collect();
        Ok((stored, found))
    };
    let mut verifiers: BTreeMap<LedgerChain, ChainVerifier> = BTreeMap::new();
    let (mut found_heads, mut invalid_segments) = (Vec::new(), Vec::new());
    ledger::read_segments(&client, convert, |segment: Result<_, String>| match segment {
        Ok((stored, found)) => {
            verifiers.entry(stored.header.chain).or_default().add(&stored);
            found_heads.extend(found);
        }
        Err(error) => invalid_segments.push(error),
    })
    .await?;
    let chains: Vec<ChainSummary> = LedgerChain::ALL
        .into_iter()
        .map(|chain| {
            let report = verifiers.remove(&chain).unwrap_or_default().finish(chain);
            let missing = expected.iter().filter(|head| head.chain == chain && !found_heads.contains(head));
            ChainSummary::new(&report, missing)
        })
        .collect();
    let intact = invalid_segments.is_empty() && chains.iter().all(|chain| chain.problems.is_empty());
    let verification = LedgerVerification { intact, chains, invalid_segments };
    print::show(&verification, arguments.output.format, |_| text(&verification))?;
    if !intact {
        eprintln!("windlass: the ledger is damaged");
    }
    Ok(intact)
}

impl ChainSummary {
    fn new<'a>(report: &ChainReport, missing: impl Iterator<Item = &'a ExpectedHead>) -> Self {
        let mut problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
        problems.extend(missing.map(|head| match report.pruned_through {
            0 => format!("no segment has the expected head {}: the newest entries were removed", head.hash),
            pruned => format!(
                "no segment has the expected head {}: the newest entries were removed, or it was among the \
                 segments up to {pruned}, which were pruned",
                head.hash
            ),
        }));
        Self {
            chain: report.chain.name(),
            first_sequence: report.first,
            last_sequence: report.last,
            pruned_through: report.pruned_through,
            entries: report.entries,
            head: (report.last > 0).then(|| report.head.to_string()),
            problems,
        }
    }

    fn row(&self) -> Vec<String> {
        let or_none = |number: u64| if number == 0 { "-".to_owned() } else { number.to_string() };
        let segments = match (self.first_sequence, self.last_sequence) {
            (first, last) if first == last => or_none(first),
            (first, last) => format!("{first}-{last}"),
        };
        let state = if self.problems.is_empty() { "intact" } else { "damaged" };
        let head = self.head.clone().unwrap_or_else(|| "-".into());
        vec![
            self.chain.to_owned(),
            segments,
            or_none(self.pruned_through),
            self.entries.to_string(),
            state.to_owned(),
            head,
        ]
    }
}

fn text(verification: &LedgerVerification) -> String {
    let head = ["CHAIN", "SEGMENTS", "PRUNED", "ENTRIES", "STATE", "HEAD"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> =
        std::iter::once(head).chain(verification.chains.iter().map(ChainSummary::row)).collect();
    let mut text = print::table(&rows);
    for chain in &verification.chains {
        for problem in &chain.problems {
            text.push_str(&format!("{}: {}\n", chain.chain, print::plain(problem)));
        }
    }
    for problem in &verification.invalid_segments {
        text.push_str(&format!("{}\n", print::plain(problem)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_ledger::{ChainProblem, SegmentHash};

    #[test]
    fn problems_follow_the_table() {
        let report = |chain, first, last, problems| ChainReport {
            chain,
            first,
            last,
            pruned_through: first.max(1) - 1,
            entries: last,
            head: SegmentHash::NONE,
            problems,
        };
        let missing = ExpectedHead { chain: LedgerChain::Short, hash: SegmentHash([1; 32]) };
        let damaged = report(LedgerChain::Short, 3, 9, vec![ChainProblem::Missing { first: 5, last: 6 }]);
        let chains = vec![
            ChainSummary::new(&damaged, [missing].iter()),
            ChainSummary::new(&report(LedgerChain::Medium, 0, 0, Vec::new()), [].iter()),
            ChainSummary::new(&report(LedgerChain::Long, 1, 1, Vec::new()), [].iter()),
        ];
        let invalid_segments = vec!["segment x is invalid: y".to_owned()];
        let text = text(&LedgerVerification { intact: false, chains, invalid_segments });
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let zeros = format!("sha256:{}", "0".repeat(64));
        let wanted = [
            "CHAIN SEGMENTS PRUNED ENTRIES STATE HEAD".to_owned(),
            format!("short 3-9 2 9 damaged {zeros}"),
            "medium - - 0 intact -".to_owned(),
            format!("long 1 - 1 intact {zeros}"),
            "short: segments 5 to 6 are missing".to_owned(),
        ];
        assert_eq!(lines.iter().take(5).collect::<Vec<_>>(), wanted.iter().collect::<Vec<_>>());
        assert!(lines.get(5).is_some_and(|line| line.contains("which were pruned")), "{text}");
        assert_eq!(lines.last().map(String::as_str), Some("segment x is invalid: y"));
    }
}
