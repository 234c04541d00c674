//! Default CA package, in the format of trust-manager.

use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use windlass_pki::BundleError;

use super::certificate_set::{CertificateFilter, CertificateSet};

/// Path of the system trust store on most systems.
pub const SYSTEM_STORE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A default CA package in the JSON format of trust-manager.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct CaPackage {
    #[serde(default)]
    name: String,
    #[serde(default)]
    bundle: String,
    #[serde(default)]
    version: String,
}

/// Reason for which a package is invalid, with the texts of trust-manager.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// The file name does not end in `.json`.
    #[error("can't load package at path {0:?} since it doesn't have the required \".json\" extension")]
    Extension(String),
    /// The file is not JSON of the expected form.
    #[error("failed to parse package JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The `bundle` field is not valid PEM certificates.
    #[error("package bundle failed validation: {0}")]
    Bundle(#[from] BundleError),
    /// The package contains no certificates.
    #[error("package may not have an empty 'bundle'")]
    Empty,
    /// The `name` field is missing or empty.
    #[error("package may not have an empty 'name'")]
    Name,
    /// The `version` field is missing or empty.
    #[error("package may not have an empty 'version'")]
    Version,
}

impl CaPackage {
    /// Checks the extension of the file name.
    pub fn check_path(path: &Path) -> Result<(), PackageError> {
        match path.extension() {
            Some(extension) if extension == "json" => Ok(()),
            _ => Err(PackageError::Extension(path.display().to_string())),
        }
    }

    /// Parses and validates a package from its JSON text.
    pub fn parse(json: &[u8]) -> Result<Self, PackageError> {
        serde_json::from_slice::<Self>(json)?.validated()
    }

    /// Creates a package from a trust store, such as that of the system. Comments, duplicates and the order of the
    /// store are dropped.
    pub fn from_store(name: &str, version: &str, store: &[u8]) -> Result<Self, PackageError> {
        let mut pool = CertificateSet::new(CertificateFilter::default(), OffsetDateTime::UNIX_EPOCH);
        pool.add(store)?;
        let package = Self { name: name.to_owned(), bundle: pool.pem(), version: version.to_owned() };
        package.validated()
    }

    fn validated(self) -> Result<Self, PackageError> {
        let mut pool = CertificateSet::new(CertificateFilter::default(), OffsetDateTime::UNIX_EPOCH);
        pool.add(self.bundle.as_bytes())?;
        if self.name.is_empty() {
            return Err(PackageError::Name);
        }
        if self.version.is_empty() {
            return Err(PackageError::Version);
        }
        if self.bundle.is_empty() {
            return Err(PackageError::Empty);
        }
        Ok(self)
    }

    /// Encodes the package as JSON.
    pub fn to_json(&self) -> Result<String, PackageError> {
        Ok(serde_json::to_string(self)?)
    }

    /// Returns the identifier for the status of a Bundle.
    pub fn id(&self) -> String {
        let hash = digest(&SHA256, self.bundle.as_bytes());
        let hex: String = hash.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{hex}", self.name, self.version)
    }

    /// Returns the certificates as PEM; at least one.
    pub fn bundle(&self) -> &str {
        &self.bundle
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bundles::fixtures::{ED25519, P256};

    #[test]
    fn packages_are_read_as_trust_manager_reads_them() {
        let bad = P256.replacen("CERTIFICATE", "THING", 1).replacen("END CERTIFICATE", "END THING", 1);
        let cases = [
            (json!({"name": "asd", "bundle": P256, "version": "123"}), Ok(())),
            (json!({"name": "asd", "bundle": P256, "version": "123", "more": 1}), Ok(())),
            (json!({"bundle": P256, "version": "123"}), Err("package may not have an empty 'name'")),
            (
                json!({"name": "asd", "bundle": P256, "version": ""}),
                Err("package may not have an empty 'version'"),
            ),
            (
                json!({"name": "asd", "bundle": "", "version": "1"}),
                Err("package may not have an empty 'bundle'"),
            ),
            (
                json!({"name": "asd", "bundle": bad, "version": "123"}),
                Err("package bundle failed validation: invalid PEM block in bundle: only \
                     CERTIFICATE blocks are permitted but found 'THING'"),
            ),
        ];
        for (package, want) in cases {
            let read = CaPackage::parse(package.to_string().as_bytes());
            let read = read.map(|_| ()).map_err(|error| error.to_string());
            assert_eq!(read, want.map_err(str::to_owned), "{package}");
        }
        let error = CaPackage::parse(b"{").unwrap_err().to_string();
        assert!(error.starts_with("failed to parse package JSON: "), "{error}");
        assert!(CaPackage::check_path(Path::new("/a/b.json")).is_ok());
        let error = CaPackage::check_path(Path::new("/a/b.yaml")).unwrap_err().to_string();
        assert!(error.starts_with("can't load package at path \"/a/b.yaml\""), "{error}");
    }

    #[test]
    fn a_package_is_known_by_its_text() {
        let package = json!({"name": "asd", "bundle": P256, "version": "123"});
        let package = CaPackage::parse(package.to_string().as_bytes()).unwrap();
        let hash = digest(&SHA256, P256.as_bytes());
        let hex: String = hash.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((package.id(), hex.len()), (format!("asd-123-{hex}"), 16));
    }

    #[test]
    fn a_store_becomes_a_package() {
        let store = format!("# one\n{P256}# two\n{ED25519}{P256}");
        let package = CaPackage::from_store("system", "1", store.as_bytes()).unwrap();
        assert_eq!(package.bundle().matches("BEGIN CERTIFICATE").count(), 2);
        let again = CaPackage::parse(package.to_json().unwrap().as_bytes()).unwrap();
        assert_eq!(again.id(), package.id());
        assert!(CaPackage::from_store("system", "1", b"nothing").is_err());
    }
}
