//! What is observed of a rotation's signer: authorities, bundles, consumers and leaves.

use std::collections::BTreeSet;

use time::OffsetDateTime;
use windlass_api::ca_rotation::LaggardKind;

/// One of the two authorities of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AuthorityRole {
    /// The authority that was active when the rotation began.
    Old,
    /// The authority that the rotation introduces.
    New,
}

impl AuthorityRole {
    pub fn other(self) -> AuthorityRole {
        match self {
            AuthorityRole::Old => AuthorityRole::New,
            AuthorityRole::New => AuthorityRole::Old,
        }
    }
}

/// One of the bundles of a signer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BundleRole {
    /// The bundle that changes first.
    Canary,
    /// The bundle that most consumers select.
    Main,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityIdentity {
    /// Subject key identifier of the CA certificate, in hexadecimal digits.
    pub id: String,
    /// SHA-256 of the trust anchor, in hexadecimal digits.
    pub anchor: String,
}

/// Which authorities exist, and which one is active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorityPosition {
    /// The signer has no usable CA, for this reason.
    Unavailable(String),
    /// There is no new authority.
    Unprepared(NewAuthoritySource),
    /// Both exist, and the old one is active.
    Prepared {
        /// Authority that signs until the switch.
        old: AuthorityIdentity,
        /// Authority that is to become active.
        new: AuthorityIdentity,
        /// Whether a rollback has begun, so that the new one can not become active any more.
        is_withdrawn: bool,
    },
    /// Both are known, and the new one is active.
    Switched {
        /// Authority that signed until the switch.
        old: AuthorityIdentity,
        /// Authority that signs since the switch.
        new: AuthorityIdentity,
        /// Whether the key of the old one still exists, so that it can be active again.
        is_reversible: bool,
    },
}

/// Where a new authority comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewAuthoritySource {
    Generated,
    /// Somebody else provides it; the text says how.
    Provided(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundleOwner {
    /// The controllers, or nobody yet: it does not exist.
    Windlass,
    /// Another manager, whose bundles are not written.
    Foreign,
}

/// A bundle of the signer and who has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleObservation {
    pub name: String,
    pub owner: BundleOwner,
    /// SHA-256 of its anchors, in hexadecimal digits; empty if it does not exist.
    pub anchors: BTreeSet<String>,
    /// Ids of the authorities whose leaves agents renew.
    pub tainted: BTreeSet<String>,
    /// Consumers that select it; `None` if the reports are not known.
    pub consumers: Option<Vec<BundleConsumer>>,
}

/// Volumes that select a bundle and are in the same state, or a Bundle that reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleConsumer {
    pub kind: LaggardKind,
    /// `node/NODE/VOLUME`, `node/NODE` for several volumes, or `bundle/NAME`.
    pub name: String,
    /// Name of the node; empty for a Bundle.
    pub node: String,
    /// Number of volumes; 1 for a Bundle, whatever the number of its targets.
    pub volumes: u32,
    /// What is proven about them.
    pub proof: ConsumerProof,
    /// Why it counts as a failure of the canary: its node reports an error, or it has lost the content.
    pub failure: Option<String>,
    /// Why the agent cannot update their files; empty if it can. They may have a leaf that has been superseded.
    pub blocked: String,
}

/// What is proven about a consumer of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsumerProof {
    /// Its files do not have the present content of the bundle; the text says what they have.
    Stale(String),
    /// The node does not report, so its consumers are not known.
    NotReported,
    /// Its files have the bundle, and the application has not opened them since they changed.
    NotRead {
        /// When the files changed, if that is known.
        since: Option<OffsetDateTime>,
    },
    /// Its files have the bundle, and whether they were opened is not observable.
    NotObservable,
    /// Its files have the bundle, and the application has opened them since.
    Read,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafCount {
    /// Leaves in the ledger, including expired and superseded ones.
    pub issued: u64,
    /// Leaves that have neither expired nor been superseded or revoked.
    pub outstanding: u64,
    /// Latest expiry among the unexpired leaves.
    pub latest_expiry: Option<OffsetDateTime>,
}

/// Leaves of both authorities, according to the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeafObservation {
    /// Leaves of the old authority, and of any other that the signer had before.
    pub old: LeafCount,
    /// Leaves of the new authority.
    pub new: LeafCount,
}

impl LeafObservation {
    /// Returns the leaves of one authority.
    pub fn of(&self, role: AuthorityRole) -> LeafCount {
        match role {
            AuthorityRole::Old => self.old,
            AuthorityRole::New => self.new,
        }
    }
}

/// Signers with intermediates below the rotated one: their leaves depend on its anchors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DependentSigners {
    /// Names of the signers that depend on the old anchor.
    pub old: Vec<String>,
    /// Names of the signers that depend on the new anchor.
    pub new: Vec<String>,
}

impl DependentSigners {
    /// Lists the signers that depend on one authority.
    pub fn of(&self, role: AuthorityRole) -> &[String] {
        match role {
            AuthorityRole::Old => &self.old,
            AuthorityRole::New => &self.new,
        }
    }
}

/// All that the phase of a rotation is derived from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotationObservation {
    /// Which authorities exist, and which one is active.
    pub position: AuthorityPosition,
    /// Whether the controllers generate the CA, so that they also discard one that is not used.
    pub is_generated: bool,
    /// The bundle that changes first; `None` if the signer has none.
    pub canary: Option<BundleObservation>,
    /// The signer's bundle; `None` if anchors are not published.
    pub main: Option<BundleObservation>,
    /// Leaves of both authorities; `None` if the ledger is not known.
    pub leaves: Option<LeafObservation>,
    /// Signers with intermediates below the rotated one.
    pub dependents: DependentSigners,
    /// When the canary bundle got the new anchor; `None` if that is not recorded.
    pub canary_since: Option<OffsetDateTime>,
    /// When the rotation began to renew leaves; `None` if that is not recorded.
    pub renewing_since: Option<OffsetDateTime>,
}

impl RotationObservation {
    /// Lists the bundles in the order in which they change.
    pub fn bundles(&self) -> impl Iterator<Item = (BundleRole, &BundleObservation)> + Clone {
        let canary = self.canary.iter().map(|bundle| (BundleRole::Canary, bundle));
        canary.chain(self.main.iter().map(|bundle| (BundleRole::Main, bundle)))
    }
}

impl BundleObservation {
    /// Whether the bundle contains an authority's anchor.
    pub fn has(&self, authority: &AuthorityIdentity) -> bool {
        self.anchors.contains(&authority.anchor)
    }
}
