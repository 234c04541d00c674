//! Sends one recorded request and normalizes the response like the recording.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Map, Value, json};

use super::compare::normal;
use super::folder;
use windlass_testkit::{TestRequest, TestServer};

/// Runs a step; `captured` holds values from earlier responses.
pub async fn run(server: &TestServer, step: &Value, captured: &mut HashMap<String, Value>) -> Value {
    let (status, headers, mut body) = request(server, step, captured).open().await;
    let media = headers.get("content-type").map_or("", |v| v.to_str().unwrap());
    let mut answer = Map::new();
    answer.insert("status".into(), json!(status.as_u16()));
    answer.insert("type".into(), json!(media.split(';').next().unwrap_or_default()));
    let warnings: Vec<Value> = headers
        .get_all("warning")
        .iter()
        .map(|w| w.to_str().unwrap())
        .filter(|w| !w.contains(" is deprecated in "))
        .map(|w| normal(&json!(w), ""))
        .collect();
    if !warnings.is_empty() {
        answer.insert("warnings".into(), json!(warnings));
    }
    if let Some(count) = step["watch"].as_u64() {
        let events = events(&mut body, count as usize).await;
        answer.insert("events".into(), normal(&json!(events), ""));
        return Value::Object(answer);
    }
    let bytes = body.collect().await.unwrap().to_bytes();
    let parsed: Value = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes).into_owned()));
    if let Some(paths) = step["pick"].as_array() {
        let picked = paths.iter().map(|p| {
            let path = p.as_str().unwrap();
            let last = path.rsplit('.').next().unwrap_or_default();
            let found = lookup_path(&parsed, path).map_or(json!("<absent>"), |v| normal(v, last));
            (path.to_owned(), found)
        });
        answer.insert("picked".into(), Value::Object(picked.collect()));
    } else if step["method"] != "HEAD" && step["statusOnly"] != true {
        answer.insert("body".into(), normal(&parsed, ""));
    }
    for (name, path) in step["capture"].as_object().into_iter().flatten() {
        if let Some(found) = lookup_path(&parsed, path.as_str().unwrap()) {
            captured.insert(name.clone(), found.clone());
        }
    }
    Value::Object(answer)
}

fn request<'a>(server: &'a TestServer, step: &Value, captured: &HashMap<String, Value>) -> TestRequest<'a> {
    let method: Method = step["method"].as_str().unwrap().parse().unwrap();
    let path = fill(step["path"].as_str().unwrap(), captured);
    let mut asked = server.request(method, &path).anonymous().header("accept", "application/json");
    if let Some(user) = step["as"].as_str() {
        asked = asked.header("authorization", &format!("Bearer {}", token_of(user)));
    }
    let body = match (step.get("body"), step.get("raw")) {
        (Some(body), _) => Some(expand(body, captured).to_string()),
        (None, Some(raw)) => Some(fill(raw.as_str().unwrap(), captured)),
        (None, None) => None,
    };
    if let Some(body) = body {
        asked = asked.header("content-type", "application/json").raw_body(body);
    }
    for (name, value) in step["headers"].as_object().into_iter().flatten() {
        let name: &'static str = name.to_ascii_lowercase().leak();
        asked = asked.header(name, &fill(value.as_str().unwrap(), captured));
    }
    asked
}

async fn events(body: &mut windlass_server::ResponseBody, count: usize) -> Vec<Value> {
    let mut text = Vec::new();
    while text.iter().filter(|b| **b == b'\n').count() < count {
        match body.frame().await {
            Some(frame) => text.extend_from_slice(&frame.unwrap().into_data().unwrap()),
            None => break,
        }
    }
    let lines = text.split(|b| *b == b'\n').filter(|l| !l.is_empty());
    lines.take(count).map(|l| serde_json::from_slice(l).unwrap()).collect()
}

fn token_of(user: &str) -> String {
    let lines = windlass_testkit::TOKENS.lines();
    let mut fields = lines.map(|l| l.split(',').collect::<Vec<_>>());
    fields.find(|f| f[1] == user).map(|f| f[0].to_owned()).unwrap()
}

fn expand(value: &Value, captured: &HashMap<String, Value>) -> Value {
    match value {
        Value::String(text) => json!(fill(text, captured)),
        Value::Array(list) => list.iter().map(|v| expand(v, captured)).collect(),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(k, v)| (k.clone(), expand(v, captured))).collect())
        }
        other => other.clone(),
    }
}

/// Substitutes `{{name}}`, `${pem:file}` and `${b64:file}`.
fn fill(text: &str, captured: &HashMap<String, Value>) -> String {
    let mut out = text.to_owned();
    for (name, value) in captured {
        let plain = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        out = out.replace(&format!("{{{{{name}}}}}"), &plain);
    }
    for (marker, encode) in [("${pem:", false), ("${b64:", true)] {
        while let Some(start) = out.find(marker) {
            let end = start + out[start..].find('}').unwrap();
            let file = folder().join("fixtures").join(&out[start + marker.len()..end]);
            let bytes = std::fs::read(file).unwrap();
            let with = if encode { STANDARD.encode(bytes) } else { String::from_utf8(bytes).unwrap() };
            out.replace_range(start..=end, &with);
        }
    }
    out
}

fn lookup_path<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, part| match value {
        Value::Array(list) => list.get(part.parse::<usize>().ok()?),
        other => other.get(part),
    })
}
