//! An etcd for tests, and stores in it.

use std::sync::Arc;
use std::time::Duration;

use windlass_store::{EtcdOptions, Store};
use windlass_testkit::etcd::{EtcdCluster, EtcdMember};

/// Short election timeouts for tests.
const QUICK: [&str; 2] = ["--heartbeat-interval=20", "--election-timeout=200"];

/// A single-member cluster; it ends when dropped, or with the process.
pub struct TestEtcd {
    cluster: EtcdCluster,
}

impl TestEtcd {
    pub fn start() -> TestEtcd {
        TestEtcd::start_with(&[])
    }

    pub fn start_with(args: &[&str]) -> TestEtcd {
        TestEtcd { cluster: EtcdCluster::start(1, &[&QUICK, args].concat()).unwrap() }
    }

    /// Opens a store; all share their objects. Its timeouts allow for a busy machine.
    pub fn open(&self) -> Arc<dyn Store> {
        self.open_within(Duration::from_secs(10), Duration::from_secs(30))
    }

    /// Like [`TestEtcd::open`], with short timeouts.
    pub fn open_hasty(&self) -> Arc<dyn Store> {
        self.open_within(Duration::from_millis(500), Duration::from_secs(2))
    }

    fn open_within(&self, attempt: Duration, patience: Duration) -> Arc<dyn Store> {
        let mut options = EtcdOptions::new(self.cluster.urls());
        (options.attempt, options.patience) = (attempt, patience);
        Arc::new(windlass_store::EtcdStore::open(options).unwrap())
    }

    /// Kills the process; the data is kept.
    pub fn kill(&mut self) {
        self.member().kill().unwrap();
    }

    /// Restarts it after it was killed.
    pub fn restart(&mut self) {
        self.member().restart(&QUICK).unwrap();
    }

    /// Clears the alarm of a full database and releases compacted space.
    pub fn defragment(&self) {
        self.cluster.members()[0].defragment().unwrap();
    }

    fn member(&mut self) -> &mut EtcdMember {
        &mut self.cluster.members_mut()[0]
    }
}
