//! Kubernetes' own signers, and what each of them signs.

use windlass_pki::CertificateRequest;
use windlass_pki::policy::{self, Asked, PolicyError};

/// Kubernetes' own signers of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signer {
    /// Kubelets as servers.
    KubeletServing,
    /// Kubelets as clients.
    KubeletClient,
    /// Any client of the API.
    Client,
    /// What older versions of the API left without a signer.
    LegacyUnknown,
}

impl Signer {
    /// All of them.
    pub const ALL: [Signer; 4] =
        [Signer::KubeletServing, Signer::KubeletClient, Signer::Client, Signer::LegacyUnknown];

    /// Its name, as requests give it.
    pub const fn name(self) -> &'static str {
        match self {
            Signer::KubeletServing => "kubernetes.io/kubelet-serving",
            Signer::KubeletClient => "kubernetes.io/kube-apiserver-client-kubelet",
            Signer::Client => "kubernetes.io/kube-apiserver-client",
            Signer::LegacyUnknown => "kubernetes.io/legacy-unknown",
        }
    }

    /// The signer of this name.
    pub fn named(name: &str) -> Option<Signer> {
        Signer::ALL.into_iter().find(|signer| signer.name() == name)
    }

    /// Whether it signs this, or why not.
    pub fn check(self, request: &CertificateRequest, usages: &[String]) -> Result<(), PolicyError> {
        let asked = Asked::new(request, usages);
        match self {
            Signer::KubeletServing => policy::kubelet_serving(&asked),
            Signer::KubeletClient => policy::kubelet_client(&asked),
            Signer::Client => policy::api_client(&asked),
            // What was asked for before there were signers is signed as it was then.
            Signer::LegacyUnknown => Ok(()),
        }
    }
}
