//! Decodes request bodies to objects, and collects warnings.

use std::collections::BTreeSet;

use serde_json::Value;
use windlass_api::decode::{self, DecodeError};
use windlass_api::field::{FieldErrors, FieldPath, quote};
use windlass_api::normal_form::normalise;
use windlass_api::schema::{Schema, TypeId};

use super::RequestContext;
use crate::error::Error;
use crate::registry::kind::{Kind, ServedVersion};
use crate::request::negotiation::{InputFormat, input};
use crate::request::options::FieldValidation;

/// The type that an endpoint expects in a body.
#[derive(Clone, Copy)]
pub(crate) struct ExpectedType {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version of the endpoint, for example `v1`.
    pub version: &'static str,
    /// Kind that the body must be, for example `Pod`.
    pub kind: &'static str,
    pub type_name: &'static str,
}

/// Replacement for secret values in messages, in Kubernetes' words.
pub(crate) const REDACTED: &str = "<secret contents redacted>";

/// A decoded request body with its warnings.
pub(crate) struct DecodedRequest {
    /// The normalized object, in the submitted version.
    pub value: Value,
    /// Texts for the `Warning` headers of the response, in order.
    pub warnings: Vec<String>,
}

impl ExpectedType {
    pub(crate) fn object(kind: &Kind, served: &ServedVersion) -> ExpectedType {
        ExpectedType {
            group: served.group,
            version: served.version,
            kind: kind.name,
            type_name: served.type_name,
        }
    }

    /// Returns true if the whole body is secret, so that no error may quote it. Kubernetes reveals
    /// more here.
    pub(crate) fn is_secret(&self) -> bool {
        matches!(self.kind, "Secret" | "TokenRequest" | "TokenReview")
    }

    fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    fn type_id(&self) -> Result<TypeId, Error> {
        let id = Schema::get().lookup(self.type_name);
        id.ok_or_else(|| Error::Internal(format!("no schema for {}", self.type_name)))
    }
}

/// Decodes an object of the expected kind.
pub(crate) fn object(
    call: &RequestContext<'_>,
    expected: ExpectedType,
    body: &[u8],
    validation: FieldValidation,
) -> Result<DecodedRequest, Error> {
    let (value, duplicates) = match input(call.headers)? {
        InputFormat::Json => parsed(decode::json_body(body), expected, body)?,
        InputFormat::Yaml => parsed(decode::yaml_body(body), expected, body)?,
        InputFormat::Protobuf => (protobuf(call, expected, body)?, Vec::new()),
    };
    let value = check_type(call, expected, value, body)?;
    let mut draft = in_normal_form(expected, value, duplicates, validation)?;
    dedup_owner_references(&mut draft);
    Ok(draft)
}

/// Removes duplicate owner references, with a warning.
pub(crate) fn dedup_owner_references(draft: &mut DecodedRequest) {
    let Some(Value::Array(owners)) = draft.value.pointer_mut("/metadata/ownerReferences") else {
        return;
    };
    // Sets, because a body can contain a hundred thousand owners.
    let (mut seen, mut again) = (BTreeSet::new(), BTreeSet::new());
    owners.retain(|owner| {
        let first = seen.insert(owner.to_string());
        if !first {
            again.insert(owner["uid"].as_str().unwrap_or_default().to_owned());
        }
        first
    });
    if !again.is_empty() {
        draft.warnings.push(format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            again.into_iter().collect::<Vec<_>>().join(", ")
        ));
    }
}

/// Decodes an object of the expected kind in any version, because `DeleteOptions` come in the
/// version of the object they delete.
pub(crate) fn any_version(
    call: &RequestContext<'_>,
    expected: ExpectedType,
    body: &[u8],
    validation: FieldValidation,
) -> Result<DecodedRequest, Error> {
    let (mut value, duplicates) = match input(call.headers)? {
        InputFormat::Json => parsed(decode::json_body(body), expected, body)?,
        InputFormat::Yaml => parsed(decode::yaml_body(body), expected, body)?,
        InputFormat::Protobuf => (protobuf(call, expected, body)?, Vec::new()),
    };
    if let Some(map) = value.as_object_mut() {
        map.remove("apiVersion");
    }
    let value = check_type(call, expected, value, body)?;
    in_normal_form(expected, value, duplicates, validation)
}

/// Normalizes a decoded object and handles unknown fields.
pub(crate) fn in_normal_form(
    expected: ExpectedType,
    value: Value,
    duplicates: Vec<String>,
    validation: FieldValidation,
) -> Result<DecodedRequest, Error> {
    let normal = normalise(Schema::get(), expected.type_id()?, value)
        .map_err(|e| cannot_be_handled(expected, expected.kind, expected.version, &e.to_string()))?;
    apply_field_validation(expected, normal.value, field_problems(duplicates, normal.unknown), validation)
}

/// Like [`in_normal_form`], for server-side apply: unknown fields are rejected when the object is
/// merged, however lenient the validation.
pub(crate) fn applied_in_normal_form(
    expected: ExpectedType,
    value: Value,
    duplicates: Vec<String>,
    validation: FieldValidation,
) -> Result<DecodedRequest, Error> {
    let draft = in_normal_form(expected, value, Vec::new(), FieldValidation::Ignore)?;
    apply_field_validation(expected, draft.value, field_problems(duplicates, Vec::new()), validation)
}

fn apply_field_validation(
    expected: ExpectedType,
    value: Value,
    oddities: Vec<String>,
    validation: FieldValidation,
) -> Result<DecodedRequest, Error> {
    match validation {
        FieldValidation::Strict if !oddities.is_empty() => {
            let why = format!("strict decoding error: {}", oddities.join(", "));
            Err(cannot_be_handled(expected, expected.kind, expected.version, &why))
        }
        FieldValidation::Warn => Ok(DecodedRequest { value, warnings: oddities }),
        _ => Ok(DecodedRequest { value, warnings: Vec::new() }),
    }
}

/// Like [`in_normal_form`], for the result of a patch: Kubernetes reports an error as an invalid
/// patch, displayed as `shown`.
pub(crate) fn patched_in_normal_form(
    expected: ExpectedType,
    value: Value,
    duplicates: Vec<String>,
    validation: FieldValidation,
    shown: impl FnOnce() -> String,
) -> Result<DecodedRequest, Error> {
    let shown = || if expected.is_secret() { REDACTED.to_owned() } else { shown() };
    let normal = match normalise(Schema::get(), expected.type_id()?, value) {
        Ok(normal) => normal,
        Err(error) => return Err(invalid_patch(&shown(), &error.to_string())),
    };
    let oddities = field_problems(duplicates, normal.unknown);
    match validation {
        FieldValidation::Strict if !oddities.is_empty() => {
            let why = format!("strict decoding error: {}", oddities.join(", "));
            Err(invalid_patch(&shown(), &why))
        }
        FieldValidation::Warn => Ok(DecodedRequest { value: normal.value, warnings: oddities }),
        _ => Ok(DecodedRequest { value: normal.value, warnings: Vec::new() }),
    }
}

fn invalid_patch(shown: &str, why: &str) -> Error {
    let mut errors = FieldErrors::new();
    errors.invalid_str(&FieldPath::new("patch"), shown, why);
    let (group, kind, name) = (String::new(), String::new(), String::new());
    Error::Invalid { group, kind, name, errors }
}

/// Formats a value like Go, as Kubernetes shows a strategic merge patch.
pub(crate) fn as_go_prints(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(list) => {
            let parts: Vec<String> = list.iter().map(as_go_prints).collect();
            format!("[{}]", parts.join(" "))
        }
        Value::Object(map) => {
            let mut parts: Vec<String> =
                map.iter().map(|(name, value)| format!("{name}:{}", as_go_prints(value))).collect();
            parts.sort();
            format!("map[{}]", parts.join(" "))
        }
    }
}

fn field_problems(duplicates: Vec<String>, unknown: Vec<String>) -> Vec<String> {
    let duplicate = duplicates.iter().map(|p| format!("duplicate field {}", quote(p)));
    duplicate.chain(unknown.iter().map(|p| format!("unknown field {}", quote(p)))).collect()
}

fn parsed(
    result: Result<decode::DecodedBody, DecodeError>,
    expected: ExpectedType,
    body: &[u8],
) -> Result<(Value, Vec<String>), Error> {
    match result {
        Ok(decoded) => Ok((decoded.value, decoded.duplicates)),
        Err(error) => Err(unrecognized(expected, &error.to_string(), body)),
    }
}

fn protobuf(call: &RequestContext<'_>, expected: ExpectedType, body: &[u8]) -> Result<Value, Error> {
    let resolve = |api_version: &str, kind: &str| {
        if kind == expected.kind || kind.is_empty() {
            return expected.type_id().ok();
        }
        let (kind, served) = call.server.registry.by_kind(api_version, kind)?;
        Schema::get().lookup(ExpectedType::object(kind, served).type_name)
    };
    decode::protobuf(Schema::get(), body, resolve).map_err(|error| match error {
        DecodeError::UnknownKind { api_version, kind } => unregistered(expected, &api_version, &kind),
        other => unrecognized(expected, &other.to_string(), body),
    })
}

/// Checks the object's kind and version; absent ones default to those of the path.
fn check_type(
    call: &RequestContext<'_>,
    expected: ExpectedType,
    mut value: Value,
    body: &[u8],
) -> Result<Value, Error> {
    let Some(map) = value.as_object_mut() else {
        return Err(unrecognized(expected, "the body is no object", body));
    };
    let text = |name: &str| match map.get(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(unrecognized(
            expected,
            &format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal into Go struct field .{name} of type string"
            ),
            body,
        )),
    };
    let (kind, api_version) = (text("kind")?, text("apiVersion")?);
    let kind = if kind.is_empty() { expected.kind.to_owned() } else { kind };
    let wanted = expected.api_version();
    let api_version = if api_version.is_empty() { wanted.clone() } else { api_version };
    let version = api_version.rsplit('/').next().unwrap_or_default().to_owned();
    if kind != expected.kind {
        return Err(match call.server.registry.by_kind(&api_version, &kind) {
            Some(_) => {
                let internal = expected.group.split('.').next().filter(|g| !g.is_empty());
                let why = format!(
                    "converting ({version}.{kind}) to ({}.{}): unknown conversion",
                    internal.unwrap_or("core"),
                    expected.kind
                );
                cannot_be_handled(expected, &kind, &version, &why)
            }
            None => unregistered(expected, &api_version, &kind),
        });
    }
    if api_version != wanted {
        if call.server.registry.by_kind(&api_version, &kind).is_none() {
            return Err(unregistered(expected, &api_version, &kind));
        }
        return Err(Error::BadRequest(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({wanted})"
        )));
    }
    map.insert("kind".into(), kind.into());
    map.insert("apiVersion".into(), api_version.into());
    Ok(value)
}

fn unrecognized(expected: ExpectedType, why: &str, body: &[u8]) -> Error {
    let shown = if expected.is_secret() { REDACTED.to_owned() } else { decode::summary(body) };
    Error::BadRequest(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({shown})",
        expected.kind
    ))
}

fn cannot_be_handled(expected: ExpectedType, kind: &str, version: &str, why: &str) -> Error {
    Error::BadRequest(format!(
        "{kind} in version {} cannot be handled as a {}: {why}",
        quote(version),
        expected.kind
    ))
}

fn unregistered(expected: ExpectedType, api_version: &str, kind: &str) -> Error {
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let why = format!(
        "no kind {} is registered for version {} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        quote(kind),
        quote(api_version)
    );
    cannot_be_handled(expected, kind, version, &why)
}
