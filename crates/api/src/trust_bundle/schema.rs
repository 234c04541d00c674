//! The schema of Bundles.

use serde_json::{Value, json};

use super::descriptions::add_descriptions;
use super::property_schema::{
    ObjectSchema, PropertySchema, ValidationRule, count, external_rule, is_set, optional_field,
    required_field,
};
use super::{GROUP, JKS_PASSWORD, KIND, PLURAL, RESERVED_NAMES, VERSION};
use crate::field::{FieldErrors, FieldPath};

/// Checks an object against the schema and its rules.
pub fn validate_schema(object: &Value, errors: &mut FieldErrors) {
    match object.get("spec").filter(|spec| !spec.is_null()) {
        Some(spec) => SPEC.validate(&FieldPath::new("spec"), spec, errors),
        None => errors.required(&FieldPath::new("spec"), ""),
    }
    if let Some(status) = object.get("status").filter(|status| !status.is_null()) {
        STATUS.validate(&FieldPath::new("status"), status, errors);
    }
}

/// Puts the schema's values where there are none.
pub fn set_defaults(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec") {
        SPEC.set_defaults(spec);
    }
}

/// The CustomResourceDefinition, for servers that do not know the kind. What the server says about
/// names is in it, and of what the webhook says as much as an expression can.
pub fn custom_resource_definition() -> Value {
    let columns = [
        ("ConfigMap Target", ".spec.target.configMap.key", "Bundle ConfigMap Target Key"),
        ("Secret Target", ".spec.target.secret.key", "Bundle Secret Target Key"),
        ("Synced", ".status.conditions[?(@.type == \"Synced\")].status", "Bundle has been synced"),
        (
            "Reason",
            ".status.conditions[?(@.type == \"Synced\")].reason",
            "Reason Bundle has Synced status",
        ),
        ("Age", ".metadata.creationTimestamp", "Timestamp Bundle was created"),
    ];
    let columns = columns.map(|(name, path, description)| {
        let kind = if name == "Age" { "date" } else { "string" };
        json!({"name": name, "type": kind, "jsonPath": path, "description": description})
    });
    let reserved = RESERVED_NAMES.map(|name| format!("'{name}'"));
    let mut schema = json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": SPEC.open_api(),
            "status": STATUS.open_api(),
        },
        "x-kubernetes-validations": [{
            "rule": "size(self.metadata.name) <= 63",
            "message": "metadata.name must be no more than 63 characters",
        }, {
            "rule": format!("!(self.metadata.name in [{}])", reserved.join(", ")),
            "message": "metadata.name is reserved: Kubernetes keeps a ConfigMap with this name",
        }],
    });
    add_descriptions(&mut schema);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{PLURAL}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "names": {"kind": KIND, "listKind": "BundleList", "plural": PLURAL, "singular": "bundle"},
            "scope": "Cluster",
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "additionalPrinterColumns": columns,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

const NAME_MAX: usize = 253;
const SIGNER_MAX: usize = 571;
const TEXT_MAX: usize = 1 << 20;

static NAME: PropertySchema = PropertySchema::Text { least: 1, most: NAME_MAX };
static ANY: PropertySchema = PropertySchema::AnyText;
static FLAG: PropertySchema = PropertySchema::Flag;
static NUMBER: PropertySchema = PropertySchema::Number;

static SPEC: PropertySchema = PropertySchema::Object(ObjectSchema {
    fields: &[required_field("sources", &SOURCES), optional_field("target", &TARGET)],
    least: 0,
    atomic: false,
    rules: &[
        external_rule(
            "self.sources.exists(s, !has(s.useDefaultCAs) || s.useDefaultCAs)",
            "must define at least one source",
        ),
        external_rule(
            "self.sources.filter(s, has(s.useDefaultCAs)).size() <= 1",
            "must request default CAs either once or not at all",
        ),
    ],
});

static SOURCES: PropertySchema =
    PropertySchema::List { of: &SOURCE, least: 1, most: 100, key: None };

/// What trust-manager has; its message names these only.
const ORIGINS: &[&str] = &["configMap", "secret", "inLine", "useDefaultCAs"];

static SOURCE: PropertySchema = PropertySchema::Object(ObjectSchema {
    fields: &[
        optional_field("configMap", &OBJECT_SOURCE),
        optional_field("secret", &OBJECT_SOURCE),
        optional_field("inLine", &IN_LINE),
        optional_field("useDefaultCAs", &FLAG),
        optional_field("clusterTrustBundle", &TRUST_BUNDLE_SOURCE),
        optional_field("optional", &FLAG),
    ],
    least: 0,
    atomic: true,
    rules: &[
        ValidationRule {
            expression: "has(self.clusterTrustBundle) || [has(self.configMap),has(self.secret),\
                         has(self.inLine),has(self.useDefaultCAs)].filter(x,x==true).size() == 1",
            message: "exactly one of the fields in [configMap secret inLine useDefaultCAs] must be set",
            holds: Some(|source| {
                is_set(source, "clusterTrustBundle") || count(source, ORIGINS) == 1
            }),
        },
        ValidationRule {
            expression: "!has(self.clusterTrustBundle) || !(has(self.configMap) || \
                         has(self.secret) || has(self.inLine) || has(self.useDefaultCAs))",
            message: "exactly one of the fields in [configMap secret inLine useDefaultCAs \
                      clusterTrustBundle] must be set",
            holds: Some(|source| {
                !is_set(source, "clusterTrustBundle") || count(source, ORIGINS) == 0
            }),
        },
    ],
});

static IN_LINE: PropertySchema = PropertySchema::Text { least: 1, most: TEXT_MAX };

static OBJECT_SOURCE: PropertySchema = PropertySchema::Object(ObjectSchema {
    fields: &[
        optional_field("name", &NAME),
        optional_field("selector", &SELECTOR),
        optional_field("key", &NAME),
        optional_field("includeAllKeys", &FLAG),
    ],
    least: 0,
    atomic: true,
    rules: &[
        ValidationRule {
            expression: "[has(self.name),has(self.selector)].filter(x,x==true).size() == 1",
            message: "exactly one of the fields in [name selector] must be set",
            holds: Some(|source| count(source, &["name", "selector"]) == 1),
        },
        external_rule(
            "has(self.key) != (has(self.includeAllKeys) && self.includeAllKeys)",
            "source key must be defined if and only if includeAllKeys is false",
        ),
    ],
});

static TRUST_BUNDLE_SOURCE: PropertySchema = PropertySchema::Object(ObjectSchema {
    fields: &[
        optional_field("name", &TRUST_BUNDLE_NAME),
        optional_field("signerName", &SIGNER),
        optional_field("labelSelector", &SELECTOR),
    ],
    least: 0,
    atomic: true,
    rules: &[
        ValidationRule {
            expression: "[has(self.name),has(self.signerName)].filter(x,x==true).size() == 1",
            message: "exactly one of the fields in [name signerName] must be set",
            holds: Some(|source| count(source, &["name", "signerName"]) == 1),
        },
        // Kubernetes takes a signer without labels for none of its bundles, and an empty selector
        // for all of them. Here it must be said.
        ValidationRule {
            expression: "has(self.signerName) == has(self.labelSelector)",
            message: "labelSelector must be set if and only if signerName is; {} selects all",
            holds: Some(|source| is_set(source, "signerName") == is_set(source, "labelSelector")),
        },
    ],
});

/// A signer's prefix may come before a name.
static TRUST_BUNDLE_NAME: PropertySchema =
    PropertySchema::Text { least: 1, most: SIGNER_MAX + 1 + NAME_MAX };
static SIGNER: PropertySchema = PropertySchema::Text { least: 1, most: SIGNER_MAX };

static SELECTOR: PropertySchema = PropertySchema::Object(ObjectSchema {
    fields: &[
        optional_field("matchLabels", &MATCH_LABELS),
        optional_field("matchExpressions", &EXPRESSIONS),
    ],
    least: 0,
    atomic: true,
    rules: &[],
});

static MATCH_LABELS: PropertySchema = PropertySchema::Texts { least: 0 };
static EXPRESSIONS: PropertySchema =
    PropertySchema::List { of: &EXPRESSION, least: 0, most: usize::MAX, key: None };

static EXPRESSION: PropertySchema = PropertySchema::Object(ObjectSchema {
    fields: &[
        required_field("key", &ANY),
        required_field("operator", &ANY),
        optional_field("values", &VALUES),
    ],
    least: 0,
    atomic: false,
    rules: &[],
});

static VALUES: PropertySchema =
    PropertySchema::List { of: &ANY, least: 0, most: usize::MAX, key: None };

static TARGET: PropertySchema = PropertySchema::Object(ObjectSchema {
    fields: &[
        optional_field("configMap", &TEMPLATE),
        optional_field("secret", &TEMPLATE),
        optional_field("clusterTrustBundle", &TRUST_BUNDLE_TEMPLATE),
        optional_field("additionalFormats", &FORMATS),
        optional_field("namespaceSelector", &SELECTOR),
    ],
    least: 0,
    atomic: false,
    rules: &[ValidationRule {
        expression: "has(self.configMap) || has(self.secret) || has(self.clusterTrustBundle)",
        message: "at least one of the fields in [configMap secret] must be set",
        holds: Some(|target| count(target, &["configMap", "secret", "clusterTrustBundle"]) > 0),
    }],
});

static TEMPLATE: PropertySchema = PropertySchema::Object(ObjectSchema {
    fields: &[required_field("key", &NAME), optional_field("metadata", &METADATA)],
    least: 0,
    atomic: false,
    rules: &[],
});

static TRUST_BUNDLE_TEMPLATE: PropertySchema = PropertySchema::Object(ObjectSchema {
    fields: &[optional_field("signerName", &SIGNER), optional_field("metadata", &METADATA)],
    least: 0,
    atomic: false,
    rules: &[],
});

static METADATA: PropertySchema = PropertySchema::Object(ObjectSchema {
    fields: &[optional_field("annotations", &ENTRIES), optional_field("labels", &ENTRIES)],
    least: 1,
    atomic: false,
    rules: &[],
});

static ENTRIES: PropertySchema = PropertySchema::Texts { least: 1 };

static FORMATS: PropertySchema = PropertySchema::Object(ObjectSchema {
    fields: &[optional_field("jks", &JKS), optional_field("pkcs12", &PKCS12)],
    least: 0,
    atomic: false,
    rules: &[ValidationRule {
        expression: "has(self.jks) || has(self.pkcs12)",
        message: "at least one of the fields in [jks pkcs12] must be set",
        holds: Some(|formats| count(formats, &["jks", "pkcs12"]) > 0),
    }],
});

static JKS: PropertySchema = PropertySchema::Object(ObjectSchema {
    fields: &[required_field("key", &NAME), optional_field("password", &JKS_SECRET)],
    least: 1,
    atomic: true,
    rules: &[],
});

static JKS_SECRET: PropertySchema =
    PropertySchema::Defaulted { least: 1, most: 128, value: JKS_PASSWORD };

static PKCS12: PropertySchema = PropertySchema::Object(ObjectSchema {
    fields: &[
        required_field("key", &NAME),
        optional_field("password", &PKCS12_SECRET),
        optional_field("profile", &PROFILE),
    ],
    least: 1,
    atomic: true,
    rules: &[],
});

static PKCS12_SECRET: PropertySchema = PropertySchema::Defaulted { least: 0, most: 128, value: "" };
static PROFILE: PropertySchema = PropertySchema::OneOf(&["LegacyRC2", "LegacyDES", "Modern2023"]);

static STATUS: PropertySchema = PropertySchema::Object(ObjectSchema {
    fields: &[
        optional_field("conditions", &CONDITIONS),
        optional_field("defaultCAVersion", &NAME),
        optional_field("sources", &SOURCE_STATUSES),
        optional_field("certificates", &NUMBER),
        optional_field("earliestExpiry", &MOMENT),
    ],
    least: 1,
    atomic: false,
    rules: &[],
});

static CONDITIONS: PropertySchema =
    PropertySchema::List { of: &CONDITION, least: 0, most: 10, key: Some("type") };
static MOMENT: PropertySchema = PropertySchema::Moment;

static CONDITION: PropertySchema = PropertySchema::Object(ObjectSchema {
    fields: &[
        required_field("type", &CONDITION_TYPE),
        required_field("status", &CONDITION_STATUS),
        optional_field("observedGeneration", &NUMBER),
        required_field("lastTransitionTime", &MOMENT),
        required_field("reason", &REASON),
        required_field("message", &MESSAGE),
    ],
    least: 0,
    atomic: false,
    rules: &[],
});

static CONDITION_TYPE: PropertySchema = PropertySchema::Text { least: 0, most: 316 };
static CONDITION_STATUS: PropertySchema = PropertySchema::OneOf(&["True", "False", "Unknown"]);
static REASON: PropertySchema = PropertySchema::Text { least: 1, most: 1024 };
static MESSAGE: PropertySchema = PropertySchema::Text { least: 0, most: 32_768 };

static SOURCE_STATUSES: PropertySchema =
    PropertySchema::List { of: &SOURCE_STATUS, least: 0, most: 100, key: None };

static SOURCE_STATUS: PropertySchema = PropertySchema::Object(ObjectSchema {
    fields: &[
        required_field("source", &ANY),
        required_field("objects", &NUMBER),
        required_field("certificates", &NUMBER),
        optional_field("problem", &ANY),
    ],
    least: 0,
    atomic: false,
    rules: &[],
});
