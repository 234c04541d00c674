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
    AltNames, Authority, ForeignCertificate, Issuance, IssuedSubject, PrivateKey, PublicKey,
    Serial, Subject, SubjectKey, SystemRandom, Usages, Validity, issue_certificate,
};

use crate::files::{Files, Operation};
use crate::identity::Identity;

pub use reports::report;

/// When tests begin.
pub const START: OffsetDateTime = datetime!(2026-03-01 12:00 UTC);

pub static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| {
    let subject = Subject::new("test", &[]).unwrap();
    let validity = Validity::lasting(START - Duration::days(3650), Duration::days(36500)).unwrap();
    let serial = Serial::random(&SystemRandom::new()).unwrap();
    Authority::self_signed(&subject, validity, PrivateKey::generate().unwrap(), serial).unwrap()
});

/// What a signer would issue.
pub struct Signed<'a> {
    pub common_name: &'a str,
    pub organizations: &'a [&'a str],
    pub names: AltNames,
    pub from: OffsetDateTime,
    pub until: OffsetDateTime,
}

impl Signed<'_> {
    /// The usual certificate of a node's client, for a day.
    pub fn client(from: OffsetDateTime) -> Signed<'static> {
        Signed {
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
            &Issuance {
                subject: IssuedSubject::new(self.common_name, self.organizations),
                alt_names: self.names.clone(),
                usages: Usages::from_names(&["digital signature", "client auth"]).unwrap(),
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

    pub fn identity(&self, key: PrivateKey) -> Identity {
        Identity::new(vec![self.certificate(key.public_key())], key).unwrap()
    }
}

/// A certificate of a node's client, for a day.
pub fn client_identity(from: OffsetDateTime) -> Identity {
    Signed::client(from).identity(PrivateKey::generate().unwrap())
}

/// A disk that breaks at one operation.
pub struct Breaking {
    done: AtomicUsize,
    at: usize,
    how: How,
    hit: AtomicBool,
    /// Told when the operation is reached.
    pub reached: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The process ends there: no operation is done after it.
    Kill,
    /// This operation fails, and those that write until the disk is repaired.
    Fail(io::ErrorKind),
}

impl Breaking {
    /// A disk that breaks when `at` operations have been done.
    pub fn at(at: usize, how: How) -> Arc<Self> {
        let (done, hit) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Self { done, at, how, hit, reached: Notify::new() })
    }

    pub fn files(self: &Arc<Self>) -> Files {
        let this = self.clone();
        Files::with_hook(Arc::new(move |operation, path| this.ask(operation, path)))
    }

    /// Whether the operation was reached.
    pub fn was_hit(&self) -> bool {
        self.hit.load(SeqCst)
    }

    /// Works again, and does not break any more.
    pub fn repair(&self) {
        self.done.store(usize::MAX / 2, SeqCst);
    }

    fn ask(&self, operation: Operation, _: &Path) -> io::Result<()> {
        let number = self.done.fetch_add(1, SeqCst);
        if number < self.at || number >= usize::MAX / 2 {
            return Ok(());
        }
        if !self.hit.swap(true, SeqCst) {
            self.reached.notify_one();
        }
        match self.how {
            How::Kill => Err(io::Error::other("killed")),
            // What cannot be written to can be read, and a full disk can be cleaned up.
            How::Fail(_) if operation.only_looks() && number > self.at => Ok(()),
            How::Fail(io::ErrorKind::StorageFull) if operation == Operation::Remove => Ok(()),
            How::Fail(kind) => Err(kind.into()),
        }
    }
}
