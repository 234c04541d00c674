//! What a file of projections says. YAML or JSON; the rules for numbers are those of Kubernetes'
//! YAML, so that `0640` is the mode that people mean by it.
//!
//! - `fields`: takes maps apart.
//! - `certificate`, `stores`, `notify`: the sections of the same names.

mod certificate;
mod fields;
mod notify;
mod stores;

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::ProjectedVolumeSource;
use serde_json::Value;
use windlass_api::decode;
use windlass_api::field::{Errors, Path as FieldPath};
use windlass_api::names;
use windlass_api::normal::normalise;
use windlass_api::schema::Schema;

use super::Projection;
use crate::files::Files;
use crate::volume::definition::{Definition, Source};
use crate::volume::plan::Readers;

use fields::Fields;

const API_VERSION: &str = "windlass.dev/v1";
const KIND: &str = "Projections";
const VOLUME_TYPE: &str = "io.k8s.api.core.v1.ProjectedVolumeSource";
const NAMESPACE: &str = "default";
const MAX_USER: i64 = i32::MAX as i64;
const NEEDS_A_POD: &str = "needs a pod";

/// Reads the text of a file, or says everything that is wrong with it.
pub fn parse(text: &[u8], files: &Files) -> Result<Vec<Projection>, Vec<String>> {
    let decoded = decode::yaml(text).map_err(|error| vec![error.to_string()])?;
    let mut reader = Reader { files, problems: Vec::new(), found: Vec::new() };
    for path in &decoded.duplicates {
        reader.problems.push(format!("{path}: Forbidden: is given twice"));
    }
    reader.document(decoded.value);
    if reader.problems.is_empty() {
        Ok(reader.found.into_iter().map(|(_, projection)| projection).collect())
    } else {
        Err(reader.problems)
    }
}

struct Reader<'a> {
    files: &'a Files,
    problems: Vec<String>,
    /// Each with its place.
    found: Vec<(FieldPath, Projection)>,
}

impl Reader<'_> {
    fn document(&mut self, value: Value) {
        let mut errors = Errors::new();
        let Some(mut root) = Fields::of(value, &FieldPath::default(), &mut errors) else {
            return self.tell(errors);
        };
        for (name, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            let found = root.need_text(name, &mut errors);
            if let Some(found) = found.filter(|found| found != wanted) {
                errors.not_supported(&root.child(name), &found, &[wanted]);
            }
        }
        let list = root.need("projections", &mut errors).unwrap_or(Value::Array(Vec::new()));
        let items = fields::items(list, &root.child("projections"), &mut errors);
        root.end(&mut errors);
        self.tell(errors);
        for (at, item) in items {
            if let Some(projection) = self.projection(item, &at) {
                self.differs(&projection, &at);
                self.found.push((at, projection));
            }
        }
    }

    /// One projection. Where nothing can be made of it there are problems.
    fn projection(&mut self, item: Value, at: &FieldPath) -> Option<Projection> {
        let mut errors = Errors::new();
        let Some(mut fields) = Fields::of(item, at, &mut errors) else {
            self.tell(errors);
            return None;
        };
        let name = label(&mut fields, "name", &mut errors);
        let directory = directory(&mut fields, &mut errors);
        let namespace = match fields.has("namespace") {
            true => label(&mut fields, "namespace", &mut errors),
            false => Some(NAMESPACE.to_owned()),
        };
        let readers = Readers {
            user: id(&mut fields, "user", &mut errors),
            group: id(&mut fields, "group", &mut errors),
        };
        let (common_name, names) = certificate::read(&mut fields, &mut errors);
        let volume = fields.need("projected", &mut errors);
        let stores = fields.items("keystores", &mut errors);
        let notify = notify::read(&mut fields, &mut errors);
        fields.end(&mut errors);
        self.tell(errors);
        let definition = volume.and_then(|volume| self.definition(volume, &at.child("projected")));

        let mut errors = Errors::new();
        let default_alias = name.clone().unwrap_or_default();
        let reader = stores::Reader { files: self.files, default_alias };
        let stores = reader.read(stores, definition.as_ref(), &mut errors);
        self.tell(errors);
        Some(Projection {
            name: name?,
            directory: directory?,
            namespace: namespace?,
            definition: definition?,
            readers,
            common_name,
            names,
            stores,
            notify,
        })
    }

    /// What is in the volume: in every respect the same as in a pod, but for what needs one.
    fn definition(&mut self, volume: Value, at: &FieldPath) -> Option<Definition> {
        let schema = Schema::get();
        let Some(id) = schema.lookup(VOLUME_TYPE) else {
            self.problems.push(format!("{at}: there is no schema of {VOLUME_TYPE}"));
            return None;
        };
        let normal = match normalise(schema, id, volume) {
            Ok(normal) => normal,
            Err(error) => {
                self.problems.push(format!("{at}: {error}"));
                return None;
            }
        };
        let mut errors = Errors::new();
        for unknown in &normal.unknown {
            errors.forbidden(&at.child(unknown), "unknown field");
        }
        let volume: ProjectedVolumeSource = match serde_json::from_value(normal.value) {
            Ok(volume) => volume,
            Err(error) => {
                self.problems.push(format!("{at}: {error}"));
                return None;
            }
        };
        let sources = volume.sources.as_deref().unwrap_or_default();
        if sources.is_empty() {
            errors.required(&at.child("sources"), "");
        }
        let definition = Definition::read(&volume, at);
        if let Ok(definition) = &definition {
            for (index, source) in &definition.sources {
                let at = at.child("sources").index(*index);
                match source {
                    Source::Token(_) => {
                        errors.forbidden(&at.child("serviceAccountToken"), NEEDS_A_POD);
                    }
                    Source::Downward(_) => errors.forbidden(&at.child("downwardAPI"), NEEDS_A_POD),
                    Source::Bundle(_)
                    | Source::Certificate(_)
                    | Source::ConfigMap(_)
                    | Source::Secret(_) => {}
                }
            }
        }
        self.tell(errors);
        match definition {
            Ok(definition) => Some(definition),
            Err(error) => {
                self.problems.extend(error.0.iter().map(ToString::to_string));
                None
            }
        }
    }

    /// No two projections share a name or a part of the disk.
    fn differs(&mut self, projection: &Projection, at: &FieldPath) {
        let mut errors = Errors::new();
        for (other_at, other) in &self.found {
            if other.name == projection.name {
                errors.duplicate(&at.child("name"), &projection.name.as_str().into());
            }
            let (one, two) = (&projection.directory, &other.directory);
            if one.starts_with(two) || two.starts_with(one) {
                let detail = format!("is the directory of {other_at}, or one is in the other");
                let shown = one.display().to_string();
                errors.invalid_str(&at.child("directory"), &shown, &detail);
            }
        }
        self.tell(errors);
    }

    fn tell(&mut self, errors: Errors) {
        self.problems.extend(errors.iter().map(ToString::to_string));
    }
}

/// A name that has to be a DNS label.
fn label(fields: &mut Fields, name: &str, errors: &mut Errors) -> Option<String> {
    let text = fields.need_text(name, errors)?;
    let broken = names::dns1123_label(&text);
    for words in &broken {
        errors.invalid_str(&fields.child(name), &text, words);
    }
    broken.is_empty().then_some(text)
}

fn directory(fields: &mut Fields, errors: &mut Errors) -> Option<PathBuf> {
    let text = fields.need_text("directory", errors)?;
    let path = absolute(&text, &fields.child("directory"), errors)?;
    if path.parent().is_none() {
        errors.invalid_str(&fields.child("directory"), &text, "must not be the root");
        return None;
    }
    Some(path)
}

/// The number of a user or a group.
fn id(fields: &mut Fields, name: &str, errors: &mut Errors) -> Option<u32> {
    let number = fields.integer(name, errors)?;
    for words in names::in_range(number, 0, MAX_USER) {
        errors.invalid(&fields.child(name), &number.into(), &words);
    }
    u32::try_from(number).ok()
}

/// A path from the root, without anything that leads upwards.
fn absolute(text: &str, at: &FieldPath, errors: &mut Errors) -> Option<PathBuf> {
    let path = Path::new(text);
    let detail = if !path.is_absolute() {
        "must be an absolute path"
    } else if path.components().any(|part| part == Component::ParentDir) {
        "must not contain '..'"
    } else if text.contains('\0') {
        "must not contain a NUL character"
    } else {
        return Some(path.components().collect());
    };
    errors.invalid_str(at, text, detail);
    None
}

#[cfg(test)]
mod tests;
