//! Role bindings that bootstrap tokens need: they allow the bearer to request a node certificate,
//! approve that request automatically, and let nodes renew their certificates.

use anyhow::{Result, bail};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleRef, Subject};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use serde::Serialize;

use crate::commands::api_client;

const API_GROUP: &str = "rbac.authorization.k8s.io";
/// Maximum number of attempts after concurrent changes of a binding.
const ATTEMPTS: usize = 5;

/// A ClusterRoleBinding from one ClusterRole to groups of bootstrap tokens or nodes.
#[derive(Serialize)]
pub struct BootstrapBinding {
    name: &'static str,
    role: &'static str,
    groups: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BindingChange {
    /// The binding did not exist and was created.
    Made,
    /// Missing groups were added to the binding.
    Changed,
    /// The binding already had all groups.
    Unchanged,
}

impl BootstrapBinding {
    /// Returns all bindings that tokens with these groups need.
    pub fn for_groups(groups: &[String]) -> [BootstrapBinding; 3] {
        let binding = |name, role, groups: &[String]| Self { name, role, groups: groups.to_vec() };
        [
            binding("windlass:node-bootstrapper", "system:node-bootstrapper", groups),
            binding(
                "windlass:node-autoapprove-bootstrap",
                "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
                groups,
            ),
            Self::rotation(),
        ]
    }

    /// Returns the binding that lets joined nodes renew their certificates.
    pub fn rotation() -> Self {
        Self {
            name: "windlass:node-autoapprove-certificate-rotation",
            role: "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
            groups: vec!["system:nodes".to_owned()],
        }
    }

    /// Creates the binding or adds missing groups. Other contents are preserved.
    pub async fn ensure(&self, client: &Client) -> Result<BindingChange> {
        let api: Api<ClusterRoleBinding> = Api::all(client.clone());
        for _ in 0..ATTEMPTS {
            let found =
                api_client::with_timeout(api.get_opt(self.name)).await?.map_err(api_client::explain)?;
            let params = PostParams::default();
            let (written, done) = match self.plan(found)? {
                BindingPlan::Make(binding) => {
                    (api_client::with_timeout(api.create(&params, &binding)).await?, BindingChange::Made)
                }
                BindingPlan::Change(binding) => {
                    let replaced = api.replace(self.name, &params, &binding);
                    (api_client::with_timeout(replaced).await?, BindingChange::Changed)
                }
                BindingPlan::Nothing => return Ok(BindingChange::Unchanged),
            };
            match written {
                Ok(_) => return Ok(done),
                // A concurrent client created, changed or deleted the binding.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(api_client::explain(error)),
            }
        }
        bail!("clusterrolebinding {} changes continuously; retry later", self.name)
    }

    /// Describes the change on one line; `None` if there is nothing to report.
    pub fn line(&self, done: BindingChange) -> Option<String> {
        let what = match done {
            BindingChange::Made => "made",
            BindingChange::Changed => "added groups to",
            BindingChange::Unchanged => return None,
        };
        let (name, role, groups) = (self.name, self.role, self.groups.join(", "));
        Some(format!("{what} clusterrolebinding {name}: role {role}, groups {groups}"))
    }

    fn plan(&self, found: Option<ClusterRoleBinding>) -> Result<BindingPlan> {
        let Some(mut binding) = found else { return Ok(BindingPlan::Make(self.object())) };
        let role = &binding.role_ref;
        if (role.kind.as_str(), role.name.as_str()) != ("ClusterRole", self.role) {
            bail!(
                "clusterrolebinding {} exists with the role {}; delete it, or use --no-bindings",
                self.name,
                role.name
            );
        }
        let subjects = binding.subjects.get_or_insert_default();
        let before = subjects.len();
        for group in &self.groups {
            if !subjects.iter().any(|s| s.kind == "Group" && s.name == *group) {
                subjects.push(subject(group));
            }
        }
        let complete = subjects.len() == before;
        Ok(if complete { BindingPlan::Nothing } else { BindingPlan::Change(binding) })
    }

    fn object(&self) -> ClusterRoleBinding {
        ClusterRoleBinding {
            metadata: ObjectMeta { name: Some(self.name.into()), ..ObjectMeta::default() },
            role_ref: RoleRef {
                api_group: Some(API_GROUP.into()),
                kind: "ClusterRole".into(),
                name: self.role.into(),
            },
            subjects: Some(self.groups.iter().map(|group| subject(group)).collect()),
        }
    }
}

enum BindingPlan {
    Make(ClusterRoleBinding),
    Change(ClusterRoleBinding),
    Nothing,
}

fn subject(group: &str) -> Subject {
    Subject { api_group: Some(API_GROUP.into()), kind: "Group".into(), name: group.into(), namespace: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(binding: &ClusterRoleBinding) -> Vec<&str> {
        binding.subjects.iter().flatten().map(|subject| subject.name.as_str()).collect()
    }

    fn expected_binding(groups: &[&str]) -> BootstrapBinding {
        let groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
        let [binding, _, rotation] = BootstrapBinding::for_groups(&groups);
        assert_eq!(rotation.groups, ["system:nodes"], "whatever the token's groups are");
        binding
    }

    #[test]
    fn missing_groups_are_added_and_none_removed() {
        let Ok(BindingPlan::Make(made)) = expected_binding(&["a", "b"]).plan(None) else { panic!() };
        assert_eq!(groups(&made), ["a", "b"]);
        assert_eq!(made.role_ref.name, "system:node-bootstrapper");
        assert!(matches!(expected_binding(&["b"]).plan(Some(made.clone())), Ok(BindingPlan::Nothing)));
        let Ok(BindingPlan::Change(more)) = expected_binding(&["b", "c"]).plan(Some(made.clone())) else {
            panic!()
        };
        assert_eq!(groups(&more), ["a", "b", "c"]);
        // A user does not match a group of the same name.
        let mut user = made.clone();
        user.subjects.iter_mut().flatten().for_each(|subject| subject.kind = "User".into());
        assert!(matches!(expected_binding(&["a"]).plan(Some(user)), Ok(BindingPlan::Change(_))));
        let nobody = ClusterRoleBinding { subjects: None, ..made };
        assert!(matches!(expected_binding(&["a"]).plan(Some(nobody)), Ok(BindingPlan::Change(_))));
    }

    #[test]
    fn another_role_of_the_same_name_is_unchanged() {
        let binding = expected_binding(&["a"]);
        for (kind, role) in [("ClusterRole", "cluster-admin"), ("Role", "system:node-bootstrapper")] {
            let mut other = binding.object();
            other.role_ref.kind = kind.into();
            other.role_ref.name = role.into();
            let error = binding.plan(Some(other)).err().unwrap().to_string();
            assert!(error.contains("--no-bindings"), "{error}");
        }
    }
}
