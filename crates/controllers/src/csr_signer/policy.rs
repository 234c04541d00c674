//! Kubernetes' own signers, and what each of them signs.

use windlass_pki::CertificateRequest;
use windlass_pki::policy::{self, PolicyError, RequestedAttributes};

/// Kubernetes' own signers of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KubernetesSigner {
    /// `kubernetes.io/kubelet-serving`: serving certificates of kubelets.
    KubeletServing,
    /// `kubernetes.io/kube-apiserver-client-kubelet`: client certificates of kubelets.
    KubeletClient,
    /// Any client of the API.
    Client,
    /// What older versions of the API left without a signer.
    LegacyUnknown,
}

impl KubernetesSigner {
    /// All built-in signers, each exactly once.
    pub const ALL: [KubernetesSigner; 4] = [
        KubernetesSigner::KubeletServing,
        KubernetesSigner::KubeletClient,
        KubernetesSigner::Client,
        KubernetesSigner::LegacyUnknown,
    ];

    /// Its name, as requests give it.
    pub const fn name(self) -> &'static str {
        match self {
            KubernetesSigner::KubeletServing => "kubernetes.io/kubelet-serving",
            KubernetesSigner::KubeletClient => "kubernetes.io/kube-apiserver-client-kubelet",
            KubernetesSigner::Client => "kubernetes.io/kube-apiserver-client",
            KubernetesSigner::LegacyUnknown => "kubernetes.io/legacy-unknown",
        }
    }

    /// The signer of this name.
    pub fn from_name(name: &str) -> Option<KubernetesSigner> {
        KubernetesSigner::ALL.into_iter().find(|signer| signer.name() == name)
    }

    /// Whether it signs this, or why not.
    pub fn check(self, request: &CertificateRequest, usages: &[String]) -> Result<(), PolicyError> {
        let asked = RequestedAttributes::new(request, usages);
        match self {
            KubernetesSigner::KubeletServing => policy::validate_kubelet_serving(&asked),
            KubernetesSigner::KubeletClient => policy::validate_kubelet_client(&asked),
            KubernetesSigner::Client => policy::validate_api_client(&asked),
            // What was asked for before there were signers is signed as it was then.
            KubernetesSigner::LegacyUnknown => Ok(()),
        }
    }
}
