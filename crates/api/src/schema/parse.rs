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
//!   2 key string always required
//! ```
//!
//! A field is: protobuf tag, JSON name, shape, presence (`always`, `given`, `nonempty`), then any of
//! `required`, `default=JSON` (no spaces), `list=atomic|set|key:a,b`, `map=atomic`,
//! `patch=merge|merge:KEY|retainKeys|merge+retainKeys:KEY`, `enum=A,B`; then `|` and a sentence.
//! A shape is a scalar name, a type (`Name` of this package or `alias.Name`), `[]shape` or
//! `map[shape]`.

use std::collections::HashMap;

use super::{Field, Merge, Patch, Presence, Schema, Shape, Type, TypeId};

/// The tables that are built into the binary.
const TABLES: &[(&str, &str)] = &[];

/// What is wrong with a table, and where.
#[derive(Debug, thiserror::Error)]
#[error("schema table {table}, line {line}: {what}")]
pub struct ParseError {
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
    pub fn parse(tables: &[(&'static str, &'static str)]) -> Result<Schema, ParseError> {
        parse(tables)
    }
}

fn parse(tables: &[(&'static str, &'static str)]) -> Result<Schema, ParseError> {
    let mut types: Vec<Type> = Vec::new();
    let mut by_name: HashMap<&'static str, TypeId> = HashMap::new();
    for line in lines(tables) {
        let line = line?;
        if let Item::Type { name, atomic, description } = line.item {
            let name: &'static str = format!("{}.{name}", line.package).leak();
            if by_name.insert(name, TypeId(types.len() as u32)).is_some() {
                return Err(line.error(format!("type {name} stands twice")));
            }
            types.push(Type { name, description, fields: Vec::new(), atomic });
        }
    }
    let mut current: Option<usize> = None;
    let mut next = 0;
    for line in lines(tables) {
        let line = line?;
        match line.item {
            Item::Type { .. } => {
                current = Some(next);
                next += 1;
            }
            Item::Field(words, description) => {
                let Some(owner) = current else {
                    return Err(line.error("a field before the first type".into()));
                };
                let field = field(&line, words, description, &by_name)?;
                types[owner].fields.push(field);
            }
        }
    }
    for t in &mut types {
        t.fields.sort_by_key(|f| f.name);
        t.fields.shrink_to_fit();
        if let Some(pair) = t.fields.windows(2).find(|w| w[0].name == w[1].name) {
            let what = format!("field {} of {} stands twice", pair[0].name, t.name);
            return Err(ParseError { table: t.name.into(), line: 0, what });
        }
    }
    Ok(Schema { types, by_name })
}

/// A significant line with what is in force there.
struct Line {
    table: &'static str,
    number: usize,
    package: &'static str,
    imports: Vec<(&'static str, &'static str)>,
    item: Item,
}

enum Item {
    Type { name: &'static str, atomic: bool, description: &'static str },
    Field(&'static str, &'static str),
}

impl Line {
    fn error(&self, what: String) -> ParseError {
        ParseError { table: self.table.into(), line: self.number, what }
    }
}

fn lines(tables: &[(&'static str, &'static str)]) -> impl Iterator<Item = Result<Line, ParseError>> {
    tables.iter().flat_map(|&(table, text)| {
        let mut package = "";
        let mut imports: Vec<(&'static str, &'static str)> = Vec::new();
        text.lines().enumerate().filter_map(move |(i, raw)| {
            let number = i + 1;
            let fail = |what: &str| {
                Some(Err(ParseError { table: table.into(), line: number, what: what.into() }))
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
                Item::Field(code, description)
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
                        Item::Type { name, atomic, description }
                    }
                    _ => return fail("neither package, import, type nor field"),
                }
            };
            Some(Ok(Line { table, number, package, imports: imports.clone(), item }))
        })
    })
}

fn field(
    line: &Line,
    code: &'static str,
    description: &'static str,
    by_name: &HashMap<&'static str, TypeId>,
) -> Result<Field, ParseError> {
    let mut words = code.split_whitespace();
    let (Some(tag), Some(name), Some(shape_text), Some(presence)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(line.error("a field is: tag name shape presence …".into()));
    };
    let mut field = Field {
        name,
        tag: tag.parse().map_err(|_| line.error(format!("tag {tag:?} is no number")))?,
        shape: shape(line, shape_text, by_name)?,
        presence: match presence {
            "always" => Presence::Always,
            "given" => Presence::Given,
            "nonempty" => Presence::NonEmpty,
            other => return Err(line.error(format!("presence {other:?}"))),
        },
        required: false,
        default: None,
        merge: Merge::Default,
        patch: Patch::Default,
        one_of: Vec::new(),
        description,
    };
    for word in words {
        attribute(line, &mut field, word)?;
    }
    Ok(field)
}

fn attribute(line: &Line, field: &mut Field, word: &'static str) -> Result<(), ParseError> {
    match word.split_once('=').unwrap_or((word, "")) {
        ("required", "") => field.required = true,
        ("default", json) => {
            let parsed = serde_json::from_str(json);
            field.default = Some(parsed.map_err(|e| line.error(format!("default {json}: {e}")))?);
        }
        ("list" | "map", "atomic") => field.merge = Merge::Atomic,
        ("list", "set") => field.merge = Merge::Set,
        ("list", keys) if keys.starts_with("key:") => {
            field.merge = Merge::ByKey(keys["key:".len()..].split(',').collect());
        }
        ("patch", "merge") => field.patch = Patch::Merge(None),
        ("patch", "retainKeys") => field.patch = Patch::RetainKeys,
        ("patch", how) => match how.split_once(':') {
            Some(("merge", key)) => field.patch = Patch::Merge(Some(key)),
            Some(("merge+retainKeys", key)) => field.patch = Patch::MergeRetainKeys(key),
            _ => return Err(line.error(format!("patch={how}"))),
        },
        ("enum", values) => field.one_of = values.split(',').collect(),
        _ => return Err(line.error(format!("attribute {word:?}"))),
    }
    Ok(())
}

fn shape(
    line: &Line,
    text: &str,
    by_name: &HashMap<&'static str, TypeId>,
) -> Result<Shape, ParseError> {
    if let Some(item) = text.strip_prefix("[]") {
        return Ok(Shape::List(Box::new(shape(line, item, by_name)?)));
    }
    if let Some(item) = text.strip_prefix("map[").and_then(|t| t.strip_suffix(']')) {
        return Ok(Shape::Map(Box::new(shape(line, item, by_name)?)));
    }
    Ok(match text {
        "string" => Shape::String,
        "bool" => Shape::Bool,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "float" => Shape::Float,
        "bytes" => Shape::Bytes,
        "time" => Shape::Time,
        "microtime" => Shape::MicroTime,
        "quantity" => Shape::Quantity,
        "intorstring" => Shape::IntOrString,
        "raw" => Shape::Raw,
        "fieldsv1" => Shape::FieldsV1,
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
            Shape::Object(*id.ok_or_else(|| line.error(format!("type {full} is unknown")))?)
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
        let one = schema.type_of(schema.lookup("a.b.One").unwrap());
        assert_eq!(one.description, "The first.");
        assert_eq!(one.field("name").unwrap().description, "A name.");
        assert_eq!(one.field_by_tag(3).unwrap().merge, Merge::ByKey(vec!["k"]));
        assert_eq!(one.field("list").unwrap().patch, Patch::Merge(Some("k")));
        let two = schema.lookup("c.d.Two").unwrap();
        assert!(schema.type_of(two).atomic);
        assert_eq!(one.field("list").unwrap().shape, Shape::List(Box::new(Shape::Object(two))));
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
    fn the_built_in_tables_parse() {
        parse(TABLES).unwrap();
    }
}
