//! `windlass node status`: what the agent of this machine says of itself.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::fs::{StatVfsMountFlags, statvfs};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use windlass_api::age::human_duration;
use windlass_node::status::{Certificate, Held, Status, VolumeProblem, Volumes, is_running};

use crate::cli::{Format, NodeStatusArgs};
use crate::commands::print;

/// Prints it; fails if the node has no certificate with which it is known.
pub fn show(arguments: &NodeStatusArgs) -> Result<()> {
    let directory = directory(arguments);
    let status = Status::read(directory).map_err(anyhow::Error::msg)?;
    let (running, doubt) = (is_running(&arguments.cert_dir), doubt(directory));
    let status = status.with_context(|| {
        let shown = directory.display();
        match (running, doubt) {
            (Some(true), Some(doubt)) => format!("an agent is running, but {shown} {doubt}"),
            (Some(true), None) => {
                format!("an agent is running, with another --root-dir than {shown}")
            }
            _ => format!("no node agent has written its status to {shown}"),
        }
    })?;
    if let Some(doubt) = doubt.filter(|_| running == Some(true)) {
        eprintln!("warning: {} {doubt}; this may be old", directory.display());
    }
    let view = View { running, status };
    let now = OffsetDateTime::now_utc();
    print::show(&view, arguments.output.format, |format| text(&view, format, now))?;
    let client = view.status.certificates.iter().find(|one| one.purpose == "client");
    let held = client
        .and_then(|client| client.held.as_ref())
        .ok_or_else(|| anyhow!("the node {} has no client certificate yet", view.status.node))?;
    if held.not_after < now {
        bail!("the client certificate of the node {} has expired", view.status.node);
    }
    Ok(())
}

/// Where the status is, unless told: with the certificates, or one above them as `up` has it.
fn directory(arguments: &NodeStatusArgs) -> &Path {
    let with = arguments.cert_dir.as_path();
    let above = with.parent().filter(|above| !has_status(with) && has_status(above));
    arguments.root_dir.as_deref().or(above).unwrap_or(with)
}

fn has_status(directory: &Path) -> bool {
    directory.join(windlass_node::status::FILE).exists()
}

/// What keeps an agent from writing to a directory, if something does.
fn doubt(directory: &Path) -> Option<&'static str> {
    let disk = statvfs(directory).ok()?;
    let readonly = disk.f_flag.contains(StatVfsMountFlags::RDONLY);
    unwritable(readonly, disk.f_blocks, disk.f_bavail)
}

fn unwritable(readonly: bool, blocks: u64, free: u64) -> Option<&'static str> {
    match (readonly, blocks, free) {
        (true, _, _) => Some("is on a disk that cannot be written"),
        (false, 1.., 0) => Some("is on a disk that is full"),
        (false, _, _) => None,
    }
}

#[derive(Serialize)]
struct View {
    /// Whether an agent is at work; not there if that cannot be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<bool>,
    #[serde(flatten)]
    status: Status,
}

fn text(view: &View, format: Option<Format>, now: OffsetDateTime) -> String {
    let status = &view.status;
    if format == Some(Format::Name) {
        return format!("node/{}\n", status.node);
    }
    let mut lines = vec![("Node", status.node.clone()), ("Agent", agent(view, now))];
    for certificate in &status.certificates {
        describe(certificate, now, &mut lines);
    }
    lines.push(("Server", server(status)));
    volumes(&status.volumes, &mut lines);
    let width = lines.iter().map(|(key, _)| key.len()).max().unwrap_or_default() + 1;
    let line = |(key, value): &(&str, String)| {
        let key = if key.is_empty() { String::new() } else { format!("{key}:") };
        format!("{key:<width$} {}", print::plain(value)).trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

fn agent(view: &View, now: OffsetDateTime) -> String {
    let process = view.status.process;
    let since = human_duration((now - view.status.written).whole_seconds().max(0));
    match view.running {
        Some(true) => format!("running (process {process}), nothing new for {since}"),
        Some(false) => format!("not running; this is what it said {since} ago"),
        None => format!("process {process} said this {since} ago"),
    }
}

fn describe(certificate: &Certificate, now: OffsetDateTime, lines: &mut Vec<(&str, String)>) {
    let name = match certificate.purpose.as_str() {
        "client" => "Client certificate",
        _ => "Serving certificate",
    };
    match &certificate.held {
        Some(held) => {
            lines.push((name, held_text(held, now)));
            let names = held.dns_names.iter().chain(&held.ip_addresses).collect::<Vec<_>>();
            if !names.is_empty() {
                lines.push(("  Names", print::words(&names)));
            }
            lines.push(("  Next one", format!("to be asked for {}", when(held.rotate_at, now))));
            if let Some(lacking) = &held.lacking {
                lines.push(("  Lacks", lacking.clone()));
            }
        }
        None => lines.push((name, "none".to_owned())),
    }
    if certificate.activity.state != "Holding" {
        lines.push(("  Now", certificate.activity.text.clone()));
    }
    if let Some(problem) = &certificate.problem {
        lines.push(("  Problem", format!("{}: {}", problem.reason, problem.message)));
    }
    lines.extend(certificate.warnings.iter().map(|warning| ("  Warning", warning.clone())));
}

fn held_text(held: &Held, now: OffsetDateTime) -> String {
    let end = moment(held.not_after);
    let left = (held.not_after - now).whole_seconds();
    let who = &held.common_name;
    match left {
        0.. => format!("{who} until {end} ({} left)", human_duration(left)),
        _ => format!("{who}, EXPIRED at {end} ({} ago)", human_duration(-left)),
    }
}

fn server(status: &Status) -> String {
    let server = &status.server;
    let mut text = match (server.registered, server.kubelet) {
        (false, _) => "not registered".to_owned(),
        (true, false) => "registered".to_owned(),
        (true, true) => "registered; a kubelet reports for it".to_owned(),
    };
    if !server.addresses.is_empty() {
        text.push_str(&format!(" with {}", print::words(&server.addresses)));
    }
    if let Some(problem) = &server.problem {
        text.push_str(&format!("; last problem: {problem}"));
    }
    text
}

fn volumes(volumes: &Volumes, lines: &mut Vec<(&str, String)>) {
    let Volumes { file_problem, ready, blocked, problems } = volumes;
    if let Some(problem) = file_problem {
        lines.push(("Projections", format!("the file is not used as it is now: {problem}")));
    }
    if *ready == 0 && *blocked == 0 {
        return;
    }
    lines.push(("Volumes", format!("{ready} ready, {blocked} not as they should be")));
    for VolumeProblem { volume, ready, message } in problems {
        let keeps = if *ready { " (has older files)" } else { "" };
        lines.push(("  Problem", format!("{volume}{keeps}: {message}")));
    }
    if *blocked > problems.len() {
        lines.push(("", format!("and {} more", blocked - problems.len())));
    }
}

fn when(time: OffsetDateTime, now: OffsetDateTime) -> String {
    let left = (time - now).whole_seconds();
    match left {
        1.. => format!("at {} (in {})", moment(time), human_duration(left)),
        _ => "now".to_owned(),
    }
}

fn moment(time: OffsetDateTime) -> String {
    let whole = time.replace_nanosecond(0).unwrap_or(time);
    whole.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use time::Duration;
    use time::macros::datetime;
    use windlass_node::status::{Activity, Problem, Server};

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);

    #[test]
    fn a_disk_may_be_full_or_read_only() {
        for (disk, expected) in [
            ((false, 100, 1), None),
            ((false, 0, 0), None),
            ((false, 100, 0), Some("is on a disk that is full")),
            ((true, 100, 50), Some("is on a disk that cannot be written")),
            ((true, 100, 0), Some("is on a disk that cannot be written")),
        ] {
            assert_eq!(unwritable(disk.0, disk.1, disk.2), expected, "{disk:?}");
        }
        assert_eq!(doubt(Path::new("/no/such/directory")), None);
    }

    fn certificate(purpose: &str, held: Option<Held>) -> Certificate {
        Certificate {
            purpose: purpose.into(),
            signer: "s".into(),
            held,
            activity: Activity { state: "Holding".into(), text: "x".into(), request: None },
            problem: None,
            errors: 0,
            stored: 0,
            warnings: Vec::new(),
        }
    }

    fn held(not_after: OffsetDateTime) -> Held {
        Held {
            common_name: "system:node:n1".into(),
            organizations: vec!["system:nodes".into()],
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
            serial: "01".into(),
            not_before: not_after - Duration::days(1),
            not_after,
            rotate_at: not_after - Duration::hours(4),
            lacking: None,
        }
    }

    #[test]
    fn a_person_sees_what_is_held_and_waited_for() {
        let mut serving = certificate("serving", None);
        serving.activity = Activity {
            state: "Waiting".into(),
            text: "node-csr-x waits to be approved".into(),
            request: Some("node-csr-x".into()),
        };
        serving.problem =
            Some(Problem { reason: "NotDecided".into(), message: "nobody\u{1b}[2J cares".into() });
        let status = Status {
            node: "n1".into(),
            written: NOW - Duration::seconds(5),
            process: 7,
            certificate_directory: "/pki".into(),
            certificates: vec![
                certificate("client", Some(held(NOW + Duration::hours(20)))),
                serving,
            ],
            server: Server {
                registered: true,
                addresses: vec!["192.0.2.7".into()],
                ..Server::default()
            },
            volumes: Volumes {
                file_problem: Some("line 3 is wrong".into()),
                ready: 7,
                blocked: 2,
                problems: vec![VolumeProblem {
                    volume: "default/web/trust".into(),
                    ready: true,
                    message: "it is gone".into(),
                }],
            },
        };
        let mut view = View { running: Some(true), status };
        let wanted = "\
Node:                n1
Agent:               running (process 7), nothing new for 5s
Client certificate:  system:node:n1 until 2026-06-02T08:00:00Z (20h left)
  Next one:          to be asked for at 2026-06-02T04:00:00Z (in 16h)
Serving certificate: none
  Now:               node-csr-x waits to be approved
  Problem:           NotDecided: nobody [2J cares
Server:              registered with 192.0.2.7
Projections:         the file is not used as it is now: line 3 is wrong
Volumes:             7 ready, 2 not as they should be
  Problem:           default/web/trust (has older files): it is gone
                     and 1 more
";
        assert_eq!(text(&view, None, NOW), wanted);
        view.status.certificates =
            vec![certificate("client", Some(held(NOW - Duration::hours(1))))];
        view.running = Some(false);
        let expired = text(&view, None, NOW);
        assert!(expired.contains("system:node:n1, EXPIRED at 2026-06-01T11:00:00Z (60m ago)\n"));
        assert!(expired.contains("not running; this is what it said 5s ago\n"), "{expired}");
        assert_eq!(text(&view, Some(Format::Name), NOW), "node/n1\n");
    }
}
