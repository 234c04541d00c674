//! The CA of a signer, as its files are now. They are only read: a CA that is to be made is not
//! made here.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use time::OffsetDateTime;
use windlass_api::timestamp;
use windlass_controllers::ca::self_signed;
use windlass_controllers::signers::config::CaConfig;
use windlass_pki::limits::MAX_PEM_BYTES;
use windlass_pki::{Certificate, CertificateAuthority, ForeignCertificate};
use zeroize::Zeroizing;

use crate::commands::csr::view;

/// What is known of a signer's CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignerCa {
    /// Its files are not here.
    Elsewhere,
    /// It will be made in this directory when the signer starts.
    ToBeMade(PathBuf),
    /// The files cannot be used, and why.
    Unusable(String),
    /// The files are good, whatever the time.
    Files(Box<CaFiles>),
}

/// A CA that could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaFiles {
    /// The file of the certificate.
    pub certificate: PathBuf,
    /// The file of the key.
    pub key: PathBuf,
    /// The permissions of the key's file.
    pub mode: u32,
    /// Certificate that signs: the first in its file.
    pub facts: CaCertificateInfo,
    /// When it and all that vouch for it are valid.
    pub valid: (OffsetDateTime, OffsetDateTime),
    /// What others have to trust.
    pub anchor: Vec<u8>,
    /// The CA and those that vouch for it.
    pub chain: Vec<Vec<u8>>,
}

/// Summary of a CA certificate, as `-o json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CaCertificateInfo {
    pub subject: String,
    pub serial: String,
    pub key: String,
    /// SHA-256 of the DER encoding in hexadecimal; `None` if the certificate cannot be parsed
    /// strictly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    #[serde(serialize_with = "serialize_time")]
    pub not_before: OffsetDateTime,
    #[serde(serialize_with = "serialize_time")]
    pub not_after: OffsetDateTime,
}

fn serialize_time<S: serde::Serializer>(time: &OffsetDateTime, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&timestamp::format(*time))
}

impl CaCertificateInfo {
    pub fn from_certificate(certificate: &ForeignCertificate) -> Self {
        let known = Certificate::from_der(certificate.der()).ok();
        let hex = |hash: [u8; 32]| hash.iter().map(|octet| format!("{octet:02x}")).collect();
        Self {
            subject: view::name(certificate.subject()),
            serial: view::serial(&certificate.serial()),
            key: view::key_description(certificate.public_key()),
            fingerprint: known.map(|known| hex(known.fingerprint())),
            not_before: certificate.not_before(),
            not_after: certificate.not_after(),
        }
    }
}

/// Whether the file of the certificate may also hold who vouches for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaFileForm {
    One,
    Chain,
}

impl SignerCa {
    /// The CA of a signer of the user's own.
    pub fn from_choice(choice: &CaConfig) -> Self {
        let (directory, certificate, key) = match choice {
            CaConfig::Files { certificate, key } => {
                return Self::read(certificate, key, CaFileForm::Chain);
            }
            CaConfig::SelfSigned { directory, .. } => (
                directory,
                directory.join(self_signed::CERTIFICATE),
                directory.join(self_signed::KEY),
            ),
        };
        let missing = |path: &Path| {
            fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        match (missing(&certificate), missing(&key)) {
            (true, true) => Self::ToBeMade(directory.clone()),
            (true, false) => Self::incomplete_pair(&certificate, &key),
            (false, true) => Self::incomplete_pair(&key, &certificate),
            (false, false) => Self::read(&certificate, &key, CaFileForm::Chain),
        }
    }

    fn incomplete_pair(missing: &Path, there: &Path) -> Self {
        let (missing, there) = (missing.display(), there.display());
        Self::Unusable(format!("{missing} is missing, but {there} exists"))
    }

    /// The CA in two files.
    pub fn read(certificate: &Path, key: &Path, form: CaFileForm) -> Self {
        match load(certificate, key, form) {
            Ok(files) => Self::Files(Box::new(files)),
            Err(why) => Self::Unusable(why),
        }
    }
}

fn load(certificate: &Path, key: &Path, form: CaFileForm) -> Result<CaFiles, String> {
    let (text, secret) = (read(certificate)?, read(key)?);
    let read = match form {
        CaFileForm::One => {
            CertificateAuthority::from_pem(&text, &secret).map(|authority| (authority, Vec::new()))
        }
        CaFileForm::Chain => CertificateAuthority::from_chain_pem(&text, &secret),
    };
    let together = |error| format!("{} with {}: {error}", certificate.display(), key.display());
    let (authority, issuers) = read.map_err(together)?;
    let ca = authority.certificate();
    let root = issuers.last().unwrap_or(ca);
    let anchor = if root.is_self_signed() { root } else { ca };
    let whole = || std::iter::once(ca).chain(&issuers).map(Certificate::validity);
    let begins = whole().map(|validity| validity.not_before()).max();
    let ends = whole().map(|validity| validity.not_after()).min();
    let facts = ForeignCertificate::from_der(ca.der())
        .map_err(|error| format!("{}: {error}", certificate.display()))?;
    let mode =
        fs::metadata(key).map_err(|error| read_error_text(key, &error))?.permissions().mode();
    Ok(CaFiles {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        mode: mode & 0o777,
        valid: (begins.unwrap_or(facts.not_before()), ends.unwrap_or(facts.not_after())),
        facts: CaCertificateInfo::from_certificate(&facts),
        anchor: anchor.der().to_vec(),
        chain: std::iter::once(ca).chain(&issuers).map(|each| each.der().to_vec()).collect(),
    })
}

/// The bytes of a file, which may be a key: they are wiped when they are no longer needed.
fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let limit = u64::try_from(MAX_PEM_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    // Growing would leave copies behind.
    let mut text = Zeroizing::new(Vec::with_capacity(MAX_PEM_BYTES.saturating_add(1)));
    let read = fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut text));
    match read {
        Ok(0) => Err(format!("{} is empty", path.display())),
        Ok(_) => Ok(text),
        Err(error) => Err(read_error_text(path, &error)),
    }
}

fn read_error_text(path: &Path, error: &std::io::Error) -> String {
    format!("cannot read {}: {error}", path.display())
}

#[cfg(test)]
mod tests;
