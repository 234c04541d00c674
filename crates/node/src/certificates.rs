//! Keys that are made here and certificates for them: asked for, kept over restarts, and renewed in
//! time, while the old ones go on being served.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use windlass_pki::AltNames;

use crate::clock::Clock;
use crate::files::Files;
use crate::gates::Gates;
use crate::manager::Random;
use crate::sources::Wakes;
use crate::volume::definition::CertificateSource;
use crate::volume::id::{Owner, SourceId};
use crate::volume::plan::{Credential, Obtained};

/// What it works with.
pub struct Setup {
    /// The server, as the node.
    pub client: Client,
    /// The node's name.
    pub node: String,
    /// The disk.
    pub files: Files,
    /// What time it is.
    pub clock: Clock,
    /// So that not everything is asked for at once.
    pub random: Random,
    /// What is turned off.
    pub gates: Gates,
    /// Woken when there is another certificate, or another reason why there is none.
    pub wakes: Wakes,
}

/// What is to be asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// What the volume says.
    pub source: CertificateSource,
    /// For whom.
    pub subject: Subject,
    /// The directory in which state is kept that has to outlive the process. It is private, and
    /// whoever forgets the certificate removes it.
    pub state: PathBuf,
}

/// For whom a certificate is.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// A pod: by a PodCertificateRequest.
    Pod {
        /// Whose it is, in the pod's namespace.
        service_account: String,
    },
    /// The machine: by a CertificateSigningRequest, since there is no pod.
    Host {
        /// `CN`; the node's name if there is none.
        common_name: Option<String>,
        /// What it speaks for.
        names: AltNames,
    },
}

/// The certificates that are wanted.
pub struct Certificates {
    setup: Setup,
}

impl Certificates {
    /// None are wanted yet.
    pub fn new(setup: Setup) -> Arc<Self> {
        Arc::new(Self { setup })
    }

    /// Asks, waits and renews. Does not end.
    pub async fn run(self: Arc<Self>) {
        let _ = &self.setup;
        std::future::pending::<()>().await;
    }

    /// From now on there is to be such a certificate, unless it is wanted already. What an earlier
    /// life of the process has left is gone on with.
    pub fn want(&self, id: &SourceId, wanted: Wanted) {
        let _ = (id, wanted);
    }

    /// Nothing more is asked for, for any volume of this owner but these.
    pub fn retain(&self, owner: &Owner, wanted: &[SourceId]) {
        let _ = (owner, wanted);
    }

    /// The certificate and its key.
    pub fn get(&self, id: &SourceId) -> Obtained<Credential> {
        let _ = id;
        Obtained::Not("no credentials yet".into())
    }

    /// How many certificates of which signer are in which state, for `kubelet_podcertificate_states`.
    pub fn states(&self) -> BTreeMap<(String, &'static str), u64> {
        BTreeMap::new()
    }
}
