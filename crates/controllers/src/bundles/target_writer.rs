//! Writing targets.

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

/// Writes that are under way at the same time, of all Bundles.
pub const WRITES: usize = 32;

/// Applies, releases and deletes targets, with a limit on concurrent writes.
pub struct TargetWriter {
    client: Client,
    /// How ClusterTrustBundles are written, if the server has them.
    trust_bundles: Mutex<Option<ApiResource>>,
    turns: Semaphore,
}

impl TargetWriter {
    /// Creates a writer that cannot write ClusterTrustBundles until their resource is set.
    pub fn new(client: Client) -> TargetWriter {
        TargetWriter { client, trust_bundles: Mutex::default(), turns: Semaphore::new(WRITES) }
    }

    /// Notes how ClusterTrustBundles are written from now on.
    pub fn set_trust_bundle_resource(&self, with: Option<ApiResource>) {
        *self.trust_bundles.lock().unwrap_or_else(PoisonError::into_inner) = with;
    }

    /// The version in which a kind is written.
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

    /// Applies a body where no target is known; the answer is the metadata that came of it, or why an
    /// object that exists must not be written to. Targets are watched by their label, so that one
    /// without it is not known.
    pub async fn create(
        &self,
        owner: &BundleMeta,
        kind: TargetKind,
        at: &NamespacedName,
        body: &[u8],
    ) -> kube::Result<Result<ObjectMeta, String>> {
        let found = {
            let _turn = self.turns.acquire().await;
            self.get_metadata(kind, at)
                .await?
                .map(|metadata| ObservedTarget::from_metadata(kind, &metadata))
        };
        let parameters = match found {
            // Without force, a key that somebody else writes meanwhile is a conflict.
            None => PatchParams::apply(FIELD_MANAGER),
            Some(found) => match found.ownership_conflict(owner) {
                Some(why) => return Ok(Err(why)),
                None => apply_params(),
            },
        };
        self.apply_with(kind, at, body, &parameters).await.map(Ok)
    }

    /// Applies a body; the answer is the metadata that came of it.
    pub async fn apply(
        &self,
        kind: TargetKind,
        at: &NamespacedName,
        body: &[u8],
    ) -> kube::Result<ObjectMeta> {
        self.apply_with(kind, at, body, &apply_params()).await
    }

    /// Bodies are large and many share one, so that it is bytes, and nothing is asked for that is not
    /// needed.
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

    /// Takes back what was written into an object; deletes it if nothing else is in it, else lets it
    /// go. One that is no longer the Bundle's is left.
    pub async fn release(
        &self,
        owner: &BundleMeta,
        kind: TargetKind,
        at: &NamespacedName,
    ) -> kube::Result<()> {
        let _turn = self.turns.acquire().await;
        let Some(found) = self.get_owned(owner, kind, at).await? else { return Ok(()) };
        // An object that was made anew meanwhile is not touched, and none is made.
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

    /// Deletes an object, all of which is a Bundle's.
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

    /// The metadata of an object, if it is there and the Bundle's.
    async fn get_owned(
        &self,
        owner: &BundleMeta,
        kind: TargetKind,
        at: &NamespacedName,
    ) -> kube::Result<Option<ObjectMeta>> {
        let found = self.get_metadata(kind, at).await?;
        Ok(found.filter(|metadata| ObservedTarget::from_metadata(kind, metadata).belongs_to(owner)))
    }

    /// The metadata of an object, if it is there.
    async fn get_metadata(
        &self,
        kind: TargetKind,
        at: &NamespacedName,
    ) -> kube::Result<Option<ObjectMeta>> {
        let request = self.request(kind, at).get_metadata(&at.name, &GetParams::default());
        let request = request.map_err(kube::Error::BuildRequest)?;
        match self.client.request::<ObjectMetadata>(request).await {
            Ok(found) => Ok(Some(found.metadata)),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn patch(
        &self,
        kind: TargetKind,
        at: &NamespacedName,
        body: &Value,
    ) -> kube::Result<Value> {
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
            // Nobody asks for what the server does not have.
            TargetKind::ClusterTrustBundle => self
                .trust_bundle_resource()
                .map(|resource| DynamicObject::url_path(&resource, None))
                .unwrap_or_default(),
        })
    }
}

/// Server-side apply under trust-manager's name.
pub fn apply_params() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER).force()
}

/// What the server says about an error.
pub fn error_message(error: &kube::Error) -> String {
    describe(error)
}

/// Whether the answer means that the namespace is gone or going.
pub fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.is_not_found() || causes.any(|cause| cause.reason == "NamespaceTerminating")
}
