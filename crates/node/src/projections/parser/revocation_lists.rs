//! The section `revocationLists`: certificate revocation lists of signers.

use windlass_api::field::FieldErrors;
use windlass_api::signer_name::SignerName;
use windlass_runtime::config::{ConfigField, ConfigResult};

use super::parse_volume_path;
use crate::volume::definition::{
    ProjectedSource, RevocationListFormat, RevocationListSource, VolumeDefinition,
};
use crate::volume::payload::{PayloadFile, VolumePayload};

const FORMATS: [(&str, RevocationListFormat); 2] =
    [("PEM", RevocationListFormat::Pem), ("DER", RevocationListFormat::Der)];

/// Parses the list and adds its entries to the sources of the volume.
pub fn parse(list: &ConfigField<'_>, definition: &mut VolumeDefinition) -> ConfigResult<()> {
    let mut taken = VolumePayload::default();
    for path in definition.sources.iter().flat_map(|(_, source)| source.paths()) {
        // Conflicts between other sources are reported elsewhere.
        let _ = taken.add(path.clone(), PayloadFile::new([], 0));
    }
    let sources = list.parse_nonempty("no list would be written", |item| {
        let fields = item.fields(&["signerName", "path", "format", "optional"])?;
        let signer = fields.required("signerName", parse_signer);
        let path = fields.required("path", |field| {
            let path = parse_volume_path(field)?;
            if taken.add(path.clone(), PayloadFile::new([], 0)).is_err() {
                return Err(field.invalid("conflicts with another path of the volume; use another path"));
            }
            Ok(path)
        });
        let format = fields.optional("format", |field| field.one_of(&FORMATS));
        let optional = fields.optional("optional", |field| field.boolean());
        Ok(RevocationListSource {
            signer: signer?,
            path: path?,
            format: format?.unwrap_or(RevocationListFormat::Pem),
            optional: optional?.unwrap_or(false),
        })
    })?;
    // The index identifies credentials, so that it must not be that of another source.
    let first = definition.sources.iter().map(|(index, _)| index + 1).max().unwrap_or_default();
    let sources = sources.into_iter().map(ProjectedSource::RevocationLists);
    definition.sources.extend((first..).zip(sources));
    Ok(())
}

fn parse_signer(field: &ConfigField<'_>) -> ConfigResult<String> {
    let (name, mut errors) = (field.text()?, FieldErrors::new());
    SignerName::parse(field.path(), name, &mut errors);
    field.report_field_errors(&errors.into_vec())?;
    Ok(name.to_owned())
}
