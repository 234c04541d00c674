//! Redacts request URIs.

use http::Uri;

use crate::limits;

/// Query parameters defined by Kubernetes, which contain no secrets.
const KNOWN: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "dryRun",
    "exclude",
    "fieldManager",
    "fieldSelector",
    "fieldValidation",
    "force",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "includeObject",
    "labelSelector",
    "limit",
    "orphanDependents",
    "pretty",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeout",
    "timeoutSeconds",
    "verbose",
    "watch",
];

const REDACTED: &str = "REDACTED";

/// Returns path and query. Values of parameters unknown to Kubernetes are omitted, because users do
/// put tokens there.
pub(super) fn redacted_uri(uri: &Uri) -> String {
    let mut out = truncate(uri.path(), limits::AUDIT_URI).to_owned();
    let Some(query) = uri.query() else { return out };
    for (number, pair) in query.split('&').enumerate() {
        out.push(if number == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            _ if pair.is_empty() => {}
            Some((name, _)) if !KNOWN.contains(&name) => {
                out.push_str(name);
                out.push('=');
                out.push_str(REDACTED);
            }
            None if !KNOWN.contains(&pair) => out.push_str(REDACTED),
            Some(_) | None => out.push_str(pair),
        }
        if out.len() > limits::AUDIT_URI {
            break;
        }
    }
    if out.len() > limits::AUDIT_URI {
        out.truncate(truncate(&out, limits::AUDIT_URI).len());
        out.push_str("...TRUNCATED");
    }
    out
}

/// Truncates a string at a character boundary.
fn truncate(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_is_shown() {
        for (given, want) in [
            ("/api/v1/pods", "/api/v1/pods"),
            ("https://host/api/v1/pods?limit=5", "/api/v1/pods?limit=5"),
            ("/p?labelSelector=a%3Db&watch=1", "/p?labelSelector=a%3Db&watch=1"),
            ("/p?access_token=abc&watch", "/p?access_token=REDACTED&watch"),
            ("/p?watch=1&token=a=b&&x", "/p?watch=1&token=REDACTED&&REDACTED"),
            ("/p?Watch=secret&%77atch=secret", "/p?Watch=REDACTED&%77atch=REDACTED"),
            ("/p?", "/p?"),
        ] {
            assert_eq!(redacted_uri(&given.parse().unwrap()), want, "{given}");
        }
    }

    #[test]
    fn length_is_bounded() {
        let long = format!("/p?labelSelector={}&token=abc", "é".repeat(20_000));
        let uri = Uri::from_maybe_shared(long.into_bytes());
        for text in uri
            .iter()
            .map(redacted_uri)
            .chain([redacted_uri(&format!("/{}", "x".repeat(60_000)).parse().unwrap())])
        {
            assert!(text.len() < limits::AUDIT_URI + 20, "{}", text.len());
        }
    }
}
