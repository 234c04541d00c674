//! `windlass rotate pause|resume|rollback|retire|exclude|accept`: changes of a running rotation.

use anyhow::{Result, bail};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use windlass_api::ca_rotation::{CaRotationSpec, CaRotationStatus};

use super::rotations::{self, RotationObject};
use crate::cli::{OutputFormat, RotateRetireArgs, RotationChangeArgs};
use crate::commands::print::{self, plain, word, words};
use crate::commands::{api_client, terminal};

/// How often a change is repeated because somebody else changed the rotation at the same time.
const MAX_ATTEMPTS: usize = 10;

/// What to change in the spec of a rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpecChange {
    Pause,
    Resume,
    Rollback,
    Retire {
        /// Whether certificates that depend on the old authority may break.
        accept_outstanding: bool,
    },
    /// Nodes that are not waited for.
    Exclude(Vec<String>),
    /// Consumers that are not waited for to read.
    Accept(Vec<String>),
}

/// Changes the running rotation that the arguments name.
pub async fn run(arguments: RotationChangeArgs, change: &SpecChange) -> Result<()> {
    let client = api_client::connect(&arguments.server).await?;
    let all = rotations::list(&client).await?;
    let rotation = rotations::select_running(&all, &arguments.target)?.clone();
    if let (SpecChange::Accept(consumers), Some(status)) = (change, &rotation.status) {
        for consumer in unknown_consumers(consumers, status) {
            eprintln!("windlass: {consumer} is not among the laggards of the rotation");
        }
    }
    apply(&rotations::rotation_api(&client), rotation, change, arguments.output.format).await
}

/// Retires the old authority as soon as possible, after confirmation if certificates break.
pub async fn retire(arguments: RotateRetireArgs) -> Result<()> {
    let RotateRetireArgs { change: arguments, accept_outstanding, yes } = arguments;
    let client = api_client::connect(&arguments.server).await?;
    let all = rotations::list(&client).await?;
    let rotation = rotations::select_running(&all, &arguments.target)?.clone();
    let outstanding = outstanding_text(rotation.status.as_ref());
    if accept_outstanding {
        eprintln!("windlass: {outstanding}");
        let question = format!("Retire the old CA of {} anyway", word(&rotation.spec.signer_name));
        terminal::confirm(&question, yes)?;
    }
    let change = SpecChange::Retire { accept_outstanding };
    apply(&rotations::rotation_api(&client), rotation, &change, arguments.output.format).await
}

/// Writes the change. The version of the object is part of the patch, so that of two concurrent changes
/// none is lost: the second is computed again from the result of the first.
async fn apply(
    api: &Api<RotationObject>,
    mut rotation: RotationObject,
    change: &SpecChange,
    format: Option<OutputFormat>,
) -> Result<()> {
    let (name, uid) = (rotation.name_any(), rotation.uid());
    for _ in 0..MAX_ATTEMPTS {
        rotations::check_running(&rotation)?;
        let Some(spec) = change.patch(&rotation.spec) else {
            return report(&rotation, change, false, format);
        };
        let metadata = json!({"resourceVersion": rotation.resource_version(), "uid": uid});
        let patch = Patch::Merge(json!({"metadata": metadata, "spec": spec}));
        let params = PatchParams::default();
        match api_client::with_timeout(api.patch(&name, &params, &patch)).await? {
            Ok(changed) => return report(&changed, change, true, format),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(rotations::explain_write(error, &word(&rotation.spec.signer_name))),
        }
        let found = api_client::with_timeout(api.get_opt(&name)).await?.map_err(rotations::explain)?;
        match found.filter(|found| found.uid() == uid) {
            Some(found) => rotation = found,
            None => bail!("rotation {name} was deleted"),
        }
    }
    bail!("rotation {name} keeps changing; try again")
}

fn report(
    rotation: &RotationObject,
    change: &SpecChange,
    changed: bool,
    format: Option<OutputFormat>,
) -> Result<()> {
    let name = rotations::full_name(rotation);
    print::show(rotation, format, |format| match format {
        Some(OutputFormat::Name) => name + "\n",
        _ => format!("{name} {}\n", change.outcome(rotation, changed)),
    })
}

impl SpecChange {
    /// Returns the merge patch of the spec; `None` if there is nothing to change.
    fn patch(&self, spec: &CaRotationSpec) -> Option<Value> {
        match self {
            SpecChange::Pause if spec.paused == Some(true) => None,
            SpecChange::Pause => Some(json!({"paused": true})),
            SpecChange::Resume if spec.paused != Some(true) => None,
            SpecChange::Resume => Some(json!({"paused": null})),
            SpecChange::Rollback if spec.rollback == Some(true) => None,
            SpecChange::Rollback => Some(json!({"rollback": true})),
            SpecChange::Retire { accept_outstanding } => {
                let retirement = spec.retirement.clone().unwrap_or_default();
                let accepts = retirement.accept_outstanding_leaves == Some(true);
                let is_done = retirement.not_before.is_none() && (accepts || !accept_outstanding);
                let mut patch = json!({"notBefore": null});
                if *accept_outstanding {
                    patch["acceptOutstandingLeaves"] = json!(true);
                }
                (!is_done).then(|| json!({"retirement": patch}))
            }
            SpecChange::Exclude(nodes) => {
                extended(&spec.excluded_nodes, nodes).map(|all| json!({"excludedNodes": all}))
            }
            SpecChange::Accept(consumers) => {
                extended(&spec.accepted_consumers, consumers).map(|all| json!({"acceptedConsumers": all}))
            }
        }
    }

    fn outcome(&self, rotation: &RotationObject, changed: bool) -> String {
        let already = if changed { "" } else { "already " };
        match self {
            SpecChange::Pause => format!("{already}paused"),
            SpecChange::Resume if changed => "resumed".into(),
            SpecChange::Resume => "not paused".into(),
            SpecChange::Rollback => format!("{already}rolling back"),
            SpecChange::Retire { accept_outstanding: true } => {
                format!("{already}retires the old CA without waiting for certificates")
            }
            SpecChange::Retire { .. } => {
                let outstanding = outstanding_text(rotation.status.as_ref());
                format!("{already}retires the old CA as soon as no certificate depends on it; {outstanding}")
            }
            SpecChange::Exclude(nodes) => format!("{already}does not wait for {}", words(nodes)),
            SpecChange::Accept(consumers) => format!("{already}accepts {}", words(consumers)),
        }
    }
}

/// Adds new entries to a list; `None` if all are there.
fn extended(list: &[String], more: &[String]) -> Option<Vec<String>> {
    let mut all = list.to_vec();
    for entry in more {
        if !all.contains(entry) {
            all.push(entry.clone());
        }
    }
    (all.len() > list.len()).then_some(all)
}

/// Says which certificates depend on the old authority.
fn outstanding_text(status: Option<&CaRotationStatus>) -> String {
    let authority = status.and_then(|status| status.old_authority.as_ref());
    let list = authority.map(|authority| {
        format!("; list them with windlass cert list --outstanding --authority {}", word(&authority.id))
    });
    match status.and_then(|status| status.leaves.as_ref()) {
        None => "certificates that depend on it are not known".into(),
        Some(leaves) if leaves.outstanding == 0 => "no certificate depends on it".into(),
        Some(leaves) => {
            let certificates = if leaves.outstanding == 1 { "certificate" } else { "certificates" };
            let latest =
                leaves.latest_expiry.as_deref().map(|time| format!(", the last until {}", plain(time)));
            let (latest, list) = (latest.unwrap_or_default(), list.unwrap_or_default());
            format!("outstanding: {} {certificates}{latest}{list}", leaves.outstanding)
        }
    }
}

/// Returns the consumers that the rotation does not wait for. If not all laggards are listed, none is
/// unknown.
fn unknown_consumers<'a>(consumers: &'a [String], status: &CaRotationStatus) -> Vec<&'a str> {
    let is_listed = |name: &&str| status.laggards.iter().any(|laggard| laggard.name == *name);
    match status.more_laggards.unwrap_or_default() {
        0 => consumers.iter().map(String::as_str).filter(|name| !is_listed(name)).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rotations::tests::rotation;
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn changes_patch_only_what_they_mean() {
        let spec = |spec: Value| {
            let mut all = json!({"signerName": "example.com/web"});
            all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            serde_json::from_value::<CaRotationSpec>(all).unwrap()
        };
        let retire = |accept_outstanding| SpecChange::Retire { accept_outstanding };
        for (change, before, wanted) in [
            (SpecChange::Pause, json!({}), Some(json!({"paused": true}))),
            (SpecChange::Pause, json!({"paused": true}), None),
            (SpecChange::Resume, json!({"paused": true}), Some(json!({"paused": null}))),
            (SpecChange::Resume, json!({}), None),
            (SpecChange::Rollback, json!({"rollback": false}), Some(json!({"rollback": true}))),
            (SpecChange::Rollback, json!({"rollback": true}), None),
            (retire(false), json!({}), None),
            (
                retire(false),
                json!({"retirement": {"notBefore": "2027-01-01T00:00:00Z", "keyRetention": "1h"}}),
                Some(json!({"retirement": {"notBefore": null}})),
            ),
            (
                retire(true),
                json!({}),
                Some(json!({"retirement": {"notBefore": null, "acceptOutstandingLeaves": true}})),
            ),
            (retire(true), json!({"retirement": {"acceptOutstandingLeaves": true}}), None),
            (
                SpecChange::Exclude(names(&["n2", "n1", "n2"])),
                json!({"excludedNodes": ["n1"]}),
                Some(json!({"excludedNodes": ["n1", "n2"]})),
            ),
            (SpecChange::Exclude(names(&["n1"])), json!({"excludedNodes": ["n1"]}), None),
            (
                SpecChange::Accept(names(&["bundle/a"])),
                json!({"acceptedConsumers": ["bundle/b"]}),
                Some(json!({"acceptedConsumers": ["bundle/b", "bundle/a"]})),
            ),
        ] {
            assert_eq!(change.patch(&spec(before.clone())), wanted, "{change:?} {before}");
        }
    }

    #[test]
    fn outcomes_are_sentences() {
        let status = json!({"leaves": {"outstanding": 2, "latestExpiry": "2027-01-01T00:00:00Z"},
                            "oldAuthority": {"id": "0a"}});
        let rotation = rotation("a", "example.com/a", status);
        let retire = SpecChange::Retire { accept_outstanding: false };
        for (change, changed, wanted) in [
            (SpecChange::Pause, true, "paused"),
            (SpecChange::Pause, false, "already paused"),
            (SpecChange::Resume, false, "not paused"),
            (SpecChange::Rollback, true, "rolling back"),
            (SpecChange::Exclude(names(&["n1", "n2"])), true, "does not wait for n1, n2"),
            (SpecChange::Accept(names(&["bundle/a"])), false, "already accepts bundle/a"),
            (
                retire,
                true,
                "retires the old CA as soon as no certificate depends on it; outstanding: 2 certificates, the last \
                 until 2027-01-01T00:00:00Z; list them with windlass cert list --outstanding --authority 0a",
            ),
        ] {
            assert_eq!(change.outcome(&rotation, changed), wanted);
        }
    }

    #[test]
    fn only_consumers_that_are_not_waited_for_are_unknown() {
        let status = |more: u32| -> CaRotationStatus {
            let laggard = json!({"kind": "Node", "name": "node/n1/host/a", "reason": "NotRead"});
            serde_json::from_value(json!({"laggards": [laggard], "moreLaggards": more})).unwrap()
        };
        let consumers = names(&["node/n1/host/a", "bundle/b"]);
        assert_eq!(unknown_consumers(&consumers, &status(0)), ["bundle/b"]);
        assert!(unknown_consumers(&consumers, &status(1)).is_empty());
    }
}
