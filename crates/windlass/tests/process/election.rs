//! Several `windlass controllers` on one server: one leads, another takes over, never two at once.

use std::process::Command;
use std::time::{Duration, Instant};

use hyper::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use windlass_testkit::{ChildProcess, HttpClient, wait_for_async};

use crate::controllers::{LEASE, server, start_controllers, wait_for_leader};
use crate::server::{PATIENCE, TestDataDir, TestServer};

/// Lease duration, shorter than the default: for this long after its last renewal, no other process
/// may hold it.
const DURATION: Duration = Duration::from_secs(3);

fn start(server: &TestServer, number: usize) -> ChildProcess {
    let flags = [
        "--leader-elect-lease-duration=3s",
        "--leader-elect-renew-deadline=2s",
        "--leader-elect-retry-period=250ms",
    ];
    start_controllers(server, &server.kubeconfig(), &number.to_string(), flags)
}

/// Returns the holder of the lease and the number of transitions.
async fn holder(http: &HttpClient) -> (Option<String>, i64) {
    let (_, lease) = http.request(Method::GET, LEASE, Value::Null).await;
    let holder = lease["spec"]["holderIdentity"].as_str().map(str::to_owned);
    (holder, lease["spec"]["leaseTransitions"].as_i64().unwrap_or_default())
}

/// Creates a namespace and waits for the object that the leader creates in it.
async fn wait_for_leader_work(http: &HttpClient, name: &str) {
    let namespace = json!({"metadata": {"name": name}});
    assert_eq!(http.request(Method::POST, "/api/v1/namespaces", namespace).await.0, 201);
    for path in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
        let path = format!("/api/v1/namespaces/{name}/{path}");
        let exists = async || http.request(Method::GET, &path, Value::Null).await.0 == 200;
        wait_for_async(&format!("nobody makes {path}"), exists).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_takes_over_when_the_leader_is_killed_or_stopped() {
    let server = server(TestDataDir::new(), [""; 0]);
    let http = server.http();
    let mut leader = start(&server, 0);
    let mut name = wait_for_leader(&http, None).await;
    wait_for_leader_work(&http, "n0").await;
    let mut follower = start(&server, 1);
    for round in 1..=6 {
        let (_, before) = holder(&http).await;
        let stopped = round % 2 == 0;
        let signal = if stopped { Signal::STOP } else { Signal::KILL };
        leader.signal(signal);
        let at = Instant::now();
        let next = wait_for_leader(&http, Some(&name)).await;
        // Its last renewal was at most slightly more than a retry period earlier.
        assert!(at.elapsed() > DURATION - Duration::from_millis(1200), "{:?}", at.elapsed());
        wait_for_leader_work(&http, &format!("n{round}")).await;
        let fresh = if stopped {
            // The resumed process finds its lease expired and becomes a standby.
            leader.signal(Signal::CONT);
            leader
        } else {
            start(&server, round + 1)
        };
        assert_eq!(holder(&http).await, (Some(next.clone()), before + 1), "round {round}");
        (leader, follower, name) = (follower, fresh, next);
    }
    // At SIGTERM, the leader releases the lease, so that nobody has to wait.
    leader.signal(Signal::TERM);
    assert!(leader.wait(PATIENCE).is_some_and(|status| status.success()));
    wait_for_leader(&http, Some(&name)).await;
    wait_for_leader_work(&http, "last").await;
    drop(follower);
}

#[test]
fn invalid_flags_are_reported_before_any_request() {
    for (flags, words) in [
        (vec!["--cluster-signing-legacy-unknown-cert-file=c"], "cannot specify cert without key"),
        (vec!["--leader-elect-renew-deadline=15s"], "leaseDuration must be greater than renewDeadline"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
            .args(["controllers", "--kubeconfig", "/nowhere"])
            .args(flags)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(words), "{said}");
    }
}
