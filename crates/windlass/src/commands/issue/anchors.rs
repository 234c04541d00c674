//! What certificates of a signer are verified with, as the cluster publishes it.

use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::{Client, ResourceExt};
use windlass_pki::{parse_certificate_blocks, pem};

use crate::commands::connect;

const GROUP: &str = "certificates.k8s.io";
const KIND: &str = "ClusterTrustBundle";
const PLURAL: &str = "clustertrustbundles";
/// The best first.
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// The anchors of a signer.
pub enum Anchors {
    /// As PEM, each once.
    Published(String),
    /// Why there are none.
    None(String),
}

impl Anchors {
    /// The anchors as PEM.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Published(text) => Some(text),
            Self::None(_) => None,
        }
    }
}

/// Finds the anchors of a signer. That there are none is no reason to be without a certificate.
pub async fn of(client: &Client, signer: &str) -> Anchors {
    let bundles = match connect::answer(bundles(client, signer)).await {
        Ok(Ok(Some(bundles))) => bundles,
        Ok(Ok(None)) => return Anchors::None("the server has no ClusterTrustBundles".into()),
        Ok(Err(error)) => return Anchors::None(connect::explain(error).to_string()),
        Err(error) => return Anchors::None(error.to_string()),
    };
    let texts = bundles.iter().filter_map(|bundle| bundle.data["spec"]["trustBundle"].as_str());
    match joined(texts) {
        Some(text) => Anchors::Published(text),
        None => Anchors::None(format!("{signer} publishes no ClusterTrustBundle")),
    }
}

/// The bundles of a signer, in the order of their names; none if the server does not know bundles.
async fn bundles(client: &Client, signer: &str) -> Result<Option<Vec<DynamicObject>>, kube::Error> {
    for version in VERSIONS {
        let resource = ApiResource {
            group: GROUP.into(),
            version: version.into(),
            api_version: format!("{GROUP}/{version}"),
            kind: KIND.into(),
            plural: PLURAL.into(),
        };
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let wanted = ListParams::default().fields(&format!("spec.signerName={signer}"));
        match api.list(&wanted).await {
            Ok(mut list) => {
                list.items.sort_by_key(ResourceExt::name_any);
                return Ok(Some(list.items));
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The certificates of several bundles, each once.
fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for certificate in texts.filter_map(|text| parse_certificate_blocks(text.as_bytes()).ok()) {
        for certificate in certificate {
            if !all.iter().any(|der| der == certificate.der()) {
                all.push(certificate.der().to_vec());
            }
        }
    }
    (!all.is_empty()).then(|| pem::encode_certificates(all.iter().map(Vec::as_slice)))
}

#[cfg(test)]
mod tests {
    use windlass_pki::PrivateKey;

    use super::*;

    #[test]
    fn anchors_of_several_bundles_are_joined() {
        let (one, two) = (anchor("one"), anchor("two"));
        let both = format!("# first\n{one}{two}");
        assert_eq!(joined([both.as_str(), &two].into_iter()), Some(format!("{one}{two}")));
        assert_eq!(joined(["rubbish", ""].into_iter()), None);
        assert_eq!(joined([].into_iter()), None);
    }

    fn anchor(name: &str) -> String {
        let key = PrivateKey::generate().unwrap();
        super::super::place::tests::authority(name, key).certificate().to_pem()
    }
}
