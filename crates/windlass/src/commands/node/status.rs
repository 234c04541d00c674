//! `windlass node status`: shows the status that the agent of this machine wrote.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::fs::{StatVfsMountFlags, statvfs};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use windlass_api::age::human_duration;
use windlass_node::status_file::{
    AgentStatus, BlockedVolume, CertificateStatus, CurrentCertificateStatus, VolumeCertificate,
    VolumesStatus, is_running,
};

use crate::cli::{NodeStatusArgs, OutputFormat};
use crate::commands::print;

/// Prints the status; fails if no agent is running, or if the node has no valid client certificate.
pub fn show(arguments: &NodeStatusArgs) -> Result<()> {
    let directory = directory(arguments);
    let status = AgentStatus::read(directory).map_err(anyhow::Error::msg)?;
    let running = running(arguments, directory, status.as_ref());
    let doubt = disk_problem(directory);
    let status = status.with_context(|| {
        let shown = directory.display();
        match (&running, doubt) {
            (Ok(true), Some(doubt)) => format!("an agent is running, but {shown} {doubt}"),
            (Ok(true), None) => {
                format!("an agent is running with another --root-dir than {shown}")
            }
            _ => format!("no node agent has written a status to {shown}"),
        }
    })?;
    if let Some(doubt) = doubt.filter(|_| matches!(running, Ok(true))) {
        eprintln!("warning: {} {doubt}; the status may be outdated", directory.display());
    }
    if let Some(exposed) = windlass_node::exposure::check(directory) {
        eprintln!("warning: {exposed}");
    }
    let view = NodeStatusView { running: running.as_ref().ok().copied(), status };
    let now = OffsetDateTime::now_utc();
    print::show(&view, arguments.output.format, |format| text(&view, format, now))?;
    if !running.context("cannot determine whether the node agent is running")? {
        bail!("node agent is not running");
    }
    let client = view.status.certificates.iter().find(|one| one.purpose == "client");
    let held = client
        .and_then(|client| client.current.as_ref())
        .ok_or_else(|| anyhow!("node {} has no client certificate", view.status.node_name))?;
    if held.rejection_time.is_some() {
        bail!("server rejects the client certificate of node {}", view.status.node_name);
    }
    if held.not_after < now {
        bail!("client certificate of node {} has expired", view.status.node_name);
    }
    Ok(())
}

/// Returns the directory of the status unless a flag names it: that of the certificates, or its
/// parent, as with `up`. The parent may belong to another agent, which stores its certificates
/// elsewhere.
fn directory(arguments: &NodeStatusArgs) -> &Path {
    let with = arguments.cert_dir.as_path();
    let above = with.parent().filter(|above| {
        let status = || AgentStatus::read(above).ok().flatten();
        let of_these = |status: AgentStatus| is_same_directory(&status.certificate_directory, with);
        !has_status(with) && has_status(above) && status().is_some_and(of_these)
    });
    arguments.root_dir.as_deref().or(above).unwrap_or(with)
}

/// Returns whether two paths name the same directory. The paths of an agent in a container differ
/// from those of this process.
fn is_same_directory(recorded: &Path, given: &Path) -> bool {
    match (fs::metadata(recorded), fs::metadata(given)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => recorded.file_name() == given.file_name(),
    }
}

/// Returns whether the agent is running: it holds a lock on its certificate directory, which may be
/// the given directory or one below it.
fn running(
    arguments: &NodeStatusArgs,
    directory: &Path,
    status: Option<&AgentStatus>,
) -> std::io::Result<bool> {
    let mut places = vec![arguments.cert_dir.clone()];
    if let Some(recorded) = status.map(|status| &status.certificate_directory) {
        places.push(recorded.clone());
        places.extend(recorded.file_name().map(|name| directory.join(name)));
    }
    let mut found = Ok(false);
    for place in places {
        match is_running(&place) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) => found = Err(error),
        }
    }
    found
}

fn has_status(directory: &Path) -> bool {
    directory.join(windlass_node::status_file::FILE).exists()
}

/// Returns the reason why an agent cannot write to a directory, if there is one.
fn disk_problem(directory: &Path) -> Option<&'static str> {
    let disk = statvfs(directory).ok()?;
    let readonly = disk.f_flag.contains(StatVfsMountFlags::RDONLY);
    unwritable(readonly, disk.f_blocks, disk.f_bavail)
}

fn unwritable(readonly: bool, blocks: u64, free: u64) -> Option<&'static str> {
    match (readonly, blocks, free) {
        (true, _, _) => Some("is on a read-only disk"),
        (false, 1.., 0) => Some("is on a full disk"),
        (false, _, _) => None,
    }
}

#[derive(Serialize)]
struct NodeStatusView {
    /// Whether an agent is running; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<bool>,
    #[serde(flatten)]
    status: AgentStatus,
}

fn text(view: &NodeStatusView, format: Option<OutputFormat>, now: OffsetDateTime) -> String {
    let status = &view.status;
    if format == Some(OutputFormat::Name) {
        return format!("node/{}\n", status.node_name);
    }
    let mut lines = vec![("Node", status.node_name.clone()), ("Agent", agent(view, now))];
    for certificate in &status.certificates {
        describe(certificate, now, &mut lines);
    }
    lines.push(("Server", server(status)));
    volumes(&status.volumes, now, &mut lines);
    let width = lines.iter().map(|(key, _)| key.len()).max().unwrap_or_default() + 1;
    let line = |(key, value): &(&str, String)| {
        let key = if key.is_empty() { String::new() } else { format!("{key}:") };
        format!("{key:<width$} {}", print::plain(value)).trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

fn agent(view: &NodeStatusView, now: OffsetDateTime) -> String {
    let process = view.status.pid;
    let since = human_duration((now - view.status.last_update_time).whole_seconds().max(0));
    match view.running {
        Some(true) => format!("running (process {process}), status written {since} ago"),
        Some(false) => format!("not running; status written {since} ago"),
        None => format!("process {process}, status written {since} ago"),
    }
}

fn describe(certificate: &CertificateStatus, now: OffsetDateTime, lines: &mut Vec<(&str, String)>) {
    let name = match certificate.purpose.as_str() {
        "client" => "Client certificate",
        _ => "Serving certificate",
    };
    match &certificate.current {
        Some(held) => {
            lines.push((name, held_certificate_text(held, now)));
            let names = held.dns_names.iter().chain(&held.ip_addresses).collect::<Vec<_>>();
            if !names.is_empty() {
                lines.push(("  Names", print::words(&names)));
            }
            lines.push(("  Renewal", relative_time(held.renewal_time, now)));
            if let Some(lacking) = &held.missing_names {
                lines.push(("  Missing", lacking.clone()));
            }
        }
        None => lines.push((name, "none".to_owned())),
    }
    if certificate.activity.state != "Holding" {
        lines.push(("  Now", certificate.activity.message.clone()));
    }
    if let Some(error) = &certificate.error {
        lines.push(("  Error", format!("{}: {}", error.reason, error.message)));
    }
    lines.extend(certificate.warnings.iter().map(|warning| ("  Warning", warning.clone())));
}

fn held_certificate_text(held: &CurrentCertificateStatus, now: OffsetDateTime) -> String {
    let rejected =
        held.rejection_time.map(|since| format!("REJECTED by the server since {}, ", format_time(since)));
    format!("{}, {}{}", held.common_name, rejected.unwrap_or_default(), validity(held.not_after, now))
}

fn validity(not_after: OffsetDateTime, now: OffsetDateTime) -> String {
    let end = format_time(not_after);
    let left = (not_after - now).whole_seconds();
    match left {
        0.. => format!("expires {end} (in {})", human_duration(left)),
        _ => format!("EXPIRED {end} ({} ago)", human_duration(-left)),
    }
}

fn server(status: &AgentStatus) -> String {
    let server = &status.registration;
    let mut text = match (server.registered, server.kubelet_reports) {
        (false, _) => "not registered".to_owned(),
        (true, false) => "registered".to_owned(),
        (true, true) => "registered; a kubelet reports the status".to_owned(),
    };
    if !server.addresses.is_empty() {
        text.push_str(&format!(" with {}", print::words(&server.addresses)));
    }
    if let Some(error) = &server.error {
        text.push_str(&format!("; last error: {error}"));
    }
    text
}

fn volumes(volumes: &VolumesStatus, now: OffsetDateTime, lines: &mut Vec<(&str, String)>) {
    let VolumesStatus { projections_error, ready, blocked, pending, blocked_volumes, .. } = volumes;
    if let Some(error) = projections_error {
        lines.push(("Projections", format!("current file rejected: {error}")));
    }
    let counts = [(*ready, "ready"), (*blocked, "blocked"), (*pending, "pending")];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts = counts.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>();
    if counts.is_empty() {
        return;
    }
    lines.push(("Volumes", counts.join(", ")));
    for BlockedVolume { volume, stale, message } in blocked_volumes {
        let keeps = if *stale { " (has outdated files)" } else { "" };
        lines.push(("  Blocked", format!("{volume}{keeps}: {message}")));
    }
    if *blocked > blocked_volumes.len() {
        lines.push(("", format!("and {} more", blocked - blocked_volumes.len())));
    }
    let certificates = volumes.certificates.iter();
    lines.extend(certificates.map(|one| ("  Certificate", certificate_text(one, now))));
    if volumes.more_certificates > 0 {
        lines.push(("", format!("and {} more", volumes.more_certificates)));
    }
}

fn certificate_text(certificate: &VolumeCertificate, now: OffsetDateTime) -> String {
    let VolumeCertificate { volume, common_name, subject_alt_names, issuer, serial_number, .. } = certificate;
    let subject = subject_alt_names.first().filter(|_| common_name.is_empty()).unwrap_or(common_name);
    let validity = validity(certificate.not_after, now);
    let issuer = if issuer.is_empty() { &certificate.signer_name } else { issuer };
    let [subject, issuer] = [subject, issuer].map(|name| print::word(name));
    format!("{volume}: {subject}, {validity}, issued by {issuer}, serial {serial_number}")
}

fn relative_time(time: OffsetDateTime, now: OffsetDateTime) -> String {
    let left = (time - now).whole_seconds();
    match left {
        1.. => format!("{} (in {})", format_time(time), human_duration(left)),
        _ => "due now".to_owned(),
    }
}

fn format_time(time: OffsetDateTime) -> String {
    let whole = time.replace_nanosecond(0).unwrap_or(time);
    whole.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use time::Duration;
    use time::macros::datetime;
    use windlass_node::status_file::{ActivityStatus, CertificateError, RegistrationStatus};

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-06-01 12:00 UTC);

    #[test]
    fn a_disk_may_be_full_or_read_only() {
        for (disk, expected) in [
            ((false, 100, 1), None),
            ((false, 0, 0), None),
            ((false, 100, 0), Some("is on a full disk")),
            ((true, 100, 50), Some("is on a read-only disk")),
            ((true, 100, 0), Some("is on a read-only disk")),
        ] {
            assert_eq!(unwritable(disk.0, disk.1, disk.2), expected, "{disk:?}");
        }
        assert_eq!(disk_problem(Path::new("/no/such/directory")), None);
    }

    fn certificate(purpose: &str, held: Option<CurrentCertificateStatus>) -> CertificateStatus {
        CertificateStatus {
            purpose: purpose.into(),
            signer_name: "s".into(),
            current: held,
            activity: ActivityStatus { state: "Holding".into(), message: "x".into(), request_name: None },
            error: None,
            error_count: 0,
            stored_count: 0,
            warnings: Vec::new(),
        }
    }

    fn held_certificate(not_after: OffsetDateTime) -> CurrentCertificateStatus {
        CurrentCertificateStatus {
            common_name: "system:node:n1".into(),
            organizations: vec!["system:nodes".into()],
            dns_names: Vec::new(),
            ip_addresses: Vec::new(),
            serial_number: "01".into(),
            not_before: not_after - Duration::days(1),
            not_after,
            renewal_time: not_after - Duration::hours(4),
            rejection_time: None,
            missing_names: None,
        }
    }

    fn in_volume(common_name: &str, hours: i64) -> VolumeCertificate {
        VolumeCertificate {
            volume: "host/web".into(),
            signer_name: "example.com/web".into(),
            common_name: common_name.into(),
            subject_alt_names: vec!["spiffe://x/y".into()],
            issuer: "web CA".into(),
            serial_number: "0a1b".into(),
            not_before: NOW - Duration::hours(4),
            not_after: NOW + Duration::hours(hours),
        }
    }

    /// Returns the arguments for a certificate directory.
    fn arguments(cert_dir: &Path) -> NodeStatusArgs {
        let line = ["windlass", "node", "status", "--cert-dir"].map(str::to_owned);
        let line = line.into_iter().chain([cert_dir.display().to_string()]);
        match crate::cli::Cli::try_parse_from(line).unwrap().command {
            crate::cli::CliCommand::Node(arguments) => match arguments.command {
                Some(crate::cli::NodeCommand::Status(arguments)) => arguments,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn write_status(directory: &Path, certificates: &Path) -> AgentStatus {
        let status = AgentStatus {
            node_name: "n1".into(),
            last_update_time: NOW,
            pid: 7,
            certificate_directory: certificates.to_owned(),
            certificates: Vec::new(),
            registration: RegistrationStatus::default(),
            volumes: VolumesStatus::default(),
        };
        status.write(directory, &windlass_runtime::durable::FileSystem::default()).unwrap();
        status
    }

    #[test]
    fn the_directory_above_is_not_mistaken_for_an_agents() {
        let place = tempfile::tempdir().unwrap();
        let (root, pki) = (place.path().to_owned(), place.path().join("pki"));
        let other = place.path().join("other");
        fs::create_dir_all(&other).unwrap();
        fs::create_dir_all(&pki).unwrap();
        let lock = windlass_runtime::file_lock::DirectoryLock::acquire(&pki).unwrap();
        let status = write_status(&root, &pki);
        // Either directory finds the running agent.
        for given in [&root, &pki] {
            let arguments = arguments(given);
            assert_eq!(directory(&arguments), root);
            assert!(running(&arguments, &root, Some(&status)).unwrap(), "{given:?}");
        }
        // In a container, the directory has another path.
        let moved = AgentStatus { certificate_directory: "/no/such/pki".into(), ..status.clone() };
        assert!(running(&arguments(&root), &root, Some(&moved)).unwrap());
        // The status in the parent directory belongs to another agent.
        let others = arguments(&other);
        assert_eq!(directory(&others), other);
        assert!(!running(&others, &other, None).unwrap());
        drop(lock);
        assert!(!running(&arguments(&root), &root, Some(&status)).unwrap());
    }

    #[test]
    fn the_text_shows_held_certificates_and_pending_requests() {
        let mut serving = certificate("serving", None);
        serving.activity = ActivityStatus {
            state: "Waiting".into(),
            message: "node-csr-x waits to be approved".into(),
            request_name: Some("node-csr-x".into()),
        };
        serving.error =
            Some(CertificateError { reason: "NotDecided".into(), message: "nobody\u{1b}[2J cares".into() });
        let status = AgentStatus {
            node_name: "n1".into(),
            last_update_time: NOW - Duration::seconds(5),
            pid: 7,
            certificate_directory: "/pki".into(),
            certificates: vec![
                certificate("client", Some(held_certificate(NOW + Duration::hours(20)))),
                serving,
            ],
            registration: RegistrationStatus {
                registered: true,
                addresses: vec!["192.0.2.7".into()],
                ..RegistrationStatus::default()
            },
            volumes: VolumesStatus {
                projections_error: Some("line 3 is wrong".into()),
                ready: 7,
                blocked: 2,
                blocked_volumes: vec![BlockedVolume {
                    volume: "default/web/trust".into(),
                    stale: true,
                    message: "it is gone".into(),
                }],
                certificates: vec![in_volume("web.example.com", 20), in_volume("", -1)],
                ..VolumesStatus::default()
            },
        };
        let mut view = NodeStatusView { running: Some(true), status };
        let wanted = "Node:                n1
Agent:               running (process 7), status written 5s ago
Client certificate:  system:node:n1, expires 2026-06-02T08:00:00Z (in 20h)
  Renewal:           2026-06-02T04:00:00Z (in 16h)
Serving certificate: none
  Now:               node-csr-x waits to be approved
  Error:             NotDecided: nobody [2J cares
Server:              registered with 192.0.2.7
Projections:         current file rejected: line 3 is wrong
Volumes:             7 ready, 2 blocked
  Blocked:           default/web/trust (has outdated files): it is gone
                     and 1 more
  Certificate:       host/web: web.example.com, expires 2026-06-02T08:00:00Z (in 20h), issued by \"web CA\", serial 0a1b
  Certificate:       host/web: spiffe://x/y, EXPIRED 2026-06-01T11:00:00Z (60m ago), issued by \"web CA\", serial 0a1b
";
        assert_eq!(text(&view, None, NOW), wanted);
        view.status.certificates =
            vec![certificate("client", Some(held_certificate(NOW - Duration::hours(1))))];
        let client = view.status.certificates[0].current.as_mut().unwrap();
        client.rejection_time = Some(NOW - Duration::minutes(2));
        let rejected =
            "system:node:n1, REJECTED by the server since 2026-06-01T11:58:00Z, EXPIRED 2026-06-01T11";
        assert!(text(&view, None, NOW).contains(rejected));
        view.status.certificates[0].current.as_mut().unwrap().rejection_time = None;
        view.running = Some(false);
        let expired = text(&view, None, NOW);
        assert!(expired.contains("system:node:n1, EXPIRED 2026-06-01T11:00:00Z (60m ago)\n"));
        assert!(expired.contains("not running; status written 5s ago\n"), "{expired}");
        assert_eq!(text(&view, Some(OutputFormat::Name), NOW), "node/n1\n");
    }
}
