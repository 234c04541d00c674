//! Chooses the credential for certificate requests: the node's own or the bootstrap credential.

use std::sync::{Arc, OnceLock};

use futures::FutureExt as _;
use kube::Client;

use crate::bootstrap::BootstrapCredentials;
use crate::client;
use crate::clock::Clock;
use crate::credential_monitor::CredentialMonitor;
use crate::node_certificates::{ClientFactory, RequesterCredential};
use crate::tls_resolver::CurrentKeyPair;
use windlass_runtime::client_error::describe;

/// The credentials of a node. Files are read on each use, because an operator may have replaced
/// them.
pub struct ClientSwitch {
    boot: BootstrapCredentials,
    clock: Clock,
    monitor: Arc<CredentialMonitor>,
    /// Set once the certificate manager exists, which itself needs this switch.
    current: OnceLock<CurrentKeyPair>,
}

impl ClientSwitch {
    /// Creates the switch; it reads credentials from the files that `boot` names.
    pub fn new(boot: BootstrapCredentials, clock: Clock, monitor: Arc<CredentialMonitor>) -> Arc<Self> {
        Arc::new(Self { boot, clock, monitor, current: OnceLock::new() })
    }

    /// Sets the certificate with which the node authenticates.
    pub fn set_current(&self, current: CurrentKeyPair) {
        let _ = self.current.set(current);
    }

    /// Returns the factory with which certificate managers create their API clients.
    pub fn clients(self: &Arc<Self>) -> ClientFactory {
        let this = self.clone();
        Arc::new(move |credential| {
            let this = this.clone();
            async move {
                match credential {
                    RequesterCredential::Own => this.node_client().await,
                    RequesterCredential::Bootstrap => this.boot.bootstrap_client((this.clock)().wall).await,
                }
            }
            .boxed()
        })
    }

    /// Returns a client that authenticates as the node.
    async fn node_client(&self) -> Result<Client, String> {
        let current = self.current.get().cloned().ok_or("the node has no certificate")?;
        let config = self.boot.cluster().await?;
        client::connect(&config, current, self.monitor.clone()).map_err(|error| describe(&error))
    }
}
