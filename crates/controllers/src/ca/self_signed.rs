//! A CA that is made on the first start and kept in a directory.
//!
//! It is made once. What is there is never written over, however bad it is: a CA that somebody
//! trusts does not come back, so it is for a person to decide what is to become of it.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::fs::{AtFlags, Mode, OFlags};
use time::OffsetDateTime;
use windlass_pki::{
    CertificateAuthority, KeyType, PrivateKey, Serial, Subject, SystemRandom, Validity,
};

use super::CaSource;
use crate::options::Clock;

/// The file of the certificate.
pub const CERTIFICATE: &str = "ca.crt";
/// The file of the key.
pub const KEY: &str = "ca.key";

/// Clocks differ: a CA is good from so long ago.
const BACKDATE: time::Duration = time::Duration::minutes(5);

/// What a CA is to be like.
#[derive(Clone, Copy, Debug)]
pub struct SelfSignedCaSpec<'a> {
    /// The kind of its key.
    pub key: KeyType,
    /// Subject of the CA certificate, which is also its issuer.
    pub subject: &'a Subject,
    /// Validity period of the CA certificate, from the time it is generated.
    pub lifetime: Duration,
}

/// The CA of a directory, which is made if there is none. A CA that cannot be made or used is
/// reported, and its source stays without one until its files are good. Writes to disk: not for
/// async code.
pub fn open(directory: &Path, recipe: SelfSignedCaSpec<'_>, clock: &Clock) -> Arc<CaSource> {
    if let Err(error) = generate_if_missing(directory, recipe, clock()) {
        tracing::error!("{error:#}");
    }
    CaSource::from_chain_files(directory.join(CERTIFICATE), directory.join(KEY), clock.clone())
}

fn generate_if_missing(
    directory: &Path,
    recipe: SelfSignedCaSpec<'_>,
    now: OffsetDateTime,
) -> Result<()> {
    let (certificate, key) = (directory.join(CERTIFICATE), directory.join(KEY));
    match (exists(&certificate)?, exists(&key)?) {
        (true, true) => Ok(()),
        (false, false) => generate(directory, recipe, now)
            .with_context(|| format!("cannot make a CA in {}", directory.display())),
        (true, false) => missing_file_error(&key, &certificate),
        (false, true) => missing_file_error(&certificate, &key),
    }
}

/// Whether a file is there, or something else in its place.
fn exists(path: &Path) -> Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot look at {}", path.display())),
    }
}

fn missing_file_error(missing: &Path, there: &Path) -> Result<()> {
    bail!(
        "{} is missing though {} is there: bring it back, or remove the other to have a new CA made",
        missing.display(),
        there.display()
    )
}

fn generate(directory: &Path, recipe: SelfSignedCaSpec<'_>, now: OffsetDateTime) -> Result<()> {
    let lifetime = time::Duration::try_from(recipe.lifetime).unwrap_or(time::Duration::MAX);
    let validity = Validity::new(now - BACKDATE, now.saturating_add(lifetime))?;
    let serial = Serial::random(&SystemRandom::new())?;
    let key = PrivateKey::generate_type(recipe.key)?;
    let made = CertificateAuthority::self_signed(recipe.subject, validity, key, serial)?;
    let opened = windlass_safe_path::create_directory(directory, 0o700)?;
    // The key first: without it the certificate would promise what nobody can keep.
    write_new_file(&opened, KEY, made.key().to_pem()?.as_bytes(), Mode::RUSR | Mode::WUSR)?;
    let public = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    write_new_file(&opened, CERTIFICATE, made.certificate().to_pem().as_bytes(), public)?;
    let until = made.certificate().validity().not_after();
    tracing::info!(directory = %directory.display(), %until, "made a CA");
    Ok(())
}

/// Writes a file that is there as a whole or not at all, and does not replace another.
fn write_new_file(directory: &File, name: &str, contents: &[u8], mode: Mode) -> Result<()> {
    let staged = format!(".{name}.{:016x}", rand::random::<u64>());
    let write = || {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(directory, &staged, flags, mode)?);
        file.write_all(contents)?;
        file.sync_all()?;
        // Unlike a renamed file, a link does not take the place of another.
        Ok(rustix::fs::linkat(directory, &staged, directory, name, AtFlags::empty())?)
    };
    let written: std::io::Result<()> = write();
    // If this fails, a file stays that nobody looks at.
    let _ = rustix::fs::unlinkat(directory, &staged, AtFlags::empty());
    written.with_context(|| name.to_owned())?;
    Ok(directory.sync_all()?)
}

#[cfg(test)]
mod tests;
