//! The fixture: one server process on a directory of its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::http::HttpClient;

/// A token of the group that may do everything.
pub const ADMIN_TOKEN: &str = "admin-token";

/// Longer than anything healthy takes, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A data directory with what a server needs besides it.
pub struct TestDataDir {
    dir: TempDir,
}

impl TestDataDir {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tokens = format!("{ADMIN_TOKEN},admin,admin-uid,\"system:masters\"\n");
        fs::write(dir.path().join("tokens.csv"), tokens).unwrap();
        Self { dir }
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// `windlass up` on this place, ready to be started.
    pub fn up_command(&self, listen: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .arg("up")
            .arg("--data-dir")
            .arg(self.data())
            .args(["--listen", listen])
            .arg("--token-auth-file")
            .arg(self.path().join("tokens.csv"))
            .arg("--no-node")
            .stdin(Stdio::null());
        command
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path().join("server.log")).unwrap_or_default()
    }

    /// Start a server here, on the port of the last one if there was one.
    pub fn start(self) -> TestServer {
        let command = self.restart_command();
        self.launch(command)
            .unwrap_or_else(|place| panic!("no line that says ready; log:\n{}", place.log()))
    }

    /// `windlass up` on the port of the last server here, if there was one.
    pub fn restart_command(&self) -> Command {
        self.up_command(&self.address().map_or("127.0.0.1:0".to_owned(), |last| last.to_string()))
    }

    /// Start a server here with a command that ends in one; `Err` when it never gets ready.
    pub fn launch(self, mut command: Command) -> Result<TestServer, Self> {
        let log =
            File::options().create(true).append(true).open(self.path().join("server.log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let lines = lines(child.stdout.take().unwrap());
        let Ok(ready) = lines.recv_timeout(PATIENCE) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(self);
        };
        let Some(address) = self.address() else {
            let _ = child.kill();
            panic!("ready ({ready:?}) but no address in admin.kubeconfig");
        };
        Ok(TestServer { place: Some(self), child, address, ready, lines: Mutex::new(lines) })
    }

    /// Where the kubeconfig says the server is.
    fn address(&self) -> Option<SocketAddr> {
        let kubeconfig = fs::read_to_string(self.data().join("admin.kubeconfig")).ok()?;
        let (_, url) = kubeconfig.split_once("https://")?;
        let end = url.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':'))?;
        url[..end].parse().ok()
    }
}

/// A running server; killed when dropped.
pub struct TestServer {
    /// There until the server is taken apart.
    place: Option<TestDataDir>,
    child: Child,
    pub address: SocketAddr,
    /// What it said when it was ready.
    pub ready: String,
    /// What it says on standard output after that.
    lines: Mutex<Receiver<String>>,
}

impl TestServer {
    /// Starts a server in a new data directory and waits until it is ready.
    pub fn start() -> Self {
        TestDataDir::new().start()
    }

    pub fn place(&self) -> &TestDataDir {
        self.place.as_ref().unwrap()
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.place().data().join("admin.kubeconfig")
    }

    /// A client with the administrator's token.
    pub fn http(&self) -> HttpClient {
        self.http_as(ADMIN_TOKEN)
    }

    pub fn http_as(&self, token: &str) -> HttpClient {
        HttpClient::new(self.address, &self.place().data().join("pki/ca.crt"), token)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A number of KiB from `/proc/PID/status`, such as `VmRSS` or `VmHWM`.
    pub fn memory_kib(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// How it ended, if it does within the time.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        wait(&mut self.child, patience)
    }

    /// What it said on standard output after it was ready. Waits for its end.
    pub fn output(&self) -> String {
        self.lines.lock().unwrap().iter().collect::<Vec<_>>().join("\n")
    }

    /// `kill -9`, and what is left.
    pub fn kill(mut self) -> TestDataDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.place.take().unwrap()
    }

    /// SIGTERM, a clean end, and what is left.
    pub fn stop(mut self) -> TestDataDir {
        self.signal(Signal::TERM);
        let status = self.wait(PATIENCE);
        assert!(
            status.is_some_and(|status| status.success()),
            "{status:?}; log:\n{}",
            self.place().log()
        );
        self.place.take().unwrap()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking()
            && let Some(place) = &self.place
        {
            eprintln!("--- server log\n{}", place.log());
        }
    }
}

/// Wait for a process without waiting for ever.
pub fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if started.elapsed() > patience {
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The lines of a pipe, read to its end whether or not somebody listens.
pub fn lines(pipe: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    receiver
}

/// Whether the long variants are wanted.
pub fn long() -> bool {
    std::env::var_os("WINDLASS_LONG").is_some_and(|value| value == "1")
}
