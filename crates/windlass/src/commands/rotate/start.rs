//! `windlass rotate start`.

use anyhow::{Result, bail};
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Client, ResourceExt as _};
use time::OffsetDateTime;
use windlass_api::ca_rotation::{CaRotationCanary, CaRotationRetirement, CaRotationSpec, RESOURCE};
use windlass_api::timestamp;

use super::completion::{self, WaitOutcome};
use super::rotations::{self, RotationObject, full_name};
use super::{HELD, plan, status_text};
use crate::cli::{OutputFormat, RotateStartArgs};
use crate::commands::cert::ledger::api_resource;
use crate::commands::print::word;
use crate::commands::{api_client, print, terminal};

/// Starts a rotation, and waits for its end if asked to. Returns the exit code.
pub async fn run(arguments: RotateStartArgs) -> Result<i32> {
    let client = api_client::connect(&arguments.server).await?;
    let now = OffsetDateTime::now_utc();
    let signer = rotations::find_signer(&client, &arguments.signer).await?;
    check_idle(&client, &arguments).await?;
    let spec = spec(&arguments, now)?;
    if arguments.compromised {
        let plan = plan::compute(&client, signer, now).await?;
        eprint!("{}", plan::consequences(&plan));
        let question =
            format!("Replace the CA of {}, revoke its certificates and retire it", arguments.signer);
        terminal::confirm(&question, arguments.yes)?;
    }
    let object = RotationObject {
        metadata: ObjectMeta { generate_name: Some(name_prefix(&arguments.signer)), ..ObjectMeta::default() },
        ..RotationObject::new("", &api_resource(&RESOURCE), spec)
    };
    let api = rotations::rotation_api(&client);
    let created = api_client::with_timeout(api.create(&PostParams::default(), &object)).await?;
    let created = created.map_err(|error| rotations::explain_write(error, &arguments.signer))?;
    if !arguments.wait {
        report(&created, arguments.output.format)?;
        return Ok(0);
    }
    eprintln!("windlass: {} started", full_name(&created));
    let (outcome, last) = completion::wait(&client, created, arguments.timeout).await?;
    report_end(&outcome, &last, &arguments)?;
    Ok(match outcome {
        WaitOutcome::Completed => 0,
        WaitOutcome::Failed => 1,
        WaitOutcome::Held => HELD,
    })
}

/// Fails if a rotation of the signer runs. Of two that start at once, the controllers run the older one.
async fn check_idle(client: &Client, arguments: &RotateStartArgs) -> Result<()> {
    let signer = arguments.signer.as_str();
    let all = rotations::list(client).await?;
    let mut of_signer = all.iter().filter(|rotation| rotation.spec.signer_name == signer);
    let Some(running) = of_signer.find(|rotation| rotations::is_running(rotation)) else { return Ok(()) };
    let name = running.name_any();
    let phase = running.status.as_ref().and_then(|status| status.phase);
    let phase = phase.map_or_else(|| "not started yet".to_owned(), |phase| format!("in phase {phase}"));
    // Which of the two CAs is compromised is known to the user only, so nothing is changed here.
    if arguments.compromised {
        bail!(
            "rotation {name} of {signer} is running, {phase}; if the CA that it replaces is compromised, run kubectl \
             patch carotation {name} --type merge -p '{{\"spec\":{{\"compromised\":true}}}}'; if its new CA is, end it \
             with windlass rotate rollback {name}"
        );
    }
    bail!(
        "rotation {name} of {signer} is running, {phase}; follow it with windlass rotate status {name} --watch, or end \
         it with windlass rotate rollback {name}"
    )
}

fn spec(arguments: &RotateStartArgs, now: OffsetDateTime) -> Result<CaRotationSpec> {
    let not_before = match arguments.retire_not_before {
        None => None,
        Some(time) => match time.from(now) {
            Some(time) => Some(timestamp::format(time)),
            None => bail!("--retire-not-before is too far in the future"),
        },
    };
    let canary = arguments.canary_soak.clone();
    Ok(CaRotationSpec {
        signer_name: arguments.signer.clone(),
        compromised: arguments.compromised.then_some(true),
        require_read: arguments.no_require_read.then_some(false),
        canary: canary.map(|soak_time| CaRotationCanary { soak_time: Some(soak_time), max_failures: None }),
        renewal_window: arguments.renewal_window.clone(),
        retirement: not_before
            .map(|time| CaRotationRetirement { not_before: Some(time), ..CaRotationRetirement::default() }),
        ..CaRotationSpec::default()
    })
}

/// The prefix of the name, to which the server adds random characters: path and domain of the signer.
fn name_prefix(signer: &str) -> String {
    match signer.split_once('/') {
        Some((domain, path)) => format!("{path}.{domain}-"),
        None => format!("{signer}-"),
    }
}

fn report(rotation: &RotationObject, format: Option<OutputFormat>) -> Result<()> {
    let (name, full) = (word(&rotation.name_any()), full_name(rotation));
    print::show(rotation, format, |format| match format {
        Some(OutputFormat::Name) => full + "\n",
        _ => format!("{full} started; follow it with windlass rotate status {name} --watch\n"),
    })
}

fn report_end(outcome: &WaitOutcome, rotation: &RotationObject, arguments: &RotateStartArgs) -> Result<()> {
    let (name, full) = (word(&rotation.name_any()), full_name(rotation));
    if *outcome == WaitOutcome::Held {
        let timeout = arguments.timeout;
        eprintln!(
            "windlass: held for longer than {timeout:?}; the rotation continues by itself when the cause disappears; \
             see windlass rotate status {name}"
        );
    }
    let (now, width) = (OffsetDateTime::now_utc(), terminal::columns(std::io::stdout()));
    print::show(rotation, arguments.output.format, |format| match format {
        Some(OutputFormat::Name) => full + "\n",
        _ => status_text::details(rotation, false, now, width),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::{Cli, CliCommand, RotateCommand};

    const NOW: OffsetDateTime = time::macros::datetime!(2026-03-01 12:05 UTC);

    fn spec_of(flags: &str) -> Value {
        let line = format!("windlass rotate start example.com/web {flags}");
        match Cli::try_parse_from(line.split_whitespace()).unwrap().command {
            CliCommand::Rotate(RotateCommand::Start(arguments)) => {
                serde_json::to_value(spec(&arguments, NOW).unwrap()).unwrap()
            }
            _ => panic!("{line}"),
        }
    }

    #[test]
    fn flags_become_fields() {
        for (flags, wanted) in [
            ("", json!({})),
            ("--compromised", json!({"compromised": true})),
            ("--no-require-read", json!({"requireRead": false})),
            ("--canary-soak 5m", json!({"canary": {"soakTime": "5m"}})),
            ("--renewal-window 1h30m", json!({"renewalWindow": "1h30m"})),
            ("--retire-not-before 2027-01-31", json!({"retirement": {"notBefore": "2027-01-31T00:00:00Z"}})),
            ("--retire-not-before 1d", json!({"retirement": {"notBefore": "2026-03-02T12:05:00Z"}})),
        ] {
            let mut wanted = wanted;
            wanted["signerName"] = json!("example.com/web");
            assert_eq!(spec_of(flags), wanted, "{flags}");
        }
    }

    #[test]
    fn names_begin_with_the_path() {
        assert_eq!(name_prefix("example.com/web"), "web.example.com-");
        assert_eq!(name_prefix("example.com/a.b"), "a.b.example.com-");
    }
}
