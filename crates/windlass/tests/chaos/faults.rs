//! Injects faults, one at a time, while the traffic continues.

use std::time::{Duration, Instant};

use hyper::Method;
use rustix::process::Signal;
use serde_json::Value;
use tokio::time::sleep;
use windlass_testkit::retry_async;

use crate::history::{InjectedFault, RequestRoute};
use crate::http;
use crate::test_cluster::{ChaosCluster, PATIENCE, SERVER_HOSTS, wait_for};
use crate::traffic::ChaosTraffic;

/// Number and duration of the faults of one run.
pub struct FaultPlan {
    /// Number of faults of each kind of kill and stop.
    pub kills: usize,
    /// Number of faults of each kind of partition.
    pub partitions: usize,
    pub minority: Duration,
    /// Minimum duration without a quorum.
    pub majority: Duration,
}

struct OngoingFault {
    name: String,
    start: u64,
    leader_change: bool,
    no_quorum: bool,
}

pub struct FaultInjector<'a> {
    pub world: &'a mut ChaosCluster,
    pub traffic: &'a ChaosTraffic,
}

impl FaultInjector<'_> {
    /// Kills and stops processes; needs no network namespaces.
    pub async fn kill_and_stop(&mut self, plan: &FaultPlan) {
        for round in 0..plan.kills {
            self.kill_leader().await;
            self.stop_leader().await;
            self.kill_server(round % 2).await;
        }
        for round in 0..plan.partitions.max(2) {
            self.interrupt_controllers(round % 2 == 1).await;
        }
    }

    /// Injects the faults that need a separable network.
    pub async fn run_partitions(&mut self, plan: &FaultPlan) {
        for _ in 0..plan.partitions {
            self.cut_off_leader(plan.minority).await;
            self.cut_off_leader_and_server(plan.minority).await;
            self.cut_off_all(plan.majority).await;
        }
    }

    async fn kill_leader(&mut self) {
        let leader = self.leader().await;
        let fault = self.start_fault("etcd's leader is killed", true);
        self.world.cluster.members_mut()[leader].kill().unwrap();
        self.traffic.wait_for_writes(self.world).await;
        let member = &mut self.world.cluster.members_mut()[leader];
        tokio::task::block_in_place(|| member.restart(&[])).unwrap();
        self.end(fault).await;
    }

    async fn stop_leader(&mut self) {
        let leader = self.leader().await;
        let fault = self.start_fault("etcd's leader is stopped", true);
        self.world.cluster.members()[leader].pause().unwrap();
        // A deliberate sleep: the duration of the stop is varied.
        sleep(Duration::from_millis(rand::random_range(5_000..8_000))).await;
        self.world.cluster.members()[leader].resume().unwrap();
        self.end(fault).await;
    }

    async fn kill_server(&mut self, server: usize) {
        let fault = self.start_fault(&format!("server {server} is killed"), false);
        self.world.kill_server(server);
        // The moment of the return is varied.
        sleep(Duration::from_millis(rand::random_range(100..1_500))).await;
        self.world.start_server(server);
        self.end(fault).await;
    }

    /// Kills or stops the leading controllers, so that others must issue.
    async fn interrupt_controllers(&mut self, stopped: bool) {
        let leading = self.world.leading_controllers().await;
        let how = if stopped { "stopped" } else { "killed" };
        let fault = self.start_fault(&format!("the leading controllers are {how}"), false);
        if stopped {
            self.world.controllers(leading).signal(Signal::STOP);
            self.wait_for_new_leader(leading).await;
            self.traffic.wait_for_issuance().await;
            self.world.controllers(leading).signal(Signal::CONT);
        } else {
            self.world.kill_controllers(leading);
            self.wait_for_new_leader(leading).await;
            self.world.start_controllers(leading);
        }
        self.traffic.wait_for_issuance().await;
        self.end(fault).await;
    }

    async fn wait_for_new_leader(&self, before: usize) {
        wait_for(&format!("no controllers take over from {before}"), async || {
            self.world.leading_controllers().await != before
        })
        .await;
    }

    /// Isolates the leader from its peers and the servers.
    async fn cut_off_leader(&mut self, length: Duration) {
        let leader = self.leader_host().await;
        let cuts = other_members(leader).chain(SERVER_HOSTS).map(|other| (leader, other)).collect();
        let fault = self.start_fault("etcd's leader is cut off", true);
        self.partition_for(cuts, length).await;
        self.end(fault).await;
    }

    /// Isolates the leader together with one server: that server must not serve state that the
    /// others have changed since.
    async fn cut_off_leader_and_server(&mut self, length: Duration) {
        let leader = self.leader_host().await;
        let [with, without] = SERVER_HOSTS;
        let alone = other_members(leader).map(|other| (with, other));
        let from_peers = other_members(leader).map(|other| (leader, other));
        let cuts = alone.chain(from_peers).chain([(leader, without)]).collect();
        let fault = self.start_fault("etcd's leader is cut off with a server", true);
        self.partition_for(cuts, length).await;
        self.end(fault).await;
    }

    /// Cuts all links between etcd members, so that none has a quorum.
    async fn cut_off_all(&mut self, length: Duration) {
        let mut fault = self.start_fault("no member of etcd reaches another", false);
        fault.no_quorum = true;
        let begun = Instant::now();
        let cuts = [(0, 1), (0, 2), (1, 2)];
        self.set(&cuts, true);
        for server in [0, 1] {
            self.wait_for_status(server, "/readyz", 500).await;
            self.wait_for_status(server, "/livez", 200).await;
        }
        sleep(length.saturating_sub(begun.elapsed())).await;
        let healed = self.world.recorder.now();
        self.set(&cuts, false);
        self.finish(fault, healed).await;
        for server in [0, 1] {
            self.wait_for_status(server, "/readyz", 200).await;
        }
    }

    async fn partition_for(&self, cuts: Vec<(u8, u8)>, length: Duration) {
        self.set(&cuts, true);
        // A deliberate sleep: the duration of the fault.
        sleep(length).await;
        self.set(&cuts, false);
    }

    fn set(&self, cuts: &[(u8, u8)], cut: bool) {
        let network = self.world.network.as_ref().unwrap();
        for (one, other) in cuts {
            let done = if cut { network.disconnect(*one, *other) } else { network.reconnect(*one, *other) };
            done.unwrap();
        }
    }

    /// Waits until a health endpoint of a server has the expected status.
    async fn wait_for_status(&self, server: usize, path: &str, wanted: u16) {
        let addresses = &self.world.addresses;
        wait_for(&format!("{path} of server {server} is not {wanted}"), async || {
            let address = addresses.for_route(RequestRoute::Server(server));
            let answer = http::request(&addresses.http, address, Method::GET, path, &Value::Null).await;
            answer.is_ok_and(|answer| answer.status == wanted)
        })
        .await;
    }

    fn start_fault(&self, name: &str, leader_change: bool) -> OngoingFault {
        let start = self.world.recorder.now();
        OngoingFault { name: name.to_owned(), start, leader_change, no_quorum: false }
    }

    /// Waits until everything works again after the fault was removed.
    async fn end(&mut self, fault: OngoingFault) {
        let healed = self.world.recorder.now();
        self.finish(fault, healed).await;
    }

    async fn finish(&mut self, fault: OngoingFault, healed: u64) {
        self.wait_until_healthy().await;
        self.traffic.wait_for_writes(self.world).await;
        let OngoingFault { name, start, leader_change, no_quorum } = fault;
        let end = self.world.recorder.now();
        let fault = InjectedFault { name, start, healed, end, leader_change, no_quorum };
        self.world.recorder.with(|history| history.faults.push(fault));
        self.world.record_store_changes();
    }

    /// Waits until etcd has recovered, so that only one fault is active at a time.
    async fn wait_until_healthy(&self) {
        let cluster = &self.world.cluster;
        wait_for("etcd does not get well again", async || {
            tokio::task::block_in_place(|| cluster.is_healthy())
        })
        .await;
    }

    /// Index of the etcd leader; waits until there is one.
    async fn leader(&self) -> usize {
        let cluster = &self.world.cluster;
        let leader = async || tokio::task::block_in_place(|| cluster.leader()).ok_or("etcd has no leader");
        retry_async(PATIENCE, leader).await
    }

    async fn leader_host(&self) -> u8 {
        u8::try_from(self.leader().await).unwrap()
    }
}

/// All etcd members except this one.
fn other_members(member: u8) -> impl Iterator<Item = u8> {
    (0..3).filter(move |other| *other != member)
}
