use super::*;
use serde_json::json;

fn get<'a>(labels: &'a Value) -> impl Fn(&str) -> Option<&'a str> {
    |key| labels.get(key).and_then(Value::as_str)
}

#[test]
fn texts_select_by_labels() {
    let labels = json!({"a": "b", "e": "f", "empty": "", "n": "10", "in": "in"});
    let cases = [
        ("", true),
        ("  ", true),
        ("a=b", true),
        (" a == b , e in ( f , g ) ,!h, a", true),
        ("a=c", false),
        ("a!=b", false),
        ("a!=c,z!=c", true),
        ("a in (b,c)", true),
        ("a in (c)", false),
        ("z in (c)", false),
        ("a notin (b)", false),
        ("z notin (b)", true),
        ("z", false),
        ("!a", false),
        ("empty", true),
        ("empty=", true),
        ("empty=,a=b", true),
        ("empty in ()", true),
        ("empty in (,x)", true),
        ("empty in (x,,y)", true),
        ("empty in (x,)", true),
        ("a in (x,)", false),
        ("z=", false),
        ("n>9", true),
        ("n>10", false),
        ("n<11", true),
        ("a>1", false),
        ("z<1", false),
        ("in in (in)", true),
        ("in=in", true),
        ("a=b\0,a=c", false),
        ("a=b \0,a=c", true),
    ];
    for (text, want) in cases {
        let selector = LabelSelector::parse(text).unwrap();
        assert_eq!(selector.matches(get(&labels)), want, "{text}");
    }
}

#[test]
fn a_selector_has_one_canonical_text() {
    let cases = [
        ("x==1, a  in (c,b,c),!z , y,w!=2,v notin(),u>1,t<2", "a in (b,c),t<2,u>1,v notin (),w!=2,x==1,y,!z"),
        ("a=", "a="),
        ("", ""),
    ];
    for (text, want) in cases {
        let selector = LabelSelector::parse(text).unwrap();
        assert_eq!(selector.to_string(), want);
        assert_eq!(LabelSelector::parse(want).unwrap(), selector);
    }
    assert!(LabelSelector::parse("").unwrap().is_everything());
}

#[test]
fn invalid_selectors_are_reported_as_kubernetes_does() {
    let part = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let value = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let cases = [
        ("t===", "unable to parse requirement: found '=', expected: identifier"),
        ("=", "found '=', expected: !, identifier, or 'end of string'"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier"),
        ("a in (b,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
        (
            "n>b",
            "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        ("-a", &format!("unable to parse requirement: <nil>: Invalid value: \"-a\": {part}")),
        ("a=-b", &format!("unable to parse requirement: values[0][a]: Invalid value: \"-b\": {value}")),
        (
            "a in (-b,c,-d)",
            &format!(
                "unable to parse requirement: [values[0][a]: Invalid value: \"-b\": {value}, values[1][a]: Invalid value: \"-d\": {value}]"
            ),
        ),
    ];
    for (text, want) in cases {
        assert_eq!(LabelSelector::parse(text).unwrap_err().to_string(), want, "{text}");
    }
}

#[test]
fn exact_requirements_can_be_looked_up() {
    let selector = LabelSelector::parse("a=b,c in (d),e in (f,g),h!=i").unwrap();
    let cases = [("a", Some("b")), ("c", Some("d")), ("e", None), ("h", None), ("z", None)];
    for (key, want) in cases {
        assert_eq!(selector.requires_exact(key), want, "{key}");
    }
}

#[test]
fn objects_select_by_labels() {
    let labels = json!({"a": "b"});
    let cases = [
        (json!(null), false, ""),
        (json!({}), true, ""),
        (
            json!({"matchLabels": {"a": "b"}, "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["c", "b"]},
                {"key": "z", "operator": "DoesNotExist"},
                {"key": "y", "operator": "NotIn", "values": ["b"]},
                {"key": "a", "operator": "Exists"},
            ]}),
            true,
            "a=b,a in (b,c),a,y notin (b),!z",
        ),
        (json!({"matchLabels": {"a": "c"}}), false, "a=c"),
    ];
    for (object, want, text) in cases {
        let selector = LabelSelector::from_object(&object).unwrap();
        assert_eq!(selector.matches(get(&labels)), want, "{object}");
        assert_eq!(selector.to_string(), text);
    }
    let error = |object| LabelSelector::from_object(&object).unwrap_err().to_string();
    assert_eq!(
        error(json!({"matchExpressions": [{"key": "a", "operator": "Near"}]})),
        "\"Near\" is not a valid label selector operator"
    );
    assert_eq!(
        error(json!({"matchExpressions": [{"key": "a", "operator": "In"}]})),
        "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
    );
}

#[test]
fn invalid_objects_are_reported_with_their_path() {
    let mut errors = FieldErrors::new();
    let selector = json!({
        "matchLabels": {"-a": "b"},
        "matchExpressions": [
            {"key": "a", "operator": "In"},
            {"key": "a", "operator": "Exists", "values": ["b"]},
            {"key": "", "operator": "Near", "values": ["-"]},
        ],
    });
    validate_label_selector(&FieldPath::new("s"), &selector, &mut errors);
    let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let want = [
        "s.matchLabels: Invalid value: \"-a\": name part must consist",
        "s.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        "s.matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        "s.matchExpressions[2].operator: Invalid value: \"Near\": not a valid selector operator",
        "s.matchExpressions[2].key: Invalid value: \"\": name part must be non-empty",
        "s.matchExpressions[2].key: Invalid value: \"\": name part must consist",
        "s.matchExpressions[2].values[0]: Invalid value: \"-\": a valid label must be",
    ];
    assert_eq!(words.len(), want.len(), "{words:?}");
    for (words, want) in words.iter().zip(want) {
        assert!(words.starts_with(want), "{words}");
    }
    validate_label_selector(&FieldPath::new("s"), &Value::Null, &mut errors);
    assert_eq!(errors.len(), want.len());
}

#[test]
fn a_selector_can_be_written_as_an_object() {
    for (object, same) in [
        (json!(null), None),
        (json!({}), None),
        (json!({"matchLabels": {"a": "b", "c": ""}}), None),
        (
            json!({"matchLabels": {"k": "v"}, "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["x", "y"]},
                {"key": "b", "operator": "NotIn", "values": ["x"]},
                {"key": "c", "operator": "Exists"},
                {"key": "d", "operator": "DoesNotExist"}]}),
            None,
        ),
        (
            json!({"matchExpressions": [{"key": "b", "operator": "Exists", "values": []},
                                        {"key": "a", "operator": "In", "values": ["y", "x"]}]}),
            Some(json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "y"]},
                                            {"key": "b", "operator": "Exists"}]})),
        ),
    ] {
        let written = LabelSelector::from_object(&object).unwrap().to_object();
        assert_eq!(written, same.unwrap_or(object));
        let again = LabelSelector::from_object(&written).unwrap();
        assert_eq!(again.to_object(), written);
    }
    for (text, object) in [
        (
            "a==b,a=c",
            json!({"matchLabels": {"a": "b"}, "matchExpressions":
            [{"key": "a", "operator": "In", "values": ["c"]}]}),
        ),
        ("a!=b", json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]})),
        ("a>1", json!(null)),
    ] {
        assert_eq!(LabelSelector::parse(text).unwrap().to_object(), object, "{text}");
    }
}
