//! The built-in signers of Kubernetes and their policies.

use windlass_pki::CertificateRequest;
use windlass_pki::policy::{self, PolicyError, RequestedAttributes};

/// A built-in signer of CertificateSigningRequests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KubernetesSigner {
    /// `kubernetes.io/kubelet-serving`: serving certificates of kubelets.
    KubeletServing,
    /// `kubernetes.io/kube-apiserver-client-kubelet`: client certificates of kubelets.
    KubeletClient,
    /// `kubernetes.io/kube-apiserver-client`: certificates of API clients.
    Client,
    /// `kubernetes.io/legacy-unknown`: requests of API versions without signer names.
    LegacyUnknown,
}

impl KubernetesSigner {
    /// All built-in signers, each listed once.
    pub const ALL: [KubernetesSigner; 4] = [
        KubernetesSigner::KubeletServing,
        KubernetesSigner::KubeletClient,
        KubernetesSigner::Client,
        KubernetesSigner::LegacyUnknown,
    ];

    /// Returns the name that requests give as `signerName`.
    pub const fn name(self) -> &'static str {
        match self {
            KubernetesSigner::KubeletServing => "kubernetes.io/kubelet-serving",
            KubernetesSigner::KubeletClient => "kubernetes.io/kube-apiserver-client-kubelet",
            KubernetesSigner::Client => "kubernetes.io/kube-apiserver-client",
            KubernetesSigner::LegacyUnknown => "kubernetes.io/legacy-unknown",
        }
    }

    /// Finds the built-in signer of this name.
    pub fn from_name(name: &str) -> Option<KubernetesSigner> {
        KubernetesSigner::ALL.into_iter().find(|signer| signer.name() == name)
    }

    /// Checks a request against the policy of the signer.
    pub fn check(self, request: &CertificateRequest, usages: &[String]) -> Result<(), PolicyError> {
        let asked = RequestedAttributes::new(request, usages);
        match self {
            KubernetesSigner::KubeletServing => policy::validate_kubelet_serving(&asked),
            KubernetesSigner::KubeletClient => policy::validate_kubelet_client(&asked),
            KubernetesSigner::Client => policy::validate_api_client(&asked),
            // Before there were signer names, every approved request was signed.
            KubernetesSigner::LegacyUnknown => Ok(()),
        }
    }
}
