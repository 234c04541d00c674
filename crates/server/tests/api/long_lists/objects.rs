//! Objects with one long list or map, for every list and map in the schema.

use serde_json::{Map, Value, json};
use windlass_api::schema::{MergeStrategy, ObjectType, Schema, SchemaField, TypeId, ValueShape};
use windlass_server::limits;
use windlass_server::{Kind, Scope, ServedVersion};

/// Contents of the elements of a long list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ElementPattern {
    Distinct,
    Same,
    /// Objects without fields; empty strings.
    Empty,
    /// Strings and numbers that no rule allows.
    Wrong,
}

pub const ALL: [ElementPattern; 4] =
    [ElementPattern::Distinct, ElementPattern::Same, ElementPattern::Empty, ElementPattern::Wrong];

/// A step of the path to a list or map.
#[derive(Clone, Debug, PartialEq)]
enum FieldStep {
    Field(&'static str),
    Element,
    Entry,
}

/// A list or map field of a kind.
#[derive(Clone)]
pub struct ListField {
    pub kind: &'static Kind,
    pub served: &'static ServedVersion,
    /// Type that has the field, and name of the field.
    pub field: (&'static str, &'static str),
    path: Vec<FieldStep>,
    shape: ValueShape,
}

impl ListField {
    pub fn shown(&self) -> String {
        let mut text = format!("{} {} ", self.kind.name, self.served.version);
        for step in &self.path {
            match step {
                FieldStep::Field(name) => text.push_str(&format!(".{name}")),
                FieldStep::Element => text.push_str("[]"),
                FieldStep::Entry => text.push_str("{}"),
            }
        }
        text
    }

    /// Returns true if the field can be written only through the status.
    pub fn in_status(&self) -> bool {
        self.path.first() == Some(&FieldStep::Field("status")) && self.kind.subresource("status").is_some()
    }

    /// Returns the path to create objects of the kind.
    pub fn collection(&self) -> String {
        self.collection_in(self.served)
    }

    /// Returns the same in the version of [`minimal`] objects.
    pub fn stored_collection(&self) -> String {
        self.collection_in(self.kind.stored())
    }

    fn collection_in(&self, served: &ServedVersion) -> String {
        let ServedVersion { group, version, .. } = served;
        let root =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let namespace = match self.kind.scope {
            Scope::Cluster => "",
            Scope::Namespaced => "/namespaces/default",
        };
        format!("{root}{namespace}/{}", self.kind.plural)
    }

    /// Returns an object with `count` elements here, or fewer if the body limit does not allow
    /// them.
    pub fn object(&self, name: &str, elements: ElementPattern, count: usize) -> (Value, usize) {
        let schema = Schema::get();
        let (shape, is_map) = match &self.shape {
            ValueShape::List(of) => (&**of, false),
            ValueShape::Map(of) => (&**of, true),
            _ => unreachable!("only lists and maps are enumerated"),
        };
        let one = element(schema, shape, elements, 1_000_000, &self.keys(), 2);
        let size = one.to_string().len() + 1 + if is_map { 12 } else { 0 };
        let room = if self.kind.review.is_some() { ROOM_IN_QUESTIONS } else { ROOM };
        let count = count.min(room / size);
        let long: Value = if is_map {
            let of = |i| element(schema, shape, elements, i, &[], 2);
            let key = |i| {
                if elements == ElementPattern::Wrong { format!("!{i}") } else { format!("k{i}") }
            };
            (0..count).map(|i| (key(i), of(i))).collect::<Map<_, _>>().into()
        } else {
            let keys = self.keys();
            (0..count).map(|i| element(schema, shape, elements, i, &keys, 2)).collect()
        };
        let mut object = minimal(self.kind, name);
        let id = schema.lookup(self.served.type_name).unwrap();
        put(schema, &ValueShape::Object(id), &mut object, &self.path, long);
        (object, count)
    }

    /// Reverses the list, so that every element moves.
    pub fn reverse(&self, object: &mut Value) {
        let mut at = object;
        for step in &self.path {
            at = match step {
                FieldStep::Field(name) => &mut at[*name],
                FieldStep::Element => &mut at[0],
                FieldStep::Entry => &mut at["k"],
            };
        }
        if let Value::Array(list) = at {
            list.reverse();
        }
    }

    /// Returns the fields that identify the elements.
    fn keys(&self) -> Vec<&'static str> {
        let schema = Schema::get();
        let of = schema.get_type(schema.lookup(self.field.0).unwrap());
        match of.field(self.field.1).map(|field| &field.merge) {
            Some(MergeStrategy::ByKey(keys)) => keys.to_vec(),
            _ => Vec::new(),
        }
    }
}

/// Bytes left for the list in a body of 3 MiB.
const ROOM: usize = limits::BODY - 64 * 1024;

/// The same for bodies of reviews.
const ROOM_IN_QUESTIONS: usize = limits::SMALL_BODY - 16 * 1024;

/// Returns every list and map field of a kind in one version.
pub fn places(kind: &'static Kind, served: &'static ServedVersion) -> Vec<ListField> {
    let schema = Schema::get();
    let id = schema.lookup(served.type_name).unwrap();
    let mut search = ListFieldSearch { kind, served, found: Vec::new(), path: Vec::new(), above: Vec::new() };
    search.object(schema, id);
    search.found
}

struct ListFieldSearch {
    kind: &'static Kind,
    served: &'static ServedVersion,
    found: Vec<ListField>,
    path: Vec<FieldStep>,
    above: Vec<TypeId>,
}

impl ListFieldSearch {
    fn object(&mut self, schema: &'static Schema, id: TypeId) {
        // A recursive type is entered once.
        if self.above.contains(&id) {
            return;
        }
        self.above.push(id);
        let of = schema.get_type(id);
        for field in &of.fields {
            self.path.push(FieldStep::Field(field.name));
            if matches!(field.shape, ValueShape::List(_) | ValueShape::Map(_)) {
                self.found.push(ListField {
                    kind: self.kind,
                    served: self.served,
                    field: (of.name, field.name),
                    path: self.path.clone(),
                    shape: field.shape.clone(),
                });
            }
            self.below(schema, &field.shape);
            self.path.pop();
        }
        self.above.pop();
    }

    fn below(&mut self, schema: &'static Schema, shape: &ValueShape) {
        match shape {
            ValueShape::Object(id) => self.object(schema, *id),
            ValueShape::List(of) => self.inside(schema, FieldStep::Element, of),
            ValueShape::Map(of) => self.inside(schema, FieldStep::Entry, of),
            _ => {}
        }
    }

    fn inside(&mut self, schema: &'static Schema, step: FieldStep, shape: &ValueShape) {
        self.path.push(step);
        self.below(schema, shape);
        self.path.pop();
    }
}

/// Returns one element. Objects get their keys, required fields, and a few more.
fn element(
    schema: &Schema,
    shape: &ValueShape,
    elements: ElementPattern,
    i: usize,
    keys: &[&str],
    depth: usize,
) -> Value {
    let wrong = elements == ElementPattern::Wrong;
    match shape {
        ValueShape::String => match elements {
            ElementPattern::Distinct => json!(format!("e{i}")),
            ElementPattern::Same => json!("e"),
            ElementPattern::Empty => json!(""),
            ElementPattern::Wrong => json!("!"),
        },
        ValueShape::Bool => json!(true),
        ValueShape::Int32 | ValueShape::Int64 | ValueShape::IntOrString if wrong => json!(-1),
        ValueShape::Int32 | ValueShape::Int64 | ValueShape::IntOrString => json!(i % 60_000 + 1),
        ValueShape::Float => json!(1.5),
        ValueShape::Bytes => json!("YQ=="),
        ValueShape::Time => json!("2026-01-01T00:00:00Z"),
        ValueShape::MicroTime => json!("2026-01-01T00:00:00.000000Z"),
        ValueShape::Quantity => json!(if wrong { "-1" } else { "1" }),
        ValueShape::Raw | ValueShape::FieldsV1 => json!({}),
        ValueShape::Object(_) if elements == ElementPattern::Empty => json!({}),
        ValueShape::Object(id) => object(schema, schema.get_type(*id), elements, i, keys, depth),
        ValueShape::List(of) if depth > 0 => {
            json!([element(schema, of, elements, i, keys, depth - 1)])
        }
        ValueShape::Map(of) if depth > 0 => {
            json!({"k": element(schema, of, elements, i, keys, depth - 1)})
        }
        ValueShape::List(_) => json!([]),
        ValueShape::Map(_) => json!({}),
    }
}

fn object(
    schema: &Schema,
    of: &ObjectType,
    elements: ElementPattern,
    i: usize,
    keys: &[&str],
    depth: usize,
) -> Value {
    let mut fields = Map::new();
    let is_key = |field: &SchemaField| keys.contains(&field.name);
    for field in of.fields.iter().filter(|f| is_key(f) || (f.required && depth > 0)) {
        // Keys must stay unique, whatever their contents.
        let elements = if is_key(field) && elements == ElementPattern::Wrong {
            ElementPattern::Distinct
        } else {
            elements
        };
        let value = element(schema, &field.shape, elements, i, &[], depth.saturating_sub(1));
        fields.insert(field.name.into(), value);
    }
    let scalar = |f: &&SchemaField| {
        !matches!(f.shape, ValueShape::Object(_) | ValueShape::List(_) | ValueShape::Map(_))
    };
    for field in of.fields.iter().filter(scalar).take(2) {
        let value = element(schema, &field.shape, elements, i, &[], 0);
        fields.entry(field.name).or_insert(value);
    }
    fields.into()
}

/// Sets `long` at the end of the path, creating required fields on the way.
fn put(schema: &Schema, shape: &ValueShape, value: &mut Value, path: &[FieldStep], long: Value) {
    let Some((step, rest)) = path.split_first() else {
        *value = long;
        return;
    };
    match (step, shape) {
        (FieldStep::Field(name), ValueShape::Object(id)) => {
            if !value.is_object() {
                *value = object(schema, schema.get_type(*id), ElementPattern::Distinct, 1, &[], 1);
            }
            let field = schema.get_type(*id).field(name).unwrap();
            put(schema, &field.shape, &mut value[*name], rest, long);
        }
        (FieldStep::Element, ValueShape::List(of)) => {
            if value.as_array().is_none_or(Vec::is_empty) {
                *value = json!([null]);
            }
            put(schema, of, &mut value[0], rest, long);
        }
        (FieldStep::Entry, ValueShape::Map(of)) => {
            if !value.is_object() {
                *value = json!({});
            }
            put(schema, of, &mut value["k"], rest, long);
        }
        _ => unreachable!("the path was made from the schema"),
    }
}

pub fn minimal(kind: &Kind, name: &str) -> Value {
    let mut object = match kind.name {
        "Pod" => json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}),
        "Event" => json!({
            "metadata": {"namespace": "default"}, "type": "Normal", "reason": "r", "action": "a",
            "involvedObject": {"namespace": "default"}, "regarding": {"namespace": "default"},
            "reportingController": "example.com/c", "reportingInstance": "i",
            "eventTime": "2026-01-01T00:00:00.000000Z",
        }),
        "PersistentVolume" => json!({"spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"},
        }}),
        "PersistentVolumeClaim" => json!({"spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        }}),
        "Service" => json!({"spec": {"ports": [{"port": 80}]}}),
        "RuntimeClass" => json!({"handler": "h"}),
        "CSINode" => json!({"spec": {"drivers": []}}),
        "CSIDriver" => json!({"spec": {}}),
        "CertificateSigningRequest" => json!({"spec": {
            "request": base64(include_bytes!("../conformance/fixtures/csr-p256.pem")),
            "signerName": "example.com/s", "usages": ["client auth"],
        }}),
        "ClusterTrustBundle" => json!({"spec": {
            "trustBundle": include_str!("../conformance/fixtures/ca-p256.pem"),
        }}),
        "PodCertificateRequest" => json!({"metadata": {"namespace": "default"}, "spec": {
            "signerName": "example.com/s",
            "podName": "p", "podUID": include_str!("../conformance/fixtures/pod-uid.txt").trim(),
            "serviceAccountName": "a", "serviceAccountUID": "au", "nodeName": "n", "nodeUID": "nu",
            "maxExpirationSeconds": 86400,
            "stubPKCS10Request": base64(include_bytes!("../conformance/fixtures/pcr-p256.stub.der")),
        }}),
        "ResourceSlice" => json!({"spec": {
            "driver": "d.example.com", "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        }}),
        "ClusterRoleBinding" | "RoleBinding" => json!({"roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view",
        }}),
        "SubjectAccessReview" | "LocalSubjectAccessReview" | "SelfSubjectAccessReview" => {
            json!({"spec": {
                "user": "u", "resourceAttributes": {"namespace": "default", "verb": "list", "resource": "pods"},
            }})
        }
        "SelfSubjectRulesReview" => json!({"spec": {"namespace": "default"}}),
        "TokenReview" => json!({"spec": {"token": "t"}}),
        "Bundle" => json!({"spec": {
            "sources": [{"useDefaultCAs": true}], "target": {"configMap": {"key": "k"}},
        }}),
        "Signer" => json!({"spec": {
            "signerName": format!("example.com/{name}"), "ca": {"selfSigned": {}}, "pods": {"serviceNames": true},
        }}),
        "CARotation" => json!({"spec": {"signerName": "example.com/web"}}),
        "LedgerSegment" => json!({"spec": {
            "chain": "short", "sequence": 1, "previousHash": format!("sha256:{}", "0".repeat(64)),
            "entries": "YQ==", "entryCount": 1, "latestExpiry": "2026-01-01T00:00:00Z",
        }}),
        "CertificateRevocation" => json!({"spec": {
            "signerName": "example.com/s", "authorityID": "0a", "serialNumber": "01", "reason": "superseded",
            "notAfter": "2020-01-01T00:00:00Z",
        }}),
        "CertificateRevocationList" => json!({"spec": {
            "signerName": "example.com/s", "authorityID": "0a", "crl": "YQ==", "number": 1,
            "thisUpdate": "2026-01-01T00:00:00Z", "nextUpdate": "2026-01-02T00:00:00Z",
        }}),
        _ => json!({}),
    };
    if kind.name == "SelfSubjectAccessReview" {
        object["spec"]["user"] = Value::Null;
    }
    if kind.review.is_none() {
        object["metadata"]["name"] = json!(name);
    }
    object
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
