use futures::FutureExt;
use http::Method;

use super::*;
use crate::user::MASTERS;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SOON: Duration = Duration::from_secs(60);

struct FlowRequest {
    peer: Peer,
    user: User,
    info: RequestInfo,
}

fn flow_request(user: &User, method: Method, path: &str) -> FlowRequest {
    let peer = Peer::from_tls("127.0.0.1:1".parse().unwrap(), Vec::new());
    let info = RequestInfo::parse(&method, path, false, None).unwrap();
    FlowRequest { peer, user: user.clone(), info }
}

fn user(name: &str, group: &str) -> User {
    User::authenticated(name, "", vec![group.into()])
}

/// Returns a seat that must be available immediately.
#[track_caller]
fn at_once(flow: &FlowController, asked: &FlowRequest) -> RequestSeat {
    let FlowRequest { peer, user, info } = asked;
    let entered = flow.enter(peer, user, info, 1, SOON).now_or_never();
    entered.expect("no wait").expect("a seat")
}

/// Returns a controller with all ordinary seats taken, and the seats.
fn saturated() -> (FlowController, Vec<RequestSeat>) {
    let flow = FlowController::new(InflightLimits { reads: 3, writes: 2 }, FaultInjection::default());
    let admin = user("admin", MASTERS);
    let (read, write) = (flow_request(&admin, Method::GET, MAPS), flow_request(&admin, Method::POST, MAPS));
    let mut held: Vec<RequestSeat> = (0..3).map(|_| at_once(&flow, &read)).collect();
    held.extend((0..2).map(|_| at_once(&flow, &write)));
    (flow, held)
}

#[tokio::test]
async fn leases_nodes_and_health_are_served_when_other_requests_wait() {
    let (flow, held) = saturated();
    let admin = user("admin", MASTERS);
    let ordinary = flow_request(&admin, Method::POST, MAPS);
    let FlowRequest { peer, user: who, info } = &ordinary;
    let mut waiting = Box::pin(flow.enter(peer, who, info, 1, SOON));
    assert!(waiting.as_mut().now_or_never().is_none(), "administrators wait like everybody");

    let controller = user("controller", "system:authenticated");
    let node = user("system:node:a", "system:nodes");
    let mut inside = vec![
        at_once(&flow, &flow_request(&controller, Method::GET, LEASE)),
        at_once(&flow, &flow_request(&controller, Method::PUT, LEASE)),
        at_once(&flow, &flow_request(&node, Method::PUT, "/api/v1/nodes/a/status")),
        at_once(&flow, &flow_request(&User::anonymous(), Method::GET, "/readyz")),
    ];
    let local = Peer::local(admin.clone());
    let entered = flow.enter(&local, &admin, &ordinary.info, 1, SOON).now_or_never();
    inside.push(entered.expect("no wait").expect("a seat"));

    let text = metrics_text(&flow);
    for words in [
        "apiserver_flowcontrol_current_executing_requests{priority_level=\"exempt\"} 2",
        "apiserver_flowcontrol_current_executing_requests{priority_level=\"leader-election\"} 2",
        "apiserver_flowcontrol_current_executing_requests{priority_level=\"system\"} 1",
        "apiserver_flowcontrol_current_executing_requests{priority_level=\"global-default\"} 5",
        "apiserver_flowcontrol_current_inqueue_requests{priority_level=\"global-default\"} 1",
    ] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    drop((held, inside));
    assert!(waiting.now_or_never().expect("its turn").is_ok());
    for level in PriorityLevel::ALL {
        assert_eq!(flow.levels.counts(level), LevelCounts::default(), "{level:?}");
    }
}

fn metrics_text(flow: &FlowController) -> String {
    let metrics = MetricsRegistry::new();
    flow.register_metrics(&metrics);
    metrics.encode()
}

#[tokio::test]
async fn reads_and_writes_do_not_wait_for_each_other() {
    let flow = FlowController::new(InflightLimits { reads: 1, writes: 1 }, FaultInjection::default());
    let alice = user("alice", "dev");
    let _read = at_once(&flow, &flow_request(&alice, Method::GET, MAPS));
    let _write = at_once(&flow, &flow_request(&alice, Method::POST, MAPS));
}

#[tokio::test]
async fn too_many_and_too_long_are_429() {
    let (flow, held) = saturated();
    let FlowRequest { peer, user: who, info } = flow_request(&user("bob", "dev"), Method::POST, MAPS);
    let mut queue = Vec::new();
    for _ in 0..2 * limits::QUEUE_PER_USER {
        let mut waiting = Box::pin(flow.enter(&peer, &who, &info, 1, SOON));
        assert!(waiting.as_mut().now_or_never().is_none());
        queue.push(waiting);
    }
    let refused = flow.enter(&peer, &who, &info, 1, SOON).now_or_never().expect("at once");
    let status = refused.err().expect("refused").status();
    let retry = status.details.map(|details| details.retry_after_seconds);
    assert_eq!((status.code, retry), (Some(429), Some(1)));
    drop(queue);
    let refused = flow.enter(&peer, &who, &info, 1, Duration::ZERO).await;
    assert!(matches!(refused, Err(Error::TooManyRequests)));

    let text = metrics_text(&flow);
    for reason in ["queue-full", "time-out"] {
        let words = format!(
            "apiserver_flowcontrol_rejected_requests_total{{priority_level=\"global-default\",reason=\"{reason}\"}} 1"
        );
        assert!(text.contains(&words), "{words} in\n{text}");
    }
    drop(held);
}

#[tokio::test]
async fn a_check_that_fails_denies() {
    let faults = FaultInjection::injected(|check| match check {
        AccessCheck::FlowControl => Err("out of order".into()),
        _ => Ok(()),
    });
    let flow = FlowController::new(InflightLimits::default(), faults);
    let alice = user("alice", "dev");
    for path in [MAPS, LEASE, "/healthz"] {
        let FlowRequest { peer, user, info } = flow_request(&alice, Method::GET, path);
        let entered = flow.enter(&peer, &user, &info, 1, SOON).await;
        assert!(matches!(entered, Err(Error::Internal(_))), "{path}");
    }
}

#[tokio::test]
async fn a_heavy_request_is_one_request_with_many_seats() {
    let flow = FlowController::new(InflightLimits { reads: 140, writes: 1 }, FaultInjection::default());
    let FlowRequest { peer, user, info } = flow_request(&user("alice", "dev"), Method::GET, MAPS);
    let mut seat = flow.enter(&peer, &user, &info, 10, SOON).await.expect("seats");
    let seats = |want: usize| {
        let text = metrics_text(&flow);
        for (what, count) in [("requests", 1), ("seats", want)] {
            let words = format!(
                "apiserver_flowcontrol_current_executing_{what}{{priority_level=\"global-default\"}} {count}"
            );
            assert!(text.contains(&words), "{words} in\n{text}");
        }
    };
    seats(10);
    seat.shrink_to(201);
    seats(3);
    drop(seat);
    assert_eq!(flow.levels.counts(PriorityLevel::Everyone), LevelCounts::default());
}

#[tokio::test]
async fn a_user_whose_responses_are_not_read_is_refused() {
    let flow = FlowController::new(InflightLimits::default(), FaultInjection::default());
    let FlowRequest { peer, user: alice, info } = flow_request(&user("alice", "dev"), Method::GET, MAPS);
    let mut first = flow.enter(&peer, &alice, &info, 1, SOON).await.expect("a seat");
    let mut second = flow.enter(&peer, &alice, &info, 1, SOON).await.expect("a seat");
    let most = limits::PENDING_BYTES_PER_USER;
    flow.charge(&mut first, &alice, most, ExcessPolicy::Reject).expect("it fits");
    let refused = flow.charge(&mut second, &alice, 1, ExcessPolicy::Reject);
    assert!(matches!(refused, Err(Error::TooManyRequests)));
    flow.charge(&mut second, &alice, 1, ExcessPolicy::SendAnyway).expect("it is too late to refuse it");
    let refused = flow.enter(&peer, &alice, &info, 1, SOON).await;
    assert!(matches!(refused, Err(Error::TooManyRequests)));
    let bob = user("bob", "dev");
    flow.enter(&peer, &bob, &info, 1, SOON).await.expect("bob's responses are read");
    drop(second);
    flow.enter(&peer, &alice, &info, 1, SOON).await.expect("a seat");
}
