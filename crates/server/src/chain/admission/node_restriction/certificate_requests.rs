//! Certificate requests that nodes may create: for themselves and for pods bound to them.

use serde_json::Value;
use windlass_api::field::quote;
use windlass_api::meta::ObjectMetaView;

use super::super::AdmissionOperation;
use super::{AdmissionResult, NodeRefusal, NodeWrite, forbidden};
use crate::chain::authz::node::references::is_mirror;
use crate::registry::object_fields::text;

const NODE_SIGNERS: [&str; 2] =
    ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

/// Checks that a node requests node certificates in its own name only.
pub(super) fn check_signing_request(written: &NodeWrite<'_>) -> AdmissionResult {
    let AdmissionOperation::Create = written.operation else { return Ok(()) };
    if !written.subresource.is_empty() || !NODE_SIGNERS.contains(&text(written.object, "/spec/signerName")) {
        return Ok(());
    }
    let parsed = written.csr.parse(written.object);
    let request = match &*parsed {
        Ok(request) => request,
        Err(error) => return forbidden(format!("unable to parse csr: {error}")),
    };
    let own = format!("system:node:{}", written.node);
    if request.subject().common_name() != own {
        return forbidden(format!("can only create a node CSR with CN={own}"));
    }
    Ok(())
}

/// Checks that a node requests certificates only for pods bound to it, in their current state. A
/// mismatch that may be caused by a stale cache is an internal error rather than a rejection, so
/// that the node retries.
pub(super) fn check_pod_request(written: &NodeWrite<'_>) -> AdmissionResult {
    let AdmissionOperation::Create = written.operation else {
        return forbidden(format!("unexpected operation {}", written.operation_name()));
    };
    if !written.subresource.is_empty() {
        return forbidden(format!("unexpected subresource {}", written.subresource));
    }
    let spec = |field: &str| text(written.object, &format!("/spec/{field}"));
    if spec("nodeName") != written.node {
        let (named, node) = (quote(spec("nodeName")), written.quoted());
        return forbidden(format!(
            "PodCertificateRequest.Spec.NodeName={named}, which is not the requesting node {node}"
        ));
    }
    on_this_node(written, spec("nodeUID"))?;
    let pod = running(written, spec("podName"), spec("podUID"))?;
    account(written, &pod, spec("serviceAccountName"), spec("serviceAccountUID"))?;
    mounted(written, &pod, spec("signerName"), spec("serviceAccountName"))
}

fn on_this_node(written: &NodeWrite<'_>, uid: &str) -> AdmissionResult {
    let shown = written.quoted();
    let Some(node) = (written.find)("", "nodes", "", written.node) else {
        return failed(format!(
            "while retrieving node {shown} named in the PodCertificateRequest: node {shown} not found"
        ));
    };
    if ObjectMetaView::from_object(&node).uid() != uid {
        let (about, asked, real) =
            (pod_reference(written), quote(uid), quote(ObjectMetaView::from_object(&node).uid()));
        return failed(format!(
            "PodCertificateRequest for pod {about} names node UID {asked}, inconsistent with the running node ({real})"
        ));
    }
    Ok(())
}

fn running(written: &NodeWrite<'_>, name: &str, uid: &str) -> Result<Value, NodeRefusal> {
    let about = pod_reference(written);
    let found = (written.find)("", "pods", written.namespace, name);
    let pod = found.ok_or_else(|| {
        NodeRefusal::Failed(format!(
            "while retrieving pod {about} named in the PodCertificateRequest: pod {} not found",
            quote(name)
        ))
    })?;
    if ObjectMetaView::from_object(&pod).uid() != uid {
        failed(format!(
            "PodCertificateRequest for pod {about} contains pod UID ({}) which differs from running pod {}",
            quote(uid),
            quote(ObjectMetaView::from_object(&pod).uid())
        ))?;
    }
    if text(&pod, "/spec/nodeName") != written.node {
        forbidden(format!(
            "pod {about} is not running on node {} named in the PodCertificateRequest",
            written.quoted()
        ))?;
    }
    if is_mirror(&pod) {
        forbidden(format!("pod {about} is a mirror pod"))?;
    }
    Ok(pod)
}

fn account(written: &NodeWrite<'_>, pod: &Value, name: &str, uid: &str) -> AdmissionResult {
    let about = pod_reference(written);
    let runs_as = text(pod, "/spec/serviceAccountName");
    if runs_as != name {
        return forbidden(format!(
            "PodCertificateRequest for pod {about} contains serviceAccountName ({}) that differs from running pod ({})",
            quote(name),
            quote(runs_as)
        ));
    }
    let Some(account) = (written.find)("", "serviceaccounts", written.namespace, name) else {
        let shown = quote(&format!("{}/{name}", written.namespace));
        return failed(format!(
            "while retrieving service account {shown} named in the PodCertificateRequest: serviceaccount {} not found",
            quote(name)
        ));
    };
    if ObjectMetaView::from_object(&account).uid() != uid {
        return failed(format!(
            "PodCertificateRequest for pod {about} names service account UID {}, which differs from the running service account ({})",
            quote(uid),
            quote(ObjectMetaView::from_object(&account).uid())
        ));
    }
    Ok(())
}

/// Checks that the pod projects a certificate of this signer, or that RBAC grants the node one.
fn mounted(written: &NodeWrite<'_>, pod: &Value, signer: &str, account: &str) -> AdmissionResult {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten();
    let sources =
        volumes.filter_map(|volume| volume.pointer("/projected/sources").and_then(Value::as_array)).flatten();
    let mut signers = sources.map(|source| text(source, "/podCertificate/signerName"));
    if !signer.is_empty() && signers.any(|mounted| mounted == signer) {
        return Ok(());
    }
    if (written.may_request_from)(signer, account) {
        return Ok(());
    }
    forbidden(format!(
        "pod {} does not mount a podCertificate volume for signer {}",
        pod_reference(written),
        quote(signer)
    ))
}

/// Names the pod in error messages, as `"namespace/pod"`.
fn pod_reference(written: &NodeWrite<'_>) -> String {
    quote(&format!("{}/{}", written.namespace, text(written.object, "/spec/podName")))
}

fn failed(why: String) -> AdmissionResult {
    Err(NodeRefusal::Failed(why))
}
