//! Locates the data directory of a command and prepares it for serving.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;

use anyhow::{Context, Result};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use time::OffsetDateTime;
use windlass_pki::AltName;

use super::{api_client, cannot_listen, shared_store};
use crate::cli::{DataDirArgs, ServeArgs};
use crate::cluster_identity;
use crate::datadir::{self, DataDir, DataDirLayout, ServerSite};
use crate::serve::StoreBackend;

/// Returns the layout of the directory that the flags select.
pub fn layout(arguments: &DataDirArgs) -> Result<DataDirLayout> {
    let root = match &arguments.data_dir {
        Some(root) => root.clone(),
        None => default_root(std::env::var_os("XDG_DATA_HOME"), std::env::home_dir())
            .context("no home directory for the data directory; set --data-dir")?,
    };
    let root = std::path::absolute(&root)
        .with_context(|| format!("cannot use {} as data directory", root.display()))?;
    Ok(DataDirLayout::new(root))
}

/// Returns the data directory of the XDG base directory specification, which requires that relative
/// paths are ignored.
fn default_root(data_home: Option<OsString>, home: Option<PathBuf>) -> Option<PathBuf> {
    let data_home = data_home.map(PathBuf::from).filter(|path| path.is_absolute());
    let home = home.filter(|path| path.is_absolute()).map(|path| path.join(".local/share"));
    data_home.or(home).map(|path| path.join("windlass"))
}

/// Resources that a server needs to start.
pub struct PreparedServer {
    /// Bound, but not accepting connections yet.
    pub listener: TcpListener,
    /// Complete: missing authorities, keys and certificates have been created.
    pub data: DataDir,
    /// Directory of the embedded database, or the shared etcd store.
    pub store: StoreBackend,
    /// Fingerprint of the CA with which all servers on one store sign kubelet serving certificates.
    pub kubelet_serving_ca: Option<String>,
}

/// Binds the address and creates what is missing in the data directory.
///
/// The address is bound first because the kubeconfig contains the port, which the system may
/// choose, and because an accidental second start then fails before it changes anything. With a
/// shared store, its recorded identity is checked before anything is created.
pub fn open(
    arguments: &ServeArgs,
    own: &cluster_identity::ServerIdentity,
    write_kubeconfig: bool,
) -> Result<PreparedServer> {
    let cannot = |error| cannot_listen("--listen", arguments.listen, &error);
    let listener = bind(arguments.listen).map_err(cannot)?;
    let listen = listener.local_addr().map_err(cannot)?;
    let shared = arguments.etcd.clone().options().map(|options| {
        let name = options.name();
        anyhow::Ok((shared_store::open(options)?, name))
    });
    let shared = shared.transpose()?;
    let mut kubelet_serving_ca = match &shared {
        Some((store, name)) => api_client::block_on(own.check(&**store, name))?,
        None => None,
    };
    let site = ServerSite {
        makes_kubelet_serving_ca: kubelet_serving_ca.is_none(),
        ..site(arguments, listen, write_kubeconfig)
    };
    let data = datadir::prepare(own.layout.clone(), site, OffsetDateTime::now_utc())?;
    let directory = data.layout.root().display();
    tracing::info!(%directory, files_written = data.written.len(), "data directory ready");
    let store = match shared {
        Some((store, name)) => {
            kubelet_serving_ca = api_client::block_on(own.ensure_recorded(&*store, &name))?;
            StoreBackend::Shared(store)
        }
        None => StoreBackend::Directory(data.layout.store()),
    };
    Ok(PreparedServer { listener, data, store, kubelet_serving_ca })
}

/// Binds an address without listening: connections are refused at once, so that a load balancer
/// selects another server.
fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // As the standard library does: connections in TIME_WAIT must not block a restart.
    net::sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, &address)?;
    Ok(TcpListener::from(socket))
}

fn site(arguments: &ServeArgs, listen: SocketAddr, write_kubeconfig: bool) -> ServerSite {
    let mut names = arguments.tls_san.clone();
    names.extend(arguments.external_url.iter().map(|external| external.name.clone()));
    if listen.ip().is_unspecified() {
        names.extend(addresses().map(AltName::Ip));
    }
    let external_url = arguments.external_url.as_ref().map(|external| external.url.clone());
    ServerSite {
        listen,
        hostname: hostname(),
        names,
        external_url,
        write_kubeconfig,
        makes_kubelet_serving_ca: true,
    }
}

/// Returns the addresses from which this machine reaches other networks, if any.
fn addresses() -> impl Iterator<Item = IpAddr> {
    // Unassigned addresses that use the default route. Nothing is sent to them.
    const ELSEWHERE: [(&str, &str); 2] = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    ELSEWHERE.into_iter().filter_map(|(any, elsewhere)| {
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(elsewhere).ok()?;
        Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_unspecified())
    })
}

/// Node name of the kernel; `None` if it is not UTF-8 or empty.
pub fn hostname() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.to_owned();
    Some(name).filter(|name| !name.is_empty())
}

/// Returns the identity of this process in leader election.
pub fn identity() -> String {
    let host = hostname().unwrap_or_else(|| "localhost".into());
    format!("{host}_{}", uuid::Uuid::new_v4())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn data_goes_where_the_desktop_says() {
        let table = [
            (Some("/data"), Some("/home/jane"), Some("/data/windlass")),
            (None, Some("/home/jane"), Some("/home/jane/.local/share/windlass")),
            (Some(""), Some("/home/jane"), Some("/home/jane/.local/share/windlass")),
            (Some("relative"), Some("/home/jane"), Some("/home/jane/.local/share/windlass")),
            (None, Some(""), None),
            (None, None, None),
        ];
        for (data_home, home, expected) in table {
            let found = default_root(data_home.map(OsString::from), home.map(PathBuf::from));
            assert_eq!(found.as_deref(), expected.map(Path::new), "{data_home:?} {home:?}");
        }
    }
}
