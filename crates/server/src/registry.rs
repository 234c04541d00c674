//! Registered kinds, one module each, and lookup by path.

pub(crate) mod bundles;
pub(crate) mod carotations;
pub(crate) mod certificatesigningrequests;
pub(crate) mod clustertrustbundles;
pub(crate) mod column_descriptions;
pub(crate) mod configmaps;
pub(crate) mod csidrivers;
pub(crate) mod csinodes;
pub(crate) mod endpoints;
pub(crate) mod endpointslices;
pub(crate) mod events;
pub(crate) mod kind;
pub(crate) mod leases;
pub(crate) mod ledgersegments;
pub(crate) mod namespaces;
pub(crate) mod nodes;
pub(crate) mod nodetrusts;
pub(crate) mod object_fields;
pub(crate) mod persistentvolumeclaims;
pub(crate) mod persistentvolumes;
pub(crate) mod podcertificaterequests;
pub(crate) mod pods;
pub(crate) mod rbac;
pub(crate) mod resourceslices;
pub(crate) mod reviews;
pub(crate) mod revocations;
pub(crate) mod runtimeclasses;
pub(crate) mod secrets;
pub(crate) mod serviceaccounts;
pub(crate) mod services;
pub(crate) mod signers;
pub(crate) mod table_cells;

use std::collections::BTreeMap;

use kind::{Kind, ServedVersion};

/// All kinds that the server serves.
pub static KINDS: &[&Kind] = &[
    &configmaps::KIND,
    &endpoints::KIND,
    &events::KIND,
    &namespaces::KIND,
    &nodes::KIND,
    &persistentvolumeclaims::KIND,
    &persistentvolumes::KIND,
    &pods::KIND,
    &secrets::KIND,
    &serviceaccounts::KIND,
    &services::KIND,
    &leases::KIND,
    &endpointslices::KIND,
    &runtimeclasses::KIND,
    &csidrivers::KIND,
    &csinodes::KIND,
    &certificatesigningrequests::KIND,
    &clustertrustbundles::KIND,
    &podcertificaterequests::KIND,
    &resourceslices::KIND,
    &nodetrusts::NODETRUSTS_KIND,
    &signers::SIGNERS_KIND,
    &carotations::CA_ROTATIONS_KIND,
    &ledgersegments::LEDGER_SEGMENTS_KIND,
    &revocations::REVOCATIONS_KIND,
    &revocations::REVOCATION_LISTS_KIND,
    &bundles::BUNDLES_KIND,
    &rbac::CLUSTER_ROLE_BINDING,
    &rbac::CLUSTER_ROLE,
    &rbac::ROLE_BINDING,
    &rbac::ROLE,
    &reviews::SELF_SUBJECT,
    &reviews::TOKEN,
    &reviews::LOCAL_SUBJECT_ACCESS,
    &reviews::SELF_SUBJECT_ACCESS,
    &reviews::SELF_SUBJECT_RULES,
    &reviews::SUBJECT_ACCESS,
];

/// Index of kinds by path and by name.
pub struct KindRegistry {
    kinds: Vec<&'static Kind>,
    by_path: BTreeMap<(&'static str, &'static str, &'static str), (&'static Kind, &'static ServedVersion)>,
}

impl KindRegistry {
    /// Creates a registry of the given kinds.
    pub fn new(kinds: &[&'static Kind]) -> KindRegistry {
        let mut by_path = BTreeMap::new();
        for kind in kinds.iter().copied() {
            for served in kind.served {
                by_path.insert((served.group, served.version, kind.plural), (kind, served));
            }
        }
        KindRegistry { kinds: kinds.to_vec(), by_path }
    }

    /// Returns all kinds in the order they were registered.
    pub fn kinds(&self) -> &[&'static Kind] {
        &self.kinds
    }

    /// Returns the kind served under a path.
    pub fn by_path(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<(&'static Kind, &'static ServedVersion)> {
        self.by_path.get(&(group, version, plural)).copied()
    }

    /// Returns the kind for `apiVersion` and `kind`.
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<(&'static Kind, &'static ServedVersion)> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let mut all = self.by_path.values().copied();
        all.find(|(k, s)| k.name == kind && s.group == group && s.version == version)
    }

    /// Returns the groups with their versions: core group first, versions in order of preference.
    pub fn groups(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        let mut groups: Vec<(&'static str, Vec<&'static str>)> = Vec::new();
        for served in self.kinds.iter().flat_map(|k| k.served) {
            match groups.iter_mut().find(|(group, _)| *group == served.group) {
                Some((_, versions)) if versions.contains(&served.version) => {}
                Some((_, versions)) => versions.push(served.version),
                None => groups.push((served.group, vec![served.version])),
            }
        }
        for (_, versions) in &mut groups {
            versions.sort_by_key(|v| std::cmp::Reverse(stability(v)));
        }
        groups
    }

    /// Returns the kinds of a group-version, sorted by plural.
    pub fn in_version(&self, group: &str, version: &str) -> Vec<(&'static Kind, &'static ServedVersion)> {
        let all = self.by_path.iter();
        let found = all.filter(|((g, v, _), _)| *g == group && *v == version);
        found.map(|(_, found)| *found).collect()
    }
}

/// Orders versions as Kubernetes does: v2 before v1 before v1beta1 before v1alpha1.
fn stability(version: &str) -> (u32, u32, u32) {
    let digits = |text: &str| text.parse().unwrap_or(0);
    let number = version.trim_start_matches('v');
    match (number.split_once("beta"), number.split_once("alpha")) {
        (Some((major, minor)), _) => (1, digits(major), digits(minor)),
        (_, Some((major, minor))) => (0, digits(major), digits(minor)),
        _ => (2, digits(number), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::object_fields::tests::{change_refusals, refusals};
    use super::*;

    #[test]
    fn objects_are_validated() {
        let lines = include_str!("registry/validation_cases.txt").lines();
        let lines: Vec<_> = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        for case in lines.chunk_by(|_, next| next.starts_with("  ") || next.starts_with("was ")) {
            let (name, new) = case[0].split_once(' ').unwrap();
            let kind = KINDS.iter().find(|kind| kind.name == name).unwrap();
            let new = serde_json::from_str(new).unwrap();
            let errors = match case.get(1).and_then(|line| line.strip_prefix("was ")) {
                Some(old) => change_refusals(kind, &new, &serde_json::from_str(old).unwrap()),
                None => refusals(kind, &new),
            };
            let expected: Vec<_> = case.iter().filter_map(|line| line.strip_prefix("  ")).collect();
            assert_eq!(errors, expected, "{}", case.join("\n"));
        }
    }

    #[test]
    fn stable_versions_come_first() {
        let mut versions = ["v1alpha1", "v1", "v1beta2", "v2", "v1beta1"];
        versions.sort_by_key(|v| std::cmp::Reverse(stability(v)));
        assert_eq!(versions, ["v2", "v1", "v1beta2", "v1beta1", "v1alpha1"]);
    }
}
