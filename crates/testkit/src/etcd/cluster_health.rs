//! Whether a cluster is well again after something was done to it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::{EtcdCluster, EtcdMember};

/// How long a member that is well takes to answer at most.
const LIMIT: Duration = Duration::from_millis(500);

/// By how many entries of its log a member may be behind while others write.
const BEHIND: u64 = 100;

impl EtcdCluster {
    /// Whether all members have the same leader, all of the log, and connections to all others. Only
    /// then can it lose a member as if nothing had been. Only without TLS.
    pub fn is_healthy(&self) -> bool {
        let known: Option<Vec<RaftStatus>> = self.members().iter().map(EtcdMember::raft_status).collect();
        let Some((first, others)) = known.as_deref().and_then(<[RaftStatus]>::split_first) else {
            return false;
        };
        let newest = others.iter().map(|known| known.log).fold(first.log, u64::max);
        first.leader != 0
            && others.iter().all(|other| (other.leader, other.term) == (first.leader, first.term))
            && others.iter().chain([first]).all(|known| known.applied + BEHIND >= newest)
            && self.members().iter().all(|member| member.connected_peers() == Some(others.len()))
    }
}

/// What a member knows of the others.
struct RaftStatus {
    leader: u64,
    term: u64,
    log: u64,
    applied: u64,
}

impl EtcdMember {
    fn raft_status(&self) -> Option<RaftStatus> {
        let status = self.post("/v3/maintenance/status", "{}", LIMIT)?;
        // What is zero is left out.
        let number = |name: &str| match status.get(name) {
            None => Some(0),
            Some(value) => value.as_str().and_then(|text| text.parse().ok()),
        };
        Some(RaftStatus {
            leader: number("leader")?,
            term: number("raftTerm")?,
            log: number("raftIndex")?,
            applied: number("raftAppliedIndex")?,
        })
    }

    fn connected_peers(&self) -> Option<usize> {
        let address = self.url().trim_start_matches("http://").parse().ok()?;
        let mut stream = TcpStream::connect_timeout(&address, LIMIT).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut metrics = String::new();
        stream.read_to_string(&mut metrics).ok()?;
        let lines = metrics.lines();
        let peers = lines.filter(|line| line.starts_with("etcd_network_active_peers{"));
        Some(peers.filter(|line| line.ends_with(" 1")).count())
    }
}
