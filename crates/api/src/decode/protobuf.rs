//! Decodes protobuf bodies by walking the schema tables.
//!
//! A body consists of four magic bytes and a message `Unknown`, which names the type and contains
//! the typed message. Generated clients send this format and do not fall back to JSON. `prost`
//! provides the wire primitives; only the walk is here, so there is no generated code to keep in
//! sync with the tables.

mod special_types;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::encoding::{self, DecodeContext, WireType};
use serde_json::{Map, Number, Value};

use super::DecodeError;
use crate::limits::MAX_DEPTH;
use crate::schema::{Schema, SchemaField, TypeId, ValueShape};

/// Magic prefix of every Kubernetes protobuf message.
const MAGIC: [u8; 4] = *b"k8s\0";

/// Decodes a protobuf body to the equivalent JSON, with `apiVersion` and `kind` as named by the
/// message.
///
/// `resolve` maps an API version and kind to a type; either may be empty if the client relies on
/// the path. Go writes every plain field, including empty ones, so the value must still be
/// normalised. Unknown fields are skipped, as in Kubernetes; invalid UTF-8 is an error, whereas
/// Kubernetes keeps it and replaces it later.
pub fn protobuf(
    schema: &Schema,
    bytes: &[u8],
    resolve: impl Fn(&str, &str) -> Option<TypeId>,
) -> Result<Value, DecodeError> {
    let fail = |words: &str| Err(DecodeError::Protobuf(words.to_owned()));
    if bytes.is_empty() {
        return fail("empty data");
    }
    let Some(body) = bytes.strip_prefix(&MAGIC) else {
        return Err(DecodeError::Protobuf(format!(
            "provided data does not appear to be a protobuf message, expected prefix [{}]",
            MAGIC.map(|b| b.to_string()).join(" ")
        )));
    };
    if body.is_empty() {
        return fail("empty body");
    }
    let envelope = ProtobufEnvelope::read(body)?;
    let Some(id) = resolve(&envelope.api_version, &envelope.kind) else {
        let ProtobufEnvelope { api_version, kind, .. } = envelope;
        return Err(DecodeError::UnknownKind { api_version, kind });
    };
    let mut object = Map::new();
    ProtobufDecoder { schema }.message(id, envelope.raw, 1, &mut object)?;
    for (name, text) in [("apiVersion", envelope.api_version), ("kind", envelope.kind)] {
        if !text.is_empty() {
            object.insert(name.to_owned(), Value::String(text));
        }
    }
    Ok(Value::Object(object))
}

/// The message `Unknown`. Content encoding and content type are always empty here.
#[derive(Default)]
struct ProtobufEnvelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

impl<'a> ProtobufEnvelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, ProtobufFault> {
        let mut envelope = ProtobufEnvelope::default();
        each_field(bytes, |tag, wire, rest| {
            match tag {
                1 => each_field(delimited(wire, rest)?, |tag, wire, rest| {
                    match tag {
                        1 => envelope.api_version = text(wire, rest)?,
                        2 => envelope.kind = text(wire, rest)?,
                        _ => return Ok(false),
                    }
                    Ok(true)
                })?,
                2 => envelope.raw = delimited(wire, rest)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(envelope)
    }
}

/// A decoding error and the path of its field.
struct ProtobufFault {
    path: String,
    what: String,
}

impl ProtobufFault {
    fn new(what: impl Into<String>) -> Self {
        ProtobufFault { path: String::new(), what: what.into() }
    }

    /// Prefixes the path with the parent's `field`.
    fn under(mut self, field: &str) -> Self {
        if !self.path.is_empty() {
            self.path.insert(0, '.');
        }
        self.path.insert_str(0, field);
        self
    }
}

impl From<prost::DecodeError> for ProtobufFault {
    fn from(error: prost::DecodeError) -> Self {
        let text = error.to_string();
        ProtobufFault::new(text.strip_prefix("failed to decode Protobuf message: ").unwrap_or(&text))
    }
}

impl From<ProtobufFault> for DecodeError {
    fn from(fault: ProtobufFault) -> Self {
        DecodeError::Protobuf(match fault.path.as_str() {
            "" => format!("proto: {}", fault.what),
            path => format!("proto: {path}: {}", fault.what),
        })
    }
}

struct ProtobufDecoder<'s> {
    schema: &'s Schema,
}

impl ProtobufDecoder<'_> {
    /// Decodes a message of type `of` into `object` at nesting level `depth`. Merges with existing
    /// values, as protobuf requires for a message sent in pieces.
    fn message(
        &self,
        of: TypeId,
        bytes: &[u8],
        depth: usize,
        object: &mut Map<String, Value>,
    ) -> Result<(), ProtobufFault> {
        if depth > MAX_DEPTH {
            return Err(ProtobufFault::new("exceeded max depth"));
        }
        let of = self.schema.get_type(of);
        each_field(bytes, |tag, wire, rest| {
            if let Some(field) = of.field_by_tag(tag) {
                self.field(field, wire, rest, depth, object).map_err(|fault| fault.under(field.name))?;
            } else if let Some(inlined) = of.inlined_by_tag(tag) {
                // Counts as a level although JSON has none here: it bounds types that inline
                // themselves.
                self.message(inlined, delimited(wire, rest)?, depth + 1, object)?;
            } else {
                return Ok(false);
            }
            Ok(true)
        })
    }

    /// Decodes one occurrence of `field` into its parent object.
    fn field(
        &self,
        field: &SchemaField,
        wire: WireType,
        rest: &mut &[u8],
        depth: usize,
        object: &mut Map<String, Value>,
    ) -> Result<(), ProtobufFault> {
        match &field.shape {
            ValueShape::List(element) if field.wrapped => {
                let bytes = delimited(wire, rest)?;
                self.wrapped(element, bytes, depth, list_at(object, field.name))
            }
            ValueShape::List(element) => {
                self.element(element, wire, rest, depth + 1, list_at(object, field.name))
            }
            ValueShape::Map(value) => {
                let (key, value) = self.entry(value, delimited(wire, rest)?, depth + 1)?;
                object_at(object, field.name).insert(key, value);
                Ok(())
            }
            ValueShape::Object(of) => {
                let bytes = delimited(wire, rest)?;
                self.message(*of, bytes, depth + 1, object_at(object, field.name))
            }
            single => {
                let value = self.value(single, wire, rest, depth)?;
                object.insert(field.name.to_owned(), value);
                Ok(())
            }
        }
    }

    /// Decodes the elements of one occurrence of a repeated field: several if numbers are packed.
    fn element(
        &self,
        shape: &ValueShape,
        wire: WireType,
        rest: &mut &[u8],
        depth: usize,
        list: &mut Vec<Value>,
    ) -> Result<(), ProtobufFault> {
        if wire == WireType::LengthDelimited
            && let Some(packed) = packed(shape)
        {
            let mut numbers = delimited(wire, rest)?;
            while !numbers.is_empty() {
                list.push(self.value(shape, packed, &mut numbers, depth)?);
            }
            return Ok(());
        }
        let value = self.value(shape, wire, rest, depth);
        list.push(value.map_err(|fault| fault.under(&format!("[{}]", list.len())))?);
        Ok(())
    }

    /// Decodes a message whose field 1 repeats the elements: protobuf's encoding of a list where
    /// only a message is allowed.
    fn wrapped(
        &self,
        shape: &ValueShape,
        bytes: &[u8],
        depth: usize,
        list: &mut Vec<Value>,
    ) -> Result<(), ProtobufFault> {
        if depth > MAX_DEPTH {
            return Err(ProtobufFault::new("exceeded max depth"));
        }
        each_field(bytes, |tag, wire, rest| {
            if tag == 1 {
                self.element(shape, wire, rest, depth + 1, list)?;
            }
            Ok(tag == 1)
        })
    }

    /// Decodes a map entry. A missing key or value has the zero value.
    fn entry(
        &self,
        shape: &ValueShape,
        bytes: &[u8],
        depth: usize,
    ) -> Result<(String, Value), ProtobufFault> {
        let (mut key, mut value) = (String::new(), None);
        each_field(bytes, |tag, wire, rest| {
            match tag {
                1 => key = text(wire, rest)?,
                2 => value = Some(self.value(shape, wire, rest, depth)?),
                _ => return Ok(false),
            }
            Ok(true)
        })
        .map_err(|fault| fault.under(&format!("[{key}]")))?;
        Ok((key, value.unwrap_or_else(|| zero(shape))))
    }

    /// Decodes one value within a container at nesting level `depth`.
    fn value(
        &self,
        shape: &ValueShape,
        wire: WireType,
        rest: &mut &[u8],
        depth: usize,
    ) -> Result<Value, ProtobufFault> {
        let context = DecodeContext::default();
        Ok(match shape {
            ValueShape::String => Value::String(text(wire, rest)?),
            ValueShape::Bytes => Value::String(STANDARD.encode(delimited(wire, rest)?)),
            ValueShape::Bool => {
                let mut value = false;
                encoding::bool::merge(wire, &mut value, rest, context)?;
                Value::Bool(value)
            }
            ValueShape::Int32 => {
                let mut value = 0;
                encoding::int32::merge(wire, &mut value, rest, context)?;
                Value::Number(value.into())
            }
            ValueShape::Int64 => {
                let mut value = 0;
                encoding::int64::merge(wire, &mut value, rest, context)?;
                Value::Number(value.into())
            }
            ValueShape::Float => {
                let mut value = 0.0;
                encoding::double::merge(wire, &mut value, rest, context)?;
                let number = Number::from_f64(value);
                Value::Number(number.ok_or_else(|| ProtobufFault::new("a number is not finite"))?)
            }
            ValueShape::Time => special_types::time(delimited(wire, rest)?)?,
            ValueShape::MicroTime => special_types::micro_time(delimited(wire, rest)?)?,
            ValueShape::Quantity => special_types::quantity(delimited(wire, rest)?)?,
            ValueShape::IntOrString => special_types::int_or_string(delimited(wire, rest)?)?,
            ValueShape::Raw | ValueShape::FieldsV1 => special_types::json(delimited(wire, rest)?, depth)?,
            ValueShape::Object(of) => {
                let mut object = Map::new();
                self.message(*of, delimited(wire, rest)?, depth + 1, &mut object)?;
                Value::Object(object)
            }
            ValueShape::List(element) => {
                let mut list = Vec::new();
                self.wrapped(element, delimited(wire, rest)?, depth, &mut list)?;
                Value::Array(list)
            }
            ValueShape::Map(_) => {
                return Err(ProtobufFault::new("protobuf has no list or map of maps"));
            }
        })
    }
}

/// Calls `each` with every field of a message: its number, its wire type, and the remaining bytes
/// from its content on, from which `each` consumes the field. If `each` returns `false` it consumed
/// nothing, and the field is skipped.
fn each_field<'a>(
    mut bytes: &'a [u8],
    mut each: impl FnMut(u32, WireType, &mut &'a [u8]) -> Result<bool, ProtobufFault>,
) -> Result<(), ProtobufFault> {
    while !bytes.is_empty() {
        let (tag, wire) = encoding::decode_key(&mut bytes)?;
        if !each(tag, wire, &mut bytes)? {
            encoding::skip_field(wire, tag, &mut bytes, DecodeContext::default())?;
        }
    }
    Ok(())
}

/// Consumes a length prefix and that many bytes.
fn delimited<'a>(wire: WireType, rest: &mut &'a [u8]) -> Result<&'a [u8], ProtobufFault> {
    encoding::check_wire_type(WireType::LengthDelimited, wire)?;
    let length = encoding::decode_varint(rest)?;
    let split = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
    let Some((taken, after)) = split else {
        return Err(ProtobufFault::new("unexpected EOF"));
    };
    *rest = after;
    Ok(taken)
}

fn text(wire: WireType, rest: &mut &[u8]) -> Result<String, ProtobufFault> {
    let bytes = delimited(wire, rest)?;
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(ProtobufFault::new("the text is not UTF-8")),
    }
}

/// Returns the wire type of a packed list's numbers, if `shape` is a number.
fn packed(shape: &ValueShape) -> Option<WireType> {
    match shape {
        ValueShape::Bool | ValueShape::Int32 | ValueShape::Int64 => Some(WireType::Varint),
        ValueShape::Float => Some(WireType::SixtyFourBit),
        _ => None,
    }
}

fn zero(shape: &ValueShape) -> Value {
    match shape {
        ValueShape::String | ValueShape::Bytes => Value::String(String::new()),
        ValueShape::Bool => Value::Bool(false),
        ValueShape::Int32 | ValueShape::Int64 | ValueShape::Float | ValueShape::IntOrString => Value::from(0),
        ValueShape::Quantity => Value::from("0"),
        ValueShape::Time | ValueShape::MicroTime | ValueShape::Raw | ValueShape::FieldsV1 => Value::Null,
        ValueShape::Object(_) | ValueShape::Map(_) => Value::Object(Map::new()),
        ValueShape::List(_) => Value::Array(Vec::new()),
    }
}

/// Returns the list under `name`, creating it if absent.
fn list_at<'a>(object: &'a mut Map<String, Value>, name: &str) -> &'a mut Vec<Value> {
    let slot = slot_at(object, name, || Value::Array(Vec::new()));
    match slot {
        Value::Array(list) => list,
        _ => unreachable!("a name has one shape in a type, and this one is a list"),
    }
}

/// Returns the object under `name`, creating it if absent.
fn object_at<'a>(object: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let slot = slot_at(object, name, || Value::Object(Map::new()));
    match slot {
        Value::Object(object) => object,
        _ => unreachable!("a name has one shape in a type, and this one is an object or map"),
    }
}

fn slot_at<'a>(
    object: &'a mut Map<String, Value>,
    name: &str,
    make: impl FnOnce() -> Value,
) -> &'a mut Value {
    // Checking first avoids copying the name for repeated fields.
    if !object.contains_key(name) {
        object.insert(name.to_owned(), make());
    }
    &mut object[name]
}

#[cfg(test)]
mod tests;
