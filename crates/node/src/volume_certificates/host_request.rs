//! CertificateSigningRequests for certificates of the host, which has no pod.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt as _};
use windlass_pki::{AltNames, CertificateRequest, IssuedSubject, KeyType, build_csr};

use super::issuance::{IssuanceError, RequestOutcome};
use super::state_file::PendingRequest;
use super::state_machine::RefusalKind;
use crate::csr::{self, CsrObject, CsrOutcome, CsrStage, CsrSubmitError, SubmittedCsr, call_api};
use crate::volume::definition::CertificateSource;

/// How long to wait for a request before the wait is restarted. Nothing else happens then: approval
/// by people takes longer than signing.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// Shortest lifetime that the API accepts, in seconds.
const SHORTEST: i32 = 600;

/// Content of a certificate request for the host.
pub struct HostCertificateRequest<'a> {
    /// Common name (`CN`) of the requested subject.
    pub common_name: &'a str,
    /// Subject alternative names of the requested certificate; may be empty.
    pub names: &'a AltNames,
    /// The projection's certificate source: signer, key type and lifetime.
    pub source: &'a CertificateSource,
    /// Algorithm and size of the key that the request is for.
    pub kind: KeyType,
}

impl HostCertificateRequest<'_> {
    /// Submits a certificate request, or adopts the existing one.
    pub async fn submit(
        &self,
        client: &Client,
        begun: &PendingRequest,
    ) -> Result<SubmittedCsr, IssuanceError> {
        let api: Api<CsrObject> = Api::all(client.clone());
        let request = self.request(begun)?;
        let created = call_api(api.create(&PostParams::default(), &request)).await;
        let found = match created {
            Ok(created) => created,
            Err(CsrSubmitError::Api(kube::Error::Api(status))) if status.is_already_exists() => {
                self.adopt(&api, begun).await?
            }
            Err(error) => {
                return Err(IssuanceError::from_submit_error(
                    error,
                    "while creating CertificateSigningRequest",
                ));
            }
        };
        Ok(SubmittedCsr { name: begun.name.clone(), uid: found.uid().unwrap_or_default() })
    }

    fn request(&self, begun: &PendingRequest) -> Result<CsrObject, IssuanceError> {
        let subject = IssuedSubject::new(self.common_name, &[]);
        let text = build_csr(&begun.key, &subject, self.names).map_err(CsrSubmitError::from)?;
        let mut usages = vec!["digital signature", "client auth", "server auth"];
        if self.kind.can_encipher() {
            usages.insert(1, "key encipherment");
        }
        let annotations = &self.source.user_annotations;
        Ok(CsrObject {
            metadata: ObjectMeta {
                name: Some(begun.name.clone()),
                annotations: (!annotations.is_empty()).then(|| annotations.clone()),
                ..ObjectMeta::default()
            },
            spec: CertificateSigningRequestSpec {
                request: ByteString(text.into_bytes()),
                signer_name: self.source.signer.clone(),
                usages: Some(usages.into_iter().map(str::to_owned).collect()),
                expiration_seconds: self.source.max_expiration_seconds.map(|s| s.max(SHORTEST)),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        })
    }

    /// Adopts our own request, which an earlier call or process created.
    async fn adopt(&self, api: &Api<CsrObject>, begun: &PendingRequest) -> Result<CsrObject, IssuanceError> {
        let name = &begun.name;
        let Some(found) = call_api(api.get_opt(name)).await? else {
            // The request was deleted meanwhile.
            let message = format!("{name} was created and deleted at the same time");
            return Err(IssuanceError { message, lasting: false, taken: false });
        };
        let asked = CertificateRequest::from_pem(&found.spec.request.0);
        let ours = begun.key.public_key().as_der();
        let is_ours = asked.is_ok_and(|asked| asked.public_key().as_der() == ours);
        if !is_ours || found.spec.signer_name != self.source.signer {
            let message = format!("another CertificateSigningRequest has the name {name}");
            return Err(IssuanceError { message, lasting: false, taken: true });
        }
        Ok(found)
    }
}

/// Waits for the completion of a request, and reports what it waits for.
pub async fn wait(client: &Client, asked: &SubmittedCsr, mut on: impl FnMut(CsrStage)) -> RequestOutcome {
    loop {
        return match csr::wait_for_completion(client, asked, PATIENCE, &mut on).await {
            CsrOutcome::TimedOut(_) => continue,
            CsrOutcome::Issued(text) => {
                let chain = String::from_utf8_lossy(&text).into_owned();
                RequestOutcome::Issued { chain, begin: None }
            }
            CsrOutcome::Denied(why) => RequestOutcome::Refused { by: RefusalKind::Denied, why },
            CsrOutcome::Failed(why) => RequestOutcome::Refused { by: RefusalKind::Failed, why },
            CsrOutcome::Gone(why) => RequestOutcome::Gone(why),
            CsrOutcome::Unauthorized(why) => RequestOutcome::Failed(why),
        };
    }
}
