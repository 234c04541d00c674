//! What tests need: an authority, certificates, and disks that break.

pub mod node;
mod reports;
pub mod server;
pub mod tls;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};

use time::macros::datetime;
use time::{Duration, OffsetDateTime};
use tokio::sync::Notify;
use windlass_pki::{
    AltNames, CertificateAuthority, CertificateTemplate, CertificateUsages, ForeignCertificate,
    IssuedSubject, PrivateKey, PublicKey, Serial, Subject, SubjectKey, SystemRandom, Validity,
    issue_certificate,
};

use crate::key_pair::CertificateKeyPair;
use windlass_runtime::durable::{DiskOperation, FileSystem};

pub use reports::report;

pub const START: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

pub static AUTHORITY: LazyLock<CertificateAuthority> = LazyLock::new(|| {
    let subject = Subject::new("test", &[]).unwrap();
    let validity = Validity::lasting(START - Duration::days(3650), Duration::days(36500)).unwrap();
    let serial = Serial::random(&SystemRandom::new()).unwrap();
    CertificateAuthority::self_signed(&subject, validity, PrivateKey::generate().unwrap(), serial)
        .unwrap()
});

/// What a signer would issue.
pub struct CertificateFixture<'a> {
    pub common_name: &'a str,
    pub organizations: &'a [&'a str],
    pub names: AltNames,
    pub from: OffsetDateTime,
    pub until: OffsetDateTime,
}

impl CertificateFixture<'_> {
    /// The usual certificate of a node's client, for a day.
    pub fn client(from: OffsetDateTime) -> CertificateFixture<'static> {
        CertificateFixture {
            common_name: "system:node:n1",
            organizations: &["system:nodes"],
            names: AltNames::default(),
            from,
            until: from + Duration::days(1),
        }
    }

    pub fn pem(&self, key: &PublicKey) -> String {
        let key = SubjectKey::from_der(key.as_der()).unwrap();
        let issued = issue_certificate(
            &AUTHORITY,
            &CertificateTemplate {
                subject: IssuedSubject::new(self.common_name, self.organizations),
                alt_names: self.names.clone(),
                usages: CertificateUsages::from_names(&["digital signature", "client auth"])
                    .unwrap(),
                validity: Validity::new(self.from, self.until).unwrap(),
                public_key: &key,
                serial: Serial::random(&SystemRandom::new()).unwrap(),
            },
        );
        issued.unwrap().to_pem()
    }

    pub fn certificate(&self, key: &PublicKey) -> ForeignCertificate {
        windlass_pki::parse_certificate_blocks(self.pem(key).as_bytes()).unwrap().remove(0)
    }

    pub fn identity(&self, key: PrivateKey) -> CertificateKeyPair {
        CertificateKeyPair::new(vec![self.certificate(key.public_key())], key).unwrap()
    }
}

/// A certificate of a node's client, for a day.
pub fn client_identity(from: OffsetDateTime) -> CertificateKeyPair {
    CertificateFixture::client(from).identity(PrivateKey::generate().unwrap())
}

/// A disk that breaks at one operation.
pub struct FailingDisk {
    done: AtomicUsize,
    at: usize,
    how: DiskFailure,
    hit: AtomicBool,
    /// Told when the operation is reached.
    pub reached: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFailure {
    /// The process ends there: no operation is done after it.
    Kill,
    /// This operation fails, and those that write until the disk is repaired.
    Fail(io::ErrorKind),
}

impl FailingDisk {
    /// A disk that breaks when `at` operations have been done.
    pub fn fail_at(at: usize, how: DiskFailure) -> Arc<Self> {
        let (done, hit) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Self { done, at, how, hit, reached: Notify::new() })
    }

    pub fn files(self: &Arc<Self>) -> FileSystem {
        let this = self.clone();
        FileSystem::with_hook(Arc::new(move |operation, path| {
            this.check_operation(operation, path)
        }))
    }

    /// Whether the operation was reached.
    pub fn was_hit(&self) -> bool {
        self.hit.load(SeqCst)
    }

    /// Works again, and does not break any more.
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
            // What cannot be written to can be read, and a full disk can be cleaned up.
            DiskFailure::Fail(_) if operation.is_read_only() && number > self.at => Ok(()),
            DiskFailure::Fail(io::ErrorKind::StorageFull) if operation == DiskOperation::Remove => {
                Ok(())
            }
            DiskFailure::Fail(kind) => Err(kind.into()),
        }
    }
}
