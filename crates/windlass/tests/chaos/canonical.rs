//! Canonical text of objects, comparable between all observers.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::Value;

use crate::check::{CONFIG_MAPS, REQUESTS, request_content};
use crate::history::{Content, StoreChange};

/// Key prefixes of config maps and certificate signing requests in etcd.
const PREFIXES: [(&str, &str); 2] = [
    ("/windlass/core/configmaps/chaos/", CONFIG_MAPS),
    ("/windlass/certificates.k8s.io/certificatesigningrequests/", REQUESTS),
];

/// Converts a change of etcd; `None` if the checker does not use the key.
pub fn change(change: windlass_testkit::etcd::KeyChange) -> Option<StoreChange> {
    let (name, resource) =
        PREFIXES.iter().find_map(|(prefix, resource)| Some((change.key.strip_prefix(prefix)?, *resource)))?;
    let content = change.value.map(|value| content(resource, &serde_json::from_slice(&value).unwrap()));
    Some(StoreChange { revision: change.revision, key: format!("{resource}/{name}"), content })
}

/// Returns the parts of an object that the checker compares.
pub fn content(resource: &str, object: &Value) -> Content {
    if resource == CONFIG_MAPS {
        return object["data"]["value"].as_str().unwrap_or_default().to_owned();
    }
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let approved = conditions.any(|condition| condition["type"] == "Approved");
    let certificate = object["status"]["certificate"].as_str().map(|certificate| {
        let mut digest = DefaultHasher::new();
        certificate.hash(&mut digest);
        format!("{:016x}", digest.finish())
    });
    request_content(approved, certificate.as_deref())
}
