use std::path::Path;

use windlass_runtime::config::{ConfigDocument, ConfigErrors};

use super::*;

/// Parser, pattern text, names that match and names that do not.
type Row = (Reader<NamePattern>, &'static str, &'static [&'static str], &'static [&'static str]);
type Reader<T> = fn(&ConfigField<'_>) -> ConfigResult<T>;

fn parse_text<T>(reader: Reader<T>, text: &str) -> Result<T, ConfigErrors> {
    let quoted = format!("{text:?}");
    let document = ConfigDocument::parse(Path::new("f"), quoted.as_bytes())?;
    document.finish(reader(&document.root()))
}

#[test]
fn no_pattern_matches_more_than_it_seems_to() {
    let table: &[Row] = &[
        (NamePattern::parse_dns_name, "*", &["a", "a.b", "*.a", "x y"], &[]),
        (
            NamePattern::parse_dns_name,
            "example.com",
            &["example.com", "EXAMPLE.com"],
            &["example.com.", "a.example.com", "xexample.com", "*.example.com", ""],
        ),
        (
            NamePattern::parse_dns_name,
            "*.example.com",
            &["a.example.com", "A.Example.COM", "*.example.com", "a_b.example.com"],
            &[
                "example.com",
                ".example.com",
                "a.b.example.com",
                "*.a.example.com",
                "a*.example.com",
                "a.example.com.",
                "a b.example.com",
                "a.example.com.evil.org",
                "a\0.example.com",
            ],
        ),
        (NamePattern::parse_common_name, "system:node:a", &["system:node:a"], &["System:node:a", ""]),
        (NamePattern::parse_common_name, "*.example.com", &["a.example.com"], &["a/b.example.com", "x"]),
        (NamePattern::parse_organization, "team", &["team"], &["Team", "teams", ""]),
        (NamePattern::parse_organization, "*", &["team", ""], &[]),
        (
            NamePattern::parse_email,
            "*@example.com",
            &["a@example.com", "a.b+c@EXAMPLE.com"],
            &["@example.com", "a@b@example.com", "a@x.example.com", "a@example.com.org", "a"],
        ),
        (NamePattern::parse_email, "a@example.com", &["a@Example.com"], &["A@example.com", "b@example.com"]),
        (
            NamePattern::parse_uri,
            "spiffe://example.com/*",
            &["spiffe://example.com/ns/a", "spiffe://example.com/a.b/..c"],
            &[
                "spiffe://example.com/",
                "spiffe://example.com",
                "spiffe://example.com.evil.org/a",
                "spiffe://example.org/a",
                "spiffe://example.com/..",
                "spiffe://example.com/a/../b",
                "spiffe://example.com/a/%2E%2e/b",
                "spiffe://example.com/%2e%2Fb",
                "SPIFFE://example.com/a",
            ],
        ),
        (NamePattern::parse_uri, "urn:example:*", &["urn:example:a:b"], &["urn:examples:a", "urn:example:"]),
        (NamePattern::parse_uri, "https://a.b/c", &["https://a.b/c"], &["https://a.b/c/", "https://a.b/C"]),
    ];
    for (reader, text, good, bad) in table {
        let pattern = parse_text(*reader, text).unwrap();
        for name in *good {
            assert!(pattern.allows(name, &RequesterIdentity::new("jane")), "{text} and {name}");
        }
        for name in *bad {
            assert!(!pattern.allows(name, &RequesterIdentity::new("jane")), "{text} and {name}");
        }
    }
}

/// Parsers decode escapes once, twice or not at all, and some treat backslashes as slashes.
#[test]
fn no_escape_leads_out_of_a_path() {
    let pattern = parse_text(NamePattern::parse_uri, "spiffe://example.com/team/*").unwrap();
    let jane = RequesterIdentity::new("jane");
    for rest in ["a", "a/b", "a%20b", "a%C3%A4/b", "a?x=1//2", "a.b/...", "~a/b-c_d"] {
        assert!(pattern.allows(&format!("spiffe://example.com/team/{rest}"), &jane), "{rest}");
    }
    for rest in [
        "",
        "/",
        "a//b",
        "a/",
        "//a",
        ".",
        "..",
        "a/../b",
        "a/./b",
        "%2e",
        "%2E%2e/b",
        "a%2eb",
        "%252e%252e/b",
        "%252E%252E/b",
        "a%25b",
        "a%2Fb",
        "a%2fb",
        "%252f",
        "%5c..%5c",
        "a\\b",
        "..\\b",
        "a%",
        "a%2",
        "a%zz",
        "a%+1",
        "a%00b",
        "a%0ab",
        "a b",
        "a\u{e4}",
        "a?/../b",
        "a#/../b",
    ] {
        assert!(!pattern.allows(&format!("spiffe://example.com/team/{rest}"), &jane), "{rest}");
    }
}

/// Parser, pattern text, and which requester may use which name.
type TiedRow = (
    Reader<NamePattern>,
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [(&'static str, &'static str)],
);

#[test]
fn names_are_tied_to_the_requester() {
    let table: &[TiedRow] = &[
        (
            NamePattern::parse_dns_name,
            "{node}.corp.example",
            &[
                ("system:node:a", "a.corp.example"),
                ("system:node:a", "A.Corp.Example"),
                ("system:node:a.b", "a.b.corp.example"),
            ],
            &[
                ("system:node:b", "a.corp.example"),
                ("system:node:a", "*.corp.example"),
                ("system:node:a", "x.a.corp.example"),
                ("system:node:A", "a.corp.example"),
                ("system:node:*", "*.corp.example"),
                ("system:node:*", "x.corp.example"),
                ("system:node:", ".corp.example"),
                ("system:node:.", "..corp.example"),
                ("system:node:a.", "a..corp.example"),
                ("system:node:{node}", "{node}.corp.example"),
                ("system:node:a/b", "a/b.corp.example"),
                ("system:nodes:a", "a.corp.example"),
                ("a", "a.corp.example"),
                ("", ".corp.example"),
                ("xsystem:node:a", "a.corp.example"),
            ],
        ),
        (
            NamePattern::parse_dns_name,
            "*.{node}.corp.example",
            &[("system:node:a", "x.a.corp.example"), ("system:node:a", "*.a.corp.example")],
            &[("system:node:b", "x.a.corp.example"), ("system:node:a", "a.corp.example")],
        ),
        (
            NamePattern::parse_dns_name,
            "{serviceAccount}.{namespace}.svc",
            &[("system:serviceaccount:web:api", "api.web.svc")],
            &[
                ("system:serviceaccount:web:db", "api.web.svc"),
                ("system:serviceaccount:web:a.b", "a.b.web.svc"),
                ("system:serviceaccount:web:", ".web.svc"),
                ("system:serviceaccount:web", "web.svc"),
                ("system:serviceaccount::api", "api..svc"),
                ("system:serviceaccount:web:api:x", "api.web.svc"),
                ("system:serviceaccount:web:api:x", "x.api.svc"),
                ("system:node:api", "api.web.svc"),
            ],
        ),
        (
            NamePattern::parse_dns_name,
            "{user}.corp.example",
            &[("jane", "jane.corp.example")],
            &[("Jane", "jane.corp.example"), ("x.jane", "x.jane.corp.example"), ("a@b", "a@b.corp.example")],
        ),
        (
            NamePattern::parse_common_name,
            "system:node:{node}",
            &[("system:node:a", "system:node:a")],
            &[("system:node:b", "system:node:a"), ("system:node:a", "System:node:a")],
        ),
        (
            NamePattern::parse_common_name,
            "{user}",
            &[("jane", "jane"), ("jane@a.b", "jane@a.b"), ("system:node:a", "system:node:a")],
            &[("*", "*"), ("*", "anybody"), ("*.corp", "x.corp"), ("a/b", "a/b"), ("{user}", "{user}")],
        ),
        (
            NamePattern::parse_common_name,
            "*.{node}.b",
            &[("system:node:a", "x.a.b")],
            &[("system:node:A", "x.A.b")],
        ),
        (
            NamePattern::parse_organization,
            "team-{namespace}",
            &[("system:serviceaccount:a:b", "team-a")],
            &[("a", "team-a")],
        ),
        (
            NamePattern::parse_email,
            "{user}@corp.example",
            &[("jane", "jane@corp.example")],
            &[("jane@x", "jane@x@corp.example"), ("*", "x@corp.example"), ("joe", "jane@corp.example")],
        ),
        (
            NamePattern::parse_email,
            "{user}",
            &[("jane@a.b", "jane@a.b"), ("jane@a.b", "jane@A.B")],
            &[("*@a.b", "x@a.b"), ("*", "x@a.b"), ("jane", "jane"), ("a@b@c", "a@b@c")],
        ),
        (
            NamePattern::parse_uri,
            "spiffe://corp/ns/{namespace}/sa/{serviceAccount}",
            &[("system:serviceaccount:web:a.b", "spiffe://corp/ns/web/sa/a.b")],
            &[
                ("system:serviceaccount:web:a", "spiffe://corp/ns/db/sa/a"),
                ("system:serviceaccount:web:..", "spiffe://corp/ns/web/sa/.."),
                ("system:serviceaccount:web:a/b", "spiffe://corp/ns/web/sa/a/b"),
                ("system:serviceaccount:web:a%2fb", "spiffe://corp/ns/web/sa/a%2fb"),
                ("system:serviceaccount:web:*", "spiffe://corp/ns/web/sa/x"),
            ],
        ),
        (
            NamePattern::parse_uri,
            "spiffe://corp/node/{node}/*",
            &[("system:node:a", "spiffe://corp/node/a/x/y")],
            &[
                ("system:node:b", "spiffe://corp/node/a/x"),
                ("system:node:a", "spiffe://corp/node/a/"),
                ("system:node:a", "spiffe://corp/node/a/%252e%252e/b/x"),
            ],
        ),
        (NamePattern::parse_uri, "urn:corp:{user}", &[("jane", "urn:corp:jane")], &[("a:b", "urn:corp:a:b")]),
    ];
    for (reader, text, good, bad) in table {
        let pattern = parse_text(*reader, text).unwrap();
        assert!(!pattern.is_shared_wildcard(), "{text}");
        for (user, name) in *good {
            assert!(pattern.allows(name, &RequesterIdentity::new(user)), "{text}, {user} and {name}");
        }
        for (user, name) in *bad {
            assert!(!pattern.allows(name, &RequesterIdentity::new(user)), "{text}, {user} and {name}");
        }
    }
}

#[test]
fn an_invalid_pattern_is_an_error() {
    let table: &[(Reader<NamePattern>, &[&str])] = &[
        (
            NamePattern::parse_dns_name,
            &[
                "{host}.a",
                "{Node}.a",
                "{node",
                "node}",
                "{{node}}",
                "{}.a",
                "{node}..a",
                "*{node}.a",
                "{node}.*",
                "**",
                "*a.b",
                "a.*.b",
                "*.*.a",
                "*.",
                ".a",
                "a.",
                "a..b",
                "a b",
                "ä.example",
                "*.*",
            ],
        ),
        (NamePattern::parse_common_name, &["a*", "*a", "*.a*", "*."]),
        (NamePattern::parse_organization, &["a*", "*a", "{user}*", "{group}"]),
        (NamePattern::parse_email, &["a", "a@", "@a", "*@", "a*@b", "*@*", "*@*.b", "a@b@c", "a b@c"]),
        (
            NamePattern::parse_uri,
            &[
                "https://{node}/*",
                "https://{node}.a/b",
                "{user}:a",
                "spiffe://a{user}",
                "spiffe://a/{uid}",
                "spiffe://a/b{node}*",
                "a",
                "a/b",
                "spiffe://*",
                "spiffe://a*",
                "spiffe:///*",
                "spiffe://a/b*",
                "x://a/*b",
                "1x:a",
            ],
        ),
    ];
    for (reader, texts) in table {
        for text in *texts {
            assert!(parse_text(*reader, text).is_err(), "{text}");
        }
    }
}

#[test]
fn blocks_have_the_addresses_that_begin_so() {
    let table: &[(&str, &[&str], &[&str])] = &[
        ("10.0.0.0/8", &["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"], &["11.0.0.0", "::a00:1"]),
        ("10.1.2.3", &["10.1.2.3"], &["10.1.2.4"]),
        ("0.0.0.0/0", &["1.2.3.4"], &["::1"]),
        ("::/0", &["::1", "ffff::"], &["1.2.3.4"]),
        ("::1", &["::1"], &["::2", "::"]),
        ("fd00::/9", &["fd00::1", "fd7f::"], &["fd80::", "fe00::"]),
        ("10.1.2.3/32", &["10.1.2.3"], &["10.1.2.2"]),
    ];
    for (text, good, bad) in table {
        let block = parse_text(AddressBlock::parse, text).unwrap();
        for address in *good {
            assert!(block.contains(address.parse().unwrap()), "{text} and {address}");
        }
        for address in *bad {
            assert!(!block.contains(address.parse().unwrap()), "{text} and {address}");
        }
    }
    for text in [
        "10.0.0.1/8",
        "10.0.0.0/33",
        "::/129",
        "10.0.0.0/",
        "10.0.0.0/+8",
        "10.0/8",
        "*",
        "::ffff:10.0.0.0/104",
        "fd00::1/64",
        "/8",
    ] {
        assert!(parse_text(AddressBlock::parse, text).is_err(), "{text}");
    }
}
