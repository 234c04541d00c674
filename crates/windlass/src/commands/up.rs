//! `windlass up`: runs all components in one process.

use anyhow::Result;

use super::data_dir::{self, PreparedServer};
use crate::cli::UpArgs;
use crate::cluster_identity;
use crate::serve::{self, ServerSettings, ServiceAccountKeys, TlsFiles};

/// Serves until a signal stops the process.
pub fn run(arguments: UpArgs) -> Result<()> {
    let layout = data_dir::layout(&arguments.serve.data)?;
    let own = cluster_identity::ServerIdentity {
        layout: layout.clone(),
        host: data_dir::hostname(),
        serving: true,
        clients: true,
        accounts: None,
        replaces: arguments.serve.record_authorities,
    };
    let PreparedServer { listener, data, store, kubelet_serving_ca } =
        data_dir::open(&arguments.serve, &own, true)?;
    serve::serve(ServerSettings {
        listener,
        store,
        tls: TlsFiles { certificate: layout.pki_file("server.crt"), key: layout.pki_file("server.key") },
        client_ca: layout.pki_file("client-ca.crt"),
        service_account_keys: ServiceAccountKeys::from_layout(&layout),
        options: arguments.serve,
        controllers: Some((arguments.issuing, arguments.bundles, arguments.nodes)),
        node: arguments.node_name.map(|name| (name, arguments.projections)),
        data,
        kubelet_serving_ca,
    })
}
