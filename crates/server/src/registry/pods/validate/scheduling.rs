//! Validation of scheduling, DNS and hosts settings.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;
use windlass_api::field::{FieldErrors, FieldPath};
use windlass_api::names;
use windlass_api::selector::labels;

use super::super::fields::{int, list, optional_text, part, text, texts};
use super::{label_name, report_all};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Validates the tolerations of a pod.
pub(super) fn tolerations(tolerations: &[Value], path: &FieldPath, errors: &mut FieldErrors) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let at = path.index(index);
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
        if !key.is_empty() {
            label_name(&at.child("key"), key, errors);
        } else if operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all \
                          values and all keys\"";
            errors.invalid_str(&at.child("operator"), operator, detail);
        }
        if int(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid_str(&at.child("effect"), effect, detail);
        }
        match operator {
            "" | "Equal" => {
                let broken = names::label_value(value);
                if !broken.is_empty() {
                    errors.invalid_str(&at.child("operator"), value, &broken.join(";"));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    errors.invalid_str(&at.child("operator"), value, detail);
                }
            }
            other => {
                errors.not_supported(&at.child("operator"), other, &["Equal", "Exists"]);
            }
        }
        if !effect.is_empty() {
            taint_effect(&at.child("effect"), effect, errors);
        }
    }
}

/// Validates the effect of a taint on pods that do not tolerate it.
pub(crate) fn taint_effect(path: &FieldPath, effect: &str, errors: &mut FieldErrors) {
    super::one_of(path, effect, &EFFECTS, errors);
}

/// Validates readiness gates, then scheduling gates.
pub(super) fn gates(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, gate) in list(spec, "readinessGates").iter().enumerate() {
        let at = path.child("readinessGates").index(index).child("conditionType");
        let kind = text(gate, "conditionType");
        report_all(&at, kind, names::qualified_name(kind), errors);
    }
    let mut seen = BTreeSet::new();
    for (index, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let at = path.child("schedulingGates").index(index);
        let name = text(gate, "name");
        report_all(&at, name, names::qualified_name(name), errors);
        if !seen.insert(name) {
            errors.duplicate(&at, &name.into());
        }
    }
}

/// Validates entries of the pod's hosts file.
pub(super) fn host_aliases(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, alias) in list(spec, "hostAliases").iter().enumerate() {
        let at = path.index(index);
        let ip = text(alias, "ip");
        report_all(&at.child("ip"), ip, names::ip_address(ip), errors);
        for (index, name) in texts(alias, "hostnames").into_iter().enumerate() {
            let at = at.child("hostnames").index(index);
            report_all(&at, name, names::dns1123_subdomain(name), errors);
        }
    }
}

/// Validates the DNS settings of a pod.
pub(super) fn dns_config(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const MAX_SERVERS: usize = 3;
    const MAX_SEARCHES: usize = 32;
    const MAX_SEARCH_CHARS: usize = 2048;
    let config = part(spec, "dnsConfig");
    let servers = config.map(|config| texts(config, "nameservers")).unwrap_or_default();
    if text(spec, "dnsPolicy") == "None" {
        if config.is_none() {
            return errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return errors.required(&path.child("nameservers"), detail);
        }
    }
    let Some(config) = config else { return };
    let at = path.child("nameservers");
    if servers.len() > MAX_SERVERS {
        let detail = format!("must not have more than {MAX_SERVERS} nameservers");
        errors.invalid(&at, &servers.clone().into(), &detail);
    }
    for (index, server) in servers.into_iter().enumerate() {
        report_all(&at.index(index), server, names::ip_address(server), errors);
    }
    let searches = texts(config, "searches");
    let at = path.child("searches");
    if searches.len() > MAX_SEARCHES {
        let detail = format!("must not have more than {MAX_SEARCHES} search paths");
        errors.invalid(&at, &searches.clone().into(), &detail);
    }
    if searches.join(" ").len() > MAX_SEARCH_CHARS {
        let detail = format!(
            "must not have more than {MAX_SEARCH_CHARS} characters (including spaces) in the search list"
        );
        errors.invalid(&at, &searches.clone().into(), &detail);
    }
    for (index, search) in searches.into_iter().enumerate() {
        search_path(&at.index(index), search, errors);
    }
    for (index, option) in list(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.required(&path.child("options").index(index), "must not be empty");
        }
    }
}

/// Validates a DNS search domain, in which underscores occur in practice; `.` disables searching.
fn search_path(path: &FieldPath, search: &str, errors: &mut FieldErrors) {
    if search == "." {
        return;
    }
    let search = search.strip_suffix('.').unwrap_or(search);
    // An underscore is allowed wherever a letter is.
    if !names::dns1123_subdomain(&search.replace('_', "a")).is_empty() {
        let words = names::regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
             '_', '-' or '.', and must start and end with an alphanumeric character",
            "[a-z0-9_]([-_a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        );
        errors.invalid_str(path, search, &words);
    }
}

/// Validates the topology spread constraints.
pub(super) fn spread(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let constraints = list(spec, "topologySpreadConstraints");
    let pair = |c| (text(c, "topologyKey"), text(c, "whenUnsatisfiable"));
    let last: HashMap<_, _> = constraints.iter().enumerate().map(|(i, c)| (pair(c), i)).collect();
    for (index, constraint) in constraints.iter().enumerate() {
        let at = path.index(index);
        let skew = int(constraint, "maxSkew").unwrap_or_default();
        if skew <= 0 {
            errors.invalid(&at.child("maxSkew"), &skew.into(), "must be greater than zero");
        }
        let (key, action) = (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
        if key.is_empty() {
            errors.required(&at.child("topologyKey"), "can not be empty");
        }
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&action) {
            let known = ["DoNotSchedule", "ScheduleAnyway"];
            errors.not_supported(&at.child("whenUnsatisfiable"), action, &known);
        }
        if last.get(&(key, action)).is_some_and(|last| *last > index) {
            let shown = format!("{{{key}, {action}}}");
            errors.duplicate(&at.child("{topologyKey, whenUnsatisfiable}"), &shown.into());
        }
        min_domains(constraint, action, &at.child("minDomains"), errors);
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if let Some(policy) = optional_text(constraint, field)
                && !["Honor", "Ignore"].contains(&policy)
            {
                errors.not_supported(&at.child(field), policy, &["Honor", "Ignore"]);
            }
        }
        match_label_keys(constraint, &at.child("matchLabelKeys"), errors);
        if let Some(labels) = part(constraint, "labelSelector") {
            labels::validate_label_selector(&at.child("labelSelector"), labels, errors);
        }
    }
}

fn min_domains(constraint: &Value, action: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(domains) = int(constraint, "minDomains") else { return };
    if domains <= 0 {
        errors.invalid(path, &domains.into(), "must be greater than zero");
    }
    if action != "DoNotSchedule" {
        let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        errors.invalid(path, &domains.into(), &detail);
    }
}

fn match_label_keys(constraint: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let keys = texts(constraint, "matchLabelKeys");
    if !keys.is_empty() && part(constraint, "labelSelector").is_none() {
        return errors.forbidden(path, "must not be specified when labelSelector is not set");
    }
    for (index, key) in keys.into_iter().enumerate() {
        label_name(&path.index(index), key, errors);
    }
}
