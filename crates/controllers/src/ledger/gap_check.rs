//! Finds segments that were deleted after the leader has read the ledger.

use std::collections::HashSet;

use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt as _};
use windlass_ledger::LedgerChain;

use super::state::LedgerState;

/// Segments per page: only their metadata is read.
const PAGE: u32 = 500;

/// Compares the segments that exist with those that were read or written, and reports the missing ones. Only the caller
/// may delete segments meanwhile.
pub async fn check(api: &Api<DynamicObject>, state: &LedgerState) -> Result<(), kube::Error> {
    // Before the list: a segment that is begun later is not expected in it.
    let expected = state.known_segments();
    let existing = list_names(api).await?;
    for chain in LedgerChain::ALL {
        let of_chain = expected.iter().filter(|(of, _)| *of == chain);
        let names = of_chain.map(|(_, sequence)| chain.segment_name(*sequence));
        let missing: Vec<String> = names.filter(|name| !existing.contains(name)).collect();
        if !missing.is_empty() {
            tracing::error!(chain = chain.name(), missing = missing.join(", "), "the ledger is damaged");
        }
        state.report_missing(chain, missing.len());
    }
    Ok(())
}

async fn list_names(api: &Api<DynamicObject>) -> Result<HashSet<String>, kube::Error> {
    let mut names = HashSet::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list_metadata(&params).await?;
        names.extend(page.items.iter().map(|item| item.name_any()));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = ListParams::default().limit(PAGE).continue_token(&token),
            None => return Ok(names),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};
    use windlass_ledger::{SegmentHash, SegmentHeader};
    use windlass_testkit::scripted_client;

    use super::super::state::ObservedSegment;
    use super::super::{resource, segment_object};
    use super::*;
    use crate::metrics::MetricFamilies;

    fn item(name: &str) -> Value {
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": name}})
    }

    #[tokio::test]
    async fn a_deleted_segment_is_a_problem_until_it_is_back() {
        let existing = Arc::new(Mutex::new(Vec::new()));
        let list = existing.clone();
        let client = scripted_client(move |_| {
            let items: Vec<Value> = list.lock().unwrap().iter().map(|name: &&str| item(name)).collect();
            let list = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                "metadata": {}, "items": items});
            async move { (200, list) }
        });
        let api = segment_object::api(client, &resource());
        let registry = windlass_runtime::metrics::MetricsRegistry::new();
        let state = LedgerState::new(&MetricFamilies::register(&registry));
        for sequence in 1..=3 {
            let header =
                SegmentHeader { chain: LedgerChain::Short, sequence, previous_hash: SegmentHash::NONE };
            let segment =
                ObservedSegment { header: &header, first: 0, entries: &[], latest_expiry: 0, bytes: 0 };
            state.observe(&segment);
        }
        state.set_problems(LedgerChain::Short, 1);
        let all = ["short-0000000001", "short-0000000002", "short-0000000003", "short-0000000004"];
        for (found, problems) in [(&all[..], 1), (&all[..2], 2), (&all[3..], 4), (&all[..3], 1)] {
            *existing.lock().unwrap() = found.to_vec();
            check(&api, &state).await.unwrap();
            let line = format!("windlass_ledger_chain_problems{{chain=\"short\"}} {problems}\n");
            let text = registry.encode();
            assert!(text.contains(&line), "{line}{text}");
        }
    }
}
