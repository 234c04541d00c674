//! One etcd process.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::MemberAddress;

/// How long a member may take until it listens.
const START: Duration = Duration::from_secs(30);

/// A shell around etcd. Its standard input ends when this process does, however that comes about, and
/// then it kills etcd. `keep` leaves the files where they are.
const SHELL: &str = r#""$@" >>"$DIR/log" 2>&1 & echo $! >"$DIR/pid"
read -r end; kill -9 $!; wait; [ "$end" ] || rm -rf "$DIR""#;

/// One etcd process, or the place of one that was killed.
pub struct EtcdMember {
    shell: Option<Child>,
    dir: TempDir,
    place: MemberAddress,
    cluster: String,
}

/// What a member says about itself.
pub(crate) struct MemberStatus {
    pub(crate) id: String,
    /// ID of the leader that it knows; `0` for none.
    pub(crate) leader: String,
}

impl EtcdMember {
    /// Client URL of the member, with scheme and port.
    pub fn url(&self) -> &str {
        &self.place.client
    }

    /// Path of the member's data directory.
    pub fn data_directory(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// What it has written to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Kills it; what it has stored stays.
    pub fn kill(&mut self) -> Result<()> {
        let Some(mut shell) = self.shell.take() else { return Ok(()) };
        // What is stopped does not die of SIGKILL alone on every kernel.
        let _ = self.signal("CONT");
        shell.stdin.take().context("its input is gone")?.write_all(b"keep\n")?;
        shell.wait()?;
        Ok(())
    }

    /// Starts it again after it was killed, with these further arguments.
    pub fn restart(&mut self, args: &[&str]) -> Result<()> {
        ensure!(self.shell.is_none(), "{} runs", self.url());
        self.shell = Some(spawn_process(&self.dir, &self.place, &self.cluster, args)?);
        self.wait_until_listening()
    }

    /// Forgets what it has stored; it must have been killed.
    pub fn wipe(&self) -> Result<()> {
        Ok(std::fs::remove_dir_all(self.data_directory())?)
    }

    /// Stops it where it is (SIGSTOP).
    pub fn pause(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) -> Result<()> {
        self.signal("CONT")
    }

    pub(crate) fn spawn(place: MemberAddress, cluster: &str, args: &[&str]) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let shell = Some(spawn_process(&dir, &place, cluster, args)?);
        Ok(Self { shell, dir, place, cluster: cluster.to_owned() })
    }

    pub(crate) fn wait_until_listening(&mut self) -> Result<()> {
        let begun = Instant::now();
        while TcpStream::connect(self.place.client_address()).is_err() {
            if begun.elapsed() > START {
                let log = self.log();
                drop(self.shell.take().and_then(|mut shell| shell.stdin.take()));
                bail!("etcd did not start; it said:\n{log}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Asks it something through its JSON gateway, if it answers within `limit`. Only without TLS.
    pub fn post(&self, path: &str, body: &str, limit: Duration) -> Option<Value> {
        let address = self.place.client_address().parse().ok()?;
        let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
        stream.set_read_timeout(Some(limit)).ok()?;
        let length = body.len();
        let request = format!("POST {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }

    /// Makes room after the database was full: gives back what compactions freed, and ends the alarm.
    pub fn defragment(&self) -> Result<()> {
        let post = |path: &str, body: &str| {
            self.post(path, body, Duration::from_secs(10)).with_context(|| format!("no {path}"))
        };
        post("/v3/maintenance/defragment", "{}")?;
        let alarms = post("/v3/maintenance/alarm", r#"{"action":"GET"}"#)?;
        for alarm in alarms.get("alarms").and_then(Value::as_array).into_iter().flatten() {
            let mut alarm = alarm.clone();
            alarm["action"] = "DEACTIVATE".into();
            post("/v3/maintenance/alarm", &alarm.to_string())?;
        }
        Ok(())
    }

    /// What it says about itself, if it answers at once. Only without TLS.
    pub(crate) fn status(&self) -> Option<MemberStatus> {
        let body = self.post("/v3/maintenance/status", "{}", Duration::from_millis(500))?;
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let id = text(body.pointer("/header/member_id")?)?;
        // What is zero is left out.
        let leader = body.get("leader").and_then(text).unwrap_or_else(|| "0".to_owned());
        Some(MemberStatus { id, leader })
    }

    fn signal(&self, name: &str) -> Result<()> {
        let pid = std::fs::read_to_string(self.dir.path().join("pid"))?;
        let done = Command::new("kill").args([&format!("-{name}"), pid.trim()]).status()?;
        ensure!(done.success(), "SIG{name} could not be sent to etcd");
        Ok(())
    }
}

impl Drop for EtcdMember {
    fn drop(&mut self) {
        if let Some(mut shell) = self.shell.take() {
            let _ = self.signal("CONT");
            drop(shell.stdin.take());
            let _ = shell.wait();
        }
    }
}

fn spawn_process(dir: &TempDir, place: &MemberAddress, cluster: &str, args: &[&str]) -> Result<Child> {
    let program = std::env::var("WINDLASS_ETCD").unwrap_or_else(|_| "etcd".to_owned());
    let MemberAddress { client, peer, through } = place;
    Command::new("sh")
        .args(["-c", SHELL, "sh"])
        .args(through)
        .args([&program, "--name", &place.name(), "--data-dir"])
        .arg(dir.path().join("data"))
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster={cluster}"))
        .args(args)
        .env("DIR", dir.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("sh")
}
