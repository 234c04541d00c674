//! Revocation of certificates: CertificateRevocations become entries of the ledger and of certificate revocation lists.
//!
//! - `object`: a CertificateRevocation as it is read; `cache`: all of them, by CA.
//! - `ledger_plan`: decides what the ledger must say of a certificate, and `ledger_sync` writes it.
//! - `authorities`: CA keys that this process holds, for which it signs lists.
//! - `decision`: decides whether a list is signed and what it contains; `schedule`: when that is decided, so that many
//!   revocations share one signature; `list_object`: the list as an object of the API; `publisher`: signs and writes.
//! - `config_map`: the ConfigMap with the lists of a signer, a pure function; `delivery`: writes it to namespaces.
//!
//! A list is signed when a revocation appears or disappears, and after half of its duration. An authority whose key this
//! process does not hold keeps its last list.

mod authorities;
mod cache;
mod config_map;
mod decision;
mod delivery;
mod ledger_plan;
mod ledger_sync;
mod list_object;
mod metrics;
mod object;
mod publisher;
mod schedule;

use std::convert::Infallible;
use std::sync::Arc;

use kube::Client;
use kube::core::ApiResource;
use windlass_api::revocation::{LIST_RESOURCE, RESOURCE};
use windlass_runtime::discovery::{ApiKind, run_while_served};

use crate::csr_signer::BuiltInSigner;
use crate::ledger::Ledger;
use crate::metrics::MetricFamilies;
use crate::options::Clock;
use crate::signers::SignerSet;

use cache::RevocationCache;
use ledger_sync::LedgerSync;
use publisher::ListPublisher;

pub(crate) use metrics::CrlMetrics;

/// CertificateRevocations: certificates that are no longer valid.
pub(crate) const CERTIFICATE_REVOCATIONS: ApiKind = ApiKind {
    group: RESOURCE.group,
    versions: &[RESOURCE.version],
    plural: RESOURCE.plural,
    kind: RESOURCE.kind,
};

/// CertificateRevocationLists: signed lists of revoked certificates.
const CERTIFICATE_REVOCATION_LISTS: ApiKind = ApiKind {
    group: LIST_RESOURCE.group,
    versions: &[LIST_RESOURCE.version],
    plural: LIST_RESOURCE.plural,
    kind: LIST_RESOURCE.kind,
};

/// What the controller of revocations needs.
#[derive(Clone)]
pub(crate) struct RevocationContext {
    /// Built-in signers whose lists are signed.
    pub(crate) built_in: Vec<BuiltInSigner>,
    /// Custom signers whose lists are signed.
    pub(crate) custom: Arc<SignerSet>,
    pub(crate) ledger: Ledger,
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<MetricFamilies>,
}

/// Records revocations and publishes lists while the server has both kinds; does not return.
pub(crate) async fn run(client: Client, resource: ApiResource, context: RevocationContext) -> Infallible {
    let cache = Arc::new(RevocationCache::default());
    let publisher = Arc::new(ListPublisher::new(client.clone(), cache.clone(), context.clone()));
    let sync = LedgerSync::new(client.clone(), resource, cache, publisher.clone(), &context);
    let lists = async {
        let start = |resource: ApiResource| {
            let (publisher, client, context) = (publisher.clone(), client.clone(), context.clone());
            async move {
                let delivery = delivery::run(client, resource.clone(), context);
                tokio::join!(publisher.run(resource), delivery).0
            }
        };
        run_while_served(
            client.clone(),
            CERTIFICATE_REVOCATION_LISTS,
            "certificate-revocation",
            start,
            || {},
        )
        .await;
    };
    tokio::join!(sync.run(), lists).0
}
