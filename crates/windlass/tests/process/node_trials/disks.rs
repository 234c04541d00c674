//! Disks that are full, cannot be written or are not there, under a process.

use std::fs;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use time::OffsetDateTime;
use windlass_node::status::Status;

use super::{Agent, Home, ends_well, key_of, token, until, up};
use crate::kubectl::Kubectl;

const HOUR: time::Duration = time::Duration::HOUR;

/// A node that has joined, with a certificate that is good for a few minutes and due already.
fn joined(admin: &Kubectl) -> Home {
    let home = Home::new(&admin.server, "n1");
    home.invite(&admin.server, &token(admin), None);
    home.seed(&admin.server, -HOUR, time::Duration::minutes(3));
    home
}

fn problem(status: &Status) -> &str {
    status.certificates[0].problem.as_ref().map_or("", |problem| &problem.reason)
}

/// The agent with system calls that fail on files of these names, until [`repair`].
fn with_faults(home: &Home, calls: &str, fault: &str, files: &[&str]) -> Command {
    let strace = std::env::var_os("WINDLASS_STRACE").unwrap_or_else(|| "strace".into());
    let found = Command::new(&strace).arg("--version").output();
    assert!(found.is_ok(), "strace is needed: `cargo xtask test` fetches it, or install it");
    let agent = home.command();
    let mut command = Command::new(strace);
    command.args(["-D", "-f", "-qq", "-o", "/dev/null"]);
    for file in files {
        let path = home.dir.join(file);
        // Calls relative to an open directory have the name alone.
        command.arg("-P").arg(path.file_name().unwrap()).arg("-P").arg(&path);
    }
    command.arg(format!("--trace={calls}")).arg(format!("--inject={calls}:{fault}"));
    command.arg(agent.get_program()).args(agent.get_args());
    command
}

/// Ends whoever makes its system calls fail.
fn repair(agent: &Agent) {
    let status = fs::read_to_string(format!("/proc/{}/status", agent.child.id())).unwrap();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).unwrap();
    let tracer = Pid::from_raw(tracer.trim().parse().unwrap()).expect("nobody makes them fail");
    kill_process(tracer, Signal::KILL).unwrap();
}

/// It says what is wrong wherever one may look, and uses what it has.
async fn tells(home: &Home, agent: &Agent, reason: &str, words: &str) {
    let before = key_of(home.pair());
    home.until(reason, |status| problem(status) == reason);
    let said = home.said();
    assert!(said.contains(reason) && said.contains(words), "{said}");
    let metrics = agent.metrics().await;
    let line = format!("{{certificate=\"kubelet-client\",reason=\"{reason}\"}} 1");
    assert!(metrics.contains(&line), "{metrics}");
    let errors = "kubelet_certificate_manager_client_expiration_renew_errors ";
    let errors = metrics.lines().find_map(|line| line.strip_prefix(errors)).unwrap();
    assert!(errors.parse::<u64>().unwrap() > 0, "{metrics}");
    assert!(agent.log().contains(words), "{}", agent.log());
    assert!(key_of(home.pair()) == before && home.pair().is_valid_at(OffsetDateTime::now_utc()));
    home.until("it is a node all the same", |status| status.server.registered);
}

/// What came in the end.
async fn recovers(admin: &Kubectl, home: &Home) {
    home.until("it does not recover", |status| {
        status.certificates[0].stored == 1 && problem(status).is_empty()
    });
    assert!(home.pair().expires() > OffsetDateTime::now_utc() + HOUR);
    ends_well(&admin.server, home, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_is_told_of_and_waited_for() {
    let key = "pki/.kubelet-client.key.tmp.new";
    // What the status is written to goes the same way.
    let files = &[key, "state/.windlass-node-status.json.new"][..];
    let key = &files[..1];
    for (calls, fault, reason, words, files) in [
        ("write", "error=ENOSPC", "DiskFull", "No space left on device", files),
        ("fsync", "error=EDQUOT", "DiskFull", "uota exceeded", files),
        ("openat", "error=EROFS", "DiskFailed", "Read-only file system", key),
    ] {
        let admin = up(&[]);
        let home = joined(&admin);
        fs::write(home.dir.join("state/windlass-node-status.json"), "").unwrap();
        let agent = home.run(with_faults(&home, calls, fault, files));
        tells(&home, &agent, reason, words).await;
        repair(&agent);
        recovers(&admin, &home).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_cannot_be_stored_is_kept_until_it_can() {
    let admin = up(&[]);
    let home = joined(&admin);
    let links = &["pki/.kubelet-client-current.pem.new"][..];
    let calls = "symlink,symlinkat";
    let agent = home.run(with_faults(&home, calls, "error=EROFS", links));
    tells(&home, &agent, "DiskFailed", "Read-only file system").await;
    repair(&agent);
    recovers(&admin, &home).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_gone_is_waited_for() {
    let admin = up(&[]);
    let home = Home::new(&admin.server, "n1");
    // Nobody can be asked before there is a token.
    let agent = home.start();
    home.until("it misses nothing", |status| problem(status) == "NoCredential");
    let (pki, away) = (home.pki(), home.dir.join("away"));
    fs::rename(&pki, &away).unwrap();
    fs::write(&pki, "no directory").unwrap();
    home.invite(&admin.server, &token(&admin), None);
    home.until("it finds the directory good", |status| problem(status) == "DiskFailed");
    assert!(home.said().contains("DiskFailed"), "{}", home.said());
    fs::remove_file(&pki).unwrap();
    fs::rename(&away, &pki).unwrap();
    home.until("it does not recover", |status| status.certificates[0].stored == 1);
    ends_well(&admin.server, &home, 1).await;
    until(&|| agent.log(), || home.kubeconfig().exists().then_some(()));
}
