//! PodCertificateRequests for certificates of pods, in the API version that the server has.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use windlass_pki::{CertificateRequest, PrivateKey, build_stub_csr};

use super::dispatcher::{RequestSubscription, RequestUpdate};
use super::issuance::{IssuanceError, RequestOutcome};
use super::managed_certificate::PodRequester;
use super::state_file::PendingRequest;
use super::state_machine::RefusalKind;
use crate::csr::{CsrSubmitError, SubmittedCsr, call_api};
use crate::node_certificates::RandomSource;
use crate::volume::definition::CertificateSource;
use windlass_runtime::csr::{describe_reason, status_counts};
use windlass_runtime::discovery::RecheckSignal;

/// How long to wait for an update before polling whether the request still exists.
const LOOK: Duration = Duration::from_secs(10 * 60);
/// How long to wait before polling again after an error of the server.
const RETRY: Duration = Duration::from_secs(5);
/// Period over which polls are spread.
const SPREAD: Duration = Duration::from_secs(5 * 60);

/// Submits PodCertificateRequests for certificates of pods.
pub struct PodRequestClient {
    client: Client,
    node: String,
    random: RandomSource,
    again: RecheckSignal,
    /// UID of the Node object, once known.
    node_uid: Mutex<Option<String>>,
    /// Whether the server does not support a PKCS#10 request in the PodCertificateRequest.
    older: AtomicBool,
}

/// Whether a request is new or existed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOrigin {
    /// This call created the request on the API server.
    Created,
    /// An earlier call or process created the request.
    Existing,
}

/// Returns the outcome of a request; `None` if it is pending.
pub fn request_outcome(request: &DynamicObject) -> Option<RequestOutcome> {
    let status = request.data.get("status");
    let conditions = status.and_then(|s| s.get("conditions")).and_then(Value::as_array);
    let said = |kind: &str| {
        let mut all = conditions.into_iter().flatten();
        all.find(|condition| text(condition, "type") == kind && status_counts(text(condition, "status")))
    };
    let refused = |by, condition| Some(RequestOutcome::Refused { by, why: condition_message(condition) });
    if let Some(denied) = said("Denied") {
        return refused(RefusalKind::Denied, denied);
    }
    if let Some(failed) = said("Failed") {
        return refused(RefusalKind::Failed, failed);
    }
    match (said("Issued"), status) {
        (Some(_), Some(status)) => Some(RequestOutcome::Issued {
            chain: text(status, "certificateChain").to_owned(),
            begin: OffsetDateTime::parse(text(status, "beginRefreshAt"), &Rfc3339).ok(),
        }),
        _ => None,
    }
}

impl PodRequestClient {
    /// Creates a client that submits requests for pods of this node.
    pub fn new(client: Client, node: String, random: RandomSource, again: RecheckSignal) -> Self {
        let (node_uid, older) = (Mutex::new(None), AtomicBool::new(false));
        Self { client, node, random, again, node_uid, older }
    }

    /// Submits a certificate request, or adopts the existing one.
    pub async fn submit(
        &self,
        resource: &ApiResource,
        pod: PodRequester<'_>,
        source: &CertificateSource,
        begun: &PendingRequest,
    ) -> Result<(SubmittedCsr, RequestOrigin), IssuanceError> {
        let account = self.account(pod).await?;
        let node = self.node_uid().await?;
        let api = self.api(resource, pod.namespace);
        let mut older = resource.version == "v1alpha1" || self.older.load(Relaxed);
        loop {
            let key = key_material(&begun.key, pod.uid, older && resource.version != "v1");
            let key = key.map_err(CsrSubmitError::from)?;
            let spec = self.spec(pod, source, [&account, &node], key);
            let mut request = DynamicObject::new(&begun.name, resource).within(pod.namespace);
            request = request.data(json!({ "spec": spec }));
            request.metadata.owner_references = Some(vec![owner(pod)]);
            let params = PostParams::default();
            let created = call_api(api.create(&params, &request)).await;
            let found = match created {
                Ok(created) => created,
                Err(CsrSubmitError::Api(kube::Error::Api(status))) if status.is_already_exists() => {
                    return adopt(&api, pod, begun).await;
                }
                Err(CsrSubmitError::Api(kube::Error::Api(status)))
                    if !older && knows_only_older(resource, &status.message) =>
                {
                    self.older.store(true, Relaxed);
                    older = true;
                    continue;
                }
                Err(error) => {
                    // Another Node may have this name by now.
                    *self.cached_uid() = None;
                    if matches!(&error, CsrSubmitError::Api(kube::Error::Api(s)) if s.code == 404) {
                        self.again.notify_one();
                    }
                    return Err(IssuanceError::from_submit_error(
                        error,
                        "while creating PodCertificateRequest",
                    ));
                }
            };
            let asked = SubmittedCsr { name: begun.name.clone(), uid: found.uid().unwrap_or_default() };
            return Ok((asked, RequestOrigin::Created));
        }
    }

    /// Waits for the completion of a request.
    pub async fn wait(
        &self,
        resource: &ApiResource,
        pod: PodRequester<'_>,
        (asked, made): &(SubmittedCsr, RequestOrigin),
        listener: &mut RequestSubscription<'_>,
    ) -> RequestOutcome {
        let api = self.api(resource, pod.namespace);
        // Updates from before the subscription are not repeated.
        let mut look = *made == RequestOrigin::Existing;
        loop {
            let pause = LOOK + SPREAD.mul_f64((self.random)().clamp(0.0, 1.0));
            let seen = match look {
                true => poll_request(&api, &asked.name).await,
                false => match tokio::time::timeout(pause, listener.next()).await {
                    Ok(RequestUpdate::Absent) | Err(_) => poll_request(&api, &asked.name).await,
                    Ok(seen) => Some(seen),
                },
            };
            // If the first poll fails, it must be repeated.
            look = look && seen.is_none();
            if look {
                tokio::time::sleep(RETRY).await;
            }
            match seen {
                Some(RequestUpdate::Present { uid, ended }) if uid == asked.uid => {
                    if let Some(ended) = ended {
                        return ended;
                    }
                }
                // An earlier or a later request of this name; a poll will show which.
                Some(RequestUpdate::Present { .. }) => {
                    if let Some(RequestUpdate::Present { uid, .. }) = poll_request(&api, &asked.name).await
                        && uid != asked.uid
                    {
                        return RequestOutcome::Gone("it was replaced by another one");
                    }
                }
                Some(RequestUpdate::Deleted { uid }) if uid == asked.uid => {
                    return RequestOutcome::Gone(DELETED);
                }
                Some(RequestUpdate::Deleted { .. }) | None => {}
                Some(RequestUpdate::Absent) => return RequestOutcome::Gone(DELETED),
            }
        }
    }

    fn api(&self, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, resource)
    }

    /// Returns the current UID of a pod's service account.
    async fn account(&self, pod: PodRequester<'_>) -> Result<String, IssuanceError> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), pod.namespace);
        let found = call_api(accounts.get(pod.service_account)).await;
        let found =
            found.map_err(|e| IssuanceError::from_submit_error(e, "while fetching service account"))?;
        Ok(found.uid().unwrap_or_default())
    }

    async fn node_uid(&self) -> Result<String, IssuanceError> {
        if let Some(known) = self.cached_uid().clone() {
            return Ok(known);
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let found = call_api(nodes.get(&self.node)).await;
        let found = found.map_err(|e| IssuanceError::from_submit_error(e, "while fetching the node"))?;
        let uid = found.uid().unwrap_or_default();
        *self.cached_uid() = Some(uid.clone());
        Ok(uid)
    }

    fn cached_uid(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.node_uid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spec(
        &self,
        pod: PodRequester<'_>,
        source: &CertificateSource,
        [account, node]: [&str; 2],
        mut spec: Map<String, Value>,
    ) -> Map<String, Value> {
        let mut put = |field: &str, value: Value| drop(spec.insert(field.to_owned(), value));
        put("signerName", json!(source.signer));
        put("podName", json!(pod.name));
        put("podUID", json!(pod.uid));
        put("serviceAccountName", json!(pod.service_account));
        put("serviceAccountUID", json!(account));
        put("nodeName", json!(self.node));
        put("nodeUID", json!(node));
        // The server sets a default if it is missing.
        if let Some(seconds) = source.max_expiration_seconds {
            put("maxExpirationSeconds", json!(seconds));
        }
        if !source.user_annotations.is_empty() {
            put("unverifiedUserAnnotations", json!(source.user_annotations));
        }
        spec
    }
}

const DELETED: &str = "it was deleted";

fn owner(pod: PodRequester<'_>) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: pod.name.to_owned(),
        uid: pod.uid.to_owned(),
        controller: None,
        block_owner_deletion: None,
    }
}

/// Returns the fields with the key and the proof of possession. API versions without
/// `stubPKCS10Request` take a signature over the pod's UID; for a key that cannot sign it, the
/// newer form is used, which the server may still support.
fn key_material(
    key: &PrivateKey,
    pod_uid: &str,
    older: bool,
) -> Result<Map<String, Value>, windlass_pki::Error> {
    let bytes = |field: &str, bytes: Vec<u8>| (field.to_owned(), json!(ByteString(bytes)));
    if older && let Ok(proof) = key.prove_possession(pod_uid.as_bytes()) {
        let public = key.public_key().as_der().to_vec();
        return Ok([bytes("pkixPublicKey", public), bytes("proofOfPossession", proof)].into_iter().collect());
    }
    Ok([bytes("stubPKCS10Request", build_stub_csr(key)?)].into_iter().collect())
}

/// Returns whether the server ignored the newer form: Kubernetes 1.35 does not support it.
fn knows_only_older(resource: &ApiResource, message: &str) -> bool {
    resource.version != "v1" && message.contains("pkixPublicKey") && !message.contains("stubPKCS10Request")
}

/// Adopts our own request, which an earlier call or process created.
async fn adopt(
    api: &Api<DynamicObject>,
    pod: PodRequester<'_>,
    begun: &PendingRequest,
) -> Result<(SubmittedCsr, RequestOrigin), IssuanceError> {
    let name = begun.name.clone();
    let found = call_api(api.get_opt(&name)).await?;
    let Some(found) = found else {
        // The request was deleted meanwhile.
        let message = format!("{name} was created and deleted at the same time");
        return Err(IssuanceError { message, lasting: false, taken: false });
    };
    let spec = found.data.get("spec").unwrap_or(&Value::Null);
    let shown = public_key(spec);
    let ours = shown.is_none_or(|shown| shown == begun.key.public_key().as_der());
    if !ours || text(spec, "podUID") != pod.uid {
        let message = format!("another PodCertificateRequest has the name {name}");
        return Err(IssuanceError { message, lasting: false, taken: true });
    }
    Ok((SubmittedCsr { name, uid: found.uid().unwrap_or_default() }, RequestOrigin::Existing))
}

/// Returns the public key of a request, if its API version contains it.
fn public_key(spec: &Value) -> Option<Vec<u8>> {
    let bytes = |field: &str| STANDARD.decode(text(spec, field)).ok().filter(|b| !b.is_empty());
    if let Some(stub) = bytes("stubPKCS10Request") {
        let request = CertificateRequest::from_der(&stub).ok()?;
        return Some(request.public_key().as_der().to_vec());
    }
    bytes("pkixPublicKey")
}

/// Reads the current state of a request; `None` on an error of the server.
async fn poll_request(api: &Api<DynamicObject>, name: &str) -> Option<RequestUpdate> {
    match call_api(api.get_opt(name)).await {
        Ok(Some(found)) => {
            let uid = found.uid().unwrap_or_default();
            Some(RequestUpdate::Present { uid, ended: request_outcome(&found) })
        }
        Ok(None) => Some(RequestUpdate::Absent),
        Err(_) => None,
    }
}

fn condition_message(condition: &Value) -> String {
    describe_reason(["reason", "message"].map(|part| text(condition, part)))
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
