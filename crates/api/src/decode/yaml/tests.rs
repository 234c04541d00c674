use serde_json::json;

use super::*;

fn read(text: &str) -> Value {
    yaml(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}")).value
}

#[test]
fn scalars_have_the_types_of_yaml_1_1() {
    for (text, value) in [
        ("0644", json!(420)),
        ("0", json!(0)),
        ("08", json!(8)),
        ("0x1f", json!(31)),
        ("-7", json!(-7)),
        ("18446744073709551615", json!(u64::MAX)),
        ("1.5", json!(1.5)),
        ("1e3", json!(1000)),
        ("yes", json!(true)),
        ("Off", json!(false)),
        ("n", json!(false)),
        ("~", json!(null)),
        ("", json!(null)),
        ("\"yes\"", json!("yes")),
        ("'0644'", json!("0644")),
        ("!!str 12", json!("12")),
        ("2026-01-02T03:04:05Z", json!("2026-01-02T03:04:05Z")),
        ("12:30", json!("12:30")),
        ("1Gi", json!("1Gi")),
        ("nan", json!("nan")),
        ("|\n  x\n  y\n", json!("x\ny\n")),
        (">-\n  x\n  y\n", json!("x y")),
        ("[a, {b: c}]", json!(["a", {"b": "c"}])),
    ] {
        assert_eq!(read(&format!("a: {text}\n")), json!({ "a": value }), "{text}");
    }
}

#[test]
fn keys_become_text() {
    // `n` is a boolean in YAML 1.1, also as a key, as in Kubernetes' library.
    let value = read("1: a\ntrue: b\n1.5: c\n\"2\": d\n? e\n: f\nn: g\n");
    assert_eq!(value, json!({"1": "a", "true": "b", "false": "g", "1.5": "c", "2": "d", "e": "f"}));
    assert!(yaml(b"? [a]\n: b\n").is_err());
    assert!(yaml(b"~: b\n").is_err());
}

#[test]
fn json_is_yaml() {
    let text = r#"{"kind":"A","spec":{"a":[1,"x",null,true],"b":"\u00e9\n"}}"#;
    assert_eq!(read(text), serde_json::from_str::<Value>(text).unwrap());
}

#[test]
fn duplicates_are_reported_and_the_last_wins() {
    let decoded = yaml(b"spec:\n  a: 1\n  l:\n  - k: 1\n    k: 2\n  a: 3\n").unwrap();
    assert_eq!(decoded.value, json!({"spec": {"a": 3, "l": [{"k": 2}]}}));
    assert_eq!(decoded.duplicates, ["spec.l[0].k", "spec.a"]);
}

#[test]
fn aliases_and_merge_keys_work_in_moderation() {
    let value = read("a: &x {b: 1, c: 2}\nd: *x\ne:\n  <<: *x\n  c: 3\n");
    assert_eq!(value, json!({"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 2}, "e": {"b": 1, "c": 3}}));
}

#[test]
fn the_first_document_is_taken() {
    assert_eq!(read("---\na: 1\n---\nb: 2\n"), json!({"a": 1}));
    assert_eq!(read("# nothing\n---\na: 1\n...\n"), json!({"a": 1}));
    assert_eq!(read("\u{feff}a: 1\n"), json!({"a": 1}));
}

#[test]
fn rejects_bodies_that_are_not_objects() {
    for (text, words) in [("- a", "cannot read array as an object"), ("a", "cannot read string as an object")]
    {
        let error = yaml(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error, format!("yaml: {words}"), "{text:?}");
    }
    for text in [
        &b"a: b: c"[..],
        b"{a",
        b"a: [",
        b"a: \xff",
        b"a: .inf",
        b"a: 1\n}",
        b"a: *nobody",
        b"a: &x [*x]",
        b"%YAML 9",
        b"a: \"\\q\"",
        b"\0",
    ] {
        let error = yaml(text).unwrap_err().to_string();
        assert!(error.starts_with("yaml: ") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn cve_2019_11253_bombs_are_refused() {
    let mut laughs = String::from("a: &a [x,x,x,x,x,x,x,x,x,x]\n");
    for (from, to) in "abcdefgh".chars().zip("bcdefghi".chars()) {
        let row = vec![format!("*{from}"); 10].join(",");
        laughs.push_str(&format!("{to}: &{to} [{row}]\n"));
    }
    assert!(yaml(laughs.as_bytes()).is_err());
    let text = format!("a: &a \"{}\"\nb: [{}]", "x".repeat(100_000), vec!["*a"; 90].join(","));
    assert!(yaml(text.as_bytes()).is_err());
    let merges = "- {<<: *a}\n".repeat(90);
    let text = format!("a: &a {{k: \"{}\"}}\nb:\n{merges}", "x".repeat(100_000));
    assert!(yaml(text.as_bytes()).is_err());
    for depth in [200, 100_000] {
        assert!(yaml(format!("a: {}", "[".repeat(depth)).as_bytes()).is_err());
        assert!(yaml("- ".repeat(depth).as_bytes()).is_err());
    }
    let deep: String = (0..500).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
    assert!(yaml(deep.as_bytes()).is_err());
    assert!(yaml(&vec![b'#'; MAX_BODY_BYTES + 1]).is_err());
}

#[test]
fn the_deepest_legal_text_fits_the_stack() {
    let depth = MAX_YAML_DEPTH - 1;
    let flow = format!("a: {}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(super::super::depth(&read(&flow)), MAX_YAML_DEPTH);
    let block: String = (0..depth).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
    assert_eq!(super::super::depth(&read(&block)), depth);
}

const NASTY: &[&str] = &[
    "",
    " ",
    "yes",
    "No",
    "y",
    "N",
    "on",
    "OFF",
    "true",
    "~",
    "null",
    "Null",
    "0644",
    "0o17",
    "0x1F",
    "0b11",
    "1e3",
    "1.5",
    ".5",
    "5.",
    "+1",
    "-1",
    "1_000",
    ".inf",
    "-.INF",
    ".NaN",
    "12:30:45",
    "2026-01-02",
    "2026-01-02T03:04:05Z",
    "-",
    "- x",
    "? x",
    ": x",
    "a: b",
    "a:",
    "a #b",
    "#",
    "x #",
    "&a",
    "*a",
    "!a",
    "!!str a",
    "|",
    ">",
    "%a",
    "@a",
    "`a",
    "'",
    "\"",
    "'a'",
    "\"a\"",
    "[a]",
    "{a}",
    "a, b",
    "a]",
    "---",
    "--- a",
    "...",
    "<<",
    "=",
    " lead",
    "trail ",
    "\ttab",
    "tab\t",
    "a\tb",
    "line\n",
    "two\nlines",
    "two\nlines\n\n",
    "\n",
    "\n\n",
    "\nlead",
    "  a\n b\n",
    " \n",
    "a \nb",
    "a\n ",
    "a\r\nb",
    "\r",
    "a\u{85}b",
    "a\u{2028}b",
    "\u{feff}x",
    "\u{7f}",
    "\0",
    "\u{1}",
    "\u{1b}[0m",
    "\u{e9}",
    "\u{1f600}",
    "\\",
    "\\n",
    "C:\\x",
    "key: |\n  x",
    "a\n---\nb",
    "a\n# no comment\n",
    "1Gi",
    "500m",
    "-----BEGIN CERTIFICATE-----\nMIIB+/==\n-----END CERTIFICATE-----\n",
    "\t\nx",
    "x\n\ty\n",
    "\u{fffe}",
    "\u{ffff}",
    "\u{a0}",
    "a\u{a0}",
    "\u{d7ff}",
];

#[test]
fn written_yaml_reads_back_unchanged() {
    let long = "word ".repeat(100) + "\n" + &"x".repeat(300);
    for text in NASTY.iter().copied().chain([long.as_str()]) {
        for value in [
            json!({ "a": text }),
            json!({ text: "v" }),
            json!({"l": [text, text, [text]], "m": {"n": {"o": text}}, "z": 1}),
            json!({"l": [{"k": text, "z": [text]}, {text: {text: [{"q": text}]}}]}),
        ] {
            let written = to_yaml(&value);
            assert!(written.ends_with('\n'));
            assert_eq!(read(&written), value, "{written}");
        }
    }
    let odd = json!({"n": null, "e": {}, "l": [], "i": i64::MIN, "u": u64::MAX, "f": 1.25,
        "ll": [[1, 2], [], [[3]]], "lm": [{}, {"a": []}]});
    assert_eq!(read(&to_yaml(&odd)), odd);
}

#[test]
fn a_manifest_reads_as_people_write_it() {
    let value = json!({
        "kind": "A", "apiVersion": "v1", "metadata": {"name": "n", "labels": {}},
        "spec": {"list": [{"b": "1", "a": true}], "pem": "-----BEGIN X-----\nAA==\n-----END X-----\n"},
    });
    let text = "apiVersion: v1
kind: A
metadata:
  labels: {}
  name: \"n\"
spec:
  list:
  - a: true
    b: \"1\"
  pem: |
    -----BEGIN X-----
    AA==
    -----END X-----
";
    assert_eq!(to_yaml(&value), text);
}

#[test]
fn no_block_begins_with_a_tab() {
    for text in ["\tx\ny", "\n\tx", "\t\n"] {
        let written = to_yaml(&json!({"a": [text], "b": "x\ny"}));
        assert!(!written.contains('|'), "{written}");
    }
}

/// Inputs that are expensive to parse, at two lengths: doubling the text must not take much more
/// than twice the time. The fastest of several runs counts, because the machine is shared.
#[test]
fn cve_2019_11254_time_grows_with_length() {
    type Shape = fn(usize) -> String;
    let shapes: [(&str, Shape); 8] = [
        ("one long key", |n| "a".repeat(n)),
        ("keys", |n| (0..n / 8).map(|i| format!("k{i:05}:\n")).collect()),
        ("entries", |n| format!("a: [{}]", "x,".repeat(n / 2))),
        ("quotes", |n| format!("a: \"{}\"", "\\\"".repeat(n / 2))),
        ("lines of a text", |n| format!("a: |\n{}", "  x\n".repeat(n / 4))),
        ("blank lines", |n| format!("a:{}b", "\n".repeat(n))),
        ("colons", |n| ": ".repeat(n / 2)),
        ("braces", |n| format!("a: {}", "{x: {x: 1}}, ".repeat(n / 13))),
    ];
    let time = |text: &str| {
        let runs = (0..5).map(|_| {
            let started = std::time::Instant::now();
            let _ = yaml(text.as_bytes());
            started.elapsed()
        });
        runs.min().unwrap_or_default()
    };
    for (what, shape) in shapes {
        // Four times the text; quadratic time would be sixteen times as long, however often it is measured. On a busy
        // machine a single measurement may be interrupted.
        let measure = || {
            let (once, four) = (time(&shape(1 << 15)), time(&shape(1 << 17)));
            let is_linear = four < once * 9 + std::time::Duration::from_millis(5);
            (is_linear, once, four)
        };
        let (is_linear, once, four) =
            (0..20).map(|_| measure()).find(|(is_linear, ..)| *is_linear).unwrap_or_else(measure);
        assert!(is_linear, "{what}: {once:?}, then {four:?}");
    }
}

#[test]
fn a_body_of_an_empty_document_is_an_object_without_fields() {
    for text in ["", "  \n", "# only a comment", "null", "~"] {
        assert_eq!(yaml_body(text.as_bytes()).unwrap().value, json!({}), "{text:?}");
        assert!(yaml(text.as_bytes()).is_err(), "{text:?}");
    }
}
