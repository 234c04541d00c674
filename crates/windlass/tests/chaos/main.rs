//! Chaos test of the distributed setup: three etcd members, two servers and two controller
//! processes, with clients that write, read, watch and request certificates, while faults are
//! injected.
//!
//! All operations and observations are recorded ([`history`]), and a checker that is independent of
//! the servers verifies the guarantees of the store afterwards ([`check`]). `docs/chaos.md`
//! describes how to run it and how to check a history again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, fixtures included")]

mod balancer;
mod canonical;
mod check;
mod client;
mod faults;
mod history;
mod http;
mod probe;
mod test_cluster;
mod traffic;
mod watchers;

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use self::check::{CONFIG_MAPS, REQUESTS};
use self::client::RecordingClient;
use self::faults::{FaultInjector, FaultPlan};
use self::history::{ChaosHistory, FinalState, OperationOutcome, ReadVersion, RequestRoute};
use self::test_cluster::{ChaosCluster, PATIENCE, artifact_dir};
use self::traffic::ChaosTraffic;

/// Path of a saved history to check again.
const AGAIN: &str = "WINDLASS_CHAOS_HISTORY";

// The clients must not block each other on a machine with few cores.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_keeps_its_promises_whatever_breaks() {
    let long = std::env::var_os("WINDLASS_LONG").is_some_and(|value| value == "1");
    let (kills, partitions, seconds) = if long { (20, 3, 20) } else { (3, 1, 6) };
    let minority = Duration::from_secs(seconds);
    let plan = FaultPlan { kills, partitions, minority, majority: minority };

    let mut world = ChaosCluster::start().await;
    let traffic = ChaosTraffic::start(&world);
    traffic.wait_for_writes(&world).await;
    traffic.wait_for_issuance().await;
    let mut breaker = FaultInjector { world: &mut world, traffic: &traffic };
    breaker.kill_and_stop(&plan).await;
    if breaker.world.network.is_some() {
        breaker.run_partitions(&plan).await;
    } else {
        print_stderr("SKIPPED: partitions, because only root can make a network to cut");
    }
    traffic.finish(&mut world).await;
    let history = wait_until_quiescent(&mut world).await;
    print_stderr(&check::table(&history));
    check_history(&history, true);
}

/// Checks a history that a failed run saved.
#[test]
fn a_kept_history_is_checked_again() {
    if let Some(path) = std::env::var_os(AGAIN) {
        let history = ChaosHistory::load(Path::new(&path)).unwrap();
        print_stderr(&check::table(&history));
        check_history(&history, false);
    }
}

/// Lists all objects on both servers after all changes, and returns the history.
async fn wait_until_quiescent(world: &mut ChaosCluster) -> ChaosHistory {
    let begun = Instant::now();
    loop {
        let mut rest = Vec::new();
        for server in [0, 1] {
            let mut client = RecordingClient::new(world, usize::MAX, RequestRoute::Server(server));
            for resource in [CONFIG_MAPS, REQUESTS] {
                let listed = client.list(resource, ReadVersion::Newest).await;
                let OperationOutcome::Listed { version, objects } = listed else { panic!("{listed:?}") };
                let resource = resource.to_owned();
                rest.push(FinalState { server, resource, version, objects });
            }
        }
        let newest = world.record_store_changes();
        // A server that determines its freshness may write a marker to etcd.
        let same = rest.iter().all(|rest| rest.version == newest);
        if same || begun.elapsed() > PATIENCE {
            return world.recorder.with(|history| {
                (history.rest, history.newest) = (rest, newest);
                std::mem::take(history)
            });
        }
    }
}

/// Fails if a rule was violated, and saves the history in that case.
fn check_history(history: &ChaosHistory, fresh: bool) {
    let count = |name: &str, number: usize| format!("{number} {name}");
    print_stderr(
        &[
            count("operations", history.operations.len()),
            count("watches", history.watches.len()),
            count("changes", history.changes.len()),
        ]
        .join(", "),
    );
    let verdict = check::check(history);
    if verdict.violations.is_empty() {
        return;
    }
    let mut kept = String::new();
    if fresh {
        let file = artifact_dir().join("history.jsonl");
        history.save(&file).unwrap();
        kept = format!("the history is kept; to check it again, set {AGAIN}={}\n", file.display());
    }
    panic!("{}{kept}", verdict.report());
}

/// Prints a message for the user, even if the test passes.
fn print_stderr(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
