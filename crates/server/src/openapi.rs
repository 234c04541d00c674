//! OpenAPI documents, which describe types and operations to clients.
//!
//! There is one version 3 document per group-version and one version 2 document of everything, in
//! JSON and in protobuf. They are rendered on request from the registry and the schema tables, one
//! part at a time, and not cached: together they are larger than the rest of an idle server. Only
//! their hashes are kept, because the document list contains them. Concurrent readers share a
//! document ([`shared_documents`]).

mod definitions;
mod endpoints;
mod gnostic;
mod parameters;
mod paths;
#[cfg(test)]
pub(crate) mod samples;
pub(crate) mod shared_documents;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::OnceLock;

use aws_lc_rs::digest;
use bytes::Bytes;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use crate::discovery::{etag, hex};
use crate::registry::KindRegistry;
use crate::registry::kind::SubresourceAction;
use definitions::{OpenApiVersion, SchemaDefinition};
use endpoints::ApiEndpoint;
use shared_documents::SharedDocuments;

/// Content type of the version 2 document in protobuf. Clients also request it with an `@` in place
/// of the dot after `v2`.
pub(crate) const PROTOBUF_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Renders the OpenAPI v2 and v3 documents of the registered kinds on demand.
pub struct OpenApiDocuments {
    registry: KindRegistry,
    hashes: OnceLock<BTreeMap<String, String>>,
    shared: SharedDocuments,
}

/// A document ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedDocument {
    /// Encoded document, as JSON or protobuf; shared by concurrent responses.
    pub body: Bytes,
    /// Entity tag, including its quotes.
    pub etag: String,
}

/// Response to a request for a version 3 document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentResponse {
    /// The document. If the client named its hash, the URL's content never changes (`Cache-Control:
    /// public, immutable`).
    Found {
        /// Document to send, with its entity tag.
        document: RenderedDocument,
        /// Whether clients may cache it permanently.
        immutable: bool,
    },
    /// The client named another hash; redirects (301) to this URL.
    Moved(String),
    /// No such document; responds with 404.
    NotFound,
}

impl OpenApiDocuments {
    pub fn new(registry: &KindRegistry) -> OpenApiDocuments {
        OpenApiDocuments {
            registry: KindRegistry::new(registry.kinds()),
            hashes: OnceLock::new(),
            shared: SharedDocuments::default(),
        }
    }

    /// Responds to `GET /openapi/v3` with the list of documents.
    pub fn v3_root(&self) -> RenderedDocument {
        let paths: BTreeMap<&String, Value> = self
            .hashes()
            .iter()
            .map(|(path, hash)| (path, json!({ "serverRelativeURL": address(path, hash) })))
            .collect();
        rendered(json!({ "paths": paths }).to_string().into_bytes())
    }

    /// Responds to `GET /openapi/v3/{path}?hash={hash}` with a document.
    pub fn v3_document(&self, path: &str, hash: Option<&str>) -> DocumentResponse {
        let path = path.trim_matches('/');
        let Some(current) = self.hashes().get(path) else { return DocumentResponse::NotFound };
        match hash {
            Some(hash) if !hash.is_empty() && hash != current => {
                DocumentResponse::Moved(address(path, current))
            }
            _ => {
                let Some(document) = self.build_v3(path) else { return DocumentResponse::NotFound };
                let document = self.shared.get(path, || {
                    let mut body = Vec::new();
                    document.write(&mut body);
                    RenderedDocument { body: body.into(), etag: format!("\"{current}\"") }
                });
                DocumentResponse::Found { document, immutable: hash.is_some_and(|h| !h.is_empty()) }
            }
        }
    }

    /// Responds to `GET /openapi/v2` in JSON.
    pub fn v2_document(&self) -> RenderedDocument {
        self.shared.get("v2", || {
            let mut body = Vec::new();
            self.build_v2().write(&mut body);
            rendered(body)
        })
    }

    /// Responds to `GET /openapi/v2` in protobuf ([`PROTOBUF_V2`]).
    pub fn v2_protobuf(&self) -> RenderedDocument {
        self.shared.get("v2.protobuf", || {
            let document = self.build_v2();
            let mut out = gnostic::GnosticDocument::new(&info());
            for endpoint in &document.endpoints {
                out.path(&endpoint.path, &paths::render(endpoint, OpenApiVersion::V2));
            }
            for (name, definition) in &document.definitions {
                out.definition(name, &document.definition(name, definition));
            }
            rendered(out.finish())
        })
    }

    fn hashes(&self) -> &BTreeMap<String, String> {
        self.hashes.get_or_init(|| {
            let hash = |path: String| Some((path.clone(), self.build_v3(&path)?.hash()));
            self.paths().into_iter().filter_map(hash).collect()
        })
    }

    fn paths(&self) -> Vec<String> {
        let mut paths = vec!["api".to_owned(), "apis".to_owned(), "version".to_owned()];
        for (group, versions) in self.registry.groups() {
            match group {
                "" => paths.extend(versions.iter().map(|version| format!("api/{version}"))),
                _ => {
                    paths.extend(versions.iter().map(|version| format!("apis/{group}/{version}")));
                    paths.push(format!("apis/{group}"));
                }
            }
        }
        paths
    }

    fn build_v3(&self, path: &str) -> Option<OpenApiDocument> {
        let endpoints = match path {
            "api" => vec![endpoints::core_endpoint()],
            "apis" => vec![endpoints::groups_endpoint()],
            "version" => vec![endpoints::version_endpoint()],
            _ => {
                let groups = self.registry.groups();
                let name = path.strip_prefix("api/").map(|version| ("", version));
                let name = name.or_else(|| {
                    let rest = path.strip_prefix("apis/")?;
                    Some(rest.split_once('/').unwrap_or((rest, "")))
                });
                let (group, version) = name?;
                let (group, versions) = groups.into_iter().find(|(g, _)| *g == group)?;
                match versions.into_iter().find(|v| *v == version) {
                    Some(version) => {
                        return Some(self.compose(
                            endpoints::version_endpoints(&self.registry, group, version),
                            OpenApiVersion::V3,
                            &[(group, version)],
                        ));
                    }
                    None if version.is_empty() => vec![endpoints::group_endpoint(group)],
                    None => return None,
                }
            }
        };
        Some(self.compose(endpoints, OpenApiVersion::V3, &[]))
    }

    /// Builds the only version 2 document.
    fn build_v2(&self) -> OpenApiDocument {
        let mut endpoints =
            vec![endpoints::core_endpoint(), endpoints::groups_endpoint(), endpoints::version_endpoint()];
        let mut versions = Vec::new();
        for (group, of_group) in self.registry.groups() {
            if !group.is_empty() {
                endpoints.push(endpoints::group_endpoint(group));
            }
            for version in of_group {
                endpoints.extend(endpoints::version_endpoints(&self.registry, group, version));
                versions.push((group, version));
            }
        }
        self.compose(endpoints, OpenApiVersion::V2, &versions)
    }

    fn compose(
        &self,
        mut endpoints: Vec<ApiEndpoint>,
        dialect: OpenApiVersion,
        versions: &[(&'static str, &'static str)],
    ) -> OpenApiDocument {
        endpoints.sort_by(|a, b| a.path.cmp(&b.path));
        let events = (!versions.is_empty()).then_some(WATCH_EVENT);
        let types = endpoints.iter().flat_map(ApiEndpoint::types).chain(events);
        let definitions = definitions::reachable(types);
        OpenApiDocument { definitions, endpoints, dialect, kinds: self.kinds(versions) }
    }

    /// Maps types to their group, version and kind, if any.
    fn kinds(&self, versions: &[(&'static str, &'static str)]) -> BTreeMap<String, Vec<GroupVersionKind>> {
        let mut kinds: BTreeMap<String, Vec<GroupVersionKind>> = BTreeMap::new();
        for kind in self.registry.kinds() {
            for served in kind.served {
                let gvk = GroupVersionKind { group: served.group, version: served.version, kind: kind.name };
                kinds.insert(served.type_name.to_owned(), vec![gvk]);
                let list = kind.list_type_name(served);
                if let Some((_, kind)) = definitions::full_name(&list).and_then(|n| n.rsplit_once('.')) {
                    kinds.insert(list, vec![GroupVersionKind { kind, ..gvk }]);
                }
            }
            for sub in kind.subresources {
                if let SubresourceAction::Create { group, version, kind, type_name } = sub.action {
                    kinds.insert(type_name.to_owned(), vec![GroupVersionKind { group, version, kind }]);
                }
            }
        }
        for kind in ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"] {
            kinds.insert(format!("{META}.{kind}"), vec![GroupVersionKind { group: "", version: "v1", kind }]);
        }
        for (name, kind) in [(DELETE_OPTIONS, "DeleteOptions"), (WATCH_EVENT, "WatchEvent")] {
            let others = versions.iter().filter(|v| **v != ("", "v1"));
            let all = [("", "v1")].into_iter().chain(others.copied());
            let all = all.map(|(group, version)| GroupVersionKind { group, version, kind });
            kinds.insert(name.to_owned(), all.collect());
        }
        kinds
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GroupVersionKind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
}

impl GroupVersionKind {
    fn as_json(&self) -> Value {
        json!({ "group": self.group, "version": self.version, "kind": self.kind })
    }
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";

/// A document before encoding. Its parts become JSON one at a time while it is encoded.
struct OpenApiDocument {
    definitions: BTreeMap<&'static str, SchemaDefinition>,
    endpoints: Vec<ApiEndpoint>,
    dialect: OpenApiVersion,
    kinds: BTreeMap<String, Vec<GroupVersionKind>>,
}

impl OpenApiDocument {
    fn definition(&self, name: &str, definition: &SchemaDefinition) -> Value {
        let kinds = self.kinds.get(name).map(Vec::as_slice).unwrap_or_default();
        definitions::render(definition, self.dialect, kinds)
    }

    fn write(&self, out: &mut impl io::Write) {
        if let Err(error) = serde_json::to_writer(out, self) {
            unreachable!("all keys are strings, and memory and hashes take every byte: {error}");
        }
    }

    fn hash(&self) -> String {
        let mut hash = HashWriter(digest::Context::new(&digest::SHA512));
        self.write(&mut io::BufWriter::new(&mut hash));
        hex(hash.0.finish().as_ref())
    }
}

impl Serialize for OpenApiDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.dialect {
            OpenApiVersion::V2 => {
                map.serialize_entry("swagger", "2.0")?;
                map.serialize_entry("info", &info())?;
                map.serialize_entry("paths", &PathsSection(self))?;
                map.serialize_entry("definitions", &DefinitionsSection(self))?;
                map.serialize_entry("securityDefinitions", &security())?;
                map.serialize_entry("security", &json!([{ "BearerToken": [] }]))?;
            }
            OpenApiVersion::V3 => {
                map.serialize_entry("openapi", "3.0.0")?;
                map.serialize_entry("info", &info())?;
                map.serialize_entry("paths", &PathsSection(self))?;
                map.serialize_entry("components", &ComponentsSection(self))?;
            }
        }
        map.end()
    }
}

struct ComponentsSection<'a>(&'a OpenApiDocument);

impl Serialize for ComponentsSection<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schemas", &DefinitionsSection(self.0))?;
        map.serialize_entry("securitySchemes", &security())?;
        map.end()
    }
}

struct DefinitionsSection<'a>(&'a OpenApiDocument);

impl Serialize for DefinitionsSection<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let definitions = self.0.definitions.iter();
        serializer.collect_map(definitions.map(|(name, d)| (name, self.0.definition(name, d))))
    }
}

struct PathsSection<'a>(&'a OpenApiDocument);

impl Serialize for PathsSection<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let endpoints = self.0.endpoints.iter();
        serializer.collect_map(endpoints.map(|e| (&e.path, paths::render(e, self.0.dialect))))
    }
}

/// Hashes everything written to it.
struct HashWriter(digest::Context);

impl io::Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn rendered(body: Vec<u8>) -> RenderedDocument {
    RenderedDocument { etag: etag(&body), body: body.into() }
}

fn address(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

fn info() -> Value {
    json!({ "title": "Windlass", "version": "unversioned" })
}

fn security() -> Value {
    json!({
        "BearerToken": {
            "description": "A bearer token.",
            "type": "apiKey",
            "in": "header",
            "name": "authorization",
        },
    })
}
