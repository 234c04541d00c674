//! A proxy between agents and their server that injects network faults.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How the proxy treats connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyMode {
    /// Forwards all bytes in both directions.
    Pass,
    /// Refuses connections, as a stopped server would.
    Refuse,
    /// Drops all bytes without closing the connection.
    Stall,
    /// Forwards requests and drops the responses.
    Deaf,
}

/// A proxy; its connections are closed when dropped.
pub struct FaultProxy {
    pub address: SocketAddr,
    shared: Arc<ProxyState>,
    accepting: tokio::task::JoinHandle<()>,
}

struct ProxyState {
    server: Mutex<SocketAddr>,
    mode: watch::Sender<ProxyMode>,
    /// Open connections are blackholed when this changes.
    losses: watch::Sender<usize>,
    /// Open connections are reset when this changes.
    cuts: watch::Sender<usize>,
    made: AtomicUsize,
    open: AtomicUsize,
    /// Number of times the present mode affected a connection.
    felt: AtomicUsize,
}

impl FaultProxy {
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(ProxyState {
            server: Mutex::new(server),
            mode: watch::Sender::new(ProxyMode::Pass),
            losses: watch::Sender::new(0),
            cuts: watch::Sender::new(0),
            made: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            felt: AtomicUsize::new(0),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Self { address, shared, accepting }
    }

    pub fn set(&self, mode: ProxyMode) {
        self.shared.felt.store(0, Relaxed);
        self.shared.mode.send_replace(mode);
    }

    /// Resets every connection at once.
    pub fn reset_connections(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Drops all further bytes on the open connections, which are never closed.
    pub fn blackhole_connections(&self) {
        self.shared.losses.send_modify(|losses| *losses += 1);
    }

    pub fn mode_was_observed(&self) -> bool {
        self.shared.felt.load(Relaxed) > 0
    }

    /// Returns the total number of connections so far.
    pub fn connection_count(&self) -> usize {
        self.shared.made.load(Relaxed)
    }

    /// Number of connections that are open now.
    pub fn open(&self) -> usize {
        self.shared.open.load(Relaxed)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.reset_connections();
    }
}

async fn accept(listener: TcpListener, shared: Arc<ProxyState>) {
    while let Ok((client, _)) = listener.accept().await {
        shared.made.fetch_add(1, Relaxed);
        if *shared.mode.borrow() == ProxyMode::Refuse {
            shared.felt.fetch_add(1, Relaxed);
            reset(&client);
            continue;
        }
        let shared = shared.clone();
        tokio::spawn(async move {
            shared.open.fetch_add(1, Relaxed);
            forward(client, &shared).await;
            shared.open.fetch_sub(1, Relaxed);
        });
    }
}

/// Makes the connection end with a reset instead of a regular close.
fn reset(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
}

async fn forward(client: TcpStream, shared: &Arc<ProxyState>) {
    let mut cuts = shared.cuts.subscribe();
    let address = *shared.server.lock().unwrap();
    let Ok(server) = TcpStream::connect(address).await else {
        reset(&client);
        return;
    };
    reset(&client);
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let flights = AtomicUsize::new(0);
    // Pinned, so that they stay open when they are blackholed.
    let mut there = pin!(pipe(from_client, to_server, shared, &flights, false));
    let mut back = pin!(pipe(from_server, to_client, shared, &flights, true));
    let mut losses = shared.losses.subscribe();
    tokio::select! {
        _ = there.as_mut() => {}
        _ = back.as_mut() => {}
        _ = cuts.changed() => {}
        _ = losses.changed() => drop(cuts.changed().await),
    }
}

async fn pipe(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &ProxyState,
    flights: &AtomicUsize,
    answers: bool,
) -> std::io::Result<()> {
    let mut mode = shared.mode.subscribe();
    let mut chunk = vec![0; 16 * 1024];
    loop {
        let length = from.read(&mut chunk).await?;
        if length == 0 {
            return Ok(());
        }
        if !answers {
            flights.fetch_add(1, Relaxed);
        }
        // The handshake is complete when the client has sent data twice.
        let held = |mode: &ProxyMode| match mode {
            ProxyMode::Pass | ProxyMode::Refuse => false,
            ProxyMode::Stall => true,
            ProxyMode::Deaf => answers && flights.load(Relaxed) >= 2,
        };
        if held(&mode.borrow_and_update()) {
            shared.felt.fetch_add(1, Relaxed);
            let _ = mode.wait_for(|mode| !held(mode)).await;
        }
        to.write_all(&chunk[..length]).await?;
    }
}
