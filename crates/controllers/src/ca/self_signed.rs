//! A CA that is generated on the first start and kept in a directory.
//!
//! It is generated once. Existing files are never overwritten, however damaged they are: a CA that clients trust cannot be
//! generated again, so an operator has to decide.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use time::OffsetDateTime;
use windlass_pki::{CertificateAuthority, KeyType, PrivateKey, Serial, Subject, SystemRandom, Validity};
use windlass_runtime::durable::{FileSystem, PRIVATE_MODE, PUBLIC_MODE};

use super::CaSource;
use crate::options::Clock;

/// Name of the certificate file.
pub const CERTIFICATE: &str = "ca.crt";
/// Name of the key file.
pub const KEY: &str = "ca.key";

/// The validity of a new CA starts in the past, because the clocks of clients differ.
pub(super) const BACKDATE: time::Duration = time::Duration::minutes(5);

/// Properties of a CA that is generated.
#[derive(Clone, Copy, Debug)]
pub struct SelfSignedCaSpec<'a> {
    /// Algorithm and size of the key.
    pub key: KeyType,
    /// Subject of the CA certificate, which is also its issuer.
    pub subject: &'a Subject,
    /// Validity period of the CA certificate, from the time it is generated.
    pub lifetime: Duration,
}

/// Opens the CA in a directory and generates it if there is none. If that fails, the source has no CA until its files are
/// valid. Writes to disk: do not call it in async code.
pub fn open(directory: &Path, spec: SelfSignedCaSpec<'_>, clock: &Clock) -> Arc<CaSource> {
    if let Err(error) = generate_if_missing(directory, spec, clock()) {
        tracing::error!(error = format!("{error:#}"), directory = %directory.display(), "no usable CA");
    }
    CaSource::from_chain_files(directory.join(CERTIFICATE), directory.join(KEY), clock.clone())
}

fn generate_if_missing(directory: &Path, spec: SelfSignedCaSpec<'_>, now: OffsetDateTime) -> Result<()> {
    let (certificate, key) = (directory.join(CERTIFICATE), directory.join(KEY));
    match (exists(&certificate)?, exists(&key)?) {
        (true, true) => Ok(()),
        (false, false) => generate(directory, spec, now)
            .with_context(|| format!("cannot generate a CA in {}", directory.display())),
        (true, false) => missing_file_error(&key, &certificate),
        (false, true) => missing_file_error(&certificate, &key),
    }
}

/// Whether the path exists, as a file or as anything else.
fn exists(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot inspect {}", path.display())),
    }
}

fn missing_file_error(missing: &Path, existing: &Path) -> Result<()> {
    bail!(
        "{} is missing but {} exists: restore it, or remove the other file to generate a new CA",
        missing.display(),
        existing.display()
    )
}

/// Generates a key and a self-signed certificate that is valid from now on.
pub(super) fn generate_authority(
    spec: SelfSignedCaSpec<'_>,
    now: OffsetDateTime,
) -> Result<CertificateAuthority> {
    let lifetime = time::Duration::try_from(spec.lifetime).unwrap_or(time::Duration::MAX);
    let validity = Validity::new(now - BACKDATE, now.saturating_add(lifetime))?;
    let serial = Serial::random(&SystemRandom::new())?;
    let key = PrivateKey::generate_type(spec.key)?;
    Ok(CertificateAuthority::self_signed(spec.subject, validity, key, serial)?)
}

fn generate(directory: &Path, spec: SelfSignedCaSpec<'_>, now: OffsetDateTime) -> Result<()> {
    let ca = generate_authority(spec, now)?;
    let files = FileSystem::default();
    files.create_directory(directory)?;
    // The key first: a certificate without its key would block the next attempt.
    files.create_new(&directory.join(KEY), ca.key().to_pem()?.as_bytes(), PRIVATE_MODE)?;
    let certificate = ca.certificate().to_pem();
    files.create_new(&directory.join(CERTIFICATE), certificate.as_bytes(), PUBLIC_MODE)?;
    let until = ca.certificate().validity().not_after();
    tracing::info!(directory = %directory.display(), %until, "generated a self-signed CA");
    Ok(())
}

#[cfg(test)]
mod tests;
