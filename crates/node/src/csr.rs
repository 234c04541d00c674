//! Submits CertificateSigningRequests whose names are derived from the key.
//!
//! A requester that submits the same key again, after a restart or a lost response, finds its
//! earlier request.

mod completion;

use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA512_256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt as _};
use time::OffsetDateTime;
use windlass_pki::{
    CertificateRequest, IssuedSubject, PrivateKey, PublicKey, SubjectKey, build_csr, parse_certificate_blocks,
};
use windlass_runtime::client_error::describe;

use crate::template::{CertificatePurpose, CertificateTemplate};

pub use completion::{CsrOutcome, CsrStage, wait_for_completion};

/// A CertificateSigningRequest of the `certificates.k8s.io` API.
pub type CsrObject = CertificateSigningRequest;

/// Time limit of one API call.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A request that exists on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmittedCsr {
    /// The name of the CertificateSigningRequest, derived from key and subject.
    pub name: String,
    /// UID of the request, which distinguishes it from namesakes.
    pub uid: String,
}

/// Why a request could not be submitted.
#[derive(Debug, thiserror::Error)]
pub enum CsrSubmitError {
    /// A request of this name exists, with different content.
    #[error("request {name} already exists, but {reason}")]
    Incompatible {
        /// The name of the existing request.
        name: String,
        /// How the existing request differs.
        reason: String,
    },
    /// The server rejected the call, or could not be reached.
    #[error("{}", describe(.0))]
    Api(#[from] kube::Error),
    /// The API call timed out.
    #[error("the server did not respond within {PATIENCE:?}")]
    Silence,
    /// The template cannot be encoded as a request.
    #[error("cannot encode the request: {0}")]
    Unwritable(#[from] windlass_pki::Error),
}

/// Returns the name of a request for this key and subject.
pub fn request_name(key: &PublicKey, template: &CertificateTemplate, usages: &[&str]) -> String {
    let mut digest = Context::new(&SHA512_256);
    let organizations = template.organizations.iter().map(String::as_bytes);
    let usages = usages.iter().map(|usage| usage.as_bytes());
    let first = [key.as_der(), template.common_name.as_bytes()];
    for item in first.into_iter().chain(organizations).chain(usages) {
        digest.update(URL_SAFE_NO_PAD.encode(item).as_bytes());
        digest.update(b"|");
    }
    format!("node-csr-{}", URL_SAFE_NO_PAD.encode(digest.finish()))
}

/// Submits a certificate request, or adopts the existing one.
pub async fn submit(
    client: &Client,
    purpose: CertificatePurpose,
    template: &CertificateTemplate,
    key: &PrivateKey,
    now: OffsetDateTime,
) -> Result<SubmittedCsr, CsrSubmitError> {
    let name = request_name(key.public_key(), template, &purpose.usages());
    let text = build_csr(key, &template.subject(), &template.names)?;
    let request = CsrObject {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(text.into_bytes()),
            signer_name: purpose.signer().to_owned(),
            usages: Some(purpose.usages().map(str::to_owned).to_vec()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let api: Api<CsrObject> = Api::all(client.clone());
    let params = PostParams::default();
    let create = || call_api(api.create(&params, &request));
    let found = match create().await {
        Err(CsrSubmitError::Api(kube::Error::Api(status))) if status.is_already_exists() => {
            match call_api(api.get_opt(&name)).await? {
                Some(found) => {
                    check_compatible(&found, purpose, template, key, now)
                        .map_err(|reason| CsrSubmitError::Incompatible { name: name.clone(), reason })?;
                    found
                }
                // The request was deleted meanwhile.
                None => create().await?,
            }
        }
        created => created?,
    };
    Ok(SubmittedCsr { name, uid: found.uid().unwrap_or_default() })
}

/// Checks whether a request is for our template and key. Kubernetes does not check the names, but
/// we require them.
fn check_compatible(
    found: &CsrObject,
    purpose: CertificatePurpose,
    template: &CertificateTemplate,
    key: &PrivateKey,
    now: OffsetDateTime,
) -> Result<(), String> {
    let signer = &found.spec.signer_name;
    if signer != purpose.signer() {
        return Err(format!("it is for the signer {signer}"));
    }
    let asked = CertificateRequest::from_pem(&found.spec.request.0)
        .map_err(|error| format!("it cannot be read: {error}"))?;
    let ours = SubjectKey::from_der(key.public_key().as_der());
    if !ours.is_ok_and(|ours| *asked.public_key() == ours) {
        return Err("it is for another key".into());
    }
    asked.verify_signature().map_err(|error| format!("it is not signed by its key: {error}"))?;
    if IssuedSubject::from_name(asked.subject()) != template.subject() {
        return Err("it is for another subject".into());
    }
    if asked.alt_names() != &template.names {
        return Err("it is for other names".into());
    }
    let issued = found.status.as_ref().and_then(|status| status.certificate.as_ref());
    let issued = issued.filter(|text| !text.0.is_empty()).map(|t| parse_certificate_blocks(&t.0));
    if let Some(Ok(chain)) = issued
        && chain.iter().any(|certificate| certificate.not_after() < now)
    {
        return Err("its certificate has expired".into());
    }
    Ok(())
}

/// Runs an API call with a time limit.
pub(crate) async fn call_api<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, CsrSubmitError> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(CsrSubmitError::Silence),
    }
}

#[cfg(test)]
mod tests;
