//! All field locations of a type, from the schema: present fields, absent ones, and unknown ones.

use serde_json::{Map, Value, json};
use windlass_api::schema::{Schema, ValueShape};

/// A field location in an object, and the type of its value.
pub struct FieldLocation {
    /// Keys that lead there; `0` is the first element of a list.
    pub at: Vec<String>,
    /// `None` for a field unknown to the schema.
    pub shape: Option<ValueShape>,
}

/// A change to an object: a value for a field, or its removal.
#[derive(Clone, Debug)]
pub struct FieldChange {
    pub at: Vec<String>,
    pub value: Option<Value>,
}

/// Returns all field locations of a type, except the type itself.
pub fn for_type(type_name: &str) -> Vec<FieldLocation> {
    let mut places = Vec::new();
    let id = Schema::get().lookup(type_name).unwrap();
    walk(&ValueShape::Object(id), &mut Vec::new(), &mut places);
    places
}

fn walk(shape: &ValueShape, at: &mut Vec<String>, places: &mut Vec<FieldLocation>) {
    if !at.is_empty() {
        places.push(FieldLocation { at: at.clone(), shape: Some(shape.clone()) });
    }
    let mut step = |key: &str, shape: &ValueShape| {
        at.push(key.to_owned());
        walk(shape, at, places);
        at.pop();
    };
    match shape {
        ValueShape::Object(id) => {
            for field in &Schema::get().get_type(*id).fields {
                step(field.name, &field.shape);
            }
            at.push("forged".into());
            places.push(FieldLocation { at: at.clone(), shape: None });
            at.pop();
        }
        ValueShape::List(element) => step("0", element),
        ValueShape::Map(value) => step("forged", value),
        _ => {}
    }
}

/// Returns a forged value of the right type.
pub fn forged_value(shape: Option<&ValueShape>) -> Value {
    let Some(shape) = shape else { return json!("forged") };
    match shape {
        ValueShape::String | ValueShape::Raw => json!("forged"),
        ValueShape::Bool => json!(true),
        ValueShape::Int32 | ValueShape::Int64 | ValueShape::IntOrString => json!(7),
        ValueShape::Float => json!(0.5),
        ValueShape::Quantity => json!("7"),
        ValueShape::Bytes => json!("Zm9yZ2Vk"),
        ValueShape::Time => json!("2001-01-01T00:00:00Z"),
        ValueShape::MicroTime => json!("2001-01-01T00:00:00.000000Z"),
        ValueShape::FieldsV1 => json!({"f:metadata": {"f:labels": {"f:forged": {}}}}),
        ValueShape::List(element) => json!([forged_value(Some(element))]),
        ValueShape::Map(value) => json!({"forged": forged_value(Some(value))}),
        ValueShape::Object(id) => {
            let fields = &Schema::get().get_type(*id).fields;
            let fields = fields.iter().map(|f| (f.name.to_owned(), forged_value(Some(&f.shape))));
            Value::Object(fields.collect())
        }
    }
}

impl FieldChange {
    pub fn shown(&self) -> String {
        let value = self.value.as_ref().map_or("nothing".to_owned(), Value::to_string);
        format!("{} = {}", pointer(&self.at), value.chars().take(120).collect::<String>())
    }

    /// Returns the object with the change applied, creating missing parents.
    pub fn apply_to(&self, object: &Value) -> Value {
        let mut changed = object.clone();
        set_value(&mut changed, &self.at, self.value.as_ref());
        changed
    }
}

fn set_value(inside: &mut Value, at: &[String], value: Option<&Value>) {
    let Some((key, rest)) = at.split_first() else {
        *inside = value.cloned().unwrap_or(Value::Null);
        return;
    };
    if key == "0" && !inside.is_object() {
        if !inside.is_array() {
            *inside = json!([]);
        }
        let list = inside.as_array_mut().unwrap();
        if rest.is_empty() && value.is_none() {
            list.drain(..list.len().min(1));
            return;
        }
        if list.is_empty() {
            list.push(Value::Null);
        }
        return set_value(&mut list[0], rest, value);
    }
    if !inside.is_object() {
        *inside = Value::Object(Map::new());
    }
    let map = inside.as_object_mut().unwrap();
    if rest.is_empty() && value.is_none() {
        map.remove(key);
        return;
    }
    set_value(map.entry(key.clone()).or_insert(Value::Null), rest, value);
}

pub fn pointer(at: &[String]) -> String {
    at.iter().map(|key| format!("/{}", key.replace('~', "~0").replace('/', "~1"))).collect()
}
