//! `cargo xtask bench`: performance of the release binary on this machine, in one table.
//!
//! The server runs in a separate process, so its memory and CPU time are measured separately; this
//! process generates the load. Both share the machine, as for the reference figures. Every group of
//! rows is one file under `bench/` with one `measure`, listed in [`GROUPS`]. With `--etcd` every
//! group has a separate etcd, on the disk that the embedded store would use.

mod access;
mod bundles;
mod floor;
mod issuing;
mod large;
mod ledger;
mod nodes;
mod process;
mod rates;
mod replicas;
mod server;
mod startup;
mod table;
mod volumes;
mod watchers;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use windlass_testkit::etcd::EtcdCluster;

pub use process::{MeasuredProcess, memory, process_cpu_seconds};
pub use rates::config_map;
pub use watchers::raise_file_limit;

use crate::tools::succeed;
use table::ResultTable;

#[derive(clap::Args, Clone)]
pub struct BenchArgs {
    /// Shorter phases and fewer watchers: a smoke test, not a measurement
    #[arg(long)]
    quick: bool,
    /// Measure only this group: floor, startup, rates, access, issuing, ledger, nodes, volumes,
    /// bundles, watchers, large or replicas
    #[arg(long)]
    only: Option<String>,
    /// Store objects in etcd instead of the embedded store
    #[arg(long)]
    etcd: bool,
    /// Number of members of the etcd cluster
    #[arg(long, default_value_t = 1, requires = "etcd")]
    etcd_members: usize,
    /// Number of watchers of the small object, in one round instead of the standard three
    #[arg(long)]
    watchers: Option<usize>,
    /// Server binary to measure; set when this program reruns itself as a release build
    #[arg(long, hide = true)]
    server: Option<PathBuf>,
}

/// Settings and resources that all groups of measurements share.
struct BenchContext {
    args: BenchArgs,
    /// Path of the release build of windlass.
    binary: PathBuf,
    /// Directory for data, on the disk that holds the build.
    scratch: PathBuf,
    /// etcd cluster for the objects; `None` for the embedded store.
    etcd: Option<EtcdCluster>,
}

impl BenchContext {
    /// Duration of a phase of steady load.
    fn phase(&self) -> Duration {
        Duration::from_millis(if self.args.quick { 500 } else { 3_000 })
    }
}

type MeasureFn =
    for<'a> fn(&'a BenchContext, &'a mut ResultTable) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// Groups of rows, in table order.
const GROUPS: &[(&str, MeasureFn)] = &[
    ("floor", |bench, table| Box::pin(floor::measure(bench, table))),
    ("startup", |bench, table| Box::pin(startup::measure(bench, table))),
    ("rates", |bench, table| Box::pin(rates::measure(bench, table))),
    ("access", |bench, table| Box::pin(access::measure(bench, table))),
    ("issuing", |bench, table| Box::pin(issuing::measure(bench, table))),
    ("ledger", |bench, table| Box::pin(ledger::measure(bench, table))),
    ("nodes", |bench, table| Box::pin(nodes::measure(bench, table))),
    ("volumes", |bench, table| Box::pin(volumes::measure(bench, table))),
    ("bundles", |bench, table| Box::pin(bundles::measure(bench, table))),
    ("watchers", |bench, table| Box::pin(watchers::measure(bench, table))),
    ("large", |bench, table| Box::pin(large::measure(bench, table))),
    (REPLICAS, |bench, table| Box::pin(replicas::measure(bench, table))),
];

/// Group that needs a store shared by servers.
const REPLICAS: &str = "replicas";

/// Flags of etcd besides its addresses: defaults, but with room for its history.
const ETCD: &[&str] = &["--quota-backend-bytes=8589934592"];

/// Builds server and load generator in release mode, then measures.
pub fn run(root: &Path, args: &BenchArgs) -> Result<()> {
    if let Some(only) = &args.only
        && !GROUPS.iter().any(|(name, _)| name == only)
    {
        let names: Vec<&str> = GROUPS.iter().map(|(name, _)| *name).collect();
        bail!("no group {only:?}; there are {}", names.join(", "));
    }
    if args.only.as_deref() == Some(REPLICAS) && !args.etcd {
        bail!("only servers on etcd can have replicas: add --etcd");
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    match &args.server {
        Some(binary) => drive(args, binary, &target),
        None => build_and_rerun(root, args, &target),
    }
}

/// Reruns as a release build; a slow load generator would distort the results.
fn build_and_rerun(root: &Path, args: &BenchArgs, target: &Path) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    succeed(Command::new(cargo).current_dir(root).args([
        "build",
        "--release",
        "--package",
        "windlass",
        "--package",
        "xtask",
    ]))?;
    let release = target.join("release");
    let mut again = Command::new(release.join("xtask"));
    again.arg("bench").arg("--server").arg(release.join("windlass"));
    if args.quick {
        again.arg("--quick");
    }
    if let Some(only) = &args.only {
        again.args(["--only", only]);
    }
    if args.etcd {
        again.args(["--etcd", "--etcd-members", &args.etcd_members.to_string()]);
    }
    // Directory for etcd's data.
    again.env("TMPDIR", target);
    if let Some(watchers) = args.watchers {
        again.args(["--watchers", &watchers.to_string()]);
    }
    let status = again.status().context("cannot run the release driver")?;
    if !status.success() {
        bail!("the driver ended with {status}");
    }
    Ok(())
}

fn drive(args: &BenchArgs, binary: &Path, target: &Path) -> Result<()> {
    let scratch = tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(target)
        .context("no scratch directory in the target directory")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut table = ResultTable::new();
    for (name, measure) in GROUPS {
        let wanted = match args.only.as_deref() {
            Some(only) => only == *name,
            None => args.etcd || *name != REPLICAS,
        };
        if wanted {
            eprintln!("bench: {name}");
            let etcd = args.etcd.then(|| EtcdCluster::start(args.etcd_members, ETCD)).transpose()?;
            let bench = BenchContext {
                args: args.clone(),
                binary: binary.to_path_buf(),
                scratch: scratch.path().to_path_buf(),
                etcd,
            };
            runtime.block_on(measure(&bench, &mut table)).with_context(|| format!("group {name}"))?;
        }
    }
    table.print();
    table.save(&target.join(if args.etcd { "bench-etcd.json" } else { "bench.json" }))
}
