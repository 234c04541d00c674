//! Loops for kinds that not every API server has: they wait until it does.

use std::future::Future;
use std::time::Duration;

use kube::Client;
use kube::core::ApiResource;
use tokio::task::JoinSet;
use windlass_api::trust_bundle;
use windlass_client_error::describe;

/// An API kind that not every server has, in the versions that this program supports.
#[derive(Clone, Copy, Debug)]
pub struct ApiKind {
    /// API group, such as `certificates.k8s.io`.
    pub group: &'static str,
    /// The versions that are understood, the best first.
    pub served: &'static [&'static str],
    /// Plural resource name in lower case.
    pub plural: &'static str,
    /// Kind name in CamelCase, such as `ClusterTrustBundle`.
    pub kind: &'static str,
}

impl ApiKind {
    /// It in every version that a server may have, the best first.
    pub fn versions(self) -> impl Iterator<Item = ApiResource> {
        self.served.iter().map(move |version| ApiResource {
            group: self.group.into(),
            version: (*version).into(),
            api_version: format!("{}/{version}", self.group),
            kind: self.kind.into(),
            plural: self.plural.into(),
        })
    }
}

/// ClusterTrustBundles, which hold the trust anchors of a signer.
pub const TRUST_BUNDLES: ApiKind = certificates_kind("clustertrustbundles", "ClusterTrustBundle");

/// PodCertificateRequests, which kubelets and node agents create for pods.
pub const POD_REQUESTS: ApiKind =
    certificates_kind("podcertificaterequests", "PodCertificateRequest");

/// Bundles in the API group of trust-manager.
pub const BUNDLES: ApiKind = ApiKind {
    group: trust_bundle::GROUP,
    served: &[trust_bundle::VERSION],
    plural: trust_bundle::PLURAL,
    kind: trust_bundle::KIND,
};

const fn certificates_kind(plural: &'static str, kind: &'static str) -> ApiKind {
    ApiKind { group: "certificates.k8s.io", served: &["v1", "v1beta1", "v1alpha1"], plural, kind }
}

/// How often to look whether something has changed.
const LOOK: Duration = Duration::from_secs(60);
/// How soon to look again if the server does not say.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Runs what `start` makes of a kind, in the best version that the server has, while it has it.
/// Does not end.
pub async fn run_while_served<F, L>(
    client: Client,
    wanted: ApiKind,
    controller: &'static str,
    start: F,
) where
    F: Fn(ApiResource) -> L,
    L: Future<Output = ()> + Send + 'static,
{
    run_while_served_or(client, wanted, controller, start, || {}).await;
}

/// As [`run_while_served`]; calls `absent` whenever the server is seen not to have the kind.
pub async fn run_while_served_or<F, L>(
    client: Client,
    wanted: ApiKind,
    controller: &'static str,
    start: F,
    absent: impl Fn(),
) where
    F: Fn(ApiResource) -> L,
    L: Future<Output = ()> + Send + 'static,
{
    let mut running: Option<ApiResource> = None;
    let mut work = JoinSet::new();
    let mut told = false;
    loop {
        let pause = match discover(&client, wanted).await {
            Ok(found) => {
                if found.is_none() && !told {
                    tracing::info!(
                        controller,
                        kind = wanted.kind,
                        "the server does not serve this kind; waiting for it"
                    );
                    told = true;
                }
                if found != running {
                    work.shutdown().await;
                    if let Some(resource) = &found {
                        tracing::debug!(controller, version = resource.api_version, "using");
                        work.spawn(start(resource.clone()));
                        told = false;
                    }
                    running = found;
                }
                if running.is_none() {
                    absent();
                }
                LOOK
            }
            Err(error) => {
                let error = describe(&error);
                tracing::debug!(controller, error, "cannot find out what the server serves");
                AFTER_FAILURE
            }
        };
        // Work does not end unless it panics; whoever watches over this one starts it again.
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            Some(ended) = work.join_next() => {
                let error = ended.err().map(|error| error.to_string());
                tracing::error!(controller, error, "controller ended");
                return;
            }
        }
    }
}

/// The kind in the best version that the server has.
pub async fn discover(
    client: &Client,
    wanted: ApiKind,
) -> Result<Option<ApiResource>, kube::Error> {
    for resource in wanted.versions() {
        let list = match client.list_api_group_resources(&resource.api_version).await {
            Ok(list) => list,
            Err(kube::Error::Api(status)) if status.is_not_found() => continue,
            Err(error) => return Err(error),
        };
        if list.resources.iter().any(|each| each.name == wanted.plural) {
            return Ok(Some(resource));
        }
    }
    Ok(None)
}
