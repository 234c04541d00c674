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
//!
//! Types of kinds that are custom resources elsewhere may have more:
//!
//! ```text
//! type Report atomic minProperties=1 | A report.
//!   1 digest string given min=1 max=80 format=sha256 | Of what it covers.
//!   2 volumes []string given list=atomic max=256 item.max=1024 | Their names.
//!   rule has(self.digest) || has(self.volumes) | one of [digest volumes] must be set
//!   crd-rule size(self.metadata.name) <= 63 | metadata.name must be no more than 63 characters
//!   column integer "Volumes" .status.volumes | Number of volumes.
//! ```
//!
//! `min` and `max` bound the characters of a string or of base64 text, the elements of a list, the
//! entries of a map or a number; with `item.` they hold for elements. The `enum` of a list holds for
//! its elements. A `rule` is a CEL expression with its
//! message, which the server evaluates as well (see `rule.rs` for the subset); a `crd-rule` stands in
//! the CustomResourceDefinition only, where the server has code for it. A `column` is type, heading
//! and JSONPath.

use std::collections::HashMap;

use super::{
    FieldPresence, InlinedType, MergeStrategy, ObjectType, PatchStrategy, PrinterColumn, Schema, SchemaField,
    TextFormat, TypeId, ValidationRule, ValueLimits, ValueShape,
};

/// Schema tables embedded in the binary.
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

/// Error in a table, with its position.
#[derive(Debug, thiserror::Error)]
#[error("schema table {table}, line {line}: {what}")]
pub struct SchemaParseError {
    table: String,
    line: usize,
    what: String,
}

/// Parses the built-in tables. They are part of the program and a test parses them all, so users
/// never see an error from here.
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
        if let SchemaItem::Type { name, flags, description } = line.item {
            let name: &'static str = format!("{}.{name}", line.package).leak();
            if by_name.insert(name, TypeId(types.len() as u32)).is_some() {
                return Err(line.error(format!("type {name} is defined twice")));
            }
            let mut ty = ObjectType {
                name,
                description,
                fields: Vec::new(),
                inlined: Vec::new(),
                atomic: false,
                min_properties: 0,
                rules: Vec::new(),
                columns: Vec::new(),
                by_tag: Vec::new(),
            };
            for flag in flags.split_whitespace() {
                match (flag, flag.strip_prefix("minProperties=").map(str::parse)) {
                    ("atomic", _) => ty.atomic = true,
                    (_, Some(Ok(min))) => ty.min_properties = min,
                    _ => return Err(line.error(format!("type attribute {flag:?}"))),
                }
            }
            types.push(ty);
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
                let owner = &mut types[owner];
                match words.split_once(' ') {
                    Some(("rule", code)) => {
                        let rule = ValidationRule::parse(code.trim(), description);
                        let rule = rule.ok_or_else(|| line.error(format!("rule {code}")))?;
                        owner.rules.push(rule);
                    }
                    Some(("crd-rule", code)) => {
                        owner.rules.push(ValidationRule::external(code.trim(), description));
                    }
                    Some(("column", code)) => owner.columns.push(column(&line, code, description)?),
                    _ if words.split_whitespace().nth(3) == Some("inline") => {
                        owner.inlined.push(inline(&line, words, &by_name)?);
                    }
                    _ => owner.fields.push(field(&line, words, description, &by_name)?),
                }
            }
        }
    }
    let flattened: Vec<Vec<SchemaField>> = types.iter().map(|t| inlined_fields(&types, t, 0)).collect();
    for (t, mut more) in types.iter_mut().zip(flattened) {
        t.fields.append(&mut more);
        t.fields.sort_by_key(|f| f.name);
        t.fields.shrink_to_fit();
        if let Some(pair) = t.fields.windows(2).find(|w| w[0].name == w[1].name) {
            let what = format!("field {} of {} is defined twice", pair[0].name, t.name);
            return Err(SchemaParseError { table: t.name.into(), line: 0, what });
        }
        t.by_tag = (0..t.fields.len()).collect();
        t.by_tag.sort_by_key(|index| t.fields[*index].tag);
    }
    Ok(Schema { types, by_name })
}

/// Returns the fields of inlined types at any depth. The bound only matters for a table in which
/// types inline each other in a cycle; its fields are then duplicates, which is an error.
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

/// A non-empty line with the package and imports in force.
struct SchemaLine {
    table: &'static str,
    number: usize,
    package: &'static str,
    imports: Vec<(&'static str, &'static str)>,
    item: SchemaItem,
}

enum SchemaItem {
    Type { name: &'static str, flags: &'static str, description: &'static str },
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
                let mut words = code.splitn(3, ' ');
                match (words.next(), words.next(), words.next()) {
                    (Some("package"), Some(name), None) => {
                        package = name;
                        return None;
                    }
                    (Some("import"), Some(alias), Some(path)) => {
                        imports.push((alias, path));
                        return None;
                    }
                    (Some("type"), Some(name), flags) => {
                        SchemaItem::Type { name, flags: flags.unwrap_or_default(), description }
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

fn column(
    line: &SchemaLine,
    code: &'static str,
    description: &'static str,
) -> Result<PrinterColumn, SchemaParseError> {
    let parts = code.trim().split_once(" \"").and_then(|(kind, rest)| {
        let (name, json_path) = rest.split_once("\" ")?;
        Some(PrinterColumn { name, kind, json_path: json_path.trim(), description })
    });
    parts.ok_or_else(|| line.error("a column is: column type \"heading\" path".into()))
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
        tag: tag.parse().map_err(|_| line.error(format!("tag {tag:?} is not a number")))?,
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
        limits: ValueLimits::default(),
        item_limits: ValueLimits::default(),
        description,
    };
    for word in words {
        attribute(line, &mut field, word)?;
    }
    Ok(field)
}

fn attribute(line: &SchemaLine, field: &mut SchemaField, word: &'static str) -> Result<(), SchemaParseError> {
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
        (limit, value) if set_limit(field, limit, value).is_some() => {}
        _ => return Err(line.error(format!("attribute {word:?}"))),
    }
    Ok(())
}

/// Sets a limit of a field or of its elements; `None` if it is none.
fn set_limit(field: &mut SchemaField, name: &str, value: &str) -> Option<()> {
    let limits = match name.split_once('.') {
        Some(("item", _)) => &mut field.item_limits,
        _ => &mut field.limits,
    };
    match name.trim_start_matches("item.") {
        "min" => limits.min = Some(value.parse().ok()?),
        "max" => limits.max = Some(value.parse().ok()?),
        "format" => limits.format = Some(TextFormat::parse(value)?),
        _ => return None,
    }
    Some(())
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
mod tests;
