//! Every place of a type, from the schema: fields that an object has, fields it could have, and some it cannot.

use serde_json::{Map, Value, json};
use windlass_api::schema::{Schema, Shape};

/// A place in an object, and what sort of thing stands there.
pub struct Place {
    /// The keys that lead there; `0` is the first element of a list.
    pub at: Vec<String>,
    /// `None` for a field that the schema does not know.
    pub shape: Option<Shape>,
}

/// One thing to do to an object: a value for a place, or nothing there any more.
#[derive(Clone, Debug)]
pub struct Change {
    pub at: Vec<String>,
    pub value: Option<Value>,
}

/// All places of a type, the type itself excepted.
pub fn all(type_name: &str) -> Vec<Place> {
    let mut places = Vec::new();
    let id = Schema::get().lookup(type_name).unwrap();
    walk(&Shape::Object(id), &mut Vec::new(), &mut places);
    places
}

fn walk(shape: &Shape, at: &mut Vec<String>, places: &mut Vec<Place>) {
    if !at.is_empty() {
        places.push(Place { at: at.clone(), shape: Some(shape.clone()) });
    }
    let mut step = |key: &str, shape: &Shape| {
        at.push(key.to_owned());
        walk(shape, at, places);
        at.pop();
    };
    match shape {
        Shape::Object(id) => {
            for field in &Schema::get().type_of(*id).fields {
                step(field.name, &field.shape);
            }
            at.push("forged".into());
            places.push(Place { at: at.clone(), shape: None });
            at.pop();
        }
        Shape::List(element) => step("0", element),
        Shape::Map(value) => step("forged", value),
        _ => {}
    }
}

/// A value of the right type that nobody asked for.
pub fn any(shape: Option<&Shape>) -> Value {
    let Some(shape) = shape else { return json!("forged") };
    match shape {
        Shape::String | Shape::Raw => json!("forged"),
        Shape::Bool => json!(true),
        Shape::Int32 | Shape::Int64 | Shape::IntOrString => json!(7),
        Shape::Float => json!(0.5),
        Shape::Quantity => json!("7"),
        Shape::Bytes => json!("Zm9yZ2Vk"),
        Shape::Time => json!("2001-01-01T00:00:00Z"),
        Shape::MicroTime => json!("2001-01-01T00:00:00.000000Z"),
        Shape::FieldsV1 => json!({"f:metadata": {"f:labels": {"f:forged": {}}}}),
        Shape::List(element) => json!([any(Some(element))]),
        Shape::Map(value) => json!({"forged": any(Some(value))}),
        Shape::Object(id) => {
            let fields = &Schema::get().type_of(*id).fields;
            let fields = fields.iter().map(|f| (f.name.to_owned(), any(Some(&f.shape))));
            Value::Object(fields.collect())
        }
    }
}

impl Change {
    /// As `/spec/signerName = "x"`.
    pub fn shown(&self) -> String {
        let value = self.value.as_ref().map_or("nothing".to_owned(), Value::to_string);
        format!("{} = {}", pointer(&self.at), value.chars().take(120).collect::<String>())
    }

    /// The object with the change made, and with what leads to the place if that is missing.
    pub fn made_to(&self, object: &Value) -> Value {
        let mut changed = object.clone();
        make(&mut changed, &self.at, self.value.as_ref());
        changed
    }
}

fn make(inside: &mut Value, at: &[String], value: Option<&Value>) {
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
        return make(&mut list[0], rest, value);
    }
    if !inside.is_object() {
        *inside = Value::Object(Map::new());
    }
    let map = inside.as_object_mut().unwrap();
    if rest.is_empty() && value.is_none() {
        map.remove(key);
        return;
    }
    make(map.entry(key.clone()).or_insert(Value::Null), rest, value);
}

/// A JSON pointer.
pub fn pointer(at: &[String]) -> String {
    at.iter().map(|key| format!("/{}", key.replace('~', "~0").replace('/', "~1"))).collect()
}
