//! Protobuf bodies of real clients, with kube-apiserver's responses.
//!
//! `fixtures/protobuf` holds one request each: the body and the response in JSON.
//! `fixtures/kubelet.jsonl` contains everything that a kubelet sent from its start to a ready node.

#![allow(clippy::unwrap_used)] // a fixture that cannot be read is a failed test

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use windlass_api::decode::{self, DecodeError};
use windlass_api::schema::{Schema, TypeId};

#[test]
fn protobuf_bodies_match_the_json_answers() {
    let mut compared = 0;
    for (name, fixture) in fixtures() {
        let sent = read(&body(&fixture)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let answer = &fixture["answer"];
        if fixture["method"] == "DELETE" {
            assert_eq!(sent["kind"], "DeleteOptions", "{name}");
            continue;
        }
        // Zero values carry no intent of the client.
        let sent = without_zeros(&sent).unwrap();
        compared += assert_within(&name, "", &sent, answer);
    }
    assert!(compared > 250, "only {compared} values were compared");
}

#[test]
fn all_requests_of_a_kubelet_are_accepted() {
    let text = fs::read_to_string(fixture_dir().join("kubelet.jsonl")).unwrap();
    let mut kinds: Vec<String> = Vec::new();
    for line in text.lines() {
        let request: Value = serde_json::from_str(line).unwrap();
        if request["contentType"] != "application/vnd.kubernetes.protobuf" {
            continue;
        }
        let body = body(&request);
        let sent = read(&body).unwrap_or_else(|error| panic!("{}: {error}", request["path"]));
        let kind = sent["kind"].as_str().unwrap();
        if !kinds.iter().any(|known| known == kind) {
            kinds.push(kind.to_owned());
        }
    }
    kinds.sort();
    assert_eq!(kinds, KUBELET_KINDS);
}

const KUBELET_KINDS: [&str; 6] =
    ["CSINode", "CertificateSigningRequest", "DeleteOptions", "Event", "Lease", "Node"];

#[test]
fn broken_bodies_are_refused_or_read_but_never_hurt() {
    let bodies: Vec<Vec<u8>> = fixtures().iter().map(|(_, fixture)| body(fixture)).collect();
    let mut random = XorshiftRng(0x9e37_79b9_7f4a_7c15);
    let start = Instant::now();
    let (mut good, mut bad) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = bodies[random.below(bodies.len())].clone();
        for _ in 0..=random.below(4) {
            mutate(&mut bytes, &mut random);
        }
        match read(&bytes) {
            // A decoded value can be encoded and decoded again.
            Ok(value) => {
                decode::json(value.to_string().as_bytes()).unwrap();
                good += 1;
            }
            Err(_) => bad += 1,
        }
    }
    assert!(good > 1000 && bad > 1000, "{good} good, {bad} bad: the mutations test little");
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

fn mutate(bytes: &mut Vec<u8>, random: &mut XorshiftRng) {
    // The four magic bytes are kept; without them the decoder stops at once.
    let places = bytes.len().saturating_sub(4);
    if places == 0 {
        return bytes.push(random.next() as u8);
    }
    let at = 4 + random.below(places);
    match random.below(7) {
        0 => bytes.truncate(at),
        1 => bytes[at] = random.next() as u8,
        2 => bytes[at] ^= 1 << random.below(8),
        3 => bytes.insert(at, random.next() as u8),
        4 => drop(bytes.remove(at)),
        5 => bytes[at] = [0, 0x7f, 0x80, 0xff][random.below(4)],
        _ => {
            let end = (at + random.below(64)).min(bytes.len());
            let copy = bytes[at..end].to_vec();
            bytes.splice(at..at, copy);
        }
    }
}

/// Xorshift: sufficient to choose bytes, and reproducible.
struct XorshiftRng(u64);

impl XorshiftRng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Checks that `answer` contains every value of `sent`, and counts them.
fn assert_within(name: &str, path: &str, sent: &Value, answer: &Value) -> usize {
    if is_server_owned(path) {
        return 0;
    }
    match (sent, answer) {
        (Value::Object(sent), Value::Object(answer)) => sent
            .iter()
            .map(|(key, value)| {
                let path = format!("{path}.{key}");
                let there = answer.get(key).unwrap_or(&Value::Null);
                assert_within(name, &path, value, there)
            })
            .sum(),
        (Value::Array(sent), Value::Array(answer)) => {
            assert!(sent.len() <= answer.len(), "{name}: {path}: {sent:?} / {answer:?}");
            let pairs = sent.iter().zip(answer).enumerate();
            pairs.map(|(i, (s, a))| assert_within(name, &format!("{path}[{i}]"), s, a)).sum()
        }
        _ => {
            assert_eq!(sent, answer, "{name}: {path}");
            1
        }
    }
}

/// Returns true for fields that the server sets, where the response may differ.
fn is_server_owned(path: &str) -> bool {
    let metadata = [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "managedFields",
        "generation",
        "generateName",
    ];
    path == ".status" || path.strip_prefix(".metadata.").is_some_and(|field| metadata.contains(&field))
}

fn without_zeros(value: &Value) -> Option<Value> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) if text.is_empty() => None,
        Value::Number(number) if number.as_f64() == Some(0.0) => None,
        Value::Object(object) => {
            let rest: serde_json::Map<String, Value> =
                object.iter().filter_map(|(key, value)| Some((key.clone(), without_zeros(value)?))).collect();
            (!rest.is_empty()).then_some(Value::Object(rest))
        }
        Value::Array(list) if list.is_empty() => None,
        Value::Array(list) => {
            Some(list.iter().map(|e| without_zeros(e).unwrap_or_else(|| e.clone())).collect())
        }
        other => Some(other.clone()),
    }
}

fn read(bytes: &[u8]) -> Result<Value, DecodeError> {
    decode::protobuf(Schema::get(), bytes, lookup_type)
}

fn lookup_type(api_version: &str, kind: &str) -> Option<TypeId> {
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    let package = group.split('.').next()?;
    let name = match kind {
        "DeleteOptions" => "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions".to_owned(),
        _ => format!("io.k8s.api.{package}.{version}.{kind}"),
    };
    Schema::get().lookup(&name)
}

fn fixtures() -> Vec<(String, Value)> {
    let mut found: Vec<(String, Value)> = fs::read_dir(fixture_dir().join("protobuf"))
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, serde_json::from_slice(&fs::read(path).unwrap()).unwrap())
        })
        .collect();
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    assert!(found.len() >= 50);
    found
}

fn body(request: &Value) -> Vec<u8> {
    STANDARD.decode(request["body"].as_str().unwrap()).unwrap()
}

fn fixture_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}
