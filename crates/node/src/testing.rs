//! Fixtures of unit tests with types of this crate; `windlass_testkit` has the others.

pub mod node;
mod reports;
pub mod tls;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use time::OffsetDateTime;
use tokio::sync::Notify;
use windlass_pki::{CrlTemplate, PrivateKey};

use crate::key_pair::CertificateKeyPair;
use windlass_runtime::durable::{DiskOperation, FileSystem};

pub use reports::report;
pub use windlass_testkit::{AUTHORITY, CertificateFixture, START};

/// A [`CertificateFixture`] with its key.
pub trait IdentityFixture {
    fn identity(&self, key: PrivateKey) -> CertificateKeyPair;
}

impl IdentityFixture for CertificateFixture<'_> {
    fn identity(&self, key: PrivateKey) -> CertificateKeyPair {
        CertificateKeyPair::new(vec![self.certificate(key.public_key())], key).unwrap()
    }
}

/// A client certificate of a node, valid for a day.
pub fn client_identity(from: OffsetDateTime) -> CertificateKeyPair {
    CertificateFixture::client(from).identity(PrivateKey::generate().unwrap())
}

/// Returns an empty CRL with this number as DER; the same bytes for the same number.
pub fn revocation_list(number: u64) -> Vec<u8> {
    static LISTS: Mutex<BTreeMap<u64, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let mut lists = LISTS.lock().unwrap();
    let sign = || {
        let next_update = START + time::Duration::DAY;
        let template = CrlTemplate { number, this_update: START, next_update, revoked: &[] };
        AUTHORITY.sign_crl(&template).unwrap().der().to_vec()
    };
    lists.entry(number).or_insert_with(sign).clone()
}

pub struct FailingDisk {
    done: AtomicUsize,
    at: usize,
    how: DiskFailure,
    hit: AtomicBool,
    /// Notified when the operation is reached.
    pub reached: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFailure {
    /// The process is killed: no later operation is performed.
    Kill,
    /// This operation fails, and later writes until the disk is repaired.
    Fail(io::ErrorKind),
}

impl FailingDisk {
    /// Creates a disk that fails after `at` operations.
    pub fn fail_at(at: usize, how: DiskFailure) -> Arc<Self> {
        let (done, hit) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Self { done, at, how, hit, reached: Notify::new() })
    }

    pub fn files(self: &Arc<Self>) -> FileSystem {
        let this = self.clone();
        FileSystem::with_hook(Arc::new(move |operation, path| this.check_operation(operation, path)))
    }

    /// Returns whether the operation was reached.
    pub fn was_hit(&self) -> bool {
        self.hit.load(SeqCst)
    }

    /// Repairs the disk, which does not fail again.
    pub fn repair(&self) {
        self.done.store(usize::MAX / 2, SeqCst);
    }

    fn check_operation(&self, operation: DiskOperation, _: &Path) -> io::Result<()> {
        let number = self.done.fetch_add(1, SeqCst);
        if number < self.at || number >= usize::MAX / 2 {
            return Ok(());
        }
        if !self.hit.swap(true, SeqCst) {
            self.reached.notify_one();
        }
        match self.how {
            DiskFailure::Kill => Err(io::Error::other("killed")),
            // A disk that rejects writes can be read, and a full disk can be cleaned up.
            DiskFailure::Fail(_) if operation.is_read_only() && number > self.at => Ok(()),
            DiskFailure::Fail(io::ErrorKind::StorageFull) if operation == DiskOperation::Remove => Ok(()),
            DiskFailure::Fail(kind) => Err(kind.into()),
        }
    }
}
