//! Reading from the server what a decision needs, and doing what was decided.

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
use super::decision::{
    DeletionPropagation, GarbageAction, ObjectState, OwnerState, ResolvedOwner, decide,
};
use super::graph::ObjectLocation;
use crate::api_catalog::ServedResource;
use crate::uid::ObjectUid;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// Objects in one page of a list.
const PAGE: u32 = 500;

/// Looks at one object and does what has to be done with it.
pub async fn reconcile(
    collector: Arc<GarbageCollector>,
    uid: ObjectUid,
) -> anyhow::Result<Requeue> {
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
            "it may own some {kind}, which are not listed yet"
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
        GarbageAction::DropOwners(uids) => {
            remove_owner_references(client, place, meta, &uids).await
        }
        GarbageAction::Delete(policy) => delete(client, place, meta, policy).await,
        GarbageAction::UnblockAndDelete => {
            let mut references = meta.owner_references.clone().unwrap_or_default();
            for reference in &mut references {
                reference.block_owner_deletion = reference.block_owner_deletion.map(|_| false);
            }
            let change = json!({"ownerReferences": references});
            match patch(client, place, meta, change).await? {
                // The object has changed, so deleting it needs another look.
                Requeue::Done => {
                    delete_newest(client, place, meta, DeletionPropagation::Foreground).await
                }
                wait => Ok(wait),
            }
        }
    }
}

/// What matters of an object.
pub fn object_state(meta: &ObjectMeta) -> ObjectState {
    let has = |name: &str| meta.finalizers.iter().flatten().any(|finalizer| finalizer == name);
    ObjectState {
        deleting: meta.deletion_timestamp.is_some(),
        orphan: has(ORPHAN),
        foreground: has(FOREGROUND),
    }
}

/// What became of the object's owners, as the server has it.
async fn resolve_owners(
    collector: &GarbageCollector,
    place: &ObjectLocation,
    meta: &ObjectMeta,
) -> anyhow::Result<Vec<ResolvedOwner>> {
    let mut owners = Vec::new();
    for reference in meta.owner_references.iter().flatten() {
        let state =
            resolve_owner(collector, &place.namespace, reference).await.with_context(|| {
                let OwnerReference { kind, name, .. } = reference;
                format!("cannot look for the owner {kind} {name} of {place}")
            })?;
        if state == OwnerState::Invalid {
            let (kind, name) = (&reference.kind, &reference.name);
            tracing::warn!(object = %place, "its owner {kind} {name} lives in a namespace; the object does not, so the owner is never found");
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
    let place =
        ObjectLocation { resource, namespace: namespace.to_owned(), name: reference.name.clone() };
    let found = api_for(&collector.client, &place).get_metadata_opt(&place.name).await?;
    let Some(meta) = found.map(|found| found.metadata) else { return Ok(OwnerState::Absent) };
    Ok(match object_state(&meta) {
        _ if meta.uid.as_deref() != Some(&*reference.uid) => OwnerState::Absent,
        ObjectState { deleting: true, foreground: true, .. } => OwnerState::Waiting,
        _ => OwnerState::Solid,
    })
}

/// Takes an owner out of the references of everything it owns. Asks the server rather than the
/// graph: a dependent that is missed here would be deleted with its owner.
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

/// The objects of a kind that name `uid` as an owner, in a namespace or, if that is empty, in all.
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
        let owned =
            list.items.into_iter().map(|object| object.metadata).filter(|meta| {
                meta.owner_references.iter().flatten().any(|owner| owner.uid == uid)
            });
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

/// Changes the metadata of exactly this state of the object.
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
    let done =
        api_for(client, place).patch_metadata(&place.name, &PatchParams::default(), &change).await;
    write_outcome(done, || format!("cannot change {place}"))
}

/// Deletes exactly this state of the object.
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

/// Deletes an object whatever its state is now.
async fn delete_newest(
    client: &Client,
    place: &ObjectLocation,
    meta: &ObjectMeta,
    policy: DeletionPropagation,
) -> anyhow::Result<Requeue> {
    let meta = ObjectMeta { uid: meta.uid.clone(), ..ObjectMeta::default() };
    delete(client, place, &meta, policy).await
}

/// An object that is gone needs nothing more; one that changed meanwhile needs another look.
fn write_outcome<T>(
    answer: kube::Result<T>,
    what: impl FnOnce() -> String,
) -> anyhow::Result<Requeue> {
    match answer {
        Ok(_) => Ok(Requeue::Done),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Requeue::Done),
        Err(kube::Error::Api(status)) if status.is_conflict() => {
            Ok(Requeue::WithBackoff(status.message))
        }
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
