//! The attacked server: started here, or running on a loopback address.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use windlass_testkit::HttpClient;

use crate::bench::{free_port, memory, process_cpu_seconds, to_pid};

/// Bearer token of the administrator whose latency is measured.
const HONEST: &str = "honest-token";
/// Bearer token of the administrator who attacks.
const ATTACKER: &str = "attacker-token";

/// Soft limit on open files that most systems give a service.
const FILES: u64 = 1024;

/// Start timeout; longer than any healthy start.
const PATIENCE: Duration = Duration::from_secs(60);
/// Stop timeout; longer than any healthy stop.
const STOP: Duration = Duration::from_secs(5);

/// The attacked server; killed on drop if it was started here.
pub struct AttackTarget {
    /// Client without credentials, authenticated as system:anonymous.
    pub anonymous: HttpClient,
    /// Attacking administrator, whose requests are authorized.
    pub attacker: HttpClient,
    /// Administrator whose latency is measured.
    pub honest: HttpClient,
    pid: Option<u32>,
    child: Option<(Child, TempDir)>,
}

impl AttackTarget {
    /// Starts a server on an empty directory, with a soft limit of 1024 open files.
    pub async fn start(binary: &Path) -> Result<Self> {
        let scratch = tempfile::tempdir()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let tokens = scratch.path().join("tokens.csv");
        let users = format!("{HONEST},honest,,\"system:masters\"\n{ATTACKER},attacker,,\"system:masters\"\n");
        fs::write(&tokens, users)?;
        let log = fs::File::create(scratch.path().join("server.log"))?;
        let mut child = Command::new("sh")
            .args(["-c", &format!("ulimit -Sn {FILES}; exec \"$0\" \"$@\"")])
            .arg(binary)
            .args(["up", "--no-node", "--listen", &address.to_string(), "--data-dir"])
            .arg(scratch.path().join("data"))
            .arg("--token-auth-file")
            .arg(&tokens)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let pid = child.id().context("the server ended at once")?;
        let stdout = child.stdout.take().context("the server's output is not piped")?;
        let mut lines = BufReader::new(stdout).lines();
        let ready = timeout(PATIENCE, lines.next_line()).await.context("the start timed out")??;
        if ready.is_none() {
            let log = fs::read_to_string(scratch.path().join("server.log"))?;
            bail!("the server ended before it was ready:\n{log}");
        }
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let anonymous = HttpClient::unverified(address);
        Ok(Self {
            attacker: anonymous.with_token(ATTACKER),
            honest: anonymous.with_token(HONEST),
            anonymous,
            pid: Some(pid),
            child: Some((child, scratch)),
        })
    }

    /// Attacks a running server on a loopback address.
    pub fn running(url: &str, token: &str, pid: Option<u32>) -> Result<Self> {
        let anonymous = HttpClient::unverified(loopback(url)?);
        let honest = anonymous.with_token(token);
        Ok(Self { attacker: honest.clone(), honest, anonymous, pid, child: None })
    }

    /// Returns the resident memory in bytes; `None` if the process is unknown.
    pub fn memory(&self) -> Result<Option<u64>> {
        self.pid.map(|pid| memory(pid, "VmRSS:")).transpose()
    }

    /// Returns the CPU time in seconds; `None` if the process is unknown.
    pub fn cpu_seconds(&self) -> Result<Option<f64>> {
        self.pid.map(process_cpu_seconds).transpose()
    }

    /// Returns the process ID, if known.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Stops a server that was started here; kills it if the attack still keeps it busy.
    pub async fn stop(self) -> Result<()> {
        let (Some((mut child, _scratch)), Some(pid)) = (self.child, self.pid) else {
            return Ok(());
        };
        kill_process(to_pid(pid)?, Signal::TERM)?;
        match timeout(STOP, child.wait()).await {
            Ok(status) => {
                let status = status?;
                ensure!(status.success(), "the server stopped with {status}");
            }
            Err(_) => {
                eprintln!("attack:   the server did not stop within {STOP:?}");
                child.kill().await?;
            }
        }
        Ok(())
    }
}

/// Parses a URL's address, which must be a loopback address: other servers must not be attacked.
fn loopback(url: &str) -> Result<SocketAddr> {
    let host = url.strip_prefix("https://").context("--server is not an https:// URL")?;
    let address: SocketAddr = host
        .trim_end_matches('/')
        .parse()
        .with_context(|| format!("{url} does not have the form https://ADDRESS:PORT"))?;
    ensure!(address.ip().is_loopback(), "{address} is not a loopback address");
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::loopback;

    #[test]
    fn only_loopback_addresses_are_attacked() {
        for url in ["https://127.0.0.1:6443", "https://127.1.2.3:1/", "https://[::1]:6443"] {
            assert!(loopback(url).is_ok(), "{url}");
        }
        for url in [
            "https://192.0.2.1:6443",
            "https://0.0.0.0:6443",
            "https://[2001:db8::1]:6443",
            "https://localhost.example.com:6443",
            "https://127.0.0.1",
            "http://127.0.0.1:6443",
        ] {
            assert!(loopback(url).is_err(), "{url}");
        }
    }
}
