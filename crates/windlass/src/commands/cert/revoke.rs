//! `windlass cert revoke`.

use anyhow::{Context as _, Result, bail};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use time::OffsetDateTime;
use windlass_api::revocation::{self, CERTIFICATE_HOLD, CertificateRevocationSpec};
use windlass_api::timestamp;
use windlass_pki::ForeignCertificate;

use super::ledger::{self, RevocationObject};
use super::lookup::{CertificateQuery, FoundCertificate};
use super::target::CertificateTarget;
use super::view;
use crate::cli::{CertIssuerArgs, CertRevokeArgs, OutputFormat};
use crate::commands::print::{plain, word};
use crate::commands::terminal::confirm;
use crate::commands::{api_client, csr, print};

struct RevocationTarget {
    signer: String,
    authority: String,
    serial: String,
    /// Expiry as RFC 3339.
    not_after: String,
    /// Who holds it, for people.
    holder: String,
}

/// Revokes a certificate or withdraws the revocation.
pub async fn run(arguments: CertRevokeArgs) -> Result<()> {
    let target = CertificateTarget::parse(&arguments.target, std::path::Path::is_file)?;
    if let CertificateTarget::Server(..) = target {
        bail!("{:?} is no serial number and no file that exists", arguments.target);
    }
    let chain = target.load_chain().await?;
    let client = api_client::connect(&arguments.server).await?;
    let now = OffsetDateTime::now_utc();
    let certificate = find(&client, &target, chain.as_deref(), &arguments.issuer, now).await?;
    let api = ledger::revocation_api(&client);
    let existing = get(&api, &certificate.object_name()).await?;
    let format = arguments.output.format;
    if arguments.undo {
        return undo(&api, &certificate, existing, arguments.yes, format).await;
    }
    let reason = arguments.reason.context("--reason is missing")?.name();
    if let Some(existing) = existing {
        return already_revoked(&certificate, &existing, reason, format);
    }
    confirm(&format!("Revoke {}", certificate.summary()), arguments.yes)?;
    let object = certificate.object(reason, arguments.comment);
    match api_client::with_timeout(api.create(&PostParams::default(), &object)).await? {
        Ok(created) => report(&certificate, &created, "revoked", reason, format),
        // Somebody else was faster.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            match get(&api, &certificate.object_name()).await? {
                Some(existing) => already_revoked(&certificate, &existing, reason, format),
                None => bail!("{} changed at the same time; try again", certificate.object_name()),
            }
        }
        Err(error) => Err(ledger::explain(error, &revocation::RESOURCE)),
    }
}

/// Finds the certificate in the ledger. One that is in a file only can be revoked if flags name its issuer.
async fn find(
    client: &Client,
    target: &CertificateTarget,
    chain: Option<&[ForeignCertificate]>,
    issuer: &CertIssuerArgs,
    now: OffsetDateTime,
) -> Result<RevocationTarget> {
    let query = CertificateQuery::new(target, chain, issuer)?;
    let contents = ledger::read_contents(client).await?;
    if contents.revocations.is_none() {
        return Err(ledger::not_served(&revocation::RESOURCE));
    }
    let found = query.find(client, &contents.index, now.unix_timestamp()).await?;
    let leaf = chain.and_then(<[_]>::first);
    let certificate = match (found, leaf, &issuer.signer, &issuer.authority) {
        (Some(found), ..) => RevocationTarget::from_record(&found),
        (None, Some(leaf), Some(signer), Some(authority)) => RevocationTarget {
            signer: signer.clone(),
            authority: authority.to_string(),
            serial: query.serial.to_string(),
            not_after: timestamp::format(leaf.not_after()),
            holder: csr::view::name(leaf.subject()),
        },
        (None, Some(_), ..) => bail!(
            "the certificate with serial number {} is not in the ledger; add --signer and --authority to revoke it",
            query.serial
        ),
        (None, None, ..) => bail!(
            "no certificate with serial number {} in the ledger; list certificates with windlass cert list",
            query.serial
        ),
    };
    if timestamp::parse(&certificate.not_after).is_ok_and(|expiry| expiry < now) {
        bail!("the certificate expired {}; it cannot be revoked", certificate.not_after);
    }
    Ok(certificate)
}

async fn get(api: &Api<RevocationObject>, name: &str) -> Result<Option<RevocationObject>> {
    api_client::with_timeout(api.get_opt(name)).await?.map_err(api_client::explain)
}

/// A second revocation changes nothing. One on hold would stay withdrawable, so it does not count as done.
fn already_revoked(
    certificate: &RevocationTarget,
    existing: &RevocationObject,
    reason: &str,
    format: Option<OutputFormat>,
) -> Result<()> {
    let known = existing.spec.reason.as_str();
    if known == CERTIFICATE_HOLD && reason != CERTIFICATE_HOLD {
        bail!(
            "{} is on hold already; withdraw that with --undo to revoke it with reason {reason}",
            certificate.object_name()
        );
    }
    report(certificate, existing, "already revoked", known, format)
}

async fn undo(
    api: &Api<RevocationObject>,
    certificate: &RevocationTarget,
    existing: Option<RevocationObject>,
    yes: bool,
    format: Option<OutputFormat>,
) -> Result<()> {
    let Some(existing) = existing else {
        let object = certificate.object(CERTIFICATE_HOLD, None);
        return report(certificate, &object, "not revoked", "no revocation", format);
    };
    let reason = &existing.spec.reason;
    if reason != CERTIFICATE_HOLD {
        bail!(
            "{} has reason {}; only {CERTIFICATE_HOLD} can be withdrawn",
            existing.name_any(),
            word(reason)
        );
    }
    confirm(&format!("Withdraw the revocation of {}", certificate.summary()), yes)?;
    let preconditions = Preconditions { uid: existing.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api_client::with_timeout(api.delete(&existing.name_any(), &params)).await? {
        Ok(_) => report(certificate, &existing, "valid again", "revocation withdrawn", format),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            report(certificate, &existing, "valid again", "already withdrawn", format)
        }
        Err(error) => Err(api_client::explain(error)),
    }
}

impl RevocationTarget {
    fn from_record(found: &FoundCertificate<'_>) -> Self {
        Self {
            signer: found.record.signer.clone(),
            authority: found.record.authority.to_string(),
            serial: found.record.serial.to_string(),
            not_after: view::format_time(found.record.not_after),
            holder: view::holder(&found.view),
        }
    }

    fn object_name(&self) -> String {
        revocation::object_name(&self.authority, &self.serial)
    }

    fn object(&self, reason: &str, comment: Option<String>) -> RevocationObject {
        let spec = CertificateRevocationSpec {
            signer_name: self.signer.clone(),
            authority_id: self.authority.clone(),
            serial_number: self.serial.clone(),
            reason: reason.to_owned(),
            not_after: self.not_after.clone(),
            comment,
        };
        RevocationObject::new(&self.object_name(), &ledger::api_resource(&revocation::RESOURCE), spec)
    }

    fn summary(&self) -> String {
        let (holder, signer) = (plain(&self.holder), word(&self.signer));
        format!("{holder} from {signer}, serial {}, expires {}", self.serial, self.not_after)
    }
}

fn report(
    certificate: &RevocationTarget,
    object: &RevocationObject,
    outcome: &str,
    why: &str,
    format: Option<OutputFormat>,
) -> Result<()> {
    let RevocationObject { spec, status, .. } = object;
    let document = json!({ "name": object.name_any(), "outcome": outcome, "spec": spec, "status": status });
    print::show(&document, format, |format| {
        let name = format!("certificaterevocation.windlass.dev/{}", object.name_any());
        match format {
            Some(OutputFormat::Name) => name + "\n",
            _ => format!("{name} {outcome} ({}): {}\n", plain(why), certificate.summary()),
        }
    })
}
