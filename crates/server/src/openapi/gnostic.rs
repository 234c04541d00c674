//! The version 2 document as protobuf, in the messages of gnostic's `openapi.v2`.
//!
//! Clients up to Kubernetes 1.26 know only this form, later ones fall back to it. The encoder reads
//! the JSON form of one path or definition at a time, and knows the members that [`super::paths`]
//! and [`super::definitions`] write.

use serde_json::{Map, Value};

/// Document to which paths and definitions are added one by one.
pub(super) struct GnosticDocument {
    head: ProtobufMessage,
    paths: ProtobufMessage,
    definitions: ProtobufMessage,
}

impl GnosticDocument {
    /// Creates a document that has `info` and no paths yet.
    pub(super) fn new(info: &Value) -> GnosticDocument {
        let mut head = ProtobufMessage::default();
        head.text(1, "2.0");
        let mut message = ProtobufMessage::default();
        message.text(1, text(info, "title"));
        message.text(2, text(info, "version"));
        head.message(2, &message);
        GnosticDocument { head, paths: ProtobufMessage::default(), definitions: ProtobufMessage::default() }
    }

    /// Appends one path with its operations; call it once per path.
    pub(super) fn path(&mut self, path: &str, item: &Value) {
        let mut message = ProtobufMessage::default();
        for (method, tag) in [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("patch", 8)] {
            if let Some(found) = item.get(method) {
                message.message(tag, &operation(found));
            }
        }
        for found in list(item, "parameters") {
            message.message(9, &parameters_item(found));
        }
        self.paths.message(2, &named(path, &message));
    }

    /// Appends one schema definition under `name`; names must be unique.
    pub(super) fn definition(&mut self, name: &str, definition: &Value) {
        self.definitions.message(1, &named(name, &schema(definition)));
    }

    /// Returns the complete document in gnostic's protobuf encoding.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut out = self.head;
        out.message(8, &self.paths);
        drop(self.paths);
        out.message(9, &self.definitions);
        out.message(12, &bearer_requirement());
        out.message(13, &bearer_definition());
        out.0
    }
}

/// A protobuf message being encoded.
#[derive(Default)]
struct ProtobufMessage(Vec<u8>);

impl ProtobufMessage {
    fn text(&mut self, tag: u32, text: &str) {
        if !text.is_empty() {
            self.bytes(tag, text.as_bytes());
        }
    }

    fn flag(&mut self, tag: u32, value: bool) {
        if value {
            self.varint(u64::from(tag << 3));
            self.0.push(1);
        }
    }

    fn message(&mut self, tag: u32, message: &ProtobufMessage) {
        self.bytes(tag, &message.0);
    }

    fn bytes(&mut self, tag: u32, bytes: &[u8]) {
        self.varint(u64::from(tag << 3 | 2));
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

fn operation(value: &Value) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    for (name, tag) in [("tags", 1), ("produces", 6), ("consumes", 7), ("schemes", 10)] {
        texts(&mut out, tag, value, name);
    }
    out.text(3, text(value, "description"));
    out.text(5, text(value, "operationId"));
    for found in list(value, "parameters") {
        out.message(8, &parameters_item(found));
    }
    let mut responses = ProtobufMessage::default();
    for (code, response) in members(value, "responses") {
        let mut message = ProtobufMessage::default();
        message.text(1, text(response, "description"));
        if let Some(of) = response.get("schema") {
            message.message(2, &wrapped(1, &schema(of)));
        }
        responses.message(1, &named(code, &wrapped(1, &message)));
    }
    out.message(9, &responses);
    extensions(&mut out, 13, value);
    out
}

fn parameters_item(value: &Value) -> ProtobufMessage {
    let parameter = match text(value, "in") {
        "body" => wrapped(1, &body_parameter(value)),
        place => {
            // Query and path parameters have different tags from the fifth on: only a query
            // parameter may be empty.
            let (sub, shift) = if place == "path" { (4, 0) } else { (3, 1) };
            let mut out = ProtobufMessage::default();
            out.flag(1, value["required"] == true);
            out.text(2, place);
            out.text(3, text(value, "description"));
            out.text(4, text(value, "name"));
            out.text(5 + shift, text(value, "type"));
            out.flag(19 + shift, value["uniqueItems"] == true);
            wrapped(2, &wrapped(sub, &out))
        }
    };
    wrapped(1, &parameter)
}

fn body_parameter(value: &Value) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    out.text(1, text(value, "description"));
    out.text(2, text(value, "name"));
    out.text(3, "body");
    out.flag(4, value["required"] == true);
    if let Some(of) = value.get("schema") {
        out.message(5, &schema(of));
    }
    out
}

fn schema(value: &Value) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    out.text(1, text(value, "$ref"));
    out.text(2, text(value, "format"));
    out.text(4, text(value, "description"));
    if let Some(default) = value.get("default") {
        out.message(5, &encode_any(default));
    }
    texts(&mut out, 19, value, "required");
    for one in list(value, "enum") {
        out.message(20, &encode_any(one));
    }
    if let Some(of) = value.get("additionalProperties") {
        out.message(21, &wrapped(1, &schema(of)));
    }
    if let Some(Value::String(kind)) = value.get("type") {
        let mut types = ProtobufMessage::default();
        types.text(1, kind);
        out.message(22, &types);
    }
    if let Some(of) = value.get("items") {
        out.message(23, &wrapped(1, &schema(of)));
    }
    if value.get("properties").is_some() {
        let mut properties = ProtobufMessage::default();
        for (name, of) in members(value, "properties") {
            properties.message(1, &named(name, &schema(of)));
        }
        out.message(25, &properties);
    }
    extensions(&mut out, 31, value);
    out
}

/// Encodes members whose names begin with `x-` as YAML, of which JSON is a subset.
fn extensions(out: &mut ProtobufMessage, tag: u32, value: &Value) {
    let Value::Object(members) = value else { return };
    for (name, value) in members.iter().filter(|(name, _)| name.starts_with("x-")) {
        out.message(tag, &named(name, &encode_any(value)));
    }
}

fn encode_any(value: &Value) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    out.text(2, &value.to_string());
    out
}

fn named(name: &str, value: &ProtobufMessage) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    out.text(1, name);
    out.message(2, value);
    out
}

fn wrapped(tag: u32, message: &ProtobufMessage) -> ProtobufMessage {
    let mut out = ProtobufMessage::default();
    out.message(tag, message);
    out
}

fn bearer_requirement() -> ProtobufMessage {
    wrapped(1, &named("BearerToken", &ProtobufMessage::default()))
}

fn bearer_definition() -> ProtobufMessage {
    let mut key = ProtobufMessage::default();
    key.text(1, "apiKey");
    key.text(2, "authorization");
    key.text(3, "header");
    key.text(4, "A bearer token.");
    wrapped(1, &named("BearerToken", &wrapped(2, &key)))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn texts(out: &mut ProtobufMessage, tag: u32, value: &Value, name: &str) {
    for one in list(value, name) {
        out.text(tag, one.as_str().unwrap_or_default());
    }
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn members<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.get(name).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}
