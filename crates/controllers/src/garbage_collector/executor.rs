//! Reads what a decision needs from the server, and executes it.

use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, Preconditions,
    PropagationPolicy,
};
use serde_json::{Value, json};
use windlass_runtime::workers::Requeue;

use super::GarbageCollector;
use super::decision::{DeletionPropagation, GarbageAction, ObjectState, OwnerState, ResolvedOwner, decide};
use super::graph::ObjectLocation;
use crate::api_catalog::ServedResource;
use crate::uid::ObjectUid;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// Page size of list requests.
const PAGE: u32 = 500;

pub async fn reconcile(collector: Arc<GarbageCollector>, uid: ObjectUid) -> anyhow::Result<Requeue> {
    let Some(place) = collector.graph().location(&uid) else { return Ok(Requeue::Done) };
    let found = api_for(&collector.client, &place).get_metadata_opt(&place.name).await;
    let found = found.with_context(|| format!("cannot read {place}"))?;
    let meta = match found {
        Some(found) if has_uid(&found.metadata, &uid) => found.metadata,
        _ => {
            let affected = collector.graph().remove(&uid);
            collector.enqueue(affected);
            return Ok(Requeue::Done);
        }
    };
    let object = object_state(&meta);
    let owners = match object.deleting {
        true => Vec::new(),
        false => resolve_owners(&collector, &place, &meta).await?,
    };
    let dependents = collector.graph().dependents(&uid);
    let states: Vec<_> = dependents.iter().map(|(_, dependent)| *dependent).collect();
    let action = decide(object, &owners, &states);
    if action != GarbageAction::Leave {
        tracing::debug!(object = %place, ?action, "collecting garbage");
    }
    match action {
        GarbageAction::Leave => Ok(Requeue::Done),
        GarbageAction::AwaitDependents => {
            let free = dependents.into_iter().filter(|(_, d)| d.blocks && !d.waiting);
            collector.enqueue(free.map(|(uid, _)| uid));
            Ok(Requeue::Done)
        }
        action => execute(&collector, &uid, &place, &meta, action).await,
    }
}

async fn execute(
    collector: &GarbageCollector,
    uid: &ObjectUid,
    place: &ObjectLocation,
    meta: &ObjectMeta,
    action: GarbageAction,
) -> anyhow::Result<Requeue> {
    let client = &collector.client;
    let sees_off = matches!(action, GarbageAction::Release | GarbageAction::Orphan);
    if let Some(kind) = collector.graph().first_unlisted_kind().filter(|_| sees_off) {
        return Ok(Requeue::WithBackoff(format!(
            "it may have dependents of kind {kind}, which are not listed yet"
        )));
    }
    match action {
        GarbageAction::Leave | GarbageAction::AwaitDependents => Ok(Requeue::Done),
        GarbageAction::Release => remove_finalizer(client, place, meta, FOREGROUND).await,
        GarbageAction::Orphan => {
            if let Requeue::WithBackoff(why) = orphan_dependents(collector, uid, place).await? {
                return Ok(Requeue::WithBackoff(why));
            }
            remove_finalizer(client, place, meta, ORPHAN).await
        }
        GarbageAction::DropOwners(uids) => remove_owner_references(client, place, meta, &uids).await,
        GarbageAction::Delete(policy) => delete(client, place, meta, policy).await,
        GarbageAction::UnblockAndDelete => {
            let mut references = meta.owner_references.clone().unwrap_or_default();
            for reference in &mut references {
                reference.block_owner_deletion = reference.block_owner_deletion.map(|_| false);
            }
            let change = json!({"ownerReferences": references});
            match patch(client, place, meta, change).await? {
                // The patch has changed the resource version.
                Requeue::Done => delete_newest(client, place, meta, DeletionPropagation::Foreground).await,
                wait => Ok(wait),
            }
        }
    }
}

/// Extracts the state of an object from its metadata.
pub fn object_state(meta: &ObjectMeta) -> ObjectState {
    let has = |name: &str| meta.finalizers.iter().flatten().any(|finalizer| finalizer == name);
    ObjectState {
        deleting: meta.deletion_timestamp.is_some(),
        orphan: has(ORPHAN),
        foreground: has(FOREGROUND),
    }
}

/// Reads the state of all owners from the server.
async fn resolve_owners(
    collector: &GarbageCollector,
    place: &ObjectLocation,
    meta: &ObjectMeta,
) -> anyhow::Result<Vec<ResolvedOwner>> {
    let mut owners = Vec::new();
    for reference in meta.owner_references.iter().flatten() {
        let state = resolve_owner(collector, &place.namespace, reference).await.with_context(|| {
            let OwnerReference { kind, name, .. } = reference;
            format!("cannot read owner {kind} {name} of {place}")
        })?;
        if state == OwnerState::Invalid {
            let (kind, name) = (&reference.kind, &reference.name);
            tracing::warn!(object = %place, kind, name, "cluster-scoped object references a namespaced owner, which cannot be resolved");
        }
        owners.push(ResolvedOwner { uid: reference.uid.clone(), state });
    }
    Ok(owners)
}

async fn resolve_owner(
    collector: &GarbageCollector,
    namespace: &str,
    reference: &OwnerReference,
) -> anyhow::Result<OwnerState> {
    let resource = collector.catalog.resolve(&reference.api_version, &reference.kind).await?;
    if resource.namespaced && namespace.is_empty() {
        return Ok(OwnerState::Invalid);
    }
    let namespace = if resource.namespaced { namespace } else { "" };
    let place = ObjectLocation { resource, namespace: namespace.to_owned(), name: reference.name.clone() };
    let found = api_for(&collector.client, &place).get_metadata_opt(&place.name).await?;
    let Some(meta) = found.map(|found| found.metadata) else { return Ok(OwnerState::Absent) };
    Ok(match object_state(&meta) {
        _ if meta.uid.as_deref() != Some(&*reference.uid) => OwnerState::Absent,
        ObjectState { deleting: true, foreground: true, .. } => OwnerState::Waiting,
        _ => OwnerState::Solid,
    })
}

/// Removes an owner from the references of all its dependents. Lists them on the server instead of using the graph: a
/// dependent that is missed here would be deleted with its owner.
async fn orphan_dependents(
    collector: &GarbageCollector,
    uid: &ObjectUid,
    place: &ObjectLocation,
) -> anyhow::Result<Requeue> {
    let uid = uid.to_string();
    let uids = std::slice::from_ref(&uid);
    let resources = collector.graph().resources();
    for resource in resources.into_iter().filter(|r| r.namespaced || !place.resource.namespaced) {
        let found = list_dependents(&collector.client, &resource, &place.namespace, &uid).await;
        let found = found.with_context(|| format!("cannot list {}", resource.api.plural))?;
        for meta in found {
            let dependent = ObjectLocation {
                resource: resource.clone(),
                namespace: meta.namespace.clone().unwrap_or_default(),
                name: meta.name.clone().unwrap_or_default(),
            };
            match remove_owner_references(&collector.client, &dependent, &meta, uids).await? {
                Requeue::Done => {}
                wait => return Ok(wait),
            }
        }
    }
    Ok(Requeue::Done)
}

/// Lists the objects of a kind with `uid` as an owner, in a namespace or, if that is empty, in all.
async fn list_dependents(
    client: &Client,
    resource: &ServedResource,
    namespace: &str,
    uid: &str,
) -> kube::Result<Vec<ObjectMeta>> {
    let api: Api<DynamicObject> = match namespace {
        "" => Api::all_with(client.clone(), &resource.api),
        _ => Api::namespaced_with(client.clone(), namespace, &resource.api),
    };
    let mut found = Vec::new();
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = api.list_metadata(&page).await?;
        let owned = list
            .items
            .into_iter()
            .map(|object| object.metadata)
            .filter(|meta| meta.owner_references.iter().flatten().any(|owner| owner.uid == uid));
        found.extend(owned);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
}

async fn remove_owner_references(
    client: &Client,
    place: &ObjectLocation,
    meta: &ObjectMeta,
    uids: &[String],
) -> anyhow::Result<Requeue> {
    let mut left = meta.owner_references.clone().unwrap_or_default();
    left.retain(|reference| !uids.contains(&reference.uid));
    let left = if left.is_empty() { Value::Null } else { json!(left) };
    patch(client, place, meta, json!({"ownerReferences": left})).await
}

async fn remove_finalizer(
    client: &Client,
    place: &ObjectLocation,
    meta: &ObjectMeta,
    finalizer: &str,
) -> anyhow::Result<Requeue> {
    let mut left = meta.finalizers.clone().unwrap_or_default();
    left.retain(|other| other != finalizer);
    let left = if left.is_empty() { Value::Null } else { json!(left) };
    patch(client, place, meta, json!({"finalizers": left})).await
}

/// Patches the metadata if the object has not changed since it was read.
async fn patch(
    client: &Client,
    place: &ObjectLocation,
    meta: &ObjectMeta,
    mut change: Value,
) -> anyhow::Result<Requeue> {
    if let Some(fields) = change.as_object_mut() {
        fields.insert("uid".into(), json!(meta.uid));
        fields.insert("resourceVersion".into(), json!(meta.resource_version));
    }
    let change = Patch::Merge(json!({"metadata": change}));
    let done = api_for(client, place).patch_metadata(&place.name, &PatchParams::default(), &change).await;
    write_outcome(done, || format!("cannot change {place}"))
}

/// Deletes the object if it has not changed since it was read.
async fn delete(
    client: &Client,
    place: &ObjectLocation,
    meta: &ObjectMeta,
    policy: DeletionPropagation,
) -> anyhow::Result<Requeue> {
    let preconditions =
        Preconditions { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() };
    let policy = match policy {
        DeletionPropagation::Orphan => PropagationPolicy::Orphan,
        DeletionPropagation::Background => PropagationPolicy::Background,
        DeletionPropagation::Foreground => PropagationPolicy::Foreground,
    };
    let params = DeleteParams {
        propagation_policy: Some(policy),
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };
    let done = api_for(client, place).delete(&place.name, &params).await;
    write_outcome(done, || format!("cannot delete {place}"))
}

/// Deletes the object even if it has changed since it was read.
async fn delete_newest(
    client: &Client,
    place: &ObjectLocation,
    meta: &ObjectMeta,
    policy: DeletionPropagation,
) -> anyhow::Result<Requeue> {
    let meta = ObjectMeta { uid: meta.uid.clone(), ..ObjectMeta::default() };
    delete(client, place, &meta, policy).await
}

/// Maps the result of a write: an object that is gone needs nothing more, and one that changed is retried.
fn write_outcome<T>(answer: kube::Result<T>, what: impl FnOnce() -> String) -> anyhow::Result<Requeue> {
    match answer {
        Ok(_) => Ok(Requeue::Done),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Requeue::Done),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Requeue::WithBackoff(status.message)),
        Err(error) => Err(error).with_context(what),
    }
}

fn has_uid(meta: &ObjectMeta, uid: &ObjectUid) -> bool {
    meta.uid.as_deref().is_some_and(|found| ObjectUid::from(found) == *uid)
}

fn api_for(client: &Client, place: &ObjectLocation) -> Api<DynamicObject> {
    match &*place.namespace {
        "" => Api::all_with(client.clone(), &place.resource.api),
        namespace => Api::namespaced_with(client.clone(), namespace, &place.resource.api),
    }
}

impl std::fmt::Display for ObjectLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = &self.resource.api.kind;
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        write!(f, "{kind} {}{slash}{}", self.namespace, self.name)
    }
}
