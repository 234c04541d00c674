//! etcd processes for tests.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Those that no test uses now.
static IDLE: Mutex<Vec<Member>> = Mutex::new(Vec::new());

/// A cluster of one member, for one user; dropped, it waits for the next.
pub(super) struct Process(Option<Member>);

struct Member {
    /// A shell around etcd, which ends it when this process has ended.
    shell: Child,
    _dir: tempfile::TempDir,
    url: String,
    uses: u64,
}

impl Process {
    /// One that is idle, or else a new one.
    pub(super) fn take() -> Self {
        let idle = IDLE.lock().unwrap().pop();
        let mut member = idle.unwrap_or_else(Member::start);
        member.uses += 1;
        Self(Some(member))
    }

    pub(super) fn url(&self) -> String {
        self.0.as_ref().unwrap().url.clone()
    }

    /// How many users it has had, with this one.
    pub(super) fn uses(&self) -> u64 {
        self.0.as_ref().unwrap().uses
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        IDLE.lock().unwrap().extend(self.0.take());
    }
}

impl Member {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [client, peer] = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let [client, peer] = [client, peer].map(|l| format!("http://{}", l.local_addr().unwrap()));
        let program = std::env::var("WINDLASS_ETCD").unwrap_or_else(|_| "etcd".to_owned());
        // Statics are not dropped, so the end of standard input has to end etcd.
        let script = r#""$@" >"$DIR/log" 2>&1 & read -r end; kill -9 $!; rm -rf "$DIR""#;
        let mut shell = Command::new("sh")
            .args(["-c", script, "sh", &program, "--name=m", "--data-dir"])
            .arg(dir.path().join("data"))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=m={peer}"))
            .args(["--heartbeat-interval=20", "--election-timeout=200"])
            .env("DIR", dir.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while TcpStream::connect(client.trim_start_matches("http://")).is_err() {
            if begun.elapsed() > Duration::from_secs(20) {
                shell.stdin.take().unwrap().write_all(b"\n").unwrap();
                let log = std::fs::read_to_string(dir.path().join("log")).unwrap_or_default();
                panic!("{program} did not start; it said:\n{log}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { shell, _dir: dir, url: client, uses: 0 }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}
