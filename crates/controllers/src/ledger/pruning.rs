//! Deletes segments whose certificates have all expired more than a week ago.

use kube::Api;
use kube::api::{DeleteParams, DynamicObject};
use windlass_ledger::{LedgerChain, LedgerEntry};
use windlass_runtime::client_error::describe;

use super::{Ledger, LedgerError};
use crate::csr::is_not_found;

/// Announces in the chain which segments are deleted, then deletes them from old to new. A deletion that was interrupted
/// continues with the next call.
pub async fn prune(
    ledger: &Ledger,
    api: &Api<DynamicObject>,
    chain: LedgerChain,
    now: i64,
) -> Result<(), LedgerError> {
    let state = &ledger.shared.state;
    let Some(prunable) = state.prunable(chain, now) else { return Ok(()) };
    let (through, hash) = (prunable.through, prunable.hash);
    if !prunable.is_announced {
        ledger.append(chain, LedgerEntry::Pruned { through, hash }).await?;
    }
    for sequence in prunable.sequences {
        match api.delete(&chain.segment_name(sequence), &DeleteParams::default()).await {
            Ok(_) => {}
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(LedgerError::new(describe(&error))),
        }
    }
    state.forget(chain, through, now);
    tracing::info!(chain = chain.name(), through, "deleted segments of expired certificates");
    Ok(())
}
