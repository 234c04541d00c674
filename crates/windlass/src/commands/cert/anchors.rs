//! Bundles that contain the trust anchor of a certificate, and the nodes that have them.

use std::collections::BTreeSet;

use anyhow::Result;
use kube::Client;
use serde::Serialize;
use serde_json::Value;
use windlass_node::volume::trust_anchors::{BundleSelector, TrustBundle};
use windlass_pki::{Certificate, ForeignCertificate, leads_to_anchor};

use crate::commands::trust::delivery::{BundleDelivery, TrustState, overview};
use crate::commands::trust::delivery_summary;
use crate::commands::trust::server_watch::TrustWatcher;

/// A bundle with the trust anchor of a certificate.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AnchorDelivery {
    /// The bundle as `windlass trust status -o json` prints it.
    #[serde(flatten)]
    pub bundle: Value,
    /// Nodes whose volumes have the current content of the bundle.
    pub delivered_to: Vec<String>,
    #[serde(skip)]
    pub name: String,
    #[serde(skip)]
    pub summary: String,
}

/// Finds the bundles that contain the anchor, and evaluates their delivery as `windlass trust status` does.
pub async fn find(
    client: Client,
    chain: &[ForeignCertificate],
    authority: Option<&[u8]>,
) -> Result<Vec<AnchorDelivery>> {
    let watcher = TrustWatcher::start(client).await?;
    Ok(evaluate(&watcher.world, chain, authority))
}

fn evaluate(
    world: &TrustState,
    chain: &[ForeignCertificate],
    authority: Option<&[u8]>,
) -> Vec<AnchorDelivery> {
    let has_anchor = |delivery: &BundleDelivery| {
        let selected = world.bundles.select(&BundleSelector::Name(delivery.name.clone()));
        selected.iter().any(|bundle| contains_anchor(bundle, chain, authority))
    };
    let deliveries = overview(world).deliveries;
    deliveries.iter().filter(|delivery| has_anchor(delivery)).map(AnchorDelivery::new).collect()
}

/// Whether signatures lead from the chain to a certificate of the bundle, or it has the CA key that signed. If
/// the chain is unknown, an anchor above an intermediate is not found.
fn contains_anchor(bundle: &TrustBundle, chain: &[ForeignCertificate], authority: Option<&[u8]>) -> bool {
    let has_key = |der: &[u8]| {
        let identifier =
            Certificate::from_der(der).ok().and_then(|found| found.key_identifier().map(<[u8]>::to_vec));
        identifier.is_some() && identifier.as_deref() == authority
    };
    let anchors = || bundle.anchors.der().filter_map(|der| ForeignCertificate::from_der(der).ok());
    bundle.anchors.der().any(has_key)
        || (!chain.is_empty() && leads_to_anchor(chain, &anchors().collect::<Vec<_>>()))
}

impl AnchorDelivery {
    fn new(delivery: &BundleDelivery) -> Self {
        let lacking: BTreeSet<&str> = delivery.lacking.iter().map(|at| at.node.as_str()).collect();
        let carriers = delivery.carriers.iter().map(|at| &at.node);
        Self {
            bundle: delivery.summary(),
            delivered_to: carriers.filter(|node| !lacking.contains(node.as_str())).cloned().collect(),
            name: delivery.name.clone(),
            summary: delivery_summary(delivery),
        }
    }
}
