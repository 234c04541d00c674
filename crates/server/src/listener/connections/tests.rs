use super::*;
use crate::listener::connection::ConnectionVerdict;

const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
const TWO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

fn limits(total: usize, per_address: usize) -> ConnectionLimits {
    ConnectionLimits { per_address, unauthenticated: total, ..ConnectionLimits::new(total) }
}

fn connections(limits: ConnectionLimits) -> Arc<ConnectionTracker> {
    ConnectionTracker::new(limits, ConnectionDeadlines::default())
}

async fn is_aborted(admission: &ConnectionGuard) -> bool {
    tokio::time::timeout(Duration::ZERO, admission.0.aborted()).await.is_ok()
}

#[tokio::test]
async fn the_oldest_idle_unauthenticated_connection_makes_room() {
    let connections = connections(limits(4, 4));
    let all = [(); 4].map(|()| connections.admit(ONE).unwrap());
    all[0].0.set_authenticated();
    let busy = HttpExchange::begin(&all[1].0);
    let fifth = connections.admit(ONE).unwrap();
    let mut aborted = Vec::new();
    for admission in &all {
        aborted.push(is_aborted(admission).await);
    }
    assert_eq!(aborted, [false, false, true, false]);
    drop(busy);
    let sixth = connections.admit(TWO).unwrap();
    assert!(is_aborted(&all[1]).await, "it is idle again, and the oldest");
    assert!(!is_aborted(&fifth).await && !is_aborted(&sixth).await);
    // Evicted connections are no longer counted, and not subtracted twice when they end.
    drop(all);
    assert_eq!(connections.lock().total, 2);
    assert_eq!(connections.lock().addresses[&ONE], 1);
}

#[tokio::test]
async fn authenticated_connections_are_never_evicted() {
    let connections = connections(limits(2, 2));
    let kept = [(); 2].map(|()| connections.admit(ONE).unwrap());
    for admission in &kept {
        admission.0.set_authenticated();
    }
    assert_eq!(connections.admit(TWO).err(), Some(ExceededLimit::Total));
    assert_eq!(connections.admit(ONE).err(), Some(ExceededLimit::Address));
    for admission in &kept {
        assert!(!is_aborted(admission).await);
    }
    let metrics = MetricsRegistry::new();
    connections.register_metrics(&metrics);
    let text = metrics.encode();
    for line in [
        "windlass_server_connections{authenticated=\"true\"} 2",
        "windlass_server_connections{authenticated=\"false\"} 0",
        "windlass_server_connections_refused_total{limit=\"total\"} 1",
        "windlass_server_connections_refused_total{limit=\"address\"} 1",
        "windlass_server_connections_closed_total{reason=\"evicted\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}

#[tokio::test]
async fn an_address_takes_only_its_own_place() {
    let connections = connections(limits(10, 2));
    let other = connections.admit(TWO).unwrap();
    let first = connections.admit(ONE).unwrap();
    let second = connections.admit(ONE).unwrap();
    let third = connections.admit(ONE).unwrap();
    assert!(is_aborted(&first).await);
    for admission in [&other, &second, &third] {
        assert!(!is_aborted(admission).await);
    }
    second.0.set_authenticated();
    third.0.set_authenticated();
    assert_eq!(connections.admit(ONE).err(), Some(ExceededLimit::Address));
    drop(second);
    assert!(connections.admit(ONE).is_ok());
}

#[test]
fn an_ipv6_host_is_one_address() {
    let parse = |text: &str| prefix(text.parse().unwrap());
    assert_eq!(parse("2001:db8:0:1::1"), parse("2001:db8:0:1:ffff:ffff:ffff:ffff"));
    assert_ne!(parse("2001:db8:0:1::1"), parse("2001:db8:0:2::1"));
    assert_eq!(parse("::ffff:192.0.2.1"), ONE);
    assert_ne!(parse("192.0.2.1"), parse("192.0.2.2"));
}

#[test]
fn most_connections_may_be_those_of_one_address() {
    let limits = ConnectionLimits::default();
    assert_eq!((limits.total, limits.per_address), (32_768, 24_576));
    assert_eq!(ConnectionLimits::new(0).total, 1);
    let few = ConnectionLimits::new(100);
    assert_eq!((few.per_address, few.unauthenticated), (75, 100));
}

#[tokio::test]
async fn too_many_unwritten_answers_close_the_oldest_connection() {
    let limits = ConnectionLimits { unauthenticated_answers: 2, ..limits(10, 10) };
    let connections = connections(limits);
    let all = [(); 4].map(|()| connections.admit(ONE).unwrap());
    let exchanges: Vec<_> = all.iter().map(|admission| HttpExchange::begin(&admission.0)).collect();
    exchanges[0].set_unauthenticated();
    exchanges[1].set_unauthenticated();
    assert!(!is_aborted(&all[0]).await);
    exchanges[2].set_unauthenticated();
    assert!(is_aborted(&all[0]).await);
    // Written responses are no longer counted.
    drop(exchanges);
    HttpExchange::begin(&all[3].0).set_unauthenticated();
    assert!(!is_aborted(&all[1]).await && !is_aborted(&all[2]).await);
    assert!(lock(&connections.answers).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_closed_when_its_time_is_over() {
    let connections = connections(limits(10, 10));
    let ConnectionDeadlines { first_request, idle, closing, .. } = connections.deadlines;
    let connection = connections.admit(ONE).unwrap().0.clone();
    let check = || connection.check(connections.now());
    tokio::time::advance(Duration::from_secs(3)).await;
    connection.established();
    assert_eq!(check(), ConnectionVerdict::Wait(first_request));
    tokio::time::advance(first_request).await;
    assert_eq!(check(), ConnectionVerdict::Abort("timed out waiting for a request"));
    // An open request without output, for example a watch, is neither idle nor blocked.
    let exchange = HttpExchange::begin(&connection);
    tokio::time::advance(idle * 10).await;
    assert_eq!(check(), ConnectionVerdict::Wait(connections.deadlines.unread / 4));
    drop(exchange);
    assert_eq!(check(), ConnectionVerdict::Wait(idle));
    tokio::time::advance(idle - Duration::from_secs(1)).await;
    assert_eq!(check(), ConnectionVerdict::Wait(Duration::from_secs(1)));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(check(), ConnectionVerdict::Idle);
    connection.close_gracefully();
    assert_eq!(check(), ConnectionVerdict::Wait(closing));
    tokio::time::advance(closing).await;
    assert_eq!(check(), ConnectionVerdict::Abort("client did not close the connection"));
}
