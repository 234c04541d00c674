//! `windlass signer`: shows signers, their policies, their CAs and their pending requests.
//! Read-only.
//!
//! - `signing_policy`: describes a signer; `built_in`, `custom`: produce the description.
//! - `signer_ca`, `local_signers`: read files; `certificate_requests`, `signer_objects`, `server`: query a server.
//! - `list`, `findings`: evaluate both.

mod built_in;
mod certificate_requests;
mod custom;
mod findings;
mod list;
mod local_signers;
mod server;
mod signer_ca;
mod signer_objects;
mod signing_policy;

use anyhow::{Result, anyhow, bail};
use serde_json::json;
use time::OffsetDateTime;

use super::{api_client, print};
use crate::cli::{OutputFormat, SignerCheckArgs, SignerCommand, SignerListArgs, SignerShowArgs};

use findings::{CheckInputs, FindingSeverity, SignerFinding};
use local_signers::{LocalSigner, SignerSources};
use server::SnapshotError;
use signer_ca::SignerCa;

/// Runs a subcommand of `windlass signer`.
pub fn run(command: SignerCommand) -> Result<()> {
    match command {
        SignerCommand::List(arguments) => api_client::block_on(list(arguments)),
        SignerCommand::Check(arguments) => check(arguments),
        SignerCommand::Show(arguments) => api_client::block_on(show(&arguments)),
    }
}

async fn list(arguments: SignerListArgs) -> Result<()> {
    let places = SignerSources::from_flags(&arguments.places)?;
    let mut known = LocalSigner::built_in(places.data.as_ref());
    known.extend(places.custom()?.iter().map(LocalSigner::custom));
    let (seen, skipped) =
        match server::fetch_snapshot(&arguments.server, arguments.namespace.as_deref()).await {
            Ok(seen) => {
                let skipped = seen.unavailable_kinds().into_iter().map(|(_, why)| why).collect();
                (Some(seen), skipped)
            }
            Err(SnapshotError::NotRequested) => (None, Vec::new()),
            Err(SnapshotError::NoServer(why)) => (None, vec![format!("no server checked: {why}")]),
            Err(SnapshotError::Unreachable(why)) => bail!(why),
        };
    if let Some(seen) = &seen {
        known.extend(signer_objects::additional_signers(&known, seen));
    }
    let rows = list::rows(&known, seen.as_ref());
    if matches!(arguments.output.format, None | Some(OutputFormat::Wide)) {
        skipped.iter().for_each(|note| eprintln!("windlass: {}", print::plain(note)));
    }
    let now = OffsetDateTime::now_utc();
    let document = json!({ "items": rows, "skipped": skipped });
    print::show(&document, arguments.output.format, |format| list::text(&rows, format, now))
}

fn check(arguments: SignerCheckArgs) -> Result<()> {
    let places = SignerSources::from_flags(&arguments.places)?;
    let mut known = LocalSigner::built_in(places.data.as_ref());
    let bad_file = match places.custom() {
        Ok(custom) => {
            known.extend(custom.iter().map(LocalSigner::custom));
            None
        }
        Err(error) => Some(error.to_string()),
    };
    let server = match arguments.files_only {
        true => Err(SnapshotError::NotRequested),
        false => api_client::block_on(async {
            Ok(server::fetch_snapshot(&arguments.server, arguments.namespace.as_deref()).await)
        })?,
    };
    if let Ok(seen) = &server {
        known.extend(signer_objects::additional_signers(&known, seen));
    }
    let own = places.own_certificates();
    let facts = CheckInputs { bad_file, known, own, server };
    let found = findings::findings(&facts, OffsetDateTime::now_utc());
    let count = |severity| found.iter().filter(|each| each.severity == severity).count();
    let (errors, warnings) = (count(FindingSeverity::Error), count(FindingSeverity::Warning));
    let document = json!({"findings": found, "errors": errors, "warnings": warnings});
    print::show(&document, arguments.output.format, |_| report(&facts, &found, &places))?;
    if errors > 0 {
        std::process::exit(1);
    }
    Ok(())
}

/// Formats the findings, one per line, followed by a summary of what was checked.
fn report(facts: &CheckInputs, found: &[SignerFinding], places: &SignerSources) -> String {
    let mut text = String::new();
    for SignerFinding { severity, signer, message } in found {
        let about = signer.as_ref().map(|name| print::word(name) + ": ").unwrap_or_default();
        let message = print::plain(message);
        text.push_str(&format!("{:<8} {about}{message}\n", severity.name()));
    }
    let file = places.signers.as_ref().map(|file| file.display().to_string());
    let file = file.unwrap_or_else(|| "no signers.yaml".into());
    let asked = match &facts.server {
        Ok(seen) => format!("requests: {}, bundles: {}", seen.requests.len(), seen.bundles.len()),
        Err(_) => "no server".into(),
    };
    let signers = facts.known.len();
    let well = found.iter().all(|finding| finding.severity == FindingSeverity::Note);
    let verdict = if well { "no problems found; " } else { "" };
    text.push_str(&format!("{verdict}checked {file}, signers: {signers}, {asked}\n"));
    text
}

async fn show(arguments: &SignerShowArgs) -> Result<()> {
    let name = arguments.name.as_str();
    let places = SignerSources::from_flags(&arguments.places)?;
    let mut known = LocalSigner::built_in(places.data.as_ref());
    // The file cannot redefine built-in signers.
    if !built_in::NAMES.contains(&name) {
        known.extend(places.custom()?.iter().map(LocalSigner::custom));
    }
    let is_local = known.iter().any(|known| known.name() == name);
    let mut seen = None;
    if !is_local {
        let snapshot = server::fetch_signer_objects(&arguments.server).await;
        let snapshot = snapshot.map_err(|error| signer_not_found(name, &known, &places, Some(error)))?;
        known.extend(signer_objects::additional_signers(&known, &snapshot));
        seen = Some(snapshot);
    }
    let Some(found) = known.iter().find(|known| known.name() == name) else {
        return Err(signer_not_found(name, &known, &places, None));
    };
    let object = seen.iter().flat_map(|seen| &seen.signers).find(|object| object.signer_name == name);
    print::show(&found.document, arguments.output.format, |format| match (format, object) {
        (Some(OutputFormat::Name), _) => format!("{name}\n"),
        (Some(OutputFormat::Wide), Some(object)) => {
            signing_policy::text(&found.document) + &signer_objects::authorities_text(object)
        }
        (Some(OutputFormat::Wide), None) => signing_policy::text(&found.document) + &ca_text(&found.ca),
        (Some(OutputFormat::Json | OutputFormat::Yaml) | None, _) => signing_policy::text(&found.document),
    })
}

fn signer_not_found(
    name: &str,
    known: &[LocalSigner],
    places: &SignerSources,
    server: Option<SnapshotError>,
) -> anyhow::Error {
    let names = known.iter().map(LocalSigner::name).collect::<Vec<_>>().join(", ");
    let file = match places.signers {
        Some(_) => "",
        None => "; for signers in a file, set --signers",
    };
    let server = match server {
        Some(SnapshotError::NoServer(why) | SnapshotError::Unreachable(why)) => {
            format!("; Signer objects not checked: {why}")
        }
        Some(SnapshotError::NotRequested) | None => String::new(),
    };
    anyhow!("signer {name:?} not found; known signers: {names}{file}{server}")
}

fn ca_text(ca: &SignerCa) -> String {
    let mut text = String::new();
    match ca {
        SignerCa::Elsewhere => signing_policy::field(&mut text, "", "CA", &["unknown".into()]),
        SignerCa::ToBeMade(directory) => {
            let said = format!("to be created at start in {}", directory.display());
            signing_policy::field(&mut text, "", "CA", &[said]);
        }
        SignerCa::Unusable(why) => signing_policy::field(&mut text, "", "CA", &[format!("UNUSABLE: {why}")]),
        SignerCa::Files(files) => {
            let facts = &files.facts;
            let until = windlass_api::timestamp::format(facts.not_after);
            let lines = [
                facts.subject.clone(),
                format!("{} until {until}", files.certificate.display()),
                format!("{}, serial {}", facts.key, facts.serial),
                format!("SHA-256 {}", facts.fingerprint.as_deref().unwrap_or("unknown")),
            ];
            signing_policy::field(&mut text, "", "CA", &lines);
        }
    }
    text
}
