//! Agents that are killed at random moments.

use std::thread;
use std::time::{Duration, Instant};

use rand::Rng as _;
use time::OffsetDateTime;

use super::{NodeHome, are_distinct, parse_csr, requests, start_server, token};
use crate::server::long;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_survives_any_number_of_kills() {
    // Most of this lifetime has passed when the certificate arrives: almost every start renews it.
    let admin = start_server(&["--cluster-signing-duration=60s"]);
    let server = &admin.server;
    let token = token(&admin);
    let (nodes, kills) = (4, if long() { 125 } else { 10 });
    // An agent runs for about as long as joining takes on this machine.
    let (first, started) = (NodeHome::new(server, "first"), Instant::now());
    first.write_bootstrap_kubeconfig(server, &token, None);
    let agent = first.start();
    first.wait_for_status("it does not join", |status| status.certificates[0].stored_count > 0);
    let longest = started.elapsed() * 3 / 2;
    drop(agent);
    let mut renewed = 0;
    for node in 0..nodes {
        let home = NodeHome::new(server, &format!("n{node}"));
        home.write_bootstrap_kubeconfig(server, &token, None);
        let mut seen = Vec::new();
        for _ in 0..kills {
            let mut agent = home.start();
            // A deliberate sleep: the agent is killed at a random moment.
            thread::sleep(rand::rng().random_range(Duration::ZERO..longest));
            agent.kill();
            if home.current().exists() {
                home.pair();
            }
            seen.extend(home.keys());
        }
        // It may have started another renewal before its exit, but not every time.
        let unfinished = (0..20).take_while(|_| {
            run_until_idle(&home);
            seen.extend(home.keys());
            home.pki_dir().join("kubelet-client.key.tmp").exists()
        });
        assert!(unfinished.count() < 20, "a key that never gets its certificate");
        assert!(home.pair().is_valid_at(OffsetDateTime::now_utc()));
        let made = requests(server, &home.node).await;
        are_distinct(&made);
        assert!((1..=2 * (kills + 20)).contains(&made.len()), "{} requests", made.len());
        for request in &made {
            let key = parse_csr(request).public_key().clone();
            assert!(seen.contains(&key), "{}: a key was lost", request["metadata"]["name"]);
        }
        let pairs = super::names(&home.pki_dir()).into_iter().filter(|name| name.ends_with(".pem"));
        // The link, its target, the previous pair, and one that was about to be removed.
        assert!(pairs.count() <= 4, "{:?}", super::names(&home.pki_dir()));
        renewed += made.len() - 1;
    }
    assert!(renewed > 0, "none was renewed between all those kills");
}

/// Runs the agent until it has a valid certificate and no pending request.
fn run_until_idle(home: &NodeHome) {
    let agent = home.start();
    home.wait_for_status("no certificate in the end", |status| {
        let client = &status.certificates[0];
        let good = |held: &windlass_node::status_file::CurrentCertificateStatus| {
            held.not_after > OffsetDateTime::now_utc()
        };
        let idle = matches!(client.activity.state.as_str(), "Holding" | "Pausing");
        status.pid == agent.pid() && client.current.as_ref().is_some_and(good) && idle
    });
}
