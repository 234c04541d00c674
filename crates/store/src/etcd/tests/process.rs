//! etcd processes for tests, used again where a test leaves them as they were.

use std::path::PathBuf;
use std::sync::Mutex;

use windlass_testkit::etcd::{EtcdCluster, EtcdMember};

/// Elections in tests need not be patient.
pub(super) const QUICK: [&str; 2] = ["--heartbeat-interval=20", "--election-timeout=200"];

/// Those that no test uses now, with the number of their users.
static IDLE: Mutex<Vec<(EtcdCluster, u64)>> = Mutex::new(Vec::new());

/// A cluster of one member, for one user; dropped, it waits for the next.
pub(super) struct EtcdProcess {
    cluster: Option<EtcdCluster>,
    uses: u64,
    reuse: bool,
}

impl EtcdProcess {
    /// One that is idle, or else a new one.
    pub(super) fn acquire() -> Self {
        let idle = IDLE.lock().unwrap().pop();
        let (cluster, uses) = idle.unwrap_or_else(|| (EtcdCluster::start(1, &QUICK).unwrap(), 0));
        Self { cluster: Some(cluster), uses: uses + 1, reuse: true }
    }

    /// A new one with more arguments, which nobody uses after.
    pub(super) fn start_own(args: &[&str]) -> Self {
        let cluster = EtcdCluster::start(1, &[&QUICK, args].concat()).unwrap();
        Self { cluster: Some(cluster), uses: 1, reuse: false }
    }

    pub(super) fn data_dir(&self) -> PathBuf {
        self.cluster.as_ref().unwrap().members()[0].data_directory()
    }

    pub(super) fn url(&self) -> String {
        self.cluster.as_ref().unwrap().members()[0].url().to_owned()
    }

    /// How many users it has had, with this one.
    pub(super) fn uses(&self) -> u64 {
        self.uses
    }

    /// Kills etcd; what it has stored stays.
    pub(super) fn kill(&mut self) {
        self.member().kill().unwrap();
    }

    /// Starts etcd again after it was killed.
    pub(super) fn restart(&mut self, args: &[&str]) {
        self.member().restart(&[&QUICK, args].concat()).unwrap();
    }

    /// Forgets what etcd has stored.
    pub(super) fn wipe(&mut self) {
        self.member().wipe().unwrap();
    }

    /// Ends the alarm of a database that was full, and gives back what compactions freed.
    pub(super) fn free_space(&self) {
        self.cluster.as_ref().unwrap().members()[0].defragment().unwrap();
    }

    fn member(&mut self) -> &mut EtcdMember {
        &mut self.cluster.as_mut().unwrap().members_mut()[0]
    }
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        let cluster = self.cluster.take();
        if self.reuse {
            IDLE.lock().unwrap().extend(cluster.map(|cluster| (cluster, self.uses)));
        }
    }
}
