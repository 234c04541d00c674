//! What a file of projections says. YAML or JSON; the rules for numbers are those of Kubernetes'
//! YAML, so that `0640` is the mode that people mean by it.
//!
//! - `fields`: takes maps apart.
//! - `certificate`, `stores`, `notify`: the sections of the same names.

mod certificate;
mod fields;
mod keystores;
mod notify;

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::ProjectedVolumeSource;
use serde_json::Value;
use windlass_api::decode;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;
use windlass_api::normal_form::normalise;
use windlass_api::schema::Schema;

use super::HostProjection;
use crate::volume::definition::{ProjectedSource, VolumeDefinition};
use crate::volume::plan::VolumeReaders;
use windlass_runtime::durable::FileSystem;

use fields::FieldReader;

const API_VERSION: &str = "windlass.dev/v1";
const KIND: &str = "Projections";
const VOLUME_TYPE: &str = "io.k8s.api.core.v1.ProjectedVolumeSource";
const NAMESPACE: &str = "default";
const MAX_USER: i64 = i32::MAX as i64;
const NEEDS_A_POD: &str = "needs a pod";

/// Reads the text of a file, or says everything that is wrong with it.
pub fn parse(text: &[u8], files: &FileSystem) -> Result<Vec<HostProjection>, Vec<String>> {
    let decoded = decode::yaml(text).map_err(|error| vec![error.to_string()])?;
    let mut reader = ProjectionsParser { files, problems: Vec::new(), found: Vec::new() };
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

struct ProjectionsParser<'a> {
    files: &'a FileSystem,
    problems: Vec<String>,
    found: Vec<(FieldPath, HostProjection)>,
}

impl ProjectionsParser<'_> {
    fn document(&mut self, value: Value) {
        let mut errors = FieldErrors::new();
        let Some(mut root) = FieldReader::from_value(value, &FieldPath::default(), &mut errors)
        else {
            return self.add_problems(errors);
        };
        for (name, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            let found = root.require_text(name, &mut errors);
            if let Some(found) = found.filter(|found| found != wanted) {
                errors.not_supported(&root.child(name), &found, &[wanted]);
            }
        }
        let list = root.require("projections", &mut errors).unwrap_or(Value::Array(Vec::new()));
        let items = fields::items(list, &root.child("projections"), &mut errors);
        root.end(&mut errors);
        self.add_problems(errors);
        for (at, item) in items {
            if let Some(projection) = self.projection(item, &at) {
                self.check_overlap(&projection, &at);
                self.found.push((at, projection));
            }
        }
    }

    /// One projection. Where nothing can be made of it there are problems.
    fn projection(&mut self, item: Value, at: &FieldPath) -> Option<HostProjection> {
        let mut errors = FieldErrors::new();
        let Some(mut fields) = FieldReader::from_value(item, at, &mut errors) else {
            self.add_problems(errors);
            return None;
        };
        let name = label(&mut fields, "name", &mut errors);
        let directory = directory(&mut fields, &mut errors);
        let namespace = match fields.has("namespace") {
            true => label(&mut fields, "namespace", &mut errors),
            false => Some(NAMESPACE.to_owned()),
        };
        let readers = VolumeReaders {
            user: numeric_id(&mut fields, "user", &mut errors),
            group: numeric_id(&mut fields, "group", &mut errors),
        };
        let (common_name, names) = certificate::read(&mut fields, &mut errors);
        let volume = fields.require("projected", &mut errors);
        let stores = fields.items("keystores", &mut errors);
        let notify = notify::read(&mut fields, &mut errors);
        fields.end(&mut errors);
        self.add_problems(errors);
        let definition = volume.and_then(|volume| self.definition(volume, &at.child("projected")));

        let mut errors = FieldErrors::new();
        let default_alias = name.clone().unwrap_or_default();
        let reader = keystores::KeystoresParser { files: self.files, default_alias };
        let stores = reader.read(stores, definition.as_ref(), &mut errors);
        self.add_problems(errors);
        Some(HostProjection {
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
    fn definition(&mut self, volume: Value, at: &FieldPath) -> Option<VolumeDefinition> {
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
        let mut errors = FieldErrors::new();
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
        let definition = VolumeDefinition::parse(&volume, at);
        if let Ok(definition) = &definition {
            for (index, source) in &definition.sources {
                let at = at.child("sources").index(*index);
                match source {
                    ProjectedSource::Token(_) => {
                        errors.forbidden(&at.child("serviceAccountToken"), NEEDS_A_POD);
                    }
                    ProjectedSource::Downward(_) => {
                        errors.forbidden(&at.child("downwardAPI"), NEEDS_A_POD)
                    }
                    ProjectedSource::Bundle(_)
                    | ProjectedSource::Certificate(_)
                    | ProjectedSource::ConfigMap(_)
                    | ProjectedSource::Secret(_) => {}
                }
            }
        }
        self.add_problems(errors);
        match definition {
            Ok(definition) => Some(definition),
            Err(error) => {
                self.problems.extend(error.0.iter().map(ToString::to_string));
                None
            }
        }
    }

    /// No two projections share a name or a part of the disk.
    fn check_overlap(&mut self, projection: &HostProjection, at: &FieldPath) {
        let mut errors = FieldErrors::new();
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
        self.add_problems(errors);
    }

    fn add_problems(&mut self, errors: FieldErrors) {
        self.problems.extend(errors.iter().map(ToString::to_string));
    }
}

/// A name that has to be a DNS label.
fn label(fields: &mut FieldReader, name: &str, errors: &mut FieldErrors) -> Option<String> {
    let text = fields.require_text(name, errors)?;
    let broken = names::dns1123_label(&text);
    for words in &broken {
        errors.invalid_str(&fields.child(name), &text, words);
    }
    broken.is_empty().then_some(text)
}

fn directory(fields: &mut FieldReader, errors: &mut FieldErrors) -> Option<PathBuf> {
    let text = fields.require_text("directory", errors)?;
    let path = absolute(&text, &fields.child("directory"), errors)?;
    if path.parent().is_none() {
        errors.invalid_str(&fields.child("directory"), &text, "must not be the root");
        return None;
    }
    Some(path)
}

/// The number of a user or a group.
fn numeric_id(fields: &mut FieldReader, name: &str, errors: &mut FieldErrors) -> Option<u32> {
    let number = fields.integer(name, errors)?;
    for words in names::in_range(number, 0, MAX_USER) {
        errors.invalid(&fields.child(name), &number.into(), &words);
    }
    u32::try_from(number).ok()
}

/// A path from the root, without anything that leads upwards.
fn absolute(text: &str, at: &FieldPath, errors: &mut FieldErrors) -> Option<PathBuf> {
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
