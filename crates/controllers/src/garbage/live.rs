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

use super::Collector;
use super::decide::{Action, Object, Owner, OwnerState, Policy, decide};
use super::graph::Whereabouts;
use crate::catalog::Resource;
use crate::pool::Next;
use crate::uid::Uid;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// Objects in one page of a list.
const PAGE: u32 = 500;

/// Looks at one object and does what has to be done with it.
pub async fn reconcile(collector: Arc<Collector>, uid: Uid) -> anyhow::Result<Next> {
    let Some(place) = collector.graph().whereabouts(&uid) else { return Ok(Next::Done) };
    let found = api(&collector.client, &place).get_metadata_opt(&place.name).await;
    let found = found.with_context(|| format!("cannot read {place}"))?;
    let meta = match found {
        Some(found) if is(&found.metadata, &uid) => found.metadata,
        _ => {
            let affected = collector.graph().forget(&uid);
            collector.look_at(affected);
            return Ok(Next::Done);
        }
    };
    let object = facts(&meta);
    let owners = match object.deleting {
        true => Vec::new(),
        false => owners(&collector, &place, &meta).await?,
    };
    let dependents = collector.graph().dependents(&uid);
    let states: Vec<_> = dependents.iter().map(|(_, dependent)| *dependent).collect();
    let action = decide(object, &owners, &states);
    if action != Action::Leave {
        tracing::debug!(object = %place, ?action, "collecting garbage");
    }
    match action {
        Action::Leave => Ok(Next::Done),
        Action::AwaitDependents => {
            let free = dependents.into_iter().filter(|(_, d)| d.blocks && !d.waiting);
            collector.look_at(free.map(|(uid, _)| uid));
            Ok(Next::Done)
        }
        action => act(&collector, &uid, &place, &meta, action).await,
    }
}

/// Does what was decided.
async fn act(
    collector: &Collector,
    uid: &Uid,
    place: &Whereabouts,
    meta: &ObjectMeta,
    action: Action,
) -> anyhow::Result<Next> {
    let client = &collector.client;
    let sees_off = matches!(action, Action::Release | Action::Orphan);
    if let Some(kind) = collector.graph().unlisted().filter(|_| sees_off) {
        return Ok(Next::Wait(format!("it may own some {kind}, which are not listed yet")));
    }
    match action {
        Action::Leave | Action::AwaitDependents => Ok(Next::Done),
        Action::Release => remove_finalizer(client, place, meta, FOREGROUND).await,
        Action::Orphan => {
            if let Next::Wait(why) = orphan_dependents(collector, uid, place).await? {
                return Ok(Next::Wait(why));
            }
            remove_finalizer(client, place, meta, ORPHAN).await
        }
        Action::DropOwners(uids) => drop_owners(client, place, meta, &uids).await,
        Action::Delete(policy) => delete(client, place, meta, policy).await,
        Action::UnblockAndDelete => {
            let mut references = meta.owner_references.clone().unwrap_or_default();
            for reference in &mut references {
                reference.block_owner_deletion = reference.block_owner_deletion.map(|_| false);
            }
            let change = json!({"ownerReferences": references});
            match patch(client, place, meta, change).await? {
                // The object has changed, so deleting it needs another look.
                Next::Done => delete_newest(client, place, meta, Policy::Foreground).await,
                wait => Ok(wait),
            }
        }
    }
}

/// What matters of an object.
pub fn facts(meta: &ObjectMeta) -> Object {
    let has = |name: &str| meta.finalizers.iter().flatten().any(|finalizer| finalizer == name);
    Object {
        deleting: meta.deletion_timestamp.is_some(),
        orphan: has(ORPHAN),
        foreground: has(FOREGROUND),
    }
}

/// What became of the object's owners, as the server has it.
async fn owners(
    collector: &Collector,
    place: &Whereabouts,
    meta: &ObjectMeta,
) -> anyhow::Result<Vec<Owner>> {
    let mut owners = Vec::new();
    for reference in meta.owner_references.iter().flatten() {
        let state = owner(collector, &place.namespace, reference).await.with_context(|| {
            let OwnerReference { kind, name, .. } = reference;
            format!("cannot look for the owner {kind} {name} of {place}")
        })?;
        if state == OwnerState::Invalid {
            let (kind, name) = (&reference.kind, &reference.name);
            tracing::warn!(object = %place, "its owner {kind} {name} lives in a namespace; the object does not, so the owner is never found");
        }
        owners.push(Owner { uid: reference.uid.clone(), state });
    }
    Ok(owners)
}

async fn owner(
    collector: &Collector,
    namespace: &str,
    reference: &OwnerReference,
) -> anyhow::Result<OwnerState> {
    let resource = collector.catalog.resolve(&reference.api_version, &reference.kind).await?;
    if resource.namespaced && namespace.is_empty() {
        return Ok(OwnerState::Invalid);
    }
    let namespace = if resource.namespaced { namespace } else { "" };
    let place =
        Whereabouts { resource, namespace: namespace.to_owned(), name: reference.name.clone() };
    let found = api(&collector.client, &place).get_metadata_opt(&place.name).await?;
    let Some(meta) = found.map(|found| found.metadata) else { return Ok(OwnerState::Absent) };
    Ok(match facts(&meta) {
        _ if meta.uid.as_deref() != Some(&*reference.uid) => OwnerState::Absent,
        Object { deleting: true, foreground: true, .. } => OwnerState::Waiting,
        _ => OwnerState::Solid,
    })
}

/// Takes an owner out of the references of everything it owns. Asks the server rather than the
/// graph: a dependent that is missed here would be deleted with its owner.
async fn orphan_dependents(
    collector: &Collector,
    uid: &Uid,
    place: &Whereabouts,
) -> anyhow::Result<Next> {
    let uid = uid.to_string();
    let uids = std::slice::from_ref(&uid);
    let resources = collector.graph().resources();
    for resource in resources.into_iter().filter(|r| r.namespaced || !place.resource.namespaced) {
        let found = owned_by(&collector.client, &resource, &place.namespace, &uid).await;
        let found = found.with_context(|| format!("cannot list {}", resource.api.plural))?;
        for meta in found {
            let dependent = Whereabouts {
                resource: resource.clone(),
                namespace: meta.namespace.clone().unwrap_or_default(),
                name: meta.name.clone().unwrap_or_default(),
            };
            match drop_owners(&collector.client, &dependent, &meta, uids).await? {
                Next::Done => {}
                wait => return Ok(wait),
            }
        }
    }
    Ok(Next::Done)
}

/// The objects of a kind that name `uid` as an owner, in a namespace or, if that is empty, in all.
async fn owned_by(
    client: &Client,
    resource: &Resource,
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

async fn drop_owners(
    client: &Client,
    place: &Whereabouts,
    meta: &ObjectMeta,
    uids: &[String],
) -> anyhow::Result<Next> {
    let mut left = meta.owner_references.clone().unwrap_or_default();
    left.retain(|reference| !uids.contains(&reference.uid));
    let left = if left.is_empty() { Value::Null } else { json!(left) };
    patch(client, place, meta, json!({"ownerReferences": left})).await
}

async fn remove_finalizer(
    client: &Client,
    place: &Whereabouts,
    meta: &ObjectMeta,
    finalizer: &str,
) -> anyhow::Result<Next> {
    let mut left = meta.finalizers.clone().unwrap_or_default();
    left.retain(|other| other != finalizer);
    let left = if left.is_empty() { Value::Null } else { json!(left) };
    patch(client, place, meta, json!({"finalizers": left})).await
}

/// Changes the metadata of exactly this state of the object.
async fn patch(
    client: &Client,
    place: &Whereabouts,
    meta: &ObjectMeta,
    mut change: Value,
) -> anyhow::Result<Next> {
    if let Some(fields) = change.as_object_mut() {
        fields.insert("uid".into(), json!(meta.uid));
        fields.insert("resourceVersion".into(), json!(meta.resource_version));
    }
    let change = Patch::Merge(json!({"metadata": change}));
    let done =
        api(client, place).patch_metadata(&place.name, &PatchParams::default(), &change).await;
    settled(done, || format!("cannot change {place}"))
}

/// Deletes exactly this state of the object.
async fn delete(
    client: &Client,
    place: &Whereabouts,
    meta: &ObjectMeta,
    policy: Policy,
) -> anyhow::Result<Next> {
    let preconditions =
        Preconditions { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() };
    let policy = match policy {
        Policy::Orphan => PropagationPolicy::Orphan,
        Policy::Background => PropagationPolicy::Background,
        Policy::Foreground => PropagationPolicy::Foreground,
    };
    let params = DeleteParams {
        propagation_policy: Some(policy),
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };
    let done = api(client, place).delete(&place.name, &params).await;
    settled(done, || format!("cannot delete {place}"))
}

/// Deletes an object whatever its state is now.
async fn delete_newest(
    client: &Client,
    place: &Whereabouts,
    meta: &ObjectMeta,
    policy: Policy,
) -> anyhow::Result<Next> {
    let meta = ObjectMeta { uid: meta.uid.clone(), ..ObjectMeta::default() };
    delete(client, place, &meta, policy).await
}

/// An object that is gone needs nothing more; one that changed meanwhile needs another look.
fn settled<T>(answer: kube::Result<T>, what: impl FnOnce() -> String) -> anyhow::Result<Next> {
    match answer {
        Ok(_) => Ok(Next::Done),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Next::Done),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Next::Wait(status.message)),
        Err(error) => Err(error).with_context(what),
    }
}

fn is(meta: &ObjectMeta, uid: &Uid) -> bool {
    meta.uid.as_deref().is_some_and(|found| Uid::from(found) == *uid)
}

fn api(client: &Client, place: &Whereabouts) -> Api<DynamicObject> {
    match &*place.namespace {
        "" => Api::all_with(client.clone(), &place.resource.api),
        namespace => Api::namespaced_with(client.clone(), namespace, &place.resource.api),
    }
}

impl std::fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = &self.resource.api.kind;
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        write!(f, "{kind} {}{slash}{}", self.namespace, self.name)
    }
}
