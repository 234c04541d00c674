//! Replaces values that legitimately differ between runs; the rest must be equal.

use serde_json::{Value, json};

/// A UID set by a request itself, so that it is the same in every run.
const OWN_UID: &str = "9f1c7b9e-6d0b-4a55-8f39-0d5b6f0c1a11";

/// Normalizes a value like the recordings.
pub fn normal(value: &Value, key: &str) -> Value {
    match value {
        Value::Object(map) => {
            let ignored = ["managedFields", "selfLink", "generation"];
            let kept = map.iter().filter(|(k, _)| !ignored.contains(&k.as_str()));
            Value::Object(kept.map(|(k, v)| (k.clone(), normal(v, k))).collect())
        }
        Value::Array(list) => list.iter().map(|v| normal(v, key)).collect(),
        Value::String(text) => json!(normal_text(text, key)),
        other => other.clone(),
    }
}

fn normal_text(text: &str, key: &str) -> String {
    match key {
        "resourceVersion" => return "<rv>".into(),
        "continue" => return "<continue>".into(),
        "cells" if is_age(text) => return "<age>".into(),
        _ => {}
    }
    if is_time(text) {
        return "<time>".into();
    }
    let text = replace_uids(text);
    replace_generated(&text)
}

fn is_time(text: &str) -> bool {
    let Some(body) = text.strip_suffix('Z') else { return false };
    let shape: String = body.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "0000-00-00T00:00:00"
        || shape.strip_prefix("0000-00-00T00:00:00.").is_some_and(|f| f.chars().all(|c| c == '0'))
}

fn is_age(text: &str) -> bool {
    let units = text.trim_end_matches(['s', 'm', 'h', 'd']);
    text == "<invalid>"
        || (units.len() < text.len()
            && text.starts_with(|c: char| c.is_ascii_digit())
            && text.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c)))
}

fn replace_uids(text: &str) -> String {
    const SHAPE: [usize; 5] = [8, 4, 4, 4, 12];
    let is_uid = |t: &str| {
        let parts: Vec<&str> = t.split('-').collect();
        let hex = |p: &&str| p.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        parts.iter().map(|p| p.len()).eq(SHAPE) && parts.iter().all(hex)
    };
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        match rest.get(..36) {
            Some(uid) if is_uid(uid) => {
                out.push_str(if uid == OWN_UID { uid } else { "<uid>" });
                rest = &rest[36..];
            }
            _ => {
                let next = rest.chars().next().unwrap();
                out.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
    out
}

fn replace_generated(text: &str) -> String {
    const ALPHABET: &str = "bcdfghjklmnpqrstvwxz2456789";
    let Some(start) = text.find("gen-") else { return text.to_owned() };
    let word = text[start..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-');
    let end = start + word.count();
    match text.get(end.saturating_sub(5)..end) {
        Some(suffix)
            if end - start > 9
                && text[..end - 5].ends_with('-')
                && suffix.chars().all(|c| ALPHABET.contains(c)) =>
        {
            format!("{}<suffix>{}", &text[..end - 5], &text[end..])
        }
        _ => text.to_owned(),
    }
}

/// Returns the differences, one per line.
pub fn differences(want: &Value, got: &Value) -> Vec<String> {
    let mut out = Vec::new();
    walk(want, got, "", &mut out);
    out
}

fn walk(want: &Value, got: &Value, path: &str, out: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                match b.get(key) {
                    Some(other) => walk(value, other, &format!("{path}.{key}"), out),
                    None => out.push(format!("{path}.{key}: missing, want {value}")),
                }
            }
            for (key, value) in b.iter().filter(|(k, _)| !a.contains_key(*k)) {
                out.push(format!("{path}.{key}: not expected, got {value}"));
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (x, y)) in a.iter().zip(b).enumerate() {
                walk(x, y, &format!("{path}[{i}]"), out);
            }
        }
        _ if want == got => {}
        _ => out.push(format!("{path}: want {want}, got {got}")),
    }
}
