//! Selection of certificates.

use super::CertificateView;
use crate::identity::{AuthorityId, SerialNumber};

/// Selects certificates: those that match all given criteria.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateFilter {
    /// Name of the signer; `None` matches all.
    pub signer: Option<String>,
    /// CA key that signed; `None` matches all.
    pub authority: Option<AuthorityId>,
    /// Node that holds the certificate, or on which the pod runs that does.
    pub node: Option<String>,
    /// Namespace and name of the pod that holds the certificate.
    pub pod: Option<(String, String)>,
    /// Namespace and name of the service account of the pod that holds the certificate.
    pub service_account: Option<(String, String)>,
    /// DNS name of the certificate, compared without case.
    pub dns_name: Option<String>,
    /// Serial number of the certificate.
    pub serial: Option<SerialNumber>,
    /// Expires within this number of seconds and has not expired yet.
    pub expiring_within: Option<i64>,
    /// Unexpired and neither superseded nor revoked nor abandoned.
    pub outstanding: bool,
}

impl CertificateFilter {
    /// Whether a certificate matches all criteria at `now`.
    pub fn matches(&self, certificate: &CertificateView<'_>, now: i64) -> bool {
        let is = |wanted: &Option<String>, value: &str| wanted.as_ref().is_none_or(|wanted| wanted == value);
        let is_pair = |wanted: &Option<(String, String)>, namespace: &str, name: &str| {
            wanted.as_ref().is_none_or(|(of, wanted)| of == namespace && wanted == name && !name.is_empty())
        };
        let holder = certificate.holder();
        self.serial.is_none_or(|serial| serial == certificate.serial())
            && is(&self.signer, certificate.signer())
            && self.authority.as_ref().is_none_or(|id| id.as_bytes() == certificate.authority_bytes())
            && is(&self.node, holder.node)
            && is_pair(&self.pod, holder.namespace, holder.pod)
            && is_pair(&self.service_account, holder.namespace, holder.service_account)
            && self.dns_name.as_ref().is_none_or(|name| certificate.has_dns_name(name))
            && self.expiring_within.is_none_or(|seconds| {
                let left = certificate.not_after().saturating_sub(now);
                (0..=seconds).contains(&left)
            })
            && (!self.outstanding || certificate.is_outstanding(now))
    }
}
