use std::convert::Infallible;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::clock;
use crate::volume::definition::VolumeDefinition;
use crate::volume::plan::VolumeReaders;

const ONE: Digest = [1; 32];
const TWO: Digest = [2; 32];

fn notifier(dir: &TempDir) -> Arc<Notifier> {
    let pauses = (Duration::from_millis(1), Duration::from_millis(4));
    let directory = dir.path().join("projections");
    Notifier::with_pauses(directory, FileSystem::default(), clock::system(), Default::default(), pauses)
}

impl Notifier {
    /// Waits until no notification task is running.
    async fn settled(&self) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if self.state().tasks.is_empty() {
                return;
            }
            ended.await;
        }
    }

    fn count(&self, kind: &str, result: &str) -> u64 {
        let labels = ["web", kind, result].map(str::to_owned);
        let [projection, kind, result] = labels;
        let labels = [("projection", projection), ("kind", kind), ("result", result)];
        self.counts.get(&labels).map_or(0, |count| count.get())
    }
}

fn projection(notify: Vec<Notification>) -> Arc<HostProjection> {
    Arc::new(HostProjection {
        name: "web".into(),
        directory: "/etc/web".into(),
        namespace: "default".into(),
        definition: VolumeDefinition { default_mode: 0o644, sources: Vec::new() },
        readers: VolumeReaders::default(),
        common_name: None,
        names: windlass_pki::AltNames::default(),
        stores: Vec::new(),
        notify,
    })
}

fn notification(how: NotificationMethod, retries: u32) -> Notification {
    Notification { how, timeout: Duration::from_secs(60), retries }
}

fn shell(script: &str) -> NotificationMethod {
    NotificationMethod::Command(["sh", "-c", script].map(String::from).into())
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(String::from).collect()
}

/// A server that responds with these statuses and then with 200, and records the requests.
async fn server(statuses: &'static [u16]) -> (String, mpsc::UnboundedReceiver<(Method, HeaderMap)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/reload", listener.local_addr().unwrap());
    let (out, requests) = mpsc::unbounded_channel();
    let served = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (out, served) = (out.clone(), served.clone());
            let answer = service_fn(move |request: Request<Incoming>| {
                let number = served.fetch_add(1, SeqCst);
                let _ = out.send((request.method().clone(), request.headers().clone()));
                let status = statuses.get(number).copied().unwrap_or(200);
                let response = Response::builder().status(status).body(Empty::<Bytes>::new());
                async move { Ok::<_, Infallible>(response.unwrap()) }
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            tokio::spawn(async move {
                let _ = connection.await;
            });
        }
    });
    (url, requests)
}

fn http(url: &str) -> NotificationMethod {
    let mut headers = HeaderMap::new();
    headers.insert("x-token", HeaderValue::from_static("t"));
    NotificationMethod::Http { url: url.parse().unwrap(), method: Method::PUT, headers }
}

/// A process that sleeps until it is killed.
fn sleeper() -> Child {
    Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap()
}

#[tokio::test]
async fn a_process_gets_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("web.pid");
    let mut child = sleeper();
    fs::write(&pid_file, format!("{}\n", child.id())).unwrap();
    let notifier = notifier(&dir);
    let how = NotificationMethod::Signal { signal: Signal::USR1, pid_file };
    notifier.written(&projection(vec![notification(how, 0)]), ONE);
    let status = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    assert_eq!(status.signal(), Some(Signal::USR1.as_raw()));
    notifier.settled().await;
    assert_eq!(notifier.count("signal", "success"), 1);
    assert_eq!(notifier.failed_notifications(), []);
}

#[tokio::test]
async fn a_process_that_is_gone_is_a_failure_until_the_next_change() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("web.pid");
    let how = NotificationMethod::Signal { signal: Signal::USR1, pid_file: pid_file.clone() };
    let projection = projection(vec![notification(how, 2)]);
    let first = notifier(&dir);
    first.written(&projection, ONE);
    first.settled().await;
    assert_eq!((first.count("signal", "retry"), first.count("signal", "failure")), (2, 1));
    let failed = first.failed_notifications();
    assert!(failed[0].reason.starts_with("cannot read "), "{failed:?}");
    // The same digest causes no notification.
    first.written(&projection, ONE);
    first.settled().await;
    assert_eq!(first.count("signal", "failure"), 1);
    first.written(&projection, TWO);
    first.settled().await;
    assert_eq!(first.count("signal", "failure"), 2);
    // The next process retries.
    let mut child = sleeper();
    fs::write(&pid_file, child.id().to_string()).unwrap();
    let second = notifier(&dir);
    second.written(&projection, TWO);
    second.settled().await;
    assert_eq!(second.count("signal", "success"), 1);
    child.wait().unwrap();
}

#[tokio::test]
async fn a_command_runs_without_a_shell_and_gets_the_projection_name() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let script =
        "echo \"$1 $WINDLASS_PROJECTION $WINDLASS_DIRECTORY $(pwd)\" >> \"$0\"; yes | head -c 100000";
    let out_text = out.display().to_string();
    let arguments = ["sh", "-c", script, &out_text, "a b; $(touch x)"].map(String::from);
    let notifier = notifier(&dir);
    let how = NotificationMethod::Command(arguments.into());
    notifier.written(&projection(vec![notification(how, 0)]), ONE);
    notifier.settled().await;
    assert_eq!(lines(&out), ["a b; $(touch x) web /etc/web /"]);
    assert_eq!(notifier.count("command", "success"), 1);
}

#[tokio::test]
async fn a_command_that_fails_or_cannot_be_run_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let notifier = notifier(&dir);
    let missing = NotificationMethod::Command(vec!["/nowhere/at/all".into()]);
    let all = [shell("exit 3"), missing].map(|how| notification(how, 0)).into();
    notifier.written(&projection(all), ONE);
    notifier.settled().await;
    assert_eq!(notifier.count("command", "failure"), 2);
    let mut why = notifier.failed_notifications().into_iter().map(|failed| failed.reason).collect::<Vec<_>>();
    why.sort();
    assert!(why[0].starts_with("cannot run /nowhere/at/all: "), "{why:?}");
    assert_eq!(why[1], "exit status: 3");
}

#[tokio::test]
async fn a_command_that_hangs_is_killed_with_all_that_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let notifier = notifier(&dir);
    // Both processes keep the pipe open while they live.
    let how = shell(&format!("exec 3> {}; sleep 1000 & sleep 1000", pipe.display()));
    let hangs = Notification { timeout: Duration::from_secs(2), ..notification(how, 0) };
    notifier.written(&projection(vec![hangs]), ONE);
    let read = move || {
        let mut text = String::new();
        fs::File::open(&pipe).unwrap().read_to_string(&mut text).unwrap()
    };
    assert_eq!(tokio::task::spawn_blocking(read).await.unwrap(), 0);
    notifier.settled().await;
    assert_eq!(notifier.failed_notifications()[0].reason, "timed out after 2s");
}

#[tokio::test]
async fn a_command_that_leaves_something_behind_is_not_awaited() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    let notifier = notifier(&dir);
    let how = shell(&format!("sleep 1000 & echo $! > {}", pid_file.display()));
    notifier.written(&projection(vec![notification(how, 0)]), ONE);
    notifier.settled().await;
    assert_eq!(notifier.count("command", "success"), 1);
    let pid = fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_request_is_sent_until_it_is_answered_well() {
    let dir = tempfile::tempdir().unwrap();
    let (url, mut requests) = server(&[503, 302]).await;
    let notifier = notifier(&dir);
    notifier.written(&projection(vec![notification(http(&url), 5)]), ONE);
    for _ in 0..3 {
        let (method, headers) = requests.recv().await.unwrap();
        assert_eq!((method, headers["x-token"].as_bytes()), (Method::PUT, &b"t"[..]));
    }
    notifier.settled().await;
    assert_eq!((notifier.count("http", "retry"), notifier.count("http", "success")), (2, 1));
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn successful_notification_is_not_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let (url, mut requests) = server(&[500, 500, 500]).await;
    let how = shell(&format!("echo told >> {}", out.display()));
    let all = vec![notification(http(&url), 1), notification(how, 0)];
    let projection = projection(all);
    let first = notifier(&dir);
    first.written(&projection, ONE);
    first.settled().await;
    assert_eq!((first.count("http", "failure"), lines(&out).len()), (1, 1));
    // The next process.
    let second = notifier(&dir);
    second.written(&projection, ONE);
    second.settled().await;
    assert_eq!((second.count("http", "retry"), second.count("http", "success")), (1, 1));
    assert_eq!(lines(&out).len(), 1);
    // A process with nothing to do.
    let third = notifier(&dir);
    third.written(&projection, ONE);
    third.settled().await;
    for result in ["success", "retry", "failure"] {
        assert_eq!((third.count("http", result), third.count("command", result)), (0, 0));
    }
    let mut sent = 0;
    while requests.try_recv().is_ok() {
        sent += 1;
    }
    assert_eq!(sent, 4);
}

/// A command that waits for a line from a pipe, and appends one to a file. The content of the line
/// does not matter: a command that is being killed may still consume a character.
struct GatedCommand {
    pipe: PathBuf,
    out: PathBuf,
    projection: Arc<HostProjection>,
}

impl GatedCommand {
    fn new(dir: &TempDir) -> Self {
        let (out, pipe) = (dir.path().join("out"), dir.path().join("gate"));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let script = format!("read line < {}; echo told >> {}", pipe.display(), out.display());
        Self { pipe, out, projection: projection(vec![notification(shell(&script), 0)]) }
    }

    /// Waits until the command runs. Each line written to the result ends it.
    fn running(&self) -> fs::File {
        fs::OpenOptions::new().write(true).open(&self.pipe).unwrap()
    }
}

#[tokio::test]
async fn interrupted_notification_is_retried_after_restart() {
    let dir = tempfile::tempdir().unwrap();
    let gated = Arc::new(GatedCommand::new(&dir));
    let (first, in_first) = (notifier(&dir), gated.clone());
    let live_and_die = move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async { first.written(&in_first.projection, ONE) });
        let _held = in_first.running();
        drop(runtime);
    };
    tokio::task::spawn_blocking(live_and_die).await.unwrap();
    // Open at both ends, so that the pipe keeps the line.
    let mut pipe = fs::OpenOptions::new().read(true).write(true).open(&gated.pipe).unwrap();
    pipe.write_all(b"line\n").unwrap();
    let second = notifier(&dir);
    second.written(&gated.projection, ONE);
    second.settled().await;
    assert_eq!(lines(&gated.out), ["told"]);
}

#[tokio::test]
async fn changes_during_notification_are_coalesced() {
    let dir = tempfile::tempdir().unwrap();
    let gated = Arc::new(GatedCommand::new(&dir));
    let notifier = notifier(&dir);
    notifier.written(&gated.projection, ONE);
    let waiting = gated.clone();
    let mut pipe = tokio::task::spawn_blocking(move || waiting.running()).await.unwrap();
    for number in 2..10 {
        notifier.written(&gated.projection, [number; 32]);
    }
    pipe.write_all(b"line\nline\nline\n").unwrap();
    notifier.settled().await;
    assert_eq!(lines(&gated.out), ["told", "told"]);
    let id = gated.projection.notify[0].how.id();
    assert!(notifier.state().logs["web"].knows(&id, &[9; 32]));
}

#[tokio::test]
async fn something_newer_ends_the_pause_after_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let (url, mut requests) = server(&[500]).await;
    let day = Duration::from_secs(86400);
    let notifier = Notifier::with_pauses(
        dir.path().into(),
        FileSystem::default(),
        clock::system(),
        Default::default(),
        (day, day),
    );
    let projection = projection(vec![notification(http(&url), 5)]);
    notifier.written(&projection, ONE);
    requests.recv().await.unwrap();
    notifier.written(&projection, TWO);
    requests.recv().await.unwrap();
    notifier.settled().await;
    assert_eq!(notifier.count("http", "success"), 1);
}

#[tokio::test]
async fn added_targets_are_notified_and_removed_ones_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let say = |word: &str| notification(shell(&format!("echo {word} >> {}", out.display())), 0);
    let notifier = notifier(&dir);
    for notify in [vec![say("a")], vec![say("a"), say("b")], vec![say("b")], vec![say("a")]] {
        notifier.written(&projection(notify), ONE);
        notifier.settled().await;
    }
    // No notification ran after `a` was removed, so its entry is still in the log.
    assert_eq!(lines(&out), ["a", "b"]);
    notifier.forget("web");
    notifier.written(&projection(vec![say("a")]), ONE);
    notifier.settled().await;
    assert_eq!(lines(&out), ["a", "b", "a"]);
}

#[tokio::test]
async fn unreadable_log_repeats_notification() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let how = shell(&format!("echo told >> {}", out.display()));
    let projection = projection(vec![notification(how, 0)]);
    for (life, told) in [("broken", 1), ("", 1)] {
        let notifier = notifier(&dir);
        if !life.is_empty() {
            fs::create_dir_all(dir.path().join("projections")).unwrap();
            fs::write(dir.path().join("projections/web.told"), life).unwrap();
        }
        notifier.written(&projection, ONE);
        notifier.settled().await;
        assert_eq!(lines(&out).len(), told);
    }
}
