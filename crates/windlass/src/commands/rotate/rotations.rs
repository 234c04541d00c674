//! CARotations of a server, and the one that the user means.

use anyhow::{Error, Result, anyhow, bail};
use kube::api::ListParams;
use kube::core::Object;
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use windlass_api::ca_rotation::{CaRotationSpec, CaRotationStatus, RESOURCE};
use windlass_api::custom_resource::CustomResource;
use windlass_api::signer::{self, SignerSpec, SignerStatus};

use crate::cli::RotationTarget;
use crate::commands::api_client;
use crate::commands::cert::ledger::api_resource;
use crate::commands::print::word;

/// Page size of list requests.
const PAGE: u32 = 500;

/// A CARotation with its progress.
pub type RotationObject = Object<CaRotationSpec, CaRotationStatus>;
/// A Signer with its authorities.
pub type SignerObject = Object<SignerSpec, SignerStatus>;

/// Returns the API of CARotations.
pub fn rotation_api(client: &Client) -> Api<RotationObject> {
    Api::all_with(client.clone(), &api_resource(&RESOURCE))
}

/// Lists all CARotations, oldest first.
pub async fn list(client: &Client) -> Result<Vec<RotationObject>> {
    let found = list_all(&rotation_api(client), &ListParams::default()).await?;
    let mut found = found.map_err(explain)?;
    found.sort_by_cached_key(age_key);
    Ok(found)
}

/// Lists the objects of a kind page by page.
pub async fn list_all<K>(api: &Api<K>, params: &ListParams) -> Result<Result<Vec<K>, kube::Error>>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut params = params.clone().limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = match api_client::with_timeout(api.list(&params)).await? {
            Ok(page) => page,
            Err(error) => return Ok(Err(error)),
        };
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(Ok(found)),
        }
    }
}

/// Finds the Signer object of a signer.
pub async fn find_signer(client: &Client, signer_name: &str) -> Result<SignerObject> {
    let api: Api<SignerObject> = Api::all_with(client.clone(), &api_resource(&signer::RESOURCE));
    let signers = match list_all(&api, &ListParams::default()).await? {
        Ok(signers) => signers,
        Err(kube::Error::Api(status)) if status.code == 404 => return Err(not_served(&signer::RESOURCE)),
        Err(error) => return Err(api_client::explain(error)),
    };
    let mut known: Vec<String> = signers.iter().map(|signer| word(&signer.spec.signer_name)).collect();
    known.sort();
    match signers.into_iter().find(|signer| signer.spec.signer_name == signer_name) {
        Some(found) => Ok(found),
        None if known.is_empty() => bail!("signer {signer_name} does not exist: the server has no Signers"),
        None => bail!("signer {signer_name} does not exist; the server has {}", known.join(", ")),
    }
}

/// Whether a rotation has not ended, as far as its status says.
pub fn is_running(rotation: &RotationObject) -> bool {
    !rotation.status.as_ref().is_some_and(CaRotationStatus::is_finished)
}

/// Selects the rotation that is meant: the running one of a signer, or the last one that ended. The
/// rotations are sorted by age.
pub fn select<'a>(rotations: &'a [RotationObject], target: &RotationTarget) -> Result<&'a RotationObject> {
    match target {
        RotationTarget::Name(name) => {
            let found = rotations.iter().find(|rotation| rotation.name_any() == *name);
            found.ok_or_else(|| {
                anyhow!("rotation {name} does not exist; list rotations with windlass rotate status")
            })
        }
        RotationTarget::Signer(signer) => {
            let of_signer = || rotations.iter().filter(|rotation| rotation.spec.signer_name == *signer);
            // Of several unfinished ones, the controllers run the oldest.
            let found = of_signer().find(|rotation| is_running(rotation)).or_else(|| of_signer().next_back());
            found.ok_or_else(|| {
                anyhow!("{signer} has no rotation; start one with windlass rotate start {signer}")
            })
        }
    }
}

/// Selects a rotation that can still be changed.
pub fn select_running<'a>(
    rotations: &'a [RotationObject],
    target: &RotationTarget,
) -> Result<&'a RotationObject> {
    let found = select(rotations, target)?;
    check_running(found)?;
    Ok(found)
}

/// Fails if a rotation has ended.
pub fn check_running(rotation: &RotationObject) -> Result<()> {
    let status = rotation.status.as_ref();
    match status.filter(|status| status.is_finished()).and_then(|status| status.phase) {
        None => Ok(()),
        Some(phase) => {
            let (name, signer) = (rotation.name_any(), word(&rotation.spec.signer_name));
            bail!(
                "rotation {name} has ended ({phase}); start another one with windlass rotate start {signer}"
            )
        }
    }
}

/// The name of a rotation as `-o name` prints it.
pub fn full_name(rotation: &RotationObject) -> String {
    format!("{}.{}/{}", RESOURCE.singular, RESOURCE.group, rotation.name_any())
}

/// Explains a failed request for rotations, and what to do about it.
pub fn explain(error: kube::Error) -> Error {
    match error {
        kube::Error::Api(status) if status.code == 404 => not_served(&RESOURCE),
        error => api_client::explain(error),
    }
}

/// Explains a failed write of a rotation: besides RBAC, it takes rights on the signer.
pub fn explain_write(error: kube::Error, signer: &str) -> Error {
    let is_forbidden = matches!(&error, kube::Error::Api(status) if status.code == 403);
    let explained = explain(error);
    if !is_forbidden {
        return explained;
    }
    anyhow!(
        "{explained}; rotating takes write access to carotations.windlass.dev, and sign and attest on {signer}"
    )
}

fn not_served(resource: &CustomResource) -> Error {
    anyhow!(
        "the server does not serve {}s; install the definitions with windlass crds | kubectl apply -f -",
        resource.kind
    )
}

/// Rotations are created in the order of time, and those of one second in the order of names.
fn age_key(rotation: &RotationObject) -> (i64, String) {
    let created = rotation.metadata.creation_timestamp.as_ref();
    (created.map_or(0, |time| time.0.as_second()), rotation.name_any())
}

#[cfg(test)]
pub mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A rotation of `example.com/NAME`, named NAME and a number.
    pub fn rotation(name: &str, signer: &str, status: Value) -> RotationObject {
        serde_json::from_value(json!({
            "apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind,
            "metadata": {"name": name, "creationTimestamp": "2026-03-01T12:00:00Z"},
            "spec": {"signerName": signer}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn the_running_rotation_of_a_signer_is_meant() {
        let all = [
            rotation("a-1", "example.com/a", json!({"phase": "Completed"})),
            rotation("a-2", "example.com/a", json!({"phase": "Renewing"})),
            rotation("a-3", "example.com/a", json!({})),
            rotation("b-1", "example.com/b", json!({"phase": "RolledBack"})),
            rotation("b-2", "example.com/b", json!({"phase": "Completed"})),
        ];
        let signer = |name: &str| RotationTarget::Signer(format!("example.com/{name}"));
        let name = |name: &str| RotationTarget::Name(name.to_owned());
        for (target, wanted) in [
            (signer("a"), Ok("a-2")),
            (signer("b"), Ok("b-2")),
            (name("a-1"), Ok("a-1")),
            (
                signer("c"),
                Err("example.com/c has no rotation; start one with windlass rotate start example.com/c"),
            ),
            (name("c"), Err("rotation c does not exist; list rotations with windlass rotate status")),
        ] {
            let found =
                select(&all, &target).map(RotationObject::name_any).map_err(|error| error.to_string());
            assert_eq!(found, wanted.map(str::to_owned).map_err(str::to_owned));
        }
        assert!(select_running(&all, &signer("a")).is_ok());
        let ended = select_running(&all, &signer("b")).unwrap_err().to_string();
        let wanted =
            "rotation b-2 has ended (Completed); start another one with windlass rotate start example.com/b";
        assert_eq!(ended, wanted);
    }
}
