//! Maps URLs to resources or other paths, and to the verb for authorization.

use http::Method;
use percent_encoding::percent_decode_str;

/// Target and verb of a request, for authorization and routing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// Verb: `get`, `list`, `watch`, `create`, … for resources; the lower-case method elsewhere.
    pub verb: &'static str,
    /// Resource or non-resource path that the request addresses.
    pub target: RequestTarget,
    /// Percent-decoded URL path, without the query.
    pub path: String,
}

/// Classification of a URL path into resource and non-resource paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestTarget {
    /// Resource path, for example `/api/v1/namespaces/n/pods/p/status`
    Resource(ResourcePath),
    /// Non-resource path: `/healthz`, `/apis`, …
    Path,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath {
    /// API group; empty for the core group.
    pub group: String,
    /// API version within the group, for example `v1`.
    pub version: String,
    /// Namespace; empty at cluster scope and for lists across namespaces.
    pub namespace: String,
    /// Whether the path leads through the namespace; false for a namespace itself.
    pub inside: bool,
    /// Plural resource name, for example `pods`.
    pub resource: String,
    /// Subresource, for example `status`; empty for the object itself.
    pub subresource: String,
    /// Object name; empty for requests on a collection.
    pub name: String,
    /// Whether the path has surplus segments.
    pub surplus: bool,
    /// Whether this is a deprecated `/watch/` path, a watch regardless of method and query.
    pub watch_path: bool,
}

/// An invalid URL path: bad escapes, NUL, or an encoded slash in a segment.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidPath;

impl RequestInfo {
    /// Parses a request line. `watch` and `name_selected` come from the query: whether it requests
    /// a watch, and the name required by `fieldSelector=metadata.name=…`.
    pub fn parse(
        method: &Method,
        raw_path: &str,
        watch: bool,
        name_selected: Option<&str>,
    ) -> Result<RequestInfo, InvalidPath> {
        let segments = segments(raw_path)?;
        let path = format!("/{}", segments.join("/"))
            + if raw_path.len() > 1 && raw_path.ends_with('/') { "/" } else { "" };
        let Some(mut resource) = resource_path(&segments) else {
            return Ok(RequestInfo { verb: plain_verb(method), target: RequestTarget::Path, path });
        };
        // A named object is read with get whatever the query says; only deprecated paths watch one.
        let watch = watch && resource.name.is_empty();
        let verb = match resource.watch_path {
            true => "watch",
            false => verb(method, watch, resource.name.is_empty()),
        };
        if matches!(verb, "list" | "watch" | "deletecollection")
            && resource.name.is_empty()
            && let Some(name) = name_selected
        {
            // `resourceNames` in a role can then cover a list or watch of one object.
            resource.name = name.to_owned();
        }
        Ok(RequestInfo { verb, target: RequestTarget::Resource(resource), path })
    }
}

fn segments(raw_path: &str) -> Result<Vec<String>, InvalidPath> {
    let mut out = Vec::with_capacity(8);
    for raw in raw_path.split('/').filter(|s| !s.is_empty()) {
        let text = percent_decode_str(raw).decode_utf8().map_err(|_| InvalidPath)?;
        // A decoded slash would change which resource the path names.
        if text.contains(['/', '\0']) {
            return Err(InvalidPath);
        }
        out.push(text.into_owned());
    }
    Ok(out)
}

fn resource_path(segments: &[String]) -> Option<ResourcePath> {
    let (group, version, mut rest) = match segments.first().map(String::as_str) {
        Some("api") if segments.len() >= 3 => ("", segments[1].as_str(), &segments[2..]),
        Some("apis") if segments.len() >= 4 => (segments[1].as_str(), segments[2].as_str(), &segments[3..]),
        _ => return None,
    };
    let mut found =
        ResourcePath { group: group.to_owned(), version: version.to_owned(), ..ResourcePath::default() };
    if rest.first().is_some_and(|s| s == "watch") && rest.len() > 1 {
        found.watch_path = true;
        rest = &rest[1..];
    }
    // `/namespaces/x` is the namespace itself; `/namespaces/x/pods` is inside it, but
    // `/namespaces/x/status` and `/finalize` are subresources of the namespace.
    if rest.len() > 2 && rest[0] == "namespaces" && !matches!(rest[2].as_str(), "status" | "finalize") {
        found.namespace = rest[1].clone();
        found.inside = true;
        rest = &rest[2..];
    } else if rest.len() >= 2 && rest[0] == "namespaces" {
        found.namespace = rest[1].clone();
    }
    found.resource = rest.first()?.clone();
    found.name = rest.get(1).cloned().unwrap_or_default();
    found.subresource = rest.get(2).cloned().unwrap_or_default();
    found.surplus = rest.len() > 3;
    Some(found)
}

fn plain_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "other",
    }
}

fn verb(method: &Method, watch: bool, collection: bool) -> &'static str {
    match (method, collection) {
        (&Method::GET | &Method::HEAD, _) if watch => "watch",
        (&Method::GET | &Method::HEAD, true) => "list",
        (&Method::GET | &Method::HEAD, false) => "get",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, true) => "deletecollection",
        (&Method::DELETE, false) => "delete",
        _ => plain_verb(method),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: Method, path: &str) -> (String, String) {
        let info = RequestInfo::parse(&method, path, false, None).unwrap();
        let text = match info.target {
            RequestTarget::Path => format!("path {}", info.path),
            RequestTarget::Resource(r) => {
                format!(
                    "{}|{}|{}|{}|{}|{}",
                    r.group, r.version, r.namespace, r.resource, r.name, r.subresource
                )
            }
        };
        (info.verb.to_owned(), text)
    }

    #[test]
    fn paths_are_read_as_kubernetes_reads_them() {
        for (method, path, verb, want) in [
            (Method::GET, "/api/v1/pods", "list", "|v1||pods||"),
            (Method::GET, "/api/v1/namespaces/n/pods/p", "get", "|v1|n|pods|p|"),
            (Method::PUT, "/api/v1/namespaces/n/pods/p/status", "update", "|v1|n|pods|p|status"),
            (Method::GET, "/api/v1/namespaces", "list", "|v1||namespaces||"),
            (Method::GET, "/api/v1/namespaces/n", "get", "|v1|n|namespaces|n|"),
            (Method::PUT, "/api/v1/namespaces/n/finalize", "update", "|v1|n|namespaces|n|finalize"),
            (Method::DELETE, "/apis/g/v1/things", "deletecollection", "g|v1||things||"),
            (Method::GET, "/api/v1/watch/pods", "watch", "|v1||pods||"),
            (Method::POST, "/api/v1/watch/namespaces/n/pods", "watch", "|v1|n|pods||"),
            (Method::GET, "/apis/g/v1/things/a%3Ab", "get", "g|v1||things|a:b|"),
            (Method::GET, "/apis/g/v1", "get", "path /apis/g/v1"),
            (Method::GET, "/healthz", "get", "path /healthz"),
        ] {
            assert_eq!(read(method, path), (verb.to_owned(), want.to_owned()), "{path}");
        }
    }

    #[test]
    fn hidden_slashes_nul_and_invalid_utf8_name_nothing() {
        for path in ["/api/v1/pods/a%2fb", "/api/v1/pods/a%00", "/api/v1/pods/%ff"] {
            assert_eq!(RequestInfo::parse(&Method::GET, path, false, None), Err(InvalidPath), "{path}");
        }
    }

    #[test]
    fn only_collections_are_watched_by_query() {
        for (path, verb) in [
            ("/api/v1/namespaces/n/pods", "watch"),
            ("/api/v1/namespaces/n/pods/p", "get"),
            ("/api/v1/watch/namespaces/n/pods/p", "watch"),
        ] {
            assert_eq!(RequestInfo::parse(&Method::GET, path, true, None).unwrap().verb, verb, "{path}");
        }
    }

    #[test]
    fn a_selected_name_is_the_name_for_authorization() {
        let info = RequestInfo::parse(&Method::GET, "/api/v1/secrets", true, Some("s")).unwrap();
        let RequestTarget::Resource(resource) = info.target else { panic!() };
        assert_eq!((info.verb, resource.name.as_str()), ("watch", "s"));
    }
}
