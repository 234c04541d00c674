//! State of a signer's CA files. They are only read: a missing CA is not created here.

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

/// State of a signer's CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignerCa {
    /// Its files are not on this machine.
    Elsewhere,
    /// The signer creates it in this directory at its start.
    ToBeMade(PathBuf),
    /// The files are invalid; holds the reason.
    Unusable(String),
    /// The files are valid, apart from the validity period.
    Files(Box<CaFiles>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Permission bits of the key file.
    pub mode: u32,
    /// Certificate that signs: the first in its file.
    pub facts: CaCertificateInfo,
    /// Period in which it and all its issuers are valid.
    pub valid: (OffsetDateTime, OffsetDateTime),
    /// DER encoding of the trust anchor.
    pub anchor: Vec<u8>,
    /// DER encodings of the CA and its issuers.
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

/// Whether the certificate file may also contain issuers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaFileForm {
    One,
    Chain,
}

impl SignerCa {
    /// Reads the CA of a custom signer.
    pub fn from_choice(choice: &CaConfig) -> Self {
        let (directory, certificate, key) = match choice {
            CaConfig::Files { certificate, key } => {
                return Self::read(certificate, key, CaFileForm::Chain);
            }
            CaConfig::SelfSigned { directory, .. } => {
                (directory, directory.join(self_signed::CERTIFICATE), directory.join(self_signed::KEY))
            }
            // Only the controllers read Secrets and tokens.
            CaConfig::SelfSignedSecret { .. }
            | CaConfig::Secret { .. }
            | CaConfig::Pkcs11 { .. }
            | CaConfig::Issued { .. }
            | CaConfig::SignersFile => return Self::Elsewhere,
        };
        let missing =
            |path: &Path| fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
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

    /// Reads a CA from its certificate and key files.
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
    let mode = fs::metadata(key).map_err(|error| read_error_text(key, &error))?.permissions().mode();
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

/// Reads a file that may contain a key; the buffer is zeroized on drop.
fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let limit = u64::try_from(MAX_PEM_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    // Reallocation would leave copies of the key in memory.
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
