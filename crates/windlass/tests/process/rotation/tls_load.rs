//! TLS servers and clients of several implementations that authenticate each other with the files of host projections,
//! and read these again for every connection.

use std::ffi::OsString;
use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
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
    python_client: Child,
    python_client_lines: Receiver<String>,
    python_server: Child,
    python_server_lines: Receiver<String>,
}

/// What the threads share.
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
    /// Starts a rustls server and a rustls client for each volume, a server and a client in Python, and a loop that
    /// runs `openssl s_client`. Returns when all of them have made connections.
    pub fn start(volumes: &[HostVolume]) -> Self {
        let state = Arc::new(LoadState::default());
        let servers: Vec<TlsTarget> = volumes.iter().map(|volume| start_server(volume, &state)).collect();
        let last = volumes.last().unwrap();
        let mut python_server = start_python("server", &last.directory, &[]);
        let python_server_lines = lines(python_server.stdout.take().unwrap());
        let port = python_server_lines.recv_timeout(PATIENCE).expect("Python serves").parse().unwrap();
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
        let mut python_client = start_python("client", &volumes[0].directory, &targets);
        let python_client_lines = lines(python_client.stdout.take().unwrap());
        assert_eq!(python_client_lines.recv_timeout(PATIENCE).as_deref(), Ok("ok"));
        let load =
            Self { state, clients, python_client, python_client_lines, python_server, python_server_lines };
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

    /// Ends all of them and insists that no handshake failed. Returns the number of connections.
    pub fn finish(mut self) -> usize {
        self.wait_for_connections();
        self.state.is_over.store(true, Ordering::SeqCst);
        drop(self.python_client.stdin.take());
        for client in std::mem::take(&mut self.clients) {
            client.join().unwrap();
        }
        let status = wait(&mut self.python_client, PATIENCE).expect("the Python client ends");
        assert!(status.success(), "{status}");
        let of_client: Vec<String> = self.python_client_lines.iter().collect();
        let (good, mut failed): (Vec<String>, _) = of_client.into_iter().partition(|line| line == "ok");
        failed.extend(self.python_server_lines.try_iter());
        failed.extend(self.state.failures.lock().unwrap().drain(..));
        assert_eq!(failed, [""; 0]);
        let counts = [&self.state.rustls, &self.state.openssl].map(|count| count.load(Ordering::SeqCst));
        assert!(good.len() > 4, "Python connected {} times", good.len());
        eprintln!("connections: rustls {}, openssl {}, Python {}", counts[0], counts[1], good.len() + 1);
        counts[0] + counts[1] + good.len()
    }
}

impl Drop for TlsLoad {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        for child in [&mut self.python_client, &mut self.python_server] {
            let _ = child.kill();
            let _ = child.wait();
        }
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

fn start_python(mode: &str, directory: &Path, targets: &[String]) -> Child {
    let python = std::env::var_os("WINDLASS_PYTHON").unwrap_or(OsString::from("python3"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process/python/tls_peer.py");
    let mut command = Command::new(python);
    command.arg("-B").arg(script).arg(mode).arg(directory).args(targets);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python is installed")
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
    let connection = ServerConnection::new(server_config(content)).map_err(other)?;
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
    let name = ServerName::try_from(target.name.clone()).map_err(other)?;
    let connection = ClientConnection::new(client_config(content), name).map_err(other)?;
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

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Other, error)
}
