//! Parses kubeconfigs, and renders the node's kubeconfig.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{AuthInfo, Cluster, Kubeconfig};
use serde_json::json;
use time::OffsetDateTime;
use windlass_pki::limits::MAX_PEM_BYTES;
use zeroize::Zeroizing;

use crate::clock;
use crate::key_pair::CertificateKeyPair;
use windlass_runtime::durable::FileSystem;

/// A kubeconfig whose current context has a server. Errors never show its content.
pub struct ParsedKubeconfig {
    /// The complete kubeconfig, with all contexts, clusters and users.
    pub kubeconfig: Kubeconfig,
    cluster: Cluster,
    user: AuthInfo,
}

/// How the user of a kubeconfig authenticates.
pub enum KubeconfigUser {
    /// With a client certificate that has not expired.
    Certificate(Box<CertificateKeyPair>),
    /// With another method, such as a token.
    Other,
}

impl ParsedKubeconfig {
    /// Reads a file. The error text follows the file name in a sentence.
    pub fn read(path: &Path, files: &FileSystem) -> Result<Self, String> {
        match files.read(path, MAX_PEM_BYTES) {
            Ok(Some(_)) => {}
            Ok(None) => return Err("does not exist".into()),
            Err(error) => return Err(format!("cannot be read ({})", error.source)),
        }
        // The parser's error may contain a secret.
        let kubeconfig = Kubeconfig::read_from(path).map_err(|_| "is no kubeconfig")?;
        let context = kubeconfig.current_context.as_ref().ok_or("has no current context")?;
        let context = kubeconfig.contexts.iter().find(|named| named.name == *context);
        let context = context.and_then(|named| named.context.clone());
        let context = context.ok_or("lacks its current context")?;
        let cluster = kubeconfig.clusters.iter().find(|named| named.name == context.cluster);
        let cluster = cluster.and_then(|named| named.cluster.clone());
        let cluster = cluster.filter(|cluster| cluster.server.is_some());
        let user = context.user.as_ref().and_then(|user| {
            let named = kubeconfig.auth_infos.iter().find(|named| named.name == *user);
            named.and_then(|named| named.auth_info.clone())
        });
        let cluster = cluster.ok_or("has no server")?;
        Ok(Self { cluster, user: user.unwrap_or_default(), kubeconfig })
    }

    /// Returns the URL of the API server in the current context, if set.
    pub fn server(&self) -> Option<&str> {
        self.cluster.server.as_deref()
    }

    /// Returns the kubeconfig with all users removed, for building an unauthenticated
    /// configuration.
    pub fn without_user(mut self) -> Kubeconfig {
        for named in &mut self.kubeconfig.auth_infos {
            named.auth_info = Some(AuthInfo::default());
        }
        self.kubeconfig
    }

    /// Returns whether its user authenticates with the certificate in this file.
    pub fn uses(&self, file: &Path) -> bool {
        let is_it = |path: &Option<String>| path.as_deref().map(Path::new) == Some(file);
        is_it(&self.user.client_certificate)
            && is_it(&self.user.client_key)
            && self.user.client_certificate_data.is_none()
            && self.user.client_key_data.is_none()
    }

    /// Returns how its user authenticates, if the credential is usable.
    pub fn user(&self, files: &FileSystem, now: OffsetDateTime) -> Result<KubeconfigUser, String> {
        let user = &self.user;
        let has_certificate = user.client_certificate.is_some() || user.client_certificate_data.is_some();
        if !has_certificate {
            let other = user.token.as_ref().map(|_| ()).is_some()
                || user.token_file.is_some()
                || user.exec.is_some()
                || user.auth_provider.is_some()
                || user.username.is_some();
            return if other { Ok(KubeconfigUser::Other) } else { Err("has no credential".into()) };
        }
        let certificate = user.client_certificate_data.as_deref();
        let certificate = part(certificate, user.client_certificate.as_deref(), files)?;
        let key = self.exposed_key();
        let key = part(key.as_ref().map(|key| key.as_str()), user.client_key.as_deref(), files)?;
        let identity = CertificateKeyPair::from_cert_and_key(&certificate, &key)
            .map_err(|error| format!("has a certificate that is of no use ({error})"))?;
        if !identity.is_valid_at(now) {
            let expired = clock::text(identity.expires());
            return Err(format!("has a certificate that expired at {expired}"));
        }
        Ok(KubeconfigUser::Certificate(Box::new(identity)))
    }

    /// Returns the embedded key, which the library exposes only as text.
    fn exposed_key(&self) -> Option<Zeroizing<String>> {
        self.user.client_key_data.as_ref()?;
        let mut user = serde_json::to_value(&self.user).ok()?;
        match user.get_mut("client-key-data")?.take() {
            serde_json::Value::String(key) => Some(Zeroizing::new(key)),
            _ => None,
        }
    }
}

/// Reads a certificate or key from the kubeconfig or from a file.
fn part(data: Option<&str>, file: Option<&str>, files: &FileSystem) -> Result<Zeroizing<Vec<u8>>, String> {
    if let Some(data) = data.filter(|data| !data.is_empty()) {
        let decoded = STANDARD.decode(data.trim());
        return decoded.map(Zeroizing::new).map_err(|_| "has data that is no base64".into());
    }
    let path = file.ok_or("has a certificate or a key, but not both")?;
    match files.read(Path::new(path), MAX_PEM_BYTES) {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(format!("names {path}, which does not exist")),
        Err(error) => Err(format!("names {path}, which cannot be read ({})", error.source)),
    }
}

/// Renders a kubeconfig for the same server and the certificate in this file. The names are
/// kubelet's.
pub fn render(server: &ParsedKubeconfig, current: &Path) -> Result<String, String> {
    let mut cluster = server.cluster.clone();
    cluster.extensions = None;
    if cluster.certificate_authority.is_some() {
        cluster.certificate_authority_data = None;
    }
    let contents = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default-cluster", "cluster": cluster}],
        "users": [{
            "name": "default-auth",
            "user": {"client-certificate": current, "client-key": current},
        }],
        "contexts": [{"name": "default-context", "context": {
            "cluster": "default-cluster", "user": "default-auth", "namespace": "default",
        }}],
        "current-context": "default-context",
    });
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(&contents, options).map_err(|error| error.to_string())
}
