//! Nearly valid bodies of the certificate kinds, in every format: each gets a timely response
//! without a server error, and dry runs store nothing.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};
use windlass_api::decode::to_yaml;
use windlass_api::schema::{Schema, TypeId, ValueShape};
use windlass_pki::pem;

use super::mutations::{TestRng, scramble, swap_value};
use super::protobuf::recorded;
use windlass_testkit::TestServer;

const ROUNDS: usize = 4_000;

/// Many times what a body of this size takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(2);

const GROUP: &str = "certificates.k8s.io";

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!("conformance/fixtures/", $name))
    };
}

#[tokio::test]
async fn json_bodies_that_are_almost_right() {
    survives(BodyFormat::Json, 0x5eed_0000_0000_0101).await;
}

#[tokio::test]
async fn yaml_bodies_that_are_almost_right() {
    survives(BodyFormat::Yaml, 0x5eed_0000_0000_0202).await;
}

#[tokio::test]
async fn protobuf_bodies_that_are_almost_right() {
    survives(BodyFormat::Protobuf, 0x5eed_0000_0000_0303).await;
}

async fn survives(form: BodyFormat, seed: u64) {
    let server = TestServer::start().await;
    let samples = samples();
    let before = server.revision();
    for sample in &samples {
        let answer = send(&server, form, &sample.path(), form.write(sample, &sample.body)).await;
        answer.expect(201);
    }
    let mut random = TestRng(seed);
    let (mut created, mut refused) = (0, 0);
    for round in 0..ROUNDS {
        let sample = &samples[random.below(samples.len())];
        let body = mutated(form, sample, &mut random);
        let started = Instant::now();
        let answer = send(&server, form, &sample.path(), body.clone()).await;
        let took = started.elapsed();
        let shown = || {
            let (body, said) = (body.escape_ascii(), answer.json());
            format!("round {round}: {}\n{body}\n-> {} {said}", sample.path(), answer.status)
        };
        assert!(took < PATIENCE, "{took:?}: {}", shown());
        match answer.status.as_u16() {
            201 => created += 1,
            400..500 => refused += 1,
            _ => panic!("{}", shown()),
        }
    }
    assert_eq!(server.revision(), before, "a dry run was stored");
    // Bodies that all pass, or all fail in the first parser, would test nothing.
    assert!(created > ROUNDS / 20 && refused > ROUNDS / 4, "{created} created, {refused} refused");
}

async fn send(
    server: &TestServer,
    form: BodyFormat,
    path: &str,
    body: Vec<u8>,
) -> windlass_testkit::TestResponse {
    let asked = server.request(Method::POST, path).header("content-type", form.media());
    asked.raw_body(body).send().await
}

/// A valid object, and the fields of its `spec` that are parsed.
struct BodySample {
    version: &'static str,
    kind: &'static str,
    resource: &'static str,
    body: Value,
    payloads: &'static [&'static str],
}

impl BodySample {
    fn path(&self) -> String {
        let BodySample { version, resource, .. } = self;
        format!("/apis/{GROUP}/{version}/{resource}?dryRun=All")
    }
}

fn samples() -> Vec<BodySample> {
    let base64 = |bytes: &[u8]| STANDARD.encode(bytes);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let requests = [&fixture!("csr-p256.pem")[..], fixture!("csr-rsa2048.pem"), fixture!("csr-dns.pem")];
    let requests = requests.map(|request| BodySample {
        version: "v1",
        kind: "CertificateSigningRequest",
        resource: "certificatesigningrequests",
        body: json!({
            "metadata": {"name": "r", "labels": {"a": "b"}},
            "spec": {
                "request": base64(request),
                "signerName": "example.com/signer",
                "expirationSeconds": 3600,
                "usages": ["client auth", "digital signature"],
            },
        }),
        payloads: &["request"],
    });
    let bundles = [&fixture!("ca-p256.pem")[..], fixture!("bundle-two.pem")].map(|bundle| BodySample {
        version: "v1",
        kind: "ClusterTrustBundle",
        resource: "clustertrustbundles",
        body: json!({
            "metadata": {"name": "example.com:signer:a"},
            "spec": {"signerName": "example.com/signer", "trustBundle": text(bundle)},
        }),
        payloads: &["trustBundle"],
    });
    let pods = json!({
        "signerName": "example.com/pods",
        "podName": "p",
        "podUID": "9f1c7b9e-6d0b-4a55-8f39-0d5b6f0c1a11",
        "serviceAccountName": "default",
        "serviceAccountUID": "s1",
        "nodeName": "node-1",
        "nodeUID": "n1",
        "maxExpirationSeconds": 86400,
    });
    let pods = |version, keys: &[(&str, &[u8])], payloads| {
        let mut spec = pods.clone();
        for (name, bytes) in keys {
            spec[*name] = json!(base64(bytes));
        }
        BodySample {
            version,
            kind: "PodCertificateRequest",
            resource: "namespaces/default/podcertificaterequests",
            body: json!({"metadata": {"name": "q"}, "spec": spec}),
            payloads,
        }
    };
    let older =
        [("pkixPublicKey", &fixture!("pcr-p256.spki")[..]), ("proofOfPossession", fixture!("pcr-p256.pop"))];
    let stub = [("stubPKCS10Request", &fixture!("pcr-rsa3072.stub.der")[..])];
    let mut all = Vec::from(requests);
    all.extend(bundles);
    all.push(pods("v1", &stub, &["stubPKCS10Request"]));
    all.push(pods("v1alpha1", &older, &["pkixPublicKey", "proofOfPossession"]));
    all
}

/// Returns the sample with a mutated value, a mutated byte of its payload, or any mutated byte.
fn mutated(form: BodyFormat, sample: &BodySample, random: &mut TestRng) -> Vec<u8> {
    match random.below(5) {
        0 => {
            let mut text = sample.body.to_string().into_bytes();
            swap_value(&mut text, random);
            form.write(sample, &serde_json::from_slice(&text).unwrap())
        }
        1 | 2 => {
            let mut body = sample.body.clone();
            let field = sample.payloads[random.below(sample.payloads.len())];
            let carried = body["spec"][field].as_str().unwrap().to_owned();
            body["spec"][field] = json!(damaged(&carried, random));
            form.write(sample, &body)
        }
        3 if form == BodyFormat::Protobuf => {
            let all = [
                "CertificateSigningRequest-POST-5dde2f1b",
                "CertificateSigningRequest-POST-71ab600e",
                "ClusterTrustBundle-POST-d1854458",
            ];
            let recording = recorded(all[random.below(all.len())]);
            let mut bytes = STANDARD.decode(recording["body"].as_str().unwrap()).unwrap();
            scramble(&mut bytes, random);
            bytes
        }
        _ => {
            let mut bytes = form.write(sample, &sample.body);
            for _ in 0..=random.below(3) {
                scramble(&mut bytes, random);
            }
            bytes
        }
    }
}

/// Corrupts the DER inside PEM, base64 or both, and encodes it again.
fn damaged(carried: &str, random: &mut TestRng) -> String {
    let plain = carried.starts_with("-----");
    let mut bytes = if plain { carried.into() } else { STANDARD.decode(carried).unwrap() };
    if let Ok(mut blocks) = pem::blocks(&bytes)
        && !blocks.is_empty()
    {
        let chosen = random.below(blocks.len());
        scramble(&mut blocks[chosen].contents, random);
        let texts = blocks.iter().map(|block| pem::encode(&block.label, &block.contents).to_string());
        bytes = texts.collect::<String>().into_bytes();
    } else {
        scramble(&mut bytes, random);
    }
    if plain { String::from_utf8(bytes).unwrap() } else { STANDARD.encode(bytes) }
}

#[derive(Clone, Copy, PartialEq)]
enum BodyFormat {
    Json,
    Yaml,
    Protobuf,
}

impl BodyFormat {
    fn media(self) -> &'static str {
        match self {
            BodyFormat::Json => "application/json",
            BodyFormat::Yaml => "application/yaml",
            BodyFormat::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    fn write(self, sample: &BodySample, body: &Value) -> Vec<u8> {
        match self {
            BodyFormat::Json => body.to_string().into_bytes(),
            BodyFormat::Yaml => to_yaml(body).into_bytes(),
            BodyFormat::Protobuf => {
                let version = format!("{GROUP}/{}", sample.version);
                let kind = [field(1, version.as_bytes()), field(2, sample.kind.as_bytes())].concat();
                let id = Schema::get()
                    .lookup(&format!("io.k8s.api.certificates.{}.{}", sample.version, sample.kind))
                    .unwrap();
                [&b"k8s\0"[..], &field(1, &kind), &field(2, &message(id, body))].concat()
            }
        }
    }
}

/// Encodes an object as protobuf. Values that do not fit the type cannot be encoded and are
/// omitted.
fn message(id: TypeId, object: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        let Some(known) = Schema::get().get_type(id).field(name) else { continue };
        value_into(&mut bytes, known.tag, &known.shape, value);
    }
    bytes
}

fn value_into(bytes: &mut Vec<u8>, tag: u32, shape: &ValueShape, value: &Value) {
    match (shape, value) {
        (ValueShape::String, Value::String(text)) => bytes.extend(field(tag, text.as_bytes())),
        (ValueShape::Bytes, Value::String(text)) => {
            bytes.extend(field(tag, &STANDARD.decode(text).unwrap_or_default()));
        }
        (ValueShape::Int32 | ValueShape::Int64, Value::Number(number)) => {
            bytes.extend(varint(u64::from(tag) << 3));
            bytes.extend(varint(number.as_i64().unwrap_or_default() as u64));
        }
        (ValueShape::Object(id), Value::Object(_)) => bytes.extend(field(tag, &message(*id, value))),
        (ValueShape::List(of), Value::Array(all)) => {
            all.iter().for_each(|one| value_into(bytes, tag, of, one));
        }
        (ValueShape::Map(of), Value::Object(all)) => {
            for (key, one) in all {
                let mut entry = field(1, key.as_bytes());
                value_into(&mut entry, 2, of, one);
                bytes.extend(field(tag, &entry));
            }
        }
        _ => {}
    }
}

fn field(tag: u32, contents: &[u8]) -> Vec<u8> {
    let length = varint(contents.len() as u64);
    [&varint(u64::from(tag) << 3 | 2)[..], &length, contents].concat()
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}
