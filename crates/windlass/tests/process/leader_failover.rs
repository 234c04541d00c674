//! Two controllers processes under load, one of which is repeatedly killed or stopped: every
//! request gets exactly one certificate.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use windlass_testkit::{ChildProcess, HttpClient};

use crate::controllers::{election_flags, kubeconfig, server, start_controllers, wait_for_leader};
use crate::server::{TestDataDir, TestServer};
use crate::traffic::IssuanceTraffic;

const ROUNDS: usize = 20;
const CLIENTS: usize = 4;
/// Delay between two requests of a client, which leaves CPU time for the leaders.
const PACE: Duration = Duration::from_millis(100);

/// The two processes; each authenticates as a different user.
struct ControllerReplicas<'a> {
    server: &'a TestServer,
    kubeconfigs: [PathBuf; 2],
    processes: [ChildProcess; 2],
}

const NAMES: [&str; 2] = ["one", "two"];

impl<'a> ControllerReplicas<'a> {
    fn start(server: &'a TestServer) -> ControllerReplicas<'a> {
        let kubeconfigs = NAMES.map(|name| kubeconfig(server, name, &format!("{name}-token")));
        let processes = [0, 1].map(|which| start(server, &kubeconfigs[which], which, 0));
        ControllerReplicas { server, kubeconfigs, processes }
    }

    fn replace(&mut self, which: usize, round: usize) {
        self.processes[which] = start(self.server, &self.kubeconfigs[which], which, round);
    }
}

fn start(server: &TestServer, kubeconfig: &Path, which: usize, round: usize) -> ChildProcess {
    let flags = election_flags(server, NAMES[which]);
    start_controllers(server, kubeconfig, &format!("{}-{round}", NAMES[which]), flags)
}

/// Waits until a process other than `but` holds the lease; returns its index.
async fn leader(http: &HttpClient, but: Option<usize>) -> usize {
    let holder = wait_for_leader(http, but.map(|but| NAMES[but])).await;
    NAMES.iter().position(|name| *name == holder).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_gets_one_certificate_across_leader_changes() {
    let place = TestDataDir::new();
    let mut tokens = OpenOptions::new().append(true).open(place.path().join("tokens.csv")).unwrap();
    for name in NAMES {
        writeln!(tokens, "{name}-token,{name},{name}-uid,\"system:masters\"").unwrap();
    }
    let audit = place.path().join("audit.log");
    let server = server(place, ["--audit-log-path".as_ref(), audit.as_os_str()]);
    let http = server.http();
    let traffic = IssuanceTraffic::start(&http, CLIENTS, PACE);
    let mut team = ControllerReplicas::start(&server);
    for round in 1..=ROUNDS {
        let leading = leader(&http, None).await;
        traffic.wait_for_issuance().await;
        let stopped = round % 2 == 0;
        team.processes[leading].signal(if stopped { Signal::STOP } else { Signal::KILL });
        leader(&http, Some(leading)).await;
        traffic.wait_for_issuance().await;
        if stopped {
            // It resumes while the other one leads, and must notice that its lease has expired.
            team.processes[leading].signal(Signal::CONT);
        } else {
            team.replace(leading, round);
        }
    }
    let seen = traffic.finish().await;
    assert!(seen.len() > ROUNDS * CLIENTS, "too few to tell: {}", seen.len());
    let twice: Vec<_> = seen.iter().filter(|(_, had)| had.len() != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    drop(team);
    let _place = server.stop();
    check_audit(&audit, seen.keys());
}

/// Checks the audit log: each request was approved and signed once, each time by the holder of the
/// lease.
fn check_audit<'a>(log: &Path, asked: impl Iterator<Item = &'a String>) {
    let text = fs::read_to_string(log).unwrap();
    let mut events: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    // In the order of arrival; the format of timestamps sorts as text.
    events.sort_by_key(|event| event["requestReceivedTimestamp"].as_str().unwrap().to_owned());
    let (mut holder, mut changes) = (String::new(), 0);
    let mut answers: HashMap<(String, String), Vec<u64>> = HashMap::new();
    for event in &events {
        let user = event["user"]["username"].as_str().unwrap();
        let (object, verb) = (&event["objectRef"], event["verb"].as_str().unwrap());
        let code = event["responseStatus"]["code"].as_u64().unwrap();
        // 499: the process was killed before it got the response, which may have been a success.
        let written = [200, 201, 499].contains(&code) && !["get", "list", "watch"].contains(&verb);
        if !NAMES.contains(&user) || !written || object["resource"] == "subjectaccessreviews" {
            continue;
        }
        if object["resource"] == "leases" {
            changes += usize::from(holder != user);
            holder = user.to_owned();
            continue;
        }
        assert_eq!(user, holder, "a write by who does not lead: {event}");
        if object["resource"] == "certificatesigningrequests" {
            let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
            answers.entry((text("name"), text("subresource"))).or_default().push(code);
        }
    }
    assert!(changes > ROUNDS, "the lease changed hands {changes} times");
    for name in asked {
        for subresource in ["approval", "status"] {
            let codes = answers.get(&(name.clone(), subresource.to_owned()));
            let codes = codes.unwrap_or_else(|| panic!("no controller wrote the {subresource} of {name}"));
            let sure = codes.iter().filter(|code| **code == 200).count();
            assert!(sure <= 1, "{name} {subresource}: {codes:?}");
        }
    }
}
