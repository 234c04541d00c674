//! Sets the defaults of a type on an object.

use serde_json::Value;

use super::{HEADER_FIELDS, Schema, TypeId, ValueShape};

impl Schema {
    /// Sets fields that are absent or null to the default of the table, below objects that are there.
    pub fn set_defaults(&self, id: TypeId, object: &mut Value) {
        for field in &self.get_type(id).fields {
            if !HEADER_FIELDS.contains(&field.name)
                && let Some(value) = object.get_mut(field.name)
            {
                self.set_nested_defaults(&field.shape, value);
            }
        }
    }

    fn set_nested_defaults(&self, shape: &ValueShape, value: &mut Value) {
        match (shape, value) {
            (ValueShape::Object(id), Value::Object(object)) => {
                for field in &self.get_type(*id).fields {
                    match (&field.default, object.get_mut(field.name)) {
                        (Some(default), None | Some(Value::Null)) => {
                            object.insert(field.name.to_owned(), default.clone());
                        }
                        (_, Some(value)) => self.set_nested_defaults(&field.shape, value),
                        (None, None) => {}
                    }
                }
            }
            (ValueShape::List(of), Value::Array(list)) => {
                list.iter_mut().for_each(|element| self.set_nested_defaults(of, element));
            }
            _ => {}
        }
    }
}
