//! Query options of each verb, parsed and validated as in Kubernetes.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_api::field::{FieldErrors, FieldPath, quote};

use super::query::QueryParameters;
use crate::error::Error;

/// Options of list, watch and deletecollection.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Label selector as sent by the client; empty selects everything.
    pub label_selector: String,
    /// Field selector as sent by the client; empty selects everything.
    pub field_selector: String,
    /// Requested state of the collection.
    pub version: ResourceVersionMatch,
    /// Page size; 0 returns everything.
    pub limit: usize,
    /// Continue token of the previous page.
    pub continue_: String,
    /// Requested duration of a watch.
    pub timeout: Option<Duration>,
    /// Whether the watcher accepts bookmark events (`allowWatchBookmarks`).
    pub bookmarks: bool,
    /// Whether a watch starts with the current state and marks its end (`sendInitialEvents`).
    pub send_initial_events: Option<bool>,
}

/// The state of a collection that a read requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResourceVersionMatch {
    /// No resource version given: the newest state, read consistently.
    #[default]
    Latest,
    /// `0`: any state, served from the cache.
    Any,
    /// A state at least as new as this revision.
    NotOlderThan(u64),
    /// The state at exactly this revision; fails with 410 if it was compacted.
    Exact(u64),
}

/// Options of create, update and patch.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Run all checks but store nothing.
    pub dry_run: bool,
    /// Handling of unknown and duplicate fields.
    pub field_validation: FieldValidation,
    /// Field manager to record; empty means the user agent.
    pub field_manager: String,
    /// Whether server-side apply takes over fields of other managers.
    pub force: Option<bool>,
}

/// Handling of fields that the schema does not define.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Unknown and duplicate fields are dropped without a warning.
    Ignore,
    /// Unknown and duplicate fields are dropped with a warning each.
    #[default]
    Warn,
    /// Unknown and duplicate fields are rejected with 400.
    Strict,
}

/// Options of delete, from the body or the query.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// Run all checks but delete nothing.
    pub dry_run: bool,
    /// Requested grace period in seconds.
    pub grace_period: Option<i64>,
    /// Deletion policy for dependents; `None` if the client sends none.
    pub propagation: Option<DeletionPropagation>,
    /// Precondition: delete only if the object has this UID.
    pub uid: Option<String>,
    /// Precondition: delete only if the object has this resource version.
    pub resource_version: Option<String>,
}

/// Handling of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionPropagation {
    /// Dependents stay, without the owner reference.
    Orphan,
    /// Dependents are garbage-collected after the owner is removed.
    Background,
    /// Dependents are removed before the owner, which a finalizer retains.
    Foreground,
}

impl ListOptions {
    /// Parses and validates the options of a list, or with `watch` of a watch.
    pub fn parse(query: &QueryParameters, watch: bool) -> Result<ListOptions, Error> {
        let text = |name| query.first(name).unwrap_or_default().to_owned();
        let version = text("resourceVersion");
        let matching = text("resourceVersionMatch");
        let send_initial_events = query.flag("sendInitialEvents");
        let continue_ = text("continue");
        let mut errors = FieldErrors::new();
        if watch {
            check_watch(&mut errors, &matching, send_initial_events, &continue_);
        } else {
            check_list(&mut errors, &version, &matching, send_initial_events, &continue_);
        }
        if !errors.is_empty() {
            return Err(Error::options("ListOptions", errors));
        }
        let limit = number(query, "limit")?.unwrap_or(0).max(0) as usize;
        let timeout = number(query, "timeoutSeconds")?;
        Ok(ListOptions {
            label_selector: text("labelSelector"),
            field_selector: text("fieldSelector"),
            version: read_version(&version, &matching, limit, watch)?,
            limit,
            continue_,
            timeout: timeout.map(|s| Duration::from_secs(s.max(0) as u64)),
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events,
        })
    }
}

fn check_list(
    errors: &mut FieldErrors,
    version: &str,
    matching: &str,
    initial: Option<bool>,
    continue_: &str,
) {
    let at = FieldPath::new("resourceVersionMatch");
    if !matching.is_empty() {
        if version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.forbidden(&at, why);
        }
        if !continue_.is_empty() {
            errors.forbidden(&at, "resourceVersionMatch is forbidden when continue is provided");
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            errors.not_supported(&at, matching, &["Exact", "NotOlderThan", ""]);
        }
        if matching == "Exact" && version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.forbidden(&at, why);
        }
    }
    if initial.is_some() {
        let why = "sendInitialEvents is forbidden for list";
        errors.forbidden(&FieldPath::new("sendInitialEvents"), why);
    }
}

fn check_watch(errors: &mut FieldErrors, matching: &str, initial: Option<bool>, continue_: &str) {
    let at = FieldPath::new("resourceVersionMatch");
    if initial.is_some() && matching != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.forbidden(&at, why);
    }
    if !matching.is_empty() {
        if initial.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.forbidden(&at, why);
        }
        if matching != "NotOlderThan" {
            errors.not_supported(&at, matching, &["NotOlderThan"]);
        }
        if !continue_.is_empty() {
            errors.forbidden(&at, "resourceVersionMatch is forbidden when continue is provided");
        }
    }
}

fn read_version(
    text: &str,
    matching: &str,
    limit: usize,
    watch: bool,
) -> Result<ResourceVersionMatch, Error> {
    Ok(match (text, matching) {
        ("", _) => ResourceVersionMatch::Latest,
        ("0", _) => ResourceVersionMatch::Any,
        (text, "Exact") => ResourceVersionMatch::Exact(parse_version(text)?),
        (text, "NotOlderThan") => ResourceVersionMatch::NotOlderThan(parse_version(text)?),
        // Legacy rule without `resourceVersionMatch`: a page of a given version is exact.
        (text, _) if limit > 0 && !watch => ResourceVersionMatch::Exact(parse_version(text)?),
        (text, _) => ResourceVersionMatch::NotOlderThan(parse_version(text)?),
    })
}

/// Parses a resourceVersion, with the error texts of Go's number parser.
pub(crate) fn parse_version(text: &str) -> Result<u64, Error> {
    let bad = |why: &str| {
        Error::BadRequest(format!(
            "invalid resource version: resourceVersion: Invalid value: {0}: strconv.ParseUint: parsing {0}: {why}",
            quote(text)
        ))
    };
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad("invalid syntax"));
    }
    text.parse().map_err(|_| bad("value out of range"))
}

fn number(query: &QueryParameters, name: &str) -> Result<Option<i64>, Error> {
    let Some(text) = query.first(name).filter(|t| !t.is_empty()) else { return Ok(None) };
    text.parse()
        .map(Some)
        .map_err(|_| Error::BadRequest(format!("strconv.ParseInt: parsing {}: invalid syntax", quote(text))))
}

impl WriteOptions {
    /// Parses and validates the options of a write; `kind` is `CreateOptions` or similar.
    pub fn parse(query: &QueryParameters, kind: &str) -> Result<WriteOptions, Error> {
        let mut errors = FieldErrors::new();
        let manager = query.first("fieldManager").unwrap_or_default();
        let force = query.flag("force");
        if kind == "PatchOptions" {
            check_manager(&mut errors, manager);
        }
        let dry_run = dry_run(query.values("dryRun"), &mut errors);
        if kind != "PatchOptions" {
            check_manager(&mut errors, manager);
        }
        let field_validation = match query.first("fieldValidation").unwrap_or_default() {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let at = FieldPath::new("fieldValidation");
                errors.not_supported(&at, other, &["", "Ignore", "Strict", "Warn"]);
                FieldValidation::Warn
            }
        };
        if !errors.is_empty() {
            return Err(Error::options(kind, errors));
        }
        Ok(WriteOptions { dry_run, field_validation, field_manager: manager.to_owned(), force })
    }

    /// Validates the options specific to patches, once the patch type is known.
    pub fn check_patch(&self, apply: bool) -> Result<(), Error> {
        let mut errors = FieldErrors::new();
        if apply && self.field_manager.is_empty() {
            errors.required(&FieldPath::new("fieldManager"), "is required for apply patch");
        }
        if !apply && self.force.is_some() {
            errors.forbidden(&FieldPath::new("force"), "may not be specified for non-apply patch");
        }
        if errors.is_empty() { Ok(()) } else { Err(Error::options("PatchOptions", errors)) }
    }
}

fn check_manager(errors: &mut FieldErrors, manager: &str) {
    let at = FieldPath::new("fieldManager");
    if manager.len() > 128 {
        errors.too_long(&at, 128);
    }
    for (i, c) in manager.char_indices() {
        if c.is_control() {
            let why = format!("should only contain printable characters (invalid rune at {i})");
            errors.invalid_str(&at, manager, &why);
        }
    }
}

fn dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut FieldErrors) -> bool {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|v| *v != "All") {
        // Kubernetes reports the whole list as the value.
        let shown = json!(values).to_string();
        errors.not_supported_raw(&FieldPath::new("dryRun"), &shown, &["All"]);
    }
    !values.is_empty()
}

impl DeleteOptions {
    /// Parses the options from the query only.
    pub fn from_query(query: &QueryParameters) -> Result<DeleteOptions, Error> {
        let mut body = serde_json::Map::new();
        if let Some(period) = number(query, "gracePeriodSeconds")? {
            body.insert("gracePeriodSeconds".into(), json!(period));
        }
        if let Some(policy) = query.first("propagationPolicy") {
            body.insert("propagationPolicy".into(), json!(policy));
        }
        if let Some(orphan) = query.flag("orphanDependents") {
            body.insert("orphanDependents".into(), json!(orphan));
        }
        let dry: Vec<&str> = query.values("dryRun").collect();
        if !dry.is_empty() {
            body.insert("dryRun".into(), json!(dry));
        }
        DeleteOptions::from_value(&Value::Object(body))
    }

    /// Parses the options from a decoded `DeleteOptions`.
    pub fn from_value(body: &Value) -> Result<DeleteOptions, Error> {
        let mut errors = FieldErrors::new();
        let orphan = body["orphanDependents"].as_bool();
        let policy = body["propagationPolicy"].as_str();
        if orphan.is_some() && policy.is_some() {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.invalid_str(&FieldPath::new("propagationPolicy"), policy.unwrap_or_default(), why);
        }
        let propagation = match (policy, orphan) {
            (Some("Orphan"), _) | (None, Some(true)) => Some(DeletionPropagation::Orphan),
            (Some("Foreground"), _) => Some(DeletionPropagation::Foreground),
            (Some("Background"), _) | (None, Some(false)) => Some(DeletionPropagation::Background),
            (Some(other), _) => {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                errors.not_supported(&FieldPath::new("propagationPolicy"), other, &known);
                None
            }
            (None, None) => None,
        };
        let asked = body["dryRun"].as_array().map(Vec::as_slice).unwrap_or_default();
        let dry_run = dry_run(asked.iter().filter_map(Value::as_str), &mut errors);
        if !errors.is_empty() {
            return Err(Error::options("DeleteOptions", errors));
        }
        let precondition = |name: &str| body["preconditions"][name].as_str().map(str::to_owned);
        Ok(DeleteOptions {
            dry_run,
            grace_period: body["gracePeriodSeconds"].as_i64(),
            propagation,
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(query: &str, watch: bool) -> Result<ListOptions, String> {
        ListOptions::parse(&QueryParameters::parse(Some(query)), watch).map_err(|e| e.status().message)
    }

    #[test]
    fn resource_versions_have_the_semantics_of_kubernetes() {
        for (query, want) in [
            ("", ResourceVersionMatch::Latest),
            ("resourceVersion=0", ResourceVersionMatch::Any),
            ("resourceVersion=7", ResourceVersionMatch::NotOlderThan(7)),
            ("resourceVersion=7&limit=1", ResourceVersionMatch::Exact(7)),
            ("resourceVersion=7&resourceVersionMatch=Exact", ResourceVersionMatch::Exact(7)),
            (
                "resourceVersion=7&limit=1&resourceVersionMatch=NotOlderThan",
                ResourceVersionMatch::NotOlderThan(7),
            ),
        ] {
            assert_eq!(list(query, false).unwrap().version, want, "{query}");
        }
    }

    #[test]
    fn invalid_options_are_reported_with_kubernetes_messages() {
        for (query, watch, words) in [
            ("resourceVersionMatch=Exact", false, "is forbidden unless resourceVersion is provided"),
            ("resourceVersion=0&resourceVersionMatch=Exact", false, "\"exact\" is forbidden for"),
            ("sendInitialEvents=1", false, "sendInitialEvents is forbidden for list"),
            ("sendInitialEvents=1", true, "requires setting resourceVersionMatch to NotOlderThan"),
            ("resourceVersionMatch=NotOlderThan", true, "forbidden for watch unless"),
            ("resourceVersion=x", false, "parsing \"x\": invalid syntax"),
            ("limit=x", false, "invalid syntax"),
        ] {
            let error = list(query, watch).unwrap_err();
            assert!(error.contains(words), "{query}: {error}");
        }
    }

    #[test]
    fn dry_run_is_all_or_nothing() {
        let query = QueryParameters::parse(Some("dryRun=Some"));
        let error = WriteOptions::parse(&query, "CreateOptions").unwrap_err().status();
        assert_eq!(
            error.message,
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""
        );
        let query = QueryParameters::parse(Some("dryRun=All"));
        assert!(WriteOptions::parse(&query, "CreateOptions").unwrap().dry_run);
    }
}
