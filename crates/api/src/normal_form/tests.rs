use serde_json::json;

use super::*;

fn normal(name: &str, value: Value) -> Result<NormalizedObject, TypeError> {
    let schema = Schema::get();
    normalise(schema, schema.lookup(name).unwrap(), value)
}

const POD: &str = "io.k8s.api.core.v1.Pod";
const BUNDLE: &str = "io.k8s.api.certificates.v1.ClusterTrustBundle";
const LEASE: &str = "io.k8s.api.coordination.v1.Lease";
const CSR: &str = "io.k8s.api.certificates.v1.CertificateSigningRequest";

/// Responses of a real server are in canonical form, so they must not change.
#[test]
fn recorded_answers_stay_as_they_are() {
    let mut failures = Vec::new();
    for line in include_str!("answers.jsonl").lines() {
        let (name, answer): (String, Value) = serde_json::from_str(line).unwrap();
        match normal(&name, answer.clone()) {
            Ok(got) if got.value == answer && got.unknown.is_empty() => {}
            Ok(got) => failures.push(format!("{name} {:?}\n  {answer}\n  {}", got.unknown, got.value)),
            Err(error) => failures.push(format!("{name}\n  {answer}\n  {error}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn absent_fields_come_and_empty_ones_go() {
    let pod = json!({"metadata": {}, "spec": {"containers": null}, "status": {}});
    let cases = [
        (BUNDLE, json!({}), json!({"metadata": {}, "spec": {"trustBundle": ""}})),
        (
            BUNDLE,
            json!({"metadata": null, "spec": {"signerName": "", "trustBundle": "x"}}),
            json!({"metadata": {}, "spec": {"trustBundle": "x"}}),
        ),
        (POD, json!({"spec": {"volumes": [], "nodeSelector": {}, "hostNetwork": false}}), pod.clone()),
        (POD, json!({"metadata": {"creationTimestamp": null, "generation": 0, "labels": null}}), pod),
        // A pointer field keeps its zero value.
        (
            LEASE,
            json!({"spec": {"holderIdentity": "", "leaseTransitions": 0}}),
            json!({"metadata": {}, "spec": {"holderIdentity": "", "leaseTransitions": 0}}),
        ),
        (
            "io.k8s.api.core.v1.ConfigMap",
            json!({"immutable": false, "data": {"a": null}}),
            json!({"metadata": {}, "immutable": false, "data": {"a": ""}}),
        ),
        // Structs and times are written even when empty.
        (
            "io.k8s.api.core.v1.Event",
            json!({"involvedObject": {"name": "n"}}),
            json!({"metadata": {}, "involvedObject": {"name": "n"}, "source": {},
                "firstTimestamp": null, "lastTimestamp": null, "eventTime": null,
                "reportingComponent": "", "reportingInstance": ""}),
        ),
        // A list that is always written is null when empty, except the items of a list kind.
        ("io.k8s.api.rbac.v1.Role", json!({"rules": []}), json!({"metadata": {}, "rules": null})),
        (
            "io.k8s.api.core.v1.ConfigMapList",
            json!({"items": [{}]}),
            json!({"metadata": {}, "items": [{"metadata": {}}]}),
        ),
        ("io.k8s.api.core.v1.ConfigMapList", json!({}), json!({"metadata": {}, "items": []})),
        // A pointer without omitempty.
        (
            "io.k8s.api.core.v1.TypedLocalObjectReference",
            json!({"kind": "K"}),
            json!({"apiGroup": null, "kind": "K", "name": ""}),
        ),
        // Null in a list becomes the zero value.
        ("io.k8s.api.core.v1.ExecAction", json!({"command": ["a", null]}), json!({"command": ["a", ""]})),
        // Fields of embedded types are inlined.
        (
            "io.k8s.api.core.v1.Volume",
            json!({"emptyDir": {}, "secret": {"secretName": ""}}),
            json!({"name": "", "emptyDir": {}, "secret": {}}),
        ),
    ];
    for (name, given, want) in cases {
        let got = normal(name, given.clone()).unwrap();
        assert_eq!(got, NormalizedObject { value: want, unknown: vec![] }, "{name} {given}");
    }
}

#[test]
fn zero_is_the_normal_form_of_nothing() {
    let schema = Schema::get();
    for (id, of) in schema.types() {
        let nothing = normalise(schema, id, json!({})).unwrap();
        assert_eq!(nothing.value, zero(schema, id), "{}", of.name);
    }
}

#[test]
fn values_get_their_one_spelling() {
    let cases = [
        (
            LEASE,
            "/spec/renewTime",
            json!("2026-01-02T03:04:05.000006+01:00"),
            json!("2026-01-02T02:04:05.000006Z"),
        ),
        (
            POD,
            "/metadata/creationTimestamp",
            json!("2026-01-02T03:04:05.678Z"),
            json!("2026-01-02T03:04:05Z"),
        ),
        (POD, "/status/startTime", json!("2026-01-02T00:00:00-01:30"), json!("2026-01-02T01:30:00Z")),
        (
            POD,
            "/spec/overhead",
            json!({"cpu": 0.5, "memory": "1024Mi", "a": 3}),
            json!({"cpu": "500m", "memory": "1Gi", "a": "3"}),
        ),
        (CSR, "/spec/request", json!("AA\r\nA="), json!("AAA=")),
        (CSR, "/spec/request", json!("AAB="), json!("AAA=")),
        (CSR, "/spec/request", json!(""), json!("")),
        (CSR, "/spec/extra", json!({"a": null, "b": [null]}), json!({"a": null, "b": [""]})),
        (POD, "/spec/priority", json!(-2147483648), json!(-2147483648)),
    ];
    for (name, pointer, given, want) in cases {
        let got = normal(name, nest(pointer, given.clone())).unwrap().value;
        assert_eq!(got.pointer(pointer), Some(&want), "{pointer} {given}");
    }
}

/// Returns an object that contains only `value`, at `pointer`.
fn nest(pointer: &str, value: Value) -> Value {
    pointer.rsplit('/').filter(|s| !s.is_empty()).fold(value, |value, key| match key {
        "0" => json!([value]),
        key => json!({key: value}),
    })
}

#[test]
fn type_mismatches_are_reported_as_go_does() {
    let json = "json: cannot unmarshal ";
    let cases = [
        (POD, "", json!([]), format!("{json}array into Go value of type v1.Pod")),
        (POD, "/spec", json!("x"), format!("{json}string into Go struct field Pod.spec of type v1.PodSpec")),
        (
            POD,
            "/spec/nodeName",
            json!(1),
            format!("{json}number into Go struct field PodSpec.spec.nodeName of type string"),
        ),
        (
            POD,
            "/spec/containers/0/image",
            json!({}),
            format!("{json}object into Go struct field Container.spec.containers.image of type string"),
        ),
        (
            POD,
            "/spec/containers",
            json!({}),
            format!("{json}object into Go struct field PodSpec.spec.containers of type []v1.Container"),
        ),
        (
            POD,
            "/metadata/labels/a",
            json!(true),
            format!("{json}bool into Go struct field ObjectMeta.metadata.labels of type string"),
        ),
        (
            POD,
            "/spec/priority",
            json!("1"),
            format!("{json}string into Go struct field PodSpec.spec.priority of type int32"),
        ),
        (
            POD,
            "/spec/priority",
            json!(2147483648u32),
            format!("{json}number 2147483648 into Go struct field PodSpec.spec.priority of type int32"),
        ),
        (
            POD,
            "/spec/priority",
            json!(1.5),
            format!("{json}number 1.5 into Go struct field PodSpec.spec.priority of type int32"),
        ),
        (
            POD,
            "/metadata/generation",
            json!(u64::MAX),
            format!(
                "{json}number 18446744073709551615 into Go struct field ObjectMeta.metadata.generation of type int64"
            ),
        ),
        (CSR, "/spec/request", json!("A*=="), "illegal base64 data at input byte 1".into()),
        (
            POD,
            "/spec/overhead/cpu",
            json!("much"),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                .into(),
        ),
        (
            POD,
            "/status/startTime",
            json!("now"),
            "parsing time \"now\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"now\" as \"2006\"".into(),
        ),
        (
            LEASE,
            "/spec/renewTime",
            json!("2026-01-02T03:04:05Z"),
            "parsing time \
            \"2026-01-02T03:04:05Z\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"Z\" as \
            \".000000\""
                .into(),
        ),
        (
            LEASE,
            "/spec/renewTime",
            json!("2026-01-02T03:04:05.1234567Z"),
            "parsing time \
            \"2026-01-02T03:04:05.1234567Z\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \
            \"7Z\" as \"Z07:00\""
                .into(),
        ),
    ];
    for (name, pointer, given, want) in cases {
        let error = normal(name, nest(pointer, given)).unwrap_err();
        assert_eq!(error.to_string(), want);
    }
}

#[test]
fn unknown_fields_are_dropped_and_reported() {
    let given = json!({
        "apiVersion": "v1", "kind": "Pod", "Spec": {},
        "metadata": {"bogus": {"deep": 1}, "labels": {"any": "x"}},
        "spec": {"x": 1, "containers": [{"name": "a"}, {"name": "b", "foo": []}],
            "volumes": [{"name": "v", "secret": {"key": "k"}}]},
    });
    let got = normal(POD, given).unwrap();
    let unknown =
        ["Spec", "metadata.bogus", "spec.containers[1].foo", "spec.volumes[0].secret.key", "spec.x"];
    assert_eq!(got.unknown, unknown);
    assert_eq!(got.value["metadata"], json!({"labels": {"any": "x"}}));
    assert_eq!(got.value["spec"]["volumes"], json!([{"name": "v", "secret": {}}]));
    let many: Map<String, Value> = (0..300).map(|i| (format!("x{i}"), json!(1))).collect();
    assert_eq!(normal(POD, Value::Object(many)).unwrap().unknown.len(), 100);
}

/// Random objects of every type: normalisation is idempotent.
#[test]
fn the_normal_form_is_stable() {
    let schema = Schema::get();
    let mut random = ValueGenerator(1);
    for (id, of) in schema.types() {
        for _ in 0..20 {
            let given = random.object(schema, id, 0);
            let once = normalise(schema, id, given.clone()).unwrap().value;
            let twice = normalise(schema, id, once.clone()).unwrap();
            assert_eq!(twice.value, once, "{} {given}", of.name);
            assert!(twice.unknown.is_empty(), "{:?}", twice.unknown);
        }
    }
}

/// Generates pseudo-random values that fit a shape.
struct ValueGenerator(u64);

impl ValueGenerator {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }

    fn pick(&mut self, of: &[Value]) -> Value {
        of[self.below(of.len())].clone()
    }

    fn object(&mut self, schema: &Schema, id: TypeId, depth: usize) -> Value {
        let mut map = Map::new();
        for field in &schema.get_type(id).fields {
            if self.below(3 + depth) == 0 {
                map.insert(field.name.to_owned(), self.value(schema, &field.shape, depth + 1));
            }
        }
        if self.below(8) == 0 {
            map.insert("noSuchField".into(), json!({}));
        }
        Value::Object(map)
    }

    fn value(&mut self, schema: &Schema, shape: &ValueShape, depth: usize) -> Value {
        if self.below(6) == 0 {
            return Value::Null;
        }
        match shape {
            ValueShape::String => self.pick(&[json!(""), json!("a"), json!("é\u{0}")]),
            ValueShape::Bool => self.pick(&[json!(true), json!(false)]),
            ValueShape::Int32 | ValueShape::Int64 => {
                self.pick(&[json!(0), json!(-1), json!(-0.0), json!(i32::MAX)])
            }
            ValueShape::Float => self.pick(&[json!(0), json!(1.5)]),
            ValueShape::Bytes => self.pick(&[json!(""), json!("AA=="), json!("A\nB=="), json!("AAAA")]),
            ValueShape::Time => {
                self.pick(&[json!("0001-01-01T00:00:00Z"), json!("2026-01-02T03:04:05.9+03:00")])
            }
            ValueShape::MicroTime => {
                self.pick(&[json!("0001-01-01T00:00:00.000000Z"), json!("2026-01-02T03:04:05,000001Z")])
            }
            ValueShape::Quantity => {
                self.pick(&[json!("1.5Gi"), json!(0.25), json!("0"), json!("1e4"), json!("+1")])
            }
            ValueShape::IntOrString => self.pick(&[json!(0), json!("0"), json!(""), json!(8080)]),
            ValueShape::Raw | ValueShape::FieldsV1 => self.pick(&[json!({}), json!({"f:a": {".": {}}})]),
            ValueShape::Object(id) => self.object(schema, *id, depth),
            ValueShape::List(of) => (0..self.below(3)).map(|_| self.value(schema, of, depth)).collect(),
            ValueShape::Map(of) => {
                let entries = (0..self.below(3)).map(|i| (i.to_string(), self.value(schema, of, depth)));
                Value::Object(entries.collect())
            }
        }
    }
}
