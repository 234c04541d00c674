//! Discovery of kinds that not every API server has: which version it serves, now and later.

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::core::ApiResource;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use windlass_api::trust_bundle;

use crate::backoff::Backoff;
use crate::client_error::describe;

/// A kind of the API, with the versions that Windlass understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiKind {
    /// API group, such as `certificates.k8s.io`.
    pub group: &'static str,
    /// Versions that are understood, best first.
    pub versions: &'static [&'static str],
    /// Plural resource name, as in URLs.
    pub plural: &'static str,
    /// Name of the kind, as in manifests.
    pub kind: &'static str,
}

/// ClusterTrustBundles: trust anchors that signers publish.
pub const CLUSTER_TRUST_BUNDLES: ApiKind = certificates_kind("clustertrustbundles", "ClusterTrustBundle");

/// PodCertificateRequests: certificate requests that kubelets and node agents make for pods.
pub const POD_CERTIFICATE_REQUESTS: ApiKind =
    certificates_kind("podcertificaterequests", "PodCertificateRequest");

/// Bundles of trust-manager, which distribute trust anchors to namespaces.
pub const TRUST_MANAGER_BUNDLES: ApiKind = ApiKind {
    group: trust_bundle::GROUP,
    versions: &[trust_bundle::VERSION],
    plural: trust_bundle::PLURAL,
    kind: trust_bundle::KIND,
};

/// Signers: custom signers of certificates, with their CAs.
pub const SIGNERS: ApiKind =
    ApiKind { group: "windlass.dev", versions: &["v1alpha1"], plural: "signers", kind: "Signer" };

/// CARotations: replacements of the CAs of signers.
pub const CA_ROTATIONS: ApiKind =
    ApiKind { group: "windlass.dev", versions: &["v1alpha1"], plural: "carotations", kind: "CARotation" };

/// CertificateRevocationLists: the CRLs of the authorities of signers.
pub const CERTIFICATE_REVOCATION_LISTS: ApiKind = ApiKind {
    group: "windlass.dev",
    versions: &["v1alpha1"],
    plural: "certificaterevocationlists",
    kind: "CertificateRevocationList",
};

const fn certificates_kind(plural: &'static str, kind: &'static str) -> ApiKind {
    let versions = &["v1", "v1beta1", "v1alpha1"];
    ApiKind { group: "certificates.k8s.io", versions, plural, kind }
}

/// Whether the server serves a kind, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindPresence {
    /// No request to the discovery API has succeeded yet.
    Unknown,
    /// The server does not serve the kind in any version that is understood.
    NotServed,
    /// The best version that the server serves.
    Served(ApiResource),
}

/// Requests discovery at once: call `notify_one` when the server responds 404, or 403, which a node may get
/// for a kind that was turned off.
pub type RecheckSignal = Arc<Notify>;

/// Intervals between two requests to the discovery API, each with jitter.
#[derive(Clone, Copy, Debug)]
pub struct DiscoveryPacing {
    /// Interval while the kind is not served.
    pub not_served: Backoff,
    /// Interval while the kind is served: a better version may appear.
    pub served: Backoff,
    /// Interval while the server does not respond.
    pub failed: Backoff,
}

/// Pacing of node agents, of which there are many, and which signal a recheck when a watch fails.
pub const AGENT_PACING: DiscoveryPacing = DiscoveryPacing {
    not_served: Backoff::constant(Duration::from_secs(10)),
    served: Backoff::constant(Duration::from_secs(240)),
    failed: Backoff::new(Duration::from_millis(200), Duration::from_secs(30)),
};

/// Pacing of controllers, of which there are few.
pub const CONTROLLER_PACING: DiscoveryPacing = DiscoveryPacing {
    not_served: Backoff::constant(Duration::from_secs(60)),
    served: Backoff::constant(Duration::from_secs(60)),
    failed: Backoff::new(Duration::from_millis(200), Duration::from_secs(2)),
};

/// Time after which a request to the discovery API has failed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

impl ApiKind {
    /// Lists the kind in every version that is understood, best first.
    pub fn resources(self) -> impl Iterator<Item = ApiResource> {
        self.versions.iter().map(move |version| ApiResource {
            group: self.group.into(),
            version: (*version).into(),
            api_version: format!("{}/{version}", self.group),
            kind: self.kind.into(),
            plural: self.plural.into(),
        })
    }

    /// Finds the best version that the server serves; `None` if it serves none. Has no timeout.
    pub async fn find(self, client: &Client) -> Result<Option<ApiResource>, kube::Error> {
        for resource in self.resources() {
            let list = match client.list_api_group_resources(&resource.api_version).await {
                Ok(list) => list,
                // For groups and versions that it does not know, kube-apiserver sends 404 without a Status.
                Err(kube::Error::Api(status)) if status.code == 404 || status.is_not_found() => {
                    continue;
                }
                Err(error) => return Err(error),
            };
            if list.resources.iter().any(|each| each.name == self.plural) {
                return Ok(Some(resource));
            }
        }
        Ok(None)
    }
}

/// Requests discovery repeatedly, at the intervals of a pacing.
struct PresencePoll {
    client: Client,
    kind: ApiKind,
    pacing: DiscoveryPacing,
    failures: u32,
}

impl PresencePoll {
    fn new(client: Client, kind: ApiKind, pacing: DiscoveryPacing) -> Self {
        Self { client, kind, pacing, failures: 0 }
    }

    /// Requests discovery once. The result is `None` if the server does not say; the duration is the
    /// interval until the next request.
    async fn poll(&mut self) -> (Option<KindPresence>, Duration) {
        let error = match timeout(REQUEST_TIMEOUT, self.kind.find(&self.client)).await {
            Ok(Ok(found)) => {
                self.failures = 0;
                let (presence, pause) = match found {
                    Some(resource) => (KindPresence::Served(resource), self.pacing.served),
                    None => (KindPresence::NotServed, self.pacing.not_served),
                };
                return (Some(presence), pause.delay(0, rand::random()));
            }
            Ok(Err(error)) => describe(&error),
            Err(_) => format!("timed out after {REQUEST_TIMEOUT:?}"),
        };
        tracing::debug!(kind = self.kind.kind, error, "cannot discover kind");
        let pause = self.pacing.failed.delay(self.failures, rand::random());
        self.failures = self.failures.saturating_add(1);
        (None, pause)
    }
}

/// Publishes whether the server serves a kind, whenever that changes. While discovery fails, the last result stays.
pub async fn watch_presence(
    client: Client,
    kind: ApiKind,
    pacing: DiscoveryPacing,
    recheck: RecheckSignal,
    presence: watch::Sender<KindPresence>,
) -> Infallible {
    let mut discovery = PresencePoll::new(client, kind, pacing);
    loop {
        let (found, pause) = discovery.poll().await;
        if let Some(found) = found {
            publish(&presence, kind, found);
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = recheck.notified() => {}
        }
    }
}

fn publish(presence: &watch::Sender<KindPresence>, kind: ApiKind, found: KindPresence) {
    presence.send_if_modified(|known| {
        if *known == found {
            return false;
        }
        match &found {
            KindPresence::Unknown => {}
            KindPresence::NotServed => {
                tracing::info!(kind = kind.kind, "kind is not served; waiting for it");
            }
            KindPresence::Served(resource) => {
                tracing::debug!(kind = kind.kind, version = resource.api_version, "discovered kind");
            }
        }
        *known = found;
        true
    });
}

/// Runs the future that `start` returns for the best version of a kind, for as long as the server serves
/// that version. `not_served` is called after every discovery that does not find the kind.
///
/// Returns only if the future ends or panics, which is logged; the supervisor of the controller restarts it.
pub async fn run_while_served<F, L>(
    client: Client,
    kind: ApiKind,
    controller: &'static str,
    start: F,
    not_served: impl Fn(),
) where
    F: Fn(ApiResource) -> L,
    L: Future<Output: Send + 'static> + Send + 'static,
{
    let mut discovery = PresencePoll::new(client, kind, CONTROLLER_PACING);
    let mut current = KindPresence::Unknown;
    let mut running = JoinSet::new();
    loop {
        let (found, pause) = discovery.poll().await;
        if let Some(found) = found {
            if found != current {
                running.shutdown().await;
                match &found {
                    KindPresence::Served(resource) => {
                        let version = resource.api_version.as_str();
                        tracing::debug!(controller, version, "discovered kind; starting");
                        running.spawn(start(resource.clone()));
                    }
                    KindPresence::NotServed | KindPresence::Unknown => {
                        let kind = kind.kind;
                        tracing::info!(controller, kind, "kind is not served; waiting for it");
                    }
                }
                current = found;
            }
            if current == KindPresence::NotServed {
                not_served();
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            Some(ended) = running.join_next() => {
                let error = ended.err().map(|error| error.to_string());
                tracing::error!(controller, error, "controller ended");
                return;
            }
        }
    }
}
