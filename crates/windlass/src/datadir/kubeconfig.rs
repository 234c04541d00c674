//! Kubeconfigs of the administrator and of users.

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use windlass_pki::Certificate;
use zeroize::Zeroizing;

use super::CertificateKeyPair;

/// The four values that a kubeconfig needs for a server, as the lines of the file.
pub struct KubeconfigContents {
    user: String,
    lines: [Zeroizing<String>; 4],
}

impl KubeconfigContents {
    /// Builds a kubeconfig of `user` for the server at `url`, which is verified with `ca`.
    pub fn new(url: &str, ca: &Certificate, user: &str, credential: &CertificateKeyPair) -> Result<Self> {
        let line = |field: &str, pem: &str| {
            Zeroizing::new(format!("{field}: {}", *Zeroizing::new(STANDARD.encode(pem))))
        };
        Ok(Self {
            user: user.to_owned(),
            lines: [
                Zeroizing::new(format!("server: {url}")),
                line("certificate-authority-data", &ca.to_pem()),
                line("client-certificate-data", &credential.certificate.to_pem()),
                line("client-key-data", &credential.key.to_pem()?),
            ],
        })
    }

    /// Returns whether a file still has the four values. Other changes by users, for example of the
    /// namespace with `kubectl config`, are accepted.
    pub fn matches_file(&self, text: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(text) else { return false };
        self.lines.iter().all(|wanted| text.lines().any(|line| line.trim() == wanted.as_str()))
    }

    /// Renders a complete kubeconfig; it contains a private key.
    pub fn render(&self) -> Zeroizing<String> {
        let [server, ca, certificate, key] = self.lines.each_ref().map(|line| line.as_str());
        let user = scalar(&self.user);
        Zeroizing::new(format!(
            "apiVersion: v1
kind: Config
clusters:
- name: windlass
  cluster:
    {ca}
    {server}
users:
- name: {user}
  user:
    {certificate}
    {key}
contexts:
- name: windlass
  context:
    cluster: windlass
    user: {user}
current-context: windlass
"
        ))
    }
}

/// Formats a name as a YAML string; JSON strings are valid YAML.
fn scalar(name: &str) -> String {
    // Short words can have other meanings in YAML: `true`, `no`, `null`.
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if name.starts_with(|c: char| c.is_ascii_lowercase()) && name.len() > 5 && name.bytes().all(plain) {
        return name.to_owned();
    }
    serde_json::Value::from(name).to_string()
}
