//! Two servers and two controllers on one etcd, of which the leader is killed under load: every certificate that a
//! client received is in the ledger exactly once, and its chains verify.

use std::time::Duration;

use rustix::process::Signal;
use windlass_testkit::ChildProcess;

use super::shared_etcd::{etcd, pair};
use crate::controllers::{election_flags, start_controllers, wait_for_leader};
use crate::ledger::{certificate_serial, recorded_serials};
use crate::server::{TestServer, long};
use crate::traffic::IssuanceTraffic;

const CLIENTS: usize = 4;
/// Delay between two requests of a client, which leaves CPU time for the leaders.
const PACE: Duration = Duration::from_millis(100);

fn start(server: &TestServer, name: &str) -> ChildProcess {
    start_controllers(server, &server.kubeconfig(), name, election_flags(server, name))
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_kills_leave_no_certificate_without_a_record() {
    let rounds = if long() { 20 } else { 4 };
    let etcd = etcd();
    let servers = pair(&etcd);
    let clients = servers.each_ref().map(|server| server.http());
    let mut processes = [start(&servers[0], "0-0"), start(&servers[1], "1-0")];
    let traffic = IssuanceTraffic::start_at(&clients, CLIENTS, PACE);
    let mut killed = None;
    for round in 1..=rounds {
        let holder = wait_for_leader(&clients[round % 2], killed.as_deref()).await;
        traffic.wait_for_issuance().await;
        let which: usize = holder[..1].parse().unwrap();
        processes[which].signal(Signal::KILL);
        processes[which] = start(&servers[which], &format!("{which}-{round}"));
        killed = Some(holder);
    }
    let seen = traffic.finish().await;
    assert!(seen.len() > rounds * CLIENTS, "too few to tell: {}", seen.len());
    let certificates: Vec<_> = seen.values().flatten().collect();
    assert_eq!(certificates.len(), seen.len(), "requests with several certificates");
    for http in &clients {
        let recorded = recorded_serials(http).await;
        for observed in &certificates {
            let serial = certificate_serial(&observed.certificate);
            assert_eq!(recorded.get(&serial), Some(&1), "{serial}");
        }
        println!("{rounds} kills, {} certificates received, {} records", certificates.len(), recorded.len());
    }
}
