//! An etcd for tests, and stores in it.

use std::sync::Arc;
use std::time::Duration;

use windlass_store::{EtcdOptions, Store};
use windlass_testkit::etcd::{EtcdCluster, EtcdMember};

/// Elections in tests need not be patient.
const QUICK: [&str; 2] = ["--heartbeat-interval=20", "--election-timeout=200"];

/// A cluster of one member; it ends with this, or with the process.
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

    /// A store in it; all share their objects. It has patience for a machine with much else to do.
    pub fn open(&self) -> Arc<dyn Store> {
        self.open_within(Duration::from_secs(10), Duration::from_secs(30))
    }

    /// As [`TestEtcd::open`], but it soon gives up.
    pub fn open_hasty(&self) -> Arc<dyn Store> {
        self.open_within(Duration::from_millis(500), Duration::from_secs(2))
    }

    fn open_within(&self, attempt: Duration, patience: Duration) -> Arc<dyn Store> {
        let mut options = EtcdOptions::new(self.cluster.urls());
        (options.attempt, options.patience) = (attempt, patience);
        Arc::new(windlass_store::EtcdStore::open(options).unwrap())
    }

    /// Kills it; what it has stored stays.
    pub fn kill(&mut self) {
        self.member().kill().unwrap();
    }

    /// Starts it again after it was killed.
    pub fn restart(&mut self) {
        self.member().restart(&QUICK).unwrap();
    }

    /// Ends the alarm of a database that was full, and gives back what compactions freed.
    pub fn defragment(&self) {
        self.cluster.members()[0].defragment().unwrap();
    }

    fn member(&mut self) -> &mut EtcdMember {
        &mut self.cluster.members_mut()[0]
    }
}
