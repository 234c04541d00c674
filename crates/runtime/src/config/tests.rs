use std::time::Duration;

use serde_json::json;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;

use super::*;

fn document(text: &str) -> ConfigDocument {
    ConfigDocument::parse(Path::new("f.yaml"), text.as_bytes()).unwrap()
}

/// The errors of reading the field `a` of a map.
fn errors<T>(text: &str, parse: impl FnOnce(&ConfigField<'_>) -> ConfigResult<T>) -> String {
    let document = document(text);
    let parsed = document.root().fields(&["a", "b"]).and_then(|fields| fields.required("a", parse));
    match document.finish(parsed) {
        Ok(_) => String::new(),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn values_of_the_wrong_type_are_reported_with_their_position() {
    type Reader = fn(&ConfigField<'_>) -> ConfigResult<()>;
    let text: Reader = |field| field.text().map(drop);
    let boolean: Reader = |field| field.boolean().map(drop);
    let integer: Reader = |field| field.integer_in(0..=10).map(drop);
    let duration: Reader = |field| field.duration_at_least(Duration::from_secs(3600)).map(drop);
    let fraction: Reader = |field| field.fraction().map(drop);
    let list: Reader = |field| field.parse_items(|item| item.text()).map(drop);
    let filled: Reader = |field| field.parse_nonempty("no names", |item| item.text()).map(drop);
    let map: Reader = |field| field.fields(&["x"]).map(drop);
    let choice: Reader = |field| field.one_of(&[("x", 1), ("y", 2)]).map(drop);
    let name: Reader = |field| field.valid_name(names::dns1123_label).map(drop);
    let one: Reader = |field| field.fields(&["x", "y"])?.exactly_one(&["x", "y"]).map(drop);
    let secret: Reader = |field| field.sensitive().text().map(drop);
    let secrets: Reader = |field| field.sensitive().parse_items(|item| item.text()).map(drop);
    let table: &[(Reader, &str, &str)] = &[
        (text, "a: x", ""),
        (text, "a: NO", ""),
        (text, "a: 'true'", ""),
        (text, "a: true", "f.yaml:1:4: a: true is not text; put it in quotes"),
        (text, "a: 0640", "f.yaml:1:4: a: 0640 is not text; put it in quotes"),
        (text, "a: ''", "f.yaml:1:4: a: is empty"),
        (text, "a: [x]", "f.yaml:1:4: a: must be text, not a list"),
        (text, "b: x", "f.yaml:1:1: a: is missing"),
        (text, "a: x\nc: y", "f.yaml:2:1: c: unknown field; known fields: a, b"),
        (text, "a: x\na: y", "f.yaml:2:1: a: is set twice; remove one of them"),
        (text, "- a", "f.yaml:1:1: must be a map, not a list"),
        (boolean, "a: false", ""),
        (boolean, "a: True", ""),
        (boolean, "a: no", "f.yaml:1:4: a: must be true or false, not \"no\""),
        (boolean, "a: 'true'", "f.yaml:1:4: a: must be true or false, not \"true\""),
        (integer, "a: 010", ""),
        (integer, "a: 1e1", ""),
        (integer, "a: 013", "f.yaml:1:4: a: 013 is out of range; use 0 to 10"),
        (integer, "a: -1", "f.yaml:1:4: a: -1 is out of range; use 0 to 10"),
        (integer, "a: 1.5", "f.yaml:1:4: a: must be an integer, not 1.5"),
        (integer, "a: x", "f.yaml:1:4: a: must be an integer, not \"x\""),
        (duration, "a: 1h", ""),
        (duration, "a: 24", "f.yaml:1:4: a: 24 is not a duration; use a number and a unit, such as 24h"),
        (
            duration,
            "a: '24'",
            "f.yaml:1:4: a: \"24\" is not a duration; use a number and a unit, such as 24h",
        ),
        (duration, "a: 59m", "f.yaml:1:4: a: \"59m\" is too short; use at least 1h"),
        (duration, "a: {}", "f.yaml:1:4: a: must be a duration, such as 24h, not a map"),
        (fraction, "a: 0.5", ""),
        (fraction, "a: 1", "f.yaml:1:4: a: 1 is not a number between 0 and 1, such as 0.66"),
        (fraction, "a: NaN", "f.yaml:1:4: a: \"NaN\" is not a number between 0 and 1, such as 0.66"),
        (list, "a: []", ""),
        (list, "a: x", "f.yaml:1:4: a: must be a list, not \"x\""),
        (
            list,
            "a: [x, 1, y, 2]",
            "f.yaml:1:8: a[1]: 1 is not text; put it in quotes\n\
             f.yaml:1:14: a[3]: 2 is not text; put it in quotes",
        ),
        (filled, "a: []", "f.yaml:1:4: a: is empty: no names; add an item or remove it"),
        (map, "a: {y: 1}", "f.yaml:1:5: a.y: unknown field; known fields: x"),
        (choice, "a: y", ""),
        (choice, "a: z", "f.yaml:1:4: a: \"z\" is not supported; use x or y"),
        (one, "a: {y: 1}", ""),
        (one, "a: {}", "f.yaml:1:4: a: needs one of x and y"),
        (one, "a: {y: 1, x: 2}", "f.yaml:1:4: a: has more than one of x and y; keep one"),
        (secret, "a: 1234567", "f.yaml:1:4: a: is not text; put it in quotes"),
        (secrets, "a: word", "f.yaml:1:4: a: must be a list, not text"),
        (secrets, "a: [12345]", "f.yaml:1:5: a[0]: is not text; put it in quotes"),
    ];
    for (reader, text, expected) in table {
        assert_eq!(errors(text, reader), *expected, "{text}");
    }
    assert!(errors("a:", text).ends_with("a: has no value; it must be text"));
    let invalid = errors("a: A", name);
    assert!(invalid.starts_with("f.yaml:1:4: a: \"A\" is not valid: a lowercase"), "{invalid}");
}

#[test]
fn all_errors_are_reported_in_the_order_of_the_file() {
    let document = document("a: [1]\nb: 2\nc: 3\n");
    let read = || {
        let root = document.root().fields(&["a", "b", "d"])?;
        let d = root.required("d", ConfigField::text);
        let b = root.required("b", ConfigField::text);
        let a = root.list("a", ConfigField::text);
        Ok((a?, b?, d?))
    };
    let errors = document.finish(read()).unwrap_err().to_string();
    let expected = [
        "f.yaml:1:1: d: is missing",
        "f.yaml:1:5: a[0]: 1 is not text; put it in quotes",
        "f.yaml:2:4: b: 2 is not text; put it in quotes",
        "f.yaml:3:1: c: unknown field; known fields: a, b, d",
    ];
    assert_eq!(errors, expected.join("\n"));
}

#[test]
fn a_reported_error_fails_the_file_though_the_value_does_not_depend_on_it() {
    let document = document("{}");
    document.root().error("broken");
    assert_eq!(document.finish(Ok(1)).unwrap_err().to_string(), "f.yaml:1:1: broken");
}

#[test]
fn a_hundred_errors_are_listed_and_the_rest_is_counted() {
    let text = format!("a: [{}]", "1, ".repeat(1234));
    let errors = errors(&text, |field| field.parse_items(|item| item.text().map(drop)));
    assert_eq!(errors.lines().count(), 101);
    assert!(errors.ends_with("\nf.yaml: 1134 more errors"), "{errors}");
    let long = format!("a: {}", "x".repeat(1 << 19));
    let errors = super::tests::errors(&long, |field| field.boolean());
    assert!(errors.len() < 3000 && errors.ends_with("x…"), "{}", errors.len());
}

#[test]
fn errors_of_kubernetes_get_the_position_of_the_innermost_value() {
    let document = document("a:\n- b: {x.y/z: 1}\n  c:\n  - d\n");
    for (path, position) in [
        (FieldPath::new("a").index(0).child("b").key("x.y/z"), ":2:14: a[0].b[x.y/z]: "),
        (FieldPath::new("a").index(0).child("b").child("x.y/z"), ":2:14: a[0].b.x.y/z: "),
        (FieldPath::new("a").index(0).child("c").index(0), ":4:5: a[0].c[0]: "),
        (FieldPath::new("a").index(0).child("cc").index(0), ":2:3: a[0].cc[0]: "),
        (FieldPath::new("a").index(1).child("b"), ":2:3: a[1].b: "),
        (FieldPath::new("e"), ":1:1: e: "),
    ] {
        let mut errors = FieldErrors::new();
        errors.required(&path, "");
        let reported = document.root().report_field_errors(errors.iter());
        assert!(reported.is_err());
        let errors = document.finish(reported).unwrap_err().to_string();
        assert!(errors.contains(&format!("f.yaml{position}Required value")), "{path}: {errors}");
    }
    assert_eq!(document.root().report_field_errors([]), Ok(()));
}

#[test]
fn json_has_the_values_of_kubernetes_yaml() {
    let text = "{mode: 0640, on: yes, text: 'yes', float: 1e3, half: .5, list: [null, {}]}";
    let expected = json!({"mode": 416, "on": true, "text": "yes", "float": 1000, "half": 0.5,
                          "list": [null, {}]});
    assert_eq!(document(text).root().to_json(), expected);
}

#[test]
fn keys_are_part_of_the_path_of_their_values() {
    let read = |field: &ConfigField<'_>| {
        field.parse_entries(|key, value| Ok((key.to_owned(), value.text()?.to_owned())))
    };
    let document = document("{x/y: 1, z: v}");
    let errors = document.finish(read(&document.root())).unwrap_err().to_string();
    assert_eq!(errors, "f.yaml:1:7: [x/y]: 1 is not text; put it in quotes");
}

#[test]
fn paths_are_relative_to_the_file() {
    for (file, text, expected) in [("/etc/f", "a", "/etc/a"), ("/etc/f", "/b", "/b"), ("f", "a", "a")] {
        let document = ConfigDocument::parse(Path::new(file), text.as_bytes()).unwrap();
        assert_eq!(document.root().file_path(), Ok(PathBuf::from(expected)));
    }
}

#[test]
fn files_that_are_not_one_document_are_rejected() {
    for text in ["", "a: [", "a: b: c", "\0", "--- {}\n--- {}\n", "a: *b", "a: .nan"] {
        let parsed = ConfigDocument::parse(Path::new("f"), text.as_bytes());
        let errors = match parsed {
            Ok(document) => document.finish(document.root().fields(&["a"]).map(drop)).unwrap_err(),
            Err(errors) => errors,
        };
        assert_eq!(errors.to_string().lines().count(), 1, "{text:?}: {errors}");
        assert!(errors.to_string().starts_with("f:"), "{text:?}: {errors}");
    }
    for text in ["", " \n", "# comment\n", "null"] {
        let parsed = ConfigDocument::parse(Path::new("f"), text.as_bytes());
        let errors = parsed.err().map(|errors| errors.to_string());
        assert_eq!(errors.as_deref(), Some("f: is empty"), "{text:?}");
    }
    let deep = format!("a: {}{}", "[".repeat(100), "]".repeat(100));
    assert!(ConfigDocument::parse(Path::new("f"), deep.as_bytes()).is_err());
    let errors = ConfigDocument::parse(Path::new("f"), &vec![b' '; MAX_CONFIG_BYTES + 1]);
    let errors = errors.err().map(|errors| errors.to_string());
    assert_eq!(errors.as_deref(), Some("f: is longer than 1048576 bytes"));
    let errors = ConfigDocument::parse(Path::new("f"), b"\xff").err().map(|e| e.to_string());
    assert_eq!(errors.as_deref(), Some("f: is not UTF-8 text"));
}
