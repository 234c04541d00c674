//! Paths and operations, independent of the OpenAPI version.

use crate::discovery::verbs;
use crate::registry::KindRegistry;
use crate::registry::kind::{Kind, Scope, ServedVersion, Subresource, SubresourceAction};

use super::GroupVersionKind;
use super::definitions::PATCH;
use super::parameters::{self as p, OperationParameter};

/// One path of the API with its operations.
pub(super) struct ApiEndpoint {
    /// Path with parameters in braces, for example `/api/v1/nodes/{name}`.
    pub path: String,
    /// Operations available at the path.
    pub operations: Vec<EndpointOperation>,
}

/// One HTTP method on a path.
pub(super) struct EndpointOperation {
    /// HTTP method in lower case, for example `get`.
    pub method: &'static str,
    /// Unique operation ID, for example `readCoreV1Node`; client generators name functions after
    /// it.
    pub id: String,
    /// Group and version that clients sort operations by, for example `core_v1`.
    pub tag: String,
    pub description: String,
    /// `get`, `list`, `deletecollection`, …; `None` for non-resource paths.
    pub action: Option<&'static str>,
    pub kind: Option<GroupVersionKind>,
    /// Path and query parameters, sorted by name.
    pub parameters: Vec<OperationParameter>,
    /// Request body that the operation accepts, if any.
    pub body: OperationBody,
    /// Type of a successful response.
    pub answer: String,
    /// Status codes of successful responses.
    pub codes: &'static [u16],
    /// Whether it can respond with an event stream.
    pub streams: bool,
}

/// Request body that an operation accepts.
#[derive(Clone, Copy)]
pub(super) enum OperationBody {
    /// The operation accepts no request body.
    None,
    /// Required object of this type.
    Required(&'static str),
    /// Optional object of this type.
    Optional(&'static str),
    Patch,
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

pub(super) fn version_endpoints(
    registry: &KindRegistry,
    group: &'static str,
    version: &'static str,
) -> Vec<ApiEndpoint> {
    let place = GroupVersionPath::new(group, version);
    let root = place.answering("/", "APIResources", "APIResourceList", "List the resources");
    let mut endpoints = vec![root];
    for (kind, served) in registry.in_version(group, version) {
        endpoints.extend(ResourceEndpoints { place: &place, kind, served }.endpoints());
    }
    endpoints
}

pub(super) fn group_endpoint(group: &str) -> ApiEndpoint {
    let title = camel(group);
    fixed(
        format!("/apis/{group}/"),
        format!("get{title}APIGroup"),
        lower_first(&title),
        "List the versions of the group",
        format!("{META}.APIGroup"),
    )
}

/// Returns the discovery endpoint of the core group, `/api/`.
pub(super) fn core_endpoint() -> ApiEndpoint {
    let id = "getCoreAPIVersions".to_owned();
    let answer = format!("{META}.APIVersions");
    fixed("/api/".into(), id, "core".into(), "List the versions of the core group", answer)
}

/// Returns the discovery endpoint of all named groups, `/apis/`.
pub(super) fn groups_endpoint() -> ApiEndpoint {
    let answer = format!("{META}.APIGroupList");
    fixed("/apis/".into(), "getAPIVersions".into(), "apis".into(), "List the groups", answer)
}

/// Returns the endpoint of the server's version, `/version/`.
pub(super) fn version_endpoint() -> ApiEndpoint {
    let answer = "io.k8s.apimachinery.pkg.version.Info".to_owned();
    let id = "getCodeVersion".to_owned();
    fixed("/version/".into(), id, "version".into(), "Read the version of the server", answer)
}

impl ApiEndpoint {
    /// Iterates over the request and response types of the operations.
    pub(super) fn types(&self) -> impl Iterator<Item = &str> {
        self.operations.iter().flat_map(|operation| {
            let body = match operation.body {
                OperationBody::None => None,
                OperationBody::Required(name) | OperationBody::Optional(name) => Some(name),
                OperationBody::Patch => Some(PATCH),
            };
            body.into_iter().chain([operation.answer.as_str()])
        })
    }

    pub(super) fn shared(&self) -> Vec<OperationParameter> {
        let Some((first, rest)) = self.operations.split_first() else { return Vec::new() };
        let everywhere = |p: &&OperationParameter| rest.iter().all(|o| o.parameters.contains(p));
        first.parameters.iter().filter(everywhere).copied().collect()
    }
}

fn fixed(path: String, id: String, tag: String, what: &str, answer: String) -> ApiEndpoint {
    let operation = EndpointOperation {
        method: "get",
        id,
        tag,
        description: what.to_owned(),
        action: None,
        kind: None,
        parameters: Vec::new(),
        body: OperationBody::None,
        answer,
        codes: &[200],
        streams: false,
    };
    ApiEndpoint { path, operations: vec![operation] }
}

/// A group-version as used in paths and operation IDs.
struct GroupVersionPath {
    /// Path prefix, for example `/apis/certificates.k8s.io/v1`.
    base: String,
    /// Prefix of operation IDs, for example `CertificatesV1`.
    title: String,
    /// Tag of the operations, for example `certificates_v1`.
    tag: String,
}

impl GroupVersionPath {
    fn new(group: &str, version: &str) -> GroupVersionPath {
        let base = match group {
            "" => format!("/api/{version}"),
            _ => format!("/apis/{group}/{version}"),
        };
        let title = if group.is_empty() { "Core".to_owned() } else { camel(group) };
        let tag = format!("{}_{version}", lower_first(&title));
        GroupVersionPath { base, title: format!("{title}{}", upper_first(version)), tag }
    }

    fn answering(&self, path: &str, name: &str, answer: &str, what: &str) -> ApiEndpoint {
        let path = format!("{}{path}", self.base);
        let id = format!("get{}{name}", self.title);
        fixed(path, id, self.tag.clone(), what, format!("{META}.{answer}"))
    }
}

struct ResourceEndpoints<'a> {
    place: &'a GroupVersionPath,
    kind: &'static Kind,
    served: &'static ServedVersion,
}

impl ResourceEndpoints<'_> {
    fn endpoints(&self) -> Vec<ApiEndpoint> {
        if self.kind.review.is_some() {
            return vec![self.review()];
        }
        let mut endpoints = vec![self.collection(), self.item()];
        if self.namespaced() {
            endpoints.push(self.all_namespaces());
        }
        endpoints.extend(self.kind.subresources.iter().map(|sub| self.subresource(sub)));
        endpoints
    }

    fn collection(&self) -> ApiEndpoint {
        let name = self.kind.name;
        let list = EndpointOperation {
            answer: self.list_type(),
            streams: true,
            ..self.operation(
                "get",
                "list",
                "list",
                format!("List or watch {name} objects"),
                &[p::LIST, p::WATCH],
            )
        };
        let mut operations = vec![list, self.create()];
        if verbs(self.kind).contains(&"deletecollection") {
            operations.push(self.delete_collection());
        }
        ApiEndpoint { path: self.collection_path(), operations }
    }

    /// Returns the endpoint of a kind that supports only POST.
    fn review(&self) -> ApiEndpoint {
        ApiEndpoint { path: self.collection_path(), operations: vec![self.create()] }
    }

    fn create(&self) -> EndpointOperation {
        let what = format!("Create a {}", self.kind.name);
        EndpointOperation {
            body: OperationBody::Required(self.served.type_name),
            codes: &[200, 201, 202],
            ..self.operation("post", "create", "post", what, &[p::WRITE])
        }
    }

    fn delete_collection(&self) -> EndpointOperation {
        let what = format!("Delete the selected {} objects", self.kind.name);
        let parameters = &[p::LIST, p::DELETE];
        EndpointOperation {
            id: self.operation_id("delete", "Collection"),
            body: OperationBody::Optional(DELETE_OPTIONS),
            answer: format!("{META}.Status"),
            ..self.operation("delete", "delete", "deletecollection", what, parameters)
        }
    }

    fn all_namespaces(&self) -> ApiEndpoint {
        let what = format!("List or watch {} objects of all namespaces", self.kind.name);
        let mut list = EndpointOperation {
            answer: self.list_type(),
            streams: true,
            ..self.operation("get", "list", "list", what, &[p::LIST, p::WATCH])
        };
        list.id = format!("list{}{}ForAllNamespaces", self.place.title, self.kind.name);
        list.parameters.retain(|parameter| *parameter != p::NAMESPACE);
        let path = format!("{}/{}", self.place.base, self.kind.plural);
        ApiEndpoint { path, operations: vec![list] }
    }

    fn item(&self) -> ApiEndpoint {
        let name = self.kind.name;
        let mut operations = self.views(&format!("a {name}"));
        let answer = match self.kind.returns_deleted {
            true => self.served.type_name.to_owned(),
            false => format!("{META}.Status"),
        };
        operations.push(EndpointOperation {
            body: OperationBody::Optional(DELETE_OPTIONS),
            answer,
            codes: &[200, 202],
            ..self.operation("delete", "delete", "delete", format!("Delete a {name}"), &[p::DELETE])
        });
        for operation in &mut operations {
            p::insert(&mut operation.parameters, p::NAME);
        }
        ApiEndpoint { path: format!("{}/{{name}}", self.collection_path()), operations }
    }

    fn subresource(&self, sub: &Subresource) -> ApiEndpoint {
        let what = format!("the {} of a {}", sub.name, self.kind.name);
        let mut operations = match sub.action {
            SubresourceAction::View { .. } => self.views(&what),
            SubresourceAction::Finalize => vec![self.replace(&what)],
            SubresourceAction::Create { group, version, kind, type_name } => {
                let what = format!("Create {what}");
                vec![EndpointOperation {
                    body: OperationBody::Required(type_name),
                    answer: type_name.to_owned(),
                    codes: &[200, 201, 202],
                    kind: Some(GroupVersionKind { group, version, kind }),
                    ..self.operation("post", "create", "post", what, &[p::WRITE])
                }]
            }
        };
        for operation in &mut operations {
            operation.id.push_str(&upper_first(sub.name));
            p::insert(&mut operation.parameters, p::NAME);
        }
        ApiEndpoint { path: format!("{}/{{name}}/{}", self.collection_path(), sub.name), operations }
    }

    /// Returns the get, put and patch operations of an object or subresource.
    fn views(&self, what: &str) -> Vec<EndpointOperation> {
        let patch = EndpointOperation {
            body: OperationBody::Patch,
            codes: &[200, 201],
            ..self.operation("patch", "patch", "patch", format!("Patch {what}"), &[p::WRITE, p::FORCE])
        };
        vec![self.operation("get", "read", "get", format!("Read {what}"), &[]), self.replace(what), patch]
    }

    fn replace(&self, what: &str) -> EndpointOperation {
        EndpointOperation {
            body: OperationBody::Required(self.served.type_name),
            codes: &[200, 201],
            ..self.operation("put", "replace", "put", format!("Replace {what}"), &[p::WRITE])
        }
    }

    fn operation(
        &self,
        method: &'static str,
        verb: &str,
        action: &'static str,
        description: String,
        groups: &[&[OperationParameter]],
    ) -> EndpointOperation {
        let mut parameters = vec![p::PRETTY];
        if self.namespaced() {
            p::insert(&mut parameters, p::NAMESPACE);
        }
        for parameter in groups.iter().copied().flatten() {
            p::insert(&mut parameters, *parameter);
        }
        EndpointOperation {
            method,
            id: self.operation_id(verb, ""),
            tag: self.place.tag.clone(),
            description,
            action: Some(action),
            kind: Some(GroupVersionKind {
                group: self.served.group,
                version: self.served.version,
                kind: self.kind.name,
            }),
            parameters,
            body: OperationBody::None,
            answer: self.served.type_name.to_owned(),
            codes: &[200],
            streams: false,
        }
    }

    fn operation_id(&self, verb: &str, before: &str) -> String {
        let scope = if self.namespaced() { "Namespaced" } else { "" };
        format!("{verb}{}{before}{scope}{}", self.place.title, self.kind.name)
    }

    fn list_type(&self) -> String {
        self.kind.list_type_name(self.served)
    }

    fn namespaced(&self) -> bool {
        self.kind.scope == Scope::Namespaced
    }

    fn collection_path(&self) -> String {
        let namespace = if self.namespaced() { "/namespaces/{namespace}" } else { "" };
        format!("{}{namespace}/{}", self.place.base, self.kind.plural)
    }
}

/// Converts a group to camel case without its domain: `rbac.authorization.k8s.io` becomes
/// `RbacAuthorization`.
fn camel(group: &str) -> String {
    group.trim_end_matches(".k8s.io").split('.').map(upper_first).collect()
}

fn upper_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_ascii_lowercase()).into_iter().chain(chars).collect()
}
