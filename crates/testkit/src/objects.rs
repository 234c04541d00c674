//! Objects as JSON and as types, and waiting until one is in the wanted state.

use std::fmt::Debug;

use kube::api::{Api, PostParams};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::PATIENCE;

/// Parses a typed object from JSON.
pub fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// Creates an object that is given as JSON; the server must accept it.
pub async fn create<K>(api: &Api<K>, value: Value) -> K
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    api.create(&PostParams::default(), &object(value)).await.unwrap()
}

/// An owner reference to an object; `blocks` sets `blockOwnerDeletion`.
pub fn owner_reference<K: Resource<DynamicType = ()>>(object: &K, blocks: bool) -> Value {
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "name": object.name_any(),
        "uid": object.meta().uid,
        "blockOwnerDeletion": blocks,
    })
}

/// Waits until `good` holds for an object; `None` stands for one that does not exist.
pub async fn wait_until<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    good: impl Fn(Option<&K>) -> bool,
) -> Option<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let waiting = kube::runtime::wait::await_condition(api.clone(), name, |found: Option<&K>| good(found));
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(found) => found.unwrap(),
        Err(_) => {
            let now = api.get_opt(name).await.unwrap().map(|o| serde_json::to_value(o).unwrap());
            panic!("{name} was to {what}, but is {now:?}");
        }
    }
}

/// Waits until an object no longer exists.
pub async fn wait_until_removed<K>(api: &Api<K>, name: &str)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    wait_until(api, name, "be gone", |found| found.is_none()).await;
}

/// The `resourceVersion` of an object or list.
#[track_caller]
pub fn version(value: &Value) -> u64 {
    value["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Names of a list's items, in its order.
pub fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect()
}

/// Path of the ConfigMaps in the namespace `default`.
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A ConfigMap with one entry.
pub fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

/// Path of the pods in the namespace `default`.
pub const PODS: &str = "/api/v1/namespaces/default/pods";

/// A pod with only the required fields.
pub fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}
