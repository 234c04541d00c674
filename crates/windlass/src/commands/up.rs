//! `windlass up`: everything in one process.

use anyhow::Result;

use super::data_dir;
use crate::cli::UpArgs;
use crate::serve::{self, ServiceAccountKeys, Settings, StorePlace, TlsFiles};

/// Serves until told to stop.
pub fn run(arguments: UpArgs) -> Result<()> {
    let (listener, data) = data_dir::open(&arguments.serve, true)?;
    let layout = &data.layout;
    let store = match arguments.etcd.options() {
        Some(options) => StorePlace::Etcd(options),
        None => StorePlace::Directory(layout.store()),
    };
    serve::serve(Settings {
        listener,
        store,
        tls: TlsFiles { certificate: layout.pki("server.crt"), key: layout.pki("server.key") },
        client_ca: layout.pki("client-ca.crt"),
        token_auth_file: arguments.serve.token_auth_file,
        service_account_keys: ServiceAccountKeys {
            signing: layout.pki("sa.key"),
            verifying: vec![layout.pki("sa.pub")],
        },
        feature_gates: arguments.serve.feature_gates,
        shutdown_grace: arguments.serve.shutdown_grace,
        access: arguments.serve.access,
        inflight: arguments.serve.inflight,
        audit: arguments.serve.audit,
        controllers: Some((arguments.issuing, arguments.bundles)),
        node: arguments.node_name.map(|name| (name, arguments.projections)),
        data,
    })
}
