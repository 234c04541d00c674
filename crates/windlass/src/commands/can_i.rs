//! `windlass can-i`: checks whether a user is allowed to perform an action, and why.

use anyhow::{Result, bail};
use http::Request;
use kube::Client;
use serde_json::{Map, Value, json};

use super::{api_client, print};
use crate::cli::CanIArgs;

/// Queries the server and prints its decision. A denial is an error without a message.
pub fn run(arguments: CanIArgs) -> Result<()> {
    let format = arguments.output.format;
    let status = api_client::block_on(review_access(arguments))?;
    let (allowed, line) = access_decision(&status);
    let text = |part: &str| status[part].as_str().unwrap_or_default();
    let document = json!({
        "allowed": allowed,
        "reason": text("reason"),
        "evaluationError": text("evaluationError"),
    });
    print::show(&document, format, |_| line)?;
    if !allowed {
        std::process::exit(1);
    }
    Ok(())
}

async fn review_access(arguments: CanIArgs) -> Result<Value> {
    let client = api_client::connect(&arguments.server).await?;
    let mut spec = Map::new();
    if arguments.resource.starts_with('/') {
        if arguments.name.is_some() {
            bail!("a path takes no name; omit it after {}", arguments.resource);
        }
        let path = json!({"verb": arguments.verb, "path": arguments.resource});
        spec.insert("nonResourceAttributes".into(), path);
    } else {
        spec.insert("resourceAttributes".into(), attributes(&client, &arguments).await?);
    }
    let (kind, plural) = match &arguments.user {
        Some(user) => {
            spec.insert("user".into(), json!(user));
            spec.insert("groups".into(), json!(arguments.groups));
            ("SubjectAccessReview", "subjectaccessreviews")
        }
        None => ("SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    };
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
    let request = Request::post(format!("/apis/authorization.k8s.io/v1/{plural}"))
        .header("content-type", "application/json")
        .body(review.to_string().into_bytes())?;
    let mut answer: Value =
        api_client::with_timeout(client.request(request)).await?.map_err(api_client::explain)?;
    Ok(answer["status"].take())
}

/// Returns whether the action is allowed, and the line to print.
fn access_decision(status: &Value) -> (bool, String) {
    let allowed = status["allowed"] == true;
    let mut line = if allowed { "yes" } else { "no" }.to_owned();
    for part in ["reason", "evaluationError"] {
        if let Some(text) = status[part].as_str().filter(|text| !text.is_empty()) {
            line.push_str(" - ");
            // The text contains untrusted names: replace control characters to protect the
            // terminal.
            line.extend(text.chars().map(|c| if c.is_control() { ' ' } else { c }));
        }
    }
    line.push('\n');
    (allowed, line)
}

async fn attributes(client: &Client, arguments: &CanIArgs) -> Result<Value> {
    let (resource, subresource) = match arguments.resource.split_once('/') {
        Some((resource, subresource)) => (resource, subresource),
        None => (arguments.resource.as_str(), ""),
    };
    let (asked, group) = resource.split_once('.').unwrap_or((resource, ""));
    let found = match (asked, group) {
        ("*", _) => None,
        // Roles refer to signers, but the API has no such objects, so discovery does not list them.
        ("signers", "" | CERTIFICATES) => {
            let (plural, group) = (asked.to_owned(), CERTIFICATES.to_owned());
            Some(ResolvedResource { plural, group, namespaced: false })
        }
        _ => resolve_resource(client, asked, group).await?,
    };
    if found.is_none() && asked != "*" {
        eprintln!("windlass: the server does not have a resource type {resource:?}");
    }
    let found = found.unwrap_or(ResolvedResource {
        plural: asked.to_owned(),
        group: if asked == "*" && group.is_empty() { "*".into() } else { group.to_owned() },
        namespaced: !asked.contains('*'),
    });
    let namespace = match &arguments.namespace {
        _ if arguments.all_namespaces || !found.namespaced => "",
        Some(namespace) => namespace.as_str(),
        None => client.default_namespace(),
    };
    Ok(json!({
        "verb": arguments.verb,
        "group": found.group,
        "resource": found.plural,
        "subresource": subresource,
        "name": arguments.name.as_deref().unwrap_or_default(),
        "namespace": namespace,
    }))
}

const CERTIFICATES: &str = "certificates.k8s.io";

struct ResolvedResource {
    plural: String,
    group: String,
    namespaced: bool,
}

/// Resolves a resource by its plural, singular, kind or short name.
async fn resolve_resource(client: &Client, word: &str, group: &str) -> Result<Option<ResolvedResource>> {
    let mut lists = Vec::new();
    if group.is_empty() {
        let core = client.list_core_api_resources("v1").await;
        lists.push((String::new(), core.map_err(api_client::explain)?));
    }
    let groups = client.list_api_groups().await.map_err(api_client::explain)?;
    for known in groups.groups {
        let preferred = known.preferred_version.as_ref().or(known.versions.first());
        let Some(version) = preferred.filter(|_| group.is_empty() || known.name == group) else {
            continue;
        };
        let resources = client.list_api_group_resources(&version.group_version).await;
        let resources = resources.map_err(api_client::explain)?;
        lists.push((known.name, resources));
    }
    let word = word.to_lowercase();
    for (group, list) in lists {
        for resource in list.resources {
            let short = resource.short_names.unwrap_or_default();
            let names = [&resource.name, &resource.singular_name, &resource.kind.to_lowercase()];
            if names.contains(&&word) || short.contains(&word) {
                let namespaced = resource.namespaced;
                return Ok(Some(ResolvedResource { plural: resource.name, group, namespaced }));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_comes_with_its_reason() {
        let yes = json!({"allowed": true, "reason": "RBAC: allowed\u{1b}[2J"});
        assert_eq!(access_decision(&yes), (true, "yes - RBAC: allowed [2J\n".to_owned()));
        assert_eq!(access_decision(&json!({"allowed": false})), (false, "no\n".to_owned()));
    }
}
