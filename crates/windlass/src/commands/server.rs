//! `windlass server`: runs only the API server.

use anyhow::Result;
use windlass_server::MASTERS;

use super::data_dir::{self, PreparedServer};
use crate::cli::ServerArgs;
use crate::datadir::DataDir;
use crate::serve::{self, ServerSettings, ServiceAccountKeys, TlsFiles};
use crate::{cluster_identity, shell};

/// Serves until a signal stops the process.
pub fn run(arguments: ServerArgs) -> Result<()> {
    let layout = data_dir::layout(&arguments.serve.data)?;
    let named = arguments.service_account_signing_key_file.map(|signing| {
        let verifying = match arguments.service_account_key_file {
            named if named.is_empty() => vec![signing.clone()],
            named => named,
        };
        ServiceAccountKeys { signing, verifying }
    });
    let own = cluster_identity::ServerIdentity {
        layout: layout.clone(),
        host: data_dir::hostname(),
        serving: arguments.tls_cert_file.is_none(),
        clients: arguments.client_ca_file.is_none(),
        accounts: named.clone(),
        replaces: arguments.serve.record_authorities,
    };
    // With certificates that are not ours, our kubeconfig would not work.
    let PreparedServer { listener, data, store, kubelet_serving_ca } =
        data_dir::open(&arguments.serve, &own, own.serving && own.clients)?;
    if !data.has_kubeconfig() {
        explain_missing_kubeconfig(&own, &data);
    }
    let tls = match (arguments.tls_cert_file, arguments.tls_private_key_file) {
        (Some(certificate), Some(key)) => TlsFiles { certificate, key },
        _ => TlsFiles { certificate: layout.pki_file("server.crt"), key: layout.pki_file("server.key") },
    };
    serve::serve(ServerSettings {
        listener,
        store,
        tls,
        client_ca: arguments.client_ca_file.unwrap_or_else(|| layout.pki_file("client-ca.crt")),
        service_account_keys: named.unwrap_or_else(|| ServiceAccountKeys::from_layout(&layout)),
        options: arguments.serve,
        controllers: None,
        node: None,
        data,
        kubelet_serving_ca,
    })
}

/// Logs how to get a kubeconfig when `admin.kubeconfig` is not written.
fn explain_missing_kubeconfig(own: &cluster_identity::ServerIdentity, data: &DataDir) {
    if own.clients {
        let directory = data.layout.root().to_string_lossy();
        let (directory, url) = (shell::word(&directory), shell::word(&data.url));
        tracing::info!(
            "admin.kubeconfig not written: the CA of --tls-cert-file is unknown; to create a kubeconfig, \
             run: windlass user add NAME --group {MASTERS} --data-dir {directory} --server {url} \
             --certificate-authority FILE"
        );
    } else {
        tracing::info!(
            "admin.kubeconfig not written: client certificates must be signed by the CA in --client-ca-file"
        );
    }
}
