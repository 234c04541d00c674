//! Whom to be when asking for a certificate: the node, or somebody who may ask for one.

use std::sync::{Arc, OnceLock};

use futures::FutureExt as _;
use kube::Client;

use crate::boot::Boot;
use crate::client;
use crate::clock::Clock;
use crate::manager::{Clients, Credential};
use crate::present::Current;
use crate::request::explain;

/// The credentials of a node. Files are read whenever they are needed: somebody may have put a new
/// one there.
pub struct Access {
    boot: Boot,
    clock: Clock,
    /// There as soon as there is a manager, which needs this first.
    current: OnceLock<Current>,
}

impl Access {
    /// Looks where `boot` does.
    pub fn new(boot: Boot, clock: Clock) -> Arc<Self> {
        Arc::new(Self { boot, clock, current: OnceLock::new() })
    }

    /// From now on the node is who this certificate says.
    pub fn follow(&self, current: Current) {
        let _ = self.current.set(current);
    }

    /// Clients for managers.
    pub fn clients(self: &Arc<Self>) -> Clients {
        let this = self.clone();
        Arc::new(move |credential| {
            let this = this.clone();
            async move {
                match credential {
                    Credential::Own => this.own().await,
                    Credential::Bootstrap => this.boot.bootstrap_client((this.clock)().wall).await,
                }
            }
            .boxed()
        })
    }

    /// A client that is the node.
    async fn own(&self) -> Result<Client, String> {
        let current = self.current.get().cloned().ok_or("the node has no certificate")?;
        let config = self.boot.cluster().await?;
        client::connect(&config, current).map_err(|error| explain(&error))
    }
}
