//! `cargo xtask attack`: four attacks on a local server, and their effect on an honest client.
//!
//! Each attack runs against a fresh server in a separate process; memory and CPU time are the
//! server's. Meanwhile an honest administrator sends a request every 50 ms, over an existing
//! connection and over new ones.

mod bodies;
mod descriptors;
mod honest_client;
mod streams;
mod target;

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::time::{sleep, timeout};

use crate::bench::raise_file_limit;
use crate::test::BUILD_WITH_TESTS;
use crate::tools::succeed;
use honest_client::{HonestClient, PhaseLatencies};
use target::AttackTarget;

#[derive(clap::Args)]
pub struct AttackArgs {
    /// Attack the debug build, which is about ten times slower: latency may reach 5 s
    #[arg(long)]
    debug: bool,
    /// URL of a running server to attack instead, on a loopback address; no bounds are checked
    #[arg(long, value_name = "URL", requires = "token", conflicts_with = "debug")]
    server: Option<String>,
    /// Administrator's bearer token for --server
    #[arg(long, value_name = "TOKEN", requires = "server")]
    token: Option<String>,
    /// Process id of --server, for its memory and CPU time
    #[arg(long, value_name = "PID", requires = "server")]
    pid: Option<u32>,
    /// Only this attack: streams, bodies, lists or descriptors
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

impl AttackArgs {
    /// Returns arguments for all attacks on the debug build of the tests.
    pub fn debug() -> Self {
        Self { debug: true, server: None, token: None, pid: None, only: None }
    }
}

/// Limits on the cost of an attack.
struct AttackBounds {
    latency: Duration,
    memory: u64,
}

/// Maximum memory growth in bytes.
const MEMORY: u64 = 100 << 20;
/// Maximum latency of the honest client.
const LATENCY: Duration = Duration::from_millis(500);
/// Maximum latency for a debug build on a busy machine.
const DEBUG_LATENCY: Duration = Duration::from_secs(5);

/// Baseline period of the honest client before and after an attack.
const ALONE: Duration = Duration::from_secs(2);
/// Timeout of an attack; its connections are closed afterwards.
const LONGEST: Duration = Duration::from_secs(20);

/// Descriptors that this process needs for the largest attack.
const FILES: u64 = 4_096;

/// Keeps the attack's connections open until dropped.
type AttackGuard = Box<dyn Send>;
type AttackFn =
    for<'a> fn(&'a AttackTarget) -> Pin<Box<dyn Future<Output = Result<AttackGuard>> + Send + 'a>>;

struct AttackScenario {
    name: &'static str,
    /// Creates objects that the attack needs; runs before the measurement.
    prepare: Option<AttackFn>,
    run: AttackFn,
    /// How long the attack is held.
    holds: Duration,
}

const ATTACKS: &[AttackScenario] = &[
    AttackScenario {
        name: "streams",
        prepare: None,
        run: |target| Box::pin(streams::stall_anonymous(target)),
        holds: Duration::from_secs(3),
    },
    AttackScenario {
        name: "bodies",
        prepare: None,
        run: |target| Box::pin(bodies::post(target)),
        holds: Duration::ZERO,
    },
    AttackScenario {
        name: "lists",
        prepare: Some(|target| Box::pin(streams::fill(target))),
        run: |target| Box::pin(streams::stall_lists(target)),
        holds: Duration::from_secs(3),
    },
    AttackScenario {
        name: "descriptors",
        prepare: None,
        run: |target| Box::pin(descriptors::connect(target)),
        holds: Duration::from_secs(3),
    },
];

/// Builds the server, unless `--server` names one, and attacks it.
pub fn run(root: &Path, args: &AttackArgs) -> Result<()> {
    if let Some(only) = &args.only
        && !ATTACKS.iter().any(|attack| attack.name == only)
    {
        let names: Vec<_> = ATTACKS.iter().map(|attack| attack.name).collect();
        bail!("no attack {only:?}; available: {}", names.join(", "));
    }
    raise_file_limit(FILES)?;
    let binary = match &args.server {
        Some(_) => None,
        None => Some(build(root, args.debug)?),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let wanted = |attack: &&AttackScenario| args.only.as_deref().is_none_or(|only| only == attack.name);
    let (mut reports, mut failures) = (Vec::new(), Vec::new());
    for attack in ATTACKS.iter().filter(wanted) {
        eprintln!("attack: {}", attack.name);
        match runtime.block_on(attack_once(attack, args, binary.as_deref())) {
            Ok(report) => reports.push(report),
            // A crashed server is a result as well; the other attacks have separate servers.
            Err(error) => failures.push(format!("{}: {error:#}", attack.name)),
        }
    }
    print(&reports);
    if args.server.is_none() {
        let latency = if args.debug { DEBUG_LATENCY } else { LATENCY };
        let bounds = AttackBounds { latency, memory: MEMORY };
        failures.extend(reports.iter().flat_map(|report| report.failures(&bounds)));
    }
    if failures.is_empty() {
        return Ok(());
    }
    bail!("{}", failures.join("; "))
}

fn build(root: &Path, debug: bool) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(root);
    match debug {
        true => build.args(BUILD_WITH_TESTS),
        false => build.args(["build", "--release", "--package", "windlass"]),
    };
    succeed(&mut build)?;
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |directory| root.join(directory));
    Ok(target.join(if debug { "debug" } else { "release" }).join("windlass"))
}

async fn attack_once(
    attack: &AttackScenario,
    args: &AttackArgs,
    binary: Option<&Path>,
) -> Result<AttackReport> {
    let target = match (binary, &args.server, &args.token) {
        (Some(binary), ..) => AttackTarget::start(binary)?,
        (None, Some(url), Some(token)) => AttackTarget::running(url, token, args.pid)?,
        _ => bail!("neither a binary nor a server"),
    };
    if let Some(prepare) = attack.prepare {
        drop(prepare(&target).await?);
    }
    let honest = HonestClient::start(&target)?;
    sleep(ALONE).await;
    let before = (target.memory()?, target.cpu_seconds()?);
    let begun = Instant::now();
    honest.reset_peak();
    let held = timeout(LONGEST, (attack.run)(&target)).await;
    let attack_took = begun.elapsed();
    let held = match held {
        Ok(held) => Some(held?),
        Err(_) => None,
    };
    sleep(attack.holds).await;
    let cpu = target.cpu_seconds()?.zip(before.1).map(|(after, before)| after - before);
    drop(held);
    let ended = Instant::now();
    sleep(ALONE).await;
    let after = target.memory()?;
    let (samples, peak) = honest.stop()?;
    if attack.prepare.is_some() {
        streams::clean(&target).await?;
    }
    target.stop()?;
    Ok(AttackReport {
        name: attack.name,
        took: attack_took,
        memory: before.0.zip(peak).map(|(before, peak)| [before, peak.max(before)]),
        after,
        cpu,
        latencies: samples.split(begun, ended),
    })
}

/// Costs of one attack, measured on the server and on the honest client.
struct AttackReport {
    name: &'static str,
    took: Duration,
    /// Resident memory before the attack and the peak since, in bytes.
    memory: Option<[u64; 2]>,
    after: Option<u64>,
    /// CPU time of the server in seconds.
    cpu: Option<f64>,
    /// Latencies before, during and after the attack.
    latencies: [PhaseLatencies; 3],
}

impl AttackReport {
    fn failures(&self, bounds: &AttackBounds) -> Vec<String> {
        let mut failures = Vec::new();
        let name = self.name;
        let worst = self.latencies.iter().map(|phase| phase.worst).max().unwrap_or_default();
        if worst >= bounds.latency {
            failures.push(format!("{name}: an honest request took {worst:.1?}"));
        }
        let failed: usize = self.latencies.iter().map(|phase| phase.failed).sum();
        if failed > 0 {
            failures.push(format!("{name}: {failed} honest requests failed"));
        }
        if let Some([before, peak]) = self.memory
            && peak - before >= bounds.memory
        {
            let grown = (peak - before) >> 20;
            failures.push(format!("{name}: memory grew by {grown} MiB"));
        }
        failures
    }
}

fn print(reports: &[AttackReport]) {
    const MIB: f64 = (1 << 20) as f64;
    println!(
        "| attack | took | memory before | peak | after | CPU time | honest requests: worst before | during | after | failed |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for report in reports {
        let mib = |bytes: Option<u64>| {
            bytes.map_or("unknown".to_owned(), |bytes| format!("{:.0} MiB", bytes as f64 / MIB))
        };
        let [before, during, after] = &report.latencies;
        let worst = |phase: &PhaseLatencies| format!("{:.0} ms", phase.worst.as_secs_f64() * 1e3);
        println!(
            "| {} | {:.1} s | {} | {} | {} | {} | {} | {} | {} | {} of {} |",
            report.name,
            report.took.as_secs_f64(),
            mib(report.memory.map(|[before, _]| before)),
            mib(report.memory.map(|[_, peak]| peak)),
            mib(report.after),
            report.cpu.map_or("unknown".to_owned(), |cpu| format!("{cpu:.1} s")),
            worst(before),
            worst(during),
            worst(after),
            before.failed + during.failed + after.failed,
            before.count + during.count + after.count,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(worst: u64, failed: usize, grown: u64) -> AttackReport {
        let phase = |worst| PhaseLatencies { worst: Duration::from_millis(worst), count: 10, failed };
        AttackReport {
            name: "test",
            took: Duration::ZERO,
            memory: Some([1 << 30, (1 << 30) + (grown << 20)]),
            after: None,
            cpu: None,
            latencies: [phase(1), phase(worst), phase(2)],
        }
    }

    #[test]
    fn bounds_are_checked() {
        let bounds = AttackBounds { latency: LATENCY, memory: MEMORY };
        let count = |worst, failed, grown| report(worst, failed, grown).failures(&bounds).len();
        assert_eq!(count(499, 0, 99), 0);
        assert_eq!(count(500, 0, 99), 1);
        assert_eq!(count(499, 0, 100), 1);
        assert_eq!(count(600, 1, 200), 3);
    }
}
