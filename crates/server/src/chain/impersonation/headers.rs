//! The impersonation headers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use windlass_api::field::quote;

use crate::error::Error;

pub(super) const PREFIX: &str = "impersonate-";
const USER: HeaderName = HeaderName::from_static("impersonate-user");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// Requested identity, exactly as given in the headers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ImpersonatedIdentity {
    /// Value of `Impersonate-User`; never empty, because it is required.
    pub name: String,
    /// Value of `Impersonate-Uid`; empty if the header is absent.
    pub uid: String,
    /// Values of `Impersonate-Group`, in header order.
    pub groups: Vec<String>,
    /// Extra fields by key; keys without a value are omitted.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl ImpersonatedIdentity {
    /// Returns true if only the user name is given.
    pub(super) fn is_name_only(&self) -> bool {
        self.uid.is_empty() && self.groups.is_empty() && self.extra.is_empty()
    }
}

/// Parses the headers; `None` if they name no user.
pub(super) fn read(headers: &HeaderMap) -> Result<Option<ImpersonatedIdentity>, Error> {
    let wanted = ImpersonatedIdentity {
        // The first of several names counts, as in Kubernetes.
        name: first(headers, &USER)?,
        uid: first(headers, &UID)?,
        groups: headers.get_all(&GROUP).iter().map(text).collect::<Result<_, _>>()?,
        extra: extra(headers)?,
    };
    match (wanted.name.is_empty(), wanted.is_name_only()) {
        (false, _) => Ok(Some(wanted)),
        (true, true) => Ok(None),
        (true, false) => Err(Error::BadRequest(format!(
            "requested {} without impersonating a user name",
            as_go_prints(&wanted)
        ))),
    }
}

fn first(headers: &HeaderMap, name: &HeaderName) -> Result<String, Error> {
    headers.get(name).map_or_else(|| Ok(String::new()), text)
}

/// Rejects other encodings, which the next reader could take for another name.
fn text(value: &HeaderValue) -> Result<String, Error> {
    let text = std::str::from_utf8(value.as_bytes()).map(str::to_owned);
    text.map_err(|_| Error::BadRequest("impersonation headers must be UTF-8".into()))
}

fn extra(headers: &HeaderMap) -> Result<BTreeMap<String, Vec<String>>, Error> {
    // Two headers can spell the same key differently, and the order of values must be
    // deterministic.
    let mut names: Vec<&str> =
        headers.keys().filter_map(|name| name.as_str().strip_prefix(EXTRA_PREFIX)).collect();
    names.sort_unstable();
    let mut extra = BTreeMap::<String, Vec<String>>::new();
    for name in names {
        let values = headers.get_all(format!("{EXTRA_PREFIX}{name}"));
        let values = values.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        extra.entry(unescaped(name)).or_default().extend(values);
    }
    Ok(extra)
}

/// Percent-decodes a key; a key with an invalid escape is used as written.
fn unescaped(key: &str) -> String {
    let whole = key
        .split('%')
        .skip(1)
        .all(|after| after.len() >= 2 && after.bytes().take(2).all(|digit| digit.is_ascii_hexdigit()));
    let decoded = percent_decode_str(key).decode_utf8();
    match decoded {
        Ok(decoded) if whole => decoded.into_owned(),
        _ => key.to_owned(),
    }
}

/// Formats the identity like Go prints the struct, as in Kubernetes' error.
fn as_go_prints(wanted: &ImpersonatedIdentity) -> String {
    let list = |items: &[String]| {
        let quoted: Vec<String> = items.iter().map(|item| quote(item)).collect();
        format!("[]string{{{}}}", quoted.join(", "))
    };
    let groups = if wanted.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&wanted.groups) };
    let mut extra = String::from("map[string][]string");
    if wanted.extra.is_empty() {
        extra.push_str("(nil)");
    } else {
        let entries: Vec<String> = wanted
            .extra
            .iter()
            .map(|(key, values)| {
                let values = list(values);
                format!("{}:{}", quote(key), values)
            })
            .collect();
        let _ = write!(extra, "{{{}}}", entries.join(", "));
    }
    format!("&user.DefaultInfo{{Name:\"\", UID:{}, Groups:{groups}, Extra:{extra}}}", quote(&wanted.uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "jane \"\" [] {}";

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    /// Returns `name uid groups extra`, `nobody`, or the error.
    fn shown(lines: &[(&str, &str)]) -> String {
        match read(&headers(lines)) {
            Ok(None) => "nobody".into(),
            Ok(Some(w)) => format!("{} {:?} {:?} {:?}", w.name, w.uid, w.groups, w.extra),
            Err(error) => error.status().message,
        }
    }

    #[test]
    fn headers_are_read_as_kubernetes_reads_them() {
        let user = ("Impersonate-User", "jane");
        for (lines, want) in [
            (&[][..], "nobody"),
            (&[user], PLAIN),
            (&[("IMPERSONATE-USER", "jane")], PLAIN),
            (&[("Impersonate-User", "")], "nobody"),
            // The first counts, so that a later one cannot be smuggled in.
            (&[user, ("Impersonate-User", "admin")], PLAIN),
            (&[("Impersonate-User", ""), user], "nobody"),
            (&[user, ("Impersonate-Uid", "7")], "jane \"7\" [] {}"),
            (&[user, ("Impersonate-Group", "b"), ("impersonate-group", "a")], "jane \"\" [\"b\", \"a\"] {}"),
            (&[user, ("Impersonate-Group", "")], "jane \"\" [\"\"] {}"),
            // A comma does not separate: group names may contain one.
            (&[user, ("Impersonate-Group", "a,b")], "jane \"\" [\"a,b\"] {}"),
            // Other spellings are different headers.
            (&[("Impersonate_User", "jane")], "nobody"),
            (&[("Impersonate-Users", "jane"), ("X-Impersonate-User", "jane")], "nobody"),
            (&[user, ("Impersonate_Group", "g"), ("Impersonate-Groups", "g")], PLAIN),
            (&[user, ("Impersonate-Extra", "v"), ("Impersonate_Extra-k", "v")], PLAIN),
        ] {
            assert_eq!(shown(lines), want, "{lines:?}");
        }
    }

    #[test]
    fn extra_keys_are_lower_case_and_unescaped() {
        for (header, key) in [
            ("Impersonate-Extra-Scopes", "scopes"),
            ("Impersonate-Extra-Acme.com%2FProject", "acme.com/project"),
            ("Impersonate-Extra-%41", "A"),
            ("Impersonate-Extra-50%", "50%"),
            ("Impersonate-Extra-%2", "%2"),
            ("Impersonate-Extra-%zz%2f", "%zz%2f"),
            ("Impersonate-Extra-%ff", "%ff"),
            ("Impersonate-Extra-", ""),
        ] {
            let read = read(&headers(&[("Impersonate-User", "jane"), (header, "v")]));
            let extra = read.unwrap().unwrap().extra;
            assert_eq!(extra, BTreeMap::from([(key.to_owned(), vec!["v".to_owned()])]), "{header}");
        }
    }

    #[test]
    fn spellings_of_one_extra_key_are_one_key() {
        let lines = [
            ("Impersonate-User", "jane"),
            ("Impersonate-Extra-k", "1"),
            ("Impersonate-Extra-%6b", "2"),
            ("Impersonate-Extra-K", "3"),
        ];
        assert_eq!(shown(&lines), "jane \"\" [] {\"k\": [\"2\", \"1\", \"3\"]}");
    }

    #[test]
    fn nothing_but_a_name_stands_alone() {
        let info = |uid: &str, groups: &str, extra: &str| {
            format!(
                "requested &user.DefaultInfo{{Name:\"\", UID:\"{uid}\", Groups:[]string{groups}, \
                 Extra:map[string][]string{extra}}} without impersonating a user name"
            )
        };
        for (line, want) in [
            (("Impersonate-Group", "a"), info("", "{\"a\"}", "(nil)")),
            (("Impersonate-Group", ""), info("", "{\"\"}", "(nil)")),
            (("Impersonate-Uid", "7"), info("7", "(nil)", "(nil)")),
            (("Impersonate-Extra-k", "v"), info("", "(nil)", "{\"k\":[]string{\"v\"}}")),
        ] {
            for lines in [&[line][..], &[("Impersonate-User", ""), line]] {
                assert_eq!(shown(lines), want, "{lines:?}");
            }
        }
    }

    #[test]
    fn other_encodings_are_refused() {
        let mut bytes = HeaderMap::new();
        bytes.insert(USER, HeaderValue::from_bytes(b"j\xe9").unwrap());
        assert!(matches!(read(&bytes), Err(Error::BadRequest(_))));
        assert_eq!(shown(&[("Impersonate-User", "jané")]), "jané \"\" [] {}");
    }
}
