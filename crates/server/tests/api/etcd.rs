//! An etcd for tests: `cargo xtask test` says in `WINDLASS_ETCD` where the program is; without it,
//! it is looked for on `PATH`.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_store::{EtcdOptions, Store};

/// A cluster of one member; it ends with this, or with the process.
pub struct Etcd {
    shell: Child,
    dir: tempfile::TempDir,
    client: String,
    peer: String,
}

impl Etcd {
    pub fn start() -> Etcd {
        let free = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let [client, peer] = free.map(|l| format!("http://{}", l.local_addr().unwrap()));
        let dir = tempfile::tempdir().unwrap();
        let shell = spawn(&dir, &client, &peer);
        Etcd { shell, dir, client, peer }
    }

    /// A store in it; all share their objects.
    pub fn open(&self) -> Arc<dyn Store> {
        let mut options = EtcdOptions::new([self.client.clone()]);
        options.attempt = Duration::from_millis(500);
        options.patience = Duration::from_secs(2);
        Arc::new(windlass_store::Etcd::open(options).unwrap())
    }

    /// Kills it; what it has stored stays.
    pub fn kill(&mut self) {
        self.shell.stdin.take().unwrap().write_all(b"end\n").unwrap();
        self.shell.wait().unwrap();
    }

    /// Starts it again after it was killed.
    pub fn restart(&mut self) {
        self.shell = spawn(&self.dir, &self.client, &self.peer);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

fn spawn(dir: &tempfile::TempDir, client: &str, peer: &str) -> Child {
    let program = std::env::var("WINDLASS_ETCD").unwrap_or_else(|_| "etcd".to_owned());
    // The end of standard input ends etcd, so it does not outlive a test that is killed.
    let script = r#""$@" >"$DIR/log" 2>&1 & read -r end; kill -9 $!; wait"#;
    let mut shell = Command::new("sh")
        .args(["-c", script, "sh", &program, "--name", "m", "--data-dir"])
        .arg(dir.path().join("data"))
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster=m={peer}"))
        .args(["--heartbeat-interval=20", "--election-timeout=200"])
        .env("DIR", dir.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while TcpStream::connect(client.trim_start_matches("http://")).is_err() {
        if begun.elapsed() > Duration::from_secs(20) {
            let log = std::fs::read_to_string(dir.path().join("log")).unwrap_or_default();
            drop(shell.stdin.take());
            panic!("{program} did not start; it said:\n{log}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    shell
}
