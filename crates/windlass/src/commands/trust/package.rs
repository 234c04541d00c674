//! `windlass trust package`: converts the certificates that this machine trusts to a default
//! package of Bundles.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use time::OffsetDateTime;
use windlass_controllers::bundles::package::CaPackage;

use crate::cli::TrustPackageArgs;
use crate::commands::print;

/// Prints the certificates of a PEM file as a trust-manager default package.
pub fn run(arguments: &TrustPackageArgs) -> Result<()> {
    print::write_stdout(&(package(arguments)?.to_json()? + "\n"))
}

fn package(arguments: &TrustPackageArgs) -> Result<CaPackage> {
    let TrustPackageArgs { from, name, edition } = arguments;
    let cannot = || format!("cannot read {}", from.display());
    let store = fs::read(from).with_context(cannot)?;
    let edition = match edition {
        Some(edition) => edition.clone(),
        None => modification_date(from).with_context(cannot)?,
    };
    CaPackage::from_store(name, &edition, &store).with_context(|| from.display().to_string())
}

/// Returns the day of a file's last change, so that an unchanged store keeps its version.
fn modification_date(file: &Path) -> Result<String> {
    let changed = OffsetDateTime::from(fs::metadata(file)?.modified()?);
    let (year, month, day) = changed.to_calendar_date();
    Ok(format!("{year:04}{:02}{day:02}", u8::from(month)))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    const ROOT: &str = include_str!("../../../../pki/tests/verdicts/ca-p256.pem");

    #[test]
    fn a_store_is_a_package() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("store.pem");
        fs::write(&from, format!("# a comment\n{ROOT}{ROOT}")).unwrap();
        let day = SystemTime::UNIX_EPOCH + Duration::from_secs(400 * 86_400);
        fs::File::options().append(true).open(&from).unwrap().set_modified(day).unwrap();
        let mut arguments = TrustPackageArgs { from, name: "system".into(), edition: None };
        let made = package(&arguments).unwrap();
        assert_eq!(made.bundle(), ROOT.trim_end());
        assert!(made.id().starts_with("system-19710205-"), "{}", made.id());
        assert_eq!(CaPackage::parse(made.to_json().unwrap().as_bytes()).unwrap(), made);
        arguments.edition = Some("7".into());
        assert!(package(&arguments).unwrap().id().starts_with("system-7-"));
        arguments.from = dir.path().join("none");
        let error = format!("{:#}", package(&arguments).unwrap_err());
        assert!(error.starts_with("cannot read "), "{error}");
    }
}
