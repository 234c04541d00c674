//! `windlass signer`: who signs what, with which CA, and what waits for them. Nothing is written.
//!
//! - `terms`: what a signer says about itself; `built_in`, `custom`: where that comes from.
//! - `authority`, `known`: what files say; `asked`, `server`: what a server says.
//! - `list`, `findings`: what is made of it.

mod asked;
mod authority;
mod built_in;
mod custom;
mod findings;
mod known;
mod list;
mod server;
mod terms;

use anyhow::{Result, bail};
use serde_json::json;
use time::OffsetDateTime;

use super::{connect, print};
use crate::cli::{Format, SignerCheckArgs, SignerCommand, SignerListArgs, SignerShowArgs};

use authority::Ca;
use findings::{Facts, Finding, Severity};
use known::{Known, Places};
use server::Trouble;

/// Does what was asked about signers.
pub fn run(command: SignerCommand) -> Result<()> {
    match command {
        SignerCommand::List(arguments) => connect::block_on(list(arguments)),
        SignerCommand::Check(arguments) => check(arguments),
        SignerCommand::Show(arguments) => show(&arguments),
    }
}

async fn list(arguments: SignerListArgs) -> Result<()> {
    let places = Places::of(&arguments.places)?;
    let mut known = Known::built_in(places.data.as_ref());
    known.extend(places.custom()?.iter().map(Known::custom));
    let (seen, left_out) = match server::look(arguments.server.kubeconfig.as_deref()).await {
        Ok(seen) => {
            let left_out = seen.left_out().into_iter().map(|(_, why)| why).collect();
            (Some(seen), left_out)
        }
        Err(Trouble::NotAsked) => (None, Vec::new()),
        Err(Trouble::NoServer(why)) => (None, vec![format!("no server was looked at: {why}")]),
        Err(Trouble::Unreachable(why)) => bail!(why),
    };
    let rows = list::rows(&known, seen.as_ref());
    if matches!(arguments.output.format, None | Some(Format::Wide)) {
        left_out.iter().for_each(|said| eprintln!("windlass: {}", print::plain(said)));
    }
    let now = OffsetDateTime::now_utc();
    let document = json!({ "items": rows, "leftOut": left_out });
    print::show(&document, arguments.output.format, |format| list::text(&rows, format, now))
}

fn check(arguments: SignerCheckArgs) -> Result<()> {
    let places = Places::of(&arguments.places)?;
    let mut known = Known::built_in(places.data.as_ref());
    let bad_file = match places.custom() {
        Ok(custom) => {
            known.extend(custom.iter().map(Known::custom));
            None
        }
        Err(error) => Some(error.to_string()),
    };
    let server = match arguments.files_only {
        true => Err(Trouble::NotAsked),
        false => connect::block_on(async {
            Ok(server::look(arguments.server.kubeconfig.as_deref()).await)
        })?,
    };
    let own = places.own_certificates();
    let facts = Facts { bad_file, known, own, server };
    let found = findings::findings(&facts, OffsetDateTime::now_utc());
    let count = |severity| found.iter().filter(|each| each.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let document = json!({"findings": found, "errors": errors, "warnings": warnings});
    print::show(&document, arguments.output.format, |_| report(&facts, &found, &places))?;
    if errors > 0 {
        std::process::exit(1);
    }
    Ok(())
}

/// What was found, one a line, and at the end what was looked at.
fn report(facts: &Facts, found: &[Finding], places: &Places) -> String {
    let mut text = String::new();
    for Finding { severity, signer, message } in found {
        let about = signer.as_ref().map(|name| print::word(name) + ": ").unwrap_or_default();
        let message = print::plain(message);
        text.push_str(&format!("{:<8} {about}{message}\n", severity.name()));
    }
    let file = places.signers.as_ref().map(|file| file.display().to_string());
    let file = file.unwrap_or_else(|| "no signers.yaml".into());
    let asked = match &facts.server {
        Ok(seen) => format!("requests: {}, bundles: {}", seen.asked.len(), seen.bundles.len()),
        Err(_) => "no server".into(),
    };
    let signers = facts.known.len();
    let well = found.iter().all(|finding| finding.severity == Severity::Note);
    let verdict = if well { "nothing is wrong: " } else { "" };
    text.push_str(&format!("{verdict}looked at {file}, signers: {signers}, {asked}\n"));
    text
}

fn show(arguments: &SignerShowArgs) -> Result<()> {
    let name = arguments.name.as_str();
    let places = Places::of(&arguments.places)?;
    let mut known = Known::built_in(places.data.as_ref());
    // Kubernetes' own are what they are, whatever is in the file.
    if !built_in::NAMES.contains(&name) {
        known.extend(places.custom()?.iter().map(Known::custom));
    }
    let Some(found) = known.iter().find(|known| known.name() == name) else {
        let names = known.iter().map(|known| known.name()).collect::<Vec<_>>().join(", ");
        let file = match places.signers {
            Some(_) => "",
            None => "; name the file of others with --signers",
        };
        bail!("there is no signer {name:?} here; there are {names}{file}");
    };
    print::show(&found.document, arguments.output.format, |format| match format {
        Some(Format::Name) => format!("{name}\n"),
        Some(Format::Wide) => terms::text(&found.document) + &ca(&found.ca),
        Some(Format::Json | Format::Yaml) | None => terms::text(&found.document),
    })
}

/// A CA, for people.
fn ca(ca: &Ca) -> String {
    let mut text = String::new();
    match ca {
        Ca::Elsewhere => terms::field(&mut text, "", "CA", &["not known here".into()]),
        Ca::ToBeMade(directory) => {
            let said = format!("will be made at start in {}", directory.display());
            terms::field(&mut text, "", "CA", &[said]);
        }
        Ca::Unusable(why) => terms::field(&mut text, "", "CA", &[format!("UNUSABLE: {why}")]),
        Ca::Files(files) => {
            let facts = &files.facts;
            let until = windlass_api::timestamp::format(facts.not_after);
            let lines = [
                facts.subject.clone(),
                format!("{} until {until}", files.certificate.display()),
                format!("{}, serial {}", facts.key, facts.serial),
                format!("SHA-256 {}", facts.fingerprint.as_deref().unwrap_or("unknown")),
            ];
            terms::field(&mut text, "", "CA", &lines);
        }
    }
    text
}
