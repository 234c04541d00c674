//! The request that a certificate answers, if it still exists.

use anyhow::Result;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::DynamicObject;
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use windlass_ledger::{IssuanceRecord, RequestKind, RequestReference};
use windlass_pki::{ForeignCertificate, parse_certificate_blocks};
use windlass_runtime::csr;
use windlass_runtime::discovery::POD_CERTIFICATE_REQUESTS;

use crate::commands::api_client;

/// The request of a record and what became of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestSummary {
    pub kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub requester: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approver: Option<String>,
    /// State of the object, `Deleted`, or why it cannot be read.
    pub state: String,
    /// Chain that the request contains.
    #[serde(skip)]
    pub chain: Vec<ForeignCertificate>,
}

/// Reads the request of a record.
pub async fn find(client: &Client, record: &IssuanceRecord) -> RequestSummary {
    let request = &record.request;
    let read = match request.kind {
        RequestKind::CertificateSigningRequest => read_csr(client, request).await,
        RequestKind::PodCertificateRequest => read_pod_request(client, request).await,
    };
    let (state, chain) = match read {
        Ok(Some((state, pem))) => (state, parse_certificate_blocks(&pem).unwrap_or_default()),
        Ok(None) => ("Deleted".into(), Vec::new()),
        Err(error) => (format!("unknown: {error}"), Vec::new()),
    };
    RequestSummary {
        kind: match request.kind {
            RequestKind::CertificateSigningRequest => "CertificateSigningRequest",
            RequestKind::PodCertificateRequest => "PodCertificateRequest",
        },
        namespace: request.namespace.clone(),
        name: request.name.clone(),
        uid: request.uid.to_string(),
        requester: record.requester.clone(),
        approver: record.approver.clone(),
        state,
        chain,
    }
}

/// Returns state and certificate of a request. One with another UID reuses the name.
async fn read_csr(client: &Client, request: &RequestReference) -> Result<Option<(String, Vec<u8>)>> {
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let found = api_client::with_timeout(api.get_opt(&request.name)).await?.map_err(api_client::explain)?;
    let found = found.filter(|found| found.uid() == Some(request.uid.to_string()));
    Ok(found.map(|found| {
        (csr::condition_column(&found), csr::certificate(&found).map(<[u8]>::to_vec).unwrap_or_default())
    }))
}

async fn read_pod_request(client: &Client, request: &RequestReference) -> Result<Option<(String, Vec<u8>)>> {
    let served = api_client::with_timeout(POD_CERTIFICATE_REQUESTS.find(client)).await?;
    let Some(resource) = served.map_err(api_client::explain)? else { return Ok(None) };
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &request.namespace, &resource);
    let found = api_client::with_timeout(api.get_opt(&request.name)).await?.map_err(api_client::explain)?;
    let found = found.filter(|found| found.uid() == Some(request.uid.to_string()));
    Ok(found.map(|found| {
        let status = &found.data["status"];
        let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let set = conditions.iter().filter(|each| each["status"] == "True");
        let types: Vec<&str> = set.filter_map(|each| each["type"].as_str()).collect();
        let state = if types.is_empty() { "Pending".to_owned() } else { types.join(",") };
        (state, status["certificateChain"].as_str().unwrap_or_default().as_bytes().to_vec())
    }))
}
