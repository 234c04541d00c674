//! Classifies requests into priority levels.

use crate::peer::Peer;
use crate::request::info::{RequestInfo, RequestTarget};
use crate::user::{UNAUTHENTICATED, User};

/// A class of requests with its own seats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PriorityLevel {
    /// Never waits: health checks, and components of this process, which would wait for themselves.
    Exempt,
    /// Leader election: a leader that waits too long loses its lease.
    Leases,
    /// Node agents and their heartbeats: a silent node is considered dead.
    Nodes,
    /// All other requests; users share the seats fairly.
    Everyone,
}

/// Group of all node agents.
const NODES: &str = "system:nodes";

/// Minimum number of seats of a reserved level.
const LEAST: usize = 4;

impl PriorityLevel {
    /// All priority levels, from the most to the least privileged.
    pub(crate) const ALL: [PriorityLevel; 4] =
        [PriorityLevel::Exempt, PriorityLevel::Leases, PriorityLevel::Nodes, PriorityLevel::Everyone];

    pub(crate) fn for_request(peer: &Peer, user: &User, info: &RequestInfo) -> PriorityLevel {
        let path = match &info.target {
            RequestTarget::Path if is_health(&info.path) => return PriorityLevel::Exempt,
            _ if peer.local_user().is_some() => return PriorityLevel::Exempt,
            RequestTarget::Path => None,
            RequestTarget::Resource(path) => Some(path),
        };
        if user.has_group(NODES) {
            return PriorityLevel::Nodes;
        }
        let lease = path.is_some_and(|p| p.group == "coordination.k8s.io" && p.resource == "leases")
            && matches!(info.verb, "get" | "create" | "update" | "patch");
        // Unauthenticated callers cannot be leaders.
        if lease && !user.has_group(UNAUTHENTICATED) {
            PriorityLevel::Leases
        } else {
            PriorityLevel::Everyone
        }
    }

    /// Returns the seats of this level when `Everyone` has `seats`.
    pub(crate) fn share(self, seats: usize) -> usize {
        match self {
            PriorityLevel::Exempt => 0,
            PriorityLevel::Leases => (seats / 8).max(LEAST),
            PriorityLevel::Nodes => (seats / 2).max(LEAST),
            PriorityLevel::Everyone => seats.max(1),
        }
    }

    /// Returns the name in metrics: the closest level of Kubernetes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            PriorityLevel::Exempt => "exempt",
            PriorityLevel::Leases => "leader-election",
            PriorityLevel::Nodes => "system",
            PriorityLevel::Everyone => "global-default",
        }
    }
}

fn is_health(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next();
    matches!(first, Some("healthz" | "livez" | "readyz"))
}

/// Whether a request reads or writes objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEffect {
    /// The request changes no object: get, list, watch.
    Read,
    /// The request may change objects; reviews are counted here too.
    Write,
}

impl RequestEffect {
    /// Classifies a request by its verb alone.
    pub(crate) fn for_request(info: &RequestInfo) -> RequestEffect {
        match info.verb {
            "get" | "list" | "watch" | "head" | "options" => RequestEffect::Read,
            _ => RequestEffect::Write,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::user::MASTERS;

    #[test]
    fn requests_are_classified() {
        let outside = Peer::from_tls("127.0.0.1:1".parse().unwrap(), Vec::new());
        let inside = Peer::local(User::authenticated("system:apiserver", "", vec![]));
        let node = User::authenticated("system:node:a", "", vec![NODES.into()]);
        let admin = User::authenticated("admin", "", vec![MASTERS.into()]);
        let nobody = User::anonymous();
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l";
        let beat = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a";
        let other = "/apis/other.io/v1/namespaces/kube-system/leases/l";
        let pods = "/api/v1/pods";
        for (peer, user, method, path, want, effect) in [
            (&outside, &nobody, Method::GET, "/healthz", PriorityLevel::Exempt, RequestEffect::Read),
            (&outside, &nobody, Method::HEAD, "/readyz/ping", PriorityLevel::Exempt, RequestEffect::Read),
            (&outside, &nobody, Method::GET, "/livez/", PriorityLevel::Exempt, RequestEffect::Read),
            (&outside, &nobody, Method::GET, "/healthzz", PriorityLevel::Everyone, RequestEffect::Read),
            (
                &outside,
                &nobody,
                Method::GET,
                "/metrics/healthz",
                PriorityLevel::Everyone,
                RequestEffect::Read,
            ),
            (&outside, &nobody, Method::GET, lease, PriorityLevel::Everyone, RequestEffect::Read),
            (&outside, &admin, Method::GET, pods, PriorityLevel::Everyone, RequestEffect::Read),
            (&outside, &admin, Method::GET, lease, PriorityLevel::Leases, RequestEffect::Read),
            (&outside, &admin, Method::PUT, lease, PriorityLevel::Leases, RequestEffect::Write),
            (&outside, &admin, Method::PATCH, lease, PriorityLevel::Leases, RequestEffect::Write),
            (&outside, &admin, Method::DELETE, lease, PriorityLevel::Everyone, RequestEffect::Write),
            (&outside, &admin, Method::PUT, other, PriorityLevel::Everyone, RequestEffect::Write),
            (&outside, &node, Method::PUT, beat, PriorityLevel::Nodes, RequestEffect::Write),
            (&outside, &node, Method::GET, pods, PriorityLevel::Nodes, RequestEffect::Read),
            (&inside, &admin, Method::POST, pods, PriorityLevel::Exempt, RequestEffect::Write),
        ] {
            let info = RequestInfo::parse(&method, path, false, None).unwrap();
            let found = (PriorityLevel::for_request(peer, user, &info), RequestEffect::for_request(&info));
            assert_eq!(found, (want, effect), "{method} {path} {}", user.name);
        }
        let list = RequestInfo::parse(&Method::GET, &lease[..lease.len() - 2], true, None).unwrap();
        assert_eq!(
            PriorityLevel::for_request(&outside, &admin, &list),
            PriorityLevel::Everyone,
            "a watch is no renewal"
        );
    }

    #[test]
    fn reserved_levels_have_seats_however_few_there_are() {
        for seats in [0, 1, 400] {
            for level in [PriorityLevel::Leases, PriorityLevel::Nodes, PriorityLevel::Everyone] {
                assert!(level.share(seats) >= 1, "{level:?}");
            }
        }
    }
}
