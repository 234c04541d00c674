//! Revocation of the outstanding leaves of a compromised authority.

use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use serde_json::json;
use time::OffsetDateTime;
use windlass_api::revocation::{CertificateRevocationSpec, RESOURCE};
use windlass_api::timestamp;

use crate::ledger::Ledger;

/// Leaves that are revoked before the rotation is reconciled again.
const BATCH: usize = 200;

/// Creates CertificateRevocations for the outstanding leaves of all authorities of a signer besides the active one.
/// Objects that exist stay as they are, so it can be repeated. `done` has the names of those that exist. Returns whether
/// all are revoked.
pub async fn revoke_outstanding(
    client: &Client,
    ledger: &Ledger,
    signer: &str,
    active: &str,
    done: &mut std::collections::HashSet<String>,
) -> anyhow::Result<bool> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    let outstanding = ledger.outstanding_of_others(signer, active, done.len() + BATCH);
    let mut is_complete = outstanding.len() < done.len() + BATCH;
    let mut created = 0;
    for (authority, serial, expiry) in outstanding {
        let name = format!("{authority}-{serial}");
        if done.contains(&name) {
            continue;
        }
        if created == BATCH {
            is_complete = false;
            break;
        }
        let not_after = OffsetDateTime::from_unix_timestamp(expiry).map(timestamp::format)?;
        let spec = CertificateRevocationSpec {
            signer_name: signer.to_owned(),
            authority_id: authority.to_string(),
            serial_number: serial.to_string(),
            reason: "cACompromise".to_owned(),
            not_after,
            comment: Some("the CA was rotated because it is compromised".to_owned()),
        };
        let mut revocation = DynamicObject::new(&name, &resource());
        revocation.data = json!({ "spec": spec });
        match api.create(&PostParams::default(), &revocation).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error.into()),
        }
        created += 1;
        done.insert(name);
    }
    Ok(is_complete)
}

fn resource() -> ApiResource {
    ApiResource {
        group: RESOURCE.group.into(),
        version: RESOURCE.version.into(),
        api_version: RESOURCE.api_version.into(),
        kind: RESOURCE.kind.into(),
        plural: RESOURCE.plural.into(),
    }
}
