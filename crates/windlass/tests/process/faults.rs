//! Disk errors under a running server, and kills during a write: strace makes the n-th system call
//! fail, or kills the server there.
//!
//! In every case, acknowledged writes are present afterwards, and writes that were refused as
//! unchanged are not. The server survives a full disk; after an I/O error it exits and reports the
//! reason.

use std::collections::BTreeSet;
use std::env;
use std::process::Command;

use hyper::Method;
use serde_json::{Value, json};
use windlass_testkit::MAPS as CONFIG_MAPS;

use crate::server::{PATIENCE, TestDataDir, TestServer, long};

#[derive(Default)]
struct WriteOutcomes {
    acknowledged: BTreeSet<String>,
    /// Refused with the guarantee that nothing was changed.
    refused: BTreeSet<String>,
    /// Whether a write failed without that guarantee.
    unknown: bool,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_ends_the_server() {
    inject_each_call("fsync", "error=EIO", |server, outcome| {
        assert!(outcome.refused.is_empty(), "the change may be on disk");
        ended_for_a_reason(server, outcome);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_ends_the_server() {
    inject_each_call("pwrite64", "error=EIO", ended_for_a_reason).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_passes() {
    inject_each_call("pwrite64", "error=ENOSPC", |_, outcome| {
        assert!(!outcome.unknown, "a full disk is no failure");
        assert!(outcome.refused.len() <= 1, "only one call failed: {:?}", outcome.refused);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_a_write_loses_nothing() {
    inject_each_call("fsync,pwrite64,ftruncate", "signal=KILL", |_, _| {}).await;
}

fn ended_for_a_reason(server: &mut TestServer, outcome: &WriteOutcomes) {
    if outcome.unknown {
        let status = server.wait(PATIENCE).expect("it ends");
        assert_eq!(status.code(), Some(1));
        let log = server.place().log();
        assert!(log.contains("store failed"), "{log}");
    }
}

/// Injects `fault` into the n-th of `calls` for increasing n, and checks the state after a restart.
async fn inject_each_call(calls: &str, fault: &str, check: impl Fn(&mut TestServer, &WriteOutcomes)) {
    let rounds = if long() { 40 } else { 4 };
    // Each write makes at least one of the calls, so that every round triggers its fault.
    let writes = rounds + 4;
    let mut place = TestServer::start().stop();
    let mut met = 0;
    for n in 1..=rounds {
        let command = strace_command(&place, calls, fault, n);
        let (left, outcome) = match place.try_launch(command) {
            // The start may need a write, too.
            Err(left) => (left, WriteOutcomes { unknown: true, ..WriteOutcomes::default() }),
            Ok(mut server) => {
                let outcome = write(&server, n, writes).await;
                check(&mut server, &outcome);
                (server.kill(), outcome)
            }
        };
        met += usize::from(outcome.unknown || !outcome.refused.is_empty());
        let server = left.start();
        let there = names(&server).await;
        let lost: Vec<_> = outcome.acknowledged.difference(&there).collect();
        assert!(lost.is_empty(), "{calls} {fault} {n}: lost {lost:?}");
        let made: Vec<_> = outcome.refused.intersection(&there).collect();
        assert!(made.is_empty(), "{calls} {fault} {n}: refused but there: {made:?}");
        place = server.stop();
    }
    assert!(met * 2 >= rounds, "only {met} of {rounds} faults were met");
}

/// The server is the child, with strace attached: signals and the exit status are those of the
/// server.
fn strace_command(place: &TestDataDir, calls: &str, fault: &str, n: usize) -> Command {
    let strace = env::var_os("WINDLASS_STRACE").unwrap_or_else(|| "strace".into());
    let found = Command::new(&strace).arg("--version").output();
    assert!(found.is_ok(), "strace is needed: `cargo xtask test` fetches it, or install it");
    let server = place.restart_command();
    let mut command = Command::new(strace);
    command
        .args(["-D", "-f", "-qq", "-o", "/dev/null"])
        .arg(format!("--trace={calls}"))
        .arg(format!("--inject={calls}:{fault}:when={n}"))
        .arg(server.get_program())
        .args(server.get_args());
    command
}

async fn write(server: &TestServer, round: usize, writes: usize) -> WriteOutcomes {
    let mut outcome = WriteOutcomes::default();
    let Ok(mut connection) = server.http().connect().await else {
        return WriteOutcomes { unknown: true, ..outcome };
    };
    for i in 0..writes {
        let name = format!("w-{round}-{i}");
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        match connection.request(Method::POST, CONFIG_MAPS, &body).await {
            Ok((201, _)) => drop(outcome.acknowledged.insert(name)),
            Ok((503, answer)) => {
                assert!(answer["message"].as_str().unwrap().contains("nothing was changed"));
                outcome.refused.insert(name);
            }
            Ok((500, _)) => outcome.unknown = true,
            Ok(other) => panic!("{other:?}"),
            Err(_) => {
                outcome.unknown = true;
                break;
            }
        }
    }
    outcome
}

async fn names(server: &TestServer) -> BTreeSet<String> {
    let (status, list) = server.http().request(Method::GET, CONFIG_MAPS, Value::Null).await;
    assert_eq!(status, 200, "{list}");
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}
