//! Client credentials for users, signed by the client CA of a data directory.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use time::OffsetDateTime;
use windlass_pki::{
    Certificate, CertificateAuthority, KeyPurpose, LeafTemplate, PrivateKey, Subject, Validity, issue,
};
use windlass_runtime::durable::{FileSystem, PRIVATE_MODE};
use zeroize::Zeroizing;

use super::{BACKDATED, CertificateKeyPair, DataDirLayout, disk_error, kubeconfig, read, serial};

pub struct NewUser<'a> {
    /// Common name of the certificate, the Kubernetes user name.
    pub name: &'a str,
    /// Organizations of the certificate, the Kubernetes groups.
    pub groups: &'a [String],
    /// Requested expiry; shortened to the expiry of the client CA.
    pub expires: OffsetDateTime,
    /// URL of the server; `None` for that in the administrator's kubeconfig.
    pub server: Option<&'a str>,
    /// File of the CA that the server is verified with; `None` for that of the data directory.
    pub certificate_authority: Option<&'a Path>,
}

pub struct UserCredential {
    /// Contents of the kubeconfig, including the private key.
    pub kubeconfig: Zeroizing<String>,
    /// Expiry of the certificate, never after that of its CA.
    pub until: OffsetDateTime,
}

/// Generates a key and a certificate and returns them in a kubeconfig. Writes no files.
pub fn create_user_credential(
    layout: &DataDirLayout,
    user: &NewUser<'_>,
    now: OffsetDateTime,
) -> Result<UserCredential> {
    let authority = authority(layout)?;
    let own_ca = layout.pki_file("ca.crt");
    let ca = user.certificate_authority.unwrap_or(&own_ca);
    let text = match user.certificate_authority {
        Some(file) => read(file)?.with_context(|| format!("{} does not exist", file.display()))?,
        None => must_read(&own_ca)?,
    };
    let ca = Certificate::from_pem(&text).with_context(|| format!("cannot read {}", ca.display()))?;
    let url = match user.server {
        Some(url) => url.to_owned(),
        None => server_url(layout)?,
    };
    if user.expires <= now {
        bail!("expiry {} is in the past", user.expires);
    }
    let start = now.checked_sub(BACKDATED).unwrap_or(now);
    let validity = Validity::new(start, user.expires)?;
    let validity = validity
        .clipped_to(&authority.certificate().validity())
        .context("the client authority is not valid now")?;
    let groups: Vec<&str> = user.groups.iter().map(String::as_str).collect();
    let key = PrivateKey::generate()?;
    let leaf = LeafTemplate {
        subject: Subject::new(user.name, &groups)?,
        alt_names: Vec::new(),
        purposes: vec![KeyPurpose::ClientAuth],
        validity,
        public_key: key.public_key(),
        serial: serial()?,
    };
    let certificate = Certificate::from_der(&issue(&authority, &leaf)?)?;
    let contents =
        kubeconfig::KubeconfigContents::new(&url, &ca, user.name, &CertificateKeyPair { certificate, key })?;
    Ok(UserCredential { kubeconfig: contents.render(), until: validity.not_after() })
}

/// Creates a file that only its owner may read; an existing one is an error.
pub fn write_new(path: &Path, contents: Zeroizing<String>) -> Result<()> {
    let created = FileSystem::default().create_new(path, contents.as_bytes(), PRIVATE_MODE);
    created.map_err(|error| match error.source.kind() {
        ErrorKind::AlreadyExists => anyhow!("{} already exists; not overwritten", path.display()),
        _ => disk_error(error),
    })
}

fn authority(layout: &DataDirLayout) -> Result<CertificateAuthority> {
    let paths = layout.pair("client-ca");
    let (certificate, key) = (must_read(&paths.certificate)?, must_read(&paths.key)?);
    CertificateAuthority::from_pem(&certificate, &key)
        .with_context(|| format!("{} do not match", paths.both()))
}

/// Reads the server's URL from the administrator's kubeconfig.
fn server_url(layout: &DataDirLayout) -> Result<String> {
    let path = layout.kubeconfig();
    let text = read(&path)?.with_context(|| {
        format!(
            "{} does not exist, because the server runs with --tls-cert-file or --client-ca-file; set its URL with \
             --server and its CA with --certificate-authority",
            path.display()
        )
    })?;
    let text = String::from_utf8_lossy(&text);
    let server = text.lines().find_map(|line| line.trim().strip_prefix("server: "));
    let server = server.map(|url| url.trim().trim_matches('"').to_owned());
    server.with_context(|| format!("{} has no server; set it with --server", path.display()))
}

fn must_read(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let found = read(path)?;
    found.with_context(|| {
        format!("{} does not exist; start windlass up on this data directory once", path.display())
    })
}
