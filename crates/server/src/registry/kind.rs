//! What the machinery must know of a kind: one descriptor of plain data and pure functions.

use serde_json::Value;
use time::OffsetDateTime;
use windlass_api::field::FieldErrors;

use crate::feature_gates::ServerFeatureGates;
use crate::registry::certificatesigningrequests::CsrParser;
use crate::user::User;

/// One kind of object, with everything that sets it apart from the others.
///
/// [`Kind::DEFAULT`] has the values most kinds share; a descriptor overrides what differs:
/// `Kind { name: "Pod", plural: "pods", …, ..Kind::DEFAULT }`.
pub struct Kind {
    /// Kind as manifests write it, for example `Pod`.
    pub name: &'static str,
    /// Resource name in paths and RBAC rules, for example `pods`.
    pub plural: &'static str,
    /// Lower-case singular for discovery, for example `pod`.
    pub singular: &'static str,
    /// Abbreviations that kubectl accepts, for example `po`; may be empty.
    pub short_names: &'static [&'static str],
    /// Groups of resources that kubectl expands, for example `all`; may be empty.
    pub categories: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub scope: Scope,
    /// The group-versions it is served in, most preferred first within a group. The first is the one it is stored in.
    pub served: &'static [ServedVersion],
    /// Subresources in addition to the object itself, for example `status`.
    pub subresources: &'static [Subresource],
    /// The grammar of its names.
    pub name_rule: NameRule,
    /// Field selectors beyond `metadata.name` (and `metadata.namespace` for namespaced kinds):
    /// the label a client writes and where the value stands (JSON pointer). Several pointers:
    /// the first one present.
    pub selectable: &'static [SelectableField],
    /// Whether a namespaced kind can be selected by `metadata.namespace`.
    pub selects_namespace: bool,
    /// Table columns; empty means Name and Created At.
    pub columns: &'static [TableColumn],
    /// The cells of one row, as many as there are columns.
    pub row: fn(&Value, OffsetDateTime) -> Vec<Value>,
    /// What the row of an object says of the object itself: the conditions of a `TableRow`.
    pub row_conditions: fn(&Value) -> Vec<Value>,
    /// Whether `metadata.generation` is kept: 1 at creation, raised when anything but metadata
    /// and status changes.
    pub generation: bool,
    /// Whether a PUT without a resourceVersion overwrites (else it is a 422).
    pub unconditional_update: bool,
    /// Whether a PUT to a name that does not exist creates it.
    pub create_on_update: bool,
    /// Whether a whole collection can be deleted at once.
    pub delete_collection: bool,
    /// Fills in defaults after decoding, on every write, as Kubernetes does when it decodes.
    pub defaults: fn(&mut Value),
    /// Sets and resets what the server owns on a new object, before validation.
    pub prepare_create: fn(&mut Value),
    /// Notes on a new object who made it, after [`Kind::prepare_create`].
    pub prepare_create_as: fn(&mut Value, &User),
    /// Sets and resets what the server owns on a changed object (new, old), before validation.
    pub prepare_update: fn(&mut Value, &Value),
    /// The rules of the PKCS#10 request in a new object, checked between those on metadata and [`Kind::validate_create`].
    pub(crate) validate_csr: fn(&Value, &CsrParser, &mut FieldErrors),
    /// The rules of a new object, beyond those on metadata.
    pub validate_create: fn(&Value, &mut FieldErrors),
    /// The rules of a change (new, old), beyond those on metadata.
    pub validate_update: fn(&Value, &Value, &mut FieldErrors),
    /// The fields that writes never own, because the server sets them back, where they are others
    /// than usual (see `ResetFields`).
    pub resets: &'static [ResetFields],
    /// What a change (old, new) tells of the life of a certificate that was asked for. It is
    /// counted once the change is stored.
    pub issued: fn(&Value, &Value) -> Option<CertificateIssuance>,
    /// Whether the features that are on include this kind. Objects of a kind that is off stay in
    /// the store, out of sight.
    pub enabled: fn(ServerFeatureGates) -> bool,
    /// Whether deleting waits for `deletionGracePeriodSeconds` (pods on a node); given the
    /// object and the period the client asked for, the period to use.
    pub grace: fn(&Value, Option<i64>) -> i64,
    /// Whether objects have a grace period at all: then they are marked as deleted before they go,
    /// even where the period is zero, and watchers see both.
    pub graceful: bool,
    /// Changes an object that is being deleted (namespaces: phase Terminating).
    pub prepare_delete: fn(&mut Value),
    /// Whether a deleted object without finalizers may go (namespaces: not before the spec's own
    /// finalizers are gone).
    pub may_vanish: fn(&Value) -> bool,
    /// How long after its last write an object goes by itself.
    pub ttl: Option<std::time::Duration>,
    /// Whether a deletion that is done answers with the object instead of a `Status`.
    pub returns_deleted: bool,
    /// For kinds that are questions: which one. They are answered and not stored, and POST is all that
    /// can be done with them.
    pub review: Option<ReviewKind>,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kind({})", self.name)
    }
}

/// Whether objects of a kind live in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Objects have no namespace, as in `/api/v1/nodes/n`.
    Cluster,
    /// Objects live in a namespace, as in `/api/v1/namespaces/x/pods/p`.
    Namespaced,
}

/// One group-version in which a kind is served.
pub struct ServedVersion {
    /// Empty for the core group.
    pub group: &'static str,
    /// Version within the group, for example `v1`.
    pub version: &'static str,
    /// Its type in the schema: `io.k8s.api.core.v1.Pod`.
    pub type_name: &'static str,
    /// How to turn an object of this version into the stored one and back; `None` where they
    /// differ in `apiVersion` only.
    pub convert: Option<VersionConversion>,
}

impl PartialEq for ServedVersion {
    fn eq(&self, other: &ServedVersion) -> bool {
        (self.group, self.version) == (other.group, other.version)
    }
}

/// The two directions between a served version and the stored one. `apiVersion` and `kind` are
/// the machinery's business.
#[derive(Clone, Copy)]
pub struct VersionConversion {
    /// From this version to the stored one.
    pub to_stored: fn(Value) -> Value,
    /// From the stored version to this one.
    pub from_stored: fn(Value) -> Value,
}

/// A view on an object, or something done with it, under a name of its own.
pub struct Subresource {
    /// Last segment of the path, for example `status`.
    pub name: &'static str,
    /// Methods that the subresource supports and how they are handled.
    pub action: SubresourceAction,
}

impl Subresource {
    /// `status` as most kinds have it: the spec stays as it was, and there are no further rules.
    pub const STATUS: Subresource = Subresource {
        name: "status",
        action: SubresourceAction::View {
            prepare_update: |new, old, _| super::object_fields::restore_field(new, old, "spec"),
            validate_update: |_, _, _, _| {},
        },
    };
}

/// How requests to a subresource are handled.
pub enum SubresourceAction {
    /// GET, PUT and PATCH of the whole object, of which only a part may change.
    View {
        /// Sets back what this subresource may not change (new, old, now), before validation.
        prepare_update: fn(&mut Value, &Value, OffsetDateTime),
        /// The rules of a change through it (new, old, now).
        validate_update: fn(&Value, &Value, OffsetDateTime, &mut FieldErrors),
    },
    /// POST of another kind (`serviceaccounts/token`, `pods/eviction`, `pods/binding`),
    /// carried out by the server's own code for it.
    Create {
        /// The group of the posted kind (`authentication.k8s.io`).
        group: &'static str,
        /// Version of the posted kind, for example `v1`.
        version: &'static str,
        /// Name of the posted kind, for example `TokenRequest`.
        kind: &'static str,
        /// Its type in the schema.
        type_name: &'static str,
    },
    /// PUT only, of the whole object, to take away namespace finalizers (`namespaces/finalize`).
    Finalize,
}

/// The fields that a write through one subresource never owns. Without one, these are the status
/// for the object itself and the spec for its `status`.
pub struct ResetFields {
    /// Empty for the object itself.
    pub subresource: &'static str,
    /// Field paths, each as a list of keys from the object's root.
    pub fields: &'static [&'static [&'static str]],
}

/// A certificate was issued for a request that said how long it should live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateIssuance {
    /// Who issued it, among few enough names to count by.
    pub signer: String,
    /// Whether it lives about as long as was asked for.
    pub honored: bool,
}

/// A question that a kind stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewKind {
    /// TokenReview: which user does a token authenticate?
    Token,
    /// SelfSubjectReview: who is the caller, after impersonation?
    SelfSubject,
    /// SubjectAccessReview: may the given user perform an action?
    SubjectAccess,
    /// May they do it in this namespace?
    LocalSubjectAccess,
    /// SelfSubjectAccessReview: may the caller perform an action?
    SelfSubjectAccess,
    /// SelfSubjectRulesReview: which rules apply to the caller in a namespace?
    SelfSubjectRules,
}

/// The grammar of a kind's names. Returns what is wrong with a name; `prefix` is true for a
/// `generateName`, which may end in what a name may not end in.
pub(crate) type NameRule = fn(name: &str, prefix: bool) -> Vec<String>;

/// A field that clients may select by.
pub struct SelectableField {
    /// As the client writes it: `spec.nodeName`.
    pub label: &'static str,
    /// JSON pointers to the value, tried in order.
    pub pointers: &'static [&'static str],
    /// What an object without the field is selected by (`false` for flags).
    pub absent: &'static str,
}

/// A column of a kind's table.
pub struct TableColumn {
    /// Heading of the column, which kubectl prints in upper case.
    pub name: &'static str,
    /// OpenAPI type of the cells: `string`, `integer`, `date`, …
    pub kind: &'static str,
    /// `name` for the column that holds the object's name, else empty.
    pub format: &'static str,
    /// Shown by clients that show it.
    pub description: &'static str,
    /// 0: always shown; 1: with `-o wide`.
    pub priority: i32,
}

impl Kind {
    /// What most kinds have in common.
    pub const DEFAULT: Kind = Kind {
        name: "",
        plural: "",
        singular: "",
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

    /// The group-version it is stored in.
    pub fn stored(&self) -> &'static ServedVersion {
        &self.served[0]
    }

    /// The subresource of that name.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }
}

impl ServedVersion {
    /// Returns the `apiVersion` field: `v1` or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}
