//! POST: a new object.

use std::sync::Arc;

use bytes::Bytes;
use rand::Rng as _;
use serde_json::{Map, Value, json};
use windlass_api::field::FieldErrors;
use windlass_api::meta::{self, ObjectMetaView};
use windlass_api::timestamp;
use windlass_store::{KeyChange, WritePrecondition, WriteRequest};

use super::RequestContext;
use super::decode::{self, DecodedRequest, ExpectedType};
use super::update::{record, store_error};
use crate::cache::store_key;
use crate::chain::admission::{self, AdmissionOperation};
use crate::chain::authz::Decision;
use crate::chain::authz::attributes::{
    AuthorizationAttributes, AuthorizationTarget, ResourceAttributes,
};
use crate::error::Error;
use crate::limits;
use crate::object::{Object, encode};
use crate::offload::size;
use crate::registry::kind::Scope;
use crate::request::options::{FieldValidation, WriteOptions};

/// What a write came to.
pub(crate) struct WriteResult {
    /// The object as it is now (or would be).
    pub object: Arc<Object>,
    /// Whether the object was created (201) rather than updated (200).
    pub created: bool,
    /// Texts for the `Warning` headers of the response, in order.
    pub warnings: Vec<String>,
}

/// Creates the object in the body.
pub(crate) async fn create(call: &RequestContext<'_>, body: &Bytes) -> Result<WriteResult, Error> {
    let options = WriteOptions::parse(call.query, "CreateOptions")?;
    let expected = ExpectedType::object(call.kind, call.served);
    let decode = || decode::object(call, expected, body, options.field_validation);
    let DecodedRequest { value, warnings } = call.run_offloaded(body.len(), decode).await?;
    let told = warnings.clone();
    create_value(call, value, warnings, &options).await.map_err(|error| error.warned(told))
}

/// Creates an object that is decoded already, in the version of the call.
pub(crate) async fn create_value(
    call: &RequestContext<'_>,
    value: Value,
    warnings: Vec<String>,
    options: &WriteOptions,
) -> Result<WriteResult, Error> {
    let size = size(&value);
    let complete = || {
        let mut value = stored_form(call, value);
        set_namespace(call, &mut value)?;
        strip_server_fields(&mut value)?;
        record(call, None, &mut value, &call.manager(&options.field_manager));
        Ok(value)
    };
    let value = call.run_offloaded(size, complete).await?;
    finish(call, value, warnings, options).await
}

/// Creates an object that server-side apply put together, with the managedFields it made.
pub(crate) async fn create_applied(
    call: &RequestContext<'_>,
    value: Value,
    warnings: Vec<String>,
    options: &WriteOptions,
) -> Result<WriteResult, Error> {
    let size = size(&value);
    let complete = || {
        let managed = value["metadata"].get("managedFields").cloned();
        let stored = ExpectedType::object(call.kind, call.kind.stored());
        let normal = decode::in_normal_form(stored, value, Vec::new(), FieldValidation::Ignore)?;
        let mut value = normal.value;
        (call.kind.defaults)(&mut value);
        set_namespace(call, &mut value)?;
        strip_server_fields(&mut value)?;
        metadata(&mut value).insert("name".into(), json!(call.path.name));
        if let Some(managed) = managed {
            metadata(&mut value).insert("managedFields".into(), managed);
        }
        Ok(value)
    };
    let value = call.run_offloaded(size, complete).await?;
    finish(call, value, warnings, options).await
}

/// Takes away what a client cannot say of a new object.
fn strip_server_fields(value: &mut Value) -> Result<(), Error> {
    if !ObjectMetaView::from_object(value).resource_version().is_empty() {
        let text = "resourceVersion should not be set on objects to be created";
        return Err(Error::Unclassified(text.into()));
    }
    for owned in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"] {
        metadata(value).remove(owned);
    }
    Ok(())
}

async fn finish(
    call: &RequestContext<'_>,
    mut value: Value,
    warnings: Vec<String>,
    options: &WriteOptions,
) -> Result<WriteResult, Error> {
    admission::wait_for_dependencies(call, &value).await;
    let size = size(&value);
    let prepare = || {
        admission::mutate(call, AdmissionOperation::Create, &mut value)?;
        prepare(call, &mut value);
        Ok(())
    };
    call.run_offloaded(size, prepare).await?;
    let generated = ObjectMetaView::from_object(&value).name().is_empty()
        && !ObjectMetaView::from_object(&value).generate_name().is_empty();
    for attempt in 0..=limits::NAME_RETRIES {
        if generated {
            let name = generate_name(ObjectMetaView::from_object(&value).generate_name());
            self::metadata(&mut value).insert("name".into(), json!(name));
        }
        let validate = || {
            let stored = encode(call.kind.name, &call.kind.stored().api_version(), &value, false);
            // First: what cannot be stored is not worth the time.
            check_size(&stored)?;
            if attempt == 0 {
                validate(call, &value)?;
                check_right(call)?;
                admission::validate(call, AdmissionOperation::Create, &value)?;
            }
            Ok(stored)
        };
        let stored = call.run_offloaded(size, validate).await?;
        match insert(call, ObjectMetaView::from_object(&value).name(), stored, options.dry_run)
            .await
        {
            Err(Error::AlreadyExists { .. }) if generated && attempt < limits::NAME_RETRIES => {}
            Err(Error::AlreadyExists { subject, deleting, .. }) => {
                return Err(Error::AlreadyExists { subject, deleting, generated });
            }
            Err(other) => return Err(other),
            Ok(object) => return Ok(WriteResult { object, created: true, warnings }),
        }
    }
    Err(Error::Internal("generated names ran out without an answer".into()))
}

/// Sets what the server says of a new object.
fn prepare(call: &RequestContext<'_>, value: &mut Value) {
    let metadata = metadata(value);
    metadata.insert("uid".into(), json!(uuid::Uuid::new_v4().to_string()));
    metadata.insert("creationTimestamp".into(), json!(timestamp::format(call.now)));
    metadata.remove("generation");
    if call.kind.generation {
        metadata.insert("generation".into(), json!(1));
    }
    (call.kind.prepare_create)(value);
    (call.kind.prepare_create_as)(value, call.user);
}

/// Turns an object of the served version into the stored one and fills in defaults. It keeps the
/// `apiVersion` it came with: some rules differ by it, and what is stored says the stored one anyway.
pub(crate) fn stored_form(call: &RequestContext<'_>, value: Value) -> Value {
    let mut value = match call.served.convert {
        Some(convert) => (convert.to_stored)(value),
        None => value,
    };
    (call.kind.defaults)(&mut value);
    value
}

/// The metadata of an object, made if it is not there.
pub(crate) fn metadata(value: &mut Value) -> &mut Map<String, Value> {
    if !value["metadata"].is_object() {
        value["metadata"] = json!({});
    }
    match &mut value["metadata"] {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object above"),
    }
}

/// Puts the object into the namespace of the path; a namespace of its own must be that one.
fn set_namespace(call: &RequestContext<'_>, value: &mut Value) -> Result<(), Error> {
    let own = ObjectMetaView::from_object(value).namespace().to_owned();
    match call.kind.scope {
        Scope::Cluster => {
            metadata(value).remove("namespace");
        }
        Scope::Namespaced if own.is_empty() => {
            metadata(value).insert("namespace".into(), json!(call.path.namespace));
        }
        Scope::Namespaced if own == call.path.namespace => {}
        Scope::Namespaced => {
            let text = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Error::BadRequest(text.into()));
        }
    }
    Ok(())
}

fn validate(call: &RequestContext<'_>, value: &Value) -> Result<(), Error> {
    let mut errors = FieldErrors::new();
    let namespaced = call.kind.scope == Scope::Namespaced;
    meta::validate_object_meta(&value["metadata"], namespaced, call.kind.name_rule, &mut errors);
    meta::validate_finalizer_names(&value["metadata"], &mut errors);
    (call.kind.validate_create)(value, &mut errors);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(call.invalid(ObjectMetaView::from_object(value).name(), errors))
    }
}

/// A PUT or PATCH that finds nothing creates, which its caller must have the right to as well. The
/// answer is the reason alone, as in Kubernetes.
fn check_right(call: &RequestContext<'_>) -> Result<(), Error> {
    let path = call.path;
    // Only these name the object in the path; a POST came here with the right to create.
    if path.name.is_empty() {
        return Ok(());
    }
    let target = AuthorizationTarget::Resource(ResourceAttributes {
        group: &path.group,
        version: &path.version,
        resource: &path.resource,
        namespace: match call.kind.scope {
            Scope::Cluster => "",
            Scope::Namespaced => &path.namespace,
        },
        name: &path.name,
        ..ResourceAttributes::default()
    });
    let asked = AuthorizationAttributes { user: call.user, verb: "create", target };
    match call.server.authorizer.decide(&asked) {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(why) | Decision::NoOpinion(why) => {
            Err(Error::Forbidden(call.subject(&path.name), why))
        }
    }
}

async fn insert(
    call: &RequestContext<'_>,
    name: &str,
    stored: Bytes,
    dry_run: bool,
) -> Result<Arc<Object>, Error> {
    let key = call.key(name);
    let exists = || {
        let deleting = call.cache().ok().and_then(|c| c.get(&key));
        let deleting =
            deleting.is_some_and(|o| ObjectMetaView::from_object(&o.stored_value()).is_deleting());
        Error::AlreadyExists { subject: call.subject(name), deleting, generated: false }
    };
    if dry_run {
        if call.cache()?.get(&key).is_some() {
            return Err(exists());
        }
        let read = || {
            let object = Object::unversioned(call.kind, &key, &stored);
            object.map(Arc::new).map_err(|e| Error::Internal(e.to_string()))
        };
        return call.run_offloaded(stored.len(), read).await;
    }
    let write = WriteRequest {
        key: store_key(call.kind, &key),
        expect: WritePrecondition::Absent,
        change: KeyChange::Put(stored.clone()),
    };
    match call.server.store.commit(write).await {
        Ok(done) => committed_object(call, &key, done.revision, &stored).await,
        Err(windlass_store::Error::Conflict { .. }) => Err(exists()),
        Err(other) => Err(store_error(call.server, other)),
    }
}

/// The object that a commit made: from the cache unless it has moved on already.
pub(crate) async fn committed_object(
    call: &RequestContext<'_>,
    key: &str,
    revision: u64,
    stored: &[u8],
) -> Result<Arc<Object>, Error> {
    match call.cache()?.get(key) {
        Some(object) if object.revision == revision => Ok(object),
        _ => decode_object(call, key, revision, stored).await,
    }
}

/// The object that bytes stand for.
pub(crate) async fn decode_object(
    call: &RequestContext<'_>,
    key: &str,
    revision: u64,
    stored: &[u8],
) -> Result<Arc<Object>, Error> {
    let read = || {
        let object = Object::new(call.kind, key, revision, stored);
        object.map(Arc::new).map_err(|e| Error::Internal(e.to_string()))
    };
    call.run_offloaded(stored.len(), read).await
}

/// Refuses what Kubernetes on etcd could not store either.
pub(crate) fn check_size(stored: &[u8]) -> Result<(), Error> {
    if stored.len() > limits::OBJECT {
        let text = format!("etcdserver: request is too large ({} bytes)", stored.len());
        return Err(Error::TooLarge(text));
    }
    Ok(())
}

/// The characters of generated names: no vowels, nothing that looks like something else.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
const LONGEST: usize = 63;

/// A name that begins with `base`.
pub(crate) fn generate_name(base: &str) -> String {
    let mut end = base.len().min(LONGEST - SUFFIX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut random = rand::rng();
    let suffix = (0..SUFFIX).map(|_| ALPHABET[random.random_range(0..ALPHABET.len())] as char);
    base[..end].chars().chain(suffix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_keep_58_bytes_of_the_base() {
        let name = generate_name(&"a".repeat(100));
        assert_eq!(name.len(), 63);
        assert!(name.bytes().skip(58).all(|b| ALPHABET.contains(&b)));
        assert!(generate_name("x-").starts_with("x-"));
        assert_eq!(generate_name(&"é".repeat(40)).chars().filter(|c| *c == 'é').count(), 29);
    }
}
