//! A measured child process, observed through `/proc`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use windlass_testkit::ChildProcess;

/// Timeout; longer than any healthy start or stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running process; killed on drop.
pub struct MeasuredProcess(ChildProcess);

impl MeasuredProcess {
    /// Starts the process and redirects its output to a new file.
    pub fn start(command: &mut Command, log: &Path) -> Self {
        Self(ChildProcess::spawn_logged(command.stdin(Stdio::null()), log))
    }

    /// Starts a server with a new log file, and waits until it says that it is ready.
    pub fn start_server(command: &mut Command, log: &Path) -> Result<Self> {
        fs::write(log, "")?;
        let process = ChildProcess::spawn(command.stdin(Stdio::null()), log);
        if process.try_line(PATIENCE).is_none() {
            bail!("the server never said it was ready:\n{}", process.log());
        }
        Ok(Self(process))
    }

    /// Process ID of the program.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Returns the CPU time since the start, in seconds.
    pub fn cpu_seconds(&self) -> Result<f64> {
        process_cpu_seconds(self.pid())
    }

    pub fn resident_memory(&self) -> Result<u64> {
        memory(self.pid(), "VmRSS:")
    }

    /// Returns the peak resident memory in bytes.
    pub fn peak_memory(&self) -> Result<u64> {
        memory(self.pid(), "VmHWM:")
    }

    /// Stops the process with SIGTERM and requires a clean exit.
    pub fn stop(self) -> Result<()> {
        ensure!(self.stop_within(PATIENCE)?, "it did not stop");
        Ok(())
    }

    /// As [`MeasuredProcess::stop`]; returns false and kills the process if it is still busy after the time.
    pub fn stop_within(mut self, patience: Duration) -> Result<bool> {
        self.0.signal(Signal::TERM);
        let status = self.0.wait(patience);
        ensure!(status.is_none_or(|status| status.success()), "it stopped with {status:?}");
        Ok(status.is_some())
    }
}

/// Returns a memory field of a process's status, in bytes.
pub fn memory(pid: u32, field: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|value| value.trim().strip_suffix("kB"))
        .and_then(|value| value.trim().parse::<u64>().ok())
        .with_context(|| format!("no {field} in /proc"))?;
    Ok(kib * 1024)
}

/// Returns user and system CPU time of a process since its start, in seconds; exact to a clock
/// tick.
pub fn process_cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The command name may contain any character; the fields start after its parenthesis. The state
    // is the first of them, utime the twelfth.
    let (_, fields) = stat.rsplit_once(')').context("strange /proc stat")?;
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}
