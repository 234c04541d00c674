//! A cached object: canonical bytes, encoded once, and the parts that reads select by.
//!
//! The canonical form starts with `{"kind":…,"apiVersion":…,"metadata":{`. The store holds it
//! without a resourceVersion, because the revision is not known before the commit; in memory the
//! revision is the first key of `metadata`. A `get` thus returns these bytes, a list item is a
//! slice of them, and another version of the same schema differs in the head only.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::registry::kind::{Kind, SelectableField, ServedVersion};

#[derive(Debug)]
pub struct Object {
    /// Revision that wrote the object: its resourceVersion.
    pub revision: u64,
    /// Key: `namespace/name`, or `name` at cluster scope.
    pub key: Box<str>,
    /// Labels as key and value, sorted by key for binary search.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// Values of [`Kind::selectable`], in the same order.
    pub fields: Box<[Box<str>]>,
    bytes: Bytes,
    /// Offset of `"metadata":` in `bytes`.
    meta_at: usize,
}

/// Stored bytes that cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("stored object {key} cannot be decoded: {what}")]
pub struct UnreadableObject {
    key: String,
    what: String,
}

const META: &[u8] = b"\"metadata\":{";

impl Object {
    /// Decodes the object stored under `key` at `revision`.
    pub fn new(kind: &Kind, key: &str, revision: u64, stored: &[u8]) -> Result<Object, UnreadableObject> {
        let fail = |what: &str| UnreadableObject { key: key.into(), what: what.into() };
        let at = find_bytes(stored, META).ok_or_else(|| fail("no metadata"))?;
        let (head, tail) = stored.split_at(at + META.len());
        let mut bytes = Vec::with_capacity(stored.len() + 44);
        bytes.extend_from_slice(head);
        bytes.extend_from_slice(b"\"resourceVersion\":\"");
        bytes.extend_from_slice(revision.to_string().as_bytes());
        bytes.extend_from_slice(if tail.starts_with(b"}") { b"\"" } else { b"\"," });
        bytes.extend_from_slice(tail);
        let (labels, fields) = parts(kind, stored).map_err(|e| fail(&e.to_string()))?;
        Ok(Object { revision, key: key.into(), labels, fields, bytes: bytes.into(), meta_at: at })
    }

    /// Builds an object that is not stored, for dry-run responses; it has no resourceVersion.
    pub fn unversioned(kind: &Kind, key: &str, stored: &[u8]) -> Result<Object, UnreadableObject> {
        let mut object = Object::new(kind, key, 0, stored)?;
        object.bytes = Bytes::copy_from_slice(stored);
        Ok(object)
    }

    /// Returns the object as of its deletion at `revision`.
    #[must_use]
    pub fn deleted_at(&self, revision: u64) -> Object {
        let start = self.meta_at + META.len() + b"\"resourceVersion\":\"".len();
        let digits = self.bytes[start..].iter().take_while(|b| b.is_ascii_digit()).count();
        let mut bytes = Vec::with_capacity(self.bytes.len() + 20);
        bytes.extend_from_slice(&self.bytes[..start]);
        bytes.extend_from_slice(revision.to_string().as_bytes());
        bytes.extend_from_slice(&self.bytes[start + digits..]);
        Object {
            revision,
            key: self.key.clone(),
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            bytes: bytes.into(),
            meta_at: self.meta_at,
        }
    }

    /// Returns `metadata.name`, taken from the key.
    pub fn name(&self) -> &str {
        self.key.rsplit_once('/').map_or(&self.key, |(_, name)| name)
    }

    /// Returns the namespace; empty at cluster scope.
    pub fn namespace(&self) -> &str {
        self.key.rsplit_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// Returns the value of the label `key`, or `None` if it is absent.
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns [`Object::item`] in a version that needs no conversion.
    pub fn stored_item(&self) -> &[u8] {
        &self.bytes[self.meta_at..]
    }

    /// Returns true if a string in it may contain a tab.
    pub fn has_tabs(&self) -> bool {
        find_bytes(&self.bytes, b"\\t").is_some()
    }

    /// Returns true if [`Object::json`] references the bytes of this object instead of copying.
    pub fn is_as_stored(&self, kind: &Kind, served: &ServedVersion) -> bool {
        served == kind.stored()
    }

    /// Returns the whole object as JSON, in the served version.
    pub fn json(&self, kind: &Kind, served: &ServedVersion) -> Bytes {
        if self.is_as_stored(kind, served) {
            return self.bytes.clone();
        }
        if served.convert.is_some() {
            return encode_object(kind.name, &served.api_version(), &self.value(kind, served), true);
        }
        let head = head(kind.name, &served.api_version());
        let mut out = Vec::with_capacity(head.len() + self.bytes.len());
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&self.bytes[self.meta_at..]);
        out.into()
    }

    /// Returns the object as a list item: without `kind`, `apiVersion` and the opening brace
    /// (`"metadata":{…},…}`).
    pub fn item(&self, kind: &Kind, served: &ServedVersion) -> Bytes {
        if served.convert.is_none() {
            return self.bytes.slice(self.meta_at..);
        }
        let whole = self.json(kind, served);
        let at = find_bytes(&whole, META).unwrap_or_default();
        whole.slice(at..)
    }

    /// Returns the object as a JSON value, in the served version.
    pub fn value(&self, kind: &Kind, served: &ServedVersion) -> Value {
        let mut value = self.stored_value();
        if let Some(convert) = served.convert {
            value = (convert.from_stored)(value);
        }
        if let Value::Object(map) = &mut value {
            map.insert("kind".into(), kind.name.into());
            map.insert("apiVersion".into(), served.api_version().into());
        }
        value
    }

    /// Returns the object as a JSON value, in the stored version, with its resourceVersion.
    pub fn stored_value(&self) -> Value {
        // The bytes were parsed when the object was built, so this cannot fail; every validation
        // would reject an empty object.
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }

    /// Returns the bytes as stored.
    pub fn stored_bytes(&self) -> Vec<u8> {
        let from = self.meta_at + META.len();
        let version = b"\"resourceVersion\":\"".len();
        let digits = self.bytes[from + version..].iter().take_while(|b| b.is_ascii_digit()).count();
        let mut to = from + version + digits + 1;
        if self.bytes.get(to) == Some(&b',') {
            to += 1;
        }
        [&self.bytes[..from], &self.bytes[to..]].concat()
    }
}

/// Encodes `value` in the canonical form. Without `versioned` the resourceVersion is omitted, as in
/// the store.
pub fn encode_object(kind: &str, api_version: &str, value: &Value, versioned: bool) -> Bytes {
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(head(kind, api_version).as_bytes());
    out.extend_from_slice(META);
    let empty = Map::new();
    let object = value.as_object().unwrap_or(&empty);
    let metadata = object.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let mut first = true;
    if versioned && let Some(version) = metadata.get("resourceVersion") {
        member(&mut out, &mut first, "resourceVersion", version);
    }
    for (name, value) in metadata.iter().filter(|(n, _)| *n != "resourceVersion") {
        member(&mut out, &mut first, name, value);
    }
    out.push(b'}');
    first = false;
    for (name, value) in object {
        if !matches!(name.as_str(), "kind" | "apiVersion" | "metadata") {
            member(&mut out, &mut first, name, value);
        }
    }
    out.push(b'}');
    out.into()
}

/// Encodes the first members of an object: `{"kind":…,"apiVersion":…,`
pub(crate) fn head(kind: &str, api_version: &str) -> String {
    // Both are static names without characters that JSON escapes.
    format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",")
}

fn member(out: &mut Vec<u8>, first: &mut bool, name: &str, value: &Value) {
    if !*first {
        out.push(b',');
    }
    *first = false;
    // Writing JSON to memory does not fail.
    let _ = serde_json::to_writer(&mut *out, name);
    out.push(b':');
    let _ = serde_json::to_writer(&mut *out, value);
}

fn find_bytes(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|w| w == what)
}

type IndexedFields = (Box<[(Box<str>, Box<str>)]>, Box<[Box<str>]>);

#[derive(serde::Deserialize)]
struct ObjectHead {
    metadata: ObjectHeadMeta,
}

#[derive(serde::Deserialize)]
struct ObjectHeadMeta {
    #[serde(default)]
    labels: std::collections::BTreeMap<Box<str>, Box<str>>,
}

fn parts(kind: &Kind, stored: &[u8]) -> Result<IndexedFields, serde_json::Error> {
    if kind.selectable.is_empty() {
        // Decodes the labels and skips everything else: several times faster than a full decode.
        let head: ObjectHead = serde_json::from_slice(stored)?;
        return Ok((head.metadata.labels.into_iter().collect(), Box::default()));
    }
    let value: Value = serde_json::from_slice(stored)?;
    let labels = value["metadata"]["labels"].as_object().into_iter().flatten();
    let labels = labels.map(|(k, v)| (k.as_str().into(), v.as_str().unwrap_or("").into()));
    let fields = kind.selectable.iter().map(|s| selected(&value, s).into());
    Ok((labels.collect(), fields.collect()))
}

fn selected(value: &Value, by: &SelectableField) -> String {
    match by.pointers.iter().find_map(|pointer| value.pointer(pointer)) {
        None | Some(Value::Null) => by.absent.to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const KIND: Kind = Kind {
        name: "Thing",
        plural: "things",
        served: &[ServedVersion::new("g", "v1", ""), ServedVersion::new("g", "v1beta1", "")],
        ..Kind::DEFAULT
    };

    fn object() -> Object {
        let value =
            json!({"metadata": {"name": "n", "labels": {"b": "2", "a": "1"}}, "data": {"metadata": {}}});
        let stored = encode_object("Thing", "g/v1", &value, false);
        Object::new(&KIND, "ns/n", 7, &stored).unwrap()
    }

    #[test]
    fn a_version_is_spliced_in_and_out() {
        let object = object();
        let text = String::from_utf8(object.json(&KIND, &KIND.served[0]).to_vec()).unwrap();
        assert!(
            text.starts_with("{\"kind\":\"Thing\",\"apiVersion\":\"g/v1\",\"metadata\":{\"resourceVersion\":\"7\",\"labels\""),
            "{text}"
        );
        assert_eq!(object.stored_value()["metadata"]["resourceVersion"], "7");
        let again = Object::new(&KIND, "ns/n", 7, &object.stored_bytes()).unwrap();
        assert_eq!(again.bytes, object.bytes);
        let deleted = object.deleted_at(12345);
        assert_eq!(deleted.stored_value()["metadata"]["resourceVersion"], "12345");
        assert_eq!(deleted.stored_value()["data"], object.stored_value()["data"]);
    }

    #[test]
    fn another_version_differs_in_its_head() {
        let object = object();
        let value: Value = serde_json::from_slice(&object.json(&KIND, &KIND.served[1])).unwrap();
        assert_eq!(value["apiVersion"], "g/v1beta1");
        assert_eq!(value["data"], object.stored_value()["data"]);
        let item = object.item(&KIND, &KIND.served[1]);
        assert!(item.starts_with(b"\"metadata\":{"));
    }

    #[test]
    fn labels_are_at_hand() {
        let object = object();
        assert_eq!((object.label("a"), object.label("c")), (Some("1"), None));
        assert_eq!((object.namespace(), object.name()), ("ns", "n"));
    }

    #[test]
    fn foreign_bytes_are_refused_by_name() {
        let error = Object::new(&KIND, "ns/n", 1, b"garbage").unwrap_err().to_string();
        assert!(error.contains("ns/n"), "{error}");
    }
}
