//! Parameters of OpenAPI operations.

/// One path or query parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OperationParameter {
    /// Name in the path or query, for example `labelSelector`.
    pub name: &'static str,
    /// Whether it is a path parameter, and therefore required.
    pub in_path: bool,
    /// JSON type of the value: `string`, `integer` or `boolean`.
    pub kind: &'static str,
    /// Purpose of the parameter, in one sentence.
    pub description: &'static str,
}

/// Inserts a parameter, sorted by name.
pub(super) fn insert(parameters: &mut Vec<OperationParameter>, parameter: OperationParameter) {
    if let Err(at) = parameters.binary_search_by_key(&parameter.name, |p| p.name) {
        parameters.insert(at, parameter);
    }
}

/// Path parameter of operations on a single object.
pub(super) const NAME: OperationParameter =
    OperationParameter { name: "name", in_path: true, kind: "string", description: "The object's name." };

pub(super) const NAMESPACE: OperationParameter = OperationParameter {
    name: "namespace",
    in_path: true,
    kind: "string",
    description: "The object's namespace.",
};

/// Query parameter that every operation accepts.
pub(super) const PRETTY: OperationParameter = query("pretty", "string", "If true, the answer is indented.");

/// Query parameters of operations that select objects.
pub(super) const LIST: &[OperationParameter] = &[
    query("continue", "string", "Where to go on, as the previous page of the list said."),
    query("fieldSelector", "string", "Only objects with these field values."),
    query("labelSelector", "string", "Only objects with these labels."),
    query("limit", "integer", "The number of objects on a page."),
    query("resourceVersion", "string", "The version of the data that is asked for."),
    query("resourceVersionMatch", "string", "Exact or NotOlderThan: how to read resourceVersion."),
    query("sendInitialEvents", "boolean", "Whether a watch begins with the objects there are."),
    query("shardSelector", "string", "Only objects of a part of the range of hashes."),
    query("timeoutSeconds", "integer", "When to end, whether done or not."),
];

/// Query parameters of operations that support watch.
pub(super) const WATCH: &[OperationParameter] = &[
    query("allowWatchBookmarks", "boolean", "Whether a watch may send bookmarks."),
    query("watch", "boolean", "Whether to stream changes instead of listing."),
];

/// Query parameters of operations that write an object.
pub(super) const WRITE: &[OperationParameter] = &[
    DRY_RUN,
    query("fieldManager", "string", "The name under which the fields written are owned."),
    query("fieldValidation", "string", "Ignore, Warn or Strict: what to do about unknown fields."),
];

/// Query parameters of patches only; `force` belongs to server-side apply.
pub(super) const FORCE: &[OperationParameter] =
    &[query("force", "boolean", "Whether an applied patch takes fields from other owners.")];

/// Query parameters of delete and deletecollection.
pub(super) const DELETE: &[OperationParameter] = &[
    DRY_RUN,
    query("gracePeriodSeconds", "integer", "How long to wait before the object is gone."),
    query(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Whether to delete an object that cannot be read.",
    ),
    query("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
    query("propagationPolicy", "string", "Orphan, Background or Foreground: the fate of dependents."),
];

const DRY_RUN: OperationParameter = query("dryRun", "string", "All: check everything and store nothing.");

const fn query(name: &'static str, kind: &'static str, description: &'static str) -> OperationParameter {
    OperationParameter { name, in_path: false, kind, description }
}
