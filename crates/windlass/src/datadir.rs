//! The data directory: created on the first start, completed after a crash, reused by later starts.
//!
//! ```text
//! D/lock                   held while a process uses the directory
//! D/admin.kubeconfig       for kubectl, with everything in it
//! D/pki/ca.crt, .key       CA of the serving certificate
//! D/pki/server.crt, .key   serving certificate
//! D/pki/client-ca.crt, .key   CA of client certificates
//! D/pki/kubelet-serving-ca.crt, .key   CA of the serving certificates of nodes
//! D/pki/admin.crt, .key    client certificate of the administrator, also in admin.kubeconfig
//! D/pki/sa.key, .pub       key of service-account tokens
//! D/store/                 embedded database
//! D/node/                  state of the node agent, if it runs here
//! ```
//!
//! Clients and servers have separate CAs. With a common one, a missing check of the key usage would turn every serving
//! certificate into a client credential. The server and the nodes have separate CAs, too: a node chooses the names that it
//! requests, and with the CA of the server it could impersonate the server.
//!
//! Keys are never replaced. A certificate is renewed for the same key after two thirds of its lifetime, at start and while
//! the server runs; at start also if its contents are wrong. So a change is always one rename, and a key always matches its
//! certificate. If they do not match, a person put them there, which is reported instead of overwriting them.

mod kubeconfig;
mod renewal;
mod user;

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, bail};
use time::{Duration, OffsetDateTime};
use windlass_pki::{
    AltName, Certificate, CertificateAuthority, KeyPurpose, LeafTemplate, PrivateKey, Serial, Subject,
    SystemRandom, Validity, issue,
};

use windlass_runtime::durable::{DiskError, FileSystem, NewFile};
use windlass_runtime::file_lock::{LockError, PidFileLock};
use zeroize::Zeroizing;

pub use renewal::CertificateRenewal;
pub use user::{NewUser, create_user_credential, write_new};

const AUTHORITY_LIFETIME: Duration = Duration::days(3650);
const LEAF_LIFETIME: Duration = Duration::days(365);

/// Time by which certificates are backdated, for clients whose clocks are behind.
const BACKDATED: Duration = Duration::minutes(5);

/// First address of the default service range of Kubernetes; clients in the cluster reach the API
/// at it.
const SERVICE_ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 96, 0, 1));

/// User of the kubeconfig in the data directory.
const ADMIN: &str = "kubernetes-admin";

/// Paths of the files in a data directory.
#[derive(Debug, Clone)]
pub struct DataDirLayout {
    root: PathBuf,
}

impl DataDirLayout {
    /// Returns the layout of the directory `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Directory of the embedded database, below the data directory.
    pub fn store(&self) -> PathBuf {
        self.root.join("store")
    }

    /// Path of `admin.kubeconfig`, written for the administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("admin.kubeconfig")
    }

    /// Returns the path of a file under `pki/`.
    pub fn pki_file(&self, name: &str) -> PathBuf {
        self.root.join("pki").join(name)
    }

    /// Returns the path of a file of the node agent.
    pub fn node(&self, name: &str) -> PathBuf {
        self.root.join("node").join(name)
    }

    /// Returns the path of the optional file with custom signers.
    pub fn signers(&self) -> PathBuf {
        self.root.join("signers.yaml")
    }

    fn pair(&self, name: &str) -> PairPaths {
        let file = |extension| self.pki_file(&format!("{name}.{extension}"));
        PairPaths { certificate: file("crt"), key: file("key") }
    }
}

/// Addresses and names of a server.
#[derive(Debug, Clone)]
pub struct ServerSite {
    /// Listen address with the actual port.
    pub listen: SocketAddr,
    /// Host name of the machine, if known.
    pub hostname: Option<String>,
    /// Additional names and addresses for the serving certificate.
    pub names: Vec<AltName>,
    /// URL for clients, if it differs from the listen address.
    pub external_url: Option<String>,
    /// Whether to write `admin.kubeconfig`; false if clients or the server use other CAs, with
    /// which it would not work.
    pub write_kubeconfig: bool,
    /// Whether to create a missing CA of kubelet serving certificates; false if the other servers
    /// on the same store have one, which must be copied.
    pub makes_kubelet_serving_ca: bool,
}

impl ServerSite {
    /// Returns the server's URL for clients.
    fn client_url(&self) -> String {
        self.external_url.clone().unwrap_or_else(|| local_url(self.listen))
    }
}

/// A complete data directory, locked until dropped. Components that need a key read its file; the
/// server must not sign certificates and never loads a CA key.
#[derive(Debug)]
pub struct DataDir {
    /// Paths of all files in the directory.
    pub layout: DataDirLayout,
    /// URL of the server for clients.
    pub url: String,
    /// Names and addresses in the server's serving certificate.
    pub server_names: Vec<AltName>,
    /// Files written by this start, in order; empty if the directory was complete.
    pub written: Vec<PathBuf>,
    site: ServerSite,
    _lock: PidFileLock,
}

impl DataDir {
    /// Returns the renewal of this directory's certificates, for use while the directory is locked.
    pub fn renewal(&self) -> CertificateRenewal {
        CertificateRenewal::new(self.layout.clone(), self.site.clone())
    }

    /// Returns whether `admin.kubeconfig` is valid for this server.
    pub fn has_kubeconfig(&self) -> bool {
        self.site.write_kubeconfig
    }
}

struct CertificateKeyPair {
    certificate: Certificate,
    key: PrivateKey,
}

/// Creates the missing files of a data directory and validates the others.
pub fn prepare(layout: DataDirLayout, site: ServerSite, now: OffsetDateTime) -> Result<DataDir> {
    let disk = FileSystem::default();
    disk.create_directory(layout.root()).map_err(disk_error)?;
    if let Ok(Some(untrusted)) = windlass_safe_path::find_untrusted_directory(layout.root()) {
        let directory = layout.root().display();
        tracing::warn!(%directory, "other users can replace the data directory: {untrusted}");
    }
    let lock = lock(&layout)?;
    disk.create_directory(&layout.root().join("pki")).map_err(disk_error)?;

    let mut making = PkiBuilder { layout: &layout, now, files: Vec::new() };
    let serving = serving_request(&site)?;
    making.kubelet_serving_authority(site.makes_kubelet_serving_ca);
    making.service_account_key()?;
    making.credentials(&site, &serving, &admin_request()?)?;
    let files = making.files;
    disk.write_all(&files).map_err(disk_error)?;

    let written = files.into_iter().map(|file| file.path).collect();
    let (url, server_names) = (site.client_url(), serving.alt_names);
    Ok(DataDir { layout, url, server_names, written, site, _lock: lock })
}

/// Required contents of a leaf certificate.
struct LeafRequest {
    subject: Subject,
    common_name: &'static str,
    organizations: &'static [&'static str],
    alt_names: Vec<AltName>,
    purpose: KeyPurpose,
}

impl LeafRequest {
    fn new(
        common_name: &'static str,
        organizations: &'static [&'static str],
        alt_names: Vec<AltName>,
        purpose: KeyPurpose,
    ) -> Result<Self> {
        let subject = Subject::new(common_name, organizations)?;
        Ok(Self { subject, common_name, organizations, alt_names, purpose })
    }

    /// Returns why a certificate must be reissued, if so.
    fn objection(
        &self,
        certificate: &Certificate,
        authority: &CertificateAuthority,
        now: OffsetDateTime,
    ) -> Option<&'static str> {
        let sorted = |names: &[AltName]| {
            let mut names = names.to_vec();
            names.sort();
            names
        };
        if !certificate.validity().contains(now) {
            Some("not valid now")
        } else if renewal::is_renewal_due(certificate, authority.certificate(), now) {
            Some("due for renewal")
        } else if !authority.has_issued(certificate) {
            Some("issued by another CA")
        } else if sorted(certificate.alt_names()) != sorted(&self.alt_names) {
            Some("names of the server changed")
        } else if certificate.common_name() != Some(self.common_name)
            || certificate.organizations() != self.organizations
            || !certificate.allows(&self.purpose)
        {
            Some("subject or usages differ")
        } else {
            None
        }
    }
}

fn serving_request(site: &ServerSite) -> Result<LeafRequest> {
    let dns = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let mut names = dns.map(|name| AltName::Dns(name.to_owned())).to_vec();
    let hostname = site.hostname.as_deref().map(str::to_ascii_lowercase);
    names.extend(hostname.filter(|name| is_host_name(name)).map(AltName::Dns));
    names.extend(["127.0.0.1", "::1"].into_iter().filter_map(|ip| ip.parse().ok()).map(AltName::Ip));
    names.push(AltName::Ip(SERVICE_ADDRESS));
    if !site.listen.ip().is_unspecified() {
        names.push(AltName::Ip(site.listen.ip()));
    }
    names.extend(site.names.iter().cloned());
    let mut seen = Vec::new();
    names.retain(|name| {
        let new = !seen.contains(name);
        seen.push(name.clone());
        new
    });
    LeafRequest::new("kube-apiserver", &[], names, KeyPurpose::ServerAuth)
}

/// Returns whether a name can be certified as a DNS name; machines can have other names.
pub fn is_host_name(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

fn admin_request() -> Result<LeafRequest> {
    LeafRequest::new(ADMIN, &["system:masters"], Vec::new(), KeyPurpose::ClientAuth)
}

/// Returns the server's URL for clients on this machine.
fn local_url(listen: SocketAddr) -> String {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(ip) if ip.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("https://{}", SocketAddr::new(ip, listen.port()))
}

struct PairPaths {
    certificate: PathBuf,
    key: PathBuf,
}

impl PairPaths {
    /// Both paths, joined for error messages.
    fn both(&self) -> String {
        format!("{} and {}", self.certificate.display(), self.key.display())
    }
}

/// Collects the files to write, so that they are written together.
struct PkiBuilder<'a> {
    layout: &'a DataDirLayout,
    now: OffsetDateTime,
    files: Vec<NewFile>,
}

impl PkiBuilder<'_> {
    fn authority(&mut self, name: &str, common_name: &str) -> Result<CertificateAuthority> {
        let paths = self.layout.pair(name);
        let key = self.read_or_create_key(&paths.key, &paths.certificate)?;
        let Some(text) = read(&paths.certificate)? else {
            let subject = Subject::new(common_name, &[])?;
            let validity = self.validity(AUTHORITY_LIFETIME)?;
            let authority = CertificateAuthority::self_signed(&subject, validity, key, serial()?)?;
            self.files.push(NewFile::public(paths.certificate, authority.certificate().to_pem()));
            return Ok(authority);
        };
        let certificate = Certificate::from_pem(&text)
            .with_context(|| format!("cannot read {}", paths.certificate.display()))?;
        if !certificate.validity().contains(self.now) {
            bail!(
                "CA certificate {} is valid from {} to {} only; replace it and its key, or move both away to \
                 create a new CA",
                paths.certificate.display(),
                certificate.validity().not_before(),
                certificate.validity().not_after(),
            );
        }
        CertificateAuthority::new(certificate, key).with_context(|| format!("{} do not match", paths.both()))
    }

    /// Creates the CA of kubelet serving certificates if it is missing. Only its signers depend on
    /// it: they report its errors, which do not prevent the start.
    fn kubelet_serving_authority(&mut self, makes: bool) {
        let (name, before) = ("kubelet-serving-ca", self.files.len());
        let certificate = self.layout.pair(name).certificate;
        if !makes && !certificate.exists() {
            return;
        }
        if let Err(error) = self.authority(name, "windlass-kubelet-serving-ca") {
            self.files.truncate(before);
            let error = format!("{error:#}");
            tracing::error!(error, "no CA for serving certificates of nodes");
        }
    }

    fn leaf(
        &mut self,
        authority: &CertificateAuthority,
        name: &str,
        request: &LeafRequest,
    ) -> Result<CertificateKeyPair> {
        let paths = self.layout.pair(name);
        let key = self.read_or_create_key(&paths.key, &paths.certificate)?;
        if let Some(text) = read(&paths.certificate)? {
            let certificate = Certificate::from_pem(&text)
                .with_context(|| format!("cannot read {}", paths.certificate.display()))?;
            if certificate.public_key() != key.public_key() {
                bail!(
                    "{} do not match; restore the right ones, or move both away to create new ones",
                    paths.both()
                );
            }
            match request.objection(&certificate, authority, self.now) {
                None => return Ok(CertificateKeyPair { certificate, key }),
                Some(reason) => {
                    tracing::info!(file = %paths.certificate.display(), reason, "renewing certificate");
                }
            }
        }
        let leaf = LeafTemplate {
            subject: request.subject.clone(),
            alt_names: request.alt_names.clone(),
            purposes: vec![request.purpose.clone()],
            validity: self.validity(LEAF_LIFETIME)?,
            public_key: key.public_key(),
            serial: serial()?,
        };
        let certificate = Certificate::from_der(&issue(authority, &leaf)?)?;
        self.files.push(NewFile::public(paths.certificate, certificate.to_pem()));
        Ok(CertificateKeyPair { certificate, key })
    }

    fn service_account_key(&mut self) -> Result<()> {
        let (path, public) = (self.layout.pki_file("sa.key"), self.layout.pki_file("sa.pub"));
        let key = self.read_or_create_key(&path, &public)?;
        let expected = key.public_key().to_pem();
        match read(&public)? {
            None => self.files.push(NewFile::public(public, expected)),
            Some(text) if *text == expected.as_bytes() => {}
            Some(_) => bail!(
                "{} is not the public key of {}; restore the right ones, or move both away to \
                 create new ones",
                public.display(),
                path.display()
            ),
        }
        Ok(())
    }

    /// Reads a private key; generates one if both it and its companion file are missing.
    fn read_or_create_key(&mut self, path: &Path, companion: &Path) -> Result<PrivateKey> {
        if let Some(text) = read(path)? {
            warn_if_exposed(path)?;
            let key = PrivateKey::from_pem(&text);
            return key.with_context(|| format!("cannot read {}", path.display()));
        }
        if companion
            .try_exists()
            .with_context(|| format!("cannot read metadata of {}", companion.display()))?
        {
            // Keys are written first, so this is not an interrupted start: the key was removed.
            bail!(
                "{} exists, but its private key {} does not; restore the key, or move the other file \
                 away to create new ones",
                companion.display(),
                path.display()
            );
        }
        let key = PrivateKey::generate()?;
        self.files.push(private_file(path.to_owned(), &key.to_pem()?));
        Ok(key)
    }

    fn kubeconfig(&mut self, url: &str, ca: &CertificateAuthority, admin: &CertificateKeyPair) -> Result<()> {
        let path = self.layout.kubeconfig();
        let contents = kubeconfig::KubeconfigContents::new(url, ca.certificate(), ADMIN, admin)?;
        if let Some(text) = read(&path)? {
            if contents.matches_file(&text) {
                return warn_if_exposed(&path);
            }
            tracing::info!(file = %path.display(), "rewriting kubeconfig: server, CA or certificate changed");
        }
        self.files.push(private_file(path, &contents.render()));
        Ok(())
    }

    fn validity(&self, lifetime: Duration) -> Result<Validity> {
        let start = self.now.checked_sub(BACKDATED).unwrap_or(self.now);
        Ok(Validity::lasting(start, lifetime)?)
    }
}

fn serial() -> Result<Serial> {
    Ok(Serial::random(&SystemRandom::new())?)
}

/// Locks the directory against other processes.
fn lock(layout: &DataDirLayout) -> Result<PidFileLock> {
    PidFileLock::acquire(&layout.root().join("lock")).map_err(|error| match error {
        LockError::Held { holder, .. } => {
            let holder = holder.map(|pid| format!(" (process {pid})")).unwrap_or_default();
            let directory = layout.root().display();
            anyhow!("another windlass{holder} is using the data directory {directory}")
        }
        error @ LockError::Io { .. } => Error::msg(error),
    })
}

/// The error's text contains that of its source, which would otherwise be printed twice.
fn disk_error(error: DiskError) -> Error {
    Error::msg(error)
}

fn private_file(path: PathBuf, contents: &str) -> NewFile {
    NewFile::private(path, Zeroizing::new(contents.as_bytes().to_vec()))
}

/// Warns if users other than the owner can read a private file. Its mode is not changed: it may be deliberate.
fn warn_if_exposed(path: &Path) -> Result<()> {
    let metadata =
        fs::metadata(path).with_context(|| format!("cannot read metadata of {}", path.display()))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let (file, mode) = (path.display(), format!("{mode:04o}"));
        tracing::warn!(%file, mode, "private file can be read by other users");
    }
    Ok(())
}

/// Reads a file; `None` if it is missing.
fn read(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>> {
    match fs::read(path) {
        Ok(contents) => Ok(Some(Zeroizing::new(contents))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

#[cfg(test)]
mod tests;
