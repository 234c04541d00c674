//! Disks that are full, read-only or missing, with a real process.

use std::fs;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use time::OffsetDateTime;
use windlass_node::status_file::AgentStatus;
use windlass_testkit::{ChildProcess, wait_for};

use super::{NodeHome, assert_current_pair, start_server, subject_key, token};
use crate::kubectl::Kubectl;
use crate::node::agent_page;

const HOUR: time::Duration = time::Duration::HOUR;

/// Returns a joined node whose certificate is valid for a few minutes and due for renewal.
fn joined(admin: &Kubectl) -> NodeHome {
    let home = NodeHome::new(&admin.server, "n1");
    home.write_bootstrap_kubeconfig(&admin.server, &token(admin), None);
    home.seed(&admin.server, -HOUR, time::Duration::minutes(3));
    home
}

fn problem(status: &AgentStatus) -> &str {
    status.certificates[0].error.as_ref().map_or("", |error| &error.reason)
}

/// Runs the agent with system calls that fail on these files, until `stop_fault_injection`.
fn with_faults(home: &NodeHome, calls: &str, fault: &str, files: &[&str]) -> Command {
    let strace = std::env::var_os("WINDLASS_STRACE").unwrap_or_else(|| "strace".into());
    let found = Command::new(&strace).arg("--version").output();
    assert!(found.is_ok(), "strace is needed: `cargo xtask test` fetches it, or install it");
    let agent = home.command();
    let mut command = Command::new(strace);
    command.args(["-D", "-f", "-qq", "-o", "/dev/null"]);
    for file in files {
        let path = home.dir.join(file);
        // Calls relative to an open directory contain only the file name.
        command.arg("-P").arg(path.file_name().unwrap()).arg("-P").arg(&path);
    }
    command.arg(format!("--trace={calls}")).arg(format!("--inject={calls}:{fault}"));
    command.arg(agent.get_program()).args(agent.get_args());
    command
}

/// Stops strace, and with it the injected faults.
fn stop_fault_injection(agent: &ChildProcess) {
    let status = fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).unwrap();
    let tracer = Pid::from_raw(tracer.trim().parse().unwrap()).expect("nobody makes them fail");
    kill_process(tracer, Signal::KILL).unwrap();
}

/// Asserts that the error is reported everywhere and that the agent uses its present certificate.
async fn assert_disk_error_reported(home: &NodeHome, agent: &ChildProcess, reason: &str, words: &str) {
    let before = subject_key(home.pair());
    home.wait_for_status(reason, |status| problem(status) == reason);
    let said = home.status_text();
    assert!(said.contains(reason) && said.contains(words), "{said}");
    let metrics = agent_page(agent, "/metrics");
    let line = format!("{{certificate=\"kubelet-client\",reason=\"{reason}\"}} 1");
    assert!(metrics.contains(&line), "{metrics}");
    let errors = "kubelet_certificate_manager_client_expiration_renew_errors ";
    let errors = metrics.lines().find_map(|line| line.strip_prefix(errors)).unwrap();
    assert!(errors.parse::<u64>().unwrap() > 0, "{metrics}");
    assert!(agent.log().contains(words), "{}", agent.log());
    assert!(subject_key(home.pair()) == before && home.pair().is_valid_at(OffsetDateTime::now_utc()));
    home.wait_for_status("it is a node all the same", |status| status.registration.registered);
}

/// Waits for the renewal after the repair.
async fn wait_for_recovery(admin: &Kubectl, home: &NodeHome) {
    home.wait_for_status("it does not recover", |status| {
        status.certificates[0].stored_count == 1 && problem(status).is_empty()
    });
    assert!(home.pair().expires() > OffsetDateTime::now_utc() + HOUR);
    assert_current_pair(&admin.server, home, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_reported_and_retried() {
    let key = "pki/.kubelet-client.key.tmp.new";
    // The status file fails in the same way.
    let files = &[key, "state/.windlass-node-status.json.new"][..];
    let key = &files[..1];
    for (calls, fault, reason, words, files) in [
        ("write", "error=ENOSPC", "DiskFull", "No space left on device", files),
        ("fsync", "error=EDQUOT", "DiskFull", "uota exceeded", files),
        ("openat", "error=EROFS", "DiskFailed", "Read-only file system", key),
    ] {
        let admin = start_server(&[]);
        let home = joined(&admin);
        fs::write(home.dir.join("state/windlass-node-status.json"), "").unwrap();
        let agent = home.run(with_faults(&home, calls, fault, files));
        assert_disk_error_reported(&home, &agent, reason, words).await;
        stop_fault_injection(&agent);
        wait_for_recovery(&admin, &home).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_cannot_be_stored_is_kept_until_it_can() {
    let admin = start_server(&[]);
    let home = joined(&admin);
    let links = &["pki/.kubelet-client-current.pem.new"][..];
    let calls = "symlink,symlinkat";
    let agent = home.run(with_faults(&home, calls, "error=EROFS", links));
    assert_disk_error_reported(&home, &agent, "DiskFailed", "Read-only file system").await;
    stop_fault_injection(&agent);
    wait_for_recovery(&admin, &home).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_gone_is_awaited() {
    let admin = start_server(&[]);
    let home = NodeHome::new(&admin.server, "n1");
    // The agent cannot request anything before there is a token.
    let _agent = home.start();
    home.wait_for_status("it misses nothing", |status| problem(status) == "NoCredential");
    let (pki, away) = (home.pki_dir(), home.dir.join("away"));
    fs::rename(&pki, &away).unwrap();
    fs::write(&pki, "no directory").unwrap();
    home.write_bootstrap_kubeconfig(&admin.server, &token(&admin), None);
    home.wait_for_status("it finds the directory good", |status| problem(status) == "DiskFailed");
    assert!(home.status_text().contains("DiskFailed"), "{}", home.status_text());
    fs::remove_file(&pki).unwrap();
    fs::rename(&away, &pki).unwrap();
    home.wait_for_status("it does not recover", |status| status.certificates[0].stored_count == 1);
    assert_current_pair(&admin.server, &home, 1).await;
    wait_for("no kubeconfig", || home.kubeconfig().exists());
}
