//! Which requests stand in line with which.

use crate::peer::Peer;
use crate::request::info::{Info, Target};
use crate::user::{UNAUTHENTICATED, User};

/// A sort of requests with seats of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Never waits: health checks, and parts of this process, which would wait for themselves.
    Exempt,
    /// Leader election: who waits here too long gives up its work.
    Leases,
    /// Node agents and their heartbeats: a node that is silent is taken for dead.
    Nodes,
    /// The rest.
    Everyone,
}

/// The group of node agents.
const NODES: &str = "system:nodes";

/// The fewest seats a reserved level has, however few there are for everyone.
const LEAST: usize = 4;

impl Level {
    /// All of them.
    pub const ALL: [Level; 4] = [Level::Exempt, Level::Leases, Level::Nodes, Level::Everyone];

    /// The level of a request.
    pub fn of(peer: &Peer, user: &User, info: &Info) -> Level {
        let path = match &info.target {
            Target::Path if is_health(&info.path) => return Level::Exempt,
            _ if peer.local_user().is_some() => return Level::Exempt,
            Target::Path => None,
            Target::Resource(path) => Some(path),
        };
        if user.is_in(NODES) {
            return Level::Nodes;
        }
        let lease = path
            .is_some_and(|p| p.group == "coordination.k8s.io" && p.resource == "leases")
            && matches!(info.verb, "get" | "create" | "update" | "patch");
        // Who has not said who they are cannot lead anything.
        if lease && !user.is_in(UNAUTHENTICATED) { Level::Leases } else { Level::Everyone }
    }

    /// How many seats it gets when everyone has `seats`.
    pub fn share(self, seats: usize) -> usize {
        match self {
            Level::Exempt => 0,
            Level::Leases => (seats / 8).max(LEAST),
            Level::Nodes => (seats / 2).max(LEAST),
            Level::Everyone => seats.max(1),
        }
    }

    /// Its name in metrics; Kubernetes' nearest.
    pub fn name(self) -> &'static str {
        match self {
            Level::Exempt => "exempt",
            Level::Leases => "leader-election",
            Level::Nodes => "system",
            Level::Everyone => "global-default",
        }
    }
}

fn is_health(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next();
    matches!(first, Some("healthz" | "livez" | "readyz"))
}

/// Whether a request only reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing.
    Read,
    /// It may change something.
    Write,
}

impl Effect {
    /// What a request does.
    pub fn of(info: &Info) -> Effect {
        match info.verb {
            "get" | "list" | "watch" | "head" | "options" => Effect::Read,
            _ => Effect::Write,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::user::MASTERS;

    #[test]
    fn requests_are_told_apart() {
        let outside = Peer::tls("127.0.0.1:1".parse().unwrap(), Vec::new());
        let inside = Peer::local(User::authenticated("system:apiserver", "", vec![]));
        let node = User::authenticated("system:node:a", "", vec![NODES.into()]);
        let admin = User::authenticated("admin", "", vec![MASTERS.into()]);
        let nobody = User::anonymous();
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l";
        let beat = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a";
        let other = "/apis/other.io/v1/namespaces/kube-system/leases/l";
        let pods = "/api/v1/pods";
        for (peer, user, method, path, want, effect) in [
            (&outside, &nobody, Method::GET, "/healthz", Level::Exempt, Effect::Read),
            (&outside, &nobody, Method::HEAD, "/readyz/ping", Level::Exempt, Effect::Read),
            (&outside, &nobody, Method::GET, "/livez/", Level::Exempt, Effect::Read),
            (&outside, &nobody, Method::GET, "/healthzz", Level::Everyone, Effect::Read),
            (&outside, &nobody, Method::GET, "/metrics/healthz", Level::Everyone, Effect::Read),
            (&outside, &nobody, Method::GET, lease, Level::Everyone, Effect::Read),
            (&outside, &admin, Method::GET, pods, Level::Everyone, Effect::Read),
            (&outside, &admin, Method::GET, lease, Level::Leases, Effect::Read),
            (&outside, &admin, Method::PUT, lease, Level::Leases, Effect::Write),
            (&outside, &admin, Method::PATCH, lease, Level::Leases, Effect::Write),
            (&outside, &admin, Method::DELETE, lease, Level::Everyone, Effect::Write),
            (&outside, &admin, Method::PUT, other, Level::Everyone, Effect::Write),
            (&outside, &node, Method::PUT, beat, Level::Nodes, Effect::Write),
            (&outside, &node, Method::GET, pods, Level::Nodes, Effect::Read),
            (&inside, &admin, Method::POST, pods, Level::Exempt, Effect::Write),
        ] {
            let info = Info::parse(&method, path, false, None).unwrap();
            let found = (Level::of(peer, user, &info), Effect::of(&info));
            assert_eq!(found, (want, effect), "{method} {path} {}", user.name);
        }
        let list = Info::parse(&Method::GET, &lease[..lease.len() - 2], true, None).unwrap();
        assert_eq!(Level::of(&outside, &admin, &list), Level::Everyone, "a watch is no renewal");
    }

    #[test]
    fn reserved_levels_have_seats_however_few_there_are() {
        for seats in [0, 1, 400] {
            for level in [Level::Leases, Level::Nodes, Level::Everyone] {
                assert!(level.share(seats) >= 1, "{level:?}");
            }
        }
    }
}
