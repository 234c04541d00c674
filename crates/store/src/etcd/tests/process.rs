//! etcd processes for tests, reused where a test leaves them intact.

use std::path::PathBuf;
use std::sync::Mutex;

use windlass_testkit::etcd::{EtcdCluster, EtcdMember};

/// Short election timeouts for tests.
pub(super) const QUICK: [&str; 2] = ["--heartbeat-interval=20", "--election-timeout=200"];

/// Processes that no test uses now, with their number of users.
static IDLE: Mutex<Vec<(EtcdCluster, u64)>> = Mutex::new(Vec::new());

/// A cluster of one member for one user; returned to the pool on drop.
pub(super) struct EtcdProcess {
    cluster: Option<EtcdCluster>,
    uses: u64,
    reuse: bool,
}

impl EtcdProcess {
    /// Returns an idle process, or starts a new one.
    pub(super) fn acquire() -> Self {
        let idle = IDLE.lock().unwrap().pop();
        let (cluster, uses) = idle.unwrap_or_else(|| (EtcdCluster::start(1, &QUICK).unwrap(), 0));
        Self { cluster: Some(cluster), uses: uses + 1, reuse: true }
    }

    /// Starts a process with additional arguments; it is not reused.
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

    /// Returns the number of users, including the current one.
    pub(super) fn uses(&self) -> u64 {
        self.uses
    }

    /// Kills etcd; its data stays.
    pub(super) fn kill(&mut self) {
        self.member().kill().unwrap();
    }

    /// Restarts etcd after it was killed.
    pub(super) fn restart(&mut self, args: &[&str]) {
        self.member().restart(&[&QUICK, args].concat()).unwrap();
    }

    /// Deletes the data of etcd.
    pub(super) fn wipe(&mut self) {
        self.member().wipe().unwrap();
    }

    /// Disarms the alarm of a full database, and defragments it.
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
