//! Serving: joins the store, the server and the controllers.
#![expect(dead_code, reason = "nothing serves yet")]

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::cli::FeatureGate;
use crate::datadir::DataDir;

/// Everything a server has to know before it starts.
#[derive(Debug)]
pub struct Settings {
    /// Bound already, so that the port is known.
    pub listener: TcpListener,
    /// The database's directory.
    pub store: PathBuf,
    /// What to serve with.
    pub tls: TlsFiles,
    /// What to verify client certificates with.
    pub client_ca: PathBuf,
    /// Bearer tokens.
    pub token_auth_file: Option<PathBuf>,
    /// Keys of service-account tokens.
    pub service_account_keys: ServiceAccountKeys,
    /// Features that were turned on or off.
    pub feature_gates: Vec<FeatureGate>,
    /// How long requests may go on after SIGTERM.
    pub shutdown_grace: Duration,
    /// What runs beside the server in the same process, in `up`.
    pub companions: Option<Companions>,
    /// The data directory; holding it keeps others out of it.
    pub data: DataDir,
}

/// A certificate chain and its key, in files that are read again when they change.
#[derive(Debug)]
pub struct TlsFiles {
    /// The chain.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// Keys of service-account tokens, in files.
#[derive(Debug)]
pub struct ServiceAccountKeys {
    /// The private key that signs.
    pub signing: PathBuf,
    /// The keys that verify; may be public or private.
    pub verifying: Vec<PathBuf>,
}

/// The parts that run in the server's process, in `up`.
#[derive(Debug)]
pub struct Companions {
    /// The name of this machine as a node, if it is to be one.
    pub node_name: Option<String>,
}

/// Serves until SIGTERM or SIGINT.
pub fn serve(settings: Settings) -> Result<()> {
    bail!("serving {} on {:?} is not wired yet", settings.data.url, settings.listener.local_addr())
}
