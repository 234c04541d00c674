//! The `windlass` program as a process: start, wait until it is ready, log, stop.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{HttpClient, PATIENCE};

/// Bearer token of a member of `system:masters`.
pub const ADMIN_TOKEN: &str = "admin-token";

/// A shell around a program. Its standard input ends when this process does, however that comes about, and then it
/// kills the program.
const GUARD: &str = r#""$@" & echo $!; read -r end; kill -9 $!; wait"#;

/// A loopback address that nothing listens on.
pub fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// A running process whose standard error goes to a log; killed when dropped.
pub struct ChildProcess {
    child: Child,
    pid: u32,
    is_guarded: bool,
    log: PathBuf,
    lines: Mutex<Receiver<String>>,
}

impl ChildProcess {
    /// Starts a command, appending its standard error to a log file.
    pub fn spawn(command: &mut Command, log: &Path) -> Self {
        let errors = File::options().create(true).append(true).open(log).unwrap();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program()));
        let (pid, lines) = (child.id(), Mutex::new(read_lines(child.stdout.take().unwrap())));
        Self { child, pid, is_guarded: false, log: log.to_owned(), lines }
    }

    /// Starts a command with a new log file, which also gets its standard output.
    pub fn spawn_logged(command: &mut Command, log: &Path) -> Self {
        let file = File::create(log).unwrap();
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        let (pid, lines) = (child.id(), Mutex::new(channel().1));
        Self { child, pid, is_guarded: false, log: log.to_owned(), lines }
    }

    /// As [`ChildProcess::spawn`], for a program that must not outlive this process even if this one is killed.
    pub fn spawn_guarded(words: impl IntoIterator<Item = String>, log: &Path) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", GUARD, "sh"]).args(words).stdin(Stdio::piped());
        let mut process = Self::spawn(&mut shell, log);
        process.is_guarded = true;
        process.pid = process.line(PATIENCE).parse().unwrap();
        process
    }

    /// Process ID of the program.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for the next line on standard output; `None` if there is none in time.
    pub fn try_line(&self, patience: Duration) -> Option<String> {
        self.lines.lock().unwrap().recv_timeout(patience).ok()
    }

    /// Waits for the next line on standard output; panics with the log if there is none in time.
    pub fn line(&self, patience: Duration) -> String {
        self.try_line(patience).unwrap_or_else(|| panic!("no line on standard output; log:\n{}", self.log()))
    }

    /// All lines on standard output that were not read yet. Waits for the end of the process.
    pub fn output(&self) -> String {
        self.lines.lock().unwrap().iter().collect::<Vec<_>>().join("\n")
    }

    /// What it has written to standard error.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: Signal) {
        kill_process(to_pid(self.pid), signal).unwrap();
    }

    /// How it ended, if it does within the time.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        wait_for_exit(&mut self.child, patience)
    }

    /// Sends SIGTERM and insists on exit status 0 within the time.
    pub fn stop(&mut self, patience: Duration) {
        self.signal(Signal::TERM);
        let status = self.wait(patience);
        let clean = status.is_some_and(|status| status.success());
        assert!(clean, "{status:?}; log:\n{}", self.log());
    }

    /// Kills it as `kill -9` does, also if it is stopped, and waits for its end.
    pub fn kill(&mut self) {
        if self.is_guarded {
            // A stopped process does not die of SIGKILL alone on every kernel.
            let _ = kill_process(to_pid(self.pid), Signal::CONT);
            drop(self.child.stdin.take());
        } else {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }

    /// A number of KiB from `/proc/PID/status`, such as `VmRSS` or `VmHWM`.
    pub fn memory_kib(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
    }
}

fn to_pid(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// Waits for the end of a process; `None` if it still runs after the time.
pub fn wait_for_exit(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
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

/// The lines of a pipe, read to its end whether or not they are received.
pub fn read_lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    receiver
}

/// A data directory of `windlass up`, with a token file beside it.
pub struct ServerDataDir {
    dir: TempDir,
    binary: PathBuf,
}

impl ServerDataDir {
    /// A new directory for the program that was built for this integration test.
    pub fn new() -> Self {
        // Cargo names the program only to the test that it compiles, and puts both into the same profile directory.
        let test = std::env::current_exe().unwrap();
        Self::with_binary(test.ancestors().nth(2).unwrap().join("windlass"))
    }

    /// A new directory for any build of the program.
    pub fn with_binary(binary: PathBuf) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tokens = format!("{ADMIN_TOKEN},admin,admin-uid,\"system:masters\"\n");
        fs::write(dir.path().join("tokens.csv"), tokens).unwrap();
        Self { dir, binary }
    }

    /// Value of `--data-dir`, which exists after the first start.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The directory around it, with the token file and the log.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// `windlass up` on this directory, ready to be started.
    pub fn up_command(&self, listen: &str) -> Command {
        let mut command = Command::new(&self.binary);
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

    /// The log of all servers that ran here.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path().join("server.log")).unwrap_or_default()
    }

    /// Starts a server here, on the port of the last one if there was one.
    pub fn start(self) -> ServerProcess {
        self.start_with([""; 0])
    }

    /// As [`ServerDataDir::start`], with more flags.
    pub fn start_with<F: AsRef<OsStr>>(self, flags: impl IntoIterator<Item = F>) -> ServerProcess {
        let mut command = self.restart_command();
        command.args(flags);
        self.launch(command)
    }

    /// `windlass up` on the port of the last server here, if there was one.
    pub fn restart_command(&self) -> Command {
        self.up_command(&self.address().map_or("127.0.0.1:0".to_owned(), |last| last.to_string()))
    }

    /// Starts a server here with a command that ends in one; panics with the log if it never becomes ready.
    pub fn launch(self, command: Command) -> ServerProcess {
        self.try_launch(command).unwrap_or_else(|place| panic!("not ready; log:\n{}", place.log()))
    }

    /// As [`ServerDataDir::launch`]; `Err` when it never becomes ready.
    pub fn try_launch(self, mut command: Command) -> Result<ServerProcess, Self> {
        let process = ChildProcess::spawn(&mut command, &self.path().join("server.log"));
        let Some(ready) = process.try_line(PATIENCE) else {
            drop(process);
            return Err(self);
        };
        let Some(address) = self.address() else {
            panic!("ready ({ready:?}) but no address in admin.kubeconfig");
        };
        Ok(ServerProcess { process, place: self, address, ready })
    }

    /// The server's address in the kubeconfig.
    fn address(&self) -> Option<SocketAddr> {
        let kubeconfig = fs::read_to_string(self.data().join("admin.kubeconfig")).ok()?;
        let (_, url) = kubeconfig.split_once("https://")?;
        let end = url.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':'))?;
        url[..end].parse().ok()
    }
}

impl Default for ServerDataDir {
    fn default() -> Self {
        Self::new()
    }
}

/// A running server; killed when dropped.
pub struct ServerProcess {
    /// Before the directory, so that it ends before that is removed.
    process: ChildProcess,
    place: ServerDataDir,
    /// Where it listens.
    pub address: SocketAddr,
    /// The line on standard output that says it is ready.
    pub ready: String,
}

impl ServerProcess {
    /// Starts a server in a new data directory and waits until it is ready.
    pub fn start() -> Self {
        ServerDataDir::new().start()
    }

    /// The server's data directory.
    pub fn place(&self) -> &ServerDataDir {
        &self.place
    }

    /// Path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.place().data().join("admin.kubeconfig")
    }

    /// An HTTPS client with the administrator's token.
    pub fn http(&self) -> HttpClient {
        self.http_as(ADMIN_TOKEN)
    }

    /// An HTTPS client with any token.
    pub fn http_as(&self, token: &str) -> HttpClient {
        HttpClient::new(self.address, &self.place().data().join("pki/ca.crt"), token)
    }

    /// Process ID of the server.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// A number of KiB from `/proc/PID/status`, such as `VmRSS` or `VmHWM`.
    pub fn memory_kib(&self, field: &str) -> u64 {
        self.process.memory_kib(field)
    }

    /// Sends a signal to the server.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// How it ended, if it does within the time.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        self.process.wait(patience)
    }

    /// What it wrote to standard output after it was ready. Waits for its end.
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// Kills it as `kill -9` does; returns the directory that is left.
    pub fn kill(mut self) -> ServerDataDir {
        self.process.kill();
        self.place
    }

    /// Sends SIGTERM, insists on a clean end, and returns the directory that is left.
    pub fn stop(mut self) -> ServerDataDir {
        self.process.stop(PATIENCE);
        self.place
    }
}
