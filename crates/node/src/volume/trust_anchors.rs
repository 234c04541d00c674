//! Trust anchors: which bundles a volume selects, and what comes out of them.
//!
//! What comes out are certificates and nothing else, each once, in an order that depends on nothing
//! but which certificates they are. So the same set is the same text, whichever bundles it comes from
//! and whoever writes it.

#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use windlass_api::selector::labels::LabelSelector;
use windlass_pki::{
    Fingerprint, ForeignCertificate, certificate_set_digest, fingerprint, labelled_certificates,
    pem,
};

/// SHA-256 digest of a certificate, a set of anchors or a payload.
pub type Digest = Fingerprint;

/// A set of trust anchors without duplicates, ordered by SHA-256 digest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustAnchors {
    /// DER by its digest, which also gives the order.
    certificates: BTreeMap<Digest, Arc<[u8]>>,
}

/// What has to be known of a ClusterTrustBundle, of whatever version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustBundle {
    /// Name of the ClusterTrustBundle, as in `metadata.name`.
    pub name: String,
    /// Which version of its contents it is: `metadata.generation`, or 0.
    pub generation: i64,
    /// The signer whose certificates it is for; empty for none.
    pub signer: String,
    /// Labels of the ClusterTrustBundle, for label selectors.
    pub labels: BTreeMap<String, String>,
    /// The certificates of `spec.trustBundle`, without duplicates.
    pub anchors: TrustAnchors,
    /// How many blocks of its text are no certificates although they say so.
    pub unreadable: usize,
}

/// All bundles, for looking them up. A clone of it shares them.
#[derive(Clone, Debug, Default)]
pub struct TrustBundleIndex {
    by_name: BTreeMap<String, Arc<TrustBundle>>,
    by_signer: BTreeMap<String, BTreeSet<String>>,
}

/// Which bundles a volume wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BundleSelector {
    /// The one with this name.
    Name(String),
    /// Those of this signer whose labels match. A selector that is not there selects nothing; one
    /// without requirements selects all of the signer's.
    Signer(String, LabelSelector),
}

/// Why there are no anchors. Where kubelet has words for it, these are they.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustAnchorsError {
    /// There is no such bundle.
    #[error(
        "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io {0:?} not found"
    )]
    NotFound(String),
    /// There is no bundle that matches.
    #[error("combination of signerName and labelSelector matched zero ClusterTrustBundles")]
    NoneMatched,
    /// There are bundles, but nothing in them is a certificate.
    #[error("the selected ClusterTrustBundles contain no certificates")]
    Empty,
}

impl TrustAnchors {
    /// The certificates in a text, and how many blocks say that they are one and are not. Headers,
    /// other blocks and the text between them are dropped.
    pub fn from_pem(text: &str) -> (Self, usize) {
        let mut anchors = Self::default();
        let mut unreadable = 0;
        for der in labelled_certificates(text.as_bytes()) {
            if ForeignCertificate::from_der(&der).is_ok() {
                anchors.certificates.insert(fingerprint(&der), der.into());
            } else {
                unreadable += 1;
            }
        }
        (anchors, unreadable)
    }

    /// Adds all of another set.
    pub fn add(&mut self, other: &Self) {
        let more = other.certificates.iter().map(|(digest, der)| (*digest, der.clone()));
        self.certificates.extend(more);
    }

    /// Returns whether the set contains no certificate.
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// Returns the number of distinct certificates.
    pub fn len(&self) -> usize {
        self.certificates.len()
    }

    /// The certificates, in the order of the text.
    pub fn der(&self) -> impl Iterator<Item = &[u8]> {
        self.certificates.values().map(|der| &**der)
    }

    /// Returns the certificates as PEM, in the order of their digests.
    pub fn to_pem(&self) -> String {
        pem::encode_certificates(self.der())
    }

    /// What tells this set from others, in whatever order its certificates are written.
    pub fn digest(&self) -> Digest {
        certificate_set_digest(self.certificates.keys())
    }
}

impl TrustBundle {
    /// Reads the text of a bundle, once for all volumes that will want it.
    pub fn new(
        name: &str,
        generation: i64,
        signer: &str,
        labels: BTreeMap<String, String>,
        text: &str,
    ) -> Self {
        let (anchors, unreadable) = TrustAnchors::from_pem(text);
        let (name, signer) = (name.to_owned(), signer.to_owned());
        Self { name, generation, signer, labels, anchors, unreadable }
    }

    /// How many bytes its contents take.
    pub fn size(&self) -> usize {
        let labels = self.labels.iter().map(|(key, value)| key.len() + value.len());
        let anchors = self.anchors.der().map(|der| der.len() + size_of::<Digest>());
        self.name.len() + self.signer.len() + labels.sum::<usize>() + anchors.sum::<usize>()
    }
}

impl TrustBundleIndex {
    /// Adds a bundle, in the place of the one with its name.
    pub fn set(&mut self, bundle: impl Into<Arc<TrustBundle>>) {
        let bundle = bundle.into();
        self.remove(&bundle.name);
        let names = self.by_signer.entry(bundle.signer.clone()).or_default();
        names.insert(bundle.name.clone());
        self.by_name.insert(bundle.name.clone(), bundle);
    }

    /// Removes a bundle from the index; does nothing if it is unknown.
    pub fn remove(&mut self, name: &str) {
        let Some(bundle) = self.by_name.remove(name) else { return };
        if let Some(names) = self.by_signer.get_mut(&bundle.signer) {
            names.remove(name);
            if names.is_empty() {
                self.by_signer.remove(&bundle.signer);
            }
        }
    }

    /// The bundle with this name.
    pub fn get(&self, name: &str) -> Option<&TrustBundle> {
        self.by_name.get(name).map(|bundle| &**bundle)
    }

    /// Returns the number of bundles in the index.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns whether the index contains no bundle.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// How many bytes they take, as far as their contents go.
    pub fn size(&self) -> usize {
        self.by_name.values().map(|bundle| bundle.size()).sum()
    }

    /// Those that are wanted, by name.
    pub fn select<'a>(&'a self, select: &BundleSelector) -> Vec<&'a TrustBundle> {
        match select {
            BundleSelector::Name(name) => self.get(name).into_iter().collect(),
            BundleSelector::Signer(signer, labels) => {
                let names = self.by_signer.get(signer).into_iter().flatten();
                let bundles = names.filter_map(|name| self.get(name));
                let matches = |bundle: &&TrustBundle| {
                    labels.matches(|key| bundle.labels.get(key).map(String::as_str))
                };
                bundles.filter(matches).collect()
            }
        }
    }

    /// The certificates of those that are wanted: at least one, unless it is `optional`.
    pub fn anchors(
        &self,
        select: &BundleSelector,
        optional: bool,
    ) -> Result<TrustAnchors, TrustAnchorsError> {
        let bundles = self.select(select);
        let mut anchors = TrustAnchors::default();
        for bundle in &bundles {
            anchors.add(&bundle.anchors);
        }
        if optional || !anchors.is_empty() {
            return Ok(anchors);
        }
        Err(match select {
            _ if !bundles.is_empty() => TrustAnchorsError::Empty,
            BundleSelector::Name(name) => TrustAnchorsError::NotFound(name.clone()),
            BundleSelector::Signer(..) => TrustAnchorsError::NoneMatched,
        })
    }
}
