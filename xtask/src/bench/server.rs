//! The measured server: a child process, observed through `/proc`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use hyper::Method;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use windlass_testkit::{HttpClient, HttpProtocol};

use super::BenchContext;

/// Bearer token of the load generator.
const TOKEN: &str = "bench-token";

/// Token of a user whose permissions come only from roles.
pub const READER: &str = "reader-token";

/// Timeout; longer than any healthy start or stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server; killed on drop.
pub struct ServerProcess {
    child: Child,
    pid: u32,
    /// Time from exec to the ready line.
    pub ready_after: Duration,
    /// Client for requests to the server.
    pub client: HttpClient,
}

impl ServerProcess {
    /// Starts a server on a directory, which may contain data of an earlier run.
    pub async fn start(bench: &BenchContext, data: &Path) -> Result<Self> {
        Self::start_as(bench, data, &["up", "--no-node"], &prefix(data)).await
    }

    /// Starts `windlass server`, without controllers in the process.
    pub async fn start_alone(bench: &BenchContext, data: &Path) -> Result<Self> {
        Self::start_as(bench, data, &["server"], &prefix(data)).await
    }

    /// Starts another server without controllers on the objects of the server at `first`. Requires
    /// etcd.
    pub async fn start_beside(bench: &BenchContext, data: &Path, first: &Path) -> Result<Self> {
        // Both servers must have the same CAs.
        let (from, to) = (first.join("pki"), data.join("pki"));
        fs::create_dir_all(&to)?;
        for name in ["ca", "client-ca", "kubelet-serving-ca", "sa"] {
            for end in ["key", if name == "sa" { "pub" } else { "crt" }] {
                let file = format!("{name}.{end}");
                fs::copy(from.join(&file), to.join(&file))?;
            }
        }
        Self::start_as(bench, data, &["server"], &prefix(first)).await
    }

    async fn start_as(bench: &BenchContext, data: &Path, arguments: &[&str], prefix: &str) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let tokens = bench.scratch.join("tokens.csv");
        let users = format!("{TOKEN},bench,,\"system:masters\"\n{READER},reader,\n");
        fs::write(&tokens, users)?;
        let log = fs::File::create(bench.scratch.join("server.log"))?;
        let mut command = Command::new(&bench.binary);
        command
            .args(arguments)
            .arg("--data-dir")
            .arg(data)
            .arg("--listen")
            .arg(address.to_string())
            .arg("--token-auth-file")
            .arg(&tokens)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true);
        if let Some(etcd) = &bench.etcd {
            command.arg("--etcd-servers").arg(etcd.urls().join(","));
            command.args(["--etcd-prefix", prefix]);
        }
        let started = Instant::now();
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}", bench.binary.display()))?;
        let Some(stdout) = child.stdout.take() else {
            bail!("the server's output is not piped");
        };
        let mut lines = BufReader::new(stdout).lines();
        let line =
            timeout(PATIENCE, lines.next_line()).await.context("the server never said it was ready")??;
        let ready_after = started.elapsed();
        if line.is_none() {
            let log = fs::read_to_string(bench.scratch.join("server.log"))?;
            bail!("the server ended before it was ready:\n{log}");
        }
        // Drains the output, so that it cannot fill the pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });

        let pid = child.id().context("the server ended at once")?;
        let client = HttpClient::new(address, &data.join("pki/ca.crt"), TOKEN);
        let server = Self { child, pid, ready_after, client };
        // Checks that the server really is ready.
        let mut connection = server.client.connect_with(HttpProtocol::Http1).await?;
        connection.expect(Method::GET, "/readyz", Bytes::new()).await?;
        Ok(server)
    }

    /// Stops the server with SIGTERM and requires a clean exit.
    pub async fn stop(mut self) -> Result<()> {
        kill_process(to_pid(self.pid)?, Signal::TERM)?;
        let status = timeout(PATIENCE, self.child.wait()).await.context("the server did not stop")??;
        ensure!(status.success(), "the server stopped with {status}");
        Ok(())
    }

    pub fn resident_memory(&self) -> Result<u64> {
        memory(self.pid, "VmRSS:")
    }

    /// Returns the peak resident memory in bytes.
    pub fn peak_memory(&self) -> Result<u64> {
        memory(self.pid, "VmHWM:")
    }

    /// Returns user and system CPU time since the start, in seconds; exact to a clock tick.
    pub fn cpu_seconds(&self) -> Result<f64> {
        process_cpu_seconds(self.pid)
    }
}

/// Returns the etcd prefix for a data directory.
pub fn prefix(data: &Path) -> String {
    let name = data.file_name().unwrap_or_default().to_string_lossy();
    format!("/bench-{name}")
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

/// Converts a process id for use with signals.
pub fn to_pid(pid: u32) -> Result<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw).context("no such process id")
}

/// Returns a free port of the loopback address.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
