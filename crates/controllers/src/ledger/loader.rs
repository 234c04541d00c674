//! Reads all segments when this process becomes the leader, and verifies their chains.

use std::collections::BTreeMap;

use kube::Api;
use kube::api::{DynamicObject, ListParams};
use windlass_ledger::{ChainVerifier, LedgerChain, decode_entries};

use super::segment_object;
use super::state::{LedgerState, ObservedSegment};

/// Segments per page: about one MiB.
const PAGE: u32 = 20;

/// Reads all segments page by page. Segments that cannot be read are reported and skipped.
pub async fn load(api: &Api<DynamicObject>, state: &LedgerState) -> Result<(), kube::Error> {
    let mut verifiers: BTreeMap<LedgerChain, ChainVerifier> = BTreeMap::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        for object in &page.items {
            observe(object, state, &mut verifiers);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = ListParams::default().limit(PAGE).continue_token(&token),
            None => break,
        }
    }
    for chain in LedgerChain::ALL {
        let report = verifiers.remove(&chain).unwrap_or_default().finish(chain);
        for problem in &report.problems {
            tracing::error!(chain = chain.name(), %problem, "the ledger is damaged");
        }
        state.set_problems(chain, report.problems.len());
    }
    state.set_loaded();
    Ok(())
}

fn observe(
    object: &DynamicObject,
    state: &LedgerState,
    verifiers: &mut BTreeMap<LedgerChain, ChainVerifier>,
) {
    let stored = match segment_object::parse(object) {
        Ok(stored) => stored,
        Err(error) => {
            tracing::error!(%error, "cannot read a segment");
            return;
        }
    };
    verifiers.entry(stored.header.chain).or_default().add(&stored);
    let entries = decode_entries(&stored.header, &stored.data).unwrap_or_default();
    state.observe(&ObservedSegment {
        header: &stored.header,
        first: 0,
        entries: &entries,
        latest_expiry: stored.latest_expiry,
        bytes: stored.data.len(),
    });
}
