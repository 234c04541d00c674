use std::path::Path;

use super::super::document::Document;
use super::*;

type Reader<T> = fn(&Field<'_>) -> Result<T, ConfigError>;

fn read<T>(reader: Reader<T>, text: &str) -> Result<T, ConfigError> {
    let quoted = format!("{text:?}");
    reader(&Document::parse(Path::new("f"), &quoted).unwrap().root())
}

#[test]
fn no_pattern_matches_more_than_it_seems_to() {
    let table: &[(Reader<Pattern>, &str, &[&str], &[&str])] = &[
        (Pattern::dns_name, "*", &["a", "a.b", "*.a", "x y"], &[]),
        (
            Pattern::dns_name,
            "example.com",
            &["example.com", "EXAMPLE.com"],
            &["example.com.", "a.example.com", "xexample.com", "*.example.com", ""],
        ),
        (
            Pattern::dns_name,
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
        (Pattern::common_name, "system:node:a", &["system:node:a"], &["System:node:a", ""]),
        (Pattern::common_name, "*.example.com", &["a.example.com"], &["a/b.example.com", "x"]),
        (Pattern::word, "team", &["team"], &["Team", "teams", ""]),
        (Pattern::word, "*", &["team", ""], &[]),
        (
            Pattern::email,
            "*@example.com",
            &["a@example.com", "a.b+c@EXAMPLE.com"],
            &["@example.com", "a@b@example.com", "a@x.example.com", "a@example.com.org", "a"],
        ),
        (Pattern::email, "a@example.com", &["a@Example.com"], &["A@example.com", "b@example.com"]),
        (
            Pattern::uri,
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
        (Pattern::uri, "urn:example:*", &["urn:example:a:b"], &["urn:examples:a", "urn:example:"]),
        (Pattern::uri, "https://a.b/c", &["https://a.b/c"], &["https://a.b/c/", "https://a.b/C"]),
    ];
    for (reader, text, good, bad) in table {
        let pattern = read(*reader, text).unwrap();
        for name in *good {
            assert!(pattern.matches(name), "{text} and {name}");
        }
        for name in *bad {
            assert!(!pattern.matches(name), "{text} and {name}");
        }
    }
}

#[test]
fn what_is_no_pattern_is_an_error() {
    let table: &[(Reader<Pattern>, &[&str])] = &[
        (
            Pattern::dns_name,
            &["**", "*a.b", "a.*.b", "*.*.a", "*.", ".a", "a.", "a..b", "a b", "ä.example", "*.*"],
        ),
        (Pattern::common_name, &["a*", "*a", "*.a*", "*."]),
        (Pattern::word, &["a*", "*a"]),
        (Pattern::email, &["a", "a@", "@a", "*@", "a*@b", "*@*", "*@*.b", "a@b@c", "a b@c"]),
        (
            Pattern::uri,
            &[
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
            assert!(read(*reader, text).is_err(), "{text}");
        }
    }
}

#[test]
fn blocks_have_the_addresses_that_begin_so() {
    let table: &[(&str, &[&str], &[&str])] = &[
        (
            "10.0.0.0/8",
            &["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"],
            &["11.0.0.0", "::a00:1"],
        ),
        ("10.1.2.3", &["10.1.2.3"], &["10.1.2.4"]),
        ("0.0.0.0/0", &["1.2.3.4"], &["::1"]),
        ("::/0", &["::1", "ffff::"], &["1.2.3.4"]),
        ("::1", &["::1"], &["::2", "::"]),
        ("fd00::/9", &["fd00::1", "fd7f::"], &["fd80::", "fe00::"]),
        ("10.1.2.3/32", &["10.1.2.3"], &["10.1.2.2"]),
    ];
    for (text, good, bad) in table {
        let block = read(AddressBlock::read, text).unwrap();
        for address in *good {
            assert!(block.has(address.parse().unwrap()), "{text} and {address}");
        }
        for address in *bad {
            assert!(!block.has(address.parse().unwrap()), "{text} and {address}");
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
        assert!(read(AddressBlock::read, text).is_err(), "{text}");
    }
}
