//! Which data directory a command is about, and getting it ready to serve from.

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::PathBuf;

use anyhow::{Context, Result};
use time::OffsetDateTime;

use crate::cli::{DataDirArgs, ServeArgs};
use crate::datadir::{self, DataDir, Layout, Site};

/// Connections that may wait to be accepted: every agent of a fleet, after a restart.
const BACKLOG: i32 = 4096;

/// The directory that a command is about.
pub fn layout(arguments: &DataDirArgs) -> Result<Layout> {
    let root = match &arguments.data_dir {
        Some(root) => root.clone(),
        None => default_root(std::env::var_os("XDG_DATA_HOME"), std::env::home_dir())
            .context("there is no home directory to keep data in: say where with --data-dir")?,
    };
    let root = std::path::absolute(&root)
        .with_context(|| format!("cannot use {} as data directory", root.display()))?;
    Ok(Layout::new(root))
}

/// The XDG base directory specification's place for data. It has relative paths ignored.
fn default_root(data_home: Option<OsString>, home: Option<PathBuf>) -> Option<PathBuf> {
    let data_home = data_home.map(PathBuf::from).filter(|path| path.is_absolute());
    let home = home.filter(|path| path.is_absolute()).map(|path| path.join(".local/share"));
    data_home.or(home).map(|path| path.join("windlass"))
}

/// Binds the address and makes what is missing in the data directory.
///
/// In this order, because the kubeconfig names the port, which the system may choose; and because
/// a second start by mistake then fails before it has touched anything.
pub fn open(arguments: &ServeArgs, write_kubeconfig: bool) -> Result<(TcpListener, DataDir)> {
    let layout = layout(&arguments.data)?;
    let cannot = || format!("cannot listen on {}", arguments.listen);
    let listener = TcpListener::bind(arguments.listen).with_context(cannot)?;
    rustix::net::listen(&listener, BACKLOG).with_context(cannot)?;
    let listen = listener.local_addr().with_context(cannot)?;
    let site = Site { listen, hostname: hostname(), write_kubeconfig };
    let data = datadir::prepare(layout, &site, OffsetDateTime::now_utc())?;
    let directory = data.layout.root().display();
    tracing::info!(%directory, files_written = data.written.len(), "data directory is ready");
    Ok((listener, data))
}

/// The machine's name.
pub fn hostname() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.to_owned();
    Some(name).filter(|name| !name.is_empty())
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
