//! The projected volumes of a pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Volume as PodVolume};
use time::OffsetDateTime;
use windlass_api::field::FieldPath;

use super::dependencies;
use super::host_volumes::invalid_name;
use super::managed_volume::{OwnerObject, VolumeSpec};
use super::pod_volumes_root::{PodVolumesRoot, is_path_element};
use crate::volume::definition::VolumeDefinition;
use crate::volume::id::{VolumeId, VolumeOwner};
use crate::volume::plan::{BlockedReason, VolumeReaders};

/// Annotation of mirror pods, which represent static pods of a kubelet.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
const STATIC_POD: &str =
    "static pods cannot have clusterTrustBundle and podCertificate sources in their volumes";

/// Returns the projected volumes of a pod, each valid or with the reason why not.
pub fn pod_volumes(pod: &Arc<Pod>, root: &PodVolumesRoot) -> Vec<(VolumeId, VolumeSpec)> {
    let owner = pod_owner(pod);
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| &spec.volumes).flatten().enumerate();
    let volumes = volumes.filter_map(|(index, volume)| {
        let source = volume.projected.as_ref()?;
        let at = FieldPath::new("spec").child("volumes").index(index).child("projected");
        let writer = root.volume(uid, &volume.name);
        let definition = match VolumeDefinition::parse(source, &at) {
            _ if writer.is_none() => Err(invalid_name(if is_path_element(uid) { &volume.name } else { uid })),
            Err(error) => Err(error.to_string()),
            Ok(definition) if is_mirror(pod) && dependencies::needs_server(&definition) => {
                Err(STATIC_POD.to_owned())
            }
            Ok(definition) => Ok(Arc::new(definition)),
        };
        let spec = VolumeSpec {
            owner: OwnerObject::Pod(pod.clone()),
            definition: definition.map_err(|reason| BlockedReason(vec![reason])),
            readers: VolumeReaders::from_pod(pod),
            writer,
        };
        Some((VolumeId { owner: owner.clone(), name: volume.name.clone() }, spec))
    });
    volumes.collect()
}

/// Returns whether two versions of a pod have the same volumes, written for the same user and
/// group.
pub fn has_same_volumes(before: &Pod, after: &Pod) -> bool {
    projected(before).eq(projected(after))
        && VolumeReaders::from_pod(before) == VolumeReaders::from_pod(after)
}

/// Returns the end of the grace period of a pod that is being deleted.
pub fn deletion_time(pod: &Pod) -> Option<OffsetDateTime> {
    let at = pod.metadata.deletion_timestamp.as_ref()?;
    OffsetDateTime::from_unix_timestamp_nanos(at.0.as_nanosecond()).ok()
}

/// Returns whether all containers of a pod have terminated for good.
pub fn is_terminated(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

pub fn pod_owner(pod: &Pod) -> VolumeOwner {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let meta = &pod.metadata;
    let (namespace, name) = (text(&meta.namespace), text(&meta.name));
    VolumeOwner::Pod { namespace, name, uid: text(&meta.uid) }
}

fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.iter().flatten().any(|(key, _)| key == MIRROR_ANNOTATION)
}

fn projected(pod: &Pod) -> impl Iterator<Item = &PodVolume> {
    let volumes = pod.spec.iter().flat_map(|spec| &spec.volumes).flatten();
    volumes.filter(|volume| volume.projected.is_some())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;
    use windlass_runtime::durable::FileSystem;

    fn pod(uid: &str, annotations: Value, volume: &str, source: Value) -> Arc<Pod> {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": uid, "annotations": annotations},
            "spec": {"containers": [], "volumes": [
                {"name": "other", "emptyDir": {}},
                {"name": volume, "projected": {"sources": [source]}},
            ]},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn invalid_volumes_have_a_reason() {
        let root = PodVolumesRoot::new(Path::new("/r"), FileSystem::default(), false);
        let bundle = json!({"clusterTrustBundle": {"name": "a", "path": "a.pem"}});
        let outside = json!({"clusterTrustBundle": {"name": "a", "path": "../a.pem"}});
        let map = json!({"configMap": {"name": "m"}});
        let mirror = json!({"kubernetes.io/config.mirror": "x"});
        let table = [
            (pod("u", json!({}), "v", bundle.clone()), None),
            (pod("u", mirror.clone(), "v", map), None),
            (pod("u", mirror, "v", bundle.clone()), Some("static pods")),
            (pod("u", json!({}), "..", bundle.clone()), Some("\"..\" is not a valid directory name")),
            (pod("a/b", json!({}), "v", bundle), Some("\"a/b\" is not a valid directory name")),
            (pod("u", json!({}), "v", outside), Some("spec.volumes[1].projected")),
        ];
        for (pod, expected) in table {
            let volumes = pod_volumes(&pod, &root);
            assert_eq!(volumes.len(), 1);
            let reason = volumes[0].1.definition.as_ref().err().map(ToString::to_string);
            match expected {
                None => assert_eq!(reason, None),
                Some(part) => {
                    assert!(reason.as_ref().is_some_and(|all| all.contains(part)), "{reason:?}")
                }
            }
        }
    }
}
