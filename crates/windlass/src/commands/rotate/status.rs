//! `windlass rotate status`.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Result, bail};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use time::OffsetDateTime;
use windlass_runtime::watch::{ObjectWatch, RelistBuffer, SnapshotEvent, WatchErrorKind};

use super::rotations::{self, RotationObject, full_name, is_running};
use super::status_text;
use crate::cli::{OutputFormat, RotateStatusArgs, RotationTarget};
use crate::commands::print::plain;
use crate::commands::{api_client, print, terminal};

/// Moves the cursor to the first line and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";
/// Interval at which a terminal is redrawn, because ages change.
const REDRAW: Duration = Duration::from_secs(1);

/// Shows one rotation or all.
pub async fn run(arguments: RotateStatusArgs) -> Result<()> {
    let RotateStatusArgs { target, watch, output, server } = arguments;
    let client = api_client::connect(&server).await?;
    let all = rotations::list(&client).await?;
    if watch && matches!(output.format, None | Some(OutputFormat::Wide)) {
        let wide = output.format == Some(OutputFormat::Wide);
        // A target that does not exist is an error now, not a watch that never ends.
        let target = target.map(|target| rotations::select(&all, &target).map(RotationObject::name_any));
        return StatusWatch { name: target.transpose()?, wide }.run(&client).await;
    }
    if watch {
        bail!("--watch prints text only; remove -o, or use kubectl get carotations --watch -o json");
    }
    show(&all, target.as_ref(), output.format)
}

fn show(all: &[RotationObject], target: Option<&RotationTarget>, format: Option<OutputFormat>) -> Result<()> {
    let (now, width) = (OffsetDateTime::now_utc(), terminal::columns(std::io::stdout()));
    let wide = format == Some(OutputFormat::Wide);
    let Some(target) = target else {
        if all.is_empty() && matches!(format, None | Some(OutputFormat::Wide)) {
            eprintln!("windlass: no rotations found");
            return Ok(());
        }
        return print::show(&json!({"items": all}), format, |format| match format {
            Some(OutputFormat::Name) => all.iter().map(|rotation| full_name(rotation) + "\n").collect(),
            _ => all_text(all.iter().collect(), wide, now, width),
        });
    };
    let rotation = rotations::select(all, target)?;
    print::show(rotation, format, |format| match format {
        Some(OutputFormat::Name) => full_name(rotation) + "\n",
        _ => status_text::details(rotation, wide, now, width),
    })
}

/// Formats the table of all rotations, newest first, and the details of those that run.
fn all_text(mut all: Vec<&RotationObject>, wide: bool, now: OffsetDateTime, width: usize) -> String {
    all.reverse();
    let mut text = status_text::overview(&all, wide, now);
    for rotation in all.into_iter().filter(|rotation| is_running(rotation)) {
        text.push('\n');
        text.push_str(&status_text::details(rotation, wide, now, width));
    }
    text
}

/// A live view: redrawn on a terminal, a line per change elsewhere.
struct StatusWatch {
    /// The rotation to show; all if absent.
    name: Option<String>,
    wide: bool,
}

impl StatusWatch {
    async fn run(&self, client: &Client) -> Result<()> {
        let selector = self.name.as_ref().map(|name| format!("metadata.name={name}"));
        let mut events = ObjectWatch::with_fields(rotations::rotation_api(client), selector.as_deref());
        let mut buffer = RelistBuffer::default();
        let mut known: BTreeMap<String, RotationObject> = BTreeMap::new();
        let mut printed: BTreeMap<String, String> = BTreeMap::new();
        let is_terminal = std::io::stdout().is_terminal();
        let mut redraw = tokio::time::interval(REDRAW);
        let mut is_listed = false;
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Ok(event) => match buffer.push(event, |object| object) {
                        Some(SnapshotEvent::Replaced(objects)) => {
                            known = objects.into_iter().map(|object| (object.name_any(), object)).collect();
                            is_listed = true;
                        }
                        Some(SnapshotEvent::Applied(object)) => drop(known.insert(object.name_any(), object)),
                        Some(SnapshotEvent::Deleted(object)) => drop(known.remove(&object.name_any())),
                        None => continue,
                    },
                    Err(error) if error.kind == WatchErrorKind::Refused => bail!("{}", plain(&error.message)),
                    Err(_) => continue,
                },
                _ = redraw.tick(), if is_terminal && is_listed => {}
                _ = tokio::signal::ctrl_c() => return Ok(()),
            }
            if !is_listed {
                continue;
            }
            if is_terminal {
                print::write_stdout(&format!("{CLEAR}{}", self.screen(&known)))?;
            } else {
                print_changes(&known, &mut printed)?;
            }
            if let Some(name) = &self.name {
                match known.get(name) {
                    None => bail!("rotation {name} was deleted"),
                    Some(rotation) if !is_running(rotation) => return Ok(()),
                    Some(_) => {}
                }
            }
        }
    }

    fn screen(&self, known: &BTreeMap<String, RotationObject>) -> String {
        let (now, width) = (OffsetDateTime::now_utc(), terminal::columns(std::io::stdout()));
        match self.name.as_ref().and_then(|name| known.get(name)) {
            Some(rotation) => status_text::details(rotation, self.wide, now, width),
            None => all_text(known.values().collect(), self.wide, now, width),
        }
    }
}

/// Prints a line for every rotation whose state differs from what was printed last.
fn print_changes(
    known: &BTreeMap<String, RotationObject>,
    printed: &mut BTreeMap<String, String>,
) -> Result<()> {
    let now = OffsetDateTime::now_utc();
    for (name, rotation) in known {
        let line = status_text::summary_line(rotation, now);
        // The line begins with the time, which is no change.
        let state = line.split_once(' ').map(|(_, state)| state.to_owned()).unwrap_or_default();
        if printed.get(name) != Some(&state) {
            print::write_stdout(&format!("{line}\n"))?;
            printed.insert(name.clone(), state);
        }
    }
    printed.retain(|name, _| known.contains_key(name));
    Ok(())
}
