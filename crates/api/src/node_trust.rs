//! `NodeTrust` of `windlass.dev/v1alpha1`: which trust anchors are in the volumes of a node.
//!
//! There is one object per node, named after it, which the node's agent writes. The fields and
//! their limits are defined in `schema/windlass.v1alpha1.schema`, whose head says how to add one.
//! The structs here are written by hand, because generating them would need a build script; a test
//! compares each of them field by field with the schema.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::custom_resource::CustomResource;
use crate::field::{FieldErrors, FieldPath};
use crate::schema::{Schema, ValidationStyle};
use crate::selector::labels::validate_label_selector;

/// The names of NodeTrust and its type in the schema.
pub const RESOURCE: CustomResource = CustomResource {
    group: "windlass.dev",
    version: "v1alpha1",
    api_version: "windlass.dev/v1alpha1",
    kind: "NodeTrust",
    plural: "nodetrusts",
    singular: "nodetrust",
    short_names: &["ntr"],
    list_kind_override: "",
    type_name: "dev.windlass.v1alpha1.NodeTrust",
    has_status_subresource: false,
};

/// The `status` of a NodeTrust, which the node's agent writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTrustStatus {
    /// Number of volumes that request trust anchors.
    pub volumes: u32,
    /// Number of those volumes that do not have the anchors they should have.
    pub blocked: u32,
    /// Number of distinct bundles in volumes.
    pub bundles: u32,
    /// What volumes request and contain; at most [`NodeTrustLimits::sources`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<NodeTrustSource>,
    /// Number of sources beyond those that are listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_sources: u32,
}

/// Volumes that request the same bundles and contain the same anchors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTrustSource {
    /// The bundle that is requested by name; empty if `signer_name` is set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The signer whose bundles are requested; empty if `name` is set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub signer_name: String,
    /// Which of the signer's bundles: a `LabelSelector`. An absent one selects none of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<Value>,
    /// Whether volumes may be without anchors.
    #[serde(skip_serializing_if = "is_false")]
    pub optional: bool,
    /// The digest of all anchors that are in the files; empty if it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// The bundles that the anchors come from, sorted by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bundles: Vec<NodeTrustBundle>,
    /// `host/name` or `namespace/pod/volume`; at most [`NodeTrustLimits::volumes`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// Number of volumes beyond those that are listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_volumes: u32,
    /// Why the volumes do not have the anchors they should have; empty if they do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Number of volumes of which an application opened a file after the anchors last changed.
    #[serde(skip_serializing_if = "is_zero")]
    pub read_volumes: u32,
    /// Volumes of which no application was seen to open a file since; at most [`NodeTrustLimits::volumes`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_read_volumes: Vec<String>,
    /// When the anchors of the oldest of these volumes were written, as RFC 3339; `None` if none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_read_since: Option<String>,
    /// Number of volumes whose opens cannot be observed.
    #[serde(skip_serializing_if = "is_zero")]
    pub not_observable_volumes: u32,
    /// When the anchors of one of the volumes were last written, as RFC 3339; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<String>,
}

/// A ClusterTrustBundle whose anchors are in the files of volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeTrustBundle {
    /// Name of the ClusterTrustBundle, as in `metadata.name`.
    pub name: String,
    /// `metadata.generation` of the delivered bundle; 0 is omitted.
    #[serde(skip_serializing_if = "is_zero_generation")]
    pub generation: i64,
    /// The digest of its anchors: `sha256:` and hexadecimal digits.
    pub digest: String,
}

/// How much a NodeTrust may list, for the agent that writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeTrustLimits {
    /// Most sources of a status.
    pub sources: usize,
    /// Most bundles of a source.
    pub bundles: usize,
    /// Most volumes of a source.
    pub volumes: usize,
    /// Most bytes of a source's message.
    pub message_bytes: usize,
}

/// Returns the limits that the schema sets.
pub fn limits() -> NodeTrustLimits {
    static LIMITS: OnceLock<NodeTrustLimits> = OnceLock::new();
    *LIMITS.get_or_init(|| {
        let max = |ty: &str, field: &str| {
            let schema = Schema::get();
            let id = schema.lookup(&format!("dev.windlass.v1alpha1.{ty}"));
            let field = id.and_then(|id| schema.get_type(id).field(field));
            field.and_then(|field| field.limits.max).unwrap_or(usize::MAX)
        };
        NodeTrustLimits {
            sources: max("NodeTrustStatus", "sources"),
            bundles: max("NodeTrustSource", "bundles"),
            volumes: max("NodeTrustSource", "volumes"),
            message_bytes: max("NodeTrustSource", "message"),
        }
    })
}

/// Checks a NodeTrust that is to be stored: against the schema, and if that holds, what sources select.
pub fn validate(object: &Value, errors: &mut FieldErrors) {
    Schema::get().validate(RESOURCE.type_id(), ValidationStyle::BuiltIn, object, errors);
    if errors.is_empty() {
        let path = FieldPath::new("status").child("sources");
        let sources = object.pointer("/status/sources").and_then(Value::as_array);
        for (index, source) in sources.into_iter().flatten().enumerate() {
            validate_selection(source, &path.index(index), errors);
        }
    }
}

fn validate_selection(source: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let is_set = |field| source.get(field).and_then(Value::as_str).is_some_and(|t| !t.is_empty());
    let has_signer = is_set("signerName");
    match (is_set("name"), has_signer) {
        (false, false) => errors.required(path, "one of name and signerName must be specified"),
        (true, true) => {
            errors.forbidden(&path.child("signerName"), "may not be specified with name");
        }
        (true, false) | (false, true) => {}
    }
    if let Some(selector) = source.get("labelSelector").filter(|selector| !selector.is_null()) {
        let path = path.child("labelSelector");
        if !has_signer {
            errors.forbidden(&path, "may only be specified with signerName");
        }
        validate_label_selector(&path, selector, errors);
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_zero_generation(number: &i64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(flag: &bool) -> bool {
    !flag
}
