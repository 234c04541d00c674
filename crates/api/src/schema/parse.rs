//! Reads the schema tables.
//!
//! ```text
//! # a comment
//! package io.k8s.api.core.v1
//! import meta io.k8s.apimachinery.pkg.apis.meta.v1
//!
//! type ConfigMap | Plain configuration for pods.
//!   1 metadata meta.ObjectMeta always
//!   2 data map[string] nonempty | Text by key.
//!   4 immutable bool given | When true, the data cannot be changed.
//! type ConfigMapKeySelector atomic
//!   1 localObjectReference LocalObjectReference inline
//!   2 key string always required
//! ```
//!
//! A field is: protobuf tag, JSON name, shape, presence (`always`, `given`, `nonempty`), then any of
//! `required`, `default=JSON` (no spaces), `list=atomic|set|key:a,b`, `map=atomic`,
//! `patch=merge|merge:KEY|retainKeys|merge+retainKeys:KEY`, `enum=A,B`, `wrapped`, `nullable`; then
//! `|` and a sentence. A shape is a scalar name, a type (`Name` of this package or `alias.Name`), `[]shape` or
//! `map[shape]`. With `inline` for a presence, the type's fields join those of the type at hand.

use std::collections::HashMap;

use super::{
    FieldPresence, InlinedType, MergeStrategy, ObjectType, PatchStrategy, Schema, SchemaField,
    TypeId, ValueShape,
};

/// The tables that are built into the binary.
const TABLES: &[(&str, &str)] = &[
    ("meta.v1", include_str!("../../schema/meta.v1.schema")),
    ("core.v1", include_str!("../../schema/core.v1.schema")),
    ("authentication.v1", include_str!("../../schema/authentication.v1.schema")),
    ("authorization.v1", include_str!("../../schema/authorization.v1.schema")),
    ("certificates.v1", include_str!("../../schema/certificates.v1.schema")),
    ("certificates.v1beta1", include_str!("../../schema/certificates.v1beta1.schema")),
    ("certificates.v1alpha1", include_str!("../../schema/certificates.v1alpha1.schema")),
    ("coordination.v1", include_str!("../../schema/coordination.v1.schema")),
    ("discovery.v1", include_str!("../../schema/discovery.v1.schema")),
    ("events.v1", include_str!("../../schema/events.v1.schema")),
    ("node.v1", include_str!("../../schema/node.v1.schema")),
    ("policy.v1", include_str!("../../schema/policy.v1.schema")),
    ("rbac.v1", include_str!("../../schema/rbac.v1.schema")),
    ("resource.v1", include_str!("../../schema/resource.v1.schema")),
    ("storage.v1", include_str!("../../schema/storage.v1.schema")),
    ("trust.v1alpha1", include_str!("../../schema/trust.v1alpha1.schema")),
    ("windlass.v1alpha1", include_str!("../../schema/windlass.v1alpha1.schema")),
];

/// What is wrong with a table, and where.
#[derive(Debug, thiserror::Error)]
#[error("schema table {table}, line {line}: {what}")]
pub struct SchemaParseError {
    table: String,
    line: usize,
    what: String,
}

/// Parses the built-in tables. They are part of the program and a test parses them all, so an
/// error here cannot reach a user.
pub(super) fn builtin() -> Schema {
    match parse(TABLES) {
        Ok(schema) => schema,
        Err(error) => unreachable!("{error}"),
    }
}

impl Schema {
    /// Parses tables given as (name, text).
    pub fn parse(tables: &[(&'static str, &'static str)]) -> Result<Schema, SchemaParseError> {
        parse(tables)
    }
}

fn parse(tables: &[(&'static str, &'static str)]) -> Result<Schema, SchemaParseError> {
    let mut types: Vec<ObjectType> = Vec::new();
    let mut by_name: HashMap<&'static str, TypeId> = HashMap::new();
    for line in lines(tables) {
        let line = line?;
        if let SchemaItem::Type { name, atomic, description } = line.item {
            let name: &'static str = format!("{}.{name}", line.package).leak();
            if by_name.insert(name, TypeId(types.len() as u32)).is_some() {
                return Err(line.error(format!("type {name} stands twice")));
            }
            types.push(ObjectType {
                name,
                description,
                fields: Vec::new(),
                inlined: Vec::new(),
                atomic,
            });
        }
    }
    let mut current: Option<usize> = None;
    let mut next = 0;
    for line in lines(tables) {
        let line = line?;
        match line.item {
            SchemaItem::Type { .. } => {
                current = Some(next);
                next += 1;
            }
            SchemaItem::Field(words, description) => {
                let Some(owner) = current else {
                    return Err(line.error("a field before the first type".into()));
                };
                if words.split_whitespace().nth(3) == Some("inline") {
                    types[owner].inlined.push(inline(&line, words, &by_name)?);
                } else {
                    types[owner].fields.push(field(&line, words, description, &by_name)?);
                }
            }
        }
    }
    let flattened: Vec<Vec<SchemaField>> =
        types.iter().map(|t| inlined_fields(&types, t, 0)).collect();
    for (t, mut more) in types.iter_mut().zip(flattened) {
        t.fields.append(&mut more);
        t.fields.sort_by_key(|f| f.name);
        t.fields.shrink_to_fit();
        if let Some(pair) = t.fields.windows(2).find(|w| w[0].name == w[1].name) {
            let what = format!("field {} of {} stands twice", pair[0].name, t.name);
            return Err(SchemaParseError { table: t.name.into(), line: 0, what });
        }
    }
    Ok(Schema { types, by_name })
}

/// The fields that come from inlined types, at any depth. The bound only matters for a table in
/// which types inline each other in a circle; its fields then stand twice, which is an error.
fn inlined_fields(types: &[ObjectType], of: &ObjectType, depth: u32) -> Vec<SchemaField> {
    let mut fields = Vec::new();
    for inline in &of.inlined {
        let embedded = &types[inline.of.0 as usize];
        fields.extend(embedded.fields.iter().map(|f| SchemaField { tag: 0, ..f.clone() }));
        if depth < 4 {
            fields.append(&mut inlined_fields(types, embedded, depth + 1));
        }
    }
    fields
}

/// A significant line with what is in force there.
struct SchemaLine {
    table: &'static str,
    number: usize,
    package: &'static str,
    imports: Vec<(&'static str, &'static str)>,
    item: SchemaItem,
}

enum SchemaItem {
    Type { name: &'static str, atomic: bool, description: &'static str },
    Field(&'static str, &'static str),
}

impl SchemaLine {
    fn error(&self, what: String) -> SchemaParseError {
        SchemaParseError { table: self.table.into(), line: self.number, what }
    }
}

fn lines(
    tables: &[(&'static str, &'static str)],
) -> impl Iterator<Item = Result<SchemaLine, SchemaParseError>> {
    tables.iter().flat_map(|&(table, text)| {
        let mut package = "";
        let mut imports: Vec<(&'static str, &'static str)> = Vec::new();
        text.lines().enumerate().filter_map(move |(i, raw)| {
            let number = i + 1;
            let fail = |what: &str| {
                Some(Err(SchemaParseError { table: table.into(), line: number, what: what.into() }))
            };
            let (code, description) = match raw.split_once(" | ") {
                Some((code, words)) => (code, words.trim()),
                None => (raw, ""),
            };
            let indented = code.starts_with(' ');
            let code = code.trim();
            if code.is_empty() || code.starts_with('#') {
                return None;
            }
            let item = if indented {
                SchemaItem::Field(code, description)
            } else {
                let mut words = code.split_whitespace();
                match (words.next(), words.next(), words.next()) {
                    (Some("package"), Some(name), None) => {
                        package = name;
                        return None;
                    }
                    (Some("import"), Some(alias), Some(path)) => {
                        imports.push((alias, path));
                        return None;
                    }
                    (Some("type"), Some(name), flag) => {
                        let atomic = flag == Some("atomic");
                        SchemaItem::Type { name, atomic, description }
                    }
                    _ => return fail("neither package, import, type nor field"),
                }
            };
            Some(Ok(SchemaLine { table, number, package, imports: imports.clone(), item }))
        })
    })
}

fn inline(
    line: &SchemaLine,
    code: &'static str,
    by_name: &HashMap<&'static str, TypeId>,
) -> Result<InlinedType, SchemaParseError> {
    let mut words = code.split_whitespace();
    let tag = words.next().and_then(|w| w.parse().ok());
    let text = words.nth(1).unwrap_or_default();
    match (tag, shape(line, text, by_name)?) {
        (Some(tag), ValueShape::Object(of)) => Ok(InlinedType { tag, of }),
        _ => Err(line.error("an inlined type is: tag name type inline".into())),
    }
}

fn field(
    line: &SchemaLine,
    code: &'static str,
    description: &'static str,
    by_name: &HashMap<&'static str, TypeId>,
) -> Result<SchemaField, SchemaParseError> {
    let mut words = code.split_whitespace();
    let (Some(tag), Some(name), Some(shape_text), Some(presence)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(line.error("a field is: tag name shape presence …".into()));
    };
    let mut field = SchemaField {
        name,
        tag: tag.parse().map_err(|_| line.error(format!("tag {tag:?} is no number")))?,
        shape: shape(line, shape_text, by_name)?,
        presence: match presence {
            "always" => FieldPresence::Always,
            "given" => FieldPresence::Given,
            "nonempty" => FieldPresence::NonEmpty,
            other => return Err(line.error(format!("presence {other:?}"))),
        },
        wrapped: false,
        nullable: false,
        required: false,
        default: None,
        merge: MergeStrategy::Default,
        patch: PatchStrategy::Default,
        one_of: Vec::new(),
        description,
    };
    for word in words {
        attribute(line, &mut field, word)?;
    }
    Ok(field)
}

fn attribute(
    line: &SchemaLine,
    field: &mut SchemaField,
    word: &'static str,
) -> Result<(), SchemaParseError> {
    match word.split_once('=').unwrap_or((word, "")) {
        ("required", "") => field.required = true,
        ("wrapped", "") => field.wrapped = true,
        ("nullable", "") => field.nullable = true,
        ("default", json) => {
            let parsed = serde_json::from_str(json);
            field.default = Some(parsed.map_err(|e| line.error(format!("default {json}: {e}")))?);
        }
        ("list" | "map", "atomic") => field.merge = MergeStrategy::Atomic,
        ("list", "set") => field.merge = MergeStrategy::Set,
        ("list", keys) if keys.starts_with("key:") => {
            field.merge = MergeStrategy::ByKey(keys["key:".len()..].split(',').collect());
        }
        ("patch", "merge") => field.patch = PatchStrategy::Merge(None),
        ("patch", "retainKeys") => field.patch = PatchStrategy::RetainKeys,
        ("patch", how) => match how.split_once(':') {
            Some(("merge", key)) => field.patch = PatchStrategy::Merge(Some(key)),
            Some(("merge+retainKeys", key)) => field.patch = PatchStrategy::MergeRetainKeys(key),
            _ => return Err(line.error(format!("patch={how}"))),
        },
        ("enum", values) => field.one_of = values.split(',').collect(),
        _ => return Err(line.error(format!("attribute {word:?}"))),
    }
    Ok(())
}

fn shape(
    line: &SchemaLine,
    text: &str,
    by_name: &HashMap<&'static str, TypeId>,
) -> Result<ValueShape, SchemaParseError> {
    if let Some(item) = text.strip_prefix("[]") {
        return Ok(ValueShape::List(Box::new(shape(line, item, by_name)?)));
    }
    if let Some(item) = text.strip_prefix("map[").and_then(|t| t.strip_suffix(']')) {
        return Ok(ValueShape::Map(Box::new(shape(line, item, by_name)?)));
    }
    Ok(match text {
        "string" => ValueShape::String,
        "bool" => ValueShape::Bool,
        "int32" => ValueShape::Int32,
        "int64" => ValueShape::Int64,
        "float" => ValueShape::Float,
        "bytes" => ValueShape::Bytes,
        "time" => ValueShape::Time,
        "microtime" => ValueShape::MicroTime,
        "quantity" => ValueShape::Quantity,
        "intorstring" => ValueShape::IntOrString,
        "raw" => ValueShape::Raw,
        "fieldsv1" => ValueShape::FieldsV1,
        name => {
            let full = match name.split_once('.') {
                Some((alias, name)) => {
                    let import = line.imports.iter().find(|(a, _)| *a == alias);
                    let Some((_, path)) = import else {
                        return Err(line.error(format!("alias {alias} is not imported")));
                    };
                    format!("{path}.{name}")
                }
                None => format!("{}.{name}", line.package),
            };
            let id = by_name.get(full.as_str());
            ValueShape::Object(*id.ok_or_else(|| line.error(format!("type {full} is unknown")))?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
package a.b
import x c.d
type One | The first.
  1 name string always required default=\"\" | A name.
  3 list []x.Two nonempty list=key:k patch=merge:k
  2 map map[[]string] given
package c.d
type Two atomic
  1 k string nonempty enum=A,B
";

    #[test]
    fn a_table_becomes_types() {
        let schema = Schema::parse(&[("t", TABLE)]).unwrap();
        let one = schema.get_type(schema.lookup("a.b.One").unwrap());
        assert_eq!(one.description, "The first.");
        assert_eq!(one.field("name").unwrap().description, "A name.");
        assert_eq!(one.field_by_tag(3).unwrap().merge, MergeStrategy::ByKey(vec!["k"]));
        assert_eq!(one.field("list").unwrap().patch, PatchStrategy::Merge(Some("k")));
        let two = schema.lookup("c.d.Two").unwrap();
        assert!(schema.get_type(two).atomic);
        assert_eq!(
            one.field("list").unwrap().shape,
            ValueShape::List(Box::new(ValueShape::Object(two)))
        );
    }

    #[test]
    fn inlined_fields_are_flattened_and_keep_their_message() {
        let text = "\
package p
type Outer
  1 base Base inline
  2 key string always
type Base
  1 name string nonempty
  2 deep Deep inline
type Deep
  1 x map[[]string] given wrapped
";
        let schema = Schema::parse(&[("t", text)]).unwrap();
        let outer = schema.get_type(schema.lookup("p.Outer").unwrap());
        let names: Vec<_> = outer.fields.iter().map(|f| (f.name, f.tag)).collect();
        assert_eq!(names, [("key", 2), ("name", 0), ("x", 0)]);
        assert_eq!(outer.inlined_by_tag(1), schema.lookup("p.Base"));
        assert!(outer.field("x").unwrap().wrapped);
        assert!(outer.field_by_tag(0).is_none());
        let circle = "package p\ntype A\n  1 a A inline\n  2 f bool given";
        assert!(Schema::parse(&[("t", circle)]).is_err());
    }

    #[test]
    fn a_broken_table_names_the_line() {
        for (text, words) in [
            ("package p\ntype T\n  1 a Nope given", "line 3: type p.Nope is unknown"),
            ("package p\ntype T\n  1 a string often", "line 3: presence"),
            ("package p\n  1 a string given", "line 2: a field before"),
            ("package p\ntype T\n  x a string given", "line 3: tag"),
            ("package p\ntype T\ntype T", "line 3: type p.T stands twice"),
        ] {
            let error = Schema::parse(&[("t", text)]).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn the_built_in_tables_agree_with_themselves() {
        let schema = parse(TABLES).unwrap();
        for (_, t) in schema.types() {
            let mut tags: Vec<u32> =
                t.fields.iter().map(|f| f.tag).filter(|tag| *tag != 0).collect();
            tags.extend(t.inlined.iter().map(|i| i.tag));
            let all = tags.len();
            tags.sort_unstable();
            tags.dedup();
            assert_eq!(tags.len(), all, "a tag of {} stands twice", t.name);
            for field in &t.fields {
                let at = format!("{}.{}", t.name, field.name);
                let mut keys = match &field.merge {
                    MergeStrategy::ByKey(keys) => keys.clone(),
                    _ => Vec::new(),
                };
                if let PatchStrategy::Merge(Some(key)) | PatchStrategy::MergeRetainKeys(key) =
                    field.patch
                {
                    keys.push(key);
                }
                if let ValueShape::List(of) = &field.shape
                    && let ValueShape::Object(id) = **of
                {
                    let element = schema.get_type(id);
                    keys.retain(|key| element.field(key).is_none());
                }
                assert!(keys.is_empty(), "{at} is keyed by {keys:?}");
                let list_in_map = matches!(&field.shape, ValueShape::Map(of) if matches!(**of, ValueShape::List(_)));
                assert_eq!(field.wrapped, list_in_map, "{at}");
                assert!(!field.nullable || field.presence == FieldPresence::Always, "{at}");
            }
        }
    }
}
