//! The schema of Bundles.

use serde_json::{Value, json};

use super::describe::describe;
use super::shape::{Object, Rule, Shape, count, elsewhere, has, may, must};
use super::{GROUP, JKS_PASSWORD, KIND, PLURAL, RESERVED_NAMES, VERSION};
use crate::field::{Errors, Path};

/// Checks an object against the schema and its rules.
pub fn validate_schema(object: &Value, errors: &mut Errors) {
    match object.get("spec").filter(|spec| !spec.is_null()) {
        Some(spec) => SPEC.validate(&Path::new("spec"), spec, errors),
        None => errors.required(&Path::new("spec"), ""),
    }
    if let Some(status) = object.get("status").filter(|status| !status.is_null()) {
        STATUS.validate(&Path::new("status"), status, errors);
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
    describe(&mut schema);
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

static NAME: Shape = Shape::Text { least: 1, most: NAME_MAX };
static ANY: Shape = Shape::AnyText;
static FLAG: Shape = Shape::Flag;
static NUMBER: Shape = Shape::Number;

static SPEC: Shape = Shape::Object(Object {
    fields: &[must("sources", &SOURCES), may("target", &TARGET)],
    least: 0,
    atomic: false,
    rules: &[
        elsewhere(
            "self.sources.exists(s, !has(s.useDefaultCAs) || s.useDefaultCAs)",
            "must define at least one source",
        ),
        elsewhere(
            "self.sources.filter(s, has(s.useDefaultCAs)).size() <= 1",
            "must request default CAs either once or not at all",
        ),
    ],
});

static SOURCES: Shape = Shape::List { of: &SOURCE, least: 1, most: 100, key: None };

/// What trust-manager has; its message names these only.
const ORIGINS: &[&str] = &["configMap", "secret", "inLine", "useDefaultCAs"];

static SOURCE: Shape = Shape::Object(Object {
    fields: &[
        may("configMap", &OBJECT_SOURCE),
        may("secret", &OBJECT_SOURCE),
        may("inLine", &IN_LINE),
        may("useDefaultCAs", &FLAG),
        may("clusterTrustBundle", &TRUST_BUNDLE_SOURCE),
        may("optional", &FLAG),
    ],
    least: 0,
    atomic: true,
    rules: &[
        Rule {
            expression: "has(self.clusterTrustBundle) || [has(self.configMap),has(self.secret),\
                         has(self.inLine),has(self.useDefaultCAs)].filter(x,x==true).size() == 1",
            message: "exactly one of the fields in [configMap secret inLine useDefaultCAs] must be set",
            holds: Some(|source| has(source, "clusterTrustBundle") || count(source, ORIGINS) == 1),
        },
        Rule {
            expression: "!has(self.clusterTrustBundle) || !(has(self.configMap) || \
                         has(self.secret) || has(self.inLine) || has(self.useDefaultCAs))",
            message: "exactly one of the fields in [configMap secret inLine useDefaultCAs \
                      clusterTrustBundle] must be set",
            holds: Some(|source| !has(source, "clusterTrustBundle") || count(source, ORIGINS) == 0),
        },
    ],
});

static IN_LINE: Shape = Shape::Text { least: 1, most: TEXT_MAX };

static OBJECT_SOURCE: Shape = Shape::Object(Object {
    fields: &[
        may("name", &NAME),
        may("selector", &SELECTOR),
        may("key", &NAME),
        may("includeAllKeys", &FLAG),
    ],
    least: 0,
    atomic: true,
    rules: &[
        Rule {
            expression: "[has(self.name),has(self.selector)].filter(x,x==true).size() == 1",
            message: "exactly one of the fields in [name selector] must be set",
            holds: Some(|source| count(source, &["name", "selector"]) == 1),
        },
        elsewhere(
            "has(self.key) != (has(self.includeAllKeys) && self.includeAllKeys)",
            "source key must be defined if and only if includeAllKeys is false",
        ),
    ],
});

static TRUST_BUNDLE_SOURCE: Shape = Shape::Object(Object {
    fields: &[
        may("name", &TRUST_BUNDLE_NAME),
        may("signerName", &SIGNER),
        may("labelSelector", &SELECTOR),
    ],
    least: 0,
    atomic: true,
    rules: &[
        Rule {
            expression: "[has(self.name),has(self.signerName)].filter(x,x==true).size() == 1",
            message: "exactly one of the fields in [name signerName] must be set",
            holds: Some(|source| count(source, &["name", "signerName"]) == 1),
        },
        // Kubernetes takes a signer without labels for none of its bundles, and an empty selector
        // for all of them. Here it must be said.
        Rule {
            expression: "has(self.signerName) == has(self.labelSelector)",
            message: "labelSelector must be set if and only if signerName is; {} selects all",
            holds: Some(|source| has(source, "signerName") == has(source, "labelSelector")),
        },
    ],
});

/// A signer's prefix may come before a name.
static TRUST_BUNDLE_NAME: Shape = Shape::Text { least: 1, most: SIGNER_MAX + 1 + NAME_MAX };
static SIGNER: Shape = Shape::Text { least: 1, most: SIGNER_MAX };

static SELECTOR: Shape = Shape::Object(Object {
    fields: &[may("matchLabels", &MATCH_LABELS), may("matchExpressions", &EXPRESSIONS)],
    least: 0,
    atomic: true,
    rules: &[],
});

static MATCH_LABELS: Shape = Shape::Texts { least: 0 };
static EXPRESSIONS: Shape = Shape::List { of: &EXPRESSION, least: 0, most: usize::MAX, key: None };

static EXPRESSION: Shape = Shape::Object(Object {
    fields: &[must("key", &ANY), must("operator", &ANY), may("values", &VALUES)],
    least: 0,
    atomic: false,
    rules: &[],
});

static VALUES: Shape = Shape::List { of: &ANY, least: 0, most: usize::MAX, key: None };

static TARGET: Shape = Shape::Object(Object {
    fields: &[
        may("configMap", &TEMPLATE),
        may("secret", &TEMPLATE),
        may("clusterTrustBundle", &TRUST_BUNDLE_TEMPLATE),
        may("additionalFormats", &FORMATS),
        may("namespaceSelector", &SELECTOR),
    ],
    least: 0,
    atomic: false,
    rules: &[Rule {
        expression: "has(self.configMap) || has(self.secret) || has(self.clusterTrustBundle)",
        message: "at least one of the fields in [configMap secret] must be set",
        holds: Some(|target| count(target, &["configMap", "secret", "clusterTrustBundle"]) > 0),
    }],
});

static TEMPLATE: Shape = Shape::Object(Object {
    fields: &[must("key", &NAME), may("metadata", &METADATA)],
    least: 0,
    atomic: false,
    rules: &[],
});

static TRUST_BUNDLE_TEMPLATE: Shape = Shape::Object(Object {
    fields: &[may("signerName", &SIGNER), may("metadata", &METADATA)],
    least: 0,
    atomic: false,
    rules: &[],
});

static METADATA: Shape = Shape::Object(Object {
    fields: &[may("annotations", &ENTRIES), may("labels", &ENTRIES)],
    least: 1,
    atomic: false,
    rules: &[],
});

static ENTRIES: Shape = Shape::Texts { least: 1 };

static FORMATS: Shape = Shape::Object(Object {
    fields: &[may("jks", &JKS), may("pkcs12", &PKCS12)],
    least: 0,
    atomic: false,
    rules: &[Rule {
        expression: "has(self.jks) || has(self.pkcs12)",
        message: "at least one of the fields in [jks pkcs12] must be set",
        holds: Some(|formats| count(formats, &["jks", "pkcs12"]) > 0),
    }],
});

static JKS: Shape = Shape::Object(Object {
    fields: &[must("key", &NAME), may("password", &JKS_SECRET)],
    least: 1,
    atomic: true,
    rules: &[],
});

static JKS_SECRET: Shape = Shape::Defaulted { least: 1, most: 128, value: JKS_PASSWORD };

static PKCS12: Shape = Shape::Object(Object {
    fields: &[must("key", &NAME), may("password", &PKCS12_SECRET), may("profile", &PROFILE)],
    least: 1,
    atomic: true,
    rules: &[],
});

static PKCS12_SECRET: Shape = Shape::Defaulted { least: 0, most: 128, value: "" };
static PROFILE: Shape = Shape::OneOf(&["LegacyRC2", "LegacyDES", "Modern2023"]);

static STATUS: Shape = Shape::Object(Object {
    fields: &[
        may("conditions", &CONDITIONS),
        may("defaultCAVersion", &NAME),
        may("sources", &SOURCE_STATUSES),
        may("certificates", &NUMBER),
        may("earliestExpiry", &MOMENT),
    ],
    least: 1,
    atomic: false,
    rules: &[],
});

static CONDITIONS: Shape = Shape::List { of: &CONDITION, least: 0, most: 10, key: Some("type") };
static MOMENT: Shape = Shape::Moment;

static CONDITION: Shape = Shape::Object(Object {
    fields: &[
        must("type", &CONDITION_TYPE),
        must("status", &CONDITION_STATUS),
        may("observedGeneration", &NUMBER),
        must("lastTransitionTime", &MOMENT),
        must("reason", &REASON),
        must("message", &MESSAGE),
    ],
    least: 0,
    atomic: false,
    rules: &[],
});

static CONDITION_TYPE: Shape = Shape::Text { least: 0, most: 316 };
static CONDITION_STATUS: Shape = Shape::OneOf(&["True", "False", "Unknown"]);
static REASON: Shape = Shape::Text { least: 1, most: 1024 };
static MESSAGE: Shape = Shape::Text { least: 0, most: 32_768 };

static SOURCE_STATUSES: Shape = Shape::List { of: &SOURCE_STATUS, least: 0, most: 100, key: None };

static SOURCE_STATUS: Shape = Shape::Object(Object {
    fields: &[
        must("source", &ANY),
        must("objects", &NUMBER),
        must("certificates", &NUMBER),
        may("problem", &ANY),
    ],
    least: 0,
    atomic: false,
    rules: &[],
});
