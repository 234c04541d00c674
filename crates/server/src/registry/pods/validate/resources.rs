//! Validation of resources: names, amounts, and ratio of requests to limits.

use std::collections::BTreeSet;

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;

use super::super::fields::{entries, list, optional_text, part, text};
use super::super::nano_quantity::NanoQuantity;
use super::report_all;

/// Names without a prefix that are resources somewhere in the API.
const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

pub(super) fn container_resources(
    resources: &Value,
    claims: &BTreeSet<&str>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    requirements(resources, container_resource, path, errors);
    claim_names(resources, claims, &path.child("claims"), errors);
}

/// Validates the resources of the whole pod.
pub(super) fn pod_resources(spec: &Value, resources: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if part(resources, "claims").is_some() {
        let detail = "claims may not be set for Resources at pod-level";
        errors.forbidden(&path.child("claims"), detail);
    }
    requirements(resources, pod_resource, path, errors);
    for (index, container) in list(spec, "containers").iter().enumerate() {
        let own = part(container, "resources").unwrap_or(&Value::Null);
        for (name, limit) in entries(own, "limits") {
            let Some(whole) = resources.pointer("/limits").and_then(|all| all.get(name)) else {
                continue;
            };
            if NanoQuantity::from_value(limit) > NanoQuantity::from_value(whole) {
                let at = path.child("containers").index(index).key(name).child("limits");
                let detail =
                    format!("must be less than or equal to pod limits of {}", unquoted_quantity(whole));
                errors.invalid(&at, limit, &detail);
            }
        }
    }
}

/// Validates the pod's overhead beyond its containers.
pub(super) fn overhead(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(overhead) = part(spec, "overhead") {
        let as_limits = serde_json::json!({ "limits": overhead });
        requirements(&as_limits, container_resource, path, errors);
    }
}

/// Validates the pod's resource claims.
pub(super) fn pod_claims(claims: &[Value], path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for (index, claim) in claims.iter().enumerate() {
        let at = path.index(index);
        let name = text(claim, "name");
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        } else if !seen.insert(name) {
            errors.duplicate(&at.child("name"), &name.into());
        } else {
            report_all(&at.child("name"), name, names::dns1123_label(name), errors);
        }
        let fields = ["resourceClaimName", "resourceClaimTemplateName"];
        let given: Vec<&str> =
            fields.into_iter().filter(|field| optional_text(claim, field).is_some()).collect();
        let detail = match given.len() {
            0 => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            1 => "",
            _ => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        };
        if !detail.is_empty() {
            errors.invalid_shown(&at, &shown_claim(claim), detail);
        }
        for field in given {
            let name = text(claim, field);
            report_all(&at.child(field), name, names::dns1123_subdomain(name), errors);
        }
    }
}

fn shown_claim(claim: &Value) -> String {
    super::go_json::object(&[
        ("Name", super::go_json::string(text(claim, "name"))),
        ("ResourceClaimName", super::go_json::value(part(claim, "resourceClaimName"))),
        ("ResourceClaimTemplateName", super::go_json::value(part(claim, "resourceClaimTemplateName"))),
    ])
}

/// Validates an amount of one resource: never negative, and an integer for countable resources.
pub(crate) fn quantity(name: &str, amount: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let value = NanoQuantity::from_value(amount);
    if value.sign().is_lt() {
        errors.invalid(path, amount, "must be greater than or equal to 0");
    }
    if (is_counted(name) || is_extended(name)) && !value.is_whole() {
        errors.invalid(path, amount, "must be an integer");
    }
}

type NameCheck = fn(&str, &FieldPath, &mut FieldErrors);

fn requirements(resources: &Value, check: NameCheck, path: &FieldPath, errors: &mut FieldErrors) {
    let (limits_at, requests_at) = (path.child("limits"), path.child("requests"));
    for (name, limit) in entries(resources, "limits") {
        let at = limits_at.key(name);
        check(name, &at, errors);
        quantity(name, limit, &at, errors);
        huge_pages(name, limit, &at, errors);
    }
    for (name, request) in entries(resources, "requests") {
        let at = requests_at.key(name);
        check(name, &at, errors);
        quantity(name, request, &at, errors);
        let limit = resources.get("limits").and_then(|limits| limits.get(name));
        proportion(name, request, limit, &limits_at, &requests_at, errors);
        huge_pages(name, request, &at, errors);
    }
    let named: Vec<&str> = ["limits", "requests"]
        .into_iter()
        .flat_map(|field| entries(resources, field))
        .map(|(name, _)| name)
        .collect();
    let computes = named.iter().any(|name| matches!(*name, "cpu" | "memory"));
    if !computes && named.iter().any(|name| is_huge_pages(name)) {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
}

fn proportion(
    name: &str,
    request: &Value,
    limit: Option<&Value>,
    limits_at: &FieldPath,
    requests_at: &FieldPath,
    errors: &mut FieldErrors,
) {
    let overcommit = is_native(name) && !is_huge_pages(name);
    let Some(limit) = limit else {
        if !overcommit {
            let detail = "Limit must be set for non overcommitable resources";
            errors.required(limits_at, detail);
        }
        return;
    };
    let (asked, most) = (NanoQuantity::from_value(request), NanoQuantity::from_value(limit));
    if asked != most && !overcommit {
        let detail = format!("must be equal to {name} limit of {}", unquoted_quantity(limit));
        errors.invalid(requests_at, request, &detail);
    } else if asked > most {
        let detail = format!("must be less than or equal to {name} limit of {}", unquoted_quantity(limit));
        errors.invalid(requests_at, request, &detail);
    }
}

fn huge_pages(name: &str, amount: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(size) = name.strip_prefix("hugepages-") else { return };
    if !NanoQuantity::from_value(amount).is_multiple_of(NanoQuantity::from_text(size)) {
        let detail = format!("{} is not positive integer multiple of {name}", unquoted_quantity(amount));
        errors.invalid(path, amount, &detail);
    }
}

fn claim_names(resources: &Value, known: &BTreeSet<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut all: Option<String> = None;
    for (index, claim) in list(resources, "claims").iter().enumerate() {
        let at = path.index(index);
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            errors.required(&at, "");
            continue;
        }
        super::name(&at.child("request"), request, names::dns1123_label, errors);
        let whole_claim_taken = seen.contains(&(name, ""));
        let first = seen.range((name, "")..).next();
        let overlaps = request.is_empty() && first.is_some_and(|(other, _)| *other == name);
        if whole_claim_taken || overlaps {
            errors.duplicate(&at, &name.into());
        } else if !seen.insert((name, request)) {
            errors.duplicate(&at, &format!("{name}/{request}").into());
        }
        if !known.contains(name) {
            // Each of these errors contains all names.
            let detail = match errors.is_full() {
                true => "",
                false => all.get_or_insert_with(|| claim_list_text(known)).as_str(),
            };
            errors.not_found_because(&at, name, detail);
        }
    }
}

fn claim_list_text(known: &BTreeSet<&str>) -> String {
    let names: Vec<&str> = known.iter().copied().collect();
    let rest = match names.as_slice() {
        [] => " which is empty".to_owned(),
        names => format!(": {}", names.join(", ")),
    };
    format!("must be one of the names in pod.spec.resourceClaims{rest}")
}

fn container_resource(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    resource(name, path, errors);
    if !name.contains('/') {
        let usable = matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_pages(name);
        if !usable {
            errors.invalid_str(path, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid_str(path, name, "doesn't follow extended resource name standard");
    }
}

fn pod_resource(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let before = errors.len();
    resource(name, path, errors);
    let usable = matches!(name, "cpu" | "memory") || is_huge_pages(name);
    if errors.len() == before && !usable {
        errors.not_supported(path, name, &["cpu", "memory"]);
    }
}

fn resource(name: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let broken = names::qualified_name(name);
    let well_formed = broken.is_empty();
    report_all(path, name, broken, errors);
    let standard = STANDARD.contains(&name) || is_huge_pages(name) || name.starts_with("requests.hugepages-");
    if well_formed && !name.contains('/') && !standard {
        errors.invalid_str(path, name, "must be a standard resource type or fully qualified");
    }
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Resources that are counted in whole units.
fn is_counted(name: &str) -> bool {
    STANDARD[9..16].contains(&name) || STANDARD[18..].contains(&name)
}

fn unquoted_quantity(amount: &Value) -> String {
    amount.as_str().map_or_else(|| amount.to_string(), str::to_owned)
}
