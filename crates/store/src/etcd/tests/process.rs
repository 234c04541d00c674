//! etcd processes for tests.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Those that no test uses now.
static IDLE: Mutex<Vec<Member>> = Mutex::new(Vec::new());

/// A cluster of one member, for one user; dropped, it waits for the next.
pub(super) struct Process {
    member: Option<Member>,
    reuse: bool,
}

struct Member {
    /// A shell around etcd, which ends it when this process has ended.
    shell: Child,
    dir: TempDir,
    client: String,
    peer: String,
    /// All members, as etcd wants them named.
    cluster: String,
    uses: u64,
}

impl Process {
    /// One that is idle, or else a new one.
    pub(super) fn take() -> Self {
        let idle = IDLE.lock().unwrap().pop();
        let mut member = idle.unwrap_or_else(|| Member::start(&[]));
        member.uses += 1;
        Self { member: Some(member), reuse: true }
    }

    /// A new one with more arguments, which nobody uses after.
    pub(super) fn own(args: &[&str]) -> Self {
        Self { member: Some(Member::start(args)), reuse: false }
    }

    /// Members of one new cluster.
    pub(super) fn cluster(size: usize) -> Vec<Self> {
        let places: Vec<_> = (0..size).map(|_| places("http")).collect();
        let names: Vec<_> = places.iter().map(|[_, peer]| member(peer)).collect();
        let start = |place| Member::start_at(place, names.join(","), &[]);
        places.into_iter().map(|place| Self { member: Some(start(place)), reuse: false }).collect()
    }

    /// Where its data is.
    pub(super) fn data(&self) -> PathBuf {
        self.member.as_ref().unwrap().dir.path().join("data")
    }

    pub(super) fn url(&self) -> String {
        self.member.as_ref().unwrap().client.clone()
    }

    /// How many users it has had, with this one.
    pub(super) fn uses(&self) -> u64 {
        self.member.as_ref().unwrap().uses
    }

    /// Kills etcd; what it has stored stays.
    pub(super) fn kill(&mut self) {
        let member = self.member.as_mut().unwrap();
        member.shell.stdin.take().unwrap().write_all(b"keep\n").unwrap();
        member.shell.wait().unwrap();
    }

    /// Starts etcd again after it was killed.
    pub(super) fn restart(&mut self, args: &[&str]) {
        let member = self.member.as_mut().unwrap();
        member.spawn_again(args);
    }

    /// Forgets what etcd has stored.
    pub(super) fn wipe(&mut self) {
        std::fs::remove_dir_all(self.data()).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let member = self.member.take();
        if self.reuse {
            IDLE.lock().unwrap().extend(member);
        }
    }
}

impl Member {
    fn start(args: &[&str]) -> Self {
        let tls = args.contains(&"--auto-tls");
        let place = places(if tls { "https" } else { "http" });
        let cluster = member(&place[1]);
        Self::start_at(place, cluster, args)
    }

    fn start_at([client, peer]: [String; 2], cluster: String, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let shell = spawn(&dir, [&client, &peer], &cluster, args);
        Self { shell, dir, client, peer, cluster, uses: 0 }
    }

    fn spawn_again(&mut self, args: &[&str]) {
        self.shell = spawn(&self.dir, [&self.client, &self.peer], &self.cluster, args);
    }
}

/// Free addresses for clients and for peers.
fn places(scheme: &str) -> [String; 2] {
    let free = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [client, peer] = free.map(|listener| listener.local_addr().unwrap());
    [format!("{scheme}://{client}"), format!("http://{peer}")]
}

/// A member's name and address; the name is made of the address.
fn member(peer: &str) -> String {
    format!("{}={peer}", name(peer))
}

fn name(peer: &str) -> String {
    peer.rsplit(':').next().map(|port| format!("m{port}")).unwrap()
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// Starts etcd and waits until it listens.
fn spawn(dir: &TempDir, [client, peer]: [&str; 2], cluster: &str, args: &[&str]) -> Child {
    let program = std::env::var("WINDLASS_ETCD").unwrap_or_else(|_| "etcd".to_owned());
    // Statics are not dropped, so the end of standard input has to end etcd.
    let script =
        r#""$@" >"$DIR/log" 2>&1 & read -r end; kill -9 $!; wait; [ "$end" ] || rm -rf "$DIR""#;
    let mut shell = Command::new("sh")
        .args(["-c", script, "sh", &program, "--name", &name(peer), "--data-dir"])
        .arg(dir.path().join("data"))
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster={cluster}"))
        .args(["--heartbeat-interval=20", "--election-timeout=200"])
        .args(args)
        .env("DIR", dir.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while TcpStream::connect(client.split("://").last().unwrap()).is_err() {
        if begun.elapsed() > Duration::from_secs(20) {
            let log = std::fs::read_to_string(dir.path().join("log")).unwrap_or_default();
            drop(shell.stdin.take());
            panic!("{program} did not start; it said:\n{log}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    shell
}
