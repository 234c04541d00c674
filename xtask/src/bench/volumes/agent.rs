//! The measured agent, in a separate process.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use hyper::Method;
use std::process::Command;
use windlass_testkit::{HttpClient, HttpProtocol};

use super::super::BenchContext;
use super::super::nodes;
use super::super::process::MeasuredProcess;
use super::PATIENCE;

pub const NAME: &str = "bench-node";

/// A running agent; killed on drop.
pub struct AgentProcess {
    pub process: MeasuredProcess,
    root: PathBuf,
}

impl AgentProcess {
    /// Joins with a token, and waits until the Node exists.
    pub async fn start(bench: &BenchContext, admin: &HttpClient, data: &Path) -> Result<Self> {
        let place = bench.scratch.join("agent");
        let root = place.join("root");
        fs::create_dir_all(&place)?;
        let bootstrap = place.join("bootstrap.kubeconfig");
        fs::write(&bootstrap, nodes::kubeconfig(&admin.url(), &data.join("pki/ca.crt")))?;
        let mut command = Command::new(&bench.binary);
        command
            .args(["node", "--node-name", NAME, "--node-ip", "127.0.0.1"])
            .args([&"--bootstrap-kubeconfig".into(), &bootstrap])
            .args([&"--kubeconfig".into(), &place.join("kubeconfig")])
            .args([&"--cert-dir".into(), &place.join("pki")])
            .args([&"--root-dir".into(), &root]);
        let process = MeasuredProcess::start(&mut command, &bench.scratch.join("agent.log"));
        let agent = Self { process, root };
        let began = Instant::now();
        let mut connection = admin.connect_with(HttpProtocol::Http1).await?;
        let path = format!("/api/v1/nodes/{NAME}");
        while connection.fetch(Method::GET, &path, Bytes::new()).await?.0 != 200 {
            ensure!(began.elapsed() < PATIENCE, "the agent did not join");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(agent)
    }

    /// Returns the path of a pod's volume.
    pub fn volume(&self, uid: &str) -> PathBuf {
        super::directory(&self.root, uid)
    }

    /// Stops the agent with SIGTERM and removes its volumes.
    pub fn stop(self) -> Result<()> {
        self.process.stop()?;
        // They may be on a separate file system, which outlives the agent.
        let _ = std::process::Command::new("umount").arg(self.root.join("pods")).output();
        Ok(())
    }
}
