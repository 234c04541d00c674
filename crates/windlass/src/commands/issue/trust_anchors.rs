//! Trust anchors of a signer, from its ClusterTrustBundles.

use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt};
use windlass_pki::{parse_certificate_blocks, pem};
use windlass_runtime::discovery::CLUSTER_TRUST_BUNDLES;

use crate::commands::api_client;

pub enum SignerAnchors {
    /// Concatenated PEM blocks without duplicates.
    Published(String),
    /// The signer publishes no ClusterTrustBundle.
    None,
    /// The bundles could not be read; holds the reason.
    Unknown(String),
}

impl SignerAnchors {
    /// Selects the anchors to write, with a note for the user. The previous ones stay if the current ones are unknown:
    /// they usually verify a renewed certificate, too.
    pub fn or_previous(self, before: Option<String>, signer: &str) -> (Option<String>, Option<String>) {
        match (self, before) {
            (Self::Published(text), _) => (Some(text), None),
            (Self::None, _) => {
                let reason = format!("signer {signer} publishes no ClusterTrustBundle");
                (None, Some(format!("ca.crt not written: {reason}")))
            }
            (Self::Unknown(why), None) => (None, Some(format!("ca.crt not written: {why}"))),
            (Self::Unknown(why), before) => (before, Some(format!("ca.crt not updated: {why}"))),
        }
    }
}

/// Fetches the anchors of a signer. A failure does not prevent the issuance.
pub async fn fetch_anchors(client: &Client, signer: &str) -> SignerAnchors {
    let bundles = match api_client::with_timeout(bundles(client, signer)).await {
        Ok(Ok(Some(bundles))) => bundles,
        Ok(Ok(None)) => {
            return SignerAnchors::Unknown("the server does not serve ClusterTrustBundles".into());
        }
        Ok(Err(error)) => return SignerAnchors::Unknown(api_client::explain(error).to_string()),
        Err(error) => return SignerAnchors::Unknown(error.to_string()),
    };
    let texts = bundles.iter().filter_map(|bundle| bundle.data["spec"]["trustBundle"].as_str());
    joined(texts).map_or(SignerAnchors::None, SignerAnchors::Published)
}

/// Lists the bundles of a signer by name; `None` if the server does not serve them.
async fn bundles(client: &Client, signer: &str) -> Result<Option<Vec<DynamicObject>>, kube::Error> {
    for resource in CLUSTER_TRUST_BUNDLES.resources() {
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

/// Concatenates the certificates of several bundles without duplicates.
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

    #[test]
    fn old_anchors_stay_while_the_new_ones_are_unknown() {
        let old = || Some("old".to_owned());
        let settled = |anchors: SignerAnchors, before| {
            let (text, said) = anchors.or_previous(before, "example.com/a");
            (text, said.unwrap_or_default())
        };
        let (text, said) = settled(SignerAnchors::Unknown("no answer".into()), old());
        assert_eq!((text, said.as_str()), (old(), "ca.crt not updated: no answer"));
        let (text, said) = settled(SignerAnchors::Unknown("no answer".into()), None);
        assert_eq!((text, said.as_str()), (None, "ca.crt not written: no answer"));
        let (text, said) = settled(SignerAnchors::None, old());
        assert!(text.is_none() && said.contains("example.com/a publishes no"), "{said}");
        assert_eq!(
            settled(SignerAnchors::Published("new".into()), old()),
            (Some("new".into()), String::new())
        );
    }

    fn anchor(name: &str) -> String {
        let key = PrivateKey::generate().unwrap();
        super::super::certificate_dir::tests::authority(name, key).certificate().to_pem()
    }
}
