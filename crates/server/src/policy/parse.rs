//! Reads `defaults.policy`.
//!
//! A block is a role with its binding, which has the same name, or a binding alone:
//!
//! ```text
//! role NAME [in NAMESPACE] [if FEATURE]
//! binding NAME in NAMESPACE of ROLE
//! ```
//!
//! Its indented lines say the rest:
//!
//! ```text
//! VERBS GROUPS RESOURCES [named NAMES] [if FEATURE]     a rule on resources
//! VERBS at PATHS                                        a rule on paths
//! events                                                the rule on events that many share
//! to user NAME | to group NAME | to account NAMESPACE/NAME | to nobody
//! joins ROLE                                            its rules become part of that role
//! gathers ROLE                                          it is that role
//! ```
//!
//! Lists are separated by commas and sorted. `read` is get, list and watch; `write` is create, delete,
//! deletecollection, patch and update; `core` is the group without a name. A role without a `to`
//! has no binding.

use serde_json::{Map, Value, json};

use crate::feature_gates::ServerFeatureGates;
use crate::registry::kind::Kind;
use crate::registry::rbac::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, GROUP, ROLE, ROLE_BINDING};

/// An object that exists by default.
pub(crate) struct DefaultObject {
    /// Kind of the default: role, cluster role, or one of the bindings.
    pub kind: &'static Kind,
    /// Key: `namespace/name`, or `name` at cluster scope.
    pub key: String,
    pub object: Value,
}

impl DefaultObject {
    /// Returns the API path of its collection.
    pub(crate) fn collection(&self) -> String {
        let plural = self.kind.plural;
        match self.key.split_once('/') {
            Some((namespace, _)) => format!("/apis/{GROUP}/v1/namespaces/{namespace}/{plural}"),
            None => format!("/apis/{GROUP}/v1/{plural}"),
        }
    }

    /// Returns the API path of the object itself, below its collection.
    pub(crate) fn path(&self) -> String {
        let name = self.key.split_once('/').map_or(self.key.as_str(), |(_, name)| name);
        format!("{}/{name}", self.collection())
    }
}

/// A syntax error in the policy file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub(crate) struct PolicyParseError {
    line: usize,
    what: &'static str,
}

/// Returns the default objects for the enabled `features`.
pub(crate) fn defaults(features: ServerFeatureGates) -> Result<Vec<DefaultObject>, PolicyParseError> {
    parse(include_str!("defaults.policy"), features)
}

fn parse(text: &str, features: ServerFeatureGates) -> Result<Vec<DefaultObject>, PolicyParseError> {
    let mut blocks: Vec<PolicyBlock> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let fail = |what| PolicyParseError { line: i + 1, what };
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] => {}
            [first, ..] if first.starts_with('#') => {}
            words if line.starts_with(' ') => {
                let block = blocks.last_mut().ok_or_else(|| fail("a line before any role"))?;
                block.add(words, features).map_err(fail)?;
            }
            words => blocks.push(PolicyBlock::begin(words, features).map_err(fail)?),
        }
    }
    Ok(blocks.iter().filter(|block| block.enabled).flat_map(PolicyBlock::objects).collect())
}

/// A role and its binding while they are parsed.
struct PolicyBlock {
    name: String,
    namespace: Option<String>,
    /// Whether the required feature is enabled.
    enabled: bool,
    /// Role of a standalone binding.
    of: Option<String>,
    labels: Vec<String>,
    gathers: Vec<String>,
    rules: Vec<Value>,
    subjects: Option<Vec<Value>>,
}

impl PolicyBlock {
    fn begin(words: &[&str], features: ServerFeatureGates) -> Result<PolicyBlock, &'static str> {
        let (words, on) = condition(words, features)?;
        let (name, namespace, of) = match words {
            ["role", name] => (*name, None, None),
            ["role", name, "in", namespace] => (*name, Some(*namespace), None),
            ["binding", name, "in", namespace, "of", role] => (*name, Some(*namespace), Some(*role)),
            _ => return Err("neither a role nor a binding"),
        };
        Ok(PolicyBlock {
            name: name.to_owned(),
            namespace: namespace.map(str::to_owned),
            enabled: on,
            of: of.map(str::to_owned),
            labels: Vec::new(),
            gathers: Vec::new(),
            rules: Vec::new(),
            subjects: of.map(|_| Vec::new()),
        })
    }

    fn add(&mut self, words: &[&str], features: ServerFeatureGates) -> Result<(), &'static str> {
        let (words, on) = condition(words, features)?;
        match words {
            ["to", who @ ..] => {
                let subjects = self.subjects.get_or_insert_default();
                subjects.extend(subject(who)?);
            }
            ["joins", role] => self.labels.push(aggregation(role)),
            ["gathers", role] => self.gathers.push(aggregation(role)),
            words => {
                let rule = rule(words)?;
                if on {
                    self.rules.push(rule);
                }
            }
        }
        Ok(())
    }

    fn objects(&self) -> Vec<DefaultObject> {
        let mut objects = Vec::new();
        if self.of.is_none() {
            objects.push(self.role());
        }
        objects.extend(self.subjects.as_ref().map(|subjects| self.binding(subjects)));
        objects
    }

    fn role(&self) -> DefaultObject {
        let kind = if self.namespace.is_some() { &ROLE } else { &CLUSTER_ROLE };
        let mut parts = vec![("rules", self.rules.clone().into())];
        if !self.gathers.is_empty() {
            let selectors = self.gathers.iter().map(|label| json!({"matchLabels": {label: "true"}}));
            let selectors: Vec<Value> = selectors.collect();
            parts =
                vec![("rules", Value::Null), ("aggregationRule", json!({"clusterRoleSelectors": selectors}))];
        }
        self.object(kind, parts)
    }

    fn binding(&self, subjects: &[Value]) -> DefaultObject {
        let (kind, of) = match self.namespace {
            Some(_) => (&ROLE_BINDING, &ROLE),
            None => (&CLUSTER_ROLE_BINDING, &CLUSTER_ROLE),
        };
        let role = self.of.as_ref().unwrap_or(&self.name);
        let role = json!({"apiGroup": GROUP, "kind": of.name, "name": role});
        self.object(kind, vec![("roleRef", role), ("subjects", subjects.into())])
    }

    fn object(&self, kind: &'static Kind, parts: Vec<(&str, Value)>) -> DefaultObject {
        let mut labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
        if kind.name == CLUSTER_ROLE.name {
            for label in &self.labels {
                labels[label] = "true".into();
            }
        }
        let mut object = json!({
            "apiVersion": kind.stored().api_version(),
            "kind": kind.name,
            "metadata": {
                "name": self.name,
                "labels": labels,
                "annotations": {super::merge::AUTOUPDATE: "true"},
            },
        });
        if let Some(namespace) = &self.namespace {
            object["metadata"]["namespace"] = namespace.as_str().into();
        }
        for (field, value) in parts {
            object[field] = value;
        }
        let key = match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        };
        DefaultObject { kind, key, object }
    }
}

/// Strips `if FEATURE` from the end; also returns whether the feature is enabled.
fn condition<'a, 'b>(
    words: &'a [&'b str],
    features: ServerFeatureGates,
) -> Result<(&'a [&'b str], bool), &'static str> {
    match words {
        [words @ .., "if", "ClusterTrustBundle"] => Ok((words, features.cluster_trust_bundle)),
        [words @ .., "if", "PodCertificateRequest"] => Ok((words, features.pod_certificate_request)),
        [.., "if", _] => Err("no such feature"),
        words => Ok((words, true)),
    }
}

/// Returns the label of roles that are aggregated into `role`.
fn aggregation(role: &str) -> String {
    format!("{GROUP}/aggregate-to-{role}")
}

fn subject(words: &[&str]) -> Result<Option<Value>, &'static str> {
    Ok(Some(match words {
        ["nobody"] => return Ok(None),
        ["user", name] => json!({"kind": "User", "apiGroup": GROUP, "name": name}),
        ["group", name] => json!({"kind": "Group", "apiGroup": GROUP, "name": name}),
        ["account", account] => {
            let (namespace, name) = account.split_once('/').ok_or("an account has a namespace")?;
            json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
        }
        _ => return Err("not a user, group, account or nobody"),
    }))
}

fn rule(words: &[&str]) -> Result<Value, &'static str> {
    let parts: Vec<(&str, Vec<String>)> = match words {
        ["events"] => vec![
            ("verbs", list("create,patch,update")),
            ("apiGroups", groups("core,events.k8s.io")),
            ("resources", list("events")),
        ],
        [of, "at", paths] => vec![("verbs", verbs(of)), ("nonResourceURLs", list(paths))],
        [of, in_groups, resources] => {
            vec![("verbs", verbs(of)), ("apiGroups", groups(in_groups)), ("resources", list(resources))]
        }
        [of, in_groups, resources, "named", names] => vec![
            ("verbs", verbs(of)),
            ("apiGroups", groups(in_groups)),
            ("resources", list(resources)),
            ("resourceNames", list(names)),
        ],
        _ => return Err("not a rule"),
    };
    let sorted = |list: &[String]| list.is_sorted_by(|a, b| a < b);
    if !parts.iter().all(|(_, list)| sorted(list)) {
        return Err("a list is not sorted, or has something twice");
    }
    let parts = parts.into_iter().map(|(field, list)| (field.to_owned(), Value::from(list)));
    Ok(Value::Object(parts.collect::<Map<String, Value>>()))
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

fn groups(text: &str) -> Vec<String> {
    text.split(',').map(|group| if group == "core" { "" } else { group }.to_owned()).collect()
}

fn verbs(text: &str) -> Vec<String> {
    let words = text.split(',').flat_map(|word| match word {
        "read" => vec!["get", "list", "watch"],
        "write" => vec!["create", "delete", "deletecollection", "patch", "update"],
        verb => vec![verb],
    });
    let mut verbs: Vec<String> = words.map(str::to_owned).collect();
    verbs.sort();
    verbs
}

#[cfg(test)]
mod tests;
