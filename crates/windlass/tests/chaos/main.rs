//! The distributed setup with everything that can break, broken: three etcd members, two servers and two
//! processes of controllers, under clients that write, read, watch and ask for certificates.
//!
//! Everything that anybody does or sees is written down ([`history`]), and a checker that knows nothing of
//! the servers says afterwards whether the store kept its promises ([`check`]).
//! `docs/chaos.md` tells how to run it and how to check a history again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, fixtures included")]

mod balancer;
mod check;
mod client;
mod faults;
mod history;
mod http;
mod probe;
mod process;
mod traffic;
mod truth;
mod watchers;
mod world;

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use self::check::{CONFIG_MAPS, REQUESTS};
use self::client::Client;
use self::faults::{Breaker, Plan};
use self::history::{History, Outcome, Rest, Version, Via};
use self::traffic::Traffic;
use self::world::{PATIENCE, World, kept_in};

/// A file with a history that is to be checked again.
const AGAIN: &str = "WINDLASS_CHAOS_HISTORY";

// The clients must not wait for each other on a machine with few cores.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_keeps_its_promises_whatever_breaks() {
    let long = std::env::var_os("WINDLASS_LONG").is_some_and(|value| value == "1");
    let (kills, partitions, seconds) = if long { (20, 3, 20) } else { (3, 1, 6) };
    let minority = Duration::from_secs(seconds);
    let plan = Plan { kills, partitions, minority, majority: minority };

    let mut world = World::start().await;
    let traffic = Traffic::start(&world);
    traffic.goes_on(&world).await;
    traffic.issues().await;
    let mut breaker = Breaker { world: &mut world, traffic: &traffic };
    breaker.kill_and_stop(&plan).await;
    if breaker.world.network.is_some() {
        breaker.cut(&plan).await;
    } else {
        say("SKIPPED: partitions, because only root can make a network to cut");
    }
    traffic.finish(&mut world).await;
    let history = come_to_rest(&mut world).await;
    say(&check::table(&history));
    judge(&history, true);
}

/// Checks a history again that was kept when it failed.
#[test]
fn a_kept_history_is_checked_again() {
    if let Some(path) = std::env::var_os(AGAIN) {
        let history = History::load(Path::new(&path)).unwrap();
        say(&check::table(&history));
        judge(&history, false);
    }
}

/// Lists everything on both servers when nothing changes any more, and takes the history.
async fn come_to_rest(world: &mut World) -> History {
    let begun = Instant::now();
    loop {
        let mut rest = Vec::new();
        for server in [0, 1] {
            let mut client = Client::new(world, usize::MAX, Via::Server(server));
            for resource in [CONFIG_MAPS, REQUESTS] {
                let listed = client.list(resource, Version::Newest).await;
                let Outcome::Listed { version, objects } = listed else { panic!("{listed:?}") };
                let resource = resource.to_owned();
                rest.push(Rest { server, resource, version, objects });
            }
        }
        let newest = world.note_truth();
        // A server that has to find out how new it is may leave a mark of that in etcd.
        let same = rest.iter().all(|rest| rest.version == newest);
        if same || begun.elapsed() > PATIENCE {
            return world.recorder.with(|history| {
                (history.rest, history.newest) = (rest, newest);
                std::mem::take(history)
            });
        }
    }
}

/// Fails if a promise was broken, and keeps the history then.
fn judge(history: &History, fresh: bool) {
    let count = |name: &str, number: usize| format!("{number} {name}");
    say(&[
        count("operations", history.operations.len()),
        count("watches", history.watches.len()),
        count("changes", history.changes.len()),
    ]
    .join(", "));
    let verdict = check::check(history);
    if verdict.violations.is_empty() {
        return;
    }
    let mut kept = String::new();
    if fresh {
        let file = kept_in().join("history.jsonl");
        history.save(&file).unwrap();
        kept = format!("the history is kept; to check it again, set {AGAIN}={}\n", file.display());
    }
    panic!("{}{kept}", verdict.report());
}

/// Says something to whoever runs the test, also if it passes.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
