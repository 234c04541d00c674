//! Kinds that not every server has: which version of them it has, now and later.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::core::ApiResource;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::csr::explain;
use crate::node_certificates::Backoff;

/// A kind of the API group `certificates.k8s.io`, in any version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiKind {
    /// The lower-case plural, as in the URL of the API.
    pub plural: &'static str,
    /// The kind in UpperCamelCase, as in manifests.
    pub kind: &'static str,
}

/// ClusterTrustBundles, which publish the trust anchors of signers.
pub const TRUST_BUNDLES: ApiKind =
    ApiKind { plural: "clustertrustbundles", kind: "ClusterTrustBundle" };

/// PodCertificateRequests, with which nodes request pod certificates.
pub const POD_REQUESTS: ApiKind =
    ApiKind { plural: "podcertificaterequests", kind: "PodCertificateRequest" };

/// Whether the server has a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiAvailability {
    /// It has not been asked with success yet.
    Unknown,
    /// It does not have it.
    Missing,
    /// It has it, in this version.
    Served(ApiResource),
}

/// Told when there is a reason to look again at once: `notify_one`, when the server says 404, or 403,
/// which is what a node may hear of a kind that was turned off.
pub type RecheckSignal = Arc<Notify>;

impl ApiKind {
    /// It in every version that a server may have, the best first.
    pub fn versions(self) -> impl Iterator<Item = ApiResource> {
        VERSIONS.into_iter().map(move |version| ApiResource {
            group: GROUP.into(),
            version: version.into(),
            api_version: format!("{GROUP}/{version}"),
            kind: self.kind.into(),
            plural: self.plural.into(),
        })
    }
}

const GROUP: &str = "certificates.k8s.io";
/// API versions to look for, the preferred one first.
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// How soon to look again for what is missing.
const MISSING: Backoff = always(Duration::from_secs(10));
/// How soon to look for something better.
const PRESENT: Backoff = always(Duration::from_secs(240));
/// How soon to look again when the server does not say.
const TROUBLE: Backoff =
    Backoff { initial: Duration::from_millis(200), max: Duration::from_secs(30) };
/// How long the server may take to say.
const PATIENCE: Duration = Duration::from_secs(10);

const fn always(pause: Duration) -> Backoff {
    Backoff { initial: pause, max: pause }
}

/// Says whether the server has a kind, whenever that changes. While it does not say, it is as it was.
/// Does not end.
pub async fn watch_availability(
    client: Client,
    kind: ApiKind,
    again: RecheckSignal,
    out: watch::Sender<ApiAvailability>,
) {
    let mut failures = 0;
    loop {
        let pause = match discover(&client, kind).await {
            Ok(found) => {
                failures = 0;
                publish(&out, kind, &found);
                let pause = if found == ApiAvailability::Missing { MISSING } else { PRESENT };
                pause.after(0, rand::random())
            }
            Err(why) => {
                tracing::debug!(kind = kind.kind, why, "cannot find out what the server has");
                failures += 1;
                TROUBLE.after(failures - 1, rand::random())
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = again.notified() => {}
        }
    }
}

fn publish(out: &watch::Sender<ApiAvailability>, kind: ApiKind, found: &ApiAvailability) {
    out.send_if_modified(|known| {
        if known == found {
            return false;
        }
        match found {
            ApiAvailability::Unknown => {}
            ApiAvailability::Missing => {
                tracing::info!(kind = kind.kind, "the server does not have this kind");
            }
            ApiAvailability::Served(resource) => {
                tracing::debug!(kind = kind.kind, version = resource.api_version, "using");
            }
        }
        known.clone_from(found);
        true
    });
}

/// The kind in the best version that the server has.
async fn discover(client: &Client, kind: ApiKind) -> Result<ApiAvailability, String> {
    for resource in kind.versions() {
        let asked = client.list_api_group_resources(&resource.api_version);
        let list = match timeout(PATIENCE, asked).await {
            Ok(Ok(list)) => list,
            // For what it has never heard of, Kubernetes says so without a Status.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => continue,
            Ok(Err(error)) => return Err(explain(&error)),
            Err(_) => return Err("the server does not answer".into()),
        };
        if list.resources.iter().any(|each| each.name == kind.plural) {
            return Ok(ApiAvailability::Served(resource));
        }
    }
    Ok(ApiAvailability::Missing)
}
