//! The role bindings without which a token is good for nothing: they let its bearer ask for a
//! node's certificate, have that approved by itself, and let nodes renew theirs.

use anyhow::{Result, bail};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleRef, Subject};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use serde::Serialize;

use crate::commands::connect;

const API_GROUP: &str = "rbac.authorization.k8s.io";
/// How often a binding is looked at again that somebody else changes at the same time.
const ATTEMPTS: usize = 5;

/// A role for groups.
#[derive(Serialize)]
pub struct Binding {
    name: &'static str,
    role: &'static str,
    groups: Vec<String>,
}

/// What had to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Done {
    /// It was not there.
    Made,
    /// Groups were missing in it.
    Changed,
    /// Nothing.
    Unchanged,
}

impl Binding {
    /// All that tokens with these groups need.
    pub fn all(groups: &[String]) -> [Binding; 3] {
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

    /// What nodes need that have joined, however they did.
    pub fn rotation() -> Self {
        Self {
            name: "windlass:node-autoapprove-certificate-rotation",
            role: "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
            groups: vec!["system:nodes".to_owned()],
        }
    }

    /// Sees to it that it is there. Whatever else is in it stays.
    pub async fn ensure(&self, client: &Client) -> Result<Done> {
        let api: Api<ClusterRoleBinding> = Api::all(client.clone());
        for _ in 0..ATTEMPTS {
            let found = connect::answer(api.get_opt(self.name)).await?.map_err(connect::explain)?;
            let params = PostParams::default();
            let (written, done) = match self.plan(found)? {
                Plan::Make(binding) => {
                    (connect::answer(api.create(&params, &binding)).await?, Done::Made)
                }
                Plan::Change(binding) => {
                    let replaced = api.replace(self.name, &params, &binding);
                    (connect::answer(replaced).await?, Done::Changed)
                }
                Plan::Nothing => return Ok(Done::Unchanged),
            };
            match written {
                Ok(_) => return Ok(done),
                // Somebody else was faster: made it, changed it or took it away.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(connect::explain(error)),
            }
        }
        bail!("clusterrolebinding {} is changed by others all the time", self.name)
    }

    /// What it does, on one line.
    pub fn line(&self, done: Done) -> Option<String> {
        let what = match done {
            Done::Made => "made",
            Done::Changed => "added groups to",
            Done::Unchanged => return None,
        };
        let (name, role, groups) = (self.name, self.role, self.groups.join(", "));
        Some(format!("{what} clusterrolebinding {name}: {role} for the group {groups}"))
    }

    fn plan(&self, found: Option<ClusterRoleBinding>) -> Result<Plan> {
        let Some(mut binding) = found else { return Ok(Plan::Make(self.object())) };
        let role = &binding.role_ref;
        if (role.kind.as_str(), role.name.as_str()) != ("ClusterRole", self.role) {
            bail!(
                "clusterrolebinding {} is there, but for the role {}: delete it, or leave bindings alone with --no-bindings",
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
        Ok(if complete { Plan::Nothing } else { Plan::Change(binding) })
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

enum Plan {
    Make(ClusterRoleBinding),
    Change(ClusterRoleBinding),
    Nothing,
}

fn subject(group: &str) -> Subject {
    Subject {
        api_group: Some(API_GROUP.into()),
        kind: "Group".into(),
        name: group.into(),
        namespace: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(binding: &ClusterRoleBinding) -> Vec<&str> {
        binding.subjects.iter().flatten().map(|subject| subject.name.as_str()).collect()
    }

    fn wanted(groups: &[&str]) -> Binding {
        let groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
        let [binding, _, rotation] = Binding::all(&groups);
        assert_eq!(rotation.groups, ["system:nodes"], "whatever the token's groups are");
        binding
    }

    #[test]
    fn what_is_missing_is_added_and_nothing_is_taken_away() {
        let Ok(Plan::Make(made)) = wanted(&["a", "b"]).plan(None) else { panic!() };
        assert_eq!(groups(&made), ["a", "b"]);
        assert_eq!(made.role_ref.name, "system:node-bootstrapper");
        assert!(matches!(wanted(&["b"]).plan(Some(made.clone())), Ok(Plan::Nothing)));
        let Ok(Plan::Change(more)) = wanted(&["b", "c"]).plan(Some(made.clone())) else { panic!() };
        assert_eq!(groups(&more), ["a", "b", "c"]);
        // A user is not a group of the same name.
        let mut user = made.clone();
        user.subjects.iter_mut().flatten().for_each(|subject| subject.kind = "User".into());
        assert!(matches!(wanted(&["a"]).plan(Some(user)), Ok(Plan::Change(_))));
        let nobody = ClusterRoleBinding { subjects: None, ..made };
        assert!(matches!(wanted(&["a"]).plan(Some(nobody)), Ok(Plan::Change(_))));
    }

    #[test]
    fn another_role_under_the_name_is_left_alone() {
        let binding = wanted(&["a"]);
        for (kind, role) in [("ClusterRole", "cluster-admin"), ("Role", "system:node-bootstrapper")]
        {
            let mut other = binding.object();
            other.role_ref.kind = kind.into();
            other.role_ref.name = role.into();
            let error = binding.plan(Some(other)).err().unwrap().to_string();
            assert!(error.contains("--no-bindings"), "{error}");
        }
    }
}
