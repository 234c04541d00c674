//! The measured server, in a separate process.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use hyper::Method;
use windlass_testkit::{HttpClient, HttpProtocol, free_address};

use super::BenchContext;
use super::process::MeasuredProcess;

/// Bearer token of the load generator.
const TOKEN: &str = "bench-token";

/// Token of a user whose permissions come only from roles.
pub const READER: &str = "reader-token";

/// A running server; killed on drop.
pub struct ServerProcess {
    pub process: MeasuredProcess,
    /// Time from exec to the ready line.
    pub ready_after: Duration,
    pub client: HttpClient,
}

impl ServerProcess {
    /// Starts a server on a directory, which may contain data of an earlier run.
    pub async fn start(bench: &BenchContext, data: &Path) -> Result<Self> {
        Self::start_with(bench, data, &[]).await
    }

    /// As [`ServerProcess::start`], with more flags.
    pub async fn start_with(bench: &BenchContext, data: &Path, flags: &[&str]) -> Result<Self> {
        let arguments = [&["up", "--no-node"], flags].concat();
        Self::start_as(bench, data, &arguments, &prefix(data)).await
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
        let address = free_address();
        let tokens = bench.scratch.join("tokens.csv");
        let users = format!("{TOKEN},bench,,\"system:masters\"\n{READER},reader,\n");
        fs::write(&tokens, users)?;
        let mut command = Command::new(&bench.binary);
        command
            .args(arguments)
            .arg("--data-dir")
            .arg(data)
            .arg("--listen")
            .arg(address.to_string())
            .arg("--token-auth-file")
            .arg(&tokens);
        if let Some(etcd) = &bench.etcd {
            command.arg("--etcd-servers").arg(etcd.urls().join(","));
            command.args(["--etcd-prefix", prefix]);
        }
        let started = Instant::now();
        let process = MeasuredProcess::start_server(&mut command, &bench.scratch.join("server.log"))?;
        let ready_after = started.elapsed();
        let client = HttpClient::new(address, &data.join("pki/ca.crt"), TOKEN);
        let server = Self { process, ready_after, client };
        // Checks that the server really is ready.
        let mut connection = server.client.connect_with(HttpProtocol::Http1).await?;
        connection.expect(Method::GET, "/readyz", Bytes::new()).await?;
        Ok(server)
    }

    /// Stops the server with SIGTERM and requires a clean exit.
    pub fn stop(self) -> Result<()> {
        self.process.stop()
    }
}

/// Returns the etcd prefix for a data directory.
pub fn prefix(data: &Path) -> String {
    let name = data.file_name().unwrap_or_default().to_string_lossy();
    format!("/bench-{name}")
}
