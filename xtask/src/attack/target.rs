//! The attacked server: started here, or running on a loopback address.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use windlass_testkit::{HttpClient, free_address};

use crate::bench::{MeasuredProcess, memory, process_cpu_seconds};

/// Bearer token of the administrator whose latency is measured.
const HONEST: &str = "honest-token";
/// Bearer token of the administrator who attacks.
const ATTACKER: &str = "attacker-token";

/// Soft limit on open files that most systems give a service.
const FILES: u64 = 1024;

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
    started: Option<(MeasuredProcess, TempDir)>,
}

impl AttackTarget {
    /// Starts a server on an empty directory, with a soft limit of 1024 open files.
    pub fn start(binary: &Path) -> Result<Self> {
        let scratch = tempfile::tempdir()?;
        let address = free_address();
        let tokens = scratch.path().join("tokens.csv");
        let users = format!("{HONEST},honest,,\"system:masters\"\n{ATTACKER},attacker,,\"system:masters\"\n");
        fs::write(&tokens, users)?;
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -Sn {FILES}; exec \"$0\" \"$@\"")])
            .arg(binary)
            .args(["up", "--no-node", "--listen", &address.to_string(), "--data-dir"])
            .arg(scratch.path().join("data"))
            .arg("--token-auth-file")
            .arg(&tokens);
        let process = MeasuredProcess::start_server(&mut command, &scratch.path().join("server.log"))?;
        let anonymous = HttpClient::unverified(address);
        Ok(Self {
            attacker: anonymous.with_token(ATTACKER),
            honest: anonymous.with_token(HONEST),
            anonymous,
            pid: Some(process.pid()),
            started: Some((process, scratch)),
        })
    }

    /// Attacks a running server on a loopback address.
    pub fn running(url: &str, token: &str, pid: Option<u32>) -> Result<Self> {
        let anonymous = HttpClient::unverified(loopback(url)?);
        let honest = anonymous.with_token(token);
        Ok(Self { attacker: honest.clone(), honest, anonymous, pid, started: None })
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
    pub fn stop(self) -> Result<()> {
        let Some((process, _scratch)) = self.started else { return Ok(()) };
        if !process.stop_within(STOP)? {
            eprintln!("attack:   the server did not stop within {STOP:?}");
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
