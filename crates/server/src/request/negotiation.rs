//! Negotiation of response and request media types.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use super::query::QueryParameters;
use crate::error::Error;

/// Format and view of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputOptions {
    /// Syntax of the response body: JSON or YAML.
    pub format: OutputFormat,
    /// The object itself, or a view of it.
    pub view: ObjectView,
    /// Whether to indent the body; set by `?pretty` or the user agent.
    pub pretty: bool,
}

/// Syntax of a response body, chosen by the `Accept` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// JSON, the default media type: `application/json`
    Json,
    /// YAML, only where requested: `application/yaml`
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectView {
    /// The whole object, in the requested version.
    Object,
    /// A `Table` of `meta.k8s.io` in the given version.
    Table(MetaVersion),
    /// A `PartialObjectMetadata` (or list) of `meta.k8s.io` in the given version.
    Metadata(MetaVersion),
    /// Aggregated discovery: groups and resources in one document.
    Discovery,
}

/// Versions of `meta.k8s.io` in which views exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the documentation: they are the wire values")]
pub enum MetaVersion {
    V1,
    V1beta1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SupportedViews {
    /// Objects, tables and partial metadata: the views of ordinary resources.
    Resource,
    /// Objects and metadata: reviews, and subresources for which Kubernetes has no table converter.
    Untabled,
    /// Only the object itself: `Status`, reviews, …
    None,
    /// Discovery roots, plain or aggregated.
    Discovery,
}

/// The syntax of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputFormat {
    /// JSON, the default media type: `application/json`
    Json,
    /// YAML, converted before decoding: `application/yaml`
    Yaml,
    /// Protobuf in the envelope of Kubernetes: `application/vnd.kubernetes.protobuf`
    Protobuf,
}

/// The four patch types of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    /// JSON patch as specified in RFC 6902.
    Json,
    /// JSON merge patch as specified in RFC 7386.
    Merge,
    /// Strategic merge patch, which merges lists by key.
    Strategic,
    /// Server-side apply of a partial object by a field manager.
    Apply,
}

const ANSWERS: &str = "application/json, application/yaml";
const BODIES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

impl MetaVersion {
    /// Returns the version as written in media types: `v1` or `v1beta1`.
    pub fn as_str(self) -> &'static str {
        match self {
            MetaVersion::V1 => "v1",
            MetaVersion::V1beta1 => "v1beta1",
        }
    }
}

/// Chooses the response format from the `Accept` header.
pub(crate) fn output(
    headers: &HeaderMap,
    query: &QueryParameters,
    views: SupportedViews,
) -> Result<OutputOptions, Error> {
    let pretty = query.flag("pretty").unwrap_or_else(|| prefers_pretty(headers));
    let accept = headers.get(ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("").trim();
    if accept.is_empty() {
        return Ok(OutputOptions { format: OutputFormat::Json, view: ObjectView::Object, pretty });
    }
    let mut clauses: Vec<AcceptClause<'_>> = accept.split(',').filter_map(clause).collect();
    // Stable sort: among equals, the order of the header decides.
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(b.specific.cmp(&a.specific)));
    let chosen = clauses.iter().find_map(|c| Some((c.format()?, c.view(views)?, c.pretty)));
    let Some((format, view, wants_pretty)) = chosen else {
        return Err(Error::NotAcceptable(ANSWERS));
    };
    Ok(OutputOptions { format, view, pretty: pretty || wants_pretty })
}

/// Parses the `Content-Type` of an object body.
pub(crate) fn input(headers: &HeaderMap) -> Result<InputFormat, Error> {
    match media_type(headers).as_str() {
        "" | "application/json" => Ok(InputFormat::Json),
        "application/yaml" => Ok(InputFormat::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(InputFormat::Protobuf),
        _ => Err(Error::UnsupportedMediaType(format!(
            "the body of the request was in an unknown format - accepted media types include: {BODIES}"
        ))),
    }
}

/// Parses the `Content-Type` of a patch.
pub(crate) fn patch_type(headers: &HeaderMap) -> Result<PatchType, Error> {
    match media_type(headers).as_str() {
        "application/json-patch+json" => Ok(PatchType::Json),
        "application/merge-patch+json" => Ok(PatchType::Merge),
        "application/strategic-merge-patch+json" => Ok(PatchType::Strategic),
        "application/apply-patch+yaml" => Ok(PatchType::Apply),
        _ => Err(Error::UnsupportedPatchType),
    }
}

fn media_type(headers: &HeaderMap) -> String {
    let raw = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    raw.split(';').next().unwrap_or("").trim().to_ascii_lowercase()
}

fn prefers_pretty(headers: &HeaderMap) -> bool {
    let agent = headers.get(USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or("");
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|p| agent.starts_with(p))
}

/// One alternative of an `Accept` header.
struct AcceptClause<'a> {
    main: &'a str,
    sub: &'a str,
    quality: f32,
    /// Specificity: higher with fewer wildcards.
    specific: u8,
    pretty: bool,
    as_kind: &'a str,
    group: &'a str,
    version: &'a str,
}

fn clause(text: &str) -> Option<AcceptClause<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let (main, sub) = parts.next()?.split_once('/')?;
    let mut clause = AcceptClause {
        main,
        sub,
        quality: 1.0,
        specific: u8::from(main != "*") + u8::from(sub != "*"),
        pretty: false,
        as_kind: "",
        group: "",
        version: "",
    };
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name.trim() {
            "q" => clause.quality = value.parse().unwrap_or(0.0),
            "pretty" => clause.pretty = value == "1",
            "as" => clause.as_kind = value,
            "g" => clause.group = value,
            "v" => clause.version = value,
            // `stream`, `profile`, `charset` and unknown parameters do not affect the response.
            _ => {}
        }
    }
    Some(clause)
}

impl AcceptClause<'_> {
    fn format(&self) -> Option<OutputFormat> {
        match (self.main, self.sub) {
            ("*", "*") | ("application", "*" | "json") => Some(OutputFormat::Json),
            ("application", "yaml") => Some(OutputFormat::Yaml),
            _ => None,
        }
    }

    fn view(&self, views: SupportedViews) -> Option<ObjectView> {
        if self.as_kind.is_empty() {
            return Some(ObjectView::Object);
        }
        let meta = match self.version {
            "v1" => Some(MetaVersion::V1),
            "v1beta1" => Some(MetaVersion::V1beta1),
            _ => None,
        };
        match (views, self.group, self.as_kind) {
            (SupportedViews::Resource, "meta.k8s.io", "Table") => meta.map(ObjectView::Table),
            (
                SupportedViews::Resource | SupportedViews::Untabled,
                "meta.k8s.io",
                "PartialObjectMetadata" | "PartialObjectMetadataList",
            ) => meta.map(ObjectView::Metadata),
            (SupportedViews::Discovery, "apidiscovery.k8s.io", "APIGroupDiscoveryList")
                if self.version == "v2" =>
            {
                Some(ObjectView::Discovery)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiate(accept: &str, views: SupportedViews) -> Option<(OutputFormat, ObjectView)> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        output(&headers, &QueryParameters::default(), views).ok().map(|o| (o.format, o.view))
    }

    #[test]
    fn client_accept_headers_are_understood() {
        use OutputFormat::{Json, Yaml};
        let table = ObjectView::Table(MetaVersion::V1);
        for (accept, views, want) in [
            ("", SupportedViews::Resource, Some((Json, ObjectView::Object))),
            ("application/json", SupportedViews::Resource, Some((Json, ObjectView::Object))),
            ("*/*", SupportedViews::Resource, Some((Json, ObjectView::Object))),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                SupportedViews::Resource,
                Some((Json, ObjectView::Object)),
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                SupportedViews::Resource,
                Some((Json, table)),
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                SupportedViews::None,
                Some((Json, ObjectView::Object)),
            ),
            ("application/json;as=Table;v=v1;g=meta.k8s.io", SupportedViews::None, None),
            ("application/json;as=Table;v=v1;g=meta.k8s.io", SupportedViews::Untabled, None),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                SupportedViews::Untabled,
                Some((Json, ObjectView::Object)),
            ),
            (
                "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
                SupportedViews::Untabled,
                Some((Json, ObjectView::Metadata(MetaVersion::V1))),
            ),
            ("application/yaml", SupportedViews::Resource, Some((Yaml, ObjectView::Object))),
            (
                "application/json;q=0.1,application/yaml",
                SupportedViews::Resource,
                Some((Yaml, ObjectView::Object)),
            ),
            ("text/html", SupportedViews::Resource, None),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
                SupportedViews::Discovery,
                Some((Json, ObjectView::Discovery)),
            ),
            (
                "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
                SupportedViews::Resource,
                Some((Json, ObjectView::Metadata(MetaVersion::V1))),
            ),
        ] {
            assert_eq!(negotiate(accept, views), want, "{accept}");
        }
    }

    #[test]
    fn patches_need_one_of_four_types() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, "application/merge-patch+json; charset=utf-8".parse().unwrap());
        assert_eq!(patch_type(&headers).unwrap(), PatchType::Merge);
        headers.insert(CONTENT_TYPE, "application/json".parse().unwrap());
        assert!(patch_type(&headers).is_err());
    }
}
