//! `windlass server`: the API server alone.

use anyhow::Result;

use super::data_dir;
use crate::cli::ServerArgs;
use crate::serve::{self, ServiceAccountKeys, Settings, StorePlace, TlsFiles};

/// Serves until told to stop.
pub fn run(arguments: ServerArgs) -> Result<()> {
    // With other certificates than ours, a kubeconfig of ours would lead nowhere.
    let ours = arguments.tls_cert_file.is_none() && arguments.client_ca_file.is_none();
    let (listener, data) = data_dir::open(&arguments.serve, ours)?;
    let layout = &data.layout;
    let tls = match (arguments.tls_cert_file, arguments.tls_private_key_file) {
        (Some(certificate), Some(key)) => TlsFiles { certificate, key },
        _ => TlsFiles { certificate: layout.pki("server.crt"), key: layout.pki("server.key") },
    };
    let service_account_keys = match arguments.service_account_signing_key_file {
        Some(signing) if arguments.service_account_key_file.is_empty() => {
            ServiceAccountKeys { verifying: vec![signing.clone()], signing }
        }
        Some(signing) => {
            ServiceAccountKeys { signing, verifying: arguments.service_account_key_file }
        }
        None => ServiceAccountKeys {
            signing: layout.pki("sa.key"),
            verifying: vec![layout.pki("sa.pub")],
        },
    };
    let store = match arguments.etcd.options() {
        Some(options) => StorePlace::Etcd(options),
        None => StorePlace::Directory(layout.store()),
    };
    serve::serve(Settings {
        listener,
        store,
        tls,
        client_ca: arguments.client_ca_file.unwrap_or_else(|| layout.pki("client-ca.crt")),
        token_auth_file: arguments.serve.token_auth_file,
        service_account_keys,
        feature_gates: arguments.serve.feature_gates,
        shutdown_grace: arguments.serve.shutdown_grace,
        access: arguments.serve.access,
        inflight: arguments.serve.inflight,
        audit: arguments.serve.audit,
        controllers: None,
        node: None,
        data,
    })
}
