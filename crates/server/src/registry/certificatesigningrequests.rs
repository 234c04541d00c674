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
    short_names: &["csr"],
    scope: Scope::Cluster,
    served: &[ServedVersion::new(
        "certificates.k8s.io",
        "v1",
        "io.k8s.api.certificates.v1.CertificateSigningRequest",
    )],
    subresources: &[
        Subresource {
            name: "approval",
            action: SubresourceAction::View {
                prepare_update: prepare::approval,
                validate_update: |new, old, _, errors| validate::approval(new, old, errors),
            },
        },
        Subresource::status(prepare::status, |new, old, _, errors| validate::status(new, old, errors)),
    ],
    name_rule: path_segment_rule,
    selectable: &[SelectableField::new("spec.signerName", &["/spec/signerName"])],
    columns: &[
        table_cells::NAME,
        table_cells::AGE,
        table_cells::column("SignerName"),
        table_cells::column("Requestor"),
        table_cells::column("RequestedDuration"),
        table_cells::column("Condition"),
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
