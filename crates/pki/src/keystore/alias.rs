//! Aliases of trusted certificates: the start of the SHA-256, a bar, and the subject as Go formats
//! it.

use std::collections::HashMap;
use std::fmt::Write;

use der::Encode;
use der::asn1::{PrintableStringRef, Utf8StringRef};

use crate::DistinguishedName;
use crate::go_compat::is_printable_string;
use crate::limits::MAX_ALIAS_CHARACTERS;

/// Number of SHA-256 bytes that trust-manager puts first.
const SHORT: usize = 4;

/// Returns one alias for each digest and subject. The digests must differ.
///
/// Java treats two certificates with one alias as one, and ignores the case of aliases. Eight
/// digits are so few that an attacker who may add anchors can create two with the same digits and
/// so hide one. Where they collide, the alias starts with the full digest.
pub(super) fn unique_aliases<'a>(
    anchors: impl Iterator<Item = (&'a [u8], &'a DistinguishedName)> + Clone,
) -> Vec<String> {
    let short = anchors.clone().map(|(digest, subject)| alias(digest.iter().take(SHORT), subject));
    let short = short.collect::<Vec<_>>();
    let mut count = HashMap::<String, usize>::new();
    for alias in &short {
        let count = count.entry(alias.to_lowercase()).or_default();
        *count = count.saturating_add(1);
    }
    let is_unique = |alias: &String| count.get(&alias.to_lowercase()) == Some(&1);
    let aliases = short.into_iter().zip(anchors).map(|(short, (digest, subject))| {
        if is_unique(&short) { short } else { alias(digest.iter(), subject) }
    });
    aliases.collect()
}

fn alias<'a>(digest: impl Iterator<Item = &'a u8>, subject: &DistinguishedName) -> String {
    let mut alias = format!("{}|{}", hex(digest), text(subject));
    if let Some((end, _)) = alias.char_indices().nth(MAX_ALIAS_CHARACTERS) {
        alias.truncate(end);
    }
    alias
}

/// Formats a name as Go does: the attributes it knows in its own order, grouped by type, then all
/// others.
fn text(name: &DistinguishedName) -> String {
    let mut groups = Vec::new();
    for attribute in name.attributes() {
        let oid = attribute.oid();
        if KNOWN.iter().all(|(number, _)| format!("2.5.4.{number}") != oid) {
            let value = encoded(attribute.value().unwrap_or_default());
            groups.push(format!("{oid}=#{}", hex(value.iter())));
        }
    }
    for (number, label) in KNOWN {
        let mut values = name.values(number).collect::<Vec<_>>();
        if matches!(number, COMMON_NAME | SERIAL_NUMBER) {
            // Go keeps the last value of these, and treats an empty value as absent.
            values = values.pop().filter(|value| !value.is_empty()).into_iter().collect();
        }
        if !values.is_empty() {
            let values = values.iter().map(|value| format!("{label}={}", escaped(value)));
            groups.push(values.collect::<Vec<_>>().join("+"));
        }
    }
    groups.reverse();
    groups.join(",")
}

const COMMON_NAME: u8 = 3;
const SERIAL_NUMBER: u8 = 5;

/// The attributes below `2.5.4` that Go knows, in reverse output order.
const KNOWN: [(u8, &str); 9] = [
    (6, "C"),
    (10, "O"),
    (11, "OU"),
    (7, "L"),
    (8, "ST"),
    (9, "STREET"),
    (17, "POSTALCODE"),
    (COMMON_NAME, "CN"),
    (SERIAL_NUMBER, "SERIALNUMBER"),
];

/// Encodes a value of an unnamed type as DER.
fn encoded(value: &str) -> Vec<u8> {
    let der = if is_printable_string(value) {
        PrintableStringRef::new(value).and_then(|value| value.to_der())
    } else {
        Utf8StringRef::new(value).and_then(|value| value.to_der())
    };
    der.unwrap_or_default()
}

fn escaped(value: &str) -> String {
    let last = value.len().saturating_sub(1);
    let mut text = String::with_capacity(value.len());
    for (index, character) in value.char_indices() {
        let special = match character {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => true,
            ' ' => index == 0 || index == last,
            '#' => index == 0,
            _ => false,
        };
        if special {
            text.push('\\');
        }
        text.push(character);
    }
    text
}

fn hex<'a>(octets: impl Iterator<Item = &'a u8>) -> String {
    octets.fold(String::new(), |mut text, octet| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{octet:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
