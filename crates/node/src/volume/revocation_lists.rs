//! Certificate revocation lists of all signers, by signer and authority.

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass_pki::{CertificateRevocationList, Error};

/// The CertificateRevocationLists of the server, of which every authority has at most one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RevocationListIndex {
    /// By authority ID, which orders the lists of a signer.
    lists: BTreeMap<String, Arc<PublishedList>>,
}

/// The list of one authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedList {
    /// Signer of the certificates, such as `example.com/web`.
    pub signer: String,
    /// The CRL as DER; it was parsed, but its signature was not verified.
    pub der: Vec<u8>,
}

impl PublishedList {
    /// Checks that `der` is a CRL, so that no reader gets a file that it cannot parse.
    pub fn new(signer: &str, der: Vec<u8>) -> Result<Self, Error> {
        CertificateRevocationList::from_der(&der)?;
        Ok(Self { signer: signer.to_owned(), der })
    }
}

impl RevocationListIndex {
    /// Adds or replaces the list of an authority.
    pub fn set(&mut self, authority: &str, list: Arc<PublishedList>) {
        self.lists.insert(authority.to_owned(), list);
    }

    /// Removes the list of an authority. Returns whether there was one.
    pub fn remove(&mut self, authority: &str) -> bool {
        self.lists.remove(authority).is_some()
    }

    /// Returns the list of an authority.
    pub fn get(&self, authority: &str) -> Option<&Arc<PublishedList>> {
        self.lists.get(authority)
    }

    /// Returns the lists of a signer, sorted by authority ID.
    pub fn lists_of(&self, signer: &str) -> impl Iterator<Item = (&str, &PublishedList)> {
        let lists = self.lists.iter().filter(move |(_, list)| list.signer == signer);
        lists.map(|(authority, list)| (authority.as_str(), &**list))
    }
}
