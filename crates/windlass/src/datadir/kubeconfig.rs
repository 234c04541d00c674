//! The administrator's kubeconfig.

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use windlass_pki::Certificate;
use zeroize::Zeroizing;

use super::Pair;

/// The four values that make a kubeconfig fit a server, as the lines they stand on.
pub struct Contents {
    lines: [Zeroizing<String>; 4],
}

impl Contents {
    pub fn new(url: &str, ca: &Certificate, admin: &Pair) -> Result<Self> {
        let line = |field: &str, pem: &str| {
            Zeroizing::new(format!("{field}: {}", *Zeroizing::new(STANDARD.encode(pem))))
        };
        Ok(Self {
            lines: [
                Zeroizing::new(format!("server: {url}")),
                line("certificate-authority-data", &ca.to_pem()),
                line("client-certificate-data", &admin.certificate.to_pem()),
                line("client-key-data", &admin.key.to_pem()?),
            ],
        })
    }

    /// Whether a file still has the four values. Whatever else people changed in it (`kubectl config`
    /// does, for a namespace) is theirs.
    pub fn is_in(&self, text: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(text) else { return false };
        self.lines.iter().all(|wanted| text.lines().any(|line| line.trim() == wanted.as_str()))
    }

    /// A whole file.
    pub fn render(&self) -> Zeroizing<String> {
        let [server, ca, certificate, key] = self.lines.each_ref().map(|line| line.as_str());
        Zeroizing::new(format!(
            "apiVersion: v1
kind: Config
clusters:
- name: windlass
  cluster:
    {ca}
    {server}
users:
- name: kubernetes-admin
  user:
    {certificate}
    {key}
contexts:
- name: windlass
  context:
    cluster: windlass
    user: kubernetes-admin
current-context: windlass
"
        ))
    }
}
