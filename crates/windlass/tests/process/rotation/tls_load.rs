//! TLS servers and clients of several implementations that authenticate each other with the files of host projections,
//! and read these again for every connection.

use std::ffi::OsString;
use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use windlass_testkit::poll_until;

use super::rotation_cluster::{HostVolume, VolumeContent};
use crate::server::{PATIENCE, lines, wait};

/// Time between two connections of a client, which leaves the processor to the programs under test.
const PAUSE: Duration = Duration::from_millis(20);
const ANSWER: &[u8] = b"served\n";

/// Clients and servers that run until they are finished.
pub struct TlsLoad {
    state: Arc<LoadState>,
    clients: Vec<JoinHandle<()>>,
    programs: Vec<PeerProcess>,
    python_server: PeerProcess,
}

/// A program that connects until its standard input ends, and prints `ok` for every good connection; or a server that
/// prints failures.
struct PeerProcess {
    name: &'static str,
    child: Child,
    lines: Receiver<String>,
}

#[derive(Default)]
struct LoadState {
    is_over: AtomicBool,
    rustls: AtomicUsize,
    openssl: AtomicUsize,
    failures: Mutex<Vec<String>>,
}

/// A server and the name in its certificate.
#[derive(Clone)]
struct TlsTarget {
    port: u16,
    name: String,
}

impl TlsLoad {
    /// Starts a rustls server and a rustls client for each volume, a server and a client in Python, a client in Java if
    /// it is installed, and a loop that runs `openssl s_client`. Returns when all of them have made connections.
    pub fn start(volumes: &[HostVolume]) -> Self {
        let state = Arc::new(LoadState::default());
        let servers: Vec<TlsTarget> = volumes.iter().map(|volume| start_server(volume, &state)).collect();
        let last = volumes.last().unwrap();
        let python_server = PeerProcess::python("server", &last.directory, &[]);
        let port = python_server.lines.recv_timeout(PATIENCE).expect("Python serves").parse().unwrap();
        let all = [&servers[..], &[TlsTarget { port, name: last.host_name.clone() }]].concat();
        let mut clients: Vec<_> = volumes
            .iter()
            .map(|volume| {
                let (state, volume, all) = (state.clone(), volume.clone(), all.clone());
                thread::spawn(move || run_client(&state, &volume, &all))
            })
            .collect();
        let (shared, of_openssl, targets) = (state.clone(), volumes.to_vec(), servers.clone());
        clients.push(thread::spawn(move || run_openssl(&shared, &of_openssl, &targets)));
        let targets: Vec<String> =
            servers.iter().map(|server| format!("{}={}", server.port, server.name)).collect();
        let directory = &volumes[0].directory;
        let mut programs = vec![PeerProcess::python("client", directory, &targets)];
        programs.extend(PeerProcess::java(directory, &targets));
        for program in &programs {
            let first = program.lines.recv_timeout(PATIENCE);
            assert_eq!(first.as_deref(), Ok("ok"), "{}", program.name);
        }
        let load = Self { state, clients, programs, python_server };
        load.wait_for_connections();
        load
    }

    /// Waits until the clients have made some more connections.
    pub fn wait_for_connections(&self) {
        for count in [&self.state.rustls, &self.state.openssl] {
            let wanted = count.load(Ordering::SeqCst) + 4;
            poll_until("there are no connections", || (count.load(Ordering::SeqCst) >= wanted).then_some(()));
        }
    }

    /// Ends all of them and insists that no handshake failed.
    pub fn finish(mut self) {
        self.wait_for_connections();
        self.state.is_over.store(true, Ordering::SeqCst);
        for client in std::mem::take(&mut self.clients) {
            client.join().unwrap();
        }
        let counts = [&self.state.rustls, &self.state.openssl].map(|count| count.load(Ordering::SeqCst));
        let mut failed = std::mem::take(&mut *self.state.failures.lock().unwrap());
        let mut good = 0;
        for program in &mut self.programs {
            let (count, errors) = program.finish();
            assert!(count > 0, "{} connected once", program.name);
            good += count;
            failed.extend(errors);
        }
        failed.extend(self.python_server.lines.try_iter());
        // The servers were waited for by their clients.
        failed.append(&mut self.state.failures.lock().unwrap());
        assert_eq!(failed, [""; 0]);
        eprintln!("connections: rustls {}, openssl {}, Python and Java {good}", counts[0], counts[1]);
    }
}

impl Drop for TlsLoad {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
    }
}

impl PeerProcess {
    fn python(mode: &str, directory: &Path, targets: &[String]) -> Self {
        let python = std::env::var_os("WINDLASS_PYTHON").unwrap_or(OsString::from("python3"));
        let mut command = Command::new(python);
        command.arg("-B").arg(script("python/tls_peer.py")).arg(mode).arg(directory).args(targets);
        Self::start("Python", command).expect("Python is installed")
    }

    /// Starts a client in Java; `None` if it is not installed.
    fn java(directory: &Path, targets: &[String]) -> Option<Self> {
        let mut command = Command::new("java");
        // It runs for seconds, and leaves the processor to the programs under test.
        command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
        command.arg(script("java/TlsClient.java")).arg(directory).args(targets);
        let started = Self::start("Java", command);
        if started.is_none() {
            // Printed, because a skipped part of the test must not look like one that passed.
            eprintln!("java not found; there is no client in Java");
        }
        started
    }

    fn start(name: &'static str, mut command: Command) -> Option<Self> {
        match command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() {
            Ok(mut child) => {
                let lines = lines(child.stdout.take().unwrap());
                Some(Self { name, child, lines })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => panic!("{name}: {error}"),
        }
    }

    /// Ends a client; returns the number of good connections and the other lines.
    fn finish(&mut self) -> (usize, Vec<String>) {
        drop(self.child.stdin.take());
        let status = wait(&mut self.child, PATIENCE).unwrap_or_else(|| panic!("{} does not end", self.name));
        assert!(status.success(), "{}: {status}", self.name);
        let (good, failed): (Vec<String>, Vec<String>) = self.lines.iter().partition(|line| line == "ok");
        (good.len(), failed.into_iter().map(|line| format!("{}: {line}", self.name)).collect())
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl LoadState {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn record(&self, count: &AtomicUsize, who: &str, result: Result<(), String>) {
        match result {
            Ok(()) => drop(count.fetch_add(1, Ordering::SeqCst)),
            Err(error) => self.failures.lock().unwrap().push(format!("{who}: {error}")),
        }
    }
}

fn script(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process").join(path)
}

/// Starts a rustls server that reads the files of the volume for every connection.
fn start_server(volume: &HostVolume, state: &Arc<LoadState>) -> TlsTarget {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (volume, state) = (volume.clone(), state.clone());
    let name = volume.host_name.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (volume, state) = (volume.clone(), state.clone());
            thread::spawn(move || {
                if let Err(error) = serve(stream.unwrap(), &volume.read()) {
                    let said = format!("server {}: {error}", volume.host_name);
                    state.failures.lock().unwrap().push(said);
                }
            });
        }
    });
    TlsTarget { port, name }
}

fn serve(stream: TcpStream, content: &VolumeContent) -> Result<(), Error> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let connection = ServerConnection::new(server_config(content)).map_err(Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    stream.read_exact(&mut [0; 3])?;
    stream.write_all(ANSWER)?;
    stream.conn.send_close_notify();
    stream.flush()?;
    // If the connection were closed with unread data, the client would see a reset.
    let _ = stream.sock.read_to_end(&mut Vec::new());
    Ok(())
}

fn run_client(state: &LoadState, volume: &HostVolume, targets: &[TlsTarget]) {
    for target in targets.iter().cycle() {
        if state.is_over() {
            return;
        }
        let result = connect(target, &volume.read()).map_err(|error| error.to_string());
        let who = format!("rustls client {} to {}", volume.host_name, target.name);
        state.record(&state.rustls, &who, result);
        thread::sleep(PAUSE);
    }
}

fn connect(target: &TlsTarget, content: &VolumeContent) -> Result<(), Error> {
    let stream = TcpStream::connect(("127.0.0.1", target.port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let name = ServerName::try_from(target.name.clone()).map_err(Error::other)?;
    let connection = ClientConnection::new(client_config(content), name).map_err(Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    stream.write_all(b"hi\n")?;
    let mut answer = [0; ANSWER.len()];
    stream.read_exact(&mut answer)?;
    assert_eq!(answer, ANSWER);
    Ok(())
}

/// Runs `openssl s_client` for one connection after the other, with the files themselves.
fn run_openssl(state: &LoadState, volumes: &[HostVolume], targets: &[TlsTarget]) {
    let pairs = targets.iter().flat_map(|target| volumes.iter().map(move |volume| (volume, target)));
    for (volume, target) in pairs.collect::<Vec<_>>().into_iter().cycle() {
        if state.is_over() {
            return;
        }
        let generation = volume.generation();
        let mut command = Command::new("openssl");
        command.args(["s_client", "-quiet", "-verify_return_error", "-servername", &target.name]);
        command.args(["-verify_hostname", &target.name, "-connect", &format!("127.0.0.1:{}", target.port)]);
        command.arg("-CAfile").arg(generation.join("ca.pem"));
        command.arg("-cert").arg(generation.join("web.pem")).arg("-key").arg(generation.join("web.pem"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("openssl is installed");
        // A program that ends before it connects does not read this.
        let _ = child.stdin.take().unwrap().write_all(b"hi\n");
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if errors.contains("No such file or directory") && !generation.exists() {
            // The files were replaced before it opened them, so it did not connect.
            continue;
        }
        let is_good = output.status.success() && output.stdout == ANSWER;
        let result = if is_good { Ok(()) } else { Err(format!("{}: {errors}", output.status)) };
        let who = format!("openssl {} to {}", volume.host_name, target.name);
        state.record(&state.openssl, &who, result);
    }
}

fn server_config(content: &VolumeContent) -> Arc<ServerConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(content), provider.clone()).build();
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.unwrap().with_client_cert_verifier(verifier.unwrap());
    let (chain, key) = credentials(content);
    Arc::new(builder.with_single_cert(chain, key).unwrap())
}

fn client_config(content: &VolumeContent) -> Arc<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.unwrap().with_root_certificates(roots(content));
    let (chain, key) = credentials(content);
    Arc::new(builder.with_client_auth_cert(chain, key).unwrap())
}

fn roots(content: &VolumeContent) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(&content.anchors) {
        roots.add(root.unwrap()).unwrap();
    }
    Arc::new(roots)
}

fn credentials(content: &VolumeContent) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_slice_iter(&content.credentials).map(Result::unwrap).collect();
    (chain, PrivateKeyDer::from_pem_slice(&content.credentials).unwrap())
}
