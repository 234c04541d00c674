//! Renders endpoints for either OpenAPI version.

use serde_json::{Map, Value, json};

use super::GroupVersionKind;
use super::definitions::{OpenApiVersion, PATCH};
use super::endpoints::{ApiEndpoint, EndpointOperation, OperationBody};
use super::parameters::OperationParameter;

/// Renders the path item of an endpoint.
pub(super) fn render(endpoint: &ApiEndpoint, dialect: OpenApiVersion) -> Value {
    let shared = endpoint.shared();
    let mut out = Map::new();
    if !shared.is_empty() {
        let shared: Vec<Value> = shared.iter().map(|p| parameter(p, dialect)).collect();
        out.insert("parameters".into(), shared.into());
    }
    for operation in &endpoint.operations {
        let mut parameters: Vec<Value> = operation
            .parameters
            .iter()
            .filter(|p| !shared.contains(p))
            .map(|p| parameter(p, dialect))
            .collect();
        let mut rendered = common(operation);
        match dialect {
            OpenApiVersion::V2 => version_2(operation, &mut rendered, &mut parameters),
            OpenApiVersion::V3 => version_3(operation, &mut rendered),
        }
        if !parameters.is_empty() {
            rendered.insert("parameters".into(), parameters.into());
        }
        out.insert(operation.method.into(), rendered.into());
    }
    out.into()
}

const MEDIA_TYPES: &[&str] = &["application/json", "application/yaml"];

const STREAM_TYPES: &[&str] = &["application/json;stream=watch"];

const PATCH_TYPES: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

fn common(operation: &EndpointOperation) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("operationId".into(), operation.id.as_str().into());
    out.insert("description".into(), operation.description.as_str().into());
    out.insert("tags".into(), json!([operation.tag]));
    if let Some(action) = operation.action {
        out.insert("x-kubernetes-action".into(), action.into());
    }
    if let Some(kind) = &operation.kind {
        out.insert("x-kubernetes-group-version-kind".into(), GroupVersionKind::as_json(kind));
    }
    out
}

fn version_3(operation: &EndpointOperation, out: &mut Map<String, Value>) {
    let content = |types: &mut dyn Iterator<Item = &&str>, of: &str| -> Value {
        let schema = json!({ "schema": OpenApiVersion::V3.reference(of) });
        types.map(|media| ((*media).to_owned(), schema.clone())).collect::<Map<_, _>>().into()
    };
    let body = match operation.body {
        OperationBody::None => None,
        OperationBody::Required(name) => {
            Some(json!({ "content": content(&mut ["*/*"].iter(), name), "required": true }))
        }
        OperationBody::Optional(name) => Some(json!({ "content": content(&mut ["*/*"].iter(), name) })),
        OperationBody::Patch => {
            Some(json!({ "content": content(&mut PATCH_TYPES.iter(), PATCH), "required": true }))
        }
    };
    if let Some(body) = body {
        out.insert("requestBody".into(), body);
    }
    let answer = content(&mut answer_types(operation), &operation.answer);
    let responses = responses(operation, "content", &answer);
    out.insert("responses".into(), responses);
}

fn version_2(operation: &EndpointOperation, out: &mut Map<String, Value>, parameters: &mut Vec<Value>) {
    let body = match operation.body {
        OperationBody::None => None,
        OperationBody::Required(name) => Some((name, true)),
        OperationBody::Optional(name) => Some((name, false)),
        OperationBody::Patch => Some((PATCH, true)),
    };
    if let Some((name, required)) = body {
        let mut body = json!({ "in": "body", "name": "body", "schema": OpenApiVersion::V2.reference(name) });
        if required {
            body["required"] = true.into();
        }
        parameters.insert(0, body);
    }
    let consumes = if matches!(operation.body, OperationBody::Patch) { PATCH_TYPES } else { &["*/*"] };
    out.insert("consumes".into(), json!(consumes));
    out.insert("produces".into(), answer_types(operation).copied().collect());
    out.insert("schemes".into(), json!(["https"]));
    let schema = OpenApiVersion::V2.reference(&operation.answer);
    out.insert("responses".into(), responses(operation, "schema", &schema));
}

fn answer_types(operation: &EndpointOperation) -> impl Iterator<Item = &'static &'static str> {
    let streams = if operation.streams { STREAM_TYPES } else { &[] };
    MEDIA_TYPES.iter().chain(streams)
}

fn responses(operation: &EndpointOperation, key: &str, answer: &Value) -> Value {
    let mut out = Map::new();
    for code in operation.codes {
        let description = match code {
            201 => "Created",
            202 => "Accepted",
            _ => "OK",
        };
        out.insert(code.to_string(), json!({ "description": description, (key): answer }));
    }
    out.insert("401".into(), json!({ "description": "Unauthorized" }));
    out.into()
}

fn parameter(parameter: &OperationParameter, dialect: OpenApiVersion) -> Value {
    let mut out = json!({
        "name": parameter.name,
        "in": if parameter.in_path { "path" } else { "query" },
        "description": parameter.description,
    });
    if parameter.in_path {
        out["required"] = true.into();
    }
    match dialect {
        OpenApiVersion::V2 => {
            out["type"] = parameter.kind.into();
            out["uniqueItems"] = true.into();
        }
        OpenApiVersion::V3 => out["schema"] = json!({ "type": parameter.kind, "uniqueItems": true }),
    }
    out
}
