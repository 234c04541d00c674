//! Real etcd processes for tests and benchmarks: started, killed, stopped, started again.
//!
//! `cargo xtask test` says in `WINDLASS_ETCD` where the program is; without it, it is looked for on
//! `PATH`. No process outlives the one that started it, however that one ends.
//!
//! Start reading at [`EtcdCluster`]. An [`EtcdMember`] is one process, [`MemberAddress`] is where it listens, a
//! [`HostNetwork`] has hosts that can be cut off from each other, and a [`KeyChange`] is one stored change.

mod cluster_health;
mod key_changes;
mod member;
mod member_address;
mod network;

use anyhow::Result;

pub use key_changes::KeyChange;
pub use member::EtcdMember;
pub use member_address::MemberAddress;
pub use network::HostNetwork;

/// A running etcd cluster; its processes end when it is dropped.
pub struct EtcdCluster {
    members: Vec<EtcdMember>,
}

impl EtcdCluster {
    /// A new cluster of so many members on loopback, each with these further arguments. Returns when
    /// all of them listen, which is before they have a leader.
    pub fn start(size: usize, args: &[&str]) -> Result<Self> {
        let scheme = if args.contains(&"--auto-tls") { "https" } else { "http" };
        let places: Result<Vec<_>> = (0..size).map(|_| MemberAddress::on_loopback(scheme)).collect();
        Self::start_at(places?, args)
    }

    /// A new cluster with a member at each place.
    pub fn start_at(places: Vec<MemberAddress>, args: &[&str]) -> Result<Self> {
        let names: Vec<_> = places.iter().map(MemberAddress::initial_cluster_entry).collect();
        let cluster = names.join(",");
        let mut members = Vec::new();
        for place in places {
            members.push(EtcdMember::spawn(place, &cluster, args)?);
        }
        // Only then: a member that is alone does not listen.
        for member in &mut members {
            member.wait_until_listening()?;
        }
        Ok(Self { members })
    }

    /// Where clients find the members.
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| member.url().to_owned()).collect()
    }

    /// All members, including those that were killed.
    pub fn members(&self) -> &[EtcdMember] {
        &self.members
    }

    /// The members, to do something to them.
    pub fn members_mut(&mut self) -> &mut [EtcdMember] {
        &mut self.members
    }

    /// The member that leads, as one that does not know better says it.
    pub fn leader(&self) -> Option<usize> {
        let known: Vec<_> = self.members.iter().map(EtcdMember::status).collect();
        let leader = known.iter().flatten().find(|status| status.leader != "0")?.leader.clone();
        known.iter().position(|status| status.as_ref().is_some_and(|status| status.id == leader))
    }
}
