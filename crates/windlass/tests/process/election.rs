//! Several `windlass controllers` on one server: one leads, another takes over, never two at once.

use std::process::Command;
use std::time::{Duration, Instant};

use hyper::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use windlass_testkit::HttpClient;

use crate::controllers::{ControllersProcess, server};
use crate::server::{PATIENCE, TestDataDir, TestServer};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/windlass-controllers";

/// Lease duration, shorter than the default: for this long after its last renewal, no other process
/// may hold it.
const DURATION: Duration = Duration::from_secs(3);

fn start(server: &TestServer, number: usize) -> ControllersProcess {
    let flags = [
        "--leader-elect-lease-duration=3s",
        "--leader-elect-renew-deadline=2s",
        "--leader-elect-retry-period=250ms",
    ];
    ControllersProcess::start(server, &server.kubeconfig(), &number.to_string(), flags)
}

/// Returns the holder of the lease and the number of transitions.
async fn holder(http: &HttpClient) -> (Option<String>, i64) {
    let (_, lease) = http.request(Method::GET, LEASE, Value::Null).await;
    let holder = lease["spec"]["holderIdentity"].as_str().map(str::to_owned);
    (holder, lease["spec"]["leaseTransitions"].as_i64().unwrap_or_default())
}

/// Waits for a holder other than `before`.
async fn next_holder(http: &HttpClient, before: Option<&str>) -> String {
    let start = Instant::now();
    loop {
        let (found, _) = holder(http).await;
        if let Some(found) = found
            && Some(found.as_str()) != before
        {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "the lease stays with {before:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Creates a namespace and waits for the object that the leader creates in it.
async fn wait_for_leader_work(http: &HttpClient, name: &str) {
    let namespace = json!({"metadata": {"name": name}});
    assert_eq!(http.request(Method::POST, "/api/v1/namespaces", namespace).await.0, 201);
    let start = Instant::now();
    for path in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
        let path = format!("/api/v1/namespaces/{name}/{path}");
        while http.request(Method::GET, &path, Value::Null).await.0 != 200 {
            assert!(start.elapsed() < PATIENCE, "nobody makes {path}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_takes_over_when_the_leader_is_killed_or_stopped() {
    let server = server(TestDataDir::new(), [""; 0]);
    let http = server.http();
    let mut leader = start(&server, 0);
    let mut name = next_holder(&http, None).await;
    wait_for_leader_work(&http, "n0").await;
    let mut follower = start(&server, 1);
    for round in 1..=6 {
        let (_, before) = holder(&http).await;
        let stopped = round % 2 == 0;
        let signal = if stopped { Signal::STOP } else { Signal::KILL };
        leader.signal(signal);
        let at = Instant::now();
        let next = next_holder(&http, Some(&name)).await;
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
    next_holder(&http, Some(&name)).await;
    wait_for_leader_work(&http, "last").await;
    drop(follower);
}

#[test]
fn mistakes_in_flags_are_told_before_anything_is_asked() {
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
