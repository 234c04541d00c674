//! Writes of targets to the API server.

use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, DynamicObject, GetParams, Patch, PatchParams, Preconditions};
use kube::core::{ApiResource, Request};
use kube::{Client, Resource as _};
use serde_json::Value;
use tokio::sync::Semaphore;
use windlass_api::trust_bundle::{BundleMeta, FIELD_MANAGER};
use windlass_runtime::client_error::describe;
use windlass_runtime::watch::ObjectMetadata;

use super::apply_patch::{CORE, disown_body, has_no_data, release_body};
use super::target::{ObservedTarget, TargetKind};
use crate::namespaced_name::NamespacedName;

/// Number of concurrent writes for all Bundles.
pub const WRITES: usize = 32;

/// Applies, releases and deletes targets, with a limit on concurrent writes.
pub struct TargetWriter {
    client: Client,
    /// Resource of ClusterTrustBundles; `None` if they are not served.
    trust_bundles: Mutex<Option<ApiResource>>,
    turns: Semaphore,
}

impl TargetWriter {
    /// Creates a writer that cannot write ClusterTrustBundles until their resource is set.
    pub fn new(client: Client) -> TargetWriter {
        TargetWriter { client, trust_bundles: Mutex::default(), turns: Semaphore::new(WRITES) }
    }

    pub fn set_trust_bundle_resource(&self, with: Option<ApiResource>) {
        *self.trust_bundles.lock().unwrap_or_else(PoisonError::into_inner) = with;
    }

    /// Returns the API version of a target kind; `None` if it is not served.
    pub fn version(&self, kind: TargetKind) -> Option<String> {
        match kind {
            TargetKind::ConfigMap | TargetKind::Secret => Some(CORE.to_owned()),
            TargetKind::ClusterTrustBundle => {
                self.trust_bundle_resource().map(|resource| resource.api_version)
            }
        }
    }

    fn trust_bundle_resource(&self) -> Option<ApiResource> {
        self.trust_bundles.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Applies a body where no target is known. Returns the new metadata, or why an existing object must not be
    /// written: targets are watched by label, so an object without it is unknown.
    pub async fn create(
        &self,
        owner: &BundleMeta,
        kind: TargetKind,
        at: &NamespacedName,
        body: &[u8],
    ) -> kube::Result<Result<ObjectMeta, String>> {
        let found = {
            let _turn = self.turns.acquire().await;
            self.get_metadata(kind, at).await?.map(|metadata| ObservedTarget::from_metadata(kind, &metadata))
        };
        let parameters = match found {
            // Without force, a key that another manager writes meanwhile is a conflict.
            None => PatchParams::apply(FIELD_MANAGER),
            Some(found) => match found.ownership_conflict(owner) {
                Some(why) => return Ok(Err(why)),
                None => apply_params(),
            },
        };
        self.apply_with(kind, at, body, &parameters).await.map(Ok)
    }

    /// Applies a body; returns the new metadata.
    pub async fn apply(
        &self,
        kind: TargetKind,
        at: &NamespacedName,
        body: &[u8],
    ) -> kube::Result<ObjectMeta> {
        self.apply_with(kind, at, body, &apply_params()).await
    }

    /// Bodies are large and shared, so they are sent as bytes, and only metadata is requested.
    async fn apply_with(
        &self,
        kind: TargetKind,
        at: &NamespacedName,
        body: &[u8],
        parameters: &PatchParams,
    ) -> kube::Result<ObjectMeta> {
        let _turn = self.turns.acquire().await;
        let request = self.request(kind, at);
        let request = request.patch_metadata(&at.name, parameters, &Patch::Apply(Value::Null));
        let request = request.map_err(kube::Error::BuildRequest)?.map(|_| body.to_vec());
        let written: ObjectMetadata = self.client.request(request).await?;
        Ok(written.metadata)
    }

    /// Removes what was written into an object; deletes it if nothing else is in it, and releases it otherwise. An
    /// object that does not belong to the Bundle any more is left unchanged.
    pub async fn release(
        &self,
        owner: &BundleMeta,
        kind: TargetKind,
        at: &NamespacedName,
    ) -> kube::Result<()> {
        let _turn = self.turns.acquire().await;
        let Some(found) = self.get_owned(owner, kind, at).await? else { return Ok(()) };
        // The UID prevents that an object that was created again meanwhile is changed, or one is created.
        let uid = found.uid;
        let this = |mut body: Value| {
            body["metadata"]["uid"] = uid.clone().into();
            body
        };
        let left = self.patch(kind, at, &this(release_body(owner, kind, &at.name))).await?;
        if !has_no_data(&left) {
            return self.patch(kind, at, &this(disown_body(kind, &at.name))).await.map(drop);
        }
        let resource_version =
            left.pointer("/metadata/resourceVersion").and_then(Value::as_str).map(str::to_owned);
        self.delete_object(kind, at, Preconditions { uid: uid.clone(), resource_version }).await
    }

    /// Deletes an object that belongs to a Bundle completely.
    pub async fn delete(
        &self,
        owner: &BundleMeta,
        kind: TargetKind,
        at: &NamespacedName,
    ) -> kube::Result<()> {
        let _turn = self.turns.acquire().await;
        let Some(found) = self.get_owned(owner, kind, at).await? else { return Ok(()) };
        let ObjectMeta { uid, resource_version, .. } = found;
        self.delete_object(kind, at, Preconditions { uid, resource_version }).await
    }

    /// Reads the metadata of an object if it exists and belongs to the Bundle.
    async fn get_owned(
        &self,
        owner: &BundleMeta,
        kind: TargetKind,
        at: &NamespacedName,
    ) -> kube::Result<Option<ObjectMeta>> {
        let found = self.get_metadata(kind, at).await?;
        Ok(found.filter(|metadata| ObservedTarget::from_metadata(kind, metadata).belongs_to(owner)))
    }

    /// Reads the metadata of an object; `None` if it does not exist.
    async fn get_metadata(&self, kind: TargetKind, at: &NamespacedName) -> kube::Result<Option<ObjectMeta>> {
        let request = self.request(kind, at).get_metadata(&at.name, &GetParams::default());
        let request = request.map_err(kube::Error::BuildRequest)?;
        match self.client.request::<ObjectMetadata>(request).await {
            Ok(found) => Ok(Some(found.metadata)),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn patch(&self, kind: TargetKind, at: &NamespacedName, body: &Value) -> kube::Result<Value> {
        let request = self.request(kind, at).patch(&at.name, &apply_params(), &Patch::Apply(body));
        self.client.request(request.map_err(kube::Error::BuildRequest)?).await
    }

    async fn delete_object(
        &self,
        kind: TargetKind,
        at: &NamespacedName,
        only: Preconditions,
    ) -> kube::Result<()> {
        let how = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
        let request = self.request(kind, at).delete(&at.name, &how);
        match self.client.request::<Value>(request.map_err(kube::Error::BuildRequest)?).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn request(&self, kind: TargetKind, at: &NamespacedName) -> Request {
        let namespace = Some(at.namespace.as_str());
        Request::new(match kind {
            TargetKind::ConfigMap => ConfigMap::url_path(&(), namespace),
            TargetKind::Secret => Secret::url_path(&(), namespace),
            // Callers check that the kind is served.
            TargetKind::ClusterTrustBundle => self
                .trust_bundle_resource()
                .map(|resource| DynamicObject::url_path(&resource, None))
                .unwrap_or_default(),
        })
    }
}

/// Parameters of server-side apply under the field manager of trust-manager.
pub fn apply_params() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER).force()
}

pub fn error_message(error: &kube::Error) -> String {
    describe(error)
}

/// Whether the response means that the namespace is gone or terminating.
pub fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.is_not_found() || causes.any(|cause| cause.reason == "NamespaceTerminating")
}
