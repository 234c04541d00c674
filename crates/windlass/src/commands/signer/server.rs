//! What a server has for signers: requests, pods' requests and trust bundles.

use std::path::Path;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use windlass_controllers::publish::anchors::{Records, node_trusts, nodes_lacking, records};
use windlass_controllers::served::{POD_REQUESTS, TRUST_BUNDLES, Wanted};
use windlass_controllers::signers::config::MANAGED_BY;
use windlass_pki::parse_certificate_blocks;

use super::asked::Asked;
use super::authority::Facts;
use crate::commands::connect;

/// Objects to get at a time.
const PAGE: u32 = 500;

/// What a server has.
#[derive(Debug, Default)]
pub struct Seen {
    /// What was asked of signers, by pods too.
    pub asked: Vec<Asked>,
    /// Anchors that are published for a signer.
    pub bundles: Vec<Bundle>,
    /// Whether CertificateSigningRequests could be looked at.
    pub of_requests: Sight,
    /// Whether PodCertificateRequests could.
    pub of_pods: Sight,
    /// Whether ClusterTrustBundles could.
    pub of_bundles: Sight,
}

/// Whether objects of a kind could be looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Sight {
    /// All of them.
    #[default]
    Clear,
    /// The server does not know the kind.
    Absent,
    /// The server does not show them, and why.
    Refused(String),
}

/// A trust bundle of a signer.
#[derive(Debug, Clone)]
pub struct Bundle {
    pub name: String,
    pub signer: String,
    /// Whether Windlass made it.
    pub ours: bool,
    /// Its certificates.
    pub anchors: Vec<Vec<u8>>,
    /// What they say.
    pub facts: Vec<Facts>,
    /// What Windlass recorded about them.
    pub records: Records,
    /// The nodes that select it and do not have it as it is, if a CA waits for them and they could
    /// be looked at.
    pub lacking: Vec<String>,
}

/// Why there is nothing to be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// Nobody wants to know.
    NotAsked,
    /// There is no kubeconfig that would name a server.
    NoServer(String),
    /// There is one, and the server is of no help.
    Unreachable(String),
}

/// Looks at a server.
pub async fn look(kubeconfig: Option<&Path>) -> Result<Seen, Trouble> {
    let named =
        kubeconfig.is_some() || std::env::var_os("KUBECONFIG").is_some_and(|v| !v.is_empty());
    let unnamed = |error: anyhow::Error| match named {
        true => Trouble::Unreachable(error.to_string()),
        false => Trouble::NoServer(error.to_string()),
    };
    let client = connect::client(kubeconfig).await.map_err(unnamed)?;
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let (requests, of_requests) = all(&requests).await?;
    let (pods, of_pods) = newest(&client, POD_REQUESTS).await?;
    let (bundles, of_bundles) = newest(&client, TRUST_BUNDLES).await?;
    let reports = match bundles.iter().filter_map(records).any(|records| is_held(&records)) {
        true => all(&Api::<DynamicObject>::all_with(client.clone(), &node_trusts())).await?.0,
        false => Vec::new(),
    };
    let bundles = bundles.iter().filter_map(|each| Bundle::of(each, &reports));
    let mut bundles = bundles.collect::<Vec<_>>();
    bundles.sort_by(|one, other| one.name.cmp(&other.name));
    let asked = requests.iter().map(Asked::of_request);
    let asked = asked.chain(pods.iter().map(Asked::of_pod)).collect();
    Ok(Seen { asked, bundles, of_requests, of_pods, of_bundles })
}

impl Seen {
    /// What could not be looked at, and why.
    pub fn left_out(&self) -> Vec<(&Sight, String)> {
        let kinds = [
            ("CertificateSigningRequests", &self.of_requests),
            ("PodCertificateRequests", &self.of_pods),
            ("ClusterTrustBundles", &self.of_bundles),
        ];
        let left_out = kinds.into_iter().filter_map(|(kind, sight)| match sight {
            Sight::Clear => None,
            Sight::Absent => Some((sight, format!("the server has no {kind}; they are left out"))),
            Sight::Refused(why) => Some((sight, format!("{kind} are left out: {why}"))),
        });
        left_out.collect()
    }
}

impl Bundle {
    fn of(bundle: &DynamicObject, reports: &[DynamicObject]) -> Option<Self> {
        let spec = &bundle.data["spec"];
        let signer = spec["signerName"].as_str().filter(|signer| !signer.is_empty())?;
        let text = spec["trustBundle"].as_str().unwrap_or_default();
        // What cannot be read holds nobody's anchors.
        let certificates = parse_certificate_blocks(text.as_bytes()).unwrap_or_default();
        let (label, value) = MANAGED_BY;
        let records = records(bundle).unwrap_or_default();
        let lacking = match is_held(&records) {
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
            facts: certificates.iter().map(Facts::of).collect(),
        })
    }
}

/// Whether a CA waits until nodes have its anchor.
fn is_held(records: &Records) -> bool {
    records.values().any(|record| record.hold_until.is_some())
}

/// All objects of a kind, in the best version that the server has.
async fn newest(client: &Client, wanted: Wanted) -> Result<(Vec<DynamicObject>, Sight), Trouble> {
    for resource in wanted.versions() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        match all(&api).await? {
            (_, Sight::Absent) => {}
            listed => return Ok(listed),
        }
    }
    Ok((Vec::new(), Sight::Absent))
}

async fn all<K>(api: &Api<K>) -> Result<(Vec<K>, Sight), Trouble>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut wanted = ListParams::default().limit(PAGE);
    let mut found = Vec::new();
    loop {
        let answer = connect::answer(api.list(&wanted)).await;
        let answer = answer.map_err(|error| Trouble::Unreachable(error.to_string()))?;
        let page = match answer {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                return Ok((Vec::new(), Sight::Absent));
            }
            Err(error) if is_refusal(&error) => {
                return Ok((Vec::new(), Sight::Refused(connect::explain(error).to_string())));
            }
            Err(error) => return Err(Trouble::Unreachable(connect::explain(error).to_string())),
        };
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => wanted = wanted.continue_token(&token),
            None => return Ok((found, Sight::Clear)),
        }
    }
}

fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}
