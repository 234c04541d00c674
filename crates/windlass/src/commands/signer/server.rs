//! Signer objects, requests and trust bundles of all signers, as listed from a server.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use windlass_controllers::publisher::anchors::{AnchorRecords, node_trusts, nodes_lacking, records};
use windlass_controllers::signers::config::MANAGED_BY;
use windlass_pki::parse_certificate_blocks;
use windlass_runtime::discovery::{ApiKind, CLUSTER_TRUST_BUNDLES, POD_CERTIFICATE_REQUESTS, SIGNERS};

use super::certificate_requests::SignerRequest;
use super::signer_ca::CaCertificateInfo;
use super::signer_objects::SignerObject;
use crate::cli::ApiServerArgs;
use crate::commands::api_client;

/// Page size of list requests.
const PAGE: u32 = 500;

/// Signer objects, requests and trust bundles of the server, for all signers.
#[derive(Debug, Default)]
pub struct ServerSnapshot {
    /// CertificateSigningRequests and PodCertificateRequests of all signers.
    pub requests: Vec<SignerRequest>,
    /// ClusterTrustBundles that name a signer.
    pub bundles: Vec<SignerBundle>,
    /// Signer objects, by name; empty where the kind is not served.
    pub signers: Vec<SignerObject>,
    /// Result of listing CertificateSigningRequests of the cluster.
    pub csr_access: ListOutcome,
    pub pod_request_access: ListOutcome,
    /// Result of listing ClusterTrustBundles; older servers have none.
    pub bundle_access: ListOutcome,
    /// Result of listing Signer objects; other servers have none without a CRD.
    pub signer_access: ListOutcome,
}

/// Result of listing the objects of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ListOutcome {
    /// All objects of the kind were listed.
    #[default]
    Complete,
    /// The server does not know the kind.
    NotServed,
    /// The server refused the list; holds the reason.
    Forbidden(String),
}

#[derive(Debug, Clone)]
pub struct SignerBundle {
    pub name: String,
    pub signer: String,
    /// True if the managed-by label says Windlass.
    pub ours: bool,
    /// DER encodings of the certificates; empty if the bundle cannot be parsed.
    pub anchors: Vec<Vec<u8>>,
    /// One summary per certificate, in the same order.
    pub facts: Vec<CaCertificateInfo>,
    /// What Windlass recorded about the anchors.
    pub records: AnchorRecords,
    /// Nodes that select the bundle and lack its current content; filled if a CA waits for delivery
    /// and the nodes could be listed.
    pub lacking: Vec<String>,
}

/// Reasons why there is no snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotError {
    /// The user passed `--files-only`, so no server was contacted.
    NotRequested,
    /// No kubeconfig names a server; holds the reason.
    NoServer(String),
    /// The server could not be queried; holds the reason.
    Unreachable(String),
}

/// Lists Signer objects, and requests and trust bundles of all signers, PodCertificateRequests in one namespace if it is named; a forbidden
/// or missing kind is not an error.
pub async fn fetch_snapshot(
    server: &ApiServerArgs,
    namespace: Option<&str>,
) -> Result<ServerSnapshot, SnapshotError> {
    let client = connect(server).await?;
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let (requests, of_requests) = list_all(&requests).await?;
    let (pods, of_pods) = list_preferred_version(&client, POD_CERTIFICATE_REQUESTS, namespace).await?;
    let (bundles, of_bundles) = list_preferred_version(&client, CLUSTER_TRUST_BUNDLES, None).await?;
    let reports = match bundles.iter().filter_map(records).any(|records| is_delivery_pending(&records)) {
        true => list_all(&Api::<DynamicObject>::all_with(client.clone(), &node_trusts())).await?.0,
        false => Vec::new(),
    };
    let bundles = bundles.iter().filter_map(|each| SignerBundle::from_object(each, &reports));
    let mut bundles = bundles.collect::<Vec<_>>();
    bundles.sort_by(|one, other| one.name.cmp(&other.name));
    let (signers, of_signers) = list_preferred_version(&client, SIGNERS, None).await?;
    let asked = requests.iter().map(SignerRequest::from_csr);
    let asked = asked.chain(pods.iter().map(SignerRequest::from_pod_request)).collect();
    Ok(ServerSnapshot {
        requests: asked,
        bundles,
        signers: signers.iter().filter_map(SignerObject::from_object).collect(),
        csr_access: of_requests,
        pod_request_access: of_pods,
        bundle_access: of_bundles,
        signer_access: of_signers,
    })
}

pub async fn fetch_signer_objects(server: &ApiServerArgs) -> Result<ServerSnapshot, SnapshotError> {
    let client = connect(server).await?;
    let (signers, signer_access) = list_preferred_version(&client, SIGNERS, None).await?;
    let signers = signers.iter().filter_map(SignerObject::from_object).collect();
    Ok(ServerSnapshot { signers, signer_access, ..ServerSnapshot::default() })
}

async fn connect(server: &ApiServerArgs) -> Result<Client, SnapshotError> {
    let named = server.kubeconfig.is_some()
        || server.context.is_some()
        || std::env::var_os("KUBECONFIG").is_some_and(|v| !v.is_empty());
    let unnamed = |error: anyhow::Error| match named {
        true => SnapshotError::Unreachable(error.to_string()),
        false => SnapshotError::NoServer(error.to_string()),
    };
    api_client::connect(server).await.map_err(unnamed)
}

impl ServerSnapshot {
    /// Lists the kinds that could not be listed, with the reason. Signers are optional everywhere, so nothing is missing
    /// where they are not served.
    pub fn unavailable_kinds(&self) -> Vec<(&ListOutcome, String)> {
        let optional = Some(&self.signer_access).filter(|access| **access != ListOutcome::NotServed);
        let kinds = [
            ("CertificateSigningRequests", Some(&self.csr_access)),
            ("PodCertificateRequests", Some(&self.pod_request_access)),
            ("ClusterTrustBundles", Some(&self.bundle_access)),
            ("Signers", optional),
        ];
        let kinds = kinds.into_iter().filter_map(|(kind, access)| Some((kind, access?)));
        let skipped = kinds.filter_map(|(kind, sight)| match sight {
            ListOutcome::Complete => None,
            ListOutcome::NotServed => Some((sight, format!("the server does not serve {kind}; skipped"))),
            ListOutcome::Forbidden(why) => Some((sight, format!("{kind} skipped: {why}"))),
        });
        skipped.collect()
    }
}

impl SignerBundle {
    fn from_object(bundle: &DynamicObject, reports: &[DynamicObject]) -> Option<Self> {
        let spec = &bundle.data["spec"];
        let signer = spec["signerName"].as_str().filter(|signer| !signer.is_empty())?;
        let text = spec["trustBundle"].as_str().unwrap_or_default();
        // An invalid bundle contributes no anchors.
        let certificates = parse_certificate_blocks(text.as_bytes()).unwrap_or_default();
        let (label, value) = MANAGED_BY;
        let records = records(bundle).unwrap_or_default();
        let lacking = match is_delivery_pending(&records) {
            true => nodes_lacking(bundle, reports.to_vec()),
            false => Vec::new(),
        };
        Some(Self {
            records,
            lacking,
            name: bundle.name_any(),
            signer: signer.to_owned(),
            ours: bundle.labels().get(label).is_some_and(|found| found == value),
            anchors: certificates.iter().map(|each| each.der().to_vec()).collect(),
            facts: certificates.iter().map(CaCertificateInfo::from_certificate).collect(),
        })
    }
}

/// Returns whether a CA waits until nodes have its anchor.
fn is_delivery_pending(records: &AnchorRecords) -> bool {
    records.values().any(|record| record.hold_until.is_some())
}

/// Lists all objects of a kind in the best version that the server serves.
async fn list_preferred_version(
    client: &Client,
    wanted: ApiKind,
    namespace: Option<&str>,
) -> Result<(Vec<DynamicObject>, ListOutcome), SnapshotError> {
    for resource in wanted.resources() {
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        match list_all(&api).await? {
            (_, ListOutcome::NotServed) => {}
            listed => return Ok(listed),
        }
    }
    Ok((Vec::new(), ListOutcome::NotServed))
}

async fn list_all<K>(api: &Api<K>) -> Result<(Vec<K>, ListOutcome), SnapshotError>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut wanted = ListParams::default().limit(PAGE);
    let mut found = Vec::new();
    loop {
        let answer = api_client::with_timeout(api.list(&wanted)).await;
        let answer = answer.map_err(|error| SnapshotError::Unreachable(error.to_string()))?;
        let page = match answer {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                return Ok((Vec::new(), ListOutcome::NotServed));
            }
            Err(error) if is_forbidden(&error) => {
                return Ok((Vec::new(), ListOutcome::Forbidden(api_client::explain(error).to_string())));
            }
            Err(error) => {
                return Err(SnapshotError::Unreachable(api_client::explain(error).to_string()));
            }
        };
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => wanted = wanted.continue_token(&token),
            None => return Ok((found, ListOutcome::Complete)),
        }
    }
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}
