//! Tokens and certificates that volumes need: requested while they are needed, and forgotten afterwards.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use zeroize::Zeroizing;

use super::dependencies;
use super::managed_volume::{ManagedVolume, OwnerObject};
use super::pod_volumes_root::PodVolumesRoot;
use super::{host_volumes, volume_table::VolumeTable};
use crate::sources::tokens::{TokenManager, TokenSpec};
use crate::volume::id::{SourceId, VolumeId, VolumeOwner};
use crate::volume_certificates::{CertificateSpec, CertificateSubject, VolumeCertificateManager};

/// Requests the credentials of volumes from the managers that obtain and renew them.
pub struct VolumeCredentials {
    pub tokens: Arc<TokenManager>,
    pub certificates: Arc<VolumeCertificateManager>,
    pub pod_root: Arc<PodVolumesRoot>,
    pub root_dir: PathBuf,
}

impl VolumeCredentials {
    /// Requests the credentials of a volume. Tokens `found` on disk are used as long as they are
    /// valid.
    pub fn request(
        &self,
        id: &VolumeId,
        volume: &ManagedVolume,
        mut found: BTreeMap<usize, Zeroizing<String>>,
    ) {
        let Some(definition) = volume.definition() else { return };
        let source_id = |index| SourceId { volume: id.clone(), index };
        let (subject, state) = match &volume.spec.owner {
            OwnerObject::Pod(pod) => {
                let service_account = service_account(pod);
                for (index, token) in dependencies::tokens(definition) {
                    let wanted = TokenSpec {
                        service_account: service_account.clone(),
                        audience: token.audience.clone(),
                        expiration_seconds: token.expiration_seconds,
                    };
                    self.tokens.ensure(&source_id(index), wanted, found.remove(&index));
                }
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                (CertificateSubject::Pod { service_account }, self.pod_root.certificates(uid))
            }
            OwnerObject::Host(projection) => {
                let state = host_volumes::state_directory(&self.root_dir, &projection.name);
                (projection.certificate_subject(), state)
            }
        };
        for (index, certificate) in dependencies::certificates(definition) {
            let (source, subject, state) = (certificate.clone(), subject.clone(), state.clone());
            let wanted = CertificateSpec { source, subject, state };
            self.certificates.ensure(&source_id(index), wanted);
        }
    }

    /// Stops requests for certificates that the volumes of an owner no longer need.
    pub fn retain_certificates(&self, owner: &VolumeOwner, volumes: &VolumeTable) {
        self.certificates.retain(owner, &volumes.certificate_sources(owner));
    }

    /// Stops all requests for an owner without volumes.
    pub fn forget(&self, owner: &VolumeOwner) {
        self.tokens.forget(owner);
        self.certificates.retain(owner, &[]);
    }
}

fn service_account(pod: &Pod) -> String {
    let name = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "default".into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_default_service_account_is_used_without_a_name() {
        for (spec, expected) in [
            (json!({}), "default"),
            (json!({"spec": {"containers": [], "serviceAccountName": ""}}), "default"),
            (json!({"spec": {"containers": [], "serviceAccountName": "a"}}), "a"),
        ] {
            assert_eq!(service_account(&serde_json::from_value(spec).unwrap()), expected);
        }
    }
}
