//! Kind descriptors: plain data and pure functions that the generic request handling uses.

use serde_json::Value;
use time::OffsetDateTime;
use windlass_api::custom_resource::CustomResource;
use windlass_api::field::FieldErrors;

use crate::feature_gates::ServerFeatureGates;
use crate::registry::certificatesigningrequests::CsrParser;
use crate::user::User;

/// Descriptor of one kind of object.
///
/// [`Kind::DEFAULT`] has the values most kinds share; a descriptor overrides what differs: `Kind {
/// name: "Pod", plural: "pods", …, ..Kind::DEFAULT }`.
pub struct Kind {
    /// Kind as manifests write it, for example `Pod`.
    pub name: &'static str,
    /// Resource name in paths and RBAC rules, for example `pods`.
    pub plural: &'static str,
    /// Kind of lists where `name` followed by `List` is another kind; empty otherwise.
    pub list_kind_override: &'static str,
    /// Abbreviations that kubectl accepts, for example `po`; may be empty.
    pub short_names: &'static [&'static str],
    /// Groups of resources that kubectl expands, for example `all`; may be empty.
    pub categories: &'static [&'static str],
    /// Scope of objects: cluster or namespace.
    pub scope: Scope,
    /// Group-versions in which it is served, in order of preference within a group. The first is
    /// the storage version.
    pub served: &'static [ServedVersion],
    /// Subresources in addition to the object itself, for example `status`.
    pub subresources: &'static [Subresource],
    /// Grammar of the kind's object names.
    pub name_rule: NameRule,
    /// Field selectors beyond `metadata.name` (and `metadata.namespace` for namespaced kinds): the
    /// label that a client writes and the JSON pointers to the value. The first pointer present is
    /// used.
    pub selectable: &'static [SelectableField],
    /// Whether objects can be selected by `metadata.namespace` (namespaced kinds).
    pub selects_namespace: bool,
    /// Table columns; empty means Name and Created At.
    pub columns: &'static [TableColumn],
    /// Renders the cells of one row, one per column.
    pub row: fn(&Value, OffsetDateTime) -> Vec<Value>,
    /// Returns the conditions of an object's `TableRow`.
    pub row_conditions: fn(&Value) -> Vec<Value>,
    /// Whether `metadata.generation` is maintained: 1 at creation, incremented when anything except
    /// metadata and status changes.
    pub generation: bool,
    /// Whether a PUT without a resourceVersion overwrites (otherwise it is a 422).
    pub unconditional_update: bool,
    /// Whether a PUT to a missing name creates the object.
    pub create_on_update: bool,
    /// Whether objects are created one at a time on this server, because admission compares a new
    /// object with all others.
    pub exclusive_creates: bool,
    /// Whether deletecollection is supported for the kind.
    pub delete_collection: bool,
    /// Sets defaults after decoding, on every write, as Kubernetes does when it decodes.
    pub defaults: fn(&mut Value),
    /// Sets and resets server-owned fields of a new object, before validation.
    pub prepare_create: fn(&mut Value),
    /// Records the creator on a new object, after [`Kind::prepare_create`].
    pub prepare_create_as: fn(&mut Value, &User),
    /// Sets and resets server-owned fields of a changed object (new, old), before validation.
    pub prepare_update: fn(&mut Value, &Value),
    /// The rules of the PKCS#10 request in a new object, checked between those on metadata and [`Kind::validate_create`].
    pub(crate) validate_csr: fn(&Value, &CsrParser, &mut FieldErrors),
    /// Validates a new object, in addition to the metadata rules.
    pub validate_create: fn(&Value, &mut FieldErrors),
    /// Validates an update (new, old), in addition to the metadata rules.
    pub validate_update: fn(&Value, &Value, &mut FieldErrors),
    /// The fields that writes never own, because the server sets them back, where they are others
    /// than usual (see `ResetFields`).
    pub resets: &'static [ResetFields],
    /// Returns the certificate issuance in a change (old, new) for the lifetime metric; counted
    /// once the change is stored.
    pub issued: fn(&Value, &Value) -> Option<CertificateIssuance>,
    /// Whether the feature gates enable this kind. Objects of a disabled kind stay in the store but
    /// are not served.
    pub enabled: fn(ServerFeatureGates) -> bool,
    /// Returns the `deletionGracePeriodSeconds` to use (pods on a node), given the object and the
    /// period that the client requested.
    pub grace: fn(&Value, Option<i64>) -> i64,
    /// Whether objects have a grace period: they are then marked as deleted before removal, even if
    /// the period is zero, and watchers see both events.
    pub graceful: bool,
    /// Changes an object when its deletion starts (namespaces: phase Terminating).
    pub prepare_delete: fn(&mut Value),
    /// Whether a deleted object without finalizers may be removed (namespaces: only after the
    /// finalizers in the spec).
    pub may_vanish: fn(&Value) -> bool,
    /// Time after the last write at which an object expires; `None` means never.
    pub ttl: Option<std::time::Duration>,
    /// Whether a completed deletion returns the object instead of a `Status`.
    pub returns_deleted: bool,
    /// Review that the kind performs. Reviews are answered and not stored, and support only POST.
    pub review: Option<ReviewKind>,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kind({})", self.name)
    }
}

/// Whether objects of a kind are namespaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Objects have no namespace, as in `/api/v1/nodes/n`.
    Cluster,
    /// Objects live in a namespace, as in `/api/v1/namespaces/x/pods/p`.
    Namespaced,
}

/// One group-version in which a kind is served.
pub struct ServedVersion {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version within the group, for example `v1`.
    pub version: &'static str,
    /// Type in the schema, for example `io.k8s.api.core.v1.Pod`.
    pub type_name: &'static str,
    /// Conversion between this version and the stored one; `None` if they differ only in
    /// `apiVersion`.
    pub convert: Option<VersionConversion>,
}

impl PartialEq for ServedVersion {
    fn eq(&self, other: &ServedVersion) -> bool {
        (self.group, self.version) == (other.group, other.version)
    }
}

/// Conversions between a served version and the stored one. The generic code handles `apiVersion`
/// and `kind`.
#[derive(Clone, Copy)]
pub struct VersionConversion {
    /// Converts from this version to the stored one.
    pub to_stored: fn(Value) -> Value,
    /// Converts from the stored version to this one.
    pub from_stored: fn(Value) -> Value,
}

/// A named view of an object, or an operation on it.
pub struct Subresource {
    /// Last segment of the path, for example `status`.
    pub name: &'static str,
    /// Methods that the subresource supports and how they are handled.
    pub action: SubresourceAction,
}

impl Subresource {
    /// `status` of most kinds: the spec is unchanged, and there are no further rules.
    pub const STATUS: Subresource = Subresource::status(
        |new, old, _| super::object_fields::restore_field(new, old, "spec"),
        |_, _, _, _| {},
    );

    /// `status` with the functions of [`SubresourceAction::View`].
    pub const fn status(prepare_update: PrepareView, validate_update: ValidateView) -> Subresource {
        Subresource { name: "status", action: SubresourceAction::View { prepare_update, validate_update } }
    }
}

type PrepareView = fn(&mut Value, &Value, OffsetDateTime);
type ValidateView = fn(&Value, &Value, OffsetDateTime, &mut FieldErrors);

/// How requests to a subresource are handled.
pub enum SubresourceAction {
    /// GET, PUT and PATCH of the whole object, of which only a part can change.
    View {
        /// Resets what this subresource cannot change (new, old, now), before validation.
        prepare_update: PrepareView,
        /// Validates an update through it (new, old, now).
        validate_update: ValidateView,
    },
    /// POST of another kind (`serviceaccounts/token`, `pods/eviction`, `pods/binding`), handled by
    /// dedicated code in the server.
    Create {
        /// Group of the posted kind, for example `authentication.k8s.io`.
        group: &'static str,
        /// Version of the posted kind, for example `v1`.
        version: &'static str,
        /// Name of the posted kind, for example `TokenRequest`.
        kind: &'static str,
        /// Type of the posted kind in the schema.
        type_name: &'static str,
    },
    /// PUT of the whole object, to remove namespace finalizers (`namespaces/finalize`).
    Finalize,
}

/// Fields that a write through one subresource never owns. By default these are the status for the
/// main resource and the spec for `status`.
pub struct ResetFields {
    /// Name of the subresource; empty for the main resource.
    pub subresource: &'static str,
    /// Field paths, each as a list of keys from the object's root.
    pub fields: &'static [&'static [&'static str]],
}

/// A certificate issued for a request with a lifetime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateIssuance {
    /// Signer, reduced to a bounded set of metric labels.
    pub signer: String,
    /// Whether its lifetime is approximately the requested one.
    pub honored: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewKind {
    /// TokenReview: which user does a token authenticate?
    Token,
    /// SelfSubjectReview: who is the caller, after impersonation?
    SelfSubject,
    /// SubjectAccessReview: may the given user perform an action?
    SubjectAccess,
    /// LocalSubjectAccessReview: may the given user perform an action in this namespace?
    LocalSubjectAccess,
    /// SelfSubjectAccessReview: may the caller perform an action?
    SelfSubjectAccess,
    /// SelfSubjectRulesReview: which rules apply to the caller in a namespace?
    SelfSubjectRules,
}

/// Grammar of a kind's names. Returns the violations; `prefix` is true for a `generateName`, which
/// may end in characters that a name may not.
pub(crate) type NameRule = fn(name: &str, prefix: bool) -> Vec<String>;

/// A field that clients can select by.
pub struct SelectableField {
    /// Selector label as clients write it, for example `spec.nodeName`.
    pub label: &'static str,
    /// JSON pointers to the value, tried in order.
    pub pointers: &'static [&'static str],
    /// Value for objects without the field (`false` for flags).
    pub absent: &'static str,
}

impl SelectableField {
    /// Creates a field that selects as the empty string where it is absent.
    pub const fn new(label: &'static str, pointers: &'static [&'static str]) -> SelectableField {
        SelectableField { label, pointers, absent: "" }
    }
}

pub struct TableColumn {
    /// Heading of the column, which kubectl prints in upper case.
    pub name: &'static str,
    /// OpenAPI type of the cells: `string`, `integer`, `date`, …
    pub kind: &'static str,
    /// `name` for the column that holds the object's name, else empty.
    pub format: &'static str,
    /// Description of the column for clients that show it; `None` for the one that Kubernetes has in
    /// `column_descriptions.txt`.
    pub description: Option<&'static str>,
    /// Priority: 0 is always shown, 1 with `-o wide`.
    pub priority: i32,
}

impl Kind {
    /// Defaults that most kinds share.
    pub const DEFAULT: Kind = Kind {
        name: "",
        plural: "",
        list_kind_override: "",
        short_names: &[],
        categories: &[],
        scope: Scope::Namespaced,
        served: &[],
        subresources: &[],
        name_rule: windlass_api::names::dns1123_subdomain_rule,
        selectable: &[],
        selects_namespace: true,
        columns: &[],
        row: |_, _| Vec::new(),
        row_conditions: |_| Vec::new(),
        generation: false,
        unconditional_update: true,
        create_on_update: false,
        exclusive_creates: false,
        delete_collection: true,
        defaults: |_| {},
        prepare_create: |_| {},
        prepare_create_as: |_, _| {},
        prepare_update: |_, _| {},
        validate_csr: |_, _, _| {},
        validate_create: |_, _| {},
        validate_update: |_, _, _| {},
        resets: &[],
        issued: |_, _| None,
        enabled: |_| true,
        grace: |_, _| 0,
        graceful: false,
        prepare_delete: |_| {},
        may_vanish: |_| true,
        ttl: None,
        returns_deleted: false,
        review: None,
    };

    /// Defaults of a kind that is a custom resource on other servers.
    pub(crate) const fn custom(resource: &CustomResource) -> Kind {
        Kind {
            name: resource.kind,
            plural: resource.plural,
            list_kind_override: resource.list_kind_override,
            short_names: resource.short_names,
            scope: Scope::Cluster,
            unconditional_update: false,
            ..Kind::DEFAULT
        }
    }

    /// Returns the lower-case singular for discovery, for example `pod`.
    pub fn singular(&self) -> String {
        self.name.to_ascii_lowercase()
    }

    /// Returns the group-version in which it is stored.
    pub fn stored(&self) -> &'static ServedVersion {
        &self.served[0]
    }

    /// Returns the kind of lists of the objects, for example `PodList`.
    pub fn list_kind(&self) -> String {
        match self.list_kind_override {
            "" => format!("{}List", self.name),
            other => other.to_owned(),
        }
    }

    pub(crate) fn list_type_name(&self, served: &ServedVersion) -> String {
        let package = served.type_name.rsplit_once('.').map_or("", |(package, _)| package);
        match self.list_kind_override {
            "" => format!("{}List", served.type_name),
            other => format!("{package}.{other}"),
        }
    }

    /// Returns the subresource with this name.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }
}

impl ServedVersion {
    /// Creates a version that differs from the stored one in `apiVersion` at most.
    pub const fn new(group: &'static str, version: &'static str, type_name: &'static str) -> ServedVersion {
        ServedVersion { group, version, type_name, convert: None }
    }

    /// Returns the `apiVersion` field: `v1` or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}
