//! Trust anchors: which bundles a volume selects, and the anchors they contain.
//!
//! The output contains only certificates, without duplicates, in an order that depends only on the
//! certificates. So the same set gives the same text, whichever bundles it comes from and whoever
//! writes it.

#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::tainted_authority::TaintedAuthorities;
use windlass_api::selector::labels::LabelSelector;
use windlass_pki::{
    Fingerprint, ForeignCertificate, certificate_set_digest, fingerprint, labelled_certificates, pem,
};

/// SHA-256 digest of a certificate, a set of anchors or a payload.
pub type Digest = Fingerprint;

/// A set of trust anchors without duplicates, ordered by SHA-256 digest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustAnchors {
    /// DER by digest, which also defines the order.
    certificates: BTreeMap<Digest, Arc<[u8]>>,
}

/// The relevant fields of a ClusterTrustBundle of any version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustBundle {
    /// Name of the ClusterTrustBundle, as in `metadata.name`.
    pub name: String,
    /// Generation of the content: `metadata.generation`, or 0.
    pub generation: i64,
    /// Name of the signer that the bundle belongs to; empty for none.
    pub signer: String,
    /// Labels of the ClusterTrustBundle, for label selectors.
    pub labels: BTreeMap<String, String>,
    /// The certificates of `spec.trustBundle`, without duplicates.
    pub anchors: TrustAnchors,
    /// Number of `CERTIFICATE` blocks that are not valid certificates.
    pub unreadable: usize,
    /// Authorities of the signer whose certificates are to be renewed, from an annotation.
    pub tainted: TaintedAuthorities,
}

/// All bundles, for lookups. Clones share the bundles.
#[derive(Clone, Debug, Default)]
pub struct TrustBundleIndex {
    by_name: BTreeMap<String, Arc<TrustBundle>>,
    by_signer: BTreeMap<String, BTreeSet<String>>,
}

/// Selector for the bundles of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BundleSelector {
    /// Returns the bundle with this name.
    Name(String),
    /// The bundles of this signer whose labels match. A missing selector selects nothing; an empty
    /// one selects all of the signer's bundles.
    Signer(String, LabelSelector),
}

/// Why a selection has no anchors. The messages are kubelet's where it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustAnchorsError {
    /// No bundle has this name.
    #[error("while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io {0:?} not found")]
    NotFound(String),
    /// No bundle matches the selector.
    #[error("combination of signerName and labelSelector matched zero ClusterTrustBundles")]
    NoneMatched,
    /// The selected bundles contain no certificate.
    #[error("the selected ClusterTrustBundles contain no certificates")]
    Empty,
}

impl TrustAnchors {
    /// Parses the certificates of a text. Also returns the number of `CERTIFICATE` blocks that are
    /// invalid. Headers, other blocks and text between blocks are dropped.
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

    /// Adds all certificates of another set.
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

    /// Returns the certificates as DER, in the order of the PEM text.
    pub fn der(&self) -> impl Iterator<Item = &[u8]> {
        self.certificates.values().map(|der| &**der)
    }

    /// Returns the certificates as PEM, in the order of their digests.
    pub fn to_pem(&self) -> String {
        pem::encode_certificates(self.der())
    }

    /// Returns a digest of the set, independent of the order of certificates.
    pub fn digest(&self) -> Digest {
        certificate_set_digest(self.certificates.keys())
    }
}

impl TrustBundle {
    /// Parses the text of a bundle without tainted authorities, once for all volumes.
    pub fn new(
        name: &str,
        generation: i64,
        signer: &str,
        labels: BTreeMap<String, String>,
        text: &str,
    ) -> Self {
        let (anchors, unreadable) = TrustAnchors::from_pem(text);
        let (name, signer) = (name.to_owned(), signer.to_owned());
        let tainted = TaintedAuthorities::default();
        Self { name, generation, signer, labels, anchors, unreadable, tainted }
    }

    /// Returns the size of its content in bytes.
    pub fn size(&self) -> usize {
        let labels = self.labels.iter().map(|(key, value)| key.len() + value.len());
        let anchors = self.anchors.der().map(|der| der.len() + size_of::<Digest>());
        self.name.len() + self.signer.len() + labels.sum::<usize>() + anchors.sum::<usize>()
    }
}

impl TrustBundleIndex {
    /// Adds a bundle, or replaces the one with the same name.
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

    /// Returns the size of all bundles' content in bytes.
    pub fn size(&self) -> usize {
        self.by_name.values().map(|bundle| bundle.size()).sum()
    }

    /// Returns the selected bundles, ordered by name.
    pub fn select<'a>(&'a self, select: &BundleSelector) -> Vec<&'a TrustBundle> {
        match select {
            BundleSelector::Name(name) => self.get(name).into_iter().collect(),
            BundleSelector::Signer(signer, labels) => {
                let names = self.by_signer.get(signer).into_iter().flatten();
                let bundles = names.filter_map(|name| self.get(name));
                let matches =
                    |bundle: &&TrustBundle| labels.matches(|key| bundle.labels.get(key).map(String::as_str));
                bundles.filter(matches).collect()
            }
        }
    }

    /// Returns the tainted authorities of a signer. Of several taints of an authority, the earliest counts.
    pub fn taints(&self, signer: &str) -> TaintedAuthorities {
        let names = self.by_signer.get(signer).into_iter().flatten();
        let bundles = names.filter_map(|name| self.get(name));
        let mut taints = TaintedAuthorities::default();
        for (authority, taint) in bundles.flat_map(|bundle| &bundle.tainted) {
            let kept = taints.entry(authority.clone()).or_insert(*taint);
            if taint.since < kept.since {
                *kept = *taint;
            }
        }
        taints
    }

    /// Returns the anchors of the selected bundles; fails if there are none, unless `optional`.
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
