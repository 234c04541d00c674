//! Decodes JSON bodies of requests.

use serde::de::DeserializeSeed;
use serde_json::{Map, Value};

use super::value_builder::{BuildContext, ValueBuilder};
use super::{DecodeError, DecodedBody, json_type_name, syntax};

/// Decodes a JSON body: one object and nothing after it.
///
/// As in Go, the last of several equal keys wins. Stricter than Go: invalid UTF-8 and invalid
/// escapes are errors instead of U+FFFD, and `null` is not an object.
pub fn json(bytes: &[u8]) -> Result<DecodedBody, DecodeError> {
    object(parse_any(bytes).map_err(DecodeError::Json)?)
}

/// Like [`json`], for request bodies: `null` is an empty object, as in Kubernetes.
pub fn json_body(bytes: &[u8]) -> Result<DecodedBody, DecodeError> {
    let decoded = parse_any(bytes).map_err(DecodeError::Json)?;
    match decoded.value {
        Value::Null => Ok(DecodedBody { value: Value::Object(Map::new()), ..decoded }),
        _ => object(decoded),
    }
}

fn object(decoded: DecodedBody) -> Result<DecodedBody, DecodeError> {
    match decoded.value {
        Value::Object(_) => Ok(decoded),
        other => {
            let text = format!("json: cannot unmarshal {} into an object", json_type_name(&other));
            Err(DecodeError::Json(text))
        }
    }
}

/// Decodes any JSON value; syntax errors use the wording of Go's decoder where it has one.
pub(super) fn parse_any(bytes: &[u8]) -> Result<DecodedBody, String> {
    let mut build = BuildContext { duplicates: Vec::new(), whole_floats_are_integers: false };
    match read(bytes, &mut build) {
        Ok(value) => Ok(DecodedBody { value, duplicates: build.duplicates }),
        // The slow scan for Go's wording runs only on errors.
        Err(error) => Err(syntax::syntax_error(bytes).unwrap_or_else(|| plain(&error))),
    }
}

fn read(bytes: &[u8], build: &mut BuildContext) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = ValueBuilder::root(build).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Returns the error without line and column, which are of little use for machine-written bodies.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{MAX_DEPTH, MAX_DUPLICATES};

    fn error(body: &[u8]) -> String {
        let text = json(body).unwrap_err().to_string();
        let prefix = "couldn't get version/kind; json parse error: ";
        text.strip_prefix(prefix).unwrap_or_else(|| panic!("{text}")).to_owned()
    }

    #[test]
    fn an_object_is_read_with_its_numbers_as_they_are() {
        let body = br#" {"a":9223372036854775807,"b":18446744073709551615,"c":-1,"d":1.0,"e":1e3,
            "f":[true,false,null],"g":{"\u00e9":"\ud83d\ude00"}} "#;
        let decoded = json(body).unwrap();
        assert_eq!(decoded.value, serde_json::from_slice::<Value>(body).unwrap());
        assert!(decoded.value["b"].is_u64() && decoded.value["d"].is_f64());
        assert!(decoded.duplicates.is_empty());
    }

    #[test]
    fn a_body_of_null_is_an_object_without_fields() {
        assert_eq!(json_body(b" null ").unwrap().value, serde_json::json!({}));
    }

    #[test]
    fn duplicates_are_reported_by_path_and_the_last_wins() {
        let body = br#"{"spec":{"replicas":1,"replicas":2,"c":[{"name":"a"},{"name":"b","x":{"k":1,
            "k":2},"name":"c"}],"c":[{"name":"z","name":"y"}],"replicas":3},"kind":"A","kind":"B"}"#;
        let decoded = json(body).unwrap();
        let expected = serde_json::json!(
            {"spec": {"replicas": 3, "c": [{"name": "y"}]}, "kind": "B"}
        );
        assert_eq!(decoded.value, expected);
        assert_eq!(
            decoded.duplicates,
            ["spec.replicas", "spec.c[1].x.k", "spec.c[1].name", "spec.c", "spec.c[0].name", "kind"]
        );
    }

    #[test]
    fn reported_duplicates_are_bounded() {
        let pairs: Vec<String> = (0..300).map(|i| format!("\"k{i}\":0,\"k{i}\":1")).collect();
        let decoded = json(format!("{{{}}}", pairs.join(",")).as_bytes()).unwrap();
        assert_eq!(decoded.duplicates.len(), MAX_DUPLICATES);
        assert_eq!(decoded.value["k299"], 1);
    }

    #[test]
    fn rejects_bodies_that_are_not_objects() {
        for (body, words) in [
            (&b""[..], "unexpected end of JSON input"),
            (b" \n\t ", "unexpected end of JSON input"),
            (b"null", "json: cannot unmarshal null into an object"),
            (b"[]", "json: cannot unmarshal array into an object"),
            (b"\"a\"", "json: cannot unmarshal string into an object"),
            (b"\xef\xbb\xbf{}", "invalid character 'ï' looking for beginning of value"),
            (b"{} {}", "invalid character '{' after top-level value"),
            (b"{nope", "invalid character 'n' looking for beginning of object key string"),
            (b"{\"a\":\"\xff\"}", "invalid unicode code point"),
            (b"{\"a\":\"\\ud800\"}", "unexpected end of hex escape"),
            (b"{\"a\":1e999}", "number out of range"),
        ] {
            assert_eq!(error(body), words, "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| {
            let (open, close) = ("[".repeat(depth - 1), "]".repeat(depth - 1));
            format!("{{\"a\":{open}{close}}}").into_bytes()
        };
        json(&nested(MAX_DEPTH)).unwrap();
        assert_eq!(error(&nested(MAX_DEPTH + 1)), "exceeded max depth");
        assert_eq!(error(&nested(1_000_000)), "exceeded max depth");
    }

    #[test]
    fn numbers_stay_the_same_when_they_are_read_again() {
        let long = format!("1844{}67", "2".repeat(97));
        for number in [long.as_str(), "2.2250738585072014e-308", "0.1"] {
            let read = json(format!("{{\"n\":{number}}}").as_bytes()).unwrap().value;
            let again = json(read.to_string().as_bytes()).unwrap().value;
            assert_eq!(read, again, "{number}");
            assert_eq!(read["n"].as_f64(), number.parse().ok(), "{number}");
        }
    }
}
