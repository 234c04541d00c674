//! A process that does not outlive this one.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Its standard input ends when this process does, however that comes about, and then it kills what it has
/// started.
const SHELL: &str = r#""$@" & echo $!; read -r end; kill -9 $!; wait"#;

pub struct ManagedProcess {
    shell: Child,
    pid: Pid,
    lines: Receiver<String>,
    log: PathBuf,
}

impl ManagedProcess {
    /// Starts a program, the words before its name included, with a log that it adds to.
    pub fn start(words: impl IntoIterator<Item = String>, log: &Path) -> Self {
        let errors = File::options().create(true).append(true).open(log).unwrap();
        let mut shell = Command::new("sh")
            .args(["-c", SHELL, "sh"])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let out = BufReader::new(shell.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let pid = lines.recv_timeout(Duration::from_secs(10)).unwrap().parse().unwrap();
        Self { shell, pid: Pid::from_raw(pid).unwrap(), lines, log: log.to_owned() }
    }

    /// Waits for the next line that it says on standard output.
    pub fn line(&self, patience: Duration) -> String {
        let line = self.lines.recv_timeout(patience);
        line.unwrap_or_else(|_| panic!("it says nothing; its log:\n{}", self.log()))
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
    }

    /// Kills the process as `kill -9` does, also if it is stopped.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // What is stopped does not die of SIGKILL alone on every kernel.
        let _ = kill_process(self.pid, Signal::CONT);
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for ManagedProcess {
    fn drop(&mut self) {
        self.end();
    }
}
