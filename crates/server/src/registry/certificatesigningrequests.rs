//! CertificateSigningRequests: a requester creates one, an approver decides, a signer signs.
//!
//! Each step has its own endpoint. The spec is immutable after creation; `/approval` changes only
//! the conditions, `/status` changes everything in the status except the decision, and a plain
//! update changes only metadata.

mod csr_parser;
mod lifetime;
mod prepare;
#[cfg(test)]
mod tests;
mod validate;
mod x509;

use serde_json::{Value, json};
use time::OffsetDateTime;
use windlass_api::age::human_duration;
use windlass_api::names::path_segment_rule;

use super::kind::{Kind, ResetFields, Scope, SelectableField, ServedVersion, Subresource, SubresourceAction};
use super::object_fields::{integer, list, text};
use super::table_cells;

pub(crate) use csr_parser::CsrParser;

/// JSON pointer to the base64 of the PEM of the PKCS#10 request.
const REQUEST: &str = "/spec/request";

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

/// Descriptor of CertificateSigningRequest, with approval and status subresources.
pub(crate) const KIND: Kind = Kind {
    name: "CertificateSigningRequest",
    plural: "certificatesigningrequests",
    singular: "certificatesigningrequest",
    short_names: &["csr"],
    scope: Scope::Cluster,
    served: &[ServedVersion {
        group: "certificates.k8s.io",
        version: "v1",
        type_name: "io.k8s.api.certificates.v1.CertificateSigningRequest",
        convert: None,
    }],
    subresources: &[
        Subresource {
            name: "approval",
            action: SubresourceAction::View {
                prepare_update: prepare::approval,
                validate_update: |new, old, _, errors| validate::approval(new, old, errors),
            },
        },
        Subresource {
            name: "status",
            action: SubresourceAction::View {
                prepare_update: prepare::status,
                validate_update: |new, old, _, errors| validate::status(new, old, errors),
            },
        },
    ],
    name_rule: path_segment_rule,
    selectable: &[SelectableField { label: "spec.signerName", pointers: &["/spec/signerName"], absent: "" }],
    columns: &[
        table_cells::NAME,
        table_cells::AGE,
        table_cells::column(
            "SignerName",
            "Requested signer for the request. It is a qualified name in the form: \
             `scope-hostname.io/name`. If empty, it will be defaulted:\n 1. If it's a kubelet \
             client certificate, it is assigned\n    \
             \"kubernetes.io/kube-apiserver-client-kubelet\".\n 2. If it's a kubelet serving \
             certificate, it is assigned\n    \"kubernetes.io/kubelet-serving\".\n 3. Otherwise, \
             it is assigned \"kubernetes.io/legacy-unknown\".\nDistribution of trust for signers \
             happens out of band. You can select on this field using `spec.signerName`.",
        ),
        table_cells::column("Requestor", "Base64-encoded PKCS#10 CSR data"),
        table_cells::column(
            "RequestedDuration",
            "expirationSeconds is the requested duration of validity of the issued certificate. \
             The certificate signer may issue a certificate with a different validity duration \
             so a client must check the delta between the notBefore and and notAfter fields in \
             the issued certificate to determine the actual duration.\n\nThe v1.22+ in-tree \
             implementations of the well-known Kubernetes signers will honor this field as long \
             as the requested duration is not greater than the maximum duration they will honor \
             per the --cluster-signing-duration CLI flag to the Kubernetes controller \
             manager.\n\nCertificate signers may not honor this field for various reasons:\n\n  \
             1. Old signer that is unaware of the field (such as the in-tree\n     \
             implementations prior to v1.22)\n  2. Signer whose configured maximum is shorter \
             than the requested duration\n  3. Signer whose configured minimum is longer than \
             the requested duration\n\nThe minimum valid value for expirationSeconds is 600, \
             i.e. 10 minutes.",
        ),
        table_cells::column("Condition", "Conditions applied to the request, such as approval or denial."),
    ],
    row,
    prepare_create: prepare::create,
    prepare_create_as: prepare::create_as,
    prepare_update: prepare::update,
    validate_csr: validate::csr,
    validate_create: validate::create,
    validate_update: validate::update,
    resets: &[
        ResetFields { subresource: "", fields: &[&["spec"], &["status"]] },
        ResetFields { subresource: "approval", fields: &[&["spec"], &["status", "certificate"]] },
        ResetFields { subresource: "status", fields: &[&["spec"], &["status", "conditions"]] },
    ],
    issued: lifetime::issued,
    ..Kind::DEFAULT
};

fn row(object: &Value, now: OffsetDateTime) -> Vec<Value> {
    let signer = match text(object, "/spec/signerName") {
        "" => "<none>",
        signer => signer,
    };
    let asked = integer(object, "/spec/expirationSeconds");
    vec![
        table_cells::name(object),
        table_cells::age(object, now),
        signer.into(),
        text(object, "/spec/username").into(),
        asked.map_or_else(|| "<none>".to_owned(), human_duration).into(),
        json!(condition_text(object)),
    ]
}

/// Returns the state of the request for display.
fn condition_text(object: &Value) -> String {
    let has = |kind: &str| list(object, "/status/conditions").iter().any(|c| c["type"] == kind);
    let mut words = match (has(DENIED), has(APPROVED)) {
        (true, _) => DENIED,
        (false, true) => APPROVED,
        (false, false) => "Pending",
    }
    .to_owned();
    if has(FAILED) {
        words.push_str(",Failed");
    }
    if !text(object, "/status/certificate").is_empty() {
        words.push_str(",Issued");
    }
    words
}
