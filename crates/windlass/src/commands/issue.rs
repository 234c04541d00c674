//! `windlass issue`: generates a key, requests a certificate and writes both, with the trust anchors of the signer.
//!
//! The key never leaves this process except to its file. Nothing on disk changes until the certificate was issued.

mod certificate_dir;
mod certificate_spec;
mod csr_wait;
mod issuance_step;
mod issue_record;
mod kubeconfig;
mod progress;
mod trust_anchors;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use time::OffsetDateTime;
use windlass_api::timestamp;
use windlass_pki::{
    CertificateRequest, ForeignCertificate, IssuedSubject, PrivateKey, SubjectKey, build_csr,
    parse_certificate_blocks, pem,
};

use super::csr::decision::{self, CsrDecision, DecisionReason};
use super::csr::view::{CsrView, IssuedCertificate};
use super::csr::{self, CsrObject};
use super::{api_client, print};
use crate::cli::{IssueArgs, OutputFormat};

use certificate_dir::{CertificateDir, CertificateFiles};
use certificate_spec::CertificateSpec;
use progress::WaitProgress;

const PREFIX: &str = "csr-";

pub fn run(arguments: IssueArgs) -> Result<()> {
    api_client::block_on(issue(arguments))
}

async fn issue(arguments: IssueArgs) -> Result<()> {
    let config = api_client::config(&arguments.server).await?;
    let client = api_client::from_config(config.clone())?;
    if let Some(file) = &arguments.write_kubeconfig
        && file.try_exists().is_ok_and(|exists| exists)
    {
        bail!("{} already exists; choose another --write-kubeconfig", file.display());
    }
    let place = CertificateDir::open(&arguments.out)?;
    let (wanted, old_anchors) = if arguments.renew {
        let there = place.renewable()?;
        let wanted = CertificateSpec::for_renewal(&there, &arguments)?;
        // Anchors of another signer do not verify the new certificate.
        let same = there.note.is_some_and(|note| note.signer == wanted.signer);
        (wanted, there.anchors.filter(|_| same))
    } else {
        place.must_be_free()?;
        (CertificateSpec::from_flags(&arguments)?, None)
    };
    let key = PrivateKey::generate_type(wanted.key_type)?;
    let mut progress = WaitProgress::new();
    let request = create_csr(&client, &wanted, &key, arguments.name.as_deref()).await?;
    if arguments.approve {
        approve(&client, &request, &mut progress).await;
    }
    let api = Api::all(client.clone());
    let text = csr_wait::wait(&api, &request, arguments.timeout, &mut progress).await?;
    let chain = parse_certificate_blocks(&text)
        .with_context(|| format!("certificate of {} is invalid", request.name_any()))?;
    let leaf = find_leaf(&chain, &key, &request, &mut progress)?;
    must_be_valid((leaf.not_before(), leaf.not_after()), OffsetDateTime::now_utc())?;
    let anchors = trust_anchors::fetch_anchors(&client, &wanted.signer).await;
    let (anchors, note) = anchors.or_previous(old_anchors, &wanted.signer);
    if let Some(note) = note {
        progress.print_note(&note);
    }
    drop(progress);

    let made = IssueResult {
        request: request.name_any(),
        signer_name: wanted.signer.clone(),
        certificate: IssuedCertificate::from_certificate(leaf, chain.len(), None, OffsetDateTime::now_utc()),
        key_file: place.file("tls.key"),
        certificate_file: place.file("tls.crt"),
        ca_file: anchors.as_ref().map(|_| place.file("ca.crt")),
        kubeconfig: arguments.write_kubeconfig.clone(),
    };
    let set = CertificateFiles {
        key: key.to_pem()?,
        chain: pem::encode_certificates(chain.iter().map(ForeignCertificate::der)),
        anchors,
        note: wanted.to_record().render()?,
    };
    place.write(set)?;
    if let Some(file) = &arguments.write_kubeconfig {
        let user = leaf.subject().common_name();
        kubeconfig::write(file, &config, user, &made.certificate_file, &made.key_file)?;
    }
    print::show(&made, arguments.output.format, |format| made.text(format))
}

/// Result of the command, as `-o json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct IssueResult {
    request: String,
    signer_name: String,
    #[serde(flatten)]
    certificate: IssuedCertificate,
    key_file: PathBuf,
    certificate_file: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<PathBuf>,
}

impl IssueResult {
    fn text(&self, format: Option<OutputFormat>) -> String {
        let Self { request, signer_name, certificate, .. } = self;
        if format == Some(OutputFormat::Name) {
            return csr::object(request) + "\n";
        }
        let names = csr::names_summary(&certificate.names);
        let (file, expiry) = (self.certificate_file.display(), &certificate.not_after);
        let mut text = format!("wrote {file}: {names}, expires {expiry}\n");
        if format == Some(OutputFormat::Wide) {
            let rows = [
                ("request", Some(request.clone())),
                ("signer", Some(signer_name.clone())),
                ("serial", Some(certificate.serial.clone())),
                ("issuer", Some(print::plain(&certificate.issuer))),
                ("key", Some(format!("{} in {}", certificate.key, self.key_file.display()))),
                ("anchors", self.ca_file.as_ref().map(|file| file.display().to_string())),
                ("kubeconfig", self.kubeconfig.as_ref().map(|file| file.display().to_string())),
            ];
            for (label, value) in rows {
                let value = value.unwrap_or_else(|| "none".into());
                text.push_str(&format!("  {:<12} {value}\n", format!("{label}:")));
            }
        }
        text
    }
}

async fn create_csr(
    client: &Client,
    wanted: &CertificateSpec,
    key: &PrivateKey,
    name: Option<&str>,
) -> Result<CsrObject> {
    let text = build_csr(key, &wanted.subject, &wanted.names)?;
    let request = CsrObject {
        metadata: ObjectMeta {
            name: name.map(str::to_owned),
            generate_name: name.is_none().then(|| PREFIX.to_owned()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(text.into_bytes()),
            signer_name: wanted.signer.clone(),
            usages: Some(wanted.usages.clone()),
            expiration_seconds: wanted.seconds,
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let api: Api<CsrObject> = Api::all(client.clone());
    match api_client::with_timeout(api.create(&PostParams::default(), &request)).await? {
        Ok(created) => Ok(created),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let name = name.unwrap_or_default();
            bail!("request {name:?} already exists; choose another --name or omit it")
        }
        Err(error) => {
            Err(api_client::explain(error)).context("cannot create the certificate signing request")
        }
    }
}

/// Approves the request. Without permission, reports what is missing and leaves the request pending.
async fn approve(client: &Client, request: &CsrObject, progress: &mut WaitProgress) {
    let message = "This CSR was approved by windlass issue --approve.".to_owned();
    let reason = DecisionReason::from_flags(CsrDecision::Approve, None, Some(message));
    let summary = csr::summarize(&CsrView::from_csr(request, OffsetDateTime::now_utc()));
    match decision::decide(client, request, CsrDecision::Approve, &reason).await {
        Ok(_) => progress.print_note(&format!("approved {}: {summary}", request.name_any())),
        Err(error) => progress.print_note(&format!("{error:#}; leaving it for an authorized approver")),
    }
}

/// Rejects a certificate that is not valid by the local clock: it would replace one that works.
fn must_be_valid(
    (not_before, not_after): (OffsetDateTime, OffsetDateTime),
    now: OffsetDateTime,
) -> Result<()> {
    let state = if now > not_after {
        format!("expired {}", timestamp::format(not_after))
    } else if now < not_before {
        format!("is not valid before {}", timestamp::format(not_before))
    } else {
        return Ok(());
    };
    let now = timestamp::format(now);
    bail!("the issued certificate {state}, the local time is {now}; not installed, existing files unchanged")
}

/// Returns the leaf, which must have our key. Signers may omit or add names, which is reported.
fn find_leaf<'a>(
    chain: &'a [ForeignCertificate],
    key: &PrivateKey,
    request: &CsrObject,
    progress: &mut WaitProgress,
) -> Result<&'a ForeignCertificate> {
    let leaf = chain.first().context("the chain is empty")?;
    if *leaf.public_key() != SubjectKey::from_der(key.public_key().as_der())? {
        bail!("the issued certificate has a different key than the request; not installed");
    }
    let asked = CertificateRequest::from_pem(&request.spec.request.0)?;
    let same = IssuedSubject::from_name(leaf.subject()) == IssuedSubject::from_name(asked.subject())
        && leaf.alt_names() == asked.alt_names();
    if !same {
        progress.print_note("the issued certificate has different names than the request");
    }
    Ok(leaf)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_certificate_is_installed_only_while_it_is_valid() {
        let valid = (datetime!(2026-01-01 00:00 UTC), datetime!(2026-02-01 00:00 UTC));
        for (now, refused) in [
            (datetime!(2025-12-31 23:59 UTC), Some("is not valid before 2026-01-01T00:00:00Z")),
            (datetime!(2026-01-01 00:00 UTC), None),
            (datetime!(2026-02-01 00:00 UTC), None),
            (datetime!(2026-02-01 00:00:01 UTC), Some("expired 2026-02-01T00:00:00Z")),
        ] {
            let error = must_be_valid(valid, now).err().map(|error| error.to_string());
            assert_eq!(error.is_some(), refused.is_some(), "{now}: {error:?}");
            let error = error.unwrap_or_default();
            assert!(error.contains(refused.unwrap_or_default()), "{error}");
            assert!(error.is_empty() || error.contains(&timestamp::format(now)), "{error}");
        }
    }
}
