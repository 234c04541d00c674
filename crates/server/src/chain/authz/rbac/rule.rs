//! RBAC policy rules.

use serde_json::Value;

use super::super::attributes::{AuthorizationAttributes, AuthorizationTarget};

/// Verbs allowed on resources or paths.
///
/// Names are compared literally, not as patterns: only `*` alone, `*/status` and paths that end in
/// `*` match more than themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PolicyRule {
    /// Verbs that the rule allows; `*` allows every verb.
    pub verbs: Vec<String>,
    /// API groups of the resources; the empty string is the core group.
    pub api_groups: Vec<String>,
    /// Resources with their subresource: `pods`, `pods/status`, `*/status`; `*` matches all.
    pub resources: Vec<String>,
    /// Object names the rule is restricted to; empty means all.
    pub resource_names: Vec<String>,
    /// Non-resource paths that the rule allows.
    pub non_resource_urls: Vec<String>,
}

/// Wildcard that matches every verb, group, resource or path.
pub(super) const ALL: &str = "*";

impl PolicyRule {
    /// Parses a rule; `None` if it is invalid. An invalid list is not an empty list: ignoring
    /// invalid resource names would allow all.
    pub fn parse(rule: &Value) -> Option<PolicyRule> {
        rule.as_object()?;
        Some(PolicyRule {
            verbs: texts(&rule["verbs"])?,
            api_groups: texts(&rule["apiGroups"])?,
            resources: texts(&rule["resources"])?,
            resource_names: texts(&rule["resourceNames"])?,
            non_resource_urls: texts(&rule["nonResourceURLs"])?,
        })
    }

    /// Parses the valid rules of a role.
    pub fn parse_all(rules: &Value) -> Vec<PolicyRule> {
        rules.as_array().into_iter().flatten().filter_map(PolicyRule::parse).collect()
    }

    /// Returns the size of the rule: the number of words in its lists plus one.
    pub fn words(&self) -> usize {
        let lists = [&self.verbs, &self.api_groups, &self.resources, &self.resource_names];
        lists.iter().fold(self.non_resource_urls.len() + 1, |sum, list| sum + list.len())
    }

    /// Returns true if the rule allows the request.
    pub fn allows(&self, asked: &RuleQuery<'_>) -> bool {
        if !contains(&self.verbs, ALL) && !contains(&self.verbs, asked.verb) {
            return false;
        }
        match &asked.what {
            RuleTarget::Resource { group, resource, subresource, name } => {
                (contains(&self.api_groups, ALL) || contains(&self.api_groups, group))
                    && self.resources.iter().any(|r| covers_resource(r, resource, subresource))
                    && self.allows_name(name)
            }
            RuleTarget::Path(path) => self.non_resource_urls.iter().any(|url| covers_path(url, path)),
        }
    }

    /// A rule with resource names does not match requests without a name.
    fn allows_name(&self, name: &str) -> bool {
        let names = &self.resource_names;
        names.is_empty() || (!name.is_empty() && contains(names, name))
    }
}

/// A request in the form that rules are matched with.
pub struct RuleQuery<'a> {
    verb: &'a str,
    what: RuleTarget<'a>,
}

enum RuleTarget<'a> {
    Resource {
        group: &'a str,
        /// Resource including its subresource, as in `pods/status`.
        resource: std::borrow::Cow<'a, str>,
        subresource: &'a str,
        name: &'a str,
    },
    Path(&'a str),
}

impl<'a> RuleQuery<'a> {
    /// Converts the attributes of a request for matching against rules.
    pub fn from_attributes(attributes: &'a AuthorizationAttributes<'_>) -> RuleQuery<'a> {
        let what = match &attributes.target {
            AuthorizationTarget::Resource(resource) => RuleTarget::Resource {
                group: resource.group,
                resource: resource.with_subresource(),
                subresource: resource.subresource,
                name: resource.name,
            },
            AuthorizationTarget::Path(path) => RuleTarget::Path(path),
        };
        RuleQuery { verb: attributes.verb, what }
    }
}

fn covers_resource(rule: &str, resource: &str, subresource: &str) -> bool {
    let any_with_it = || !subresource.is_empty() && rule.strip_prefix("*/") == Some(subresource);
    rule == ALL || rule == resource || any_with_it()
}

/// Returns true if a rule's path, which may end in `*`, matches the path.
pub(super) fn covers_path(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}

/// Returns true if `list` contains `text`.
pub(super) fn contains(list: &[String], text: &str) -> bool {
    list.iter().any(|l| l == text)
}

/// Parses a list of strings; an absent one is empty.
fn texts(list: &Value) -> Option<Vec<String>> {
    match list {
        Value::Null => Some(Vec::new()),
        Value::Array(list) => list.iter().map(|v| v.as_str().map(str::to_owned)).collect(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => None,
    }
}
