//! Kubeconfigs: the administrator's, and those of users.

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use windlass_pki::Certificate;
use zeroize::Zeroizing;

use super::CertificateKeyPair;

/// The four values that make a kubeconfig fit a server, as the lines they stand on.
pub struct KubeconfigContents {
    user: String,
    lines: [Zeroizing<String>; 4],
}

impl KubeconfigContents {
    /// How `user` reaches the server at `url`, whose authority is `ca`.
    pub fn new(
        url: &str,
        ca: &Certificate,
        user: &str,
        credential: &CertificateKeyPair,
    ) -> Result<Self> {
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

    /// Whether a file still has the four values. Whatever else people changed in it (`kubectl config`
    /// does, for a namespace) is theirs.
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

/// A name as YAML takes it for a string; JSON's strings are YAML's.
fn scalar(name: &str) -> String {
    // Short words may mean something else: `true`, `no`, `null`.
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.len() > 5
        && name.bytes().all(plain)
    {
        return name.to_owned();
    }
    serde_json::Value::from(name).to_string()
}
