//! A measured child process, observed through `/proc`.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::server::{memory, process_cpu_seconds, to_pid};

/// Stop timeout; longer than any healthy stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running process; killed on drop.
pub struct ChildProcess {
    child: Child,
    pid: u32,
}

impl ChildProcess {
    /// Starts the process and redirects its output to a file.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let log = File::create(log)?;
        let child =
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true).spawn()?;
        let pid = child.id().context("it ended at once")?;
        Ok(Self { child, pid })
    }

    /// Returns the CPU time since the start, in seconds.
    pub fn cpu_seconds(&self) -> Result<f64> {
        process_cpu_seconds(self.pid)
    }

    pub fn resident_memory(&self) -> Result<u64> {
        memory(self.pid, "VmRSS:")
    }

    /// Returns the peak resident memory in bytes.
    pub fn peak_memory(&self) -> Result<u64> {
        memory(self.pid, "VmHWM:")
    }

    /// Stops the process with SIGTERM and requires a clean exit.
    pub async fn stop(mut self) -> Result<()> {
        kill_process(to_pid(self.pid)?, Signal::TERM)?;
        let status = timeout(PATIENCE, self.child.wait()).await.context("it did not stop")??;
        ensure!(status.success(), "it stopped with {status}");
        Ok(())
    }
}
