//! Parser of the projections file. YAML or JSON; numbers follow Kubernetes' YAML, so `0640` is an octal mode.
//!
//! Each section has one file with its parser: `certificate`, `keystores`, `notify`,
//! `revocation_lists`. To add a field, add it to the type
//! and read it in the parser of its section.

mod certificate;
mod keystores;
mod notify;
mod revocation_lists;

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::ProjectedVolumeSource;
use windlass_api::field::{FieldError, FieldPath};
use windlass_api::names;
use windlass_api::normal_form::normalise;
use windlass_api::schema::Schema;
use windlass_api::status::CauseType;
use windlass_runtime::config::{ConfigErrors, ConfigField, ConfigResult, parse_config};

use super::HostProjection;
use crate::volume::definition::VolumeDefinition;
use crate::volume::path::VolumePath;
use crate::volume::plan::VolumeReaders;
use windlass_runtime::durable::FileSystem;

use keystores::KeystoresParser;

const VOLUME_TYPE: &str = "io.k8s.api.core.v1.ProjectedVolumeSource";
const DEFAULT_NAMESPACE: &str = "default";
const MAX_ID: i64 = i32::MAX as i64;

/// Parses the text of `file`, and reads the password files that it names.
pub fn parse(file: &Path, text: &[u8], files: &FileSystem) -> Result<Vec<HostProjection>, ConfigErrors> {
    parse_config(file, text, "Projections", "projections", |list| {
        let mut projections = Vec::new();
        for item in list.items()? {
            projections.extend(parse_projection(&item, &projections, files));
        }
        Ok(projections)
    })
}

fn parse_projection(
    item: &ConfigField<'_>,
    others: &[HostProjection],
    files: &FileSystem,
) -> ConfigResult<HostProjection> {
    let fields = item.fields(&[
        "name",
        "directory",
        "namespace",
        "user",
        "group",
        "certificate",
        "projected",
        "revocationLists",
        "keystores",
        "notify",
    ])?;
    let name = fields.required("name", |field| parse_name(field, others));
    let directory = fields.required("directory", |field| parse_directory(field, others));
    let namespace = fields.optional("namespace", |field| field.valid_name(names::dns1123_label));
    let user = fields.optional("user", parse_id);
    let group = fields.optional("group", parse_id);
    let certificate = fields.optional("certificate", certificate::parse);
    let definition = match fields.get("revocationLists") {
        None => fields.required("projected", parse_definition),
        Some(lists) => {
            let definition = fields.optional("projected", parse_definition);
            let mut definition = definition.map(Option::unwrap_or_default);
            let added = match &mut definition {
                Ok(definition) => revocation_lists::parse(&lists, definition),
                Err(_) => revocation_lists::parse(&lists, &mut VolumeDefinition::default()),
            };
            added.and(definition)
        }
    };
    let stores = fields.optional("keystores", |list| {
        let default_alias = name.as_deref().unwrap_or_default();
        KeystoresParser { files, default_alias }.parse(list, definition.as_ref().ok())
    });
    let notify = fields.optional("notify", notify::parse);
    let (common_name, names) = certificate?.unwrap_or_default();
    Ok(HostProjection {
        name: name?,
        directory: directory?,
        namespace: namespace?.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()),
        definition: definition?,
        readers: VolumeReaders { user: user?, group: group? },
        common_name,
        names,
        stores: stores?.unwrap_or_default(),
        notify: notify?.unwrap_or_default(),
    })
}

fn parse_name(field: &ConfigField<'_>, others: &[HostProjection]) -> ConfigResult<String> {
    let name = field.valid_name(names::dns1123_label)?;
    if others.iter().any(|other| other.name == name) {
        return Err(field.invalid("is the name of another projection; use a unique name"));
    }
    Ok(name)
}

fn parse_directory(field: &ConfigField<'_>, others: &[HostProjection]) -> ConfigResult<PathBuf> {
    let path = parse_absolute_path(field)?;
    if path.parent().is_none() {
        return Err(field.invalid("is the root directory; use a directory below it"));
    }
    let overlaps =
        |other: &&HostProjection| path.starts_with(&other.directory) || other.directory.starts_with(&path);
    match others.iter().find(overlaps) {
        None => Ok(path),
        Some(other) => Err(field.invalid(format!(
            "overlaps the directory of projection {:?}; use separate directories",
            other.name
        ))),
    }
}

/// Parses the numeric ID of a user or group.
fn parse_id(field: &ConfigField<'_>) -> ConfigResult<u32> {
    let number = field.integer_in(0..=MAX_ID)?;
    u32::try_from(number).map_err(|_| field.invalid("is out of range"))
}

/// Parses an absolute path without `..`, and removes redundant separators from it.
fn parse_absolute_path(field: &ConfigField<'_>) -> ConfigResult<PathBuf> {
    let text = field.text()?;
    let path = Path::new(text);
    if !path.is_absolute() {
        Err(field.invalid("is not an absolute path; begin it with /"))
    } else if path.components().any(|part| part == Component::ParentDir) {
        Err(field.invalid("contains '..'; write the path without it"))
    } else if text.contains('\0') {
        Err(field.invalid("contains a NUL character; remove it"))
    } else {
        Ok(path.components().collect())
    }
}

/// Parses a path that is relative to the volume.
fn parse_volume_path(field: &ConfigField<'_>) -> ConfigResult<VolumePath> {
    VolumePath::parse(field.text()?).map_err(|error| {
        let error = error.to_string();
        let reason = error.strip_prefix("invalid path: ").unwrap_or(&error);
        field.invalid(format!("is not a valid path: {reason}"))
    })
}

/// Parses the volume by the rules for a pod, whose errors are in the words of Kubernetes. Sources that need a pod are
/// rejected.
fn parse_definition(field: &ConfigField<'_>) -> ConfigResult<VolumeDefinition> {
    let schema = Schema::get();
    let id = schema.lookup(VOLUME_TYPE).ok_or_else(|| field.error(format!("no schema for {VOLUME_TYPE}")))?;
    let normal = normalise(schema, id, field.to_json()).map_err(|error| field.error(error.to_string()))?;
    let problem = |path: FieldPath, message: &str| {
        let (kind, message) = (CauseType::FieldValueForbidden, message.to_owned());
        FieldError { path, kind, message }
    };
    let at = field.path();
    let mut problems: Vec<FieldError> =
        normal.unknown.iter().map(|name| problem(at.child(name), "unknown field")).collect();
    let volume: ProjectedVolumeSource =
        serde_json::from_value(normal.value).map_err(|error| field.error(error.to_string()))?;
    if volume.sources.as_deref().unwrap_or_default().is_empty() {
        problems.push(problem(at.child("sources"), "is empty; add a source"));
    }
    let definition = VolumeDefinition::parse(&volume, at);
    match &definition {
        Ok(definition) => {
            for (index, source) in definition.sources.iter().filter(|(_, source)| source.needs_pod()) {
                let path = at.child("sources").index(*index).child(source.field_name());
                problems.push(problem(path, "needs a pod; remove it"));
            }
        }
        Err(error) => problems.extend(error.0.iter().cloned()),
    }
    field.report_field_errors(&problems)?;
    definition.map_err(|error| field.error(error.to_string()))
}

#[cfg(test)]
mod tests;
